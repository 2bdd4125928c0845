//! Media: RTP, RTCP, transport streams and files.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use kit::media::rtcp::{self, Packet};
use kit::media::rtp::header::Header;
use kit::media::rtp::{ReceiverConfig, RtpReceiver};
use kit::media::source::{MediaSource, SourceConfig};
use kit::media::ts::checker::{TsChecker, TsCheckerConfig};
use measure::{Catalogue, Recorder, Time};
use kit::mediagen::h264;
use kit::mediagen::time_code::TimeCode;
use kit::mediagen::ts::looped_stream::LoopedStream;
use protocols::PROTOCOLS;
use session::{Arrival, ArrivalTimes};

use crate::input::Input;

/// Returns the metrics of a protocol's populations.
fn catalogue(protocol: &str) -> Catalogue {
    let found = PROTOCOLS.iter().find(|known| known.name == protocol);
    found.expect("the protocol is registered").catalogue
}

thread_local! {
    /// Created once, because that takes longer than reading an input.
    static RTSP: RefCell<Recorder> = RefCell::new(Recorder::new(catalogue("rtsp")));
    static HTTP: RefCell<Recorder> = RefCell::new(Recorder::new(catalogue("http-ts")));
}

/// Receives the packets of a stream. In front of each packet, the input has a byte whose square is
/// the time since the previous packet in ms, and the packet's length.
pub(super) fn rtp(bytes: &[u8]) {
    RTSP.with_borrow_mut(|recorder| rtp_packets(bytes, recorder));
}

fn rtp_packets(bytes: &[u8], recorder: &mut Recorder) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let mut receiver = RtpReceiver::new(&ReceiverConfig {
        clock_rate: [0, 8000, 90_000, u32::MAX][usize::from(kind & 3)],
        payload_types: if kind & 4 == 0 { vec![] } else { vec![0, 96] },
        playout_buffer: Duration::from_millis(u64::from(kind & 8) * 100),
    });
    if kind & 16 != 0 {
        receiver = receiver.with_time_codes(Duration::from_secs(1_700_000_000));
    }
    let mut now = Time::from_start(Duration::from_secs(1));
    let mut count = 0;
    while !input.is_empty() {
        let step = u64::from(input.byte());
        now += Duration::from_millis(step * step);
        let packet = input.piece();
        // A long packet is not captured completely.
        let length = packet.len() + if kind & 32 != 0 { 100 } else { 0 };
        if let Ok(header) = Header::parse(packet, length) {
            assert!(header.payload_offset + header.payload_length <= length);
            assert_eq!(header.to_bytes(), packet[..12]);
            if let Some(payload) = packet.get(header.payload_offset..) {
                code(payload);
            }
        }
        let arrival = Arrival {
            at: now,
            bytes: packet,
            length,
            overhead: 28,
        };
        receiver.packet(&arrival, recorder);
        count += 1;
        if kind & 64 != 0 && count % 8 == 0 {
            let base = u16::from_be_bytes([input.byte(), input.byte()]);
            let rtptime = (kind & 32 != 0).then(|| u32::from(base) << 8);
            receiver.set_base(base, rtptime, recorder);
        }
        if count % 16 == 0 {
            receiver.report_block(now);
        }
    }
    receiver.finish(recorder);
    let counts = receiver.counts();
    let all = counts.received + counts.duplicated + counts.late + counts.malformed;
    assert!(all <= count, "{counts:?} of {count}");
    assert!(counts.received <= counts.expected.max(counts.received));
    assert!(counts.reordered <= counts.received);
}

/// Looks for a time code and a sequence parameter set anywhere in a payload.
fn code(payload: &[u8]) {
    if let Some(code) = TimeCode::find(payload) {
        let nal = code.to_nal();
        assert_eq!(TimeCode::find(&nal), Some(code));
        assert!(TimeCode::place(payload).is_some_and(|place| place < payload.len()));
    }
    h264::sps::picture_size(payload);
}

/// Reads an RTCP compound packet. What was read can be written and reads back unchanged.
pub(super) fn rtcp(bytes: &[u8]) {
    let mut count = 0;
    for packet in rtcp::packets(bytes) {
        count += 1;
        let Ok(packet) = packet else { continue };
        let mut out = Vec::new();
        match &packet {
            Packet::SenderReport { info, blocks } => {
                rtcp::write_sender_report(&mut out, info, blocks);
            }
            Packet::ReceiverReport { ssrc, blocks } => {
                rtcp::write_receiver_report(&mut out, *ssrc, blocks);
            }
            Packet::SourceDescription { names } => {
                for (ssrc, name) in names.iter().filter(|(_, name)| name.len() <= 255) {
                    let mut out = Vec::new();
                    rtcp::write_cname(&mut out, *ssrc, name);
                    let again = rtcp::packets(&out).next();
                    let names = vec![(*ssrc, name.clone())];
                    assert_eq!(again, Some(Ok(Packet::SourceDescription { names })));
                }
            }
            Packet::Bye { sources, reason } => {
                if reason.as_ref().is_none_or(|reason| reason.len() <= 255) {
                    rtcp::write_bye(&mut out, sources, reason.as_deref());
                    assert!(rtcp::may_be_from_sender(&out));
                }
            }
            Packet::Other { .. } => {}
        }
        if !out.is_empty() {
            assert_eq!(rtcp::packets(&out).next(), Some(Ok(packet)));
        }
    }
    assert!(count <= bytes.len() / 4 + 1);
    rtcp::may_be_from_sender(bytes);
}

/// Checks a transport stream: pieces give the same result as the whole.
pub(super) fn ts(bytes: &[u8]) {
    HTTP.with_borrow_mut(|recorder| ts_stream(bytes, recorder));
}

fn ts_stream(bytes: &[u8], recorder: &mut Recorder) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let cuts = input.cuts();
    let stream = expand_packets(&mut input);
    let mut check = |pieces: &[&[u8]]| {
        let at = Time::from_start(Duration::from_millis(500));
        let group = "239.81.0.1:4056".parse().expect("an address");
        let mut checker = TsChecker::new(&TsCheckerConfig {
            due: Time::from_start(Duration::from_millis(100)),
            group: (kind & 1 == 0).then_some(group),
            previous_channel: None,
            playout_buffer: Duration::from_secs(1),
            wall_clock: (kind & 2 == 0).then_some(Duration::from_secs(1_700_000_000)),
        });
        for piece in pieces {
            checker.feed(piece, 0, &mut ArrivalTimes::new(&[], at), recorder);
        }
        checker.finish(recorder);
        let pids: Vec<_> = checker.pids().map(|pid| format!("{pid:?}")).collect();
        (
            *checker.counts(),
            checker.datagrams().copied(),
            checker.bytes_without_packet(),
            checker.group(),
            checker.random_access(),
            pids,
        )
    };
    let whole = check(&[&stream]);
    assert_eq!(check(&cuts.pieces(&stream)), whole);
    let (counts, ..) = whole;
    assert!(counts.ts_packets * 188 + counts.out_of_sync_bytes <= stream.len() as u64);
}

/// Expands packets of which the input has only the first bytes, so that inputs stay short. Each
/// packet is its length and its first bytes. The length 255 marks a piece that is no packet and is
/// copied unchanged.
fn expand_packets(input: &mut Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() && stream.len() < 1 << 14 {
        let length = input.byte();
        if length == 255 {
            stream.extend_from_slice(input.piece());
            continue;
        }
        let end = stream.len() + 188;
        stream.push(0x47);
        stream.extend_from_slice(input.take(usize::from(length % 188)));
        stream.resize(end, 0xff);
    }
    stream
}

/// Reads a file of a transport stream that is to be sent in a loop.
pub(super) fn ts_file(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let rate = (kind & 1 != 0).then(|| 100_000 << (kind >> 4));
    let stream = expand_packets(&mut input);
    match LoopedStream::of_file(&stream, rate) {
        Ok(looped) => {
            assert!(looped.bits_per_second() > 0 && !looped.description().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Reads a media file to publish: MP4, a transport stream, or another container.
pub(super) fn media_file(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let config = SourceConfig {
        file: Some(PathBuf::from("a")),
        audio: (kind & 1 != 0).then_some(kind & 2 != 0),
        mtu: 256 + usize::from(kind >> 3) * 40,
        ..SourceConfig::default()
    };
    let stream = match kind & 4 {
        0 => input.rest().to_vec(),
        _ => expand_packets(&mut input),
    };
    // `new` accepts fewer kinds of files than `live`.
    for made in [
        MediaSource::new(&config, Some(&stream)),
        MediaSource::adaptive(&config, Some(&stream)),
    ] {
        match made {
            Ok(source) => {
                assert!(!source.clips.is_empty());
                let bytes: u64 = source.clips.iter().map(|clip| clip.loop_bytes()).sum();
                // Tables can refer to a sample any number of times, but each reference takes space
                // in the file.
                assert!(bytes <= (stream.len() as u64 + 16) * (stream.len() as u64 + 16));
            }
            Err(error) => assert!(!error.is_empty()),
        }
    }
}
