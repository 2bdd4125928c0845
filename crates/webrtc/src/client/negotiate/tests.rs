//! Negotiation of the client's PeerConnection with a server that offers and renegotiates.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use measure::{Recorder, Time};

use super::*;
use crate::certificate::Certificate;
use crate::client::Client;
use crate::config::ClientConfig;
use crate::peer::{Peer, PeerConfig, PeerState, Received};
use crate::signalling::{Connection, PeerNumber, Signalling, SignallingContext};
use kit::media::source::MediaSource;
use session::{
    Arrival, ChannelId, CloseReason, Datagram, Flows, Input, MediaEvent, Outbox, Output,
    Session as _, Sink as _, Sinks,
};

/// Signalling that keeps the client's descriptions.
#[derive(Debug)]
struct StoringSignalling(Arc<Mutex<Vec<String>>>);

impl Signalling for StoringSignalling {
    fn begin(&mut self, _: &mut SignallingContext<'_>) {}
    fn connected(&mut self, _: &mut SignallingContext<'_>, _: Connection) {}
    fn bytes(&mut self, _: &mut SignallingContext<'_>, _: Connection, _: &[u8]) {}
    fn closed(&mut self, _: &mut SignallingContext<'_>, _: Connection, _: CloseReason) {}
    fn local_description(&mut self, _: &mut SignallingContext<'_>, _: PeerNumber, sdp: &str) {
        let mut all = self.0.lock().expect("nobody panics with it");
        all.push(sdp.to_owned());
    }
    fn deadline(&self) -> Option<Time> {
        None
    }
    fn handle_due(&mut self, _: &mut SignallingContext<'_>) {}
    fn leave(&mut self, _: &mut SignallingContext<'_>) {}
    fn expects_media(&self) -> bool {
        false
    }
    fn awaited(&self) -> Option<(Time, String)> {
        None
    }
}

/// Client, and the server's side of its PeerConnection.
struct TestPair {
    client: Client,
    server: Peer,
    now: Time,
    described: Arc<Mutex<Vec<String>>>,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    /// Datagrams that the client sent.
    sent: Vec<Vec<u8>>,
    /// Link that is connected to the server.
    link: ChannelId,
}

fn ends() -> [SocketAddr; 2] {
    [([127, 0, 0, 1], 4000).into(), ([127, 0, 0, 2], 5000).into()]
}

impl TestPair {
    fn new() -> TestPair {
        TestPair::of(r#"{"transport_cc":false}"#)
    }

    /// Creates a client with these keys.
    fn of(keys: &str) -> TestPair {
        let config: ClientConfig = serde_json::from_str(keys).expect("it is one");
        let [ours, theirs] = ends();
        let url = "janus+ws://10.0.0.1/videoroom/1";
        let certificate = Arc::new(Certificate::generate(1));
        let mut client = Client::new(config, url, 1, certificate).expect("it is a URL");
        let described = Arc::new(Mutex::new(Vec::new()));
        client.signalling.kind = Box::new(StoringSignalling(described.clone()));
        client.phase = super::super::Phase::Active;
        client.local = Some(ours.ip());
        let now = Time::from_nanos(1_000_000_000);
        let config = PeerConfig::new(Arc::new(Certificate::generate(2)), 2);
        let mut server = Peer::offerer(now, &config);
        server.add_local_candidate(now, theirs);
        let mut pair = TestPair {
            client,
            server,
            now,
            described,
            recorder: Recorder::new(crate::PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
            sent: Vec::new(),
            link: ChannelId(1),
        };
        let offer = pair.offer();
        pair.does(|client, cx| {
            client.open_link(cx, PeerNumber(0), Direction::Receive, Some(offer));
        });
        pair.update(|link, cx| link.opened(cx, ours));
        pair
    }

    /// Returns a negotiated payload type.
    fn payload_type(&self) -> u8 {
        let all = self.described.lock().expect("nobody panics with it");
        let answer = SessionDescription::parse(all.last().expect("it answers"));
        answer.expect("it is right").media[0].codecs[0].payload_type
    }

    /// Returns the negotiated id of a header extension.
    fn extension(&self, uri: &str) -> u8 {
        let all = self.described.lock().expect("nobody panics with it");
        let answer = SessionDescription::parse(all.last().expect("it answers"));
        let answer = answer.expect("it is right");
        let mut extensions = answer.media[0].extensions.iter();
        let found = extensions.find(|own| own.uri == uri);
        u8::try_from(found.expect("it is agreed").id).expect("it is small")
    }

    /// Returns the server's offer, with its current transport.
    fn offer(&self) -> String {
        let media = OfferedMedia {
            direction: Way::SendOnly,
            ..receiving_section(MediaKind::Video, known::all_video())
        };
        let config = OfferConfig {
            session_id: 7,
            media: vec![media],
            feedback: sdp::FeedbackTypes::default(),
        };
        let transport = self.server.local_transport();
        SessionDescription::offer(&config, &transport).to_string()
    }

    fn does(&mut self, does: impl FnOnce(&mut Client, &mut Context<'_>)) {
        let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        does(&mut self.client, &mut cx);
        for output in out {
            if let Output::Transmit(transmit) = output {
                self.sent.push(outbox.bytes(&transmit).to_vec());
            }
        }
    }

    fn update(&mut self, update: impl FnOnce(&mut PeerLink, &mut Context<'_>) -> LinkResult) {
        let link = self.link;
        self.does(|client, cx| client.update_link(cx, link, update));
    }

    /// Delivers a media packet to the client. It is not encrypted.
    fn takes(&mut self, at: Time, bytes: &[u8]) -> Option<MediaEvent> {
        let sink = self.client.links[0].sink.expect("it receives");
        let arrival = Arrival {
            at,
            bytes,
            length: bytes.len(),
            overhead: 28,
        };
        let tracks = self.sinks.get::<Tracks>(sink);
        tracks.authenticate_first_packets(None);
        tracks.packet(&arrival, &mut self.recorder)
    }

    /// Passes the client's last answer to the server, and returns its user fragment.
    fn take_answer(&mut self) -> String {
        let all = self.described.lock().expect("nobody panics with it");
        let answer = SessionDescription::parse(all.last().expect("it answers"));
        let transport = answer.and_then(|answer| answer.transport());
        let transport = transport.expect("it is right");
        drop(all);
        let taken = self.server.set_remote(self.now, &transport);
        assert_eq!(taken, Ok(()));
        transport.ufrag
    }

    /// Runs both sides for `length`. Returns the number of RTCP compounds that reached the server.
    fn run(&mut self, length: Duration) -> usize {
        let [ours, theirs] = ends();
        let (end, mut compounds) = (self.now + length, 0);
        while self.now < end {
            self.now += Duration::from_millis(5);
            for bytes in std::mem::take(&mut self.sent) {
                let received = self.server.handle_datagram(self.now, ours, &bytes);
                compounds += usize::from(matches!(received, Received::Rtcp(_)));
            }
            self.server.handle_timeout(self.now);
            let mut bytes = Vec::new();
            while self.server.poll_transmit(&mut bytes).is_some() {
                let datagram = Datagram {
                    from: theirs,
                    at: self.now,
                    bytes: &bytes,
                };
                self.update(|link, cx| link.handle_datagrams(cx, &[datagram]));
                bytes.clear();
            }
            self.update(PeerLink::handle_due);
        }
        compounds
    }
}

#[test]
fn ice_restart_by_the_server_keeps_the_connection() {
    let mut pair = TestPair::new();
    let first = pair.take_answer();
    pair.run(Duration::from_secs(3));
    assert_eq!(pair.server.state(), PeerState::Connected);
    // A renegotiation that leaves the transport unchanged.
    let offer = pair.offer();
    pair.update(|link, cx| link.answer(cx, &offer));
    assert_eq!(pair.take_answer(), first);
    assert_eq!(pair.recorder.counter(m::ICE_RESTARTS), 0);
    pair.server.restart_ice(pair.now);
    let offer = pair.offer();
    pair.update(|link, cx| link.answer(cx, &offer));
    assert_ne!(pair.take_answer(), first);
    assert_eq!(pair.recorder.counter(m::ICE_RESTARTS), 1);
    // Consent continues with the new credentials, long after that of the old ones would have
    // expired.
    pair.run(Duration::from_secs(60));
    assert_eq!(pair.server.state(), PeerState::Connected);
    assert_eq!(pair.client.outcome, None);
    pair.does(|client, _| {
        let peer = client.links[0].peer.as_mut().expect("it is there");
        assert_eq!(peer.state(), PeerState::Connected);
        let mut report = Vec::new();
        kit::media::rtcp::write_receiver_report(&mut report, 1, &[]);
        assert!(peer.send_rtcp(&report));
    });
    pair.update(PeerLink::flush);
    assert_eq!(pair.run(Duration::from_millis(20)), 1);
}

#[test]
fn unanswered_ice_restart_fails_the_client() {
    let mut pair = TestPair::new();
    pair.take_answer();
    pair.run(Duration::from_secs(3));
    pair.server.restart_ice(pair.now);
    let offer = pair.offer();
    pair.update(|link, cx| link.answer(cx, &offer));
    // The server's side is gone and sends nothing more.
    let end = pair.now + Duration::from_secs(60);
    while pair.now < end && pair.client.outcome.is_none() {
        pair.now += Duration::from_millis(50);
        pair.update(PeerLink::handle_due);
    }
    let Some(session::Outcome::Failed(failure)) = &pair.client.outcome else {
        panic!("{:?}", pair.client.outcome);
    };
    assert_eq!(failure.reason, "ice_failed");
}

#[test]
fn key_frames_are_requested_only_if_negotiated() {
    for (keys, requested) in [
        ("{}", 1),
        (r#"{"pli":false}"#, 1),
        (r#"{"pli":false,"fir":false}"#, 0),
    ] {
        let mut pair = TestPair::of(keys);
        pair.take_answer();
        pair.run(Duration::from_secs(3));
        for [high, low] in [[0, 1], 2000_u16.to_be_bytes()] {
            let mut packet = [0; 40];
            packet[..4].copy_from_slice(&[0x80, pair.payload_type(), high, low]);
            pair.takes(pair.now, &packet);
        }
        pair.client.links[0].nack_at = Some(pair.now);
        pair.does(|client, cx| client.links[0].send_nacks(cx));
        assert_eq!(pair.recorder.counter(m::PLIS_SENT), requested, "{keys}");
    }
}

#[test]
fn new_gaps_are_requested_at_once_in_all_streams() {
    let mut pair = TestPair::new();
    pair.take_answer();
    pair.run(Duration::from_secs(3));
    let sink = pair.client.links[0].sink.expect("it receives");
    let gap = |pair: &mut TestPair, sequence: u8| {
        let mut events = Vec::new();
        for ssrc in 0..100_u8 {
            let payload_type = pair.payload_type();
            let mut packet = [0; 40];
            packet[..4].copy_from_slice(&[0x80, payload_type, 0, sequence]);
            packet[11] = ssrc;
            events.extend(pair.takes(pair.now, &packet));
        }
        for event in events {
            pair.does(|client, cx| client.handle(cx, Input::Media { sink, event }));
        }
        let tracks = pair.sinks.get::<Tracks>(sink);
        tracks.record_requests(&mut pair.recorder);
        pair.recorder.counter(m::ASKED_PACKETS)
    };
    assert_eq!(gap(&mut pair, 1), 0);
    assert_eq!(gap(&mut pair, 3), 100);
    // The older gap is still open, and due again later.
    assert_eq!(gap(&mut pair, 5), 200);
}

/// Audio packets have no numbers if the server numbers only video.
#[test]
fn late_first_number_is_reported_at_once() {
    let mut pair = TestPair::of("{}");
    pair.take_answer();
    pair.run(Duration::from_secs(3));
    let mut packet = vec![0x80, pair.payload_type(), 0, 1];
    packet.resize(40, 0);
    pair.takes(pair.now, &packet);
    let next_feedback = |pair: &TestPair| {
        let due = pair.client.links[0].feedback_at.expect("it is agreed");
        due.since(pair.now)
    };
    pair.run(Duration::from_millis(200));
    pair.run(next_feedback(&pair));
    let rare = next_feedback(&pair);
    assert!(rare > Duration::from_millis(900), "{rare:?}");
    let extension = pair.extension(extension::TRANSPORT_CC);
    packet[0] |= 0x10;
    packet[3] = 2;
    packet[12..20].copy_from_slice(&[0xbe, 0xde, 0, 1, extension << 4 | 1, 0, 9, 0]);
    let event = pair.takes(pair.now, &packet);
    assert_eq!(event, Some(MediaEvent::FirstTransportNumber));
    let sink = pair.client.links[0].sink.expect("it receives");
    let event = MediaEvent::FirstTransportNumber;
    pair.does(|client, cx| client.handle(cx, Input::Media { sink, event }));
    assert_eq!(pair.recorder.counter(m::ARRIVALS_TOLD), 1);
    let often = next_feedback(&pair);
    assert!(often <= Duration::from_millis(100), "{often:?}");
    packet[3] = 3;
    packet[18] = 10;
    assert_eq!(pair.takes(pair.now, &packet), None);
}

#[test]
fn remb_is_sent_if_any_of_many_streams_is_received() {
    for active in [0, 1] {
        let mut pair = TestPair::new();
        pair.take_answer();
        pair.run(Duration::from_secs(3));
        // More streams than one batch of reports covers. Only the last one may still be received.
        let now = pair.now;
        for (ssrc, at) in (0..60u32)
            .map(|ssrc| (ssrc, now))
            .chain((0..active).map(|_| (59, now + Duration::from_secs(20))))
        {
            let mut packet = [0; 40];
            let sequence = u8::from(at > now);
            packet[..4].copy_from_slice(&[0x80, pair.payload_type(), 0, sequence]);
            packet[8..12].copy_from_slice(&ssrc.to_be_bytes());
            pair.takes(at, &packet);
        }
        pair.client.links[0].has_remb = true;
        for seconds in [1, 21] {
            pair.now = now + Duration::from_secs(seconds);
            let before = pair.recorder.counter(m::REMBS_SENT);
            pair.does(|client, cx| client.links[0].send_receiver_reports(cx));
            let sent = pair.recorder.counter(m::REMBS_SENT) - before;
            let is_active = seconds == 1 || active > 0;
            assert_eq!(sent, u64::from(is_active), "{active}");
        }
    }
}

#[test]
fn changed_fingerprint_of_the_server_fails_the_client() {
    let mut pair = TestPair::new();
    pair.take_answer();
    pair.run(Duration::from_secs(3));
    // Unchanged ICE credentials, and another certificate.
    let offer = pair.offer();
    let line = offer
        .lines()
        .find(|line| line.starts_with("a=fingerprint:"));
    let line = line.expect("it has one");
    let other = Certificate::generate(3).fingerprint().to_string();
    let offer = offer.replace(line, &format!("a=fingerprint:{other}"));
    pair.update(|link, cx| link.answer(cx, &offer));
    let Some(session::Outcome::Failed(failure)) = &pair.client.outcome else {
        panic!("{:?}", pair.client.outcome);
    };
    assert_eq!(failure.reason, "bad_sdp");
}

#[test]
fn only_feedback_awaits_datagrams_that_have_arrived() {
    let mut pair = TestPair::new();
    // Not connected yet: an answer may have arrived.
    assert!(pair.client.awaits_input(pair.now));
    pair.take_answer();
    pair.run(Duration::from_secs(3));
    pair.client.checks.next_at = None;
    let later = pair.now + Duration::from_secs(1);
    let link = &mut pair.client.links[0];
    link.peer = None;
    (link.nack_at, link.feedback_at, link.report_at) = (None, None, Some(later));
    assert_eq!(link.deadline(), Some(later));
    assert!(!pair.client.awaits_input(later));
    for what in 0..2 {
        let link = &mut pair.client.links[0];
        (link.nack_at, link.feedback_at) = match what {
            0 => (Some(later), None),
            _ => (None, Some(later)),
        };
        assert!(pair.client.awaits_input(later), "{what}");
        assert!(!pair.client.awaits_input(pair.now), "{what}");
    }
}

/// MediaMTX negotiates transport-wide sequence numbers and sends none.
#[test]
fn feedback_checks_are_rarer_without_numbers() {
    let mut pair = TestPair::new();
    pair.take_answer();
    let sink = pair.client.links[0].sink.expect("it receives");
    let payload_type = pair.payload_type();
    let next = |pair: &mut TestPair| {
        pair.client.links[0].feedback_at = Some(pair.now);
        pair.does(|client, cx| client.links[0].send_transport_feedback(cx));
        let at = pair.client.links[0].feedback_at.expect("it goes on");
        at.since(pair.now)
    };
    let often = Duration::from_millis(100);
    pair.sinks
        .get::<Tracks>(sink)
        .set_arrivals_extension(Some(3));
    assert_eq!(next(&mut pair), often, "nothing has come yet");
    let take = |pair: &mut TestPair, number: bool| {
        let mut bytes = vec![0x80 | u8::from(number) << 4, payload_type, 0, number.into()];
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 9]);
        if number {
            // Header extension of one word: element 3, with two bytes (RFC 8285, 4.2).
            bytes.extend([0xbe, 0xde, 0, 1, 0x31, 0, 7, 0]);
        }
        bytes.resize(200, 5);
        pair.takes(pair.now, &bytes);
    };
    take(&mut pair, false);
    assert_eq!(next(&mut pair), Duration::from_secs(1));
    take(&mut pair, true);
    assert_eq!(next(&mut pair), often, "now they come");
}

/// LiveKit accepts numbers for video only. It would count numbered audio as lost.
#[test]
fn only_sections_that_accept_numbers_are_numbered() {
    let mut pair = TestPair::new();
    let [ours, theirs] = ends();
    let text = r#"{"congestion":"follow","publish":{"bitrate":"500kbps","audio":true}}"#;
    let config: ClientConfig = serde_json::from_str(text).expect("it is one");
    let source = config.source().map(crate::config::with_limited_mtu);
    let source = source.map(|config| MediaSource::adaptive(&config, None));
    let source = source.expect("it has one").expect("it can be made");
    pair.client.setup_mut().config = config.into();
    pair.client.setup_mut().source = Some(Arc::new(source));
    pair.does(|client, cx| client.open_link(cx, PeerNumber(1), Direction::Send, None));
    pair.link = ChannelId(2);
    pair.update(|link, cx| link.opened(cx, ours));
    let offer = {
        let all = pair.described.lock().expect("nobody panics with it");
        SessionDescription::parse(all.last().expect("it offers")).expect("it is right")
    };
    let config = PeerConfig::new(Arc::new(Certificate::generate(4)), 4);
    let mut server = Peer::answerer(pair.now, &config);
    server.add_local_candidate(pair.now, theirs);
    let transport = offer.transport().expect("it is right");
    assert_eq!(server.set_remote(pair.now, &transport), Ok(()));
    let answer_config = AnswerConfig {
        extensions: vec![extension::TRANSPORT_CC.to_owned()],
        feedback: sdp::FeedbackTypes::default(),
        ..AnswerConfig::receive_all(1)
    };
    let mut answer = offer.answer(&answer_config, &server.local_transport());
    let is_audio = |section: &&mut sdp::MediaSection| section.kind == MediaKind::Audio;
    for section in answer.media.iter_mut().filter(is_audio) {
        section.extensions.clear();
    }
    let text = answer.to_string();
    pair.update(|link, cx| link.handle_answer(cx, &text));
    pair.server = server;
    pair.run(Duration::from_secs(3));
    let numbered = pair.client.links[1]
        .outgoing_media
        .numbered(&mut pair.flows);
    assert_eq!(numbered, [true, false]);
}
