//! From the connection to media, and events during playback.

use std::sync::Arc;

use super::*;
use crate::codec::cseq;
use kit::media::rtp::summaries;

#[test]
fn udp_session_runs_from_start_to_teardown() {
    // The media comes from another host.
    let config = ClientConfig {
        follow: RedirectPolicy::Any,
        ..ClientConfig::default()
    };
    let mut bench = ClientBench::new(config, URL);
    bench.connect();
    let options = bench.asked(Method::Options);
    assert_eq!(
        (options.uri.as_str(), cseq(&options.headers)),
        (URL, Some(1))
    );
    assert!(
        options
            .headers
            .get("User-Agent")
            .is_some_and(|a| a.starts_with("streamgauge/"))
    );
    bench.answer(&options, 200, &[("Public", "DESCRIBE, SETUP")], "");
    bench.describe(TWO);
    bench.open_pair(5000);
    let setup = bench.asked(Method::Setup);
    assert_eq!(setup.uri, "rtsp://10.0.0.1:8554/clip/track1");
    assert_eq!(
        setup.headers.get("Transport"),
        Some("RTP/AVP;unicast;client_port=5000-5001")
    );
    assert_eq!(setup.headers.get("Session"), None);
    let transport =
        "RTP/AVP/UDP;unicast;client_port=5000-5001;server_port=6000-6001;source=10.0.0.9";
    bench.answer(
        &setup,
        200,
        &[("Session", "abc;timeout=20"), ("Transport", transport)],
        "",
    );
    let Output::Peer {
        channel,
        media,
        control,
    } = bench.next()
    else {
        panic!("the peer is named");
    };
    assert_eq!(channel, bench.pairs[0]);
    assert_eq!(
        (media.to_string(), control.port()),
        ("10.0.0.9:6000".into(), 6001)
    );
    bench.open_pair(5002);
    let setup = bench.asked(Method::Setup);
    assert_eq!(setup.headers.get("Session"), Some("abc"));
    // The server states no ports.
    bench.answer(&setup, 200, &[("Session", "abc")], "");
    let Output::Peer { media, .. } = bench.next() else {
        panic!("the peer is named");
    };
    assert_eq!(media.to_string(), "10.0.0.1:0");
    let play = bench.asked(Method::Play);
    assert_eq!(play.uri, "rtsp://10.0.0.1:8554/clip/");
    assert_eq!(play.headers.get("Range"), Some("npt=0.000-"));
    let info = "url=rtsp://10.0.0.1:8554/clip/track1;seq=5;rtptime=0, url=track2;seq=100";
    bench.answer(&play, 200, &[("RTP-Info", info), ("Range", "npt=0-2")], "");
    bench.after(10);
    bench.packet(0, 7);
    assert!(matches!(bench.next(), Output::Playing { .. }));
    bench.packet(1, 100);
    assert!(bench.out.is_empty());
    // 2 ms late, 5 ms to connect, five answers of 10 ms each, 10 ms to the packet
    assert_eq!(bench.delay(clients::STARTUP_DELAY), 67);
    assert_eq!(bench.delay(clients::STARTUP_DELAY_FROM_SENT), 65);
    assert_eq!(bench.delay(clients::CONNECT_DELAY), 5);
    assert_eq!(bench.delay(m::PLAY_TO_MEDIA), 20);
    assert_eq!(bench.delay(m::DESCRIBE_DELAY), 10);
    assert_eq!(
        bench
            .recorder
            .histogram(m::SETUP_DELAY)
            .expect("two")
            .count(),
        2
    );
    assert_eq!(
        (bench.count(m::REQUESTS), bench.count(m::RESPONSES)),
        (5, 5)
    );

    let until = bench.now + Duration::from_secs(60);
    bench.input(Input::Stop { until });
    let teardown = bench.asked(Method::Teardown);
    assert_eq!(teardown.headers.get("Session"), Some("abc"));
    // The client's own limit is shorter than `until`, and a second stop sends nothing.
    assert_eq!(
        bench.client.deadline(),
        Some(bench.now + Duration::from_secs(2))
    );
    bench.input(Input::Stop { until });
    bench.packet(0, 8);
    bench.answer(&teardown, 200, &[], "");
    let (before, outcome) = bench.ended();
    assert_eq!(outcome, Outcome::Stopped);
    let [
        Output::Close { channel },
        Output::Close { .. },
        Output::Close { .. },
        Output::Viewed(_),
        Output::Streams(streams),
    ] = &before[..]
    else {
        panic!("{before:?}");
    };
    assert_eq!(*channel, bench.tcp);
    let streams = summaries(streams);
    assert_eq!(streams.len(), 2);
    // Counted from the first number stated by RTP-Info.
    assert_eq!(
        (streams[0].counts.expected, streams[0].counts.received),
        (4, 2)
    );
    assert_eq!(streams[1].counts.expected, 1);
    assert_eq!(streams[0].url, "rtsp://10.0.0.1:8554/clip/track1");
    assert_eq!(bench.delay(m::TEARDOWN_DELAY), 10);
}

#[test]
fn tcp_packets_are_received_between_answers() {
    let mut bench = ClientBench::tcp();
    bench.connect();
    bench.options();
    bench.describe(TWO);
    for (stream, granted) in [(0, "0-1"), (1, "6-7")] {
        let setup = bench.asked(Method::Setup);
        let asked = format!(
            "RTP/AVP/TCP;unicast;interleaved={}-{}",
            stream * 2,
            stream * 2 + 1
        );
        assert_eq!(setup.headers.get("Transport"), Some(&*asked));
        let transport = format!("RTP/AVP/TCP;unicast;interleaved={granted}");
        bench.answer(
            &setup,
            200,
            &[("Session", "abc"), ("Transport", &transport)],
            "",
        );
    }
    let play = bench.asked(Method::Play);
    let mut bytes = Vec::new();
    for channel in [0, 6, 42, 7] {
        let packet = if channel == 7 { bye() } else { rtp(1) };
        bytes.extend_from_slice(&[b'$', channel, 0, packet.len() as u8]);
        bytes.extend_from_slice(&packet);
    }
    let mut answer = Response::new(200);
    answer
        .headers
        .push("CSeq", play.headers.get("CSeq").expect("a number"));
    bytes.extend_from_slice(&answer.encode());
    bytes.extend_from_slice(b"\x01rubbish");
    bench.after(10);
    for byte in bytes {
        bench.bytes(&[byte]);
    }
    assert!(matches!(bench.next(), Output::Playing { .. }));
    assert!(bench.out.is_empty());
    assert_eq!(bench.count(m::GARBAGE_BYTES), 1 + 7);
    assert_eq!(bench.count(kit::media::rtp::metrics::RECEIVED), 2);
    assert_eq!(
        bench.count(kit::media::rtp::metrics::WIRE_BYTES),
        2 * (rtp(1).len() as u64 + 4)
    );
    // A report is sent on the odd channel of the stream that has not ended.
    while bench.out.is_empty() {
        bench.deadline();
    }
    let Output::Send { channel, bytes, .. } = bench.next() else {
        panic!("a report is sent");
    };
    assert_eq!(channel, bench.tcp);
    assert_eq!(bytes[..3], [b'$', 1, 0]);
    assert_eq!(usize::from(bytes[3]), bytes.len() - 4);
    let packets: Vec<_> = rtcp::packets(&bytes[4..])
        .map(|p| p.expect("sound"))
        .collect();
    assert!(matches!(&packets[..], [
        rtcp::Packet::ReceiverReport { blocks, .. },
        rtcp::Packet::SourceDescription { .. }
    ] if blocks[0].ssrc == 9));
}

#[test]
fn no_reports_are_sent_if_the_sdp_forbids_them() {
    let mut bench = ClientBench::udp();
    let sdp = ONE.replace("a=rtpmap", "b=RR:0\r\na=rtpmap");
    bench.play_udp(&sdp, 1);
    let end = bench.now + Duration::from_secs(9);
    let mut seq = 0;
    while bench.now < end {
        bench.after(500);
        bench.packet(0, seq);
        bench.input(Input::Deadline);
        seq += 1;
    }
    assert!(matches!(bench.next(), Output::Playing { .. }));
    assert!(bench.out.is_empty(), "{:?}", bench.out);
}

#[test]
fn reports_go_to_the_control_port() {
    let mut bench = ClientBench::udp();
    bench.play_udp(ONE, 1);
    let mut reports = 0;
    for seq in 0..80 {
        bench.after(500);
        bench.packet(0, seq);
        bench.input(Input::Deadline);
        while let Some(output) = bench.out.pop_front() {
            if let Output::Send {
                channel,
                port: Port::Control,
                ..
            } = output
            {
                assert_eq!(channel, bench.pairs[0]);
                reports += 1;
            }
        }
    }
    // One about every 5 s, between half and one and a half times that.
    assert!((5..=17).contains(&reports), "{reports} in 40 s");
}

#[test]
fn keep_alives_are_sent_at_half_of_the_timeout() {
    let mut bench = ClientBench::udp();
    let config = ClientConfig {
        receiver_reports: false,
        ..ClientConfig::default()
    };
    bench.client.config = config.into();
    bench.play_udp(ONE, 1);
    let answered = bench.now;
    let mut seq = 0;
    for beat in 1..=3 {
        let request = loop {
            bench.after(100);
            bench.packet(0, seq);
            seq += 1;
            bench.input(Input::Deadline);
            if matches!(bench.out.front(), Some(Output::Playing { .. })) {
                bench.next();
            }
            if !bench.out.is_empty() {
                break bench.asked(if beat < 3 {
                    Method::GetParameter
                } else {
                    Method::Options
                });
            }
        };
        let elapsed = bench.now.since(answered).as_millis();
        assert!(
            (beat * 10_000..beat * 10_000 + 200).contains(&elapsed),
            "{elapsed}"
        );
        assert_eq!(request.uri, "rtsp://10.0.0.1:8554/clip/");
        assert_eq!(request.headers.get("Session"), Some("abc"));
        // After a refusal, OPTIONS is sent at once.
        bench.answer(&request, if beat == 2 { 501 } else { 200 }, &[], "");
        if beat == 2 {
            assert!(matches!(bench.next(), Output::Note(_)));
            let options = bench.asked(Method::Options);
            bench.answer(&options, 200, &[], "");
        }
    }
}

#[test]
fn unanswered_keep_alive_is_only_noted() {
    let mut bench = ClientBench::udp();
    Arc::make_mut(&mut bench.client.config).receiver_reports = false;
    bench.play_udp(ONE, 1);
    let mut notes = 0;
    for seq in 0..250 {
        bench.after(100);
        bench.packet(0, seq);
        bench.input(Input::Deadline);
        while let Some(output) = bench.out.pop_front() {
            match output {
                Output::Note(note) => {
                    assert_eq!(note.kind, "keep_alive_unanswered");
                    notes += 1;
                }
                Output::Send { .. } | Output::Playing { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(notes, 1);
}

#[test]
fn credentials_are_sent_after_a_challenge() {
    let mut bench = ClientBench::new(
        ClientConfig::default(),
        "rtsp://me:secret@10.0.0.1:8554/clip",
    );
    bench.connect();
    let options = bench.asked(Method::Options);
    assert_eq!(options.uri, URL);
    assert_eq!(options.headers.get("Authorization"), None);
    bench.answer(&options, 200, &[], "");
    let describe = bench.asked(Method::Describe);
    let challenge = [("WWW-Authenticate", "Digest realm=\"r\", nonce=\"n\"")];
    bench.answer(&describe, 401, &challenge, "");
    let describe = bench.asked(Method::Describe);
    assert_eq!(cseq(&describe.headers), Some(3));
    assert!(
        describe
            .headers
            .get("Authorization")
            .is_some_and(|a| a.contains("username=\"me\""))
    );
    // The nonce was stale: the client tries once more.
    let challenge = [(
        "WWW-Authenticate",
        "Digest realm=\"r\", nonce=\"n2\", stale=true",
    )];
    bench.answer(&describe, 401, &challenge, "");
    let describe = bench.asked(Method::Describe);
    assert!(
        describe
            .headers
            .get("Authorization")
            .is_some_and(|a| a.contains("\"n2\""))
    );
    bench.answer(&describe, 200, &[], ONE);
    bench.open_pair(5000);
    let setup = bench.asked(Method::Setup);
    assert_eq!(setup.uri, "rtsp://10.0.0.1:8554/clip/track1");
    assert!(setup.headers.get("Authorization").is_some());
    assert_eq!(bench.count(m::REFUSALS), 2);
}

#[test]
fn additional_fields_are_in_each_request() {
    let config = ClientConfig {
        headers: serde_json::from_str(r#"{"Require":"a.b","Authorization":"Bearer x"}"#)
            .expect("fields"),
        follow: RedirectPolicy::Any,
        ..ClientConfig::default()
    };
    let mut bench = ClientBench::new(config, "rtsp://me:secret@10.0.0.1:8554/clip");
    bench.connect();
    let fields = |request: &Request| {
        let get = |name| request.headers.get(name).map(str::to_owned);
        (get("Require"), get("Authorization"))
    };
    let own = (Some("a.b".to_owned()), Some("Bearer x".to_owned()));
    let options = bench.asked(Method::Options);
    assert_eq!(fields(&options), own);
    bench.answer(&options, 200, &[], "");
    let describe = bench.asked(Method::Describe);
    assert_eq!(fields(&describe), own);
    // Another server does not get the credentials.
    bench.answer(&describe, 302, &[("Location", "rtsp://10.0.0.7/b")], "");
    bench.next();
    bench.accept("10.0.0.7", 554);
    let options = bench.asked(Method::Options);
    assert_eq!(fields(&options), (Some("a.b".to_owned()), None));
}

#[test]
fn refused_authorization_field_is_not_repeated() {
    let config = ClientConfig {
        headers: serde_json::from_str(r#"{"authorization":"Bearer x"}"#).expect("fields"),
        ..ClientConfig::default()
    };
    let mut bench = ClientBench::new(config, "rtsp://me:secret@10.0.0.1:8554/clip");
    bench.connect();
    bench.options();
    let describe = bench.asked(Method::Describe);
    let challenge = [("WWW-Authenticate", "Basic realm=\"r\"")];
    bench.answer(&describe, 401, &challenge, "");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "status_401");
    assert!(detail.contains("`Authorization` of `headers`"), "{detail}");
}

#[test]
fn redirect_to_another_host_is_followed_if_allowed() {
    let config = ClientConfig {
        follow: RedirectPolicy::Any,
        ..ClientConfig::default()
    };
    let mut bench = ClientBench::new(config, URL);
    bench.connect();
    bench.options();
    let describe = bench.asked(Method::Describe);
    bench.answer(&describe, 302, &[("Location", "rtsp://10.0.0.7/other")], "");
    let first = bench.tcp;
    assert!(matches!(bench.next(), Output::Close { channel } if channel == first));
    bench.accept("10.0.0.7", 554);
    assert_ne!(bench.tcp, first);
    assert_eq!(bench.asked(Method::Options).uri, "rtsp://10.0.0.7/other");
    assert_eq!(
        bench
            .recorder
            .histogram(clients::CONNECT_DELAY)
            .expect("one")
            .count(),
        1
    );
}

#[test]
fn a_redirect_to_another_port_of_the_same_host_is_followed() {
    for to in ["rtsp://10.0.0.1/other", "rtsp://10.0.0.1:99/other"] {
        let mut bench = ClientBench::udp();
        bench.connect();
        let options = bench.asked(Method::Options);
        bench.answer(&options, 302, &[("Location", to)], "");
        assert!(matches!(bench.next(), Output::Close { .. }));
        bench.accept("10.0.0.1", if to.contains(":99") { 99 } else { 554 });
        assert_eq!(bench.asked(Method::Options).uri, to);
    }
    // The address of a host that the URL names.
    let mut bench = ClientBench::new(ClientConfig::default(), "rtsp://cam.example:8554/clip");
    let due = bench.now;
    bench.input(Input::Start { due });
    bench.accept("cam.example", 8554);
    let options = bench.asked(Method::Options);
    let to = [("Location", "rtsp://10.0.0.1:8555/")];
    bench.answer(&options, 302, &to, "");
    bench.next();
    bench.accept("10.0.0.1", 8555);
}

#[test]
fn requests_of_the_server_are_answered() {
    let mut bench = ClientBench::udp();
    bench.play_udp(ONE, 1);
    for (request, status) in [
        ("OPTIONS * RTSP/1.0\r\nCSeq: 77\r\n\r\n", 200),
        (
            "ANNOUNCE rtsp://a RTSP/1.0\r\nCSeq: 77\r\nContent-Length: 3\r\n\r\nv=0",
            200,
        ),
        ("FLY rtsp://a RTSP/1.0\r\nCSeq: 77\r\n\r\n", 501),
    ] {
        bench.bytes(request.as_bytes());
        let Output::Send { bytes, .. } = bench.next() else {
            panic!("an answer is sent");
        };
        let mut answers = Vec::new();
        Decoder::new()
            .feed(&bytes, |item| {
                if let Item::Response(response) = item {
                    answers.push((response.status, cseq(&response.headers)));
                }
            })
            .expect("a message");
        assert_eq!(answers, [(status, Some(77))]);
    }
}

#[test]
fn unnumbered_answers_are_matched_if_unambiguous() {
    let mut bench = ClientBench::udp();
    bench.connect();
    bench.asked(Method::Options);
    // A provisional answer, then one without a number.
    bench.bytes(b"RTSP/1.0 100 Continue\r\nCSeq: 1\r\n\r\n");
    assert!(bench.out.is_empty());
    bench.bytes(b"RTSP/1.0 200 OK\r\n\r\n");
    bench.asked(Method::Describe);
    // A late second answer to OPTIONS is ignored.
    bench.bytes(b"RTSP/1.0 404 Gone\r\nCSeq: 1\r\n\r\n");
    assert!(bench.out.is_empty());
    // A number that was never used.
    bench.bytes(b"RTSP/1.0 404 Gone\r\nCSeq: 99\r\n\r\n");
    assert_eq!(bench.failed().0, "status_404");
}

#[test]
fn options_may_be_refused() {
    for status in [400, 404, 405, 454, 501] {
        let mut bench = ClientBench::udp();
        bench.connect();
        let options = bench.asked(Method::Options);
        bench.answer(&options, status, &[], "");
        bench.asked(Method::Describe);
    }
}

#[test]
fn holes_are_punched_if_configured() {
    let mut bench = ClientBench::udp();
    Arc::make_mut(&mut bench.client.config).punch_holes = true;
    bench.connect();
    bench.options();
    bench.describe(ONE);
    bench.open_pair(5000);
    let setup = bench.asked(Method::Setup);
    let transport = "RTP/AVP;unicast;server_port=6000-6001";
    bench.answer(
        &setup,
        200,
        &[("Session", "a"), ("Transport", transport)],
        "",
    );
    assert!(matches!(bench.next(), Output::Peer { .. }));
    for expected in [Port::Media, Port::Control] {
        assert!(matches!(bench.next(), Output::Send { port, .. } if port == expected));
    }
    bench.asked(Method::Play);
}

#[test]
fn rtp_info_with_unknown_urls_is_matched_by_order() {
    let mut bench = ClientBench::udp();
    let play = bench.set_up_udp(TWO, 2);
    let info = "url=rtsp://192.168.1.2/x/1;seq=5, url=rtsp://192.168.1.2/x/2;seq=6";
    bench.answer(&play, 200, &[("RTP-Info", info)], "");
    bench.packet(0, 6);
    bench.packet(1, 8);
    let until = bench.now;
    bench.input(Input::Stop { until });
    let (before, _) = bench.ended();
    let Some(Output::Streams(streams)) = before.last() else {
        panic!("{before:?}");
    };
    let streams = summaries(streams);
    assert_eq!(
        (streams[0].counts.expected, streams[1].counts.expected),
        (2, 3)
    );
}
