//! Media sent to an address other than that of the connection.

use super::*;
use crate::client::Phase;
use kit::media::rtp::summaries;
use kit::remote_receiver::messages::{
    ClientMessage, ReceiverMessage, StreamState, VERSION, to_line,
};
use kit::remote_receiver::{MediaConfig, Secret};

/// Runs up to the answer to SETUP, with a client at 10.0.0.2 that requests its media at 10.0.0.3.
fn answered(status: u16, transport: &str) -> ClientBench {
    let config = ClientConfig {
        media: Some(MediaConfig {
            address: Some("10.0.0.3".parse().expect("an address")),
            ..MediaConfig::default()
        }),
        ..ClientConfig::default()
    };
    assert_eq!(config.check(), Ok(()));
    let mut bench = ClientBench::new(config, URL);
    bench.connect();
    bench.options();
    bench.describe(ONE);
    let Output::Open {
        channel,
        open: Open::UdpPair { local, .. },
    } = bench.next()
    else {
        panic!("ports are wanted before the server is asked");
    };
    assert_eq!(local.to_string(), "10.0.0.3");
    bench.pairs.push(channel);
    bench.input(Input::Opened {
        channel,
        local: "10.0.0.3:40000".parse().expect("an address"),
        remote: None,
    });
    let setup = bench.asked(Method::Setup);
    assert_eq!(
        setup.headers.get("Transport"),
        Some("RTP/AVP;unicast;destination=10.0.0.3;client_port=40000-40001")
    );
    let headers = [("Session", "a"), ("Transport", transport)];
    bench.answer(&setup, status, &headers, "");
    bench
}

#[test]
fn media_arrives_at_a_confirmed_destination() {
    let mut bench = answered(
        200,
        "RTP/AVP;unicast;destination=10.0.0.3;client_port=40000-40001;server_port=6000-6001",
    );
    assert!(matches!(bench.next(), Output::Peer { .. }));
    let play = bench.asked(Method::Play);
    bench.answer(&play, 200, &[], "");
    bench.packet(0, 1);
    assert!(matches!(bench.next(), Output::Playing { .. }));
}

#[test]
fn refused_destination_has_a_reason_of_its_own() {
    for (status, reason) in [
        (400, "destination_refused"),
        (403, "destination_refused"),
        (461, "destination_refused"),
        (463, "destination_refused"),
        (404, "status_404"),
        (453, "status_453"),
        (500, "status_500"),
    ] {
        assert_eq!(answered(status, "").failed().0, reason);
    }
}

#[test]
fn changed_destination_fails_before_play() {
    for other in ["10.0.0.2", "example.org"] {
        let transport = format!("RTP/AVP;unicast;destination={other};client_port=40000-40001");
        let (reason, detail) = answered(200, &transport).failed();
        assert_eq!(reason, "destination_changed");
        assert!(
            detail.contains("destination=10.0.0.3") && detail.contains(other),
            "{detail}"
        );
    }
}

#[test]
fn unconfirmed_destination_is_judged_by_its_media() {
    let silent = "RTP/AVP;unicast;client_port=40000-40001;server_port=6000-6001";
    let mut bench = answered(200, silent);
    bench.next();
    let play = bench.asked(Method::Play);
    bench.answer(&play, 200, &[], "");
    while bench.client.phase != Phase::Ended {
        bench.deadline();
    }
    assert_eq!(bench.failed().0, "destination_ignored");
    let mut bench = answered(200, silent);
    bench.next();
    let play = bench.asked(Method::Play);
    bench.answer(&play, 200, &[], "");
    bench.packet(0, 1);
    assert!(matches!(bench.next(), Output::Playing { .. }));
}

/// Returns the config of a client whose media another machine receives.
fn received_elsewhere() -> ClientConfig {
    let config = ClientConfig {
        media: Some(MediaConfig {
            receiver: Some("10.0.0.3:8560".parse().expect("an address")),
            secret: Some(Secret::new("known to both")),
            ..MediaConfig::default()
        }),
        ..ClientConfig::default()
    };
    assert_eq!(config.check(), Ok(()));
    config
}

/// Runs such a client up to DESCRIBE. Returns it with its channel to that machine.
fn elsewhere() -> (ClientBench, ChannelId) {
    let mut bench = ClientBench::new(received_elsewhere(), URL);
    let due = bench.now;
    bench.input(Input::Start { due });
    bench.accept("10.0.0.1", 8554);
    let Output::Open {
        channel,
        open: Open::Tcp { host, port, .. },
    } = bench.next()
    else {
        panic!("a connection to the receiver is wanted");
    };
    assert_eq!((host.as_str(), port), ("10.0.0.3", 8560));
    bench.input(Input::Opened {
        channel,
        local: "10.0.0.2:40002".parse().expect("an address"),
        remote: Some("10.0.0.3:8560".parse().expect("an address")),
    });
    bench.options();
    (bench, channel)
}

fn says(bench: &mut ClientBench, channel: ChannelId, message: &ReceiverMessage) {
    let at = bench.now;
    let bytes = to_line(message);
    bench.input(Input::Bytes {
        channel,
        bytes: &bytes,
        at,
        runs: &[],
    });
}

fn next_receiver_request(bench: &mut ClientBench, link: ChannelId) -> ClientMessage {
    match bench.next() {
        Output::Send { channel, bytes, .. } if channel == link => {
            serde_json::from_slice(&bytes).expect("a message")
        }
        other => panic!("{other:?} is not for the receiver"),
    }
}

/// Runs up to playback.
fn plays_elsewhere() -> (ClientBench, ChannelId) {
    let (mut bench, link) = elsewhere();
    bench.describe(ONE);
    assert!(
        bench.out.is_empty(),
        "no server is asked before the receiver has agreed"
    );
    let hello = ReceiverMessage::Hello {
        version: VERSION,
        challenge: "abc".to_owned(),
    };
    says(&mut bench, link, &hello);
    assert!(matches!(
        next_receiver_request(&mut bench, link),
        ClientMessage::Proof { .. }
    ));
    assert!(
        matches!(next_receiver_request(&mut bench, link), ClientMessage::Open(wanted) if wanted.clock_rate == 90_000)
    );
    assert!(bench.out.is_empty());
    let opened = |port| ReceiverMessage::Opened {
        stream: 0,
        address: "10.0.0.3".parse().expect("an address"),
        port,
    };
    says(&mut bench, link, &opened(40_000));
    let setup = bench.asked(Method::Setup);
    let transport = "RTP/AVP;unicast;destination=10.0.0.3;client_port=40000-40001";
    assert_eq!(setup.headers.get("Transport"), Some(transport));
    says(&mut bench, link, &opened(40_002));
    assert!(bench.out.is_empty(), "the server is asked once");
    let headers = [("Session", "a"), ("Transport", transport)];
    bench.answer(&setup, 200, &headers, "");
    assert!(matches!(
        next_receiver_request(&mut bench, link),
        ClientMessage::Peer { .. }
    ));
    let play = bench.asked(Method::Play);
    let info = [("RTP-Info", "url=track1;seq=7")];
    bench.answer(&play, 200, &info, "");
    let base = ClientMessage::Base {
        rtptime: None,
        stream: 0,
        sequence: 7,
    };
    assert_eq!(next_receiver_request(&mut bench, link), base);
    let age = 2_000_000;
    says(&mut bench, link, &ReceiverMessage::First { stream: 0, age });
    assert!(matches!(bench.next(), Output::Playing { .. }));
    (bench, link)
}

#[test]
fn remotely_received_media_is_reported_to_its_end() {
    let (mut bench, link) = plays_elsewhere();
    assert_eq!(bench.delay(m::PLAY_TO_MEDIA), 8);
    bench.after(500);
    let mut state = StreamState {
        ages: Some((400_000_000, 0)),
        ..StreamState::default()
    };
    state.counts.received = 50;
    says(&mut bench, link, &ReceiverMessage::Seen(state.clone()));
    says(
        &mut bench,
        link,
        &ReceiverMessage::Bye { stream: 0, age: 0 },
    );
    bench.deadline();
    let teardown = bench.asked(Method::Teardown);
    bench.answer(&teardown, 200, &[], "");
    assert_eq!(
        next_receiver_request(&mut bench, link),
        ClientMessage::Close
    );
    assert!(bench.out.is_empty(), "the last counts are waited for");
    state.counts.received = 60;
    let streams = vec![state];
    says(&mut bench, link, &ReceiverMessage::Closed { streams });
    let (before, outcome) = bench.ended();
    assert!(
        matches!(outcome, Outcome::EndedByServer { .. }),
        "{outcome:?}"
    );
    let received = before.iter().find_map(|output| match output {
        Output::Streams(streams) => Some(summaries(streams)[0].counts.received),
        _ => None,
    });
    assert_eq!(received, Some(60));
    // The receiver counts them.
    assert_eq!(bench.count(kit::media::rtp::metrics::RECEIVED), 0);
}

#[test]
fn lost_receiver_fails_and_tears_down_the_session() {
    let (mut bench, link) = plays_elsewhere();
    bench.input(Input::Closed {
        channel: link,
        reason: CloseReason::Reset,
    });
    bench.asked(Method::Teardown);
    assert_eq!(bench.failed().0, "receiver_lost");
    let (mut bench, link) = elsewhere();
    let why = "full".to_owned();
    says(&mut bench, link, &ReceiverMessage::Refused { why });
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "receiver_lost");
    assert!(
        detail.contains("10.0.0.3:8560") && detail.contains("full"),
        "{detail}"
    );
    // A receiver that never answers.
    let (mut bench, _) = elsewhere();
    bench.describe(ONE);
    while bench.client.phase != Phase::Ended {
        bench.deadline();
    }
    assert_eq!(bench.failed().0, "receiver_lost");
}

#[test]
fn describing_client_does_not_contact_its_receiver() {
    let mut bench = ClientBench::new(ClientConfig::default(), URL);
    bench.client = Client::describing(received_elsewhere(), URL, 7).expect("a URL");
    bench.connect();
    bench.options();
    bench.describe(ONE);
    let (before, outcome) = bench.ended();
    assert_eq!(outcome, Outcome::Completed);
    let reaches = |output: &Output| matches!(output, Output::Open { .. });
    assert!(!before.iter().any(reaches), "{before:?}");
}
