//! Every reason of failure.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// Returns a client that waits for the answer to this method, and the request.
fn waiting_for(method: &Method) -> (ClientBench, Request) {
    let mut bench = ClientBench::udp();
    bench.connect();
    if *method != Method::Options {
        bench.options();
    }
    if !matches!(method, Method::Options | Method::Describe) {
        bench.describe(ONE);
        bench.open_pair(5000);
    }
    if *method == Method::Play {
        let setup = bench.asked(Method::Setup);
        bench.answer(&setup, 200, &[("Session", "abc")], "");
        bench.next();
    }
    let request = bench.asked(method.clone());
    (bench, request)
}

const METHODS: [Method; 4] = [
    Method::Options,
    Method::Describe,
    Method::Setup,
    Method::Play,
];

#[test]
fn failed_connections_have_reasons() {
    for (error, reason) in [
        (ChannelError::Refused, "refused"),
        (ChannelError::Unreachable, "unreachable"),
        (ChannelError::NameNotFound, "name_not_found"),
        (ChannelError::TimedOut, "connect_timeout"),
        (ChannelError::NoDescriptors, "local_files"),
        (ChannelError::Other(5), "connect_other"),
    ] {
        let mut bench = ClientBench::udp();
        let due = bench.now;
        bench.input(Input::Start { due });
        let Output::Open { channel, .. } = bench.next() else {
            panic!("a connection is wanted");
        };
        bench.input(Input::OpenFailed { channel, error });
        let (before, outcome) = bench.ended();
        let closes = before.iter().any(|o| matches!(o, Output::Close { .. }));
        assert!(!closes, "nothing is open: {before:?}");
        assert!(
            matches!(outcome, Outcome::Failed(f) if f.reason == reason && f.detail.contains("10.0.0.1:8554"))
        );
    }
}

#[test]
fn failed_ports_have_reasons() {
    for (error, reason) in [
        (ChannelError::NoPorts, "local_ports"),
        (ChannelError::NoDescriptors, "local_files"),
        (ChannelError::Other(1), "local_other"),
    ] {
        let mut bench = ClientBench::udp();
        bench.connect();
        bench.options();
        bench.describe(ONE);
        let Output::Open { channel, .. } = bench.next() else {
            panic!("a pair of ports is wanted");
        };
        bench.input(Input::OpenFailed { channel, error });
        assert_eq!(bench.failed().0, reason);
    }
}

#[test]
fn missing_answers_time_out() {
    for method in METHODS {
        let (mut bench, _) = waiting_for(&method);
        let asked = bench.now;
        bench.deadline();
        assert_eq!(bench.now, asked + Duration::from_secs(10));
        let (reason, detail) = bench.failed();
        assert_eq!(reason, format!("timeout_{}", method.name().to_lowercase()));
        assert!(
            detail.contains("10.0.0.2:40000 to 10.0.0.1:8554"),
            "{detail}"
        );
    }
}

#[test]
fn closed_connections_name_the_outstanding_method() {
    for method in METHODS {
        for (how, word) in [(CloseReason::End, "closed"), (CloseReason::Reset, "reset")] {
            let (mut bench, _) = waiting_for(&method);
            let channel = bench.tcp;
            bench.input(Input::Closed {
                channel,
                reason: how,
            });
            let name = method.name().to_lowercase();
            assert_eq!(bench.failed().0, format!("{word}_in_{name}"));
        }
    }
    let mut bench = ClientBench::udp();
    bench.play_udp(TWO, 2);
    bench.packet(0, 1);
    let channel = bench.tcp;
    bench.input(Input::Closed {
        channel,
        reason: CloseReason::End,
    });
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "closed_in_play");
    let ends = "(10.0.0.2:40000 to 10.0.0.1:8554)";
    let text = format!("the server closed the connection while media played {ends}");
    assert_eq!(detail, text);
    // The answer is not RTSP.
    let (mut bench, _) = waiting_for(&Method::Options);
    bench.bytes(b"SSH-2.0-OpenSSH_9.6\r\n");
    let channel = bench.tcp;
    bench.input(Input::Closed {
        channel,
        reason: CloseReason::Reset,
    });
    let text = format!(
        "the server reset the connection instead of answering OPTIONS; the answer is not RTSP: it begins with \"SSH-2.0-OpenSSH_9.6\" {ends}"
    );
    assert_eq!(bench.failed().1, text);
    let (mut bench, _) = waiting_for(&Method::Options);
    bench.after(3999);
    let until = bench.now + Duration::from_secs(5);
    bench.input(Input::Stop { until });
    let text = format!("no answer to OPTIONS in 3.999 s, until the client was stopped {ends}");
    assert_eq!(bench.failed().1, text);
    let (mut bench, _) = waiting_for(&Method::Options);
    let channel = bench.tcp;
    bench.input(Input::Closed {
        channel,
        reason: CloseReason::SendQueueFull,
    });
    assert_eq!(bench.failed().0, "stuck");
}

#[test]
fn refusals_have_reasons() {
    for (status, reason) in [
        (400, "status_400"),
        (401, "status_401"),
        (403, "status_403"),
        (404, "status_404"),
        (453, "status_453"),
        (454, "status_454"),
        (459, "status_aggregate"),
        (461, "status_461"),
        (500, "status_500"),
        (501, "status_501"),
        (503, "status_503"),
        (599, "status_other"),
    ] {
        for method in [Method::Describe, Method::Setup, Method::Play] {
            let (mut bench, request) = waiting_for(&method);
            bench.answer(&request, status, &[], "");
            let (got, detail) = bench.failed();
            assert_eq!(got, reason);
            assert!(
                detail.contains(&format!("{method} {}", request.uri)),
                "{detail}"
            );
            assert!(detail.contains(&status.to_string()), "{detail}");
        }
    }
}

#[test]
fn wrong_password_fails_and_is_not_shown() {
    let mut bench = ClientBench::new(
        ClientConfig::default(),
        "rtsp://me:wrong@10.0.0.1:8554/clip",
    );
    bench.connect();
    bench.options();
    let challenge = [("WWW-Authenticate", "Basic realm=\"r\"")];
    let describe = bench.asked(Method::Describe);
    bench.answer(&describe, 401, &challenge, "");
    let describe = bench.asked(Method::Describe);
    assert!(describe.headers.get("Authorization").is_some());
    bench.answer(&describe, 401, &challenge, "");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "status_401");
    assert!(detail.contains("refused the name and password"), "{detail}");
    assert!(!detail.contains("wrong"), "{detail}");
}

#[test]
fn invalid_and_endless_redirects_fail() {
    for headers in [
        &[][..],
        &[("Location", "http://10.0.0.1/")],
        &[("Location", "")],
    ] {
        let (mut bench, request) = waiting_for(&Method::Describe);
        bench.answer(&request, 301, headers, "");
        assert_eq!(bench.failed().0, "bad_redirect");
    }
    let mut bench = ClientBench::udp();
    bench.connect();
    for _ in 0..5 {
        let options = bench.asked(Method::Options);
        bench.answer(&options, 302, &[("Location", URL)], "");
        bench.next();
        bench.accept("10.0.0.1", 8554);
    }
    let options = bench.asked(Method::Options);
    bench.answer(&options, 302, &[("Location", URL)], "");
    assert_eq!(bench.failed().0, "too_many_redirects");
}

#[test]
fn servers_cannot_aim_the_client_at_another_host() {
    let following = |follow| {
        let config = ClientConfig {
            follow,
            ..ClientConfig::default()
        };
        ClientBench::new(config, URL)
    };
    for (follow, to) in [
        (RedirectPolicy::SameHost, "10.0.0.7"),
        (RedirectPolicy::SameHost, "victim.example"),
        (RedirectPolicy::None, "10.0.0.1"),
    ] {
        let mut bench = following(follow);
        bench.connect();
        let options = bench.asked(Method::Options);
        let location = format!("rtsp://{to}:8554/x");
        bench.answer(&options, 302, &[("Location", &location)], "");
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "redirect_refused");
        assert!(detail.contains(to), "{detail}");
    }
    // By way of its own host.
    let mut bench = following(RedirectPolicy::SameHost);
    bench.connect();
    let options = bench.asked(Method::Options);
    let own = [("Location", "rtsp://10.0.0.1:9000/")];
    bench.answer(&options, 302, &own, "");
    bench.next();
    bench.accept("10.0.0.1", 9000);
    let options = bench.asked(Method::Options);
    let other = [("Location", "rtsp://10.0.0.7:9000/")];
    bench.answer(&options, 302, &other, "");
    assert_eq!(bench.failed().0, "redirect_refused");

    // Reports and hole-punching packets would be sent to the source.
    let set_up = |follow, transport: &str| {
        let mut bench = following(follow);
        bench.connect();
        bench.options();
        bench.describe(ONE);
        bench.open_pair(5000);
        let setup = bench.asked(Method::Setup);
        let transport = format!("RTP/AVP;unicast;client_port=5000-5001;server_port=1-2{transport}");
        let headers = [("Session", "a"), ("Transport", transport.as_str())];
        bench.answer(&setup, 200, &headers, "");
        bench
    };
    let mut bench = set_up(RedirectPolicy::SameHost, ";source=10.0.0.7");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "source_refused");
    assert!(
        detail.contains("10.0.0.7") && detail.contains("10.0.0.1"),
        "{detail}"
    );
    for (follow, transport, address) in [
        (RedirectPolicy::SameHost, ";source=10.0.0.1", "10.0.0.1:1"),
        (RedirectPolicy::SameHost, ";source=0.0.0.0", "10.0.0.1:1"),
        (
            RedirectPolicy::SameHost,
            ";destination=10.0.0.7",
            "10.0.0.1:1",
        ),
        (RedirectPolicy::Any, ";source=10.0.0.7", "10.0.0.7:1"),
    ] {
        let mut bench = set_up(follow, transport);
        assert!(
            matches!(bench.next(), Output::Peer { media, .. } if media.to_string() == address),
            "{transport}"
        );
    }

    // A control URL of another host is only sent to the connected server.
    let mut bench = following(RedirectPolicy::SameHost);
    bench.connect();
    bench.options();
    let describe = bench.asked(Method::Describe);
    let base = [("Content-Base", "rtsp://10.0.0.7/a/")];
    bench.answer(&describe, 200, &base, ONE);
    bench.open_pair(5000);
    assert_eq!(bench.asked(Method::Setup).uri, "rtsp://10.0.0.7/a/track1");
}

#[test]
fn flooding_servers_fail_the_client_cheaply() {
    for (text, reason) in [
        ("PLAY", "garbage"),
        ("\0", "garbage"),
        ("$\0\0\0", "garbage"),
        ("OPTIONS * RTSP/1.0\r\n\r\n", "flooded"),
        ("RTSP/1.0 100 Continue\r\n\r\n", "flooded"),
    ] {
        for playing in [false, true] {
            let mut bench = ClientBench::tcp();
            if playing {
                bench.connect();
                bench.options();
                bench.describe(ONE);
                let setup = bench.asked(Method::Setup);
                bench.answer(&setup, 200, &[("Session", "a")], "");
                let play = bench.asked(Method::Play);
                bench.answer(&play, 200, &[], "");
            } else {
                bench.connect();
                bench.asked(Method::Options);
            }
            let flood = text.repeat(256 * 1024 / text.len());
            let steps = kit::mediagen::steps::of(|| bench.bytes(flood.as_bytes()));
            assert!(steps < 4 << 20, "{steps} steps for {text}");
            let (before, outcome) = bench.ended();
            assert!(
                matches!(&outcome, Outcome::Failed(failure) if failure.reason == reason),
                "{text}: {outcome:?}"
            );
            assert!(before.len() < 300, "{} outputs", before.len());
        }
    }
}

#[test]
fn invalid_descriptions_have_reasons() {
    for (body, reason) in [
        ("", "malformed_sdp"),
        ("<html>404</html>", "malformed_sdp"),
        ("v=0\r\nm=video\r\n", "malformed_sdp"),
        ("v=0\r\ns=nothing\r\n", "no_streams"),
        ("v=0\r\nm=application 9 udp 5\r\n", "no_streams"),
    ] {
        let (mut bench, request) = waiting_for(&Method::Describe);
        bench.answer(&request, 200, &[], body);
        assert_eq!(bench.failed().0, reason, "{body}");
    }
}

#[test]
fn transports_that_were_not_requested_are_rejected() {
    for transport in [
        "RTP/AVP/TCP;unicast;interleaved=0-1",
        "RTP/AVP;multicast;destination=239.0.0.1;port=5000-5001",
        "MP2T/UDP;unicast",
    ] {
        let (mut bench, request) = waiting_for(&Method::Setup);
        bench.answer(
            &request,
            200,
            &[("Session", "a"), ("Transport", transport)],
            "",
        );
        assert_eq!(
            bench.failed().0,
            "unsupported_transport_answer",
            "{transport}"
        );
    }
    let mut bench = ClientBench::tcp();
    bench.connect();
    bench.options();
    bench.describe(ONE);
    let setup = bench.asked(Method::Setup);
    let transport = "RTP/AVP;unicast;client_port=5000-5001;server_port=1-2";
    bench.answer(
        &setup,
        200,
        &[("Session", "a"), ("Transport", transport)],
        "",
    );
    assert_eq!(bench.failed().0, "unsupported_transport_answer");
}

#[test]
fn unusable_answers_have_reasons() {
    let (mut bench, request) = waiting_for(&Method::Setup);
    bench.answer(&request, 200, &[], "");
    assert_eq!(bench.failed().0, "malformed_response");
    let (mut bench, _) = waiting_for(&Method::Describe);
    bench.bytes(b"RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: x\r\n\r\n");
    assert_eq!(bench.failed().0, "malformed_response");
    let (mut bench, _) = waiting_for(&Method::Describe);
    bench.bytes(b"RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 99999999\r\n\r\n");
    assert_eq!(bench.failed().0, "message_too_large");
}

#[test]
fn missing_media_times_out() {
    let mut bench = ClientBench::udp();
    bench.play_udp(TWO, 2);
    bench.client.conversation.keep_alive_due = None;
    let answered = bench.now;
    // Datagrams from another address do not count, but the detail names it.
    let sink = bench.client.streams[0].sink;
    let from = "10.0.0.9".parse().expect("an address");
    let event = session::MediaEvent::Foreign { from };
    bench.input(Input::Media { sink, event });
    while bench.out.is_empty() {
        bench.deadline();
    }
    assert_eq!(bench.now, answered + Duration::from_secs(10));
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "no_media");
    let hint = "; datagrams came from 10.0.0.9, which is not the server's address";
    assert!(detail.ends_with(hint), "{detail}");
}

#[test]
fn missing_media_over_udp_names_what_to_try() {
    let mut bench = ClientBench::udp();
    bench.play_udp(TWO, 2);
    bench.client.conversation.keep_alive_due = None;
    while bench.out.is_empty() {
        bench.deadline();
    }
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "no_media");
    assert!(detail.contains("try `--transport tcp`"), "{detail}");
}

#[test]
fn request_timeout_is_configurable() {
    let mut bench = ClientBench::udp();
    Arc::make_mut(&mut bench.client.config).request_timeout = TimeSpan(Duration::from_millis(300));
    bench.connect();
    let asked = bench.now;
    bench.asked(Method::Options);
    bench.deadline();
    assert_eq!(bench.now, asked + Duration::from_millis(300));
    assert_eq!(bench.failed().0, "timeout_options");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a server sends: no panic, no deadline in the past, no end without an outcome, and
    /// nothing left behind.
    #[test]
    fn any_server_input_ends_cleanly(
        method in prop::sample::select(METHODS.to_vec()),
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            (1u32..9, prop::sample::select(vec![100u16, 200, 200, 200, 302, 401, 404]), prop::sample::select(vec![
                "", "Session: x;timeout=0\r\n", "Transport: RTP/AVP;server_port=0\r\n", "Location: rtsp://a/\r\n",
                "RTP-Info: url=track1;seq=9,seq=1\r\nRange: npt=9-1\r\n", "Content-Length: 3\r\n\r\nv=0",
                "WWW-Authenticate: Digest nonce=1\r\n",
            ])).prop_map(|(cseq, status, more)| format!("RTSP/1.0 {status} x\r\nCSeq: {cseq}\r\n{more}\r\n").into_bytes()),
            Just(b"OPTIONS * RTSP/1.0\r\n\r\n".to_vec()),
            Just([b"$\x00\x00\x10".as_slice(), &rtp(3)].concat()),
            Just([b"$\x01\x00\x10".as_slice(), &bye()].concat()),
        ], 0..12),
    ) {
        let (mut bench, _) = waiting_for(&method);
        for piece in pieces {
            bench.after(1);
            bench.bytes(&piece);
            while let Some(Output::Open { channel, .. }) = {
                bench.out.retain(|o| matches!(o, Output::Open { .. } | Output::Ended(_)));
                bench.out.pop_front_if(|o| matches!(o, Output::Open { .. }))
            } {
                let local = "10.0.0.2:5000".parse().expect("an address");
                bench.input(Input::Opened { channel, local, remote: None });
            }
        }
        let mut steps = 0;
        while bench.out.is_empty() || bench.client.deadline().is_some() {
            bench.deadline();
            bench.out.retain(|o| matches!(o, Output::Ended(_)));
            steps += 1;
            prop_assert!(steps < 100, "it ends");
        }
        prop_assert!(matches!(bench.out.pop_back(), Some(Output::Ended(_))));
        prop_assert!(bench.client.streams.is_empty());
    }
}
