//! Media to another address than that of the connection.

use super::*;
use crate::apart::MediaConfig;
use crate::rtsp::client::Phase;

/// Up to the answer to SETUP, of a client at 10.0.0.2 that wants its media at 10.0.0.3.
fn answered(status: u16, transport: &str) -> Bench {
    let config = ClientConfig {
        media: Some(MediaConfig {
            address: Some("10.0.0.3".parse().expect("an address")),
            ..MediaConfig::default()
        }),
        ..ClientConfig::default()
    };
    assert_eq!(config.check(), Ok(()));
    let mut bench = Bench::new(config, URL);
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
fn goes_there_where_the_server_says_so() {
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
fn a_server_that_refuses_is_told_from_one_that_cannot() {
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
fn a_server_that_sends_elsewhere_is_not_asked_to_play() {
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
fn a_server_that_says_nothing_is_known_by_what_comes() {
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
