//! Sessions with a scripted client: inputs and outputs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::{Recorder, Time};

use super::*;
use crate::codec::{Decoder, Item, Response, cseq};
use ::session::Handover;
use ::session::{
    ChannelError, ChannelId, CloseReason, Context, FlowId, Flows, Input, Open, Outcome, Output,
    Port, Sinks,
};
use kit::faults::FaultSet as _;
use kit::media::rtcp;
use kit::media::rtp::{RtpFlow, ServedStream};
use kit::reference::RunningServer as _;

mod destination;
mod publish;

const CONTROL: ChannelId = ChannelId(0);

/// A session of the server with a scripted client.
struct ScriptedClient {
    session: Box<dyn Session>,
    now: Time,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    decoder: Decoder,
    cseq: u32,
    responses: VecDeque<Response>,
    garbage: usize,
    reports: Vec<rtcp::Packet>,
    running: Vec<(FlowId, ChannelId, Option<u8>)>,
    opened: Vec<(ChannelId, Open)>,
    peers: Vec<(SocketAddr, SocketAddr)>,
    packets: u64,
    notes: Vec<&'static str>,
    served: Vec<ServedStream>,
    closed: Vec<ChannelId>,
    listens: Vec<String>,
    outcome: Option<Outcome>,
}

fn config() -> ServerConfig {
    ServerConfig {
        bitrate: measure::units::BitRate(200_000),
        length: Some(Duration::from_secs(7)),
        ..ServerConfig::default()
    }
}

fn with_faults(faults: &[&str]) -> ServerConfig {
    let mut config = config();
    for fault in faults {
        config.faults.add(fault).unwrap();
    }
    config
}

impl ScriptedClient {
    fn new(config: ServerConfig) -> ScriptedClient {
        ScriptedClient::with(&Server::new(config).unwrap(), 1)
    }

    /// Starts the session of this connection number on `server`.
    fn with(server: &Server, number: u64) -> ScriptedClient {
        let mut talk = ScriptedClient {
            session: server.session(number),
            now: Time::from_nanos(5),
            recorder: Recorder::new(server.catalogue()),
            sinks: Sinks::default(),
            flows: Flows::default(),
            decoder: Decoder::new(),
            cseq: 0,
            responses: VecDeque::new(),
            garbage: 0,
            reports: Vec::new(),
            running: Vec::new(),
            opened: Vec::new(),
            peers: Vec::new(),
            packets: 0,
            notes: Vec::new(),
            served: Vec::new(),
            closed: Vec::new(),
            listens: Vec::new(),
            outcome: None,
        };
        let due = talk.now;
        talk.input(Input::Start { due });
        talk.input(Input::Opened {
            channel: CONTROL,
            local: "127.0.0.1:8554".parse().unwrap(),
            remote: Some("127.0.0.2:40000".parse().unwrap()),
        });
        talk
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut ::session::Outbox::default(),
        };
        self.session.handle(&mut cx, input);
        for output in out {
            assert!(self.outcome.is_none(), "{output:?} after the end");
            self.output(output);
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Send {
                channel: CONTROL,
                bytes,
                ..
            } => {
                let (responses, garbage, reports) =
                    (&mut self.responses, &mut self.garbage, &mut self.reports);
                self.decoder
                    .feed(&bytes, |item| match item {
                        Item::Response(response) => responses.push_back(response),
                        Item::Garbage { bytes } => *garbage += bytes,
                        Item::Frame {
                            channel, payload, ..
                        } => {
                            assert_eq!(channel % 2, 1);
                            reports.extend(rtcp::packets(payload).map(Result::unwrap));
                        }
                        other => panic!("{other:?}"),
                    })
                    .unwrap();
            }
            Output::Send { port, bytes, .. } => {
                assert_eq!(port, Port::Control);
                self.reports
                    .extend(rtcp::packets(&bytes).map(Result::unwrap));
            }
            Output::Open { channel, open } => self.opened.push((channel, open)),
            Output::Peer { media, control, .. } => self.peers.push((media, control)),
            Output::Close { channel } => self.closed.push(channel),
            Output::StartFlow { flow, channel } => {
                let interleaved = self
                    .flows
                    .access_as(flow, |f: &mut RtpFlow| f.interleaved_channel());
                self.running.push((flow, channel, interleaved));
            }
            Output::StopFlow { flow } => self.running.retain(|running| running.0 != flow),
            Output::Note(note) => self.notes.push(note.kind),
            Output::Record(served) => {
                let served = served.downcast::<ServedStream>();
                self.served.push(*served.expect("nothing else is said"));
            }
            Output::Publish { .. } => {}
            Output::Subscribe { topic } => self.listens.push(topic),
            Output::Ended(outcome) => self.outcome = Some(outcome),
            other => panic!("{other:?}"),
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

    fn send(&mut self, line: &str, headers: &[&str]) {
        self.cseq += 1;
        let headers: String = headers
            .iter()
            .map(|header| format!("{header}\r\n"))
            .collect();
        let text = format!("{line} RTSP/1.0\r\nCSeq: {}\r\n{headers}\r\n", self.cseq);
        self.bytes(text.as_bytes());
    }

    fn ask(&mut self, line: &str, headers: &[&str]) -> Response {
        self.send(line, headers);
        self.response()
    }

    fn response(&mut self) -> Response {
        let response = self.responses.pop_front().expect("an answer");
        assert_eq!(cseq(&response.headers), Some(self.cseq));
        response
    }

    fn status(&mut self, line: &str, headers: &[&str]) -> u16 {
        self.ask(line, headers).status
    }

    /// Advances time to `until`: flows send, deadlines are delivered.
    fn run_until(&mut self, until: Time) {
        loop {
            let flows = self
                .running
                .iter()
                .map(|running| (self.flows.access(running.0, |f| f.next_due()), running.0))
                .collect::<Vec<_>>();
            if let Some((_, flow)) = flows.iter().find(|(due, _)| due.is_none()) {
                self.running.retain(|running| running.0 != *flow);
                self.input(Input::FlowEnded { flow: *flow });
                continue;
            }
            let next = flows.iter().filter_map(|(due, _)| *due);
            let Some(next) = next.chain(self.session.deadline()).min() else {
                return;
            };
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            for (_, flow) in flows {
                while let Some(packet) = self.flows.access(flow, |f| f.next_packet(self.now)) {
                    let left = Some(Handover::at(self.now));
                    self.flows.access(flow, |f| f.packet_sent(packet.tag, left));
                    self.packets += 1;
                }
            }
            if self
                .session
                .deadline()
                .is_some_and(|deadline| deadline <= self.now)
            {
                self.input(Input::Deadline);
            }
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.run_until(self.now + Duration::from_secs(seconds));
    }

    /// Sends SETUP over TCP. Returns the header that names the session.
    fn set_up_tcp(&mut self) -> String {
        let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
        let response = self.ask("SETUP rtsp://h/a/track1", &[transport]);
        assert_eq!(response.status, 200);
        let session = response.headers.get("Session").unwrap();
        format!("Session: {}", session.split(';').next().unwrap())
    }
}

#[test]
fn udp_session_plays_to_the_end() {
    let mut talk = ScriptedClient::new(config());
    let options = talk.ask("OPTIONS *", &[]);
    assert!(options.headers.get("Public").unwrap().contains("SETUP"));
    let describe = talk.ask("DESCRIBE rtsp://h/a", &["Accept: application/sdp"]);
    assert_eq!(describe.headers.get("Content-Base"), Some("rtsp://h/a/"));
    let sdp = String::from_utf8(describe.body).unwrap();
    for part in [
        "a=control:*\r\n",
        "a=range:npt=0.000-7.000\r\n",
        "m=video 0 RTP/AVP 96\r\n",
        "a=rtpmap:96 H264/90000\r\n",
        "packetization-mode=1",
        "sprop-parameter-sets=Z0",
        "a=control:track1\r\n",
        "b=AS:200\r\n",
    ] {
        assert!(sdp.contains(part), "{part} in {sdp}");
    }
    talk.send(
        "SETUP rtsp://h/a/track1",
        &["Transport: RTP/AVP;multicast, RTP/AVP;unicast;client_port=5000-5001"],
    );
    assert!(talk.responses.is_empty());
    let (channel, open) = talk.opened[0].clone();
    assert!(matches!(
        open,
        Open::UdpPair {
            shared: true,
            sink: None,
            ..
        }
    ));
    talk.input(Input::Opened {
        channel,
        local: "127.0.0.1:30000".parse().unwrap(),
        remote: None,
    });
    let setup = talk.response();
    assert_eq!(
        talk.peers,
        [(
            "127.0.0.2:5000".parse().unwrap(),
            "127.0.0.2:5001".parse().unwrap()
        )]
    );
    let transport = setup.headers.get("Transport").unwrap();
    for part in [
        "client_port=5000-5001",
        "server_port=30000-30001",
        "source=127.0.0.1",
        "ssrc=",
    ] {
        assert!(transport.contains(part), "{transport}");
    }
    let session = setup.headers.get("Session").unwrap();
    assert!(session.ends_with(";timeout=60"), "{session}");
    let session = format!("Session: {}", session.split(';').next().unwrap());
    let play = talk.ask("PLAY rtsp://h/a/", &[&session, "Range: npt=0.000-"]);
    assert_eq!(play.headers.get("Range"), Some("npt=0.000-7.000"));
    let info = play.headers.get("RTP-Info").unwrap();
    assert!(info.starts_with("url=rtsp://h/a/track1;seq="), "{info}");
    assert_eq!(talk.running[0].1, channel);
    assert_eq!(talk.running[0].2, None);
    talk.wait(8);
    // A report after 5 s, and one with BYE at the end.
    let counts: Vec<u32> = talk
        .reports
        .iter()
        .filter_map(|packet| match packet {
            rtcp::Packet::SenderReport { info, .. } => Some(info.packet_count),
            _ => None,
        })
        .collect();
    assert_eq!(counts.len(), 2);
    assert_eq!(u64::from(counts[1]), talk.packets);
    assert!(matches!(
        talk.reports.last(),
        Some(rtcp::Packet::Bye { .. })
    ));
    assert_eq!(talk.status("TEARDOWN rtsp://h/a/", &[&session]), 200);
    let served = &talk.served[0];
    assert_eq!(served.sent, talk.packets);
    assert_eq!(served.expected, talk.packets);
    assert!(served.ended && served.base_told);
    assert_eq!(served.url, "rtsp://h/a/track1");
    assert!(info.contains(&format!("seq={};", served.first_seq)));
    assert!(
        served.payload_bytes.abs_diff(7 * 25_000) < 2000,
        "{served:?}"
    );
    assert_eq!(talk.closed, [channel]);
    talk.input(Input::Closed {
        channel: CONTROL,
        reason: CloseReason::End,
    });
    assert_eq!(talk.outcome, Some(Outcome::Completed));
}

#[test]
fn interleaved_media_can_be_paused_separately() {
    let mut talk = ScriptedClient::new(ServerConfig {
        audio: true,
        length: None,
        ..config()
    });
    let sdp = talk.ask("DESCRIBE rtsp://h/a", &[]).body;
    assert!(
        String::from_utf8(sdp)
            .unwrap()
            .contains("m=audio 0 RTP/AVP 0\r\nb=AS:64\r\na=rtpmap:0 PCMU/8000")
    );
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    assert_eq!(talk.status("SETUP rtsp://h/a", &[transport]), 459);
    let session = talk.set_up_tcp();
    // Channels that are in use are replaced by others.
    let second = talk.ask("SETUP rtsp://h/a/track2", &[transport, &session]);
    assert!(
        second
            .headers
            .get("Transport")
            .unwrap()
            .contains("interleaved=2-3")
    );
    let play = talk.ask("PLAY rtsp://h/a", &[&session]);
    assert_eq!(play.headers.get("Range"), Some("npt=now-"));
    assert!(
        play.headers
            .get("RTP-Info")
            .unwrap()
            .contains("track1;seq=")
    );
    assert!(
        play.headers
            .get("RTP-Info")
            .unwrap()
            .contains(",url=rtsp://h/a/track2;seq=")
    );
    assert_eq!(talk.running.len(), 2);
    assert_eq!(talk.running[1].2, Some(2));
    talk.wait(2);
    assert_eq!(talk.status("PAUSE rtsp://h/a/track2", &[&session]), 200);
    assert_eq!(talk.running.len(), 1);
    assert_eq!(talk.status("PAUSE rtsp://h/a/track2", &[&session]), 455);
    talk.wait(2);
    let again = talk.ask("PLAY rtsp://h/a/track2", &[&session]);
    let info = again.headers.get("RTP-Info").unwrap();
    assert!(info.starts_with("url=rtsp://h/a/track2;seq="), "{info}");
    talk.wait(1);
    assert_eq!(talk.status("TEARDOWN rtsp://h/a/track2", &[&session]), 200);
    assert_eq!(talk.served.len(), 1);
    // 100 packets in two seconds, none during the pause, 50 in the last second.
    assert!(
        talk.served[0].sent.abs_diff(150) <= 2,
        "{:?}",
        talk.served[0]
    );
    assert_eq!(talk.served[0].lost, 0);
    talk.input(Input::Stop { until: Time::NEVER });
    assert_eq!(talk.served.len(), 2);
    assert_eq!(talk.outcome, Some(Outcome::Stopped));
    assert!(matches!(
        talk.reports.last(),
        Some(rtcp::Packet::Bye { .. })
    ));
}

#[test]
fn invalid_requests_get_their_status() {
    let mut talk = ScriptedClient::new(ServerConfig {
        streams: Some(12),
        transports: Transports::Tcp,
        ..config()
    });
    let tcp = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let cases: [(&str, &[&str], u16); 22] = [
        ("DESCRIBE rtsp://h/stream12", &[], 200),
        ("DESCRIBE rtsp://h/stream13", &[], 404),
        ("DESCRIBE rtsp://h/stream0", &[], 404),
        ("DESCRIBE rtsp://h/stream01", &[], 404),
        ("DESCRIBE rtsp://h/stream", &[], 404),
        ("DESCRIBE rtsp://h/", &[], 404),
        ("DESCRIBE *", &[], 400),
        ("DESCRIBE rtsp://h/stream1", &["Accept: text/html"], 406),
        ("DESCRIBE rtsp://h/stream1", &["Require: x"], 551),
        ("SETUP rtsp://h/stream1/track2", &[tcp], 404),
        ("SETUP rtsp://h/stream1/track1", &[], 400),
        (
            "SETUP rtsp://h/stream1/track1",
            &["Transport: RTP/AVP;unicast;client_port=4-5"],
            461,
        ),
        (
            "SETUP rtsp://h/stream1/track1",
            &["Transport: RTP/SAVP/TCP;interleaved=0-1"],
            461,
        ),
        ("SETUP rtsp://h/stream1/track1", &[tcp, "Session: 77"], 454),
        ("PLAY rtsp://h/stream1", &[], 455),
        ("PLAY rtsp://h/stream1", &["Session: 77"], 454),
        ("TEARDOWN rtsp://h/stream1", &["Session: 77"], 454),
        ("RECORD rtsp://h/stream1", &[], 455),
        ("ANNOUNCE rtsp://h/stream1", &[], 400),
        ("REDIRECT rtsp://h/stream1", &[], 405),
        ("BREW rtsp://h/stream1", &[], 501),
        ("GET_PARAMETER rtsp://h/stream1", &["Session: 77"], 454),
    ];
    for (line, headers, status) in cases {
        assert_eq!(talk.status(line, headers), status, "{line} {headers:?}");
    }
    talk.bytes(b"OPTIONS * RTSP/1.0\r\n\r\n");
    assert_eq!(talk.responses.pop_front().unwrap().status, 400);
    let setup = talk.ask("SETUP rtsp://h/stream1/track1", &[tcp]);
    let session = setup
        .headers
        .get("Session")
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let session = &format!("Session: {session}");
    assert_eq!(talk.status("SETUP rtsp://h/stream1/track1", &[tcp]), 454);
    assert_eq!(
        talk.status("SETUP rtsp://h/stream2/track1", &[tcp, session]),
        455
    );
    assert_eq!(talk.status("PLAY rtsp://h/stream1", &[]), 454);
    assert_eq!(talk.status("PLAY rtsp://h/stream2", &[session]), 404);
    assert_eq!(
        talk.status("PLAY rtsp://h/stream1", &[session, "Range: npt=7-"]),
        457
    );
    assert_eq!(
        talk.status("PLAY rtsp://h/stream1", &[session, "Range: clock=1-2"]),
        501
    );
    assert_eq!(talk.status("PAUSE rtsp://h/stream1", &[session]), 455);
    assert_eq!(talk.status("PLAY rtsp://h/stream1", &[session]), 200);
    assert_eq!(talk.status("PLAY rtsp://h/stream1", &[session]), 200);
    assert_eq!(
        talk.status("SETUP rtsp://h/stream1/track1", &[tcp, session]),
        455
    );
    assert_eq!(
        talk.status("GET_PARAMETER rtsp://h/stream1", &[session]),
        200
    );
    let body = ["Content-Length: 4", session];
    talk.send("GET_PARAMETER rtsp://h/stream1", &body);
    talk.bytes(b"loss");
    assert_eq!(talk.response().status, 451);
    assert_eq!(talk.running.len(), 1);
}

#[test]
fn requests_wait_for_a_setup_that_opens_ports() {
    let mut talk = ScriptedClient::new(config());
    talk.send(
        "SETUP rtsp://h/a/track1",
        &["Transport: RTP/AVP;unicast;client_port=5000-5001"],
    );
    talk.cseq += 1;
    talk.bytes(b"OPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n");
    assert!(talk.responses.is_empty());
    let channel = talk.opened[0].0;
    talk.input(Input::OpenFailed {
        channel,
        error: ChannelError::NoPorts,
    });
    assert_eq!(talk.responses.pop_front().unwrap().status, 503);
    assert_eq!(talk.response().status, 200);
    assert_eq!(talk.notes, ["no_ports"]);
}

#[test]
fn only_a_silent_client_times_out() {
    let mut talk = ScriptedClient::new(ServerConfig {
        session_timeout: Duration::from_secs(3),
        length: None,
        ..config()
    });
    let session = talk.set_up_tcp();
    assert_eq!(talk.status("PLAY rtsp://h/a", &[&session]), 200);
    for _ in 0..4 {
        talk.wait(2);
        assert_eq!(talk.status("GET_PARAMETER rtsp://h/a", &[&session]), 200);
    }
    talk.wait(2);
    talk.bytes(&[b'$', 1, 0, 8, 0x80, 201, 0, 1, 0, 0, 0, 9]);
    talk.wait(2);
    assert_eq!(talk.outcome, None);
    talk.wait(2);
    assert_eq!(talk.notes, ["session_timed_out"]);
    assert!(
        matches!(&talk.outcome, Some(Outcome::Failed(failure)) if failure.reason == "session_timed_out")
    );
    assert_eq!(talk.served.len(), 1);
    assert_eq!(talk.closed, [CONTROL]);
}

#[test]
fn configured_credentials_are_required() {
    let mut talk = ScriptedClient::new(ServerConfig {
        user: Some("ann".to_owned()),
        password: "x".to_owned(),
        auth: AuthScheme::Any,
        ..config()
    });
    assert_eq!(talk.status("OPTIONS *", &[]), 200);
    let refusal = talk.ask("DESCRIBE rtsp://h/a", &[]);
    assert_eq!(refusal.status, 401);
    assert_eq!(refusal.headers.all("WWW-Authenticate").count(), 3);
    // ann:x and ann:y
    assert_eq!(
        talk.status("DESCRIBE rtsp://h/a", &["Authorization: Basic YW5uOng="]),
        200
    );
    assert_eq!(
        talk.status("DESCRIBE rtsp://h/a", &["Authorization: Basic YW5uOnk="]),
        401
    );
}

#[test]
fn session_faults_are_injected_and_noted() {
    let mut talk = ScriptedClient::new(with_faults(&[
        "refuse=setup:461",
        "silent=pause",
        "slow=options:2s",
        "content-length",
        "garbage=100%",
        "cut=teardown",
    ]));
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    assert_eq!(talk.status("SETUP rtsp://h/a/track1", &[transport]), 461);
    assert!((1..=64).contains(&talk.garbage), "{}", talk.garbage);
    talk.send("PAUSE rtsp://h/a", &[]);
    assert!(talk.responses.is_empty());
    talk.send("OPTIONS *", &[]);
    talk.wait(1);
    assert!(talk.responses.is_empty());
    talk.wait(2);
    assert_eq!(talk.response().status, 200);
    talk.send("TEARDOWN rtsp://h/a", &[]);
    assert!(
        matches!(&talk.outcome, Some(Outcome::Failed(failure)) if failure.reason == "fault_cut")
    );
    for kind in [
        "fault_refuse",
        "fault_garbage",
        "fault_silent",
        "fault_slow",
        "fault_cut",
    ] {
        assert!(talk.notes.contains(&kind), "{kind}: {:?}", talk.notes);
    }
}

#[test]
fn content_length_fault_is_injected() {
    let mut talk = ScriptedClient::new(with_faults(&["content-length"]));
    talk.send("DESCRIBE rtsp://h/a", &[]);
    assert_eq!(talk.notes, ["fault_content_length"]);
}

#[test]
fn cut_and_stop_faults_end_playback() {
    let mut talk = ScriptedClient::new(with_faults(&["cut=2s", "stop=1s"]));
    let session = talk.set_up_tcp();
    assert_eq!(talk.status("PLAY rtsp://h/a", &[&session]), 200);
    talk.wait(3);
    assert_eq!(talk.notes, ["fault_stop", "fault_cut"]);
    assert!(talk.reports.is_empty());
    assert!(!talk.served[0].ended);
    assert_eq!(talk.closed, [CONTROL]);
}

#[test]
fn hostile_bytes_do_no_harm() {
    let mut talk = ScriptedClient::new(config());
    talk.bytes(&[b'A'; 50_000]);
    let mut talk = ScriptedClient::new(config());
    talk.send(
        "SETUP rtsp://h/a/track1",
        &["Transport: RTP/AVP;unicast;client_port=5000-5001"],
    );
    talk.bytes(
        b"OPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n"
            .repeat(1000)
            .as_slice(),
    );
    assert!(
        matches!(&talk.outcome, Some(Outcome::Failed(failure)) if failure.reason == "too_many_requests")
    );
    assert_eq!(talk.closed.len(), 2);
}

#[test]
fn floods_end_their_session() {
    for (text, reason) in [
        ("PLAY", "garbage"),
        ("P * RTSP/1.0\n\n", "too_many_requests"),
        ("RTSP/1.0 200\n\n", "too_many_requests"),
    ] {
        let mut talk = ScriptedClient::new(config());
        talk.bytes(text.repeat(256 * 1024 / text.len()).as_bytes());
        assert!(
            matches!(&talk.outcome, Some(Outcome::Failed(failure)) if failure.reason == reason),
            "{text}: {:?}",
            talk.outcome
        );
        assert!(talk.responses.len() <= 300, "{}", talk.responses.len());
    }
}

#[test]
fn trickling_bytes_do_not_keep_a_session_alive() {
    let timeout = Duration::from_secs(3);
    let mut talk = ScriptedClient::new(ServerConfig {
        session_timeout: timeout,
        ..config()
    });
    let mut request = b"OPTIONS rtsp://h/a RTSP/1.0\r\nX: "
        .iter()
        .chain(std::iter::repeat(&b'y'));
    for _ in 0..2 {
        talk.bytes(&[*request.next().unwrap()]);
        assert_eq!(talk.outcome, None);
        talk.wait(1);
    }
    talk.bytes(&[*request.next().unwrap()]);
    talk.wait(2);
    assert!(
        matches!(&talk.outcome, Some(Outcome::Failed(failure)) if failure.reason == "session_timed_out")
    );
}

#[test]
fn invalid_settings_are_rejected_with_a_reason() {
    let error = |config| Server::new(config).unwrap_err();
    let low = ServerConfig {
        bitrate: measure::units::BitRate(1000),
        ..config()
    };
    assert!(error(low).contains("too low"));
    let timeout = ServerConfig {
        session_timeout: Duration::from_millis(10),
        ..config()
    };
    assert!(error(timeout).contains("timeout"));
}

#[test]
fn range_plays_from_its_key_frame_to_its_end() {
    let mut talk = ScriptedClient::new(config());
    let session = talk.set_up_tcp();
    let play = |talk: &mut ScriptedClient, range: &str| {
        let answer = talk.ask("PLAY rtsp://h/a", &[&session, range]);
        let range = answer.headers.get("Range").map(str::to_owned);
        (answer.status, range)
    };
    let range = |text: &str| (200, Some(text.to_owned()));
    assert_eq!(
        play(&mut talk, "Range: npt=2.5-3.5"),
        range("npt=2.000-3.500")
    );
    talk.wait(3);
    // At the end of a range, no BYE is sent, and another range may follow.
    assert_eq!(talk.running.len(), 0);
    assert!(
        !talk
            .reports
            .iter()
            .any(|report| matches!(report, rtcp::Packet::Bye { .. }))
    );
    assert_eq!(talk.status("PLAY rtsp://h/a", &[&session]), 457);
    assert_eq!(play(&mut talk, "Range: npt=5-4"), (457, None));
    assert_eq!(play(&mut talk, "Range: npt=4-"), range("npt=4.000-7.000"));
    talk.wait(1);
    // Also during playback.
    assert_eq!(play(&mut talk, "Range: npt=0-99"), range("npt=0.000-7.000"));
    assert_eq!(talk.running.len(), 1);
    assert_eq!(talk.status("PAUSE rtsp://h/a", &[&session]), 200);
    // Live media is only available at its current position.
    let mut talk = ScriptedClient::new(ServerConfig {
        length: None,
        ..config()
    });
    let session = talk.set_up_tcp();
    for (range, status) in [("Range: npt=5-", 457), ("Range: npt=now-", 200)] {
        assert_eq!(talk.status("PLAY rtsp://h/a", &[&session, range]), status);
    }
}
