//! Well-behaved peers.

use std::time::Duration;

use super::network::{Impairments, NO_IMPAIRMENTS, Pair, REPORT, address, config};
use crate::peer::{PeerEvent, PeerFailure, PeerState, Received};
use crate::sdp::Setup;

#[test]
fn peers_connect_within_a_few_round_trips() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 1)), NO_IMPAIRMENTS, 1);
    pair.negotiate(false);
    let took = pair.connect(Duration::from_secs(5)).expect("they connect");
    assert!(took < Duration::from_millis(100), "{took:?}");
    pair.exchange_media();
    for side in [0, 1] {
        let events: Vec<_> = pair.events[side]
            .iter()
            .map(|(_, event)| event.clone())
            .collect();
        let remote = address(1 - side);
        assert_eq!(
            events,
            [PeerEvent::IceConnected { remote }, PeerEvent::DtlsConnected]
        );
        assert_eq!(pair.peers[side].remote_address(), Some(remote));
        assert!(pair.peers[side].send_rtcp(&REPORT));
        assert!(!pair.peers[side].send_rtcp(&[1, 2, 3]));
    }
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.rtcp, [vec![REPORT.to_vec()], vec![REPORT.to_vec()]]);
}

#[test]
fn peers_connect_over_ipv6() {
    let [one, other] = ["[fd00::1]:5000", "[fd00::2]:6000"].map(|at| at.parse().unwrap());
    for seed in 0..10 {
        let configs = [0, 1].map(|side| config(side, seed));
        let mut pair = Pair::at([one, other], configs, NO_IMPAIRMENTS, seed);
        // A local address of the other family, which reaches no peer.
        let now = pair.now;
        let stray = "10.0.0.1:5000".parse().unwrap();
        assert!(pair.peers[0].add_local_candidate(now, stray));
        pair.negotiate(seed % 2 == 0);
        assert!(
            pair.connect(Duration::from_secs(5)).is_some(),
            "{:?}",
            pair.events
        );
        assert_eq!(pair.peers[0].remote_address(), Some(other));
        pair.exchange_media();
    }
}

#[test]
fn unusable_addresses_are_not_local_candidates() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 1)), NO_IMPAIRMENTS, 1);
    let now = pair.now;
    for wrong in [
        "0.0.0.0:5000",
        "[::]:5000",
        "239.1.1.1:5000",
        "[ff02::1]:5000",
    ] {
        let wrong = wrong.parse().expect("it is an address");
        assert!(!pair.peers[0].add_local_candidate(now, wrong), "{wrong}");
    }
    assert_eq!(pair.peers[0].local_transport().candidates.len(), 1);
}

#[test]
fn either_side_can_be_the_dtls_client() {
    for answer_setup in [Setup::Active, Setup::Passive] {
        let mut configs = [0, 1].map(|side| config(side, 2));
        configs[1].answer_setup = answer_setup;
        let mut pair = Pair::new(configs, NO_IMPAIRMENTS, 2);
        pair.negotiate(false);
        assert_eq!(pair.peers[1].local_transport().setup, answer_setup);
        assert!(
            pair.connect(Duration::from_secs(5)).is_some(),
            "{answer_setup:?}"
        );
        pair.exchange_media();
    }
}

#[test]
fn full_peer_connects_to_ice_lite_peer() {
    for lite in [0, 1] {
        let mut configs = [0, 1].map(|side| config(side, 3));
        configs[lite].ice_lite = true;
        let mut pair = Pair::new(configs, NO_IMPAIRMENTS, 3);
        pair.negotiate(false);
        assert!(
            pair.connect(Duration::from_secs(5)).is_some(),
            "{lite} is lite"
        );
        pair.exchange_media();
        pair.run_for(Duration::from_secs(60));
        assert!(
            pair.peers
                .iter()
                .all(|peer| peer.state() == PeerState::Connected)
        );
    }
}

#[test]
fn peers_connect_over_a_lossy_reordering_network() {
    let mut times = Vec::new();
    for seed in 0..200 {
        let part = |modulus: u64| (seed % modulus) as f64 / modulus as f64;
        let impairments = Impairments {
            loss_rate: 0.25 * part(7),
            duplication_rate: 0.2 * part(5),
            delay: Duration::from_millis(1 + seed % 60),
            jitter: Duration::from_millis(seed % 30),
        };
        let mut configs = [0, 1].map(|side| config(side, seed));
        configs[1].answer_setup = [Setup::Active, Setup::Passive][(seed % 2) as usize];
        configs[1].ice_lite = seed % 11 == 0;
        let mut pair = Pair::new(configs, impairments, seed);
        pair.negotiate(seed % 3 == 0);
        let took = pair.connect(Duration::from_secs(15));
        let took = took.unwrap_or_else(|| panic!("case {seed}: {:?}", pair.events));
        times.push(took);
        pair.exchange_media();
        // The peers stay connected despite this, and RTCP arrives unless it is lost.
        pair.run_for(Duration::from_secs(3));
        for side in [0, 1] {
            assert_eq!(
                pair.peers[side].state(),
                PeerState::Connected,
                "case {seed}"
            );
            for _ in 0..30 {
                assert!(pair.peers[side].send_rtcp(&REPORT));
            }
        }
        pair.run_for(Duration::from_secs(1));
        for side in [0, 1] {
            let rtcp = pair.peers[side].counts().rtcp;
            assert!((10..=30).contains(&rtcp.opened), "case {seed}: {rtcp:?}");
            assert_eq!(rtcp.opened, pair.rtcp[side].len() as u64);
            assert_eq!((rtcp.unauthentic, rtcp.malformed), (0, 0));
        }
    }
    // Up to one in five datagrams is lost, and the retransmission interval doubles each time.
    times.sort();
    assert!(times[180] < Duration::from_secs(3), "{:?}", &times[150..]);
}

/// With the 1 s of RFC 6347, a lost datagram would delay the connection by a second.
#[test]
fn lost_first_flight_is_retransmitted_soon() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 4)), NO_IMPAIRMENTS, 4);
    pair.negotiate(false);
    while pair.events[1].is_empty() {
        pair.run_for(Duration::from_millis(1));
    }
    // The answerer starts DTLS: its first flight is lost.
    pair.silent[1] = true;
    pair.run_for(Duration::from_millis(20));
    pair.silent[1] = false;
    let took = pair.connect(Duration::from_secs(5)).expect("they connect");
    assert!(took < Duration::from_millis(150), "{took:?}");
}

/// The last flight of the DTLS server is lost: the client requests it again.
#[test]
fn lost_last_flight_is_retransmitted() {
    for seed in 0..20 {
        let mut pair = Pair::new([0, 1].map(|side| config(side, seed)), NO_IMPAIRMENTS, seed);
        pair.negotiate(false);
        while pair.peers[0].state() != PeerState::Connected {
            pair.run_for(Duration::from_micros(100));
            // The datagrams sent right before the server is connected are lost, and those that
            // follow.
            pair.silent[0] = pair.peers[0].state() == PeerState::Connected;
        }
        pair.run_for(Duration::from_millis(20));
        pair.silent[0] = false;
        assert!(
            pair.connect(Duration::from_secs(5)).is_some(),
            "{:?}",
            pair.events
        );
        pair.exchange_media();
    }
}

/// The last flight is dropped once the client has shown that it received it, or after 30 s.
#[test]
fn last_flight_is_dropped_when_no_longer_needed() {
    // Header of a handshake record in epoch 1, followed by its contents.
    let mut finished = vec![22, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40];
    finished.resize(53, 7);
    for sends_rtcp in [true, false] {
        let mut pair = Pair::new([0, 1].map(|side| config(side, 8)), NO_IMPAIRMENTS, 8);
        pair.negotiate(false);
        pair.connect(Duration::from_secs(5)).expect("they connect");
        let is_retransmitted = |pair: &mut Pair| {
            let now = pair.now;
            let received = pair.peers[0].handle_datagram(now, address(1), &finished);
            matches!(received, Received::Handled)
        };
        assert!(is_retransmitted(&mut pair));
        // The datagrams before it in a flight of several datagrams are expected too.
        let now = pair.now;
        let hello = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let cipher = [20, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for early in [hello, cipher] {
            let received = pair.peers[0].handle_datagram(now, address(1), &early);
            assert!(matches!(received, Received::Handled));
        }
        assert_eq!(pair.peers[0].counts().dtls_unexpected, 0);
        let silence = match sends_rtcp {
            true => {
                assert!(pair.peers[1].send_rtcp(&REPORT));
                Duration::from_millis(100)
            }
            false => Duration::from_secs(25),
        };
        pair.run_for(silence);
        assert_eq!(is_retransmitted(&mut pair), !sends_rtcp);
        pair.run_for(Duration::from_secs(10));
        assert!(!is_retransmitted(&mut pair));
    }
}

#[test]
fn silent_peer_loses_consent() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 5)), NO_IMPAIRMENTS, 5);
    pair.negotiate(false);
    pair.connect(Duration::from_secs(5)).expect("they connect");
    let began = pair.now;
    pair.silent = [false, true];
    pair.run_for(Duration::from_secs(60));
    let (at, event) = pair.events[0].last().expect("it says so").clone();
    assert_eq!(event, PeerEvent::Failed(PeerFailure::ConsentExpired));
    // RFC 7675, 5.1: 30 s at most.
    let after = at.since(began);
    assert!((5..=30).contains(&after.as_secs()), "{after:?}");
    assert_eq!(pair.peers[0].deadline(), None);
    assert!(!pair.peers[0].send_rtcp(&REPORT));
}

#[test]
fn unanswered_checks_time_out() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 6)), NO_IMPAIRMENTS, 6);
    pair.silent = [false, true];
    pair.negotiate(false);
    pair.run_for(Duration::from_secs(20));
    let (at, event) = pair.events[0].last().expect("it says so").clone();
    assert_eq!(event, PeerEvent::Failed(PeerFailure::IceTimedOut));
    assert_eq!(
        at.since(measure::Time::from_nanos(1_000_000_000)),
        Duration::from_secs(15)
    );
}

#[test]
fn certificate_with_wrong_fingerprint_is_refused() {
    for side in [0, 1] {
        let mut pair = Pair::new([0, 1].map(|side| config(side, 7)), NO_IMPAIRMENTS, 7);
        for other in [0, 1] {
            let mut transport = pair.peers[other].local_transport();
            if other != side {
                // The peer's own fingerprints.
                transport.fingerprints = pair.peers[side].local_transport().fingerprints;
            }
            let now = pair.now;
            assert_eq!(pair.peers[1 - other].set_remote(now, &transport), Ok(()));
        }
        pair.run_for(Duration::from_secs(20));
        let failed = |(_, event): &_| *event == PeerEvent::Failed(PeerFailure::FingerprintMismatch);
        assert!(
            pair.events[side].iter().any(failed),
            "{:?}",
            pair.events[side]
        );
        assert!(pair.peers[side].take_rtp_opener().is_none());
    }
}

/// A lite peer does not check for consent: its caller decides how long to wait.
#[test]
fn lite_peer_survives_missing_checks() {
    for lite in [false, true] {
        let mut configs = [0, 1].map(|side| config(side, 5));
        configs[1].ice_lite = lite;
        let mut pair = Pair::new(configs, NO_IMPAIRMENTS, 5);
        pair.negotiate(false);
        pair.connect(Duration::from_secs(5)).expect("they connect");
        let mut now = pair.now;
        for _ in 0..290 {
            now += Duration::from_millis(100);
            pair.peers[1].handle_timeout(now);
            while pair.peers[1].poll_transmit(&mut Vec::new()).is_some() {}
        }
        let lost = PeerEvent::Failed(PeerFailure::ConsentExpired);
        let mut events = std::iter::from_fn(|| pair.peers[1].poll_event());
        assert_eq!(events.any(|event| event == lost), !lite);
    }
}

/// Both peers claim the controlling role: the second is an offerer too, as far as ICE is concerned.
#[test]
fn conflicting_roles_are_resolved() {
    for seed in 0..20 {
        let configs = [0, 1].map(|side| config(side, seed));
        let mut pair = Pair::new(configs.clone(), NO_IMPAIRMENTS, seed);
        pair.peers[1] = super::super::Peer::offerer(pair.now, &configs[1]);
        let now = pair.now;
        pair.peers[1].add_local_candidate(now, address(1));
        for (side, setup) in [(0, Setup::Active), (1, Setup::Passive)] {
            let mut transport = pair.peers[side].local_transport();
            transport.setup = setup;
            assert_eq!(pair.peers[1 - side].set_remote(now, &transport), Ok(()));
        }
        assert!(
            pair.connect(Duration::from_secs(10)).is_some(),
            "case {seed}: {:?}",
            pair.events
        );
        pair.exchange_media();
    }
}

#[test]
fn ice_restart_does_not_interrupt_media() {
    for seed in 0..20 {
        let mut pair = Pair::new([0, 1].map(|side| config(side, seed)), NO_IMPAIRMENTS, seed);
        pair.negotiate(false);
        pair.connect(Duration::from_secs(5)).expect("they connect");
        let before = pair
            .peers
            .each_ref()
            .map(|peer| peer.local_transport().ufrag);
        let now = pair.now;
        pair.peers[0].restart_ice(now);
        // The offerer has moved to another address.
        let moved = ([127, 0, 0, 9], 6000).into();
        pair.addresses[0] = moved;
        pair.peers[0].add_local_candidate(now, moved);
        pair.negotiate(false);
        pair.run_for(Duration::from_secs(5));
        let after = pair
            .peers
            .each_ref()
            .map(|peer| peer.local_transport().ufrag);
        assert!(before[0] != after[0] && before[1] != after[1]);
        for side in [0, 1] {
            assert_eq!(
                pair.peers[side].state(),
                PeerState::Connected,
                "{:?}",
                pair.events
            );
            assert!(pair.peers[side].send_rtcp(&REPORT));
        }
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.rtcp.each_ref().map(Vec::len), [1, 1], "case {seed}");
        pair.exchange_media();
    }
}

#[test]
fn repeated_description_changes_nothing() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 8)), NO_IMPAIRMENTS, 8);
    pair.negotiate(false);
    pair.connect(Duration::from_secs(5)).expect("they connect");
    let before = pair.events.clone();
    pair.negotiate(false);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.events, before);
    assert!(
        pair.peers
            .iter()
            .all(|peer| peer.state() == PeerState::Connected)
    );
}

#[test]
fn close_reaches_the_other_peer() {
    for keep_dtls in [false, true] {
        let configs = [0, 1].map(|side| super::super::PeerConfig {
            keep_dtls: side == 0 || keep_dtls,
            ..config(side, 9)
        });
        let mut pair = Pair::new(configs, NO_IMPAIRMENTS, 9);
        pair.negotiate(false);
        pair.connect(Duration::from_secs(5)).expect("they connect");
        // The DTLS server kept its state. Its close reaches the client in either case.
        let now = pair.now;
        pair.peers[0].close(now);
        assert_eq!(pair.peers[0].state(), PeerState::Closed);
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.peers[1].state(), PeerState::Closed, "kept {keep_dtls}");
        let last = pair.events[1].last().map(|(_, event)| event);
        assert_eq!(last, Some(&PeerEvent::Closed));
    }
}

/// Once connected, a peer sends only consent checks, one in 3 s, and answers.
#[test]
fn idle_connection_sends_only_consent_checks() {
    let mut pair = Pair::new([0, 1].map(|side| config(side, 10)), NO_IMPAIRMENTS, 10);
    pair.negotiate(false);
    pair.connect(Duration::from_secs(5)).expect("they connect");
    pair.run_for(Duration::from_secs(5));
    let before = pair.sent;
    pair.run_for(Duration::from_secs(60));
    for side in [0, 1] {
        let sent = pair.sent[side] - before[side];
        assert!((20..=80).contains(&sent), "{sent} datagrams in a minute");
    }
}
