use std::time::Duration;

use measure::Time;

use super::network::{Network, settings};
use crate::codec::packet::{Control, ControlHeader};
use crate::crypto::Secret;
use crate::handshake::{HandshakeFailure, HandshakeSettings, Negotiated, Rendezvous, Security};

type Ended = Result<Negotiated, HandshakeFailure>;

/// Returns the outcomes of both ends. The second one starts `later`. A connected end sends
/// keep-alives, as every connection does.
fn run(both: [HandshakeSettings; 2], later: Duration, network: &mut Network) -> [Ended; 2] {
    let mut now = Time::from_nanos(1_000_000);
    let begins = [now, now + later];
    let ids = [both[0].socket_id, both[1].socket_id];
    let mut settings = both.map(Some);
    let mut ends: [Option<Rendezvous>; 2] = [None, None];
    let mut ended: [Option<Ended>; 2] = [None, None];
    let mut alive = [Time::NEVER; 2];
    loop {
        for index in 0..2 {
            if now >= begins[index]
                && let Some(settings) = settings[index].take()
            {
                ends[index] = Some(Rendezvous::new(settings, None, now));
            }
            let Some(end) = &mut ends[index] else {
                continue;
            };
            let mut out = Vec::new();
            while end.write_next(now, &mut out) {
                network.send(now, 1 - index, &out);
                out.clear();
            }
            if let Some(outcome) = end.outcome() {
                alive[index] = match outcome {
                    Ok(_) => now + Duration::from_millis(500),
                    Err(_) => Time::NEVER,
                };
                ended[index] = Some(outcome);
                // A final datagram may follow.
                while end.write_next(now, &mut out) {
                    network.send(now, 1 - index, &out);
                    out.clear();
                }
            }
            if now >= alive[index] {
                alive[index] = now + Duration::from_millis(500);
                let header = ControlHeader {
                    timestamp: 0,
                    destination: ids[1 - index],
                };
                Control::KeepAlive.write(header, &mut out);
                network.send(now, 1 - index, &out);
            }
        }
        if let [Some(_), Some(_)] = ended {
            return ended.map(|ended| ended.expect("both are there"));
        }
        let dues = ends.iter().flatten().map(Rendezvous::due);
        let begins = (0..2)
            .filter(|index| settings[*index].is_some())
            .map(|index| begins[index]);
        now = dues
            .chain(begins)
            .chain(alive)
            .chain([network.due()])
            .min()
            .unwrap()
            .max(now);
        while let Some((to, datagram)) = network.arrived(now) {
            if let Some(end) = &mut ends[to] {
                end.handle(&datagram, now);
            }
        }
    }
}

fn pair(seed: u64) -> [HandshakeSettings; 2] {
    [settings(1, seed), settings(2, seed + 1_000_000)]
}

#[test]
fn both_ends_agree() {
    for later in [0, 30, 400] {
        let mut both = pair(later);
        both[0].receive_latency = Duration::from_millis(300);
        let secret = Some(Secret::new("a passphrase").unwrap());
        (both[0].secret, both[1].secret) = (secret.clone(), secret);
        let later = Duration::from_millis(later);
        let [one, two] = run(both, later, &mut Network::new(1, 0.0, 0.0)).map(Result::unwrap);
        assert_eq!((one.peer_socket_id, two.peer_socket_id), (2, 1));
        assert_eq!(one.initial_sequence, two.peer_initial_sequence);
        assert_eq!(two.initial_sequence, one.peer_initial_sequence);
        assert_eq!(one.receive_latency, two.send_latency);
        assert_eq!(one.send_latency, two.receive_latency);
        assert_eq!(one.receive_latency, Duration::from_millis(300));
        assert_eq!(
            (one.security, two.security),
            (Security::Encrypted, Security::Encrypted)
        );
    }
}

#[test]
fn any_bad_network_connects_or_times_out() {
    let (mut connected, mut timed_out) = (0, 0);
    for seed in 0..4000 {
        let loss = (seed % 6) as f64 / 10.0;
        let later = Duration::from_millis(seed % 7 * 60);
        let mut network = Network::new(seed, loss, 0.2);
        match run(pair(seed), later, &mut network) {
            [Ok(one), Ok(two)] => {
                connected += 1;
                assert_eq!(one.initial_sequence, two.peer_initial_sequence);
                assert_eq!(one.receive_latency, two.send_latency);
            }
            [Err(HandshakeFailure::TimedOut { .. }), _]
            | [_, Err(HandshakeFailure::TimedOut { .. })] => {
                timed_out += 1;
                assert!(loss > 0.0, "seed {seed}");
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(connected > 3800, "{connected}, {timed_out}");
}

#[test]
fn mismatched_passphrases_have_distinct_failures() {
    let (one, other) = (Some("a passphrase"), Some("another passphrase"));
    for seed in 0..20 {
        let with = |ours: Option<&str>, theirs: Option<&str>| {
            let mut both = pair(seed);
            both[0].secret = ours.map(|text| Secret::new(text).unwrap());
            both[1].secret = theirs.map(|text| Secret::new(text).unwrap());
            run(both, Duration::ZERO, &mut Network::new(seed, 0.0, 0.0)).map(Result::unwrap_err)
        };
        assert_eq!(with(one, other), [HandshakeFailure::WrongPassphrase; 2]);
        let missing = [
            HandshakeFailure::PassphraseMissing,
            HandshakeFailure::PassphraseMissingAtPeer,
        ];
        assert_eq!(with(None, one), missing);
        assert_eq!(with(one, None), [missing[1], missing[0]]);
    }
}

#[test]
fn equal_cookies_end_the_rendezvous() {
    let both = [settings(1, 5), settings(2, 5)];
    let ended = run(both, Duration::ZERO, &mut Network::new(1, 0.0, 0.0));
    for end in ended.map(Result::unwrap_err) {
        let rejection = end.rejection().name();
        assert_eq!(rejection, Some("SRT_REJ_RDVCOOKIE"));
    }
}
