//! The HTTP endpoints and the UDP port of the WebRTC server, which receive anything from anybody.

use std::cell::RefCell;
use std::collections::VecDeque;

use kit::reference::RunningServer;
use measure::{Recorder, Time};
use session::{
    ChannelId, Context, Datagram, Endpoint, Flows, Input as Event, Outbox, Output, Route, Sinks,
};
use webrtc::sdp::SessionDescription;
use webrtc::server::{Server, ServerConfig};

use crate::input::Input;

const CHANNEL: ChannelId = ChannelId(0);

/// Maximum number of sessions of the server.
const SESSIONS: usize = 50;

thread_local! {
    static SERVER: RefCell<Option<(Server, Box<dyn Endpoint>)>> = const { RefCell::new(None) };
}

/// Checks that each request gets a response or waits for more bytes, and that an accepted offer
/// gets a valid description. A stranger's datagram starts no session and gets no response.
pub(crate) fn server(bytes: &[u8]) {
    SERVER.with_borrow_mut(|server_and_endpoint| {
        let (server, endpoint) = server_and_endpoint.get_or_insert_with(|| {
            let config = ServerConfig {
                sessions_max: SESSIONS,
                ..ServerConfig::default()
            };
            let server = Server::new(config).expect("its media can be made");
            let endpoint = server.endpoint(0);
            (server, endpoint)
        });
        let mut input = Input::new(bytes);
        match input.byte() & 3 {
            0 => {
                respond(server, input.rest());
            }
            1 => posted(server, "/whep/a", input.rest()),
            2 => posted(server, "/whip/a", input.rest()),
            _ => {
                while !input.is_empty() {
                    stranger_datagram(&mut **endpoint, u16::from(input.byte()), input.piece());
                }
            }
        }
    });
}

fn posted(server: &Server, path: &str, sdp: &[u8]) {
    let length = sdp.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n"
    );
    let answer = respond(server, &[head.as_bytes(), sdp].concat());
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .expect("each offer gets a response");
    if head.starts_with("HTTP/1.1 201 ") {
        let read = SessionDescription::parse(body).expect("the answer is valid");
        assert!(read.transport().is_ok() && read.ice_lite);
        let id = head
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        let id = id.expect("the response has the session's location");
        // This frees the session for the next input.
        let deleted = respond(server, format!("DELETE {id} HTTP/1.1\r\n\r\n").as_bytes());
        assert!(deleted.starts_with("HTTP/1.1 200 "));
    }
}

/// Returns the response to a text on a new connection.
fn respond(server: &Server, text: &[u8]) -> String {
    let mut session = server.session();
    let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
    let (mut sinks, mut flows) = (Sinks::default(), Flows::default());
    let mut recorder = Recorder::new(server.catalogue());
    let now = Time::from_nanos(1_000_000_000);
    let local = ([10, 0, 0, 2], 8889).into();
    let opened = Event::Opened {
        channel: CHANNEL,
        local,
        remote: None,
    };
    let bytes = Event::Bytes {
        channel: CHANNEL,
        bytes: text,
        at: now,
        runs: &[],
    };
    let mut answer = Vec::new();
    for event in [opened, bytes] {
        let mut cx = Context {
            now,
            recorder: &mut recorder,
            sinks: &mut sinks,
            flows: &mut flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        session.handle(&mut cx, event);
        for output in out.drain(..) {
            if let Output::Send { bytes, .. } = output {
                answer.extend(bytes);
            }
        }
    }
    // Responses on a WebSocket are in frames.
    String::from_utf8_lossy(&answer).into_owned()
}

fn stranger_datagram(endpoint: &mut dyn Endpoint, port: u16, bytes: &[u8]) {
    let now = Time::from_nanos(1_000_000_000);
    let datagram = Datagram {
        from: ([10, 0, 0, 9], port).into(),
        at: now,
        bytes,
    };
    let mut answer = Vec::new();
    let route = endpoint.route(now, &datagram, true, &mut answer);
    assert!(matches!(route, Route::Discard) && answer.is_empty());
}
