//! Listener (SRT, 4.3.1). It keeps no state for a caller before the caller has proved its address:
//! the cookie is a MAC of the address and the minute.

use std::net::{IpAddr, SocketAddr};

use hmac::{Hmac, KeyInit as _, Mac as _};
use measure::Time;
use sha2::Sha256;

use super::failure::Failure;
use super::negotiated::Negotiated;
use super::parts::{self, Said};
use super::settings::Settings;
use crate::srt::codec::handshake::{FIXED, Handshake, Kind, MAGIC, Rejection, VERSION_5};
use crate::srt::codec::stream_id::StreamId;
use crate::srt::crypto::KeyLength;
use crate::srt::seq::SocketClock;

/// Minimum lifetime of a cookie in seconds. The maximum is twice that.
const COOKIE_LIFE: u64 = 60;

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
pub enum Heard {
    /// The answer must be sent to the source of the datagram.
    Answered,
    /// A caller that has proved its address requests a connection.
    Request(Box<Request>),
    /// The datagram is not a handshake for a listener, or its cookie is wrong.
    Ignored,
}

/// Request for a connection.
#[derive(Clone, Debug)]
pub struct Request {
    said: Said,
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
    ) -> Heard {
        let Some((header, cif)) = parts::handshake_of(datagram) else {
            return Heard::Ignored;
        };
        let Ok((fixed, _)) = Handshake::parse(cif) else {
            return Heard::Ignored;
        };
        if header.destination != 0 || fixed.socket_id == 0 {
            return Heard::Ignored;
        }
        let life = at.since_start().as_secs() / COOKIE_LIFE;
        match fixed.kind {
            Kind::Induction => {
                let induction = Handshake {
                    version: VERSION_5,
                    encryption: self.config.advertised_key.map_or(0, KeyLength::advertised),
                    extension: MAGIC,
                    cookie: self.cookie(from, life),
                    ..fixed
                };
                self.answer(at, &induction, answer);
                Heard::Answered
            }
            Kind::Conclusion => {
                let good = |life: u64| fixed.cookie == self.cookie(from, life);
                if !good(life) && !life.checked_sub(1).is_some_and(good) {
                    return Heard::Ignored;
                }
                let failure = match Said::read(header, cif, at) {
                    Ok(_) if fixed.version != VERSION_5 => Failure::Version(fixed.version),
                    Ok(said) => {
                        let clock = self.config.clock;
                        return Heard::Request(Box::new(Request { said, clock }));
                    }
                    Err(error) => Failure::Malformed(error),
                };
                let rejected = Handshake {
                    kind: Kind::Rejected(failure.rejection()),
                    ..fixed
                };
                self.answer(at, &rejected, answer);
                Heard::Answered
            }
            _ => Heard::Ignored,
        }
    }

    fn answer(&self, at: Time, fixed: &Handshake, answer: &mut Vec<u8>) {
        let mut cif = Vec::with_capacity(FIXED);
        fixed.write(&mut cif);
        parts::send(self.config.clock, at, fixed.socket_id, &cif, answer);
    }
}

impl Request {
    /// Socket id of the caller, which distinguishes its sockets with the same address.
    pub fn peer_socket_id(&self) -> u32 {
        self.said.fixed.socket_id
    }

    pub fn stream_id(&self) -> Option<&StreamId> {
        self.said.stream_id.as_ref()
    }

    /// SRT version of the caller.
    pub fn version(&self) -> Option<u32> {
        self.said.request.map(|hs| hs.version)
    }

    /// True if the caller sent a key.
    pub fn is_encrypted(&self) -> bool {
        self.said.km_request.is_some()
    }

    /// Rejects the request, and appends the rejection.
    pub fn reject(&self, rejection: Rejection, now: Time, answer: &mut Vec<u8>) {
        let fixed = Handshake {
            kind: Kind::Rejected(rejection),
            extension: 0,
            encryption: 0,
            ..self.said.fixed
        };
        let mut cif = Vec::with_capacity(FIXED);
        fixed.write(&mut cif);
        parts::send(self.clock, now, fixed.socket_id, &cif, answer);
    }

    /// Accepts the request with these settings, except for the initial sequence number, which is
    /// the caller's. Appends the conclusion, or the rejection. Takes a millisecond if the
    /// connection is encrypted.
    ///
    /// # Errors
    /// The sides are incompatible. The rejection informs the caller.
    pub fn accept(
        &self,
        settings: &Settings,
        now: Time,
        answer: &mut Vec<u8>,
    ) -> Result<(Negotiated, Responder), Failure> {
        let fixed = &self.said.fixed;
        let settings = Settings {
            initial_sequence: fixed.initial_sequence(),
            ..settings.clone()
        };
        match parts::respond(&self.said, &settings, fixed.cookie) {
            Ok((negotiated, cif)) => {
                let responder = Responder {
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
pub struct Responder {
    clock: SocketClock,
    peer_socket_id: u32,
    cookie: u32,
    cif: Vec<u8>,
}

impl Responder {
    /// Handles a datagram from the caller. If it is a repeated conclusion, appends the answer
    /// again. Returns `false` for other datagrams.
    pub fn handle(&self, datagram: &[u8], now: Time, answer: &mut Vec<u8>) -> bool {
        let Some((_, cif)) = parts::handshake_of(datagram) else {
            return false;
        };
        let again = Handshake::parse(cif).is_ok_and(|(fixed, _)| {
            fixed.kind == Kind::Conclusion
                && fixed.socket_id == self.peer_socket_id
                && fixed.cookie == self.cookie
        });
        if again {
            self.answer(now, answer);
        }
        again
    }

    fn answer(&self, now: Time, answer: &mut Vec<u8>) {
        parts::send(self.clock, now, self.peer_socket_id, &self.cif, answer);
    }
}
