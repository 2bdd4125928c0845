//! Listener (SRT, 4.3.1). It keeps no state for a caller before the caller has proved its address:
//! the cookie is a MAC of the address and the minute.

use std::net::{IpAddr, SocketAddr};

use hmac::{Hmac, KeyInit as _, Mac as _};
use measure::Time;
use sha2::Sha256;

use super::conclusion::{self, ReceivedHandshake};
use super::failure::HandshakeFailure;
use super::negotiated::Negotiated;
use super::settings::HandshakeSettings;
use crate::codec::handshake::{
    FIXED, Handshake, HandshakeType, Rejection, VERSION_5, VERSION_5_MAGIC,
};
use crate::codec::stream_id::StreamId;
use crate::crypto::KeyLength;
use crate::seq::SocketClock;

/// Minimum lifetime of a cookie in seconds. The maximum is twice that.
const COOKIE_LIFETIME_S: u64 = 60;

/// Configuration of a [`Listener`].
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// Secret from which cookies are derived.
    pub secret: u64,
    /// Clock of the timestamps before a socket exists.
    pub clock: SocketClock,
    /// Key length that the listener advertises.
    pub advertised_key: Option<KeyLength>,
}

/// Listener of one port.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    config: ListenerConfig,
}

/// Result of a datagram.
#[derive(Debug)]
pub enum ListenerResult {
    /// The answer must be sent to the source of the datagram.
    Answered,
    /// A caller that has proved its address requests a connection.
    Request(Box<ConnectionRequest>),
    /// The datagram is not a handshake for a listener, or its cookie is wrong.
    Ignored,
}

/// Request of a caller that has proved its address.
#[derive(Clone, Debug)]
pub struct ConnectionRequest {
    handshake: ReceivedHandshake,
    /// Clock of the listener, for a rejection.
    clock: SocketClock,
}

impl Listener {
    pub fn new(config: ListenerConfig) -> Listener {
        Listener { config }
    }

    fn cookie(&self, from: SocketAddr, life: u64) -> u32 {
        let key = self.config.secret.to_be_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of HMAC has any length");
        match from.ip() {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac.update(&from.port().to_be_bytes());
        mac.update(&life.to_be_bytes());
        let mac = mac.finalize().into_bytes();
        let word = mac.first_chunk().expect("32 bytes are more than 4");
        // 0 is the cookie of a caller that does not know one yet.
        u32::from_be_bytes(*word).max(1)
    }

    /// Handles a datagram that is for no socket yet (destination 0). Appends the answer.
    pub fn handle(
        &self,
        from: SocketAddr,
        datagram: &[u8],
        at: Time,
        answer: &mut Vec<u8>,
    ) -> ListenerResult {
        let Some((header, cif)) = conclusion::parse_handshake(datagram) else {
            return ListenerResult::Ignored;
        };
        let Ok((fixed, _)) = Handshake::parse(cif) else {
            return ListenerResult::Ignored;
        };
        if header.destination != 0 || fixed.socket_id == 0 {
            return ListenerResult::Ignored;
        }
        let life = at.since_start().as_secs() / COOKIE_LIFETIME_S;
        match fixed.kind {
            HandshakeType::Induction => {
                let induction = Handshake {
                    version: VERSION_5,
                    encryption: self.config.advertised_key.map_or(0, KeyLength::advertised),
                    extension: VERSION_5_MAGIC,
                    cookie: self.cookie(from, life),
                    ..fixed
                };
                self.answer(at, &induction, answer);
                ListenerResult::Answered
            }
            HandshakeType::Conclusion => {
                let good = |life: u64| fixed.cookie == self.cookie(from, life);
                if !good(life) && !life.checked_sub(1).is_some_and(good) {
                    return ListenerResult::Ignored;
                }
                let failure = match ReceivedHandshake::read(header, cif, at) {
                    Ok(_) if fixed.version != VERSION_5 => HandshakeFailure::Version(fixed.version),
                    Ok(received) => {
                        let clock = self.config.clock;
                        return ListenerResult::Request(Box::new(ConnectionRequest {
                            handshake: received,
                            clock,
                        }));
                    }
                    Err(error) => HandshakeFailure::Malformed(error),
                };
                let rejected = Handshake {
                    kind: HandshakeType::Rejected(failure.rejection()),
                    ..fixed
                };
                self.answer(at, &rejected, answer);
                ListenerResult::Answered
            }
            _ => ListenerResult::Ignored,
        }
    }

    fn answer(&self, at: Time, fixed: &Handshake, answer: &mut Vec<u8>) {
        let mut cif = Vec::with_capacity(FIXED);
        fixed.write(&mut cif);
        conclusion::write_datagram(self.config.clock, at, fixed.socket_id, &cif, answer);
    }
}

impl ConnectionRequest {
    /// Socket id of the caller, which distinguishes its sockets with the same address.
    pub fn peer_socket_id(&self) -> u32 {
        self.handshake.fixed.socket_id
    }

    pub fn stream_id(&self) -> Option<&StreamId> {
        self.handshake.stream_id.as_ref()
    }

    /// SRT version of the caller.
    pub fn version(&self) -> Option<u32> {
        self.handshake.request.map(|hs| hs.version)
    }

    /// True if the caller sent a key.
    pub fn is_encrypted(&self) -> bool {
        self.handshake.km_request.is_some()
    }

    /// Rejects the request, and appends the rejection.
    pub fn reject(&self, rejection: Rejection, now: Time, answer: &mut Vec<u8>) {
        let fixed = Handshake {
            kind: HandshakeType::Rejected(rejection),
            extension: 0,
            encryption: 0,
            ..self.handshake.fixed
        };
        let mut cif = Vec::with_capacity(FIXED);
        fixed.write(&mut cif);
        conclusion::write_datagram(self.clock, now, fixed.socket_id, &cif, answer);
    }

    /// Accepts the request with these settings, except for the initial sequence number, which is
    /// the caller's. Appends the conclusion, or the rejection. Takes a millisecond if the
    /// connection is encrypted.
    ///
    /// # Errors
    /// The sides are incompatible. The rejection informs the caller.
    pub fn accept(
        &self,
        settings: &HandshakeSettings,
        now: Time,
        answer: &mut Vec<u8>,
    ) -> Result<(Negotiated, ConclusionRepeater), HandshakeFailure> {
        let fixed = &self.handshake.fixed;
        let settings = HandshakeSettings {
            initial_sequence: fixed.initial_sequence(),
            ..settings.clone()
        };
        match conclusion::respond(&self.handshake, &settings, fixed.cookie) {
            Ok((negotiated, cif)) => {
                let responder = ConclusionRepeater {
                    clock: settings.clock,
                    peer_socket_id: fixed.socket_id,
                    cookie: fixed.cookie,
                    cif,
                };
                responder.answer(now, answer);
                Ok((negotiated, responder))
            }
            Err(failure) => {
                self.reject(failure.rejection(), now, answer);
                Err(failure)
            }
        }
    }
}

/// Repeats the conclusion for an accepted caller that did not receive it.
#[derive(Clone, Debug)]
pub struct ConclusionRepeater {
    clock: SocketClock,
    peer_socket_id: u32,
    cookie: u32,
    cif: Vec<u8>,
}

impl ConclusionRepeater {
    /// Handles a datagram from the caller. If it is a repeated conclusion, appends the answer
    /// again. Returns `false` for other datagrams.
    pub fn handle(&self, datagram: &[u8], now: Time, answer: &mut Vec<u8>) -> bool {
        let Some((_, cif)) = conclusion::parse_handshake(datagram) else {
            return false;
        };
        let again = Handshake::parse(cif).is_ok_and(|(fixed, _)| {
            fixed.kind == HandshakeType::Conclusion
                && fixed.socket_id == self.peer_socket_id
                && fixed.cookie == self.cookie
        });
        if again {
            self.answer(now, answer);
        }
        again
    }

    fn answer(&self, now: Time, answer: &mut Vec<u8>) {
        conclusion::write_datagram(self.clock, now, self.peer_socket_id, &self.cif, answer);
    }
}
