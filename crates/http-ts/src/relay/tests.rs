//! Tests of scripted conversations: requests, datagrams of the group, and responses.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::{Recorder, Time};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use ::session::{
    ChannelError, ChannelId, CloseReason, Context, Flows, Input, Open, Outcome, Output, Port,
    Session, Sinks,
};
use kit::faults::FaultSet as _;
use kit::reference::RunningServer as _;

mod leaked_resources;

const CONTROL: ChannelId = ChannelId(0);

/// A session of the relay with a scripted client.
struct Conversation {
    session: Box<dyn Session>,
    now: Time,
    recorder: Recorder,
    sent: Vec<u8>,
    opened: Vec<(ChannelId, Open)>,
    peers: usize,
    record: Option<Value>,
    closed: bool,
    /// Channels that were closed, except for that of the client.
    closed_channels: Vec<ChannelId>,
    outcome: Option<Outcome>,
}

fn config(faults: &[&str]) -> RelayConfig {
    let mut config = RelayConfig::new(Interface::Name("lo".to_owned()));
    for fault in faults {
        config.faults.add(fault).expect("it is one");
    }
    config
}

impl Conversation {
    fn with(relay: &Relay) -> Conversation {
        let mut talk = Conversation {
            session: relay.session(1),
            now: Time::from_nanos(5),
            recorder: Recorder::new(relay.catalogue()),
            sent: Vec::new(),
            opened: Vec::new(),
            peers: 0,
            record: None,
            closed: false,
            closed_channels: Vec::new(),
            outcome: None,
        };
        let due = talk.now;
        talk.input(Input::Start { due });
        talk.input(Input::Opened {
            channel: CONTROL,
            local: "127.0.0.1:8080".parse().expect("an address"),
            remote: Some("127.0.0.2:40000".parse().expect("an address")),
        });
        talk
    }

    fn new(faults: &[&str]) -> Conversation {
        Conversation::with(&Relay::new(config(faults)))
    }

    /// A session that relays a group.
    fn relaying(faults: &[&str]) -> Conversation {
        let mut talk = Conversation::new(faults);
        talk.get("/udp/239.81.0.1:4056");
        talk.join();
        talk.sent.clear();
        talk
    }

    fn input(&mut self, input: Input<'_>) {
        let (mut sinks, mut flows, mut out) = (Sinks::default(), Flows::default(), VecDeque::new());
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut sinks,
            flows: &mut flows,
            out: &mut out,
            outbox: &mut ::session::Outbox::default(),
        };
        self.session.handle(&mut cx, input);
        for output in out {
            assert!(self.outcome.is_none(), "{output:?} after the end");
            match output {
                Output::Send {
                    channel: CONTROL,
                    bytes,
                    ..
                } => self.sent.extend(bytes),
                Output::Open { channel, open } => self.opened.push((channel, open)),
                Output::Peer { .. } => self.peers += 1,
                Output::Close { channel: CONTROL } => self.closed = true,
                Output::Close { channel } => self.closed_channels.push(channel),
                Output::Record(record) => {
                    let record = record.downcast::<RelayedClient>();
                    self.record = record.and_then(|a| serde_json::to_value(a).ok());
                }
                Output::Ended(outcome) => self.outcome = Some(outcome),
                other => panic!("{other:?}"),
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let at = self.now;
        self.input(Input::Bytes {
            channel: CONTROL,
            bytes,
            at,
            runs: &[],
        });
    }

    fn get(&mut self, target: &str) {
        self.bytes(format!("GET {target} HTTP/1.1\r\nHost: relay\r\n\r\n").as_bytes());
    }

    /// Opens the membership.
    fn join(&mut self) {
        let (channel, open) = self.opened.last().expect("it was asked for").clone();
        let Open::Multicast { group, port, .. } = open else {
            panic!("{open:?}");
        };
        self.input(Input::Opened {
            channel,
            local: SocketAddr::new(group, port),
            remote: None,
        });
    }

    fn datagram(&mut self, bytes: &[u8]) {
        let at = self.now;
        self.input(Input::Datagram {
            channel: ChannelId(1),
            port: Port::Media,
            from: "10.0.0.1:5000".parse().expect("an address"),
            bytes,
            at,
        });
    }

    /// Lets time pass, and delivers each deadline.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(deadline) = self.session.deadline().filter(|&at| at <= until) {
            self.now = deadline.max(self.now);
            self.input(Input::Deadline);
        }
        self.now = until;
    }

    fn leave(&mut self) {
        self.input(Input::Closed {
            channel: CONTROL,
            reason: CloseReason::End,
        });
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.sent).into_owned()
    }

    fn count(&self, key: &str) -> u64 {
        let record = self.record.as_ref().expect("it is through");
        record[key].as_u64().expect("a number")
    }
}

#[test]
fn datagrams_of_the_group_are_relayed_unchanged() {
    let mut talk = Conversation::new(&[]);
    talk.get("/udp/239.81.0.1:4056");
    let (_, open) = &talk.opened[0];
    let Open::Multicast {
        group,
        port,
        sink,
        interface,
        ..
    } = open
    else {
        panic!("{open:?}");
    };
    assert_eq!(
        (group.to_string(), *port, *sink),
        ("239.81.0.1".to_owned(), 4056, None)
    );
    assert_eq!(*interface, Interface::Name("lo".to_owned()));
    assert_eq!(talk.sent, b"", "no answer before the membership is open");
    talk.join();
    assert_eq!(talk.peers, 1);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\nConnection: close\r\n\r\n";
    assert_eq!(talk.text(), head);
    talk.sent.clear();
    talk.datagram(&[1; 1316]);
    talk.datagram(&[2; 1316]);
    assert_eq!(talk.sent, [[1; 1316], [2; 1316]].concat());
    talk.leave();
    assert_eq!(talk.outcome, Some(Outcome::Completed));
    let record = talk.record.expect("it is through");
    assert_eq!(record["target"], "/udp/239.81.0.1:4056");
    assert_eq!(record["remote"], "127.0.0.2:40000");
    assert_eq!(
        (&record["datagrams"], &record["passed_on"]),
        (&2.into(), &2.into())
    );
    assert_eq!(
        (&record["bytes"], &record["status"]),
        (&2632.into(), &200.into())
    );
}

#[test]
fn rtp_payload_is_relayed_and_invalid_rtp_is_counted() {
    let mut talk = Conversation::new(&[]);
    talk.get("/rtp/239.81.0.1:4056");
    talk.join();
    talk.sent.clear();
    let mut packet = vec![0x80, 33, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    packet.extend([7; 188]);
    talk.datagram(&packet);
    // With a contributing source, and four bytes of padding.
    packet[0] = 0xa1;
    packet.splice(12..12, [1, 2, 3, 4]);
    packet.extend([0, 0, 0, 4]);
    talk.datagram(&packet);
    assert_eq!(talk.sent, [7; 376]);
    for wrong in [
        &[][..],
        &[0x47; 188],
        &packet[..13],
        &packet[..12],
        &[0x80; 2048],
    ] {
        talk.datagram(wrong);
    }
    assert_eq!(talk.sent.len(), 376);
    talk.leave();
    assert_eq!((talk.count("datagrams"), talk.count("unusable")), (7, 5));
}

#[test]
fn invalid_requests_are_refused() {
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET /udp/10.0.0.1:4056 HTTP/1.1\r\n\r\n", "404 Not Found"),
        (
            "POST /udp/239.81.0.1:4056 HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed",
        ),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        (&"x".repeat(10_000), "431 Request Header Fields Too Large"),
    ] {
        let mut talk = Conversation::new(&[]);
        talk.bytes(request.as_bytes());
        assert!(
            talk.text().starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{}",
            talk.text()
        );
        assert!(talk.closed && talk.opened.is_empty());
        assert_eq!(talk.outcome, Some(Outcome::Completed));
    }
    let mut silent = Conversation::new(&[]);
    silent.wait(Duration::from_secs(11));
    assert!(silent.text().starts_with("HTTP/1.1 408 "));
    let mut lonely = Conversation::new(&[]);
    lonely.get("/udp/239.81.0.1:4056");
    lonely.input(Input::OpenFailed {
        channel: ChannelId(1),
        error: ChannelError::NoMembership,
    });
    assert!(lonely.text().starts_with("HTTP/1.1 502 "));
}

#[test]
fn clients_beyond_the_maximum_get_503_until_another_leaves() {
    let relay = Relay::new(RelayConfig {
        max_clients: Some(2),
        ..config(&[])
    });
    let served = |talk: &Conversation| !talk.text().starts_with("HTTP/1.1 503 ");
    let mut talks: Vec<Conversation> = (0..3)
        .map(|_| {
            let mut talk = Conversation::with(&relay);
            talk.get("/udp/239.81.0.1:4056");
            talk
        })
        .collect();
    assert_eq!(
        talks.iter().map(served).collect::<Vec<_>>(),
        [true, true, false]
    );
    talks[0].leave();
    let mut next = Conversation::with(&relay);
    next.get("/udp/239.81.0.1:4056");
    assert!(served(&next));
    // A dropped session gives its slot back, too.
    drop(talks.remove(1));
    let mut after = Conversation::with(&relay);
    after.get("/udp/239.81.0.1:4056");
    assert!(served(&after));
    let mut full = Conversation::with(&relay);
    full.get("/udp/239.81.0.1:4056");
    assert!(!served(&full));
}

#[test]
fn only_http_1_1_clients_get_chunks() {
    for (version, chunked) in [("HTTP/1.1", true), ("HTTP/1.0", false)] {
        let relay = Relay::new(RelayConfig {
            chunked: true,
            ..config(&[])
        });
        let mut talk = Conversation::with(&relay);
        talk.bytes(format!("GET /udp/239.81.0.1:4056 {version}\r\n\r\n").as_bytes());
        talk.join();
        assert_eq!(
            talk.text().contains("Transfer-Encoding: chunked\r\n"),
            chunked
        );
        talk.sent.clear();
        talk.datagram(&[b'a'; 20]);
        talk.input(Input::Stop { until: talk.now });
        let body = if chunked {
            "14\r\naaaaaaaaaaaaaaaaaaaa\r\n0\r\n\r\n"
        } else {
            "aaaaaaaaaaaaaaaaaaaa"
        };
        assert_eq!(talk.text(), body);
        assert_eq!(
            (talk.outcome.clone(), talk.count("bytes")),
            (Some(Outcome::Stopped), 20)
        );
    }
}

#[test]
fn faults_are_injected_and_counted() {
    const COUNT: usize = 10_000;
    let play = |fault: &str| {
        let mut talk = Conversation::relaying(&[fault]);
        for number in 0..COUNT {
            talk.datagram(&[(number % 251) as u8; 188]);
        }
        let sent = talk.sent.clone();
        talk.leave();
        (talk, sent)
    };
    let near = |count: u64| (800..1200).contains(&count);
    let (lost, sent) = play("lose=10%");
    assert!(near(lost.count("left_out")) && lost.count("sent_twice") == 0);
    assert_eq!(sent.len(), (COUNT - lost.count("left_out") as usize) * 188);
    // As many bytes as without the fault, but other content.
    let (replaced, sent) = play("replace=10%");
    assert!(near(replaced.count("left_out")));
    assert_eq!(replaced.count("sent_twice"), replaced.count("left_out"));
    assert_eq!(sent.len(), COUNT * 188);
    let again = sent.chunks(188).zip(sent.chunks(188).skip(1));
    let again = again.filter(|(one, next)| one == next).count() as u64;
    assert_eq!(again, replaced.count("sent_twice"));
    let (doubled, sent) = play("duplicate=10%");
    assert!(near(doubled.count("sent_twice")) && doubled.count("left_out") == 0);
    assert_eq!(
        sent.len(),
        (COUNT + doubled.count("sent_twice") as usize) * 188
    );
    let (cut, sent) = play("truncate=10%");
    assert!(near(cut.count("cut")) && cut.count("passed_on") == COUNT as u64);
    assert!(sent.len() < COUNT * 188 && sent.len() > COUNT * 188 * 9 / 10);
    assert_eq!(cut.count("bytes"), sent.len() as u64);
}

#[test]
fn slow_start_drops_datagrams_and_a_stall_delays_them() {
    let mut slow = Conversation::relaying(&["slow-start=2s"]);
    slow.wait(Duration::from_millis(1999));
    slow.datagram(&[1; 188]);
    assert_eq!(slow.sent, b"");
    slow.wait(Duration::from_millis(1));
    slow.datagram(&[2; 188]);
    assert_eq!(slow.sent, [2; 188]);
    slow.leave();
    assert_eq!((slow.count("left_out"), slow.count("passed_on")), (1, 1));

    let mut stalls = Conversation::relaying(&["stall=5s:1s"]);
    let mut pauses = Vec::new();
    for tenth in 0..160u32 {
        let before = stalls.sent.len();
        stalls.datagram(&[1; 188]);
        if stalls.sent.len() == before {
            pauses.push(tenth);
        }
        stalls.wait(Duration::from_millis(100));
    }
    assert_eq!(
        pauses,
        (50..60).chain(100..110).chain(150..160).collect::<Vec<_>>()
    );
    assert_eq!(stalls.sent.len(), 160 * 188, "delayed, but not dropped");
    stalls.leave();
    assert_eq!(stalls.count("stalls"), 3);
    // The buffer is bounded.
    let mut flooded = Conversation::relaying(&["stall=1h:30m"]);
    flooded.wait(Duration::from_secs(3600));
    for _ in 0..6000 {
        flooded.datagram(&[1; 1500]);
    }
    flooded.wait(Duration::from_secs(1800));
    let held = (8 << 20) / 1500;
    assert_eq!(flooded.sent.len(), held * 1500);
    flooded.leave();
    assert_eq!(flooded.count("left_out"), 6000 - held as u64);
}

#[test]
fn each_wrong_answer_matches_its_name() {
    let answer = |name: &str| {
        let mut talk = Conversation::new(&[&format!("answer={name}")]);
        talk.get("/udp/239.81.0.1:4056");
        assert!(talk.opened.is_empty());
        talk
    };
    let busy = answer("503");
    assert!(
        busy.text()
            .starts_with("HTTP/1.1 503 Service Unavailable\r\n")
            && busy.closed
    );
    assert!(answer("html").text().contains("text/html\r\n"));
    let gzip = answer("gzip");
    let body = gzip
        .sent
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .expect("a head")
        + 4;
    assert_eq!(gzip.sent[body..body + 2], [0x1f, 0x8b]);
    assert!(
        answer("redirect")
            .text()
            .contains("Location: /udp/239.81.0.1:4056\r\n")
    );
    let chunks = answer("bad-chunks").text();
    assert!(chunks.contains("\r\n\r\nbc\r\nG"), "{chunks}");
    for (name, length) in [("silent", 64), ("mute", 0)] {
        let mut talk = answer(name);
        talk.wait(Duration::from_secs(100));
        assert_eq!((talk.sent.len(), talk.closed), (length, false), "{name}");
        talk.leave();
        assert!(talk.closed);
    }
    let mut endless = answer("endless-head");
    endless.wait(Duration::from_secs(1));
    assert!(endless.sent.len() > 500_000 && !endless.closed);
    assert!(!endless.text().contains("\r\n\r\n"));
    endless.wait(Duration::from_secs(60));
    assert!(endless.closed && endless.sent.len() < 20 << 20);
}

proptest! {
    #[test]
    fn arbitrary_requests_and_datagrams_are_handled(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..400)), 0..40),
        valid: bool,
    ) {
        let mut talk = if valid { Conversation::relaying(&["lose=10%", "truncate=50%"]) } else { Conversation::new(&[]) };
        for (datagram, bytes) in pieces {
            if talk.outcome.is_some() {
                break;
            }
            if datagram {
                talk.datagram(&bytes);
            } else {
                talk.bytes(&bytes);
            }
        }
        if talk.outcome.is_none() {
            talk.leave();
        }
        prop_assert!(talk.record.is_some() && talk.closed);
    }
}
