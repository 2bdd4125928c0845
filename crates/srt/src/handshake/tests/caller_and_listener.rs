use std::time::Duration;

use bytes::BytesMut;
use measure::Time;

use super::network::{CALLER, Network, settings};
use crate::arq::sender::PayloadCipher as _;
use crate::codec::handshake::{
    Flags, Handshake, HandshakeError, HandshakeType, Rejection, VERSION_5_MAGIC,
};
use crate::codec::packet::{Control, ControlHeader, DataHeader, HEADER, KeyFlag, Position};
use crate::codec::stream_id::StreamId;
use crate::crypto::{CipherMode, Secret};
use crate::handshake::{
    Caller, ConclusionRepeater, HandshakeFailure, HandshakeSettings, Listener, ListenerConfig,
    ListenerResult, Negotiated, Security,
};
use crate::seq::{SeqNumber, SocketClock};

type Ended = Result<Negotiated, HandshakeFailure>;

fn listener() -> Listener {
    Listener::new(ListenerConfig {
        secret: 77,
        clock: SocketClock::new(Time::ZERO),
        advertised_key: None,
    })
}

/// Returns the outcomes of both ends. The listener's side answers a repeated conclusion.
fn run(
    ours: HandshakeSettings,
    theirs: &HandshakeSettings,
    network: &mut Network,
) -> (Ended, Option<Ended>) {
    let id = StreamId::new("#!::r=live/one,m=publish").unwrap();
    let mut now = Time::from_nanos(1_000_000);
    let mut caller = Caller::new(ours, Some(id), now);
    let listener = listener();
    let (mut accepted, mut responder): (Option<Ended>, Option<ConclusionRepeater>) = (None, None);
    loop {
        let mut out = Vec::new();
        while caller.write_next(now, &mut out) {
            network.send(now, 1, &out);
            out.clear();
        }
        if let Some(outcome) = caller.outcome() {
            return (outcome, accepted);
        }
        now = caller.due().min(network.due());
        while let Some((to, datagram)) = network.arrived(now) {
            if to == 0 {
                caller.handle(&datagram, now);
                continue;
            }
            let mut answer = Vec::new();
            let again = responder.as_ref();
            if again.is_some_and(|again| again.handle(&datagram, now, &mut answer)) {
                network.send(now, 0, &answer);
                continue;
            }
            match listener.handle(CALLER, &datagram, now, &mut answer) {
                ListenerResult::Ignored => {}
                ListenerResult::Answered => network.send(now, 0, &answer),
                ListenerResult::Request(request) => {
                    match request.accept(theirs, now, &mut answer) {
                        Ok((negotiated, again)) => {
                            accepted = Some(Ok(negotiated));
                            responder = Some(again);
                        }
                        Err(failure) => accepted = Some(Err(failure)),
                    }
                    network.send(now, 0, &answer);
                }
            }
        }
    }
}

fn passes_media(from: &mut Negotiated, to: &mut Negotiated) {
    let mut payload = BytesMut::from(&[0x47; 1316][..]);
    let header = DataHeader {
        sequence: from.initial_sequence,
        position: Position::Solo,
        in_order: false,
        key: KeyFlag::None,
        retransmitted: false,
        message: 1,
        timestamp: 1,
        destination: from.peer_socket_id,
    };
    let key = from
        .encryptor
        .as_mut()
        .unwrap()
        .encrypt(&header, &mut payload);
    let header = DataHeader { key, ..header };
    let opened = to
        .decryptor
        .as_mut()
        .unwrap()
        .decrypt_copy(&header, &payload);
    assert_eq!(opened.unwrap(), [0x47; 1316]);
}

#[test]
fn caller_and_listener_agree() {
    let mut ours = settings(1, 1);
    ours.receive_latency = Duration::from_millis(200);
    ours.send_latency = Duration::from_millis(50);
    ours.mtu = 1400;
    let mut theirs = settings(2, 2);
    theirs.flow_window = 4000;
    let (ended, accepted) = run(ours, &theirs, &mut Network::new(0, 0.0, 0.0));
    let (ended, accepted) = (ended.unwrap(), accepted.unwrap().unwrap());
    assert_eq!((ended.peer_socket_id, accepted.peer_socket_id), (2, 1));
    assert_eq!((ended.mtu, accepted.mtu), (1400, 1400));
    assert_eq!((ended.flow_window, accepted.flow_window), (4000, 8192));
    for (own, peer) in [(&ended, &accepted), (&accepted, &ended)] {
        assert_eq!(own.initial_sequence, peer.peer_initial_sequence);
        assert_eq!(own.initial_sequence, SeqNumber::new(1000));
        assert_eq!(own.receive_latency, peer.send_latency);
        assert!(own.tsbpd_receiving && own.tsbpd_sending);
        assert_eq!(own.security, Security::Clear);
        assert_eq!((own.flags, own.version), (Flags::LIVE, 0x0001_0505));
        // The timestamp is the send time of the packet, which is before its arrival.
        assert!(u64::from(own.timestamp) * 1000 < own.reference.as_nanos());
        assert_eq!(
            own.stream_id.as_ref().unwrap().as_str(),
            "#!::r=live/one,m=publish"
        );
    }
    assert_eq!(ended.receive_latency, Duration::from_millis(200));
    assert_eq!(accepted.receive_latency, Duration::from_millis(120));
}

#[test]
fn any_bad_network_connects_or_times_out() {
    let (mut connected, mut timed_out) = (0, 0);
    for seed in 0..4000 {
        let loss = f64::from(seed as u32 % 8) / 10.0;
        let mut network = Network::new(seed, loss, 0.2);
        match run(settings(1, seed), &settings(2, seed), &mut network) {
            (Ok(ended), Some(Ok(accepted))) => {
                connected += 1;
                assert_eq!(ended.initial_sequence, accepted.peer_initial_sequence);
                assert_eq!(ended.peer_socket_id, 2);
            }
            (Err(HandshakeFailure::TimedOut { .. }), None | Some(Ok(_))) => {
                timed_out += 1;
                assert!(loss > 0.0, "seed {seed}");
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(
        connected > 3500 && timed_out > 5,
        "{connected}, {timed_out}"
    );
}

fn with_secrets(
    ours: Option<&str>,
    theirs: Option<&str>,
    enforced: bool,
) -> (Ended, Option<Ended>) {
    let with = |id: u32, passphrase: Option<&str>| HandshakeSettings {
        secret: passphrase.map(|text| Secret::new(text).unwrap()),
        enforced_encryption: enforced,
        ..settings(id, id.into())
    };
    run(
        with(1, ours),
        &with(2, theirs),
        &mut Network::new(9, 0.1, 0.1),
    )
}

#[test]
fn mismatched_passphrases_have_distinct_failures() {
    let (one, other) = (Some("a passphrase"), Some("another passphrase"));
    let failures = |ours, theirs| {
        let (ended, accepted) = with_secrets(ours, theirs, true);
        (ended.unwrap_err(), accepted.unwrap().unwrap_err())
    };
    let wrong = (
        HandshakeFailure::WrongPassphrase,
        HandshakeFailure::WrongPassphrase,
    );
    assert_eq!(failures(one, other), wrong);
    let missing = (
        HandshakeFailure::PassphraseMissing,
        HandshakeFailure::PassphraseMissingAtPeer,
    );
    assert_eq!(failures(None, other), missing);
    assert_eq!(failures(one, None), (missing.1, missing.0));
    let (ended, accepted) = with_secrets(one, one, true);
    let (mut ended, mut accepted) = (ended.unwrap(), accepted.unwrap().unwrap());
    assert_eq!(ended.security, Security::Encrypted);
    passes_media(&mut ended, &mut accepted);
    passes_media(&mut accepted, &mut ended);
}

#[test]
fn unenforced_encryption_connects_without_keys() {
    let (one, other) = (Some("a passphrase"), Some("another passphrase"));
    for (ours, theirs) in [(one, other), (None, other), (one, None)] {
        let (ended, accepted) = with_secrets(ours, theirs, false);
        let (ended, accepted) = (ended.unwrap(), accepted.unwrap().unwrap());
        assert!(matches!(ended.security, Security::Mismatch(_)), "{ended:?}");
        assert!(
            matches!(accepted.security, Security::Mismatch(_)),
            "{accepted:?}"
        );
        assert!(ended.encryptor.is_none() && accepted.decryptor.is_none());
    }
}

#[test]
fn different_ciphers_are_reported() {
    let with = |id: u32, cipher: CipherMode| HandshakeSettings {
        secret: Some(Secret::new("a passphrase").unwrap().with_cipher(cipher)),
        ..settings(id, 1)
    };
    let network = || Network::new(1, 0.0, 0.0);
    let (gcm, ctr) = (CipherMode::Gcm, CipherMode::Ctr);
    let (ended, accepted) = run(with(1, gcm), &with(2, ctr), &mut network());
    assert_eq!(ended.unwrap_err(), HandshakeFailure::CipherMismatch);
    assert_eq!(
        accepted.unwrap().unwrap_err(),
        HandshakeFailure::CipherMismatch
    );
    let (ended, _) = run(with(1, gcm), &with(2, CipherMode::Auto), &mut network());
    assert_eq!(ended.unwrap().encryptor.unwrap().mode(), gcm);
}

#[test]
fn incompatible_versions_and_modes_are_reported() {
    let network = || Network::new(1, 0.0, 0.0);
    let mut old = settings(1, 1);
    old.version = 0x0001_0300;
    let mut demanding = settings(2, 2);
    demanding.minimum_version = 0x0001_0400;
    let (ended, accepted) = run(old, &demanding, &mut network());
    assert_eq!(
        ended.unwrap_err(),
        HandshakeFailure::Rejected(Rejection::VERSION)
    );
    assert_eq!(
        accepted.unwrap().unwrap_err(),
        HandshakeFailure::OldVersion(0x0001_0300)
    );
    let mut stream = settings(1, 1);
    stream.flags = stream.flags.with(Flags::STREAM);
    let (ended, _) = run(stream, &settings(2, 2), &mut network());
    assert_eq!(
        ended.unwrap_err(),
        HandshakeFailure::Rejected(Rejection::MESSAGEAPI)
    );
}

#[test]
fn message_mode_requires_both_sides() {
    let network = || Network::new(1, 0.0, 0.0);
    let both = [settings(1, 1).messages(), settings(2, 2).messages()];
    let (ended, accepted) = run(both[0].clone(), &both[1], &mut network());
    for side in [ended, accepted.unwrap()] {
        let negotiated = side.unwrap();
        assert!(!negotiated.tsbpd_receiving && !negotiated.tsbpd_sending);
    }
    let [messages, other] = both;
    for (ours, theirs) in [(messages, settings(2, 2)), (settings(1, 1), other)] {
        let (ended, accepted) = run(ours, &theirs, &mut network());
        assert_eq!(
            ended.unwrap_err(),
            HandshakeFailure::Rejected(Rejection::CONGESTION)
        );
        assert_eq!(accepted.unwrap().unwrap_err(), HandshakeFailure::Congestion);
    }
}

/// Conclusion that a caller sends to the listener.
fn conclusion(listener: &Listener, now: Time) -> Vec<u8> {
    let mut caller = Caller::new(settings(1, 1), None, now);
    let (mut induction, mut answer, mut conclusion) = (Vec::new(), Vec::new(), Vec::new());
    assert!(caller.write_next(now, &mut induction));
    assert!(matches!(
        listener.handle(CALLER, &induction, now, &mut answer),
        ListenerResult::Answered
    ));
    caller.handle(&answer, now);
    assert!(caller.write_next(now, &mut conclusion));
    conclusion
}

#[test]
fn cookies_are_valid_for_one_address_and_period() {
    let (listener, now) = (listener(), Time::from_start(Duration::from_secs(30)));
    let conclusion = conclusion(&listener, now);
    let hear = |from, after: u64| {
        let at = now + Duration::from_secs(after);
        listener.handle(from, &conclusion, at, &mut Vec::new())
    };
    assert!(matches!(hear(CALLER, 0), ListenerResult::Request(_)));
    assert!(matches!(hear(CALLER, 60), ListenerResult::Request(_)));
    assert!(matches!(hear(CALLER, 120), ListenerResult::Ignored));
    let mut other = CALLER;
    other.set_port(2222);
    assert!(matches!(hear(other, 0), ListenerResult::Ignored));
}

#[test]
fn malformed_conclusions_are_rejected() {
    let (listener, now) = (listener(), Time::ZERO);
    let good = conclusion(&listener, now);
    for length in 0..good.len() {
        let mut answer = Vec::new();
        match listener.handle(CALLER, &good[..length], now, &mut answer) {
            ListenerResult::Ignored => assert!(length < HEADER + 48 || length % 4 != 0),
            ListenerResult::Answered => {
                let (said, _) = Handshake::parse(&answer[HEADER..]).unwrap();
                assert_eq!(said.kind, HandshakeType::Rejected(Rejection::ROGUE));
            }
            ListenerResult::Request(_) => panic!("{length}"),
        }
    }
    let mut odd = good.clone();
    odd[HEADER + 3] = 4;
    let mut answer = Vec::new();
    listener.handle(CALLER, &odd, now, &mut answer);
    let (said, _) = Handshake::parse(&answer[HEADER..]).unwrap();
    assert_eq!(said.kind, HandshakeType::Rejected(Rejection::VERSION));
}

#[test]
fn requests_can_be_rejected_with_any_reason() {
    let (listener, now) = (listener(), Time::ZERO);
    let mut caller = Caller::new(settings(1, 1), None, now);
    let mut datagram = Vec::new();
    caller.write_next(now, &mut datagram);
    let mut answer = Vec::new();
    listener.handle(CALLER, &datagram, now, &mut answer);
    caller.handle(&answer, now);
    datagram.clear();
    caller.write_next(now, &mut datagram);
    answer.clear();
    let ListenerResult::Request(request) = listener.handle(CALLER, &datagram, now, &mut answer)
    else {
        panic!()
    };
    request.reject(Rejection::NOTFOUND, now, &mut answer);
    caller.handle(&answer, now);
    assert_eq!(
        caller.outcome().unwrap().unwrap_err(),
        HandshakeFailure::Rejected(Rejection::NOTFOUND)
    );
}

/// Caller that received a changed answer to its induction.
fn answered(change: impl Fn(&mut Handshake)) -> Caller {
    let mut caller = Caller::new(settings(1, 1), None, Time::ZERO);
    caller.write_next(Time::ZERO, &mut Vec::new());
    let mut fixed = Handshake {
        version: 5,
        encryption: 0,
        extension: VERSION_5_MAGIC,
        initial_sequence: 0,
        mtu: 1500,
        flow_window: 8192,
        kind: HandshakeType::Induction,
        socket_id: 3,
        cookie: 5,
        peer_ip: [0; 16],
    };
    change(&mut fixed);
    let (mut cif, mut datagram) = (Vec::new(), Vec::new());
    fixed.write(&mut cif);
    let header = ControlHeader {
        timestamp: 0,
        destination: 1,
    };
    Control::Handshake(&cif).write(header, &mut datagram);
    caller.handle(&datagram, Time::ZERO);
    caller
}

#[test]
fn caller_reports_why_an_answer_is_invalid() {
    let end = |mut caller: Caller| {
        caller.write_next(Time::from_start(Duration::from_secs(3)), &mut Vec::new());
        caller.outcome().unwrap().unwrap_err()
    };
    assert_eq!(
        end(answered(|h| h.version = 4)),
        HandshakeFailure::Version(4)
    );
    let magic = HandshakeError::Magic(0);
    assert_eq!(
        end(answered(|h| h.extension = 0)),
        HandshakeFailure::Malformed(magic)
    );
    let turn = HandshakeError::UnexpectedType(-3);
    assert_eq!(
        end(answered(|h| h.kind = HandshakeType::Done)),
        HandshakeFailure::Malformed(turn)
    );
    assert_eq!(
        end(answered(|_| {})),
        HandshakeFailure::TimedOut { got_answer: true }
    );
    let silent = Caller::new(settings(1, 1), None, Time::ZERO);
    assert_eq!(
        end(silent),
        HandshakeFailure::TimedOut { got_answer: false }
    );
}
