//! A WebRTC client whose signalling server sends anything.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kit::websocket::{self, ServerHandshake};
use measure::{Recorder, Time};
use protocols::WEBRTC_PROTOCOL;
use session::{
    ChannelError, ChannelId, CloseReason, Context, Flows, Input as Event, Open, Outbox, Output,
    Session, Sinks,
};
use webrtc::certificate::Certificate;
use webrtc::client::Client;
use webrtc::config::ClientConfig;

use crate::input::Input;

/// URLs of a room in which the client publishes nothing, of a mount point, of a room over HTTP, and
/// of WHEP.
const URLS: [&str; 4] = [
    "janus+ws://10.0.0.1:8188/videoroom/1234",
    "janus+ws://10.0.0.1:8188/streaming/1",
    "janus+http://10.0.0.1:8088/janus/videoroom/1234",
    "whep+http://10.0.0.1:8889/live/whep",
];

/// Maximum number of sockets. Further ones fail to open.
const SOCKETS: usize = 64;

/// Maximum response of a client to one input, in bytes: Janus may require requests for all streams
/// of a room.
const SENT_MAX: usize = 64 * 1024;

struct ClientUnderTest {
    client: Client,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    now: Time,
    /// Channels that the client asked for and that are not open yet, with `true` for UDP.
    requested: VecDeque<(ChannelId, bool)>,
    sockets: usize,
    /// The signalling connection.
    signalling: Option<ChannelId>,
    /// Bytes that the client sent on the signalling connection.
    sent: Vec<u8>,
    ended: bool,
}

impl ClientUnderTest {
    fn handle(&mut self, event: Event<'_>) {
        if self.ended {
            return;
        }
        let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        self.client.handle(&mut cx, event);
        let before = self.sent.len();
        for output in out {
            match output {
                Output::Open { channel, open } => {
                    let udp = matches!(open, Open::Udp { .. });
                    self.requested.push_back((channel, udp));
                }
                Output::Send { channel, bytes, .. } if self.signalling == Some(channel) => {
                    self.sent.extend(bytes);
                }
                Output::Close { channel } if self.signalling == Some(channel) => {
                    self.signalling = None;
                }
                Output::Ended(_) => self.ended = true,
                _ => {}
            }
        }
        assert!(self.sent.len() - before <= SENT_MAX);
    }

    /// Opens the requested channels. Returns `true` if there is a new signalling connection.
    fn open(&mut self) -> bool {
        let mut new = false;
        while let Some((channel, udp)) = self.requested.pop_front() {
            self.sockets += 1;
            if self.sockets > SOCKETS {
                let error = ChannelError::Refused;
                self.handle(Event::OpenFailed { channel, error });
                continue;
            }
            if !udp {
                (self.signalling, new) = (Some(channel), true);
                self.sent.clear();
            }
            let local = ([10, 0, 0, 2], 4000 + self.sockets as u16).into();
            self.handle(Event::Opened {
                channel,
                local,
                remote: None,
            });
        }
        new
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(channel) = self.signalling {
            self.handle(Event::Bytes {
                channel,
                bytes,
                at: self.now,
                runs: &[],
            });
        }
    }

    /// Accepts the client's WebSocket upgrade, if it sent one.
    fn accept(&mut self) {
        let mut acceptance = ServerHandshake::new(&["janus-protocol"]);
        let sent = std::mem::take(&mut self.sent);
        if let Ok(Some(answer)) = acceptance.read_request(&mut &sent[..]) {
            self.bytes(&answer);
        }
    }
}

/// Checks that the client ends or continues, sends little, and ends on request.
pub(crate) fn client(bytes: &[u8]) {
    static CERTIFICATE: OnceLock<Arc<Certificate>> = OnceLock::new();
    let certificate = CERTIFICATE.get_or_init(|| Arc::new(Certificate::generate(1)));
    let mut input = Input::new(bytes);
    let kind = usize::from(input.byte() & 3);
    let config = ClientConfig::default();
    let client = Client::new(config, URLS[kind], 1, certificate.clone()).expect("a URL");
    let mut played = ClientUnderTest {
        client,
        recorder: Recorder::new(WEBRTC_PROTOCOL.catalogue),
        sinks: Sinks::default(),
        flows: Flows::default(),
        now: Time::from_nanos(1_000_000_000),
        requested: VecDeque::new(),
        sockets: 0,
        signalling: None,
        sent: Vec::new(),
        ended: false,
    };
    played.handle(Event::Start { due: played.now });
    let mut lines = input.rest().split(|&byte| byte == b'\n');
    while !played.ended {
        if played.open() && kind < 2 {
            played.accept();
            played.open();
        }
        let Some(line) = lines.next() else { break };
        match line {
            // Time passes, or the connection is closed.
            [b'+', rest @ ..] => {
                let seconds = rest.first().copied().unwrap_or(1);
                played.now += Duration::from_secs(u64::from(seconds % 64));
                while let Some(due) = played.client.deadline()
                    && due <= played.now
                    && !played.ended
                {
                    played.handle(Event::Deadline);
                    if played.client.deadline() == Some(due) {
                        break;
                    }
                }
            }
            [b'-', ..] => {
                if let Some(channel) = played.signalling.take() {
                    played.handle(Event::Closed {
                        channel,
                        reason: CloseReason::End,
                    });
                }
            }
            text if kind < 2 => {
                let mut frame = Vec::new();
                websocket::write_message(websocket::TEXT, text, None, &mut frame);
                played.bytes(&frame);
            }
            text => {
                let length = text.len();
                let head =
                    format!("HTTP/1.1 201 x\r\nLocation: /a\r\nContent-Length: {length}\r\n\r\n");
                // The input may contain its own head.
                match text.starts_with(b"HTTP/") {
                    true => {
                        let response = String::from_utf8_lossy(text).replace('|', "\r\n");
                        played.bytes(response.as_bytes());
                    }
                    false => played.bytes(&[head.as_bytes(), text].concat()),
                }
            }
        }
    }
    played.now += Duration::from_secs(1);
    played.handle(Event::Stop { until: Time::ZERO });
    played.handle(Event::Deadline);
    assert!(played.ended, "the client ends on request");
}
