//! Client and server in virtual time; attacks on the server's port.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use measure::units::TimeSpan;
use measure::{CounterId, Time};
use proptest::prelude::*;
use session::link::{Jitter, Loss, Settings};

use super::client::Client;
use super::codec::{Message, NO_COOKIE, REQUESTED_MAX};
use super::config::{ClientConfig, ServerConfig};
use super::endpoint::Endpoint;
use super::metrics::{self as m, CATALOGUE};
use super::receiver::COLUMNS;
use super::sender::Sent;
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side};
use session::{Datagram, Endpoint as _, Outcome, Output, Route};

const CLIENT: SessionNumber = SessionNumber(0);

fn server(lose_every: Option<u32>) -> ServerConfig {
    ServerConfig {
        count: 500,
        every: Duration::from_millis(2),
        size: 100,
        lose_every,
        seed: 1,
    }
}

/// A finished session: the client's counts, and the server's record.
struct Played {
    pair: Pair,
    sent: Sent,
}

impl Played {
    fn count(&mut self, id: CounterId) -> u64 {
        self.pair.recorder(Side::Client).counter(id)
    }
}

fn play(settings: PairSettings, config: ClientConfig, server: ServerConfig) -> Played {
    let to = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), settings.port);
    let client = Client::new(config, to);
    let mut pair = Pair::new(settings, Box::new(client), |_| unreachable!("UDP only"));
    pair.set_endpoint(Box::new(Endpoint::new(server)));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Completed));
    let sent = pair.outputs().iter().find_map(|(_, output)| match output {
        Output::Record(record) => record.downcast_ref::<Sent>().copied(),
        _ => None,
    });
    let sent = sent.expect("the server reports its counts");
    Played { pair, sent }
}

fn perfect() -> PairSettings {
    PairSettings::new(1, CATALOGUE)
}

#[test]
fn omitted_packets_are_requested_and_recovered() {
    let mut played = play(perfect(), ClientConfig::default(), server(Some(7)));
    // 500 / 7; the last packet is not omitted.
    let left_out = 71;
    assert_eq!(
        played.sent,
        Sent {
            expected: 500,
            sent: 500 - left_out,
            left_out,
            asked: left_out,
            sent_again: left_out,
            not_taken: 0,
        }
    );
    for (id, expected) in [
        (m::EXPECTED, 500),
        (m::RECEIVED, 500),
        (m::MISSED, left_out),
        (m::RECOVERED, left_out),
        (m::RETRANSMITTED, left_out),
        (m::ASKED, left_out),
        (m::GIVEN_UP, 0),
        (m::DUPLICATED, 0),
        (m::REORDERED, 0),
        (m::MALFORMED, 0),
    ] {
        assert_eq!(played.count(id), expected, "{id:?}");
    }
    let mut outputs = played.pair.outputs().iter();
    let rows = outputs.find_map(|(_, output)| match output {
        Output::Streams(rows) => Some(rows),
        _ => None,
    });
    let [row] = &rows.expect("the client reports its streams")[..] else {
        panic!("one stream");
    };
    let row = row.to_json();
    let counts = COLUMNS.iter().map(|column| row.pointer(column)?.as_u64());
    let counts: Vec<u64> = counts.map(|value| value.expect("a column each")).collect();
    assert_eq!(counts, [500, 500, left_out, 0]);
}

#[test]
fn without_recovery_omitted_packets_are_lost_up_to_the_last() {
    let config = ClientConfig {
        recovery: false,
        ..ClientConfig::default()
    };
    let mut played = play(perfect(), config, server(Some(5)));
    assert_eq!((played.sent.left_out, played.sent.sent_again), (100, 0));
    assert_eq!(played.count(m::EXPECTED), 500);
    assert_eq!(played.count(m::RECEIVED), 400);
    assert_eq!(played.count(m::GIVEN_UP), 100);
    assert_eq!(played.count(m::ASKED), 0);
}

#[test]
fn patient_client_recovers_everything_on_a_lossy_network() {
    for seed in 0..50 {
        let bad = Settings {
            delay: Duration::from_millis(20),
            jitter: Jitter {
                spread: Duration::from_millis(10),
                ..Jitter::default()
            },
            loss: Loss::Random(0.2),
            duplicate: 0.02,
            reorder: 0.05,
            held_back: Duration::from_millis(30),
            ..Settings::default()
        };
        let settings = PairSettings {
            seed,
            up: bad.clone(),
            down: bad,
            ..perfect()
        };
        let config = ClientConfig {
            give_up: TimeSpan(Duration::from_secs(20)),
            ..ClientConfig::default()
        };
        let mut played = play(settings, config, server(Some(9)));
        assert_eq!(played.count(m::EXPECTED), 500, "{seed}");
        assert_eq!(played.count(m::RECEIVED), 500, "{seed}");
        let found = played.count(m::RECOVERED) + played.count(m::REORDERED);
        assert_eq!(found, played.count(m::MISSED), "{seed}");
        assert_eq!(played.sent.left_out, 55, "{seed}");
        assert!(played.count(m::RECOVERED) > 55, "{seed}");
        assert!(played.sent.sent_again <= played.sent.asked, "{seed}");
    }
}

#[test]
fn late_packets_are_given_up() {
    let lost = Settings {
        loss: Loss::Random(0.5),
        ..Settings::default()
    };
    let settings = PairSettings {
        down: lost,
        ..perfect()
    };
    let config = ClientConfig {
        give_up: TimeSpan(Duration::from_millis(300)),
        ..ClientConfig::default()
    };
    let mut played = play(settings, config, server(None));
    let given_up = played.count(m::GIVEN_UP);
    assert!(given_up > 0);
    assert_eq!(played.count(m::RECEIVED) + given_up, 500);
}

#[test]
fn stopped_client_leaves_and_gives_up_missing_packets() {
    let settings = perfect();
    let to = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), settings.port);
    let config = ClientConfig {
        recovery: false,
        ..ClientConfig::default()
    };
    let client = Client::new(config, to);
    let mut pair = Pair::new(settings, Box::new(client), |_| unreachable!("UDP only"));
    pair.set_endpoint(Box::new(Endpoint::new(server(Some(2)))));
    pair.run(Duration::from_millis(500));
    pair.stop(CLIENT, Duration::from_secs(1));
    assert_eq!(pair.run(Duration::from_secs(1)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
    let recorder = pair.recorder(Side::Client);
    let missed = recorder.counter(m::MISSED);
    assert!(missed > 100);
    assert_eq!(recorder.counter(m::GIVEN_UP), missed);
}

#[test]
fn unproven_addresses_leave_no_state_and_are_not_amplified() {
    let mut endpoint = Endpoint::new(server(None));
    let hello = |cookie| {
        let mut bytes = Vec::new();
        Message::Hello(cookie).write(&mut bytes);
        bytes
    };
    let route = |endpoint: &mut Endpoint, port: u16, at: u64, bytes: &[u8]| {
        let datagram = Datagram {
            from: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            at: Time::ZERO,
            bytes,
        };
        let now = Time::ZERO + Duration::from_secs(at);
        let mut answer = Vec::new();
        let route = endpoint.route(now, &datagram, true, &mut answer);
        (route, answer)
    };
    let question = hello(NO_COOKIE);
    let mut cookies = Vec::new();
    for port in 1..=u16::MAX {
        let (route, answer) = route(&mut endpoint, port, 5, &question);
        assert!(matches!(route, Route::Answer));
        assert!(answer.len() <= question.len());
        let Some(Message::Challenge(cookie)) = Message::parse(&answer) else {
            panic!("the answer is a challenge");
        };
        cookies.push(cookie);
    }
    assert_eq!(endpoint.len(), 0);
    // A foreign, old or forged cookie is invalid.
    for (port, at, cookie) in [(1, 5, cookies[1]), (1, 25, cookies[0]), (1, 5, [7; 8])] {
        let (route, _) = route(&mut endpoint, port, at, &hello(cookie));
        assert!(matches!(route, Route::Answer), "{port} {at}");
    }
    for bytes in [&[7][..], &[], b"hello", &[3, 0, 0, 0, 1]] {
        let (route, _) = route(&mut endpoint, 1, 5, bytes);
        assert!(matches!(route, Route::Discard));
    }
    assert_eq!(endpoint.len(), 0);
    let (accepted, _) = route(&mut endpoint, 1, 15, &hello(cookies[0]));
    let Route::Accept(peer, _) = accepted else {
        panic!("a client's own cookie is valid for two lifetimes");
    };
    let (known, _) = route(&mut endpoint, 1, 15, &[7]);
    assert!(matches!(known, Route::Session(other) if other == peer));
    endpoint.session_ended(peer);
    assert_eq!(endpoint.len(), 0);
}

fn message() -> impl Strategy<Value = Message<'static>> {
    prop_oneof![
        any::<[u8; 8]>().prop_map(Message::Hello),
        any::<[u8; 8]>().prop_map(Message::Challenge),
        (any::<u32>(), any::<bool>()).prop_map(|(number, again)| Message::Media {
            number,
            is_retransmission: again,
            payload: b"payload",
        }),
        any::<u32>().prop_map(Message::End),
        prop::collection::vec(any::<u32>(), 1..=REQUESTED_MAX).prop_map(Message::Request),
        Just(Message::Bye),
    ]
}

proptest! {
    #[test]
    fn written_messages_parse_back(message in message()) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        prop_assert_eq!(Message::parse(&bytes), Some(message));
    }

    #[test]
    fn parsed_messages_write_back(bytes in prop::collection::vec(0u8..9, 0..20)) {
        if let Some(message) = Message::parse(&bytes) {
            let mut again = Vec::new();
            message.write(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    /// A client accepts any numbers and tracks a bounded number of packets.
    #[test]
    fn any_packet_numbers_are_handled(
        numbers in prop::collection::vec(any::<u32>(), 0..50),
        end in any::<u32>(),
    ) {
        let mut receiver = super::receiver::Receiver::new(&ClientConfig::default());
        let mut recorder = measure::Recorder::new(CATALOGUE);
        let mut now = Time::ZERO;
        for number in numbers {
            receiver.media(number, false, 10, now, &mut recorder);
            prop_assert!(receiver.run_due(now, &mut recorder).len() <= 4096);
            now += Duration::from_millis(100);
        }
        receiver.end(end, now, &mut recorder);
        receiver.run_due(now + Duration::from_secs(60), &mut recorder);
        prop_assert!(receiver.is_complete());
        let count = |id| recorder.counter(id);
        prop_assert_eq!(count(m::EXPECTED), count(m::RECEIVED) + count(m::GIVEN_UP));
    }
}
