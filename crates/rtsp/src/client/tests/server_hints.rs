//! Unusual servers: unanswered or refused keep-alives, new nonces, an early session, media
//! directions, redirects, and ends by the server.

use super::*;
use crate::codec::cseq;

/// Returns a client over TCP that plays a live stream, in a session with a timeout of 6 s.
fn playing(url: &str) -> ClientBench {
    let config = ClientConfig {
        transport: Transport::Tcp,
        receiver_reports: false,
        ..ClientConfig::default()
    };
    let mut bench = ClientBench::new(config, url);
    bench.connect();
    bench.options();
    bench.describe(ONE);
    let setup = bench.asked(Method::Setup);
    let transport = "RTP/AVP/TCP;interleaved=0-1";
    let headers = [("Session", "abc;timeout=6"), ("Transport", transport)];
    bench.answer(&setup, 200, &headers, "");
    let play = bench.asked(Method::Play);
    bench.answer(&play, 200, &[], "");
    bench
}

/// Plays for `steps` of 100 ms. Returns the requests and the notes.
fn play_on(
    bench: &mut ClientBench,
    seq: &mut u16,
    steps: u16,
) -> (Vec<Request>, Vec<&'static str>) {
    let (mut asked, mut notes) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        bench.after(100);
        bench.packet(0, *seq);
        *seq += 1;
        bench.input(Input::Deadline);
        while let Some(output) = bench.out.pop_front() {
            match output {
                Output::Send { bytes, .. } => {
                    let mut decoder = Decoder::new();
                    let read = decoder.feed(&bytes, |item| {
                        if let Item::Request(request) = item {
                            asked.push(request);
                        }
                    });
                    read.expect("a message");
                }
                Output::Note(note) => notes.push(note.kind),
                Output::Playing { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    (asked, notes)
}

#[test]
fn the_next_keep_alive_does_not_wait_for_an_answer() {
    let mut bench = playing(URL);
    let (asked, notes) = play_on(&mut bench, &mut 0, 305);
    assert_eq!(asked.len(), 10);
    assert!(asked.iter().all(|own| own.method == Method::GetParameter));
    // Only the first unanswered one is noted.
    assert_eq!(notes, ["keep_alive_unanswered"]);
    // Unanswered keep-alives do not accumulate.
    let (asked, _) = play_on(&mut bench, &mut 400, 3000);
    assert_eq!(asked.len(), 100);
    assert!(bench.client.conversation.pending.len() <= 8);
    let channel = bench.tcp;
    let how = CloseReason::End;
    bench.input(Input::Closed {
        channel,
        reason: how,
    });
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "closed_in_play");
    assert!(detail.contains("GET_PARAMETER"), "{detail}");
}

#[test]
fn a_refused_keep_alive_is_followed_by_options_at_once() {
    // `CSeq` of the refusal: that of the keep-alive, that of the request before, or none.
    for off in [Some(0), Some(1), None] {
        let mut bench = playing(URL);
        let mut seq = 0;
        let (asked, _) = play_on(&mut bench, &mut seq, 31);
        let [alive] = &asked[..] else {
            panic!("{asked:?}");
        };
        assert_eq!(alive.method, Method::GetParameter);
        let cseq = cseq(&alive.headers).expect("a number");
        let cseq = off.map_or(String::new(), |off| format!("CSeq: {}\r\n", cseq - off));
        bench.bytes(format!("RTSP/1.0 400 Bad Request\r\n{cseq}\r\n").as_bytes());
        let (asked, notes) = play_on(&mut bench, &mut seq, 40);
        let methods: Vec<&Method> = asked.iter().map(|own| &own.method).collect();
        assert_eq!(methods, [&Method::Options, &Method::Options], "{off:?}");
        assert_eq!(notes, ["keep_alive_refused"]);
    }
}

#[test]
fn a_refused_keep_alive_is_named_when_the_server_closes() {
    let mut bench = playing("rtsp://10.0.0.1:8554/clip");
    let mut seq = 0;
    let (asked, _) = play_on(&mut bench, &mut seq, 31);
    bench.answer(
        &asked[0],
        401,
        &[("WWW-Authenticate", "Basic realm=\"r\"")],
        "",
    );
    let options = loop {
        if let Output::Send { .. } = bench.out.front().expect("OPTIONS is sent") {
            break bench.asked(Method::Options);
        }
        bench.next();
    };
    bench.answer(
        &options,
        401,
        &[("WWW-Authenticate", "Basic realm=\"r\"")],
        "",
    );
    let channel = bench.tcp;
    let how = CloseReason::End;
    bench.input(Input::Closed {
        channel,
        reason: how,
    });
    let (_, detail) = bench.failed();
    assert!(
        detail.contains("keep-alive OPTIONS was answered 401"),
        "{detail}"
    );
}

#[test]
fn another_nonce_is_a_fresh_challenge_once() {
    let challenge = |nonce: &str| format!("Digest realm=\"r\", nonce=\"{nonce}\"");
    let mut bench = ClientBench::new(ClientConfig::default(), "rtsp://u:p@10.0.0.1:8554/clip");
    bench.connect();
    bench.options();
    for nonce in ["a", "b"] {
        let describe = bench.asked(Method::Describe);
        bench.answer(
            &describe,
            401,
            &[("WWW-Authenticate", &*challenge(nonce))],
            "",
        );
    }
    let describe = bench.asked(Method::Describe);
    let authorization = describe.headers.get("Authorization").expect("one");
    assert!(authorization.contains("nonce=\"b\""), "{authorization}");
    bench.answer(
        &describe,
        401,
        &[("WWW-Authenticate", &*challenge("c"))],
        "",
    );
    assert_eq!(bench.failed().0, "status_401");
}

#[test]
fn early_session_is_sent_back() {
    for named in [None, Some("late;timeout=20")] {
        let mut bench = ClientBench::tcp();
        bench.connect();
        let options = bench.asked(Method::Options);
        bench.answer(&options, 200, &[("Session", "early;timeout=60")], "");
        let describe = bench.asked(Method::Describe);
        assert_eq!(describe.headers.get("Session"), Some("early"));
        bench.answer(&describe, 200, &[], ONE);
        let setup = bench.asked(Method::Setup);
        assert_eq!(setup.headers.get("Session"), Some("early"));
        let headers: Vec<(&str, &str)> = named.map(|id| ("Session", id)).into_iter().collect();
        bench.answer(&setup, 200, &headers, "");
        let play = bench.asked(Method::Play);
        let expected = if named.is_some() { "late" } else { "early" };
        assert_eq!(play.headers.get("Session"), Some(expected));
    }
}

#[test]
fn only_streams_sent_to_the_client_are_set_up() {
    let streams = |directions: &[&str]| {
        let mut bench = ClientBench::tcp();
        bench.connect();
        bench.options();
        let medias = directions.iter().enumerate().map(|(number, direction)| {
            format!("m=audio 0 RTP/AVP 0\r\na={direction}\r\na=control:t{number}\r\n")
        });
        bench.describe(&format!("v=0\r\n{}", medias.collect::<String>()));
        let streams = bench.client.streams.iter();
        streams
            .map(|stream| stream.control.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(streams(&["recvonly", "sendonly", "x-other"]), ["t0", "t2"]);
    assert_eq!(streams(&["inactive", "sendrecv"]), ["t1"]);
    // Servers that state their own direction.
    assert_eq!(streams(&["sendonly", "sendonly"]), ["t0", "t1"]);
    assert_eq!(streams(&["sendonly", "inactive"]), ["t0"]);
    assert!(streams(&["inactive"]).is_empty());
}

#[test]
fn a_redirect_at_setup_or_play_is_followed() {
    for at in [Method::Setup, Method::Play] {
        let mut bench = ClientBench::tcp();
        bench.connect();
        bench.options();
        bench.describe(ONE);
        let mut request = bench.asked(Method::Setup);
        if at == Method::Play {
            bench.answer(&request, 200, &[("Session", "abc")], "");
            request = bench.asked(Method::Play);
        }
        bench.answer(&request, 302, &[("Location", "rtsp://10.0.0.1:8555/e")], "");
        assert!(matches!(bench.next(), Output::Close { .. }));
        bench.accept("10.0.0.1", 8555);
        let options = bench.asked(Method::Options);
        assert_eq!(options.headers.get("Session"), None);
        bench.answer(&options, 200, &[], "");
        let describe = bench.asked(Method::Describe);
        assert_eq!(describe.uri, "rtsp://10.0.0.1:8555/e");
        bench.answer(&describe, 200, &[], ONE);
        assert_eq!(bench.client.streams.len(), 1);
        let setup = bench.asked(Method::Setup);
        // A redirect to another host is refused, and the detail names it.
        bench.answer(&setup, 302, &[("Location", "rtsp://10.9.9.9/e")], "");
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "redirect_refused");
        assert!(detail.contains("rtsp://10.9.9.9/e"), "{detail}");
    }
}

#[test]
fn end_requested_by_the_server_is_named() {
    for (request, words) in [
        (
            "TEARDOWN rtsp://a/x RTSP/1.0\r\nCSeq: 1\r\n\r\n",
            "TEARDOWN",
        ),
        (
            "REDIRECT rtsp://a/x RTSP/1.0\r\nCSeq: 1\r\nLocation: rtsp://b/\r\n\r\n",
            "REDIRECT to rtsp://b/",
        ),
    ] {
        let mut bench = playing(URL);
        play_on(&mut bench, &mut 0, 20);
        bench.bytes(request.as_bytes());
        let answered = bench.out.iter().any(|output| {
            matches!(output, Output::Send { bytes, .. } if bytes.starts_with(b"RTSP/1.0 200"))
        });
        assert!(answered);
        bench.out.clear();
        let channel = bench.tcp;
        let how = CloseReason::End;
        bench.input(Input::Closed {
            channel,
            reason: how,
        });
        let outcome = bench.ended().1;
        assert!(
            matches!(outcome, Outcome::EndedByServer { .. }),
            "{outcome:?}"
        );
        let failure = outcome.failure().expect("it ended by the server");
        assert_eq!(failure.reason, "ended_by_server");
        assert!(failure.detail.contains(words), "{failure:?}");
    }
}

#[test]
fn answer_that_is_not_rtsp_is_named() {
    let mut bench = ClientBench::tcp();
    bench.connect();
    bench.options();
    bench.asked(Method::Describe);
    bench.bytes(b"\x01\x02\x03\x04\x05\x06\x07\x08");
    bench.after(20_000);
    bench.input(Input::Deadline);
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "timeout_describe");
    assert!(detail.contains("bytes received are not RTSP"), "{detail}");
}
