//! The client against a scripted server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::units::TimeSpan;
use measure::{Recorder, Time};

use super::Client;
use crate::PROTOCOL;
use crate::codec::{Decoder, Item, Method, Request, Response};
use crate::config::{ClientConfig, Transport};
use crate::metrics as m;
use kit::media::rtcp;
use kit::metrics as clients;
use kit::redirect_policy::RedirectPolicy;
use session::{
    Arrival, ChannelError, ChannelId, CloseReason, Context, Flows, Input, Open, Outcome, Output,
    Port, Session, Sinks,
};

mod ends;
mod failures;
mod multicast;
mod play;
mod publish;
mod remote_receiver;
mod server_hints;
mod silent_streams;
mod tunnel;

const URL: &str = "rtsp://10.0.0.1:8554/clip";
const SERVER: &str = "10.0.0.1:8554";

/// A client with its environment, and the outputs not yet examined.
struct ClientBench {
    client: Client,
    now: Time,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    out: VecDeque<Output>,
    /// The open connection.
    tcp: ChannelId,
    /// Pairs of ports, in the order in which they were opened.
    pairs: Vec<ChannelId>,
}

impl ClientBench {
    fn new(config: ClientConfig, url: &str) -> ClientBench {
        ClientBench {
            client: Client::new(config, url, 7).expect("a URL"),
            now: Time::from_start(Duration::from_secs(1)),
            recorder: Recorder::new(PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
            out: VecDeque::new(),
            tcp: ChannelId(u32::MAX),
            pairs: Vec::new(),
        }
    }

    fn udp() -> ClientBench {
        ClientBench::new(ClientConfig::default(), URL)
    }

    fn tcp() -> ClientBench {
        let config = ClientConfig {
            transport: Transport::Tcp,
            ..ClientConfig::default()
        };
        ClientBench::new(config, URL)
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

    /// Advances to the client's next deadline and delivers it.
    fn deadline(&mut self) {
        let deadline = self.client.deadline().expect("it waits for something");
        assert!(
            deadline > self.now,
            "{deadline:?} is past at {:?}",
            self.now
        );
        self.now = deadline;
        self.input(Input::Deadline);
    }

    fn next(&mut self) -> Output {
        self.out.pop_front().expect("it wants something done")
    }

    /// Starts the client, and opens its connection 5 ms later.
    fn connect(&mut self) {
        let due = self.now;
        self.after(2);
        self.input(Input::Start { due });
        self.accept("10.0.0.1", 8554);
    }

    fn accept(&mut self, to: &str, at: u16) {
        let Output::Open {
            channel,
            open: Open::Tcp { host, port, .. },
        } = self.next()
        else {
            panic!("a connection is wanted");
        };
        assert_eq!((host.as_str(), port), (to, at));
        self.tcp = channel;
        self.after(5);
        self.input(Input::Opened {
            channel,
            local: "10.0.0.2:40000".parse().expect("an address"),
            remote: Some(SERVER.parse().expect("an address")),
        });
    }

    /// Returns the next output, which must be a request with this method.
    fn asked(&mut self, method: Method) -> Request {
        let Output::Send { channel, bytes, .. } = self.next() else {
            panic!("{method} is wanted");
        };
        assert_eq!(channel, self.tcp);
        let mut found = None;
        Decoder::new()
            .feed(&bytes, |item| {
                if let Item::Request(request) = item {
                    found = Some(request);
                }
            })
            .expect("a message");
        let request = found.expect("a request");
        assert_eq!(request.method, method);
        request
    }

    /// Answers a request 10 ms later.
    fn answer(&mut self, to: &Request, status: u16, headers: &[(&str, &str)], body: &str) {
        let mut response = Response::new(status);
        response
            .headers
            .push("CSeq", to.headers.get("CSeq").expect("a number"));
        for (name, value) in headers {
            response.headers.push(*name, *value);
        }
        response.body = body.as_bytes().to_vec();
        self.after(10);
        self.bytes(&response.encode());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (channel, at) = (self.tcp, self.now);
        self.input(Input::Bytes {
            channel,
            bytes,
            at,
            runs: &[],
        });
    }

    fn options(&mut self) {
        let request = self.asked(Method::Options);
        let public = "OPTIONS, DESCRIBE, SETUP, TEARDOWN, PLAY, GET_PARAMETER";
        self.answer(&request, 200, &[("Public", public)], "");
    }

    fn describe(&mut self, sdp: &str) {
        let request = self.asked(Method::Describe);
        assert_eq!(request.headers.get("Accept"), Some("application/sdp"));
        let base = [("Content-Base", "rtsp://10.0.0.1:8554/clip/")];
        self.answer(&request, 200, &base, sdp);
    }

    /// Opens the requested pair of ports.
    fn open_pair(&mut self, local_port: u16) {
        let Output::Open {
            channel,
            open: Open::UdpPair { local, sink, .. },
        } = self.next()
        else {
            panic!("a pair of ports is wanted");
        };
        assert_eq!(local.to_string(), "10.0.0.2");
        assert!(sink.is_some());
        self.pairs.push(channel);
        let local = SocketAddr::new(local, local_port);
        let remote = None;
        self.input(Input::Opened {
            channel,
            local,
            remote,
        });
    }

    /// Runs up to PLAY over UDP, with as many streams as the description has.
    fn set_up_udp(&mut self, sdp: &str, streams: u16) -> Request {
        self.connect();
        self.options();
        self.describe(sdp);
        for stream in 0..streams {
            self.open_pair(5000 + 2 * stream);
            let request = self.asked(Method::Setup);
            let transport = format!(
                "{};server_port={}-{}",
                request.headers.get("Transport").expect("one"),
                6000 + 2 * stream,
                6001 + 2 * stream
            );
            let headers = [("Session", "abc;timeout=20"), ("Transport", &*transport)];
            self.answer(&request, 200, &headers, "");
            assert!(matches!(self.next(), Output::Peer { .. }));
        }
        self.asked(Method::Play)
    }

    /// Runs up to playback over UDP.
    fn play_udp(&mut self, sdp: &str, streams: u16) {
        let request = self.set_up_udp(sdp, streams);
        self.answer(&request, 200, &[], "");
        assert!(self.out.is_empty(), "{:?}", self.out);
    }

    /// Delivers a packet to a stream.
    fn packet(&mut self, stream: usize, seq: u16) {
        let packet = rtp(seq);
        let sink = self.client.streams[stream].sink;
        let arrival = Arrival {
            at: self.now,
            bytes: &packet,
            length: packet.len(),
            overhead: 28,
        };
        let event = self.sinks.packet(sink, &arrival, &mut self.recorder);
        if let Some(event) = event {
            self.input(Input::Media { sink, event });
        }
    }

    fn rtcp(&mut self, stream: usize, bytes: &[u8]) {
        let (channel, at) = (self.pairs[stream], self.now);
        self.input(Input::Datagram {
            channel,
            port: Port::Control,
            from: "10.0.0.1:6001".parse().expect("an address"),
            bytes,
            at,
        });
    }

    /// Returns all outputs before the end, and the outcome. The session must have ended.
    fn ended(&mut self) -> (Vec<Output>, Outcome) {
        let mut before: Vec<Output> = self.out.drain(..).collect();
        let Some(Output::Ended(outcome)) = before.pop() else {
            panic!("it is not over: {before:?}");
        };
        assert_eq!(self.client.deadline(), None);
        (before, outcome)
    }

    /// Returns reason and detail of the failure.
    fn failed(&mut self) -> (&'static str, String) {
        match self.ended().1 {
            Outcome::Failed(failure)
            | Outcome::EndedByServer {
                in_order: false,
                failure,
                ..
            } => (failure.reason, failure.detail),
            other => panic!("{other:?} is no failure"),
        }
    }

    fn count(&self, counter: measure::CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    /// Returns the only value of a distribution, in milliseconds.
    fn delay(&self, histogram: measure::HistogramId) -> u64 {
        let histogram = self.recorder.histogram(histogram).expect("recorded");
        assert_eq!(histogram.count(), 1);
        histogram.max().expect("recorded") / 1_000_000
    }
}

fn rtp(seq: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend_from_slice(&seq.to_be_bytes());
    packet.extend_from_slice(&(u32::from(seq) * 3600).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 9, 1, 2, 3, 4]);
    packet
}

fn bye() -> Vec<u8> {
    let mut out = Vec::new();
    rtcp::write_receiver_report(&mut out, 9, &[]);
    rtcp::write_bye(&mut out, &[9], None);
    out
}

/// Live: without a known length.
const ONE: &str = "v=0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:track1\r\n";
const TWO: &str = "v=0\r\na=range:npt=0-30\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
    a=control:track1\r\nm=audio 0 RTP/AVP 96\r\na=rtpmap:96 L16/44100\r\na=control:track2\r\n";
