//! Endings of clients. Missing media fails a client only while another participant publishes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use measure::Recorder;

use super::*;
use crate::certificate::Certificate;
use crate::config::ClientConfig;
use crate::metrics as m;
use crate::signalling::{Connection, Direction, PeerNumber, Signalling, SignallingContext};
use crate::tracks::{PayloadFormat, Section};
use kit::media::sdp::MediaKind;
use session::{Arrival, ArrivalTimes, ChannelError, CloseReason, Datagram, Flows, Outbox};

/// Signalling of a room: whether others publish, and the tracks that the server cannot deliver.
#[derive(Debug)]
struct StubSignalling(Arc<AtomicBool>, Vec<&'static str>);

impl Signalling for StubSignalling {
    fn begin(&mut self, _: &mut SignallingContext<'_>) {}
    fn connected(&mut self, _: &mut SignallingContext<'_>, _: Connection) {}
    fn bytes(&mut self, _: &mut SignallingContext<'_>, _: Connection, _: &[u8]) {}
    fn closed(&mut self, _: &mut SignallingContext<'_>, _: Connection, _: CloseReason) {}
    fn local_description(&mut self, _: &mut SignallingContext<'_>, _: PeerNumber, _: &str) {}
    fn deadline(&self) -> Option<Time> {
        None
    }
    fn handle_due(&mut self, _: &mut SignallingContext<'_>) {}
    fn leave(&mut self, _: &mut SignallingContext<'_>) {}
    fn expects_media(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    fn awaited(&self) -> Option<(Time, String)> {
        None
    }
    fn missing_tracks(&self) -> Vec<(&str, &str)> {
        let all = self.1.iter();
        all.map(|track| (*track, "CodecUnsupported")).collect()
    }
}

/// Client in a room, with a connected PeerConnection that receives, and the other participants.
struct TestClient {
    client: Client,
    others: Arc<AtomicBool>,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    out: std::collections::VecDeque<Output>,
}

fn at(millis: u64) -> Time {
    Time::from_start(Duration::from_millis(millis))
}

impl TestClient {
    fn new(others: bool) -> TestClient {
        let config: ClientConfig = serde_json::from_str("{}").expect("all has defaults");
        let certificate = Arc::new(Certificate::generate(1));
        let url = "janus+ws://10.0.0.1/videoroom/1";
        let mut client = Client::new(config, url, 1, certificate).expect("it is a URL");
        let others = Arc::new(AtomicBool::new(others));
        client.signalling.kind = Box::new(StubSignalling(others.clone(), Vec::new()));
        client.phase = Phase::Active;
        client.local = Some([127, 0, 0, 1].into());
        let mut test = TestClient {
            client,
            others,
            recorder: Recorder::new(crate::PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
            out: std::collections::VecDeque::new(),
        };
        test.at(0, |client, cx| {
            client.open_link(cx, PeerNumber(0), Direction::Receive, None);
            client.links[0].connected_at = Some(cx.now);
            client.checks.next_at = Some(cx.now + client.setup.config.no_media.0);
            client.signalling.call(cx, |_, _| ());
        });
        test
    }

    fn at(&mut self, millis: u64, does: impl FnOnce(&mut Client, &mut Context<'_>)) {
        let mut cx = Context {
            now: at(millis),
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut self.out,
            outbox: &mut Outbox::default(),
        };
        does(&mut self.client, &mut cx);
    }

    /// Sets whether others publish from `millis` on.
    fn others(&mut self, millis: u64, publish: bool) {
        self.others.store(publish, Ordering::Relaxed);
        self.at(millis, |client, cx| client.signalling.call(cx, |_, _| ()));
    }

    /// Checks every half second until `millis`. Returns the reason and the time of a failure.
    fn run_checks_until(&mut self, millis: u64) -> Option<(&'static str, u64)> {
        for now in (0..=millis).step_by(500) {
            self.at(now, |client, cx| client.check_deadlines(cx));
            if let Some(Outcome::Failed(reason)) = &self.client.outcome {
                return Some((reason.reason, now));
            }
        }
        None
    }

    fn stopped(&mut self, millis: u64) -> Option<Outcome> {
        self.at(millis, |client, cx| client.stop(cx, at(millis + 1000)));
        self.client.outcome.take()
    }
}

/// Video with payload type 96.
fn video() -> PayloadFormat {
    PayloadFormat {
        payload_type: 96,
        kind: MediaKind::Video,
        codec: None,
        clock_rate: 90_000,
        is_rtx: false,
        apt: None,
        nack: false,
        key_frame_request: None,
    }
}

fn receive(cx: &mut Context<'_>, sink: session::SinkId, bytes: &[u8]) {
    let arrival = Arrival {
        at: cx.now,
        bytes,
        length: bytes.len(),
        overhead: 0,
    };
    cx.sinks.packet(sink, &arrival, cx.recorder);
}

#[test]
fn missing_media_of_others_fails_the_client() {
    let mut test = TestClient::new(true);
    assert_eq!(test.run_checks_until(20_000), Some(("no_media", 10_000)));
}

#[test]
fn lone_client_does_not_wait_for_media() {
    let mut test = TestClient::new(false);
    assert_eq!(test.run_checks_until(30_000), None);
    // A publisher that comes later has as much time as the first one.
    test.others(30_200, true);
    assert_eq!(test.run_checks_until(60_000), Some(("no_media", 40_500)));
    let mut test = TestClient::new(true);
    test.others(5_000, false);
    assert_eq!(test.run_checks_until(60_000), None);
}

#[test]
fn stop_after_one_second_without_media_is_a_failure() {
    let failed = |outcome| matches!(outcome, Some(Outcome::Failed(_)));
    assert!(failed(TestClient::new(true).stopped(1_500)));
    assert!(!failed(TestClient::new(true).stopped(500)));
    assert!(!failed(TestClient::new(false).stopped(1_500)));
    let mut test = TestClient::new(false);
    test.others(1_200, true);
    assert!(!failed(test.stopped(1_500)));
}

#[test]
fn stop_without_a_turn_channel_is_a_turn_timeout() {
    let mut test = TestClient::new(false);
    let link = &mut test.client.links[0];
    (link.negotiated_at, link.ice_connected_at) = (Some(at(100)), Some(at(200)));
    (link.dtls_connected_at, link.connected_at) = (Some(at(300)), None);
    let Some(Outcome::Failed(reason)) = test.stopped(1_300) else {
        panic!("it has waited for a second");
    };
    assert_eq!(reason.reason, "turn_timeout");
    assert!(reason.detail.contains("no TURN"), "{}", reason.detail);
}

#[test]
fn relayed_address_is_not_released_at_a_lost_turn_server() {
    for ends in [0, 1, 2] {
        let mut test = TestClient::new(false);
        let turn =
            r#"{"turn":{"url":"turn:127.0.0.1:3478?transport=tcp","user":"a","password":"b"}}"#;
        test.client.setup_mut().config =
            Arc::new(serde_json::from_str(turn).expect("they are keys"));
        test.at(0, |client, cx| {
            client.open_link(cx, PeerNumber(1), Direction::Receive, None);
            let link = client.links[1].channel;
            let local = ([127, 0, 0, 1], 4000).into();
            client.update_link(cx, link, |link, cx| link.opened(cx, local));
        });
        let channel = test.client.links[1].channel;
        test.at(100, |client, cx| match ends {
            0 => client.update_link(cx, channel, |link, _| link.relay_closed(CloseReason::End)),
            1 => client.update_link(cx, channel, |link, cx| {
                let times = ArrivalTimes::new(&[], cx.now);
                link.handle_relayed_bytes(cx, &[0x80; 8], times)
            }),
            // The TURN server is still reachable, so its answer is awaited.
            _ => client.begin_leaving(cx, Outcome::Stopped),
        });
        assert!(test.client.is_leaving());
        assert_eq!(test.client.releasing_relays.is_empty(), ends < 2, "{ends}");
        let closed = |own: &Output| matches!(own, Output::Close { channel: of } if *of == channel);
        assert_eq!(test.out.iter().any(closed), ends < 2, "{ends}");
    }
}

/// WHEP client whose session has a URL, and that connects to delete the session.
fn deleting() -> TestClient {
    let mut test = TestClient::new(false);
    let url = "whep+http://10.0.0.1/live/whep";
    let certificate = Arc::new(Certificate::generate(1));
    let config: ClientConfig = serde_json::from_str("{}").expect("all has defaults");
    test.client = Client::new(config, url, 1, certificate).expect("it is a URL");
    test.client.phase = Phase::Active;
    test.at(0, |client, cx| {
        client.signalling.call(cx, |signalling, scope| {
            signalling.begin(scope);
            signalling.connected(scope, Connection::First);
            signalling.local_description(scope, PeerNumber(0), "v=0\r\n");
            let created = "HTTP/1.1 201 Created\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n";
            signalling.bytes(scope, Connection::First, created.as_bytes());
        });
        client.signalling.actions.clear();
        client.begin_leaving(cx, Outcome::Stopped);
        client.run_actions(cx);
    });
    test
}

#[test]
fn unanswered_goodbyes_are_events() {
    for ends in 0..3 {
        let mut test = deleting();
        let channel = test
            .client
            .signalling
            .channel(Connection::First)
            .expect("it connects");
        test.at(0, |client, cx| match ends {
            0 => client.open_failed(cx, channel, ChannelError::Refused),
            _ => client
                .signalling
                .call(cx, |own, scope| own.connected(scope, Connection::First)),
        });
        match ends {
            0 => {}
            // The end of the run, and the limit of two seconds.
            1 => test.at(300, |client, cx| client.stop(cx, at(300))),
            _ => test.at(2_000, |client, cx| client.check_deadlines(cx)),
        }
        assert_eq!(test.client.phase, Phase::Ended, "{ends}");
        let notes: Vec<_> = test
            .out
            .iter()
            .filter_map(|output| match output {
                Output::Note(note) => Some((note.kind, &note.text)),
                _ => None,
            })
            .collect();
        let [("goodbye_unanswered", text)] = &notes[..] else {
            panic!("{ends}: {notes:?}");
        };
        let said = text.contains("the server may keep the session");
        assert!(said && text.contains("DELETE") == (ends > 0), "{text}");
    }
}

#[test]
fn unexpected_datagrams_are_counted() {
    let mut test = TestClient::new(false);
    let own = "127.0.0.1:4000".parse().expect("an address");
    let from = "127.0.0.1:5000".parse().expect("an address");
    test.at(1, |client, cx| {
        let link = client.links[0].channel;
        client.update_link(cx, link, |link, cx| link.opened(cx, own));
        let malformed = [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 9];
        // An indication keeps the path open. It is no connectivity check.
        let mut indication = vec![0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        indication.resize(20, 7);
        for bytes in [
            &indication[..],
            &[0xff; 20],
            &[22, 254, 253, 0, 0],
            &malformed,
            &[0xff],
        ] {
            let at = cx.now;
            client.update_link(cx, link, |link, cx| {
                link.handle_datagrams(cx, &[Datagram { from, at, bytes }])
            });
        }
        client.close_link(cx, link);
    });
    assert_eq!(test.recorder.counter(m::FOREIGN), 3);
    assert_eq!(test.recorder.counter(m::STUN_REFUSED), 1);
}

#[test]
fn ended_link_is_not_mistaken_for_a_later_one() {
    let mut test = TestClient::new(false);
    let ended = test.client.links[0].channel;
    test.at(1, |client, cx| {
        let local = ([127, 0, 0, 1], 4000).into();
        client.close_link(cx, ended);
        client.open_link(cx, PeerNumber(1), Direction::Receive, None);
        client.update_link(cx, ended, |link, cx| link.opened(cx, local));
        client.close_link(cx, ended);
    });
    assert!(test.client.links.get_mut(ended).is_none());
    let later = test.client.links.first().expect("it was opened");
    assert!(later.channel != ended && later.peer.is_none());
}

#[test]
fn rows_of_ended_streams_are_bounded() {
    let mut test = TestClient::new(false);
    for number in 1..=3 {
        test.at(1, |client, cx| {
            client.open_link(cx, PeerNumber(number), Direction::Receive, None);
            let link = client.links.last().expect("it was opened");
            let (link, sink) = (link.channel, link.sink.expect("it receives"));
            cx.sinks.get::<Tracks>(sink).set_formats(vec![video()]);
            for ssrc in 0..1000_u32 {
                let mut bytes = vec![0x80, 96, 0, 1, 0, 0, 0, 1];
                bytes.extend(ssrc.to_be_bytes());
                receive(cx, sink, &bytes);
            }
            client.close_link(cx, link);
        });
    }
    assert_eq!(test.client.ended_streams.rows.len(), 2048);
    let received = kit::media::rtp::metrics::RECEIVED;
    assert_eq!(test.recorder.counter(received), 3000);
}

#[test]
fn undeliverable_track_is_silent_once_unless_received() {
    // One track continues, and one stops after a second.
    for (missing, silent, said) in [
        (vec![], 1, 0),
        (vec!["goes"], 1, 0),
        (vec!["gone"], 1, 1),
        (vec!["nowhere"], 2, 1),
        (vec!["goes", "gone", "nowhere"], 2, 2),
    ] {
        let mut test = TestClient::new(true);
        test.client.signalling.kind =
            Box::new(StubSignalling(test.others.clone(), missing.clone()));
        let sink = test.client.links[0].sink.expect("it receives");
        let section = |mid: &str, track: &str, ssrc| Section {
            mid: mid.to_owned(),
            kind: MediaKind::Video,
            track: Some(track.to_owned()),
            sources: vec![(ssrc, None)],
            since: at(0),
        };
        test.at(0, |_, cx| {
            let tracks = cx.sinks.get::<Tracks>(sink);
            tracks.set_formats(vec![video()]);
            tracks.set_sections(vec![section("0", "goes", 50), section("1", "gone", 60)]);
        });
        for number in 0..100_u8 {
            test.at(u64::from(number) * 100, |_, cx| {
                let stops = (number < 10).then_some(60);
                for source in [50].into_iter().chain(stops) {
                    let bytes = [0x80, 96, 0, number, 0, 0, 0, 1, 0, 0, 0, source, 7];
                    receive(cx, sink, &bytes);
                }
            });
        }
        test.at(10_000, |client, cx| client.note_silent_streams(cx));
        let counted = test
            .recorder
            .counter(kit::media::rtp::metrics::STREAMS_SILENT);
        assert_eq!(counted, silent, "{missing:?}");
        let notes = test.out.iter().filter_map(|output| match output {
            Output::Note(note) => Some(&note.text),
            _ => None,
        });
        let reasons = notes
            .clone()
            .filter(|text| text.contains("CodecUnsupported"));
        assert_eq!((reasons.count(), notes.count() as u64), (said, silent));
    }
}

#[test]
fn hang_up_after_media_is_no_orderly_end() {
    let ended = |failure: Failure, media: bool| {
        let mut test = TestClient::new(true);
        let sink = test.client.links[0].sink.expect("it receives");
        if media {
            test.at(100, |_, cx| {
                cx.sinks.get::<Tracks>(sink).set_formats(vec![video()]);
                let bytes = [0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 50, 7];
                receive(cx, sink, &bytes);
            });
        }
        test.at(1_000, |client, cx| {
            client.fail(cx, failure, String::new());
        });
        match test.client.outcome {
            Some(Outcome::EndedByServer { in_order, .. }) => Some(in_order),
            Some(Outcome::Failed(_)) => None,
            other => panic!("{other:?}"),
        }
    };
    // Janus hangs up after a failure of ICE, too.
    assert_eq!(ended(Failure::HungUp, true), Some(false));
    assert_eq!(ended(Failure::EndedByServer, true), Some(true));
    assert_eq!(ended(Failure::EndedByServer, false), None);
    assert_eq!(ended(Failure::IceFailed, true), None);
}
