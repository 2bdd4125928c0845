//! Tests of the client with a scripted server.

use std::collections::VecDeque;

use measure::units::TimeSpan;
use measure::{CounterId, Recorder};
use proptest::prelude::*;

use super::*;
use crate::PROTOCOL;
use kit::media::rtp::summaries;
use kit::mediagen::ts::packet::{PACKET_LEN, SYNC};
use kit::mediagen::ts::stamp::Stamp;
use kit::redirect_policy::RedirectPolicy;
use session::{ChannelError, Flow, Flows, Judgement};

mod media;
mod zap;

const URL: &str = "http://me:secret@10.0.0.1:8080/rtp/239.81.0.1:4056";

/// A client with its surroundings and its outputs.
struct Bench {
    client: Client,
    now: Time,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    out: VecDeque<Output>,
    channel: ChannelId,
}

impl Bench {
    fn new(config: ClientConfig, url: &str) -> Bench {
        let client = Client::new(config, url).expect("a URL");
        Bench {
            client: client.with_wall_clock(Duration::from_secs(1_700_000_000)),
            now: Time::from_start(Duration::from_secs(1)),
            recorder: Recorder::new(PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
            out: VecDeque::new(),
            channel: ChannelId(u32::MAX),
        }
    }

    /// A client that has sent its request, 15 ms after it was due.
    fn asked() -> Bench {
        let mut bench = Bench::new(ClientConfig::default(), URL);
        bench.start();
        bench.accept();
        bench
    }

    /// A client that has received a response head, 10 ms later.
    fn answered(headers: &str) -> Bench {
        let mut bench = Bench::asked();
        bench.after(10);
        bench.bytes(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes());
        bench
    }

    fn input(&mut self, input: Input<'_>) {
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut self.out,
            outbox: &mut session::Outbox::default(),
        };
        self.client.handle(&mut cx, input);
    }

    fn after(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn deadline(&mut self) {
        let deadline = self.client.deadline().expect("it waits for something");
        assert!(deadline > self.now);
        self.now = deadline;
        self.input(Input::Deadline);
    }

    fn start(&mut self) {
        let due = self.now;
        self.after(5);
        self.input(Input::Start { due });
    }

    /// Opens the requested connection, 10 ms later. Returns the request that is then sent.
    fn accept(&mut self) -> String {
        let Some(Output::Open {
            channel,
            open: Open::Tcp { .. },
        }) = self.out.pop_front()
        else {
            panic!("a connection is wanted");
        };
        assert_ne!(channel, self.channel);
        self.channel = channel;
        self.after(10);
        self.input(Input::Opened {
            channel,
            local: "10.0.0.2:40000".parse().expect("an address"),
            remote: None,
        });
        let Some(Output::Send {
            bytes, channel: to, ..
        }) = self.out.pop_front()
        else {
            panic!("a request is wanted");
        };
        assert_eq!(to, channel);
        String::from_utf8(bytes).expect("text")
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (channel, at) = (self.channel, self.now);
        self.input(Input::Bytes {
            channel,
            bytes,
            at,
            runs: &[],
        });
    }

    fn closed(&mut self) {
        let channel = self.channel;
        self.input(Input::Closed {
            channel,
            reason: CloseReason::End,
        });
    }

    fn stop(&mut self) {
        self.input(Input::Stop { until: self.now });
    }

    fn ended(&mut self) -> (Vec<Output>, Outcome) {
        let mut before: Vec<Output> = self.out.drain(..).collect();
        let Some(Output::Ended(outcome)) = before.pop() else {
            panic!("it is not over: {before:?}");
        };
        assert_eq!(self.client.deadline(), None);
        (before, outcome)
    }

    fn failed(&mut self) -> (&'static str, String) {
        match self.ended().1 {
            Outcome::Failed(failure) => (failure.reason, failure.detail),
            other => panic!("{other:?} is no failure"),
        }
    }

    /// Returns the reason of an end by the server.
    fn ended_by_server(&mut self) -> &'static str {
        match self.ended().1 {
            Outcome::EndedByServer {
                at,
                in_order,
                failure,
            } => {
                assert_eq!(at, self.now);
                assert_eq!(in_order, failure.reason == "ended_by_server");
                failure.reason
            }
            other => panic!("{other:?} is no end by the server"),
        }
    }

    fn count(&self, counter: CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    /// The only value of a distribution, in milliseconds.
    fn delay(&self, histogram: measure::HistogramId) -> u64 {
        let histogram = self.recorder.histogram(histogram).expect("recorded");
        assert_eq!(histogram.count(), 1);
        histogram.max().expect("recorded") / 1_000_000
    }
}

fn packets(count: u8) -> Vec<u8> {
    let packet = |n: u8| {
        let mut packet = [0; PACKET_LEN];
        packet[..4].copy_from_slice(&[SYNC, 1, 0, 0x10 | (n % 16)]);
        packet
    };
    (0..count).flat_map(packet).collect()
}

#[test]
fn request_has_target_headers_and_credentials() {
    let config = ClientConfig {
        headers: serde_json::from_str(r#"{"X-Set-Top-Box":"7"}"#).expect("fields"),
        ..ClientConfig::default()
    };
    let mut bench = Bench::new(config, URL);
    bench.start();
    let request = bench.accept();
    assert!(
        request.starts_with("GET /rtp/239.81.0.1:4056 HTTP/1.1\r\nHost: 10.0.0.1:8080\r\n"),
        "{request}"
    );
    for line in [
        concat!("User-Agent: streamgauge/", env!("CARGO_PKG_VERSION")),
        "Accept-Encoding: identity",
        "Connection: close",
        "X-Set-Top-Box: 7",
        "Authorization: Basic bWU6c2VjcmV0",
    ] {
        assert!(
            request.contains(&format!("\r\n{line}\r\n")),
            "{line} in {request}"
        );
    }
    assert_eq!(
        (
            bench.count(m::REQUESTS),
            bench.delay(clients::CONNECT_DELAY)
        ),
        (1, 10)
    );
}

#[test]
fn delays_are_measured_from_the_planned_start() {
    let mut bench = Bench::answered("");
    bench.after(20);
    bench.bytes(&packets(10));
    assert!(matches!(bench.out[0], Output::Playing { at } if at == bench.now));
    assert_eq!(bench.delay(m::RESPONSE_DELAY), 10);
    assert_eq!(bench.delay(m::FIRST_BYTE_DELAY), 45);
    assert_eq!(bench.delay(clients::STARTUP_DELAY), 45);
    assert_eq!(bench.delay(clients::STARTUP_DELAY_FROM_SENT), 40);
    assert_eq!(bench.count(ts::TS_PACKETS), 10);
    bench.after(1000);
    bench.stop();
    let (before, outcome) = bench.ended();
    assert_eq!(outcome, Outcome::Stopped);
    let [
        Output::Playing { .. },
        Output::Close { .. },
        Output::Viewed(_),
        Output::Streams(streams),
    ] = &before[..]
    else {
        panic!("{before:?}");
    };
    let streams = summaries(streams);
    assert_eq!(streams[0].url, "http://10.0.0.1:8080/rtp/239.81.0.1:4056");
    assert_eq!(streams[0].counts.payload_bytes, 10 * 188);
    assert_eq!(streams[0].counts.wire_bytes, 19 + 10 * 188);
}

#[test]
fn viewer_is_judged_by_start_and_continuity() {
    let judge = |wait: u64, missing: u8, expected| {
        let mut bench = Bench::answered("");
        bench.after(wait);
        let all = packets(200);
        bench.bytes(&all[..100 * PACKET_LEN]);
        bench.bytes(&all[(100 + usize::from(missing)) * PACKET_LEN..]);
        bench.after(100);
        bench.stop();
        let (before, _) = bench.ended();
        let service = before.iter().find_map(|output| match output {
            Output::Viewed(service) => Some(service.judgement(false)),
            _ => None,
        });
        assert_eq!(service, Some(Some(expected)), "{wait} {missing}");
    };
    judge(100, 0, Judgement::Well);
    // 2 of 200 packets are 1 %.
    judge(100, 2, Judgement::Well);
    judge(100, 3, Judgement::Loss);
    judge(2500, 3, Judgement::StartedLate);
}

#[test]
fn datagrams_of_another_group_are_foreign() {
    let mut bench = Bench::answered("Transfer-Encoding: chunked\r\n");
    let mut number = 0;
    let mut datagram = |group: &str| {
        number += 1;
        let stamp = Stamp {
            packets: 1,
            group: group.parse().expect("an address"),
            source: 1,
            number,
            due: 1_700_000_001_000_000_000,
            check: 0,
        };
        stamp.write()
    };
    for group in [
        "239.81.0.1:4056",
        "239.81.0.2:4056",
        "239.81.0.1:4056",
        "239.81.0.1:4056",
    ] {
        let chunk = datagram(group);
        bench.bytes(&[&b"bc\r\n"[..], &chunk, b"\r\n"].concat());
    }
    let count = |counter| bench.count(counter);
    assert_eq!(
        (count(ts::EXPECTED), count(ts::RECEIVED), count(ts::FOREIGN)),
        (4, 3, 1)
    );
    assert_eq!(count(m::CHUNKED), 1);
    let delays = bench
        .recorder
        .histogram(ts::DATAGRAM_DELAY)
        .expect("recorded");
    assert_eq!(
        (delays.count(), delays.max().map(|nanos| nanos / 100_000)),
        (3, Some(250))
    );
}

#[test]
fn every_orderly_end_is_an_end_by_the_server() {
    let mut bench = Bench::answered("Content-Length: 1880\r\n");
    bench.bytes(&packets(10));
    assert_eq!(bench.ended_by_server(), "ended_by_server");
    let mut bench = Bench::answered("Transfer-Encoding: chunked\r\n");
    bench.bytes(&[b"758\r\n", &packets(10)[..], b"\r\n0\r\n\r\n"].concat());
    assert_eq!(bench.ended_by_server(), "ended_by_server");
    let mut bench = Bench::answered("Content-Length: 1881\r\n");
    bench.bytes(&packets(10));
    bench.closed();
    assert_eq!(bench.failed().0, "cut_off");
    let mut bench = Bench::answered("");
    bench.bytes(&packets(10));
    bench.closed();
    assert_eq!(bench.ended_by_server(), "closed_in_media");
}

#[test]
fn redirects_are_followed_and_loops_detected() {
    let config = ClientConfig {
        follow: RedirectPolicy::Any,
        ..ClientConfig::default()
    };
    let mut bench = Bench::new(config, URL);
    bench.start();
    bench.accept();
    let sent_on = |bench: &mut Bench, to: &str| {
        bench.bytes(
            format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 3\r\n\r\nabc")
                .as_bytes(),
        );
        assert!(
            matches!(bench.out.pop_front(), Some(Output::Close { channel }) if channel == bench.channel)
        );
    };
    sent_on(&mut bench, "/other");
    let request = bench.accept();
    assert!(request.starts_with("GET /other HTTP/1.1\r\n") && request.contains("Authorization"));
    sent_on(&mut bench, "http://10.0.0.9/x");
    let request = bench.accept();
    assert!(
        request.starts_with("GET /x HTTP/1.1\r\nHost: 10.0.0.9\r\n")
            && !request.contains("Authorization")
    );
    bench.bytes(b"HTTP/1.1 301 Moved\r\nLocation: http://10.0.0.1:8080/other\r\n\r\n");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "redirect_loop");
    assert!(
        detail.contains("/x to http://10.0.0.1:8080/other") && !detail.contains("secret"),
        "{detail}"
    );
    assert_eq!(
        (
            bench.count(m::REDIRECTS),
            bench.count(m::REFUSALS),
            bench.count(m::REQUESTS)
        ),
        (3, 3, 3)
    );

    let mut bench = Bench::asked();
    for hop in 0..5 {
        sent_on(&mut bench, &format!("/{hop}"));
        bench.accept();
    }
    bench.bytes(b"HTTP/1.1 302 Found\r\nLocation: /6\r\n\r\n");
    assert_eq!(bench.failed().0, "too_many_redirects");
    for head in ["302 Found\r\n", "302 Found\r\nLocation: rtsp://h/\r\n"] {
        let mut bench = Bench::asked();
        bench.bytes(format!("HTTP/1.1 {head}\r\n").as_bytes());
        assert_eq!(bench.failed().0, "bad_redirect");
    }
}

#[test]
fn cookies_are_sent_back_along_redirects() {
    let sent_on = |bench: &mut Bench, fields: &str| {
        bench.bytes(format!("HTTP/1.1 302 Found\r\n{fields}\r\n").as_bytes());
    };
    // A redirect to the same URL: with the cookie it is another request.
    let mut bench = Bench::asked();
    sent_on(
        &mut bench,
        "Location: /rtp/239.81.0.1:4056\r\nSet-Cookie: s=1; Path=/\r\nSet-Cookie: t=hidden\r\n",
    );
    assert!(matches!(bench.out.pop_front(), Some(Output::Close { .. })));
    let request = bench.accept();
    assert!(
        request.contains("\r\nCookie: s=1; t=hidden\r\n"),
        "{request}"
    );
    sent_on(
        &mut bench,
        "Location: /rtp/239.81.0.1:4056\r\nSet-Cookie: s=1; Path=/\r\n",
    );
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "redirect_loop");
    assert!(detail.contains("set a cookie (`s`, `t`)"), "{detail}");
    assert!(!detail.contains("hidden"), "{detail}");

    // A new cookie each time does not make the chain endless.
    let mut bench = Bench::asked();
    for hop in 0..5 {
        sent_on(
            &mut bench,
            &format!("Location: /x\r\nSet-Cookie: s={hop}; Path=/\r\n"),
        );
        bench.out.pop_front();
        let request = bench.accept();
        assert!(
            request.contains(&format!("Cookie: s={hop}\r\n")),
            "{request}"
        );
    }
    sent_on(&mut bench, "Location: /x\r\nSet-Cookie: s=5; Path=/\r\n");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "too_many_redirects");
    assert!(detail.contains("cookie"), "{detail}");

    // A `Cookie` of the user has precedence, so the redirect is a loop.
    let config = ClientConfig {
        headers: serde_json::from_str(r#"{"cookie":"own=1"}"#).expect("fields"),
        ..ClientConfig::default()
    };
    let mut bench = Bench::new(config, "http://10.0.0.1/x");
    bench.start();
    let request = bench.accept();
    assert!(request.contains("cookie: own=1\r\n"), "{request}");
    sent_on(&mut bench, "Location: /x\r\nSet-Cookie: s=1\r\n");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "redirect_loop");
    assert!(detail.contains("`headers` give `Cookie`"), "{detail}");
}

#[test]
fn redirects_to_other_hosts_need_permission() {
    let asked = |follow| {
        let config = ClientConfig {
            follow,
            ..ClientConfig::default()
        };
        let mut bench = Bench::new(config, URL);
        bench.start();
        bench.accept();
        bench
    };
    let sent_to = |bench: &mut Bench, to: &str| {
        bench.bytes(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n\r\n").as_bytes());
    };
    for (follow, to, host) in [
        (RedirectPolicy::SameHost, "http://10.0.0.9/x", "10.0.0.9"),
        (
            RedirectPolicy::SameHost,
            "//victim.example/x",
            "victim.example",
        ),
        (RedirectPolicy::SameHost, "https://[::1]/x", "::1"),
        (RedirectPolicy::None, "/x", "10.0.0.1"),
    ] {
        let mut bench = asked(follow);
        sent_to(&mut bench, to);
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "redirect_refused");
        assert!(detail.contains(host) && detail.contains("302"), "{detail}");
        assert_eq!(bench.count(m::REQUESTS), 1);
    }
    let mut bench = asked(RedirectPolicy::SameHost);
    sent_to(&mut bench, "http://10.0.0.1:9999/x");
    bench.out.pop_front();
    let request = bench.accept();
    assert!(request.contains("Host: 10.0.0.1:9999"), "{request}");
    // The previous redirect does not change which host is allowed.
    sent_to(&mut bench, "http://10.0.0.9/x");
    assert_eq!(bench.failed().0, "redirect_refused");
}

#[test]
fn redirects_take_no_configured_credentials_to_another_port() {
    let config = ClientConfig {
        headers: serde_json::from_str(r#"{"X-A":"b","Cookie":"c=d"}"#).expect("fields"),
        ..ClientConfig::default()
    };
    for (to, keeps) in [
        ("http://10.0.0.1:8080/b", true),
        ("http://10.0.0.1:81/b", false),
    ] {
        let mut bench = Bench::new(config.clone(), URL);
        bench.start();
        assert!(bench.accept().contains("\r\nCookie: c=d\r\n"));
        bench.bytes(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n\r\n").as_bytes());
        bench.out.pop_front();
        let request = bench.accept();
        assert_eq!(request.contains("\r\nCookie: c=d\r\n"), keeps, "{request}");
        assert!(request.contains("\r\nX-A: b\r\n"), "{request}");
    }
}

#[test]
fn body_in_tiny_chunks_fails_the_client() {
    let mut bench = Bench::answered("Transfer-Encoding: chunked\r\n");
    let packet = [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; 184]].concat();
    bench.bytes(&[b"3ac\r\n", &packet.repeat(5)[..], b"\r\n"].concat());
    bench.out.clear();
    bench.bytes(&b"1\r\nG\r\n".repeat(20_000));
    assert_eq!(bench.failed().0, "flooded");
}

#[test]
fn bodies_other_than_transport_streams_are_identified() {
    let page = "<!DOCTYPE html><html><body>No such channel</body></html>";
    let mut bench = Bench::answered("Content-Type: text/html\r\n");
    bench.bytes(page.as_bytes());
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "not_ts");
    assert!(
        detail.contains("is HTML (Content-Type: text/html) and begins with `<!DOCTYPE"),
        "{detail}"
    );
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &[7; 100]].concat();
    let mut bench = Bench::answered("");
    bench.bytes(&gzip);
    assert!(bench.failed().1.contains("is gzip"));
    let mut bench = Bench::answered("Content-Encoding: gzip\r\n");
    assert_eq!(bench.failed().0, "not_ts");
    // A body of unknown format is read for a while, but not past its end.
    let mut bench = Bench::answered("Content-Length: 100\r\n");
    bench.bytes(&[b'x'; 100]);
    assert_eq!(bench.failed().0, "not_ts");
    let mut bench = Bench::answered("");
    for _ in 0..UNSYNCED_BYTES_MAX / 1000 {
        bench.bytes(&[b'x'; 1000]);
    }
    assert!(bench.out.is_empty());
    bench.bytes(&[b'x'; 1000]);
    assert_eq!(bench.failed().0, "not_ts");
    for head in ["204 No Content\r\n", "200 OK\r\nContent-Length: 0\r\n"] {
        let mut bench = Bench::asked();
        bench.bytes(format!("HTTP/1.1 {head}\r\n").as_bytes());
        assert_eq!(bench.failed().0, "empty_body");
    }
}

#[test]
fn refused_path_of_webrtc_names_the_scheme_to_try() {
    for (url, advice) in [
        ("http://10.0.0.1/a/whep", "try `whep+http://`"),
        ("http://10.0.0.1/a/whip/?x=y", "try `whip+http://`"),
        ("http://10.0.0.1/whep/a", "try `whep+http://`"),
        ("http://10.0.0.1/wheper", ""),
    ] {
        let mut bench = Bench::new(ClientConfig::default(), url);
        bench.start();
        bench.accept();
        bench.bytes(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n");
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "status_4xx");
        assert!(detail.contains(advice), "{detail}");
        assert_eq!(detail.contains("try"), !advice.is_empty(), "{detail}");
    }
}

#[test]
fn refusals_and_malformed_responses_have_their_reasons() {
    for (answer, expected) in [
        ("HTTP/1.1 503 Busy\r\n\r\n", "status_503"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "status_404"),
        ("HTTP/1.1 418 Teapot\r\n\r\n", "status_4xx"),
        ("HTTP/1.1 599 No\r\n\r\n", "status_5xx"),
        ("HTTP/1.1 304 Same\r\n\r\n", "status_other"),
        ("RTSP/1.0 200 OK\r\n\r\n", "not_http"),
        ("HTTP/1.1 OK\r\n\r\n", "malformed_response"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "bad_chunk",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
            "bad_chunk",
        ),
    ] {
        let mut bench = Bench::asked();
        bench.bytes(answer.as_bytes());
        assert_eq!(bench.failed().0, expected, "{answer}");
    }
    let mut bench = Bench::asked();
    bench.bytes(b"HTTP/1.1 200 OK\r\n");
    for _ in 0..1000 {
        bench.bytes(b"X-Endless: and so it goes on and on\r\n");
    }
    assert_eq!(bench.failed().0, "header_too_long");
    let mut bench = Bench::asked();
    bench.closed();
    assert_eq!(bench.failed().0, "closed_in_response");
    let mut bench = Bench::new(ClientConfig::default(), URL);
    bench.start();
    bench.input(Input::OpenFailed {
        channel: ChannelId(0),
        error: ChannelError::Refused,
    });
    assert_eq!(bench.failed().0, "refused");
}

#[test]
fn silence_is_detected_in_every_phase() {
    let mut bench = Bench::asked();
    bench.deadline();
    assert_eq!(bench.failed().0, "timeout_response");
    let mut bench = Bench::answered("");
    bench.deadline();
    assert_eq!(bench.failed().0, "no_media");
    let config = ClientConfig {
        silence: TimeSpan(Duration::from_secs(3)),
        ..ClientConfig::default()
    };
    let mut bench = Bench::new(config, URL);
    bench.start();
    bench.accept();
    bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
    for _ in 0..4 {
        bench.after(900);
        bench.bytes(&packets(16));
    }
    // The check was scheduled long before. Silence counts from the last packet, and bytes that are
    // no packets do not interrupt it.
    bench.out.clear();
    bench.after(2900);
    bench.bytes(&[0; 500]);
    assert!(bench.out.is_empty());
    bench.deadline();
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "media_stopped");
    assert!(
        detail.starts_with("no packet for 3s, after 2.700 s of media"),
        "{detail}"
    );
}

#[test]
fn client_stopped_after_waiting_too_long_has_failed() {
    for (mut bench, reason) in [
        (Bench::asked(), "timeout_response"),
        (Bench::answered(""), "no_media"),
    ] {
        bench.after(1500);
        bench.stop();
        assert_eq!(bench.failed().0, reason);
    }
    let mut bench = Bench::asked();
    bench.after(500);
    bench.stop();
    assert_eq!(bench.ended().1, Outcome::Stopped);
}

#[test]
fn client_stopped_after_media_stopped_has_failed() {
    for ((step, count), silent, fails) in [
        ((100, 10), 7000, true),
        ((100, 10), 1900, false),
        // A slow stream has long gaps, but has not stopped.
        ((3000, 3), 6000, false),
        // A single burst does not show how often packets arrive.
        ((1, 0), 4000, false),
        ((1, 0), 6000, true),
    ] {
        let mut bench = Bench::answered("");
        bench.bytes(&packets(16));
        for _ in 0..count {
            bench.after(step);
            bench.bytes(&packets(16));
        }
        bench.after(silent);
        bench.stop();
        if !fails {
            assert_eq!(bench.ended().1, Outcome::Stopped, "{step} {silent}");
            continue;
        }
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "media_stopped");
        let text = format!(
            "no packet for {}.000 s until the client was stopped (10.0.0.2:40000 to 10.0.0.1:8080)",
            silent / 1000
        );
        assert_eq!(detail, text);
        assert_eq!(bench.delay(ts::LONGEST_GAP), silent);
    }
}

proptest! {
    #[test]
    fn fragmentation_does_not_change_the_outcome(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                b"HTTP/1.1 200 OK\r\n".to_vec(), b"Transfer-Encoding: chunked\r\n".to_vec(), b"\r\n".to_vec(),
                b"HTTP/1.0 302 Found\r\nLocation: /a\r\n\r\n".to_vec(), b"178\r\n".to_vec(), packets(2), packets(7), b"<html>".to_vec(), vec![0; 90],
            ]),
            0..12,
        ),
        cuts in prop::collection::vec(1usize..300, 1..20),
    ) {
        let bytes = parts.concat();
        let play = |pieces: &mut dyn Iterator<Item = usize>| {
            let mut bench = Bench::asked();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(pieces.next().expect("endless").min(rest.len()));
                bench.bytes(piece);
                rest = after;
            }
            bench.after(100);
            bench.closed();
            bench.stop();
            let kinds: Vec<_> = bench.out.iter().map(std::mem::discriminant).collect();
            let end = match bench.out.back() {
                Some(Output::Ended(Outcome::Failed(failure))) => failure.reason,
                Some(Output::Ended(_)) => "",
                other => panic!("{other:?} is no end"),
            };
            (kinds, end, bench.count(ts::TS_PACKETS))
        };
        let whole = play(&mut std::iter::repeat(usize::MAX));
        prop_assert_eq!(play(&mut cuts.into_iter().cycle()), whole);
    }
}

#[test]
fn client_is_small() {
    // With a checker, which has its own test.
    assert!(size_of::<Client>() < 1024, "{}", size_of::<Client>());
}
