//! Scripted conversations with a connection of the server.

use std::collections::VecDeque;

use measure::{Recorder, Time};

use super::*;
use ::session::{
    ChannelId, CloseReason, Context, FlowId, Flows, Handover, Input, Outbox, Outcome, Output, Sinks,
};
use kit::faults::FaultSet as _;

struct Conversation {
    session: Box<dyn Session>,
    now: Time,
    recorder: Recorder,
    flows: Flows,
    running: Option<FlowId>,
    sent: Vec<u8>,
    record: Option<ServedConnection>,
    outcome: Option<Outcome>,
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Duration::from_millis(milliseconds)
}

impl Conversation {
    fn new(config: ServerConfig) -> Conversation {
        let server = Server::new(config).expect("it is valid");
        let mut talk = Conversation {
            session: server.session(1),
            now: Time::ZERO,
            recorder: Recorder::new(server.catalogue()),
            flows: Flows::default(),
            running: None,
            sent: Vec::new(),
            record: None,
            outcome: None,
        };
        talk.input(Input::Start { due: Time::ZERO });
        talk
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut Sinks::default(),
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        self.session.handle(&mut cx, input);
        for output in out {
            assert!(self.outcome.is_none(), "{output:?} after the end");
            match output {
                Output::Send { bytes, .. } => {
                    assert!(self.running.is_none(), "a body is not interrupted");
                    self.sent.extend(bytes);
                }
                Output::StartFlow { flow, .. } => self.running = Some(flow),
                Output::StopFlow { .. } => self.running = None,
                Output::Record(record) => {
                    let record = record.downcast::<ServedConnection>();
                    self.record = Some(*record.expect("it is one"));
                }
                Output::Ended(outcome) => self.outcome = Some(outcome),
                Output::Close { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn ask(&mut self, requests: &str) {
        let (bytes, at) = (requests.as_bytes(), self.now);
        self.input(Input::Bytes {
            channel: ChannelId(0),
            bytes,
            at,
            runs: &[],
        });
        self.take_bodies();
    }

    /// Reads the bodies that are being sent, to their end.
    fn take_bodies(&mut self) {
        while let Some(flow) = self.running.take() {
            let (now, sent) = (self.now, &mut self.sent);
            self.flows.access(flow, |own| {
                while let Some(packet) = own.next_packet(now) {
                    sent.extend(packet.payload);
                    own.packet_sent(packet.tag, Some(Handover::at(now)));
                }
            });
            self.input(Input::FlowEnded { flow });
        }
    }

    /// Lets time pass until the server does something by itself.
    fn wait(&mut self) {
        self.now = self.session.deadline().expect("it waits for something");
        self.input(Input::Deadline);
        self.take_bodies();
    }

    /// Statuses of the responses so far, of which the bodies are text or segments.
    fn statuses(&self) -> Vec<u16> {
        let text = String::from_utf8_lossy(&self.sent);
        let heads = text.split("HTTP/1.1 ").skip(1);
        heads
            .map(|head| head[..3].parse().expect("a status"))
            .collect()
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn connection_is_closed_after_a_response_if_the_client_wants_that() {
    for (version, field, closes) in [
        ("1.1", "", false),
        ("1.1", "Connection: close\r\n", true),
        ("1.0", "", true),
        ("1.0", "Connection: Keep-Alive\r\n", false),
    ] {
        // A body that is sent in pieces, and one that is sent with its head.
        for path in ["/a/0/3.ts", "/a/index.m3u8"] {
            let mut talk = Conversation::new(ServerConfig::default());
            talk.ask(&format!("GET {path} HTTP/{version}\r\n{field}\r\n"));
            assert_eq!(talk.statuses(), [200]);
            let expected = closes.then_some(Outcome::Completed);
            assert_eq!(talk.outcome, expected, "{path} {version} {field}");
            if !closes {
                // After a minute without a request.
                talk.wait();
                assert_eq!(talk.now, at(60_000));
            }
            let record = talk.record.expect("it has ended");
            assert_eq!((record.requests, record.unfinished), (1, 0));
            assert_eq!(record.segments, u64::from(path.ends_with(".ts")));
        }
    }
}

#[test]
fn requests_that_arrive_together_are_answered_in_turn() {
    let mut talk = Conversation::new(ServerConfig::default());
    let requests = [
        get("/a/0/3.ts"),
        get("/a/index.m3u8"),
        get("/b"),
        get("/a/0/4.ts"),
    ];
    talk.ask(&requests.concat());
    assert_eq!(talk.statuses(), [200, 200, 404, 200]);
    // A flood of them ends the connection, and so does a head without an end.
    for flood in ["GET / HTTP/1.1\r\n\r\n".repeat(3000), "x".repeat(70_000)] {
        let mut talk = Conversation::new(ServerConfig::default());
        talk.ask(&flood);
        assert!(matches!(talk.outcome, Some(Outcome::Failed(_))));
        assert!(talk.statuses().len() <= 100);
    }
}

#[test]
fn impossible_requests_are_refused() {
    let config = || ServerConfig {
        part: Some(Duration::from_millis(400)),
        ..ServerConfig::default()
    };
    let huge = u64::MAX;
    for (request, status) in [
        (get(&format!("/a/0/{huge}.ts")), 404),
        (get(&format!("/a/0/{huge}.0.ts")), 404),
        (get(&format!("/a/0/{huge}.4294967295.ts")), 404),
        (get("/a/0/10.4294967295.ts"), 404),
        (get(&format!("/a/index.m3u8?_HLS_msn={huge}")), 400),
        (
            get(&format!("/a/index.m3u8?_HLS_msn={huge}&_HLS_part=9")),
            400,
        ),
        (get("/a/index.m3u8?_HLS_msn=13"), 400),
        ("HEAD /a/index.m3u8 HTTP/1.1\r\n\r\n".to_owned(), 405),
        ("POST /a/index.m3u8 HTTP/1.1\r\n\r\n".to_owned(), 405),
        ("nothing\r\n\r\n".to_owned(), 400),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(9000)), 431),
    ] {
        let mut talk = Conversation::new(config());
        talk.ask(&request);
        assert_eq!(talk.statuses(), [status], "{request:.60}");
    }
}

#[test]
fn requests_wait_for_what_comes_but_not_for_ever() {
    let parts = ServerConfig {
        part: Some(Duration::from_millis(400)),
        ..ServerConfig::default()
    };
    // Segments of 2 s with five parts; the first ten are complete.
    for (path, time, status) in [
        ("/a/index.m3u8?_HLS_msn=9", 0, 200),
        ("/a/index.m3u8?_HLS_msn=10", 2000, 200),
        ("/a/index.m3u8?_HLS_msn=10&_HLS_part=0", 400, 200),
        ("/a/index.m3u8?_HLS_msn=10&_HLS_part=4", 2000, 200),
        // A part that the segment does not have is the first of the next one.
        ("/a/index.m3u8?_HLS_msn=10&_HLS_part=5", 2400, 200),
        ("/a/index.m3u8?_HLS_msn=10&_HLS_part=4294967295", 2400, 200),
        ("/a/index.m3u8?_HLS_msn=12", 6000, 200),
        ("/a/0/10.0.ts", 400, 200),
        ("/a/0/10.4.ts", 2000, 200),
        ("/a/0/wrong-10.0.ts", 400, 404),
    ] {
        let mut talk = Conversation::new(parts.clone());
        talk.ask(&get(path));
        if time > 0 {
            assert_eq!(talk.statuses(), [0; 0], "{path}");
            talk.wait();
        }
        assert_eq!(talk.now, at(time), "{path}");
        assert_eq!(talk.statuses(), [status], "{path}");
    }
    // Playlists that stand still for longer than three target durations.
    let mut faults = ServerFaults::default();
    faults.add("stale=20s:15s").expect("it is one");
    let mut talk = Conversation::new(ServerConfig { faults, ..parts });
    talk.now = at(6000);
    talk.ask(&get("/a/index.m3u8?_HLS_msn=13"));
    talk.wait();
    assert_eq!((talk.now, talk.statuses()), (at(12_000), vec![503]));
}

#[test]
fn client_that_leaves_is_recorded() {
    let leave = |talk: &mut Conversation| {
        let (channel, reason) = (ChannelId(0), CloseReason::Reset);
        talk.input(Input::Closed { channel, reason });
        assert_eq!(talk.outcome, Some(Outcome::Completed));
        assert_eq!(talk.session.deadline(), None);
        talk.record.clone().expect("it has ended")
    };
    // In the middle of a body: one piece is taken.
    let mut talk = Conversation::new(ServerConfig::default());
    let request = get("/a/0/3.ts");
    talk.input(Input::Bytes {
        channel: ChannelId(0),
        bytes: request.as_bytes(),
        at: Time::ZERO,
        runs: &[],
    });
    let flow = talk.running.expect("it is sent in pieces");
    talk.flows.access(flow, |own| {
        let packet = own.next_packet(Time::ZERO).expect("it is due");
        own.packet_sent(packet.tag, Some(Handover::at(Time::ZERO)));
    });
    let record = leave(&mut talk);
    assert_eq!((record.segments, record.unfinished), (0, 1));
    assert_eq!(record.bytes, 64 << 10);
    // While a request waits.
    let mut talk = Conversation::new(ServerConfig {
        part: Some(Duration::from_millis(400)),
        ..ServerConfig::default()
    });
    talk.ask(&get("/a/0/10.0.ts"));
    assert_eq!(leave(&mut talk).unfinished, 1);
}

#[test]
fn playlists_report_the_ends_of_the_other_variants() {
    let config = ServerConfig {
        part: Some(Duration::from_millis(400)),
        variants: 3,
        ..ServerConfig::default()
    };
    let reports = |path: &str| -> Vec<String> {
        let mut talk = Conversation::new(config.clone());
        talk.ask(&get(path));
        if talk.sent.is_empty() {
            talk.wait();
        }
        let text = String::from_utf8_lossy(&talk.sent).into_owned();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("#EXT-X-RENDITION-REPORT:"));
        lines.map(str::to_owned).collect()
    };
    let report = |variant: u32, end: &str| {
        format!("#EXT-X-RENDITION-REPORT:URI=\"../{variant}/index.m3u8\",{end}")
    };
    // Ten segments of five parts are complete.
    let end = "LAST-MSN=9,LAST-PART=4";
    assert_eq!(reports("/a/1/index.m3u8"), [report(0, end), report(2, end)]);
    let end = "LAST-MSN=10,LAST-PART=1";
    let path = "/a/0/index.m3u8?_HLS_msn=10&_HLS_part=1";
    assert_eq!(reports(path), [report(1, end), report(2, end)]);
}
