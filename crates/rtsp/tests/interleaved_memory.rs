//! Memory of a client with interleaved media: nothing for each packet, and little for each client.

use std::collections::VecDeque;
use std::time::Duration;

use kit::media::rtp::metrics as rtp;
use measure::metric::CounterId;
use measure::{ArrivalRun, Recorder, Time};
use rtsp::PROTOCOL as RTSP_PROTOCOL;
use rtsp::client::Client;
use rtsp::config::{ClientConfig, Transport};
use session::{ChannelId, Context, Flows, Input, Output, Session, Sinks};

const SDP: &str = "v=0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:one\r\n";

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

    fn read(&mut self, bytes: &[u8]) {
        self.read_runs(bytes, &[]);
    }

    fn read_runs(&mut self, bytes: &[u8], runs: &[ArrivalRun]) {
        let (channel, at) = (self.channel, self.now);
        self.input(Input::Bytes {
            channel,
            bytes,
            at,
            runs,
        });
    }

    /// A client that plays.
    fn playing() -> Bench {
        let config = ClientConfig {
            transport: Transport::Tcp,
            ..ClientConfig::default()
        };
        let mut bench = Bench {
            client: Client::new(config, "rtsp://10.0.0.1/clip", 7).expect("a URL"),
            now: Time::from_start(Duration::from_secs(1)),
            recorder: Recorder::new(RTSP_PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
            out: VecDeque::new(),
            channel: ChannelId(0),
        };
        bench.input(Input::Start { due: bench.now });
        let Some(Output::Open { channel, .. }) = bench.out.pop_front() else {
            panic!("a connection is wanted");
        };
        bench.channel = channel;
        bench.input(Input::Opened {
            channel,
            local: "10.0.0.2:40000".parse().expect("an address"),
            remote: None,
        });
        let length = SDP.len();
        for (cseq, (method, answer)) in [
            ("OPTIONS", "\r\n".to_owned()),
            (
                "DESCRIBE",
                format!("Content-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{SDP}"),
            ),
            (
                "SETUP",
                "Session: 1\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n".to_owned(),
            ),
            ("PLAY", "Session: 1\r\n\r\n".to_owned()),
        ]
        .into_iter()
        .enumerate()
        {
            let Some(Output::Send { bytes, .. }) = bench.out.pop_front() else {
                panic!("{method} is wanted");
            };
            assert!(bytes.starts_with(method.as_bytes()), "{method} is wanted");
            let cseq = cseq + 1;
            bench.read(format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n{answer}").as_bytes());
        }
        bench
    }

    /// Packets received, and those of them that are timed by reading.
    fn received(&mut self) -> (i64, i64) {
        let counters = self.recorder.take_window().counters;
        let count = |id: CounterId| counters[usize::from(id.0)];
        (count(rtp::RECEIVED), count(rtp::TIMED_BY_READING))
    }
}

/// Frames with packets of 1250 bytes.
fn frames(numbers: std::ops::Range<u16>) -> Vec<u8> {
    let mut stream = Vec::new();
    for number in numbers {
        let length = 1250u16;
        stream.extend_from_slice(&[b'$', 0]);
        stream.extend_from_slice(&length.to_be_bytes());
        stream.extend_from_slice(&[0x80, 96]);
        stream.extend_from_slice(&number.to_be_bytes());
        stream.extend_from_slice(&(u32::from(number / 4) * 3600).to_be_bytes());
        stream.extend_from_slice(&[0, 0, 0, 9]);
        stream.resize(stream.len() + usize::from(length) - 12, 0);
    }
    stream
}

#[test]
fn interleaved_media_allocates_nothing() {
    // Whole frames, and frames split in their header, in the packet's header, in the payload and at
    // the end.
    for size in [1254, 5 * 1254, 1448, 7, 100, 64 * 1024, 1253, 1255] {
        let mut bench = Bench::playing();
        bench.out.clear();
        let (first, then) = (frames(0..200), frames(200..1000));
        let mut feed = |stream: &[u8]| {
            for read in stream.chunks(size) {
                bench.now += Duration::from_micros(read.len() as u64);
                bench.read(read);
            }
        };
        // Histograms and the buffer for split frames are allocated on first use.
        feed(&first);
        let cost = allocation_counter::measure(|| feed(&then));
        assert_eq!(cost.count_total, 0, "in reads of {size} bytes");
        assert_eq!(bench.received(), (1000, 1000));
    }
}

#[test]
fn packets_with_segment_times_allocate_nothing_and_use_them() {
    // Segments and packets that end at the same positions, and at others.
    for segment in [1254, 1448, 700] {
        let mut bench = Bench::playing();
        bench.out.clear();
        let (first, then) = (frames(0..200), frames(200..1000));
        let mut runs: Vec<ArrivalRun> = Vec::with_capacity(100);
        let mut feed = |stream: &[u8], missed: bool| {
            for read in stream.chunks(10 * segment) {
                bench.now += Duration::from_millis(1);
                runs.clear();
                for begin in (0..read.len()).step_by(segment) {
                    let end = (begin + segment).min(read.len());
                    let at = bench.now + Duration::from_nanos(begin as u64);
                    let exact = !missed;
                    runs.push(ArrivalRun { end, at, exact });
                }
                bench.read_runs(read, &runs);
            }
        };
        feed(&first, true);
        let cost = allocation_counter::measure(|| feed(&then, false));
        assert_eq!(cost.count_total, 0, "in segments of {segment} bytes");
        assert_eq!(bench.received(), (1000, 200));
    }
}

#[test]
fn playing_client_keeps_little_memory() {
    let media = frames(0..200);
    let mut kept = Vec::new();
    for size in [1254, 1448] {
        let mut bench = Bench::playing();
        bench.out.clear();
        // The histograms belong to the population, not to the client.
        let mut other = Bench::playing();
        other.read(&media);
        bench.recorder = other.recorder;
        let cost = allocation_counter::measure(|| {
            for read in media.chunks(size) {
                bench.now += Duration::from_millis(1);
                bench.read(read);
            }
        });
        kept.push(cost.bytes_current);
    }
    assert_eq!(kept[0], 0, "whole frames");
    assert!(
        (1..=100).contains(&kept[1]),
        "split frames: {} bytes",
        kept[1]
    );
}
