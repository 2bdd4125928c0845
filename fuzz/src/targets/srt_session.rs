//! SRT: a client whose server sends anything, and a server that receives anything from anybody.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use measure::{Recorder, Time};
use protocols::SRT_PROTOCOL;
use session::{
    ChannelId, Context, Datagram, Flows, Input as Event, Outbox, Output, Route, Session, Sinks,
};
use srt::client::Client;
use srt::config::ClientConfig;
use srt::handshake::{HandshakeSettings, Listener, ListenerConfig, ListenerResult};
use srt::seq::{SeqNumber, SocketClock};
use srt::server::{Server, ServerConfig};

use crate::input::Input;

const CHANNEL: ChannelId = ChannelId(0);

/// A session with what its context needs.
struct SessionUnderTest<S> {
    session: S,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    now: Time,
}

impl<S: Session> SessionUnderTest<S> {
    fn new(session: S) -> SessionUnderTest<S> {
        SessionUnderTest {
            session,
            recorder: Recorder::new(SRT_PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
            now: Time::from_nanos(1_000_000_000),
        }
    }

    fn handle(&mut self, event: Event<'_>) -> (Vec<Vec<u8>>, bool) {
        let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        self.session.handle(&mut cx, event);
        let (mut sent, mut ended) = (Vec::new(), false);
        for output in &out {
            match output {
                Output::Transmit(transmit) => {
                    let bytes = outbox.bytes(transmit);
                    sent.extend(bytes.chunks(transmit.segment_size).map(<[u8]>::to_vec));
                }
                Output::Ended(_) => ended = true,
                _ => {}
            }
        }
        (sent, ended)
    }
}

/// Returns the next datagram. If its control byte says so, it is addressed to `socket`.
fn datagram(input: &mut Input<'_>, now: &mut Time, socket: u32) -> Vec<u8> {
    *now += Duration::from_millis(u64::from(input.byte()));
    let is_addressed = input.byte() & 1 != 0;
    let mut bytes = input.piece().to_vec();
    if is_addressed && let Some(field) = bytes.get_mut(12..16) {
        field.copy_from_slice(&socket.to_be_bytes());
    }
    bytes
}

/// Checks that client and server end or continue, and send little in response.
pub(crate) fn session(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() & 3 {
        0 => client(&mut input, false),
        2 => client(&mut input, true),
        _ => server(&mut input),
    }
}

fn client(input: &mut Input<'_>, messages: bool) {
    let config = ClientConfig {
        messages,
        ..ClientConfig::default()
    };
    let client = Client::new(config, "srt://10.0.0.1:9000", 1).expect("a URL");
    let mut client = SessionUnderTest::new(client);
    let from = "10.0.0.1:9000".parse().expect("an address");
    let clock = SocketClock::new(Time::ZERO);
    let listener = Listener::new(ListenerConfig {
        secret: 1,
        clock,
        advertised_key: None,
    });
    client.handle(Event::Start { due: client.now });
    let local = "10.0.0.2:4000".parse().expect("an address");
    let (mut sent, _) = client.handle(Event::Opened {
        channel: CHANNEL,
        local,
        remote: Some(from),
    });
    let mut socket = 0;
    for _ in 0..2 {
        let hello = sent.pop().expect("the client sends a handshake");
        let mut answer = Vec::new();
        if let ListenerResult::Request(request) =
            listener.handle(local, &hello, client.now, &mut answer)
        {
            socket = request.peer_socket_id();
            let settings = HandshakeSettings::live(8, SeqNumber::new(0), clock, local.ip(), 1);
            let settings = if messages {
                settings.messages()
            } else {
                settings
            };
            request
                .accept(&settings, client.now, &mut answer)
                .expect("the settings match");
        }
        let datagrams = [Datagram {
            from,
            at: client.now,
            bytes: &answer,
        }];
        sent = client
            .handle(Event::Datagrams {
                channel: CHANNEL,
                datagrams: &datagrams,
            })
            .0;
    }
    while !input.is_empty() {
        let mut now = client.now;
        let bytes = datagram(input, &mut now, socket);
        client.now = now;
        let datagrams = [Datagram {
            from,
            at: now,
            bytes: &bytes,
        }];
        let (sent, ended) = client.handle(Event::Datagrams {
            channel: CHANNEL,
            datagrams: &datagrams,
        });
        assert!(sent.len() <= 4 && sent.iter().all(|sent| sent.len() <= 1500));
        if ended {
            return;
        }
    }
    let (_, ended) = client.handle(Event::Stop { until: Time::ZERO });
    assert!(ended);
}

fn server(input: &mut Input<'_>) {
    // Generating the server's media takes a while.
    static SERVER: OnceLock<Server> = OnceLock::new();
    let make = || Server::new(ServerConfig::default()).expect("the configuration is valid");
    let mut endpoint = SERVER.get_or_init(make).endpoint(0);
    let mut now = Time::from_nanos(1_000_000_000);
    while !input.is_empty() {
        let from = ([10, 0, 0, input.byte() & 1], 4000).into();
        let bytes = datagram(input, &mut now, 0);
        let mut answer = Vec::new();
        let datagram = Datagram {
            from,
            at: now,
            bytes: &bytes,
        };
        match endpoint.route(now, &datagram, true, &mut answer) {
            // A response is no larger than the request, except for what a header needs.
            Route::Answer => assert!(answer.len() <= bytes.len().max(64) + 16),
            Route::Accept(peer, _) => endpoint.session_ended(peer),
            Route::Session(_) | Route::Discard => {}
        }
    }
}
