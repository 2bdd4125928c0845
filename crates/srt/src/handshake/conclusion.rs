//! Parsing and writing of conclusions, shared by callers, listeners and rendezvous.

use std::net::IpAddr;
use std::time::Duration;

use measure::Time;

use super::failure::HandshakeFailure;
use super::negotiated::{Negotiated, Security};
use super::settings::{HandshakeSettings, LIVE};
use crate::codec::handshake::{
    Extension, Flags, HAS_CONFIG, HAS_HS, HAS_KM, Handshake, HandshakeError, HandshakeType,
    HsMessage, KmState, VERSION_5, write_extension, write_text,
};
use crate::codec::packet::{Control, ControlHeader, Packet};
use crate::codec::stream_id::StreamId;
use crate::crypto::key_material::MESSAGE_MAX;
use crate::crypto::{Decryptor, Encryptor, KeyOffer, accept_keys};
use crate::seq::SocketClock;

/// Interval between handshakes until one is answered, as in libsrt.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Parsed handshake with its extensions, which borrows nothing from the datagram.
#[derive(Clone, Debug)]
pub(super) struct ReceivedHandshake {
    pub(super) fixed: Handshake,
    pub(super) timestamp: u32,
    pub(super) at: Time,
    pub(super) request: Option<HsMessage>,
    pub(super) response: Option<HsMessage>,
    pub(super) km_request: Option<Vec<u8>>,
    pub(super) km_response: Option<Vec<u8>>,
    pub(super) stream_id: Option<StreamId>,
    pub(super) congestion: Option<String>,
    pub(super) filter: Option<String>,
}

/// Returns the handshake in a datagram with its header, or `None` for other datagrams.
pub(super) fn parse_handshake(datagram: &[u8]) -> Option<(ControlHeader, &[u8])> {
    match Packet::parse(datagram) {
        Ok(Packet::Control(header, Control::Handshake(cif))) => Some((header, cif)),
        _ => None,
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, kind: u16) -> Result<(), HandshakeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(HandshakeError::Repeated(kind)),
    }
}

fn key_bytes(kind: u16, bytes: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    match bytes.len() {
        length if length > MESSAGE_MAX => Err(HandshakeError::ExtensionContent { kind, length }),
        _ => Ok(bytes.to_vec()),
    }
}

impl ReceivedHandshake {
    /// Parses a handshake, and the extensions of a conclusion or agreement.
    pub(super) fn read(
        header: ControlHeader,
        cif: &[u8],
        at: Time,
    ) -> Result<ReceivedHandshake, HandshakeError> {
        let (fixed, extensions) = Handshake::parse(cif)?;
        let mut received = ReceivedHandshake {
            fixed,
            timestamp: header.timestamp,
            at,
            request: None,
            response: None,
            km_request: None,
            km_response: None,
            stream_id: None,
            congestion: None,
            filter: None,
        };
        let carries = matches!(
            fixed.kind,
            HandshakeType::Conclusion | HandshakeType::Agreement
        );
        if !carries || fixed.version < VERSION_5 || fixed.extension == 0 {
            return Ok(received);
        }
        for extension in extensions {
            let extension = extension?;
            let kind = extension.kind();
            match extension {
                Extension::HsRequest(hs) => set_once(&mut received.request, hs, kind)?,
                Extension::HsResponse(hs) => set_once(&mut received.response, hs, kind)?,
                Extension::KmRequest(bytes) => {
                    set_once(&mut received.km_request, key_bytes(kind, bytes)?, kind)?;
                }
                Extension::KmResponse(bytes) => {
                    set_once(&mut received.km_response, key_bytes(kind, bytes)?, kind)?;
                }
                Extension::StreamId(text) => {
                    // A text of zeros is ignored.
                    if let Ok(id) = StreamId::new(text) {
                        set_once(&mut received.stream_id, id, kind)?;
                    }
                }
                Extension::Congestion(text) => set_once(&mut received.congestion, text, kind)?,
                Extension::Filter(text) => set_once(&mut received.filter, text, kind)?,
                Extension::Group(_) | Extension::Unknown(_) => {}
            }
        }
        let has = |flag: u16| fixed.extension & flag != 0;
        if has(HAS_HS) && received.request.is_none() && received.response.is_none() {
            return Err(HandshakeError::Missing(Extension::HS_REQUEST));
        }
        if has(HAS_KM) && received.km_request.is_none() && received.km_response.is_none() {
            return Err(HandshakeError::Missing(Extension::KM_REQUEST));
        }
        Ok(received)
    }

    /// Checks whether the peer is compatible with this side.
    fn check(&self, hs: &HsMessage, settings: &HandshakeSettings) -> Result<(), HandshakeFailure> {
        if hs.version < settings.minimum_version {
            return Err(HandshakeFailure::OldVersion(hs.version));
        }
        if hs.flags.has(Flags::STREAM) != settings.flags.has(Flags::STREAM) {
            return Err(HandshakeFailure::MessageApi);
        }
        let congestion = self.congestion.as_deref().unwrap_or(LIVE);
        if congestion != settings.transmission.congestion() {
            return Err(HandshakeFailure::Congestion);
        }
        if self.filter.is_some() {
            return Err(HandshakeFailure::Filter);
        }
        Ok(())
    }

    /// Negotiated parameters without keys; `hs` is the peer's message.
    fn negotiate(
        &self,
        hs: &HsMessage,
        settings: &HandshakeSettings,
        latencies: Latencies,
    ) -> Negotiated {
        let both = |own: Flags, peer: Flags| settings.flags.has(own) && hs.flags.has(peer);
        Negotiated {
            peer_socket_id: self.fixed.socket_id,
            initial_sequence: settings.initial_sequence,
            peer_initial_sequence: self.fixed.initial_sequence(),
            receive_latency: latencies.receive,
            send_latency: latencies.send,
            tsbpd_receiving: both(Flags::TSBPDRCV, Flags::TSBPDSND),
            tsbpd_sending: both(Flags::TSBPDSND, Flags::TSBPDRCV),
            mtu: self.fixed.mtu.min(settings.mtu),
            flow_window: self.fixed.flow_window,
            stream_id: None,
            flags: hs.flags,
            version: hs.version,
            reference: self.at,
            timestamp: self.timestamp,
            security: Security::Clear,
            encryptor: None,
            decryptor: None,
        }
    }
}

#[derive(Clone, Copy)]
struct Latencies {
    receive: Duration,
    send: Duration,
}

fn millis(latency: Duration) -> u16 {
    u16::try_from(latency.as_millis()).unwrap_or(u16::MAX)
}

/// HSREQ of this side.
fn own_hs(settings: &HandshakeSettings) -> HsMessage {
    HsMessage {
        version: settings.version,
        flags: settings.flags,
        receive_latency_ms: millis(settings.receive_latency),
        send_latency_ms: millis(settings.send_latency),
    }
}

/// Address in a handshake: words in host byte order, which is little-endian on all platforms of
/// libsrt.
pub(super) fn peer_ip(address: IpAddr) -> [u8; 16] {
    let mut bytes = match address {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    };
    for word in bytes.as_chunks_mut::<4>().0 {
        word.reverse();
    }
    bytes
}

/// Fixed part of this side's handshake.
pub(super) fn fixed(settings: &HandshakeSettings, kind: HandshakeType, cookie: u32) -> Handshake {
    Handshake {
        version: VERSION_5,
        encryption: 0,
        extension: 0,
        initial_sequence: settings.initial_sequence.value(),
        mtu: settings.mtu,
        flow_window: settings.flow_window,
        kind,
        socket_id: settings.socket_id,
        cookie,
        peer_ip: peer_ip(settings.peer_ip),
    }
}

pub(super) fn advertised(settings: &HandshakeSettings) -> u16 {
    let secret = settings.secret.as_ref();
    secret.map_or(0, |secret| secret.key_length.advertised())
}

/// Conclusion of an initiator, with its requests.
pub(super) fn request(
    settings: &HandshakeSettings,
    cookie: u32,
    offer: Option<&KeyOffer>,
    stream_id: Option<&StreamId>,
) -> Vec<u8> {
    let mut extension = HAS_HS;
    if offer.is_some() {
        extension |= HAS_KM;
    }
    if stream_id.is_some() || has_congestion(settings) {
        extension |= HAS_CONFIG;
    }
    let mut cif = Vec::new();
    Handshake {
        encryption: advertised(settings),
        extension,
        ..fixed(settings, HandshakeType::Conclusion, cookie)
    }
    .write(&mut cif);
    own_hs(settings).write(Extension::HS_REQUEST, &mut cif);
    if let Some(offer) = offer {
        write_extension(Extension::KM_REQUEST, offer.message(), &mut cif);
    }
    if let Some(id) = stream_id {
        write_text(Extension::STREAM_ID, id.as_str(), &mut cif);
    }
    write_congestion(settings, &mut cif);
    cif
}

/// True if the congestion control must be named.
fn has_congestion(settings: &HandshakeSettings) -> bool {
    settings.transmission.congestion() != LIVE
}

fn write_congestion(settings: &HandshakeSettings, cif: &mut Vec<u8>) {
    if has_congestion(settings) {
        let name = settings.transmission.congestion();
        write_text(Extension::CONGESTION, name, cif);
    }
}

/// Appends a handshake as a datagram.
pub(super) fn write_datagram(
    clock: SocketClock,
    now: Time,
    destination: u32,
    cif: &[u8],
    out: &mut Vec<u8>,
) {
    Control::Handshake(cif).write(ControlHeader::sent_at(now, clock, destination), out);
}

/// Responder: checks a conclusion with requests, and returns the negotiated parameters and the
/// conclusion that answers. `cookie` is that of the answer.
///
/// # Errors
/// Reason for a rejection.
pub(super) fn respond(
    received: &ReceivedHandshake,
    settings: &HandshakeSettings,
    cookie: u32,
) -> Result<(Negotiated, Vec<u8>), HandshakeFailure> {
    received.fixed.check()?;
    let missing = HandshakeError::Missing(Extension::HS_REQUEST);
    let hs = received.request.ok_or(missing)?;
    received.check(&hs, settings)?;
    let latency = |own: Duration, peer: u16| own.max(Duration::from_millis(peer.into()));
    let latencies = Latencies {
        receive: latency(settings.receive_latency, hs.send_latency_ms),
        send: latency(settings.send_latency, hs.receive_latency_ms),
    };
    let mut negotiated = received.negotiate(&hs, settings, latencies);
    negotiated.stream_id.clone_from(&received.stream_id);

    let secret = settings.secret.as_ref();
    let mut km_response = None;
    let state = match (&received.km_request, secret) {
        (None, None) => None,
        (None, Some(_)) => Some(KmState::Unsecured),
        (Some(message), _) => match accept_keys(secret, message, hs.version, settings.seed) {
            Ok((encryptor, decryptor)) => {
                set_keys(&mut negotiated, encryptor, decryptor);
                km_response = Some(message.clone());
                None
            }
            Err(state) => Some(state),
        },
    };
    if let Some(state) = state {
        if settings.enforced_encryption {
            return Err(HandshakeFailure::from_key_state(state, false));
        }
        negotiated.security = Security::Mismatch(state);
        km_response = Some(state.to_wire().to_vec());
    }

    let mut cif = Vec::new();
    let mut extension = HAS_HS;
    if km_response.is_some() {
        extension |= HAS_KM;
    }
    if has_congestion(settings) {
        extension |= HAS_CONFIG;
    }
    Handshake {
        extension,
        mtu: negotiated.mtu,
        ..fixed(settings, HandshakeType::Conclusion, cookie)
    }
    .write(&mut cif);
    let mut flags = settings.flags;
    // Delivery by timestamps does not depend on whether the peer sends by them, but sending by them
    // requires a peer that delivers by them.
    if !hs.flags.has(Flags::TSBPDRCV) {
        flags = flags.without(Flags::TSBPDSND);
    }
    HsMessage {
        version: settings.version,
        flags,
        receive_latency_ms: millis(latencies.receive),
        send_latency_ms: millis(latencies.send),
    }
    .write(Extension::HS_RESPONSE, &mut cif);
    if let Some(message) = km_response {
        write_extension(Extension::KM_RESPONSE, &message, &mut cif);
    }
    write_congestion(settings, &mut cif);
    Ok((negotiated, cif))
}

/// Initiator: checks a conclusion with responses.
///
/// # Errors
/// Reason why there is no connection.
pub(super) fn conclude(
    received: &ReceivedHandshake,
    settings: &HandshakeSettings,
    offer: &mut Option<KeyOffer>,
) -> Result<Negotiated, HandshakeFailure> {
    received.fixed.check()?;
    let missing = HandshakeError::Missing(Extension::HS_RESPONSE);
    let hs = received.response.ok_or(missing)?;
    received.check(&hs, settings)?;
    let declared = |flag: Flags, millis: u16, own: Duration| match hs.flags.has(flag) {
        true => Duration::from_millis(millis.into()),
        false => own,
    };
    let latencies = Latencies {
        receive: declared(
            Flags::TSBPDSND,
            hs.send_latency_ms,
            settings.receive_latency,
        ),
        send: declared(
            Flags::TSBPDRCV,
            hs.receive_latency_ms,
            settings.send_latency,
        ),
    };
    let mut negotiated = received.negotiate(&hs, settings, latencies);

    let response = received.km_response.as_deref();
    let state = match (offer.take(), response) {
        (None, None) => return Ok(negotiated),
        (Some(offer), Some(message)) if message == offer.message() => {
            let (encryptor, decryptor) = offer.accept(hs.version);
            set_keys(&mut negotiated, encryptor, decryptor);
            return Ok(negotiated);
        }
        // The peer is too old for encryption, or does not support it.
        (Some(_), None) => KmState::NoSecret,
        (had, Some(message)) => {
            let state = message.first_chunk().copied().and_then(KmState::from_wire);
            match (message.len(), state) {
                (4, Some(state)) => state,
                _ if had.is_some() => KmState::BadSecret,
                _ => KmState::Unsecured,
            }
        }
    };
    // A peer with a passphrase that does not enforce encryption accepts callers without one.
    if settings.enforced_encryption && settings.secret.is_some() {
        return Err(HandshakeFailure::from_key_state(state, true));
    }
    negotiated.security = Security::Mismatch(state);
    Ok(negotiated)
}

fn set_keys(negotiated: &mut Negotiated, encryptor: Encryptor, decryptor: Decryptor) {
    negotiated.security = Security::Encrypted;
    negotiated.encryptor = Some(encryptor);
    negotiated.decryptor = Some(decryptor);
}
