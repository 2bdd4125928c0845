//! SRT: handshakes, key material, and each kind of endpoint with a peer that sends anything.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;
use srt::codec::handshake::{
    Extension, Handshake, HandshakeType, Rejection, write_extension, write_text,
};
use srt::codec::packet::{Control, ControlHeader, HEADER};
use srt::codec::stream_id::AccessControl;
use srt::crypto::Secret;
use srt::crypto::key_material::KeyMaterial;
use srt::handshake::{
    Caller, HandshakeSettings, Listener, ListenerConfig, ListenerResult, Rendezvous,
};
use srt::seq::{SeqNumber, SocketClock};

use crate::input::Input;

const START: Time = Time::from_nanos(1_000_000_000);
const SOCKET_ID: u32 = 7;

fn settings() -> HandshakeSettings {
    let ip = [127, 0, 0, 1].into();
    HandshakeSettings {
        secret: Secret::new("a passphrase of the test").ok(),
        ..HandshakeSettings::live(SOCKET_ID, SeqNumber::new(5), SocketClock::new(START), ip, 3)
    }
}

/// Checks that written handshakes are read back unchanged, and that endpoints finish once and send
/// no more than permitted.
pub(crate) fn handshake(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() % 5 {
        0 => codec(input.rest()),
        1 => key_material(input.rest()),
        2 => caller(&mut input),
        3 => rendezvous(&mut input),
        _ => listener(&mut input),
    }
}

fn codec(bytes: &[u8]) {
    let Ok((fixed, extensions)) = Handshake::parse(bytes) else {
        return;
    };
    let _ = fixed.check();
    let read: Vec<_> = extensions.collect();
    let Ok(read): Result<Vec<Extension<'_>>, _> = read.into_iter().collect() else {
        return;
    };
    let mut written = Vec::new();
    fixed.write(&mut written);
    for extension in &read {
        let kind = extension.kind();
        match extension {
            Extension::HsRequest(hs) | Extension::HsResponse(hs) => hs.write(kind, &mut written),
            Extension::StreamId(text) | Extension::Congestion(text) | Extension::Filter(text) => {
                if let Some(read) = AccessControl::parse(text) {
                    assert_eq!(AccessControl::parse(&read.to_string()), Some(read));
                }
                // A text that contains only zeros is never written.
                if text.is_empty() {
                    return;
                }
                write_text(kind, text, &mut written);
            }
            Extension::KmRequest(content)
            | Extension::KmResponse(content)
            | Extension::Group(content) => {
                write_extension(kind, content, &mut written);
            }
            Extension::Unknown(_) => write_extension(kind, &[], &mut written),
        }
    }
    let (fixed_again, again) = Handshake::parse(&written).expect("it was written above");
    assert_eq!(fixed_again, fixed);
    let again: Vec<_> = again
        .map(|extension| extension.expect("it was written above"))
        .collect();
    assert_eq!(again, read);
}

fn key_material(bytes: &[u8]) {
    if let Ok(read) = KeyMaterial::parse(bytes) {
        let written = read.write();
        // Reserved bits are not kept.
        assert_eq!(KeyMaterial::parse(&written), Ok(read));
        assert_eq!(written.len(), bytes.len());
    }
}

/// Advances the time and returns the next datagram. A control packet is addressed to the endpoint.
fn datagram(input: &mut Input<'_>, now: &mut Time) -> Vec<u8> {
    *now += Duration::from_millis(u64::from(input.byte()));
    let mut bytes = input.piece().to_vec();
    if bytes.len() >= HEADER && bytes[0] & 0x80 != 0 {
        bytes[12..16].copy_from_slice(&SOCKET_ID.to_be_bytes());
    }
    bytes
}

/// Writes everything that is due now: at most two datagrams.
fn drain_transmits(now: Time, mut write_next: impl FnMut(Time, &mut Vec<u8>) -> bool) {
    let mut out = Vec::new();
    for _ in 0..3 {
        let before = out.len();
        if !write_next(now, &mut out) {
            return;
        }
        assert!(out.len() - before <= 1456);
    }
    panic!("the endpoint sends more datagrams than permitted");
}

fn caller(input: &mut Input<'_>) {
    let (mut caller, mut now, mut ended) = (Caller::new(settings(), None, START), START, 0);
    while !input.is_empty() {
        drain_transmits(now, |now, out| caller.write_next(now, out));
        caller.handle(&datagram(input, &mut now), now);
        ended += usize::from(caller.outcome().is_some());
    }
    caller.write_next(now + Duration::from_secs(4), &mut Vec::new());
    ended += usize::from(caller.outcome().is_some());
    assert_eq!(ended, 1);
    assert_eq!(caller.due(), Time::NEVER);
}

fn rendezvous(input: &mut Input<'_>) {
    let mut end = Rendezvous::new(settings(), None, START);
    let (mut now, mut ended) = (START, 0);
    while !input.is_empty() {
        drain_transmits(now, |now, out| end.write_next(now, out));
        end.handle(&datagram(input, &mut now), now);
        ended += usize::from(end.outcome().is_some());
    }
    drain_transmits(now + Duration::from_secs(4), |now, out| {
        end.write_next(now, out)
    });
    ended += usize::from(end.outcome().is_some());
    assert_eq!(ended, 1);
    assert_eq!(end.due(), Time::NEVER);
}

fn listener(input: &mut Input<'_>) {
    let (from, now) = (SocketAddr::from(([127, 0, 0, 1], 9)), START);
    let listener = Listener::new(ListenerConfig {
        secret: 1,
        clock: SocketClock::new(START),
        advertised_key: None,
    });
    let mut later = now;
    while !input.is_empty() {
        let mut bytes = datagram(input, &mut later);
        // With a wrong cookie, every conclusion would be ignored.
        let cookie = cookie(&listener, from, now);
        if let Some(field) = bytes.get_mut(HEADER + 28..HEADER + 32) {
            field.copy_from_slice(&cookie);
        }
        if let Some(field) = bytes.get_mut(12..16) {
            field.fill(0);
        }
        let mut answer = Vec::new();
        match listener.handle(from, &bytes, now, &mut answer) {
            ListenerResult::Ignored => assert!(answer.is_empty()),
            // The response must not amplify traffic to a forged source address.
            ListenerResult::Answered => assert!(answer.len() <= bytes.len()),
            ListenerResult::Request(request) => {
                request.reject(Rejection::FORBIDDEN, now, &mut answer);
                answer.clear();
                let accepted = request.accept(&settings(), now, &mut answer);
                assert!(answer.len() <= bytes.len() + 64);
                if let Ok((_, responder)) = accepted {
                    let mut again = Vec::new();
                    assert!(responder.handle(&bytes, now, &mut again));
                    assert_eq!(again, answer);
                }
            }
        }
    }
}

fn cookie(listener: &Listener, from: SocketAddr, now: Time) -> [u8; 4] {
    let induction = Handshake {
        version: 4,
        encryption: 0,
        extension: 2,
        initial_sequence: 0,
        mtu: 1500,
        flow_window: 8192,
        kind: HandshakeType::Induction,
        socket_id: 9,
        cookie: 0,
        peer_ip: [0; 16],
    };
    let (mut cif, mut datagram, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    induction.write(&mut cif);
    let header = ControlHeader {
        timestamp: 0,
        destination: 0,
    };
    Control::Handshake(&cif).write(header, &mut datagram);
    listener.handle(from, &datagram, now, &mut answer);
    *answer[HEADER + 28..]
        .first_chunk()
        .expect("an induction is answered")
}
