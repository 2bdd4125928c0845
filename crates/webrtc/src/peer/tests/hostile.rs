//! Peers that receive hostile or unexpected datagrams.

use std::net::SocketAddr;
use std::time::Duration;

use is::Sha1HmacProvider;
use is::stun::StunMessage;
use measure::Time;
use proptest::prelude::*;

use super::network::{NO_IMPAIRMENTS, Pair, REPORT, address, config};
use crate::ice::{IceCheck, MessageIntegrity};
use crate::peer::{Peer, PeerEvent, PeerFailure, PeerState, Received};
use crate::sdp::{Candidate, Setup};

const NOW: Time = Time::from_nanos(1_000_000_000);

fn stranger() -> SocketAddr {
    ([127, 9, 9, 9], 9999).into()
}

/// A binding request that is correct except for its message integrity.
fn forged_check(username: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let mut attribute = |kind: u16, value: &[u8]| {
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(&(value.len() as u16).to_be_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    };
    attribute(0x0006, username.as_bytes());
    attribute(0x0024, &1_000_000u32.to_be_bytes());
    attribute(0x802a, &[7; 8]);
    attribute(0x0008, &[9; 20]);
    let mut message = vec![0, 1];
    message.extend_from_slice(&(body.len() as u16).to_be_bytes());
    message.extend_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
    message.extend_from_slice(&[3; 12]);
    message.extend_from_slice(&body);
    message
}

/// User fragments up to the maximum length of the ICE library are used, longer ones refused.
#[test]
fn a_long_user_fragment_is_used_or_refused() {
    for (length, is_used) in [(119, true), (120, false), (256, false)] {
        let mut now = NOW;
        let mut offerer = Peer::offerer(now, &config(0, 9));
        let mut answerer = Peer::answerer(now, &config(1, 9));
        for (side, peer) in [&mut offerer, &mut answerer].into_iter().enumerate() {
            assert!(peer.add_local_candidate(now, address(side)));
        }
        let mut theirs = answerer.local_transport();
        theirs.ufrag = "a".repeat(length);
        let expected = match is_used {
            true => Ok(()),
            false => Err(PeerFailure::BadIceCredentials),
        };
        assert_eq!(offerer.set_remote(now, &theirs), expected, "{length}");
        if !is_used {
            continue;
        }
        let (mut checks, mut bytes) = (0, Vec::new());
        for _ in 0..20 {
            now += Duration::from_millis(20);
            offerer.handle_timeout(now);
            while offerer.poll_transmit(&mut bytes).is_some() {
                checks += 1;
                bytes.clear();
            }
        }
        assert!(checks > 0);
    }
}

#[test]
fn check_names_its_addressee_and_proves_the_password() {
    fn receiver_ufrag(bytes: &[u8]) -> Option<&str> {
        IceCheck::parse(bytes).map(|check| check.receiver_ufrag())
    }
    assert_eq!(receiver_ufrag(&forged_check("here:there")), Some("here"));
    assert_eq!(receiver_ufrag(&forged_check("nowhere")), None);
    for bytes in [
        &[][..],
        &[0],
        &[0; 20],
        &[22, 1, 2],
        &forged_check("a:b")[..30],
    ] {
        assert_eq!(receiver_ufrag(bytes), None);
    }
    let mut pair = Pair::new([0, 1].map(|side| config(side, 1)), NO_IMPAIRMENTS, 1);
    let ufrag = pair.peers[1].local_transport().ufrag;
    let transport = pair.peers[1].local_transport();
    let now = pair.now;
    assert_eq!(pair.peers[0].set_remote(now, &transport), Ok(()));
    let mut check = Vec::new();
    pair.peers[0].poll_transmit(&mut check).expect("it checks");
    assert_eq!(receiver_ufrag(&check), Some(&ufrag[..]));
    let check = IceCheck::parse(&check).expect("it is one");
    assert!(check.is_authentic(&transport.pwd) && !check.is_authentic(&ufrag));
    let forged = forged_check(&format!("{ufrag}:there"));
    let forged = IceCheck::parse(&forged).expect("it looks like one");
    assert!(!forged.is_authentic(&transport.pwd));
}

fn connected(seed: u64) -> Pair {
    let mut pair = Pair::new([0, 1].map(|side| config(side, seed)), NO_IMPAIRMENTS, seed);
    pair.negotiate(false);
    pair.connect(Duration::from_secs(5)).expect("they connect");
    pair
}

#[test]
fn forged_stun_flood_is_counted_and_not_answered() {
    for negotiated in [false, true] {
        let mut pair = Pair::new([0, 1].map(|side| config(side, 1)), NO_IMPAIRMENTS, 1);
        if negotiated {
            pair.negotiate(false);
            pair.run_for(Duration::ZERO);
        }
        let ufrag = pair.peers[0].local_transport().ufrag;
        let other = pair.peers[1].local_transport().ufrag;
        let now = pair.now;
        let sent = {
            let peer = &mut pair.peers[0];
            let mut sent = 0;
            for number in 0..10_000u32 {
                let username = match number % 3 {
                    0 => format!("{ufrag}:{other}"),
                    1 => format!("{ufrag}:strange"),
                    _ => "strange:strange".to_owned(),
                };
                let from = ([127, 3, (number >> 8) as u8, number as u8], 5000).into();
                let received = peer.handle_datagram(now, from, &forged_check(&username));
                assert_eq!(received, Received::Dropped);
                let mut out = Vec::new();
                while peer.poll_transmit(&mut out).is_some() {
                    sent += 1;
                }
            }
            assert_eq!(peer.counts().stun_unauthentic, 10_000);
            sent
        };
        assert!(sent <= 1, "{sent} datagrams");
        if negotiated {
            assert!(pair.connect(Duration::from_secs(5)).is_some());
        }
    }
}

#[test]
fn remembered_remote_addresses_are_bounded() {
    let mut pair = connected(2);
    let now = pair.now;
    // Authentic checks of the other side, each from another address.
    let mut checks = Vec::new();
    let began = pair.now;
    let mut at = began;
    while checks.len() < 3 {
        at += Duration::from_secs(3);
        pair.peers[1].handle_timeout(at);
        let mut bytes = Vec::new();
        while pair.peers[1].poll_transmit(&mut bytes).is_some() {
            checks.push(std::mem::take(&mut bytes));
        }
    }
    let peer = &mut pair.peers[0];
    let mut refused = 0;
    for number in 0..1000u32 {
        let from = ([127, 4, (number >> 8) as u8, number as u8], 5000).into();
        let check = &checks[number as usize % checks.len()];
        if peer.handle_datagram(now, from, check) == Received::Dropped {
            refused += 1;
        }
    }
    assert!(refused >= 900, "{refused}");
    assert_eq!(peer.counts().stun_of_too_many_addresses, refused);
    let mut out = Vec::new();
    let mut answers = 0;
    while peer.poll_transmit(&mut out).is_some() {
        answers += 1;
    }
    assert!(answers <= 64, "{answers}");
}

#[test]
fn mapped_addresses_in_answers_are_bounded() {
    let mut pair = connected(2);
    let (mut at, mut check) = (pair.now, Vec::new());
    // Runs until the peer sends a check.
    while !check.starts_with(&[0, 1]) {
        at += Duration::from_secs(1);
        pair.peers[0].handle_timeout(at);
        check.clear();
        pair.peers[0].poll_transmit(&mut check);
    }
    let server = pair.peers[0].remote_address().expect("it is connected");
    let password = pair.peers[1].local_transport().pwd;
    let id = StunMessage::parse(&check).expect("it is one").trans_id();
    let mut refused = 0;
    for number in 0..1000u16 {
        let ours = ([127, 5, 0, 1], 1000 + number).into();
        let mut bytes = [0; 200];
        let length = StunMessage::binding_reply(id, ours)
            .to_bytes(Some(password.as_bytes()), &mut bytes, |key, payloads| {
                MessageIntegrity.sha1_hmac(key, payloads)
            })
            .expect("there is room");
        let received = pair.peers[0].handle_datagram(at, server, &bytes[..length]);
        refused += u64::from(received == Received::Dropped);
    }
    assert_eq!(refused, 936);
    assert_eq!(pair.peers[0].counts().stun_of_too_many_addresses, refused);
}

#[test]
fn dtls_from_unknown_addresses_is_dropped() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 3)), NO_IMPAIRMENTS, 3);
    pair.negotiate(false);
    pair.run_for(Duration::ZERO);
    let now = pair.now;
    for byte in 20..=63 {
        let bytes = [byte, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4];
        let received = pair.peers[0].handle_datagram(now, stranger(), &bytes);
        assert_eq!(received, Received::Dropped);
    }
    assert_eq!(pair.peers[0].counts().dtls_unexpected, 44);
    assert!(pair.connect(Duration::from_secs(5)).is_some());
}

#[test]
fn garbage_records_do_not_break_the_handshake() {
    for seed in 0..30 {
        let mut configs = [0, 1].map(|side| config(side, seed));
        configs[1].answer_setup = [Setup::Active, Setup::Passive][(seed % 2) as usize];
        let mut pair = Pair::new(configs, NO_IMPAIRMENTS, seed);
        pair.negotiate(false);
        let mut turn = 0u8;
        while !pair
            .peers
            .iter()
            .all(|peer| peer.state() == PeerState::Connected)
        {
            pair.run_for(Duration::from_micros(700));
            turn = turn.wrapping_add(1);
            assert!(turn < 200, "case {seed}: {:?}", pair.events);
            for side in [0, 1] {
                // Records of each type: empty, truncated, or of a later epoch.
                let kind = 20 + turn % 6;
                let epoch = turn % 2;
                let record = [kind, 254, 253, 0, epoch, 0, 0, 0, 0, 0, turn, 0, 3, 9, 9, 9];
                let length = [record.len(), 13, 7, 1][usize::from(turn) % 4];
                if pair.peers[side].state() != PeerState::Failed && kind != 21 && kind != 22 {
                    pair.inject(side, address(1 - side), record[..length].to_vec());
                }
            }
        }
        pair.exchange_media();
    }
}

#[test]
fn invalid_rtcp_is_dropped_and_counted() {
    let mut pair = connected(4);
    let mut sealed = Vec::new();
    assert!(pair.peers[1].send_rtcp(&REPORT));
    pair.peers[1]
        .poll_transmit(&mut sealed)
        .expect("it is sent");
    let now = pair.now;
    let peer = &mut pair.peers[0];
    let mut wrong = sealed.clone();
    *wrong.last_mut().expect("it has bytes") ^= 1;
    for (bytes, expected) in [
        (&wrong, Received::Dropped),
        (&sealed, Received::Rtcp(&REPORT)),
        (&sealed, Received::Dropped),
        (&REPORT.to_vec(), Received::Dropped),
    ] {
        assert_eq!(peer.handle_datagram(now, address(1), bytes), expected);
    }
    let rtcp = peer.counts().rtcp;
    assert_eq!(
        (rtcp.opened, rtcp.unauthentic, rtcp.replayed, rtcp.malformed),
        (1, 1, 1, 1)
    );
}

#[test]
fn rtcp_before_keys_is_dropped() {
    let mut peer = Peer::offerer(NOW, &config(0, 5));
    peer.add_local_candidate(NOW, address(0));
    let received = peer.handle_datagram(NOW, address(1), &[0x80, 201, 0, 1, 0, 0, 0, 9, 1, 2]);
    assert_eq!(received, Received::Dropped);
    assert_eq!(peer.counts().rtcp_without_keys, 1);
}

#[test]
fn unusable_descriptions_are_refused() {
    let answerer = Peer::answerer(NOW, &config(1, 6));
    let valid = answerer.local_transport();
    for (change, failure) in [
        (0, PeerFailure::BadIceCredentials),
        (1, PeerFailure::BadIceCredentials),
        (2, PeerFailure::UnusableFingerprint),
        (3, PeerFailure::UnusableFingerprint),
        (4, PeerFailure::BadSetup),
    ] {
        let mut transport = valid.clone();
        match change {
            0 => transport.ufrag = "a b c d".to_owned(),
            1 => transport.pwd = "short".to_owned(),
            2 => transport.fingerprints.clear(),
            3 => transport.fingerprints = vec!["sha-1 AB:CD".parse().expect("it is written so")],
            _ => transport.setup = Setup::ActPass,
        }
        let mut peer = Peer::offerer(NOW, &config(0, 6));
        assert_eq!(peer.set_remote(NOW, &transport), Err(failure));
        assert_eq!(peer.state(), PeerState::New);
    }
}

#[test]
fn candidates_are_bounded() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 7)), NO_IMPAIRMENTS, 7);
    let mut transport = pair.peers[1].local_transport();
    let far = |number: u16| Candidate::host(([127, 7, 7, 7], 10_000 + number).into(), number);
    transport.candidates = (0..5000).map(far).collect();
    let now = pair.now;
    assert_eq!(pair.peers[0].set_remote(now, &transport), Ok(()));
    assert!(!pair.peers[0].add_remote_candidate(now, &far(5000)));
    pair.run_for(Duration::from_secs(20));
    // 32 pairs, each checked a few times in 15 s.
    assert!(pair.sent[0] < 32 * 12, "{}", pair.sent[0]);
    let failed = PeerEvent::Failed(PeerFailure::IceTimedOut);
    assert_eq!(pair.events[0].last().map(|(_, event)| event), Some(&failed));
}

#[test]
fn alert_closes_only_from_the_media_address() {
    let mut pair = connected(8);
    let now = pair.now;
    // The answerer is the DTLS client and has dropped its DTLS state.
    let alert = [21, 254, 253, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2, 1, 0];
    let clear = [21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 0];
    for (from, bytes, state) in [
        (stranger(), &alert, PeerState::Connected),
        (address(0), &clear, PeerState::Connected),
        (address(0), &alert, PeerState::Closed),
    ] {
        pair.peers[1].handle_datagram(now, from, bytes);
        assert_eq!(pair.peers[1].state(), state);
    }
}

#[test]
fn ignored_data_is_not_counted_as_unexpected() {
    let mut pair = connected(8);
    let now = pair.now;
    // The answerer has dropped its DTLS state.
    let data = [23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2, 1, 0];
    pair.peers[1].handle_datagram(now, address(0), &data);
    let unexpected = pair.peers[1].counts().dtls_unexpected;
    pair.peers[1].ignore_data();
    let received = pair.peers[1].handle_datagram(now, address(0), &data);
    assert_eq!(received, Received::Handled);
    pair.peers[1].handle_datagram(now, stranger(), &data);
    assert_eq!(unexpected, 1);
    let counts = pair.peers[1].counts();
    assert_eq!(counts.dtls_unexpected, 2, "that of a stranger");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Arbitrary datagrams from any address to a peer in any state: they are counted, time
    /// advances, and the number of datagrams sent is bounded.
    #[test]
    fn arbitrary_datagrams_do_no_harm(
        seed: u64, runs in 0u64..60,
        datagrams in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..120), 0u8..4),
            1..60,
        ),
    ) {
        let mut pair = Pair::new([0, 1].map(|side| config(side, seed)), NO_IMPAIRMENTS, seed);
        pair.negotiate(false);
        pair.run_for(Duration::from_millis(runs));
        for (kind, mut bytes, from) in datagrams {
            if let Some(first) = bytes.first_mut() {
                *first = [0, 1, 22, 23, 20, 128, 144, 191, 64, 255][kind.index(10)];
            }
            let from = if from == 0 { stranger() } else { address(1) };
            let now = pair.now;
            let _ = pair.peers[0].handle_datagram(now, from, &bytes);
            pair.run_for(Duration::from_millis(1));
            prop_assert!(pair.sent[0] < 500);
        }
    }
}
