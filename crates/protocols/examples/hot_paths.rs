//! Hot paths, each as a function that repeats one operation: `bench/instructions` counts the
//! instructions executed in them. The input is the same in every run.
//!
//! Usage: `hot_paths PATH NUMBER`, where the path is `header`, `stream`, `frames`, `transport`,
//! `srt_receive` or `srt_send`.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use kit::media::rtp::header::Header;
use kit::media::rtp::{ReceiverConfig, RtpReceiver};
use kit::media::ts::checker::{TsChecker, TsCheckerConfig};
use kit::media::ts::metrics as ts;
use kit::mediagen::ts::packet::{PACKET_LEN as TRANSPORT_PACKET, SYNC};
use kit::mediagen::ts::stamp::Stamp;
use measure::{ArrivalRun, Recorder, Time};
use protocols::{HTTP_TS_PROTOCOL, RTSP_PROTOCOL};
use rtsp::codec::{Decoder, Item};
use session::{Arrival, ArrivalTimes};
use srt::arq::TsbpdConfig;
use srt::arq::receiver::{Receiver, ReceiverConfig as SrtReceiverConfig};
use srt::arq::sender::{Sender, SenderConfig};
use srt::codec::packet::{Ack, AckReport, Control, Packet};
use srt::seq::{SeqNumber, SocketClock};

/// Video packets at 1 Mb/s and 25 pictures a second: five packets to a picture.
const PACKETS_A_PICTURE: usize = 5;
const TICKS_A_PICTURE: u32 = 3600;
const NANOS_A_PACKET: u64 = 8_000_000;
/// Number of packets after which one-time work, such as making histograms, is done.
const WARM_UP_PACKETS: usize = 1000;
const PACKET: usize = 1000;
/// Length of the IPv4 and UDP headers in bytes.
const OVERHEAD: usize = 28;
/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;

fn header(number: usize) -> Header {
    let picture = (number / PACKETS_A_PICTURE) as u32;
    let mut header = Header::new(96, number as u16, picture.wrapping_mul(TICKS_A_PICTURE), 7);
    header.marker = number % PACKETS_A_PICTURE == PACKETS_A_PICTURE - 1;
    header
}

#[inline(never)]
fn measured_header(packets: &[[u8; 12]]) {
    for packet in packets {
        let _ = black_box(Header::parse(black_box(packet), PACKET));
    }
}

#[inline(never)]
fn measured_stream(packets: &[[u8; 12]], receiver: &mut RtpReceiver, recorder: &mut Recorder) {
    stream(WARM_UP_PACKETS, packets, receiver, recorder);
}

#[inline(always)]
fn stream(first: usize, packets: &[[u8; 12]], receiver: &mut RtpReceiver, recorder: &mut Recorder) {
    for (number, packet) in packets.iter().enumerate() {
        let arrival = Arrival {
            at: Time::from_nanos((first + number + 1) as u64 * NANOS_A_PACKET),
            bytes: black_box(packet),
            length: PACKET,
            overhead: OVERHEAD,
        };
        black_box(receiver.packet(&arrival, recorder));
    }
}

#[inline(never)]
fn measured_frames(bytes: &[u8], decoder: &mut Decoder) -> usize {
    let mut frames = 0;
    for read in bytes.chunks(READ_BYTES) {
        let fed = decoder.feed(read, |item| {
            if let Item::Frame { .. } = black_box(item) {
                frames += 1;
            }
        });
        assert!(fed.is_ok(), "nothing in it is too large");
    }
    frames
}

/// Transport packets of a stamped datagram.
const PACKETS_A_DATAGRAM: usize = 7;

/// A stamped datagram of one PID.
fn datagram(number: u64) -> Vec<u8> {
    let mut rest = [0x5a; (PACKETS_A_DATAGRAM - 1) * TRANSPORT_PACKET];
    for (index, packet) in rest.chunks_mut(TRANSPORT_PACKET).enumerate() {
        let continuity = (number * 6 + index as u64) % 16;
        packet[..4].copy_from_slice(&[SYNC, 1, 0, 0x10 | continuity as u8]);
    }
    let stamp = Stamp {
        packets: PACKETS_A_DATAGRAM as u8,
        group: ([239, 81, 0, 1], 4056).into(),
        source: 7,
        number,
        due: number * 25_000,
        check: crc32fast::hash(&rest),
    };
    [&stamp.write()[..], &rest].concat()
}

#[inline(never)]
fn measured_transport(bytes: &[u8], checker: &mut TsChecker, recorder: &mut Recorder) {
    transport(bytes, checker, recorder);
}

/// Each datagram arrives in a segment of its own.
#[inline(always)]
fn transport(bytes: &[u8], checker: &mut TsChecker, recorder: &mut Recorder) {
    let segment = PACKETS_A_DATAGRAM * TRANSPORT_PACKET;
    let at = Time::from_nanos(u64::MAX / 4);
    let runs: Vec<ArrivalRun> = (1..=READ_BYTES / segment)
        .map(|number| ArrivalRun {
            end: number * segment,
            at,
            exact: true,
        })
        .collect();
    for read in bytes.chunks(READ_BYTES / segment * segment) {
        let mut times = ArrivalTimes::new(black_box(&runs), at);
        checker.feed(black_box(read), 0, &mut times, recorder);
    }
}

/// Interval between SRT packets; 245 a second are 2.6 Mb/s.
const SRT_PACKET_INTERVAL: Duration = Duration::from_millis(4);
const SRT_FIRST: SeqNumber = SeqNumber::new(1);

fn srt_clock() -> SocketClock {
    SocketClock::new(Time::ZERO)
}

fn srt_sender() -> Sender {
    let latency = Duration::from_millis(120);
    Sender::new(SenderConfig::live(SRT_FIRST, 7, srt_clock(), latency))
}

/// Sends packets, acknowledged every 12 ms; a receiver does so every 10 ms.
fn srt_send(numbers: std::ops::Range<u32>, sender: &mut Sender, payload: &Bytes) {
    let mut said = Vec::with_capacity(64);
    for number in numbers {
        let now = Time::ZERO + SRT_PACKET_INTERVAL * number;
        let pushed = sender.push(now, black_box(payload.clone()));
        black_box(pushed).expect("it is acknowledged soon");
        black_box(sender.next_packet(now)).expect("it is due");
        if number % 3 == 2 {
            let report = AckReport {
                rtt: 40_000,
                rtt_variance: 2_000,
                free_packets: 8000,
                rates: None,
            };
            let ack = Ack {
                number,
                next: SRT_FIRST.plus(number),
                report: Some(report),
            };
            sender.control(&black_box(Control::Ack(ack)), now);
            said.clear();
            while sender.write_next(now, &mut said) {}
        }
    }
}

#[inline(never)]
fn measured_srt_send(numbers: std::ops::Range<u32>, sender: &mut Sender, payload: &Bytes) {
    srt_send(numbers, sender, payload);
}

/// Parses and counts packets. Every tenth one ends a turn of the worker, which acknowledges.
fn srt_receive(datagrams: &[Vec<u8>], receiver: &mut Receiver) {
    let mut said = Vec::with_capacity(64);
    for (number, datagram) in datagrams.iter().enumerate() {
        let Ok(Packet::Data(header, payload)) = Packet::parse(black_box(datagram)) else {
            unreachable!("they are data");
        };
        let at = Time::from_nanos(u64::from(header.timestamp) * 1000);
        black_box(receiver.data(&header, payload, at));
        if number % 10 == 9 {
            said.clear();
            while receiver.write_next(at, &mut said) {}
        }
    }
}

#[inline(never)]
fn measured_srt_receive(datagrams: &[Vec<u8>], receiver: &mut Receiver) {
    srt_receive(datagrams, receiver);
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let Some(number) = arguments.next().and_then(|text| text.parse().ok()) else {
        return ExitCode::from(2);
    };
    let headers = || (0..number).map(|number| header(number).to_bytes());
    match path.as_str() {
        "header" => measured_header(&headers().collect::<Vec<_>>()),
        "stream" => {
            let mut receiver = RtpReceiver::new(&ReceiverConfig {
                clock_rate: 90_000,
                payload_types: vec![96],
                playout_buffer: Duration::from_millis(200),
            });
            let mut recorder = Recorder::new(RTSP_PROTOCOL.catalogue);
            let packets: Vec<_> = (0..WARM_UP_PACKETS + number)
                .map(|number| header(number).to_bytes())
                .collect();
            let (beginning, rest) = packets.split_at(WARM_UP_PACKETS);
            stream(0, beginning, &mut receiver, &mut recorder);
            measured_stream(rest, &mut receiver, &mut recorder);
        }
        "frames" => {
            let mut bytes = Vec::new();
            for header in headers() {
                bytes.extend_from_slice(&[b'$', 0]);
                bytes.extend_from_slice(&(PACKET as u16).to_be_bytes());
                bytes.extend_from_slice(&header);
                bytes.resize(bytes.len() + PACKET - header.len(), 0x5a);
            }
            let frames = measured_frames(&bytes, &mut Decoder::new());
            assert_eq!(frames, number, "each frame is handed out once");
        }
        "transport" => {
            let mut checker = TsChecker::new(&TsCheckerConfig {
                due: Time::ZERO,
                group: None,
                previous_channel: None,
                wall_clock: Some(Duration::from_secs(1)),
                playout_buffer: Duration::from_secs(1),
            });
            let mut recorder = Recorder::new(HTTP_TS_PROTOCOL.catalogue);
            let beginning = WARM_UP_PACKETS.next_multiple_of(PACKETS_A_DATAGRAM);
            let all = (beginning + number).div_ceil(PACKETS_A_DATAGRAM);
            let mut bytes: Vec<u8> = (0..all as u64).flat_map(datagram).collect();
            bytes.truncate((beginning + number) * TRANSPORT_PACKET);
            let (beginning, rest) = bytes.split_at(beginning * TRANSPORT_PACKET);
            transport(beginning, &mut checker, &mut recorder);
            measured_transport(rest, &mut checker, &mut recorder);
            let (damaged, strays) = (ts::DAMAGED, ts::STRAY_PACKETS);
            assert_eq!(
                (recorder.counter(damaged), recorder.counter(strays)),
                (0, 0)
            );
        }
        "srt_receive" => {
            let mut sender = srt_sender();
            let payload = Bytes::from(vec![0x47; PACKETS_A_DATAGRAM * TRANSPORT_PACKET]);
            let datagrams: Vec<Vec<u8>> = (0..(WARM_UP_PACKETS + number) as u32)
                .map(|number| {
                    let now = Time::ZERO + SRT_PACKET_INTERVAL * number;
                    let pushed = sender.push(now, payload.clone());
                    pushed.expect("late packets are dropped");
                    let packet = sender.next_packet(now).expect("it is due");
                    [&packet.header[..], &packet.payload].concat()
                })
                .collect();
            let tsbpd = TsbpdConfig {
                reference: Time::ZERO,
                timestamp: 0,
                latency: Duration::from_millis(120),
            };
            let config = SrtReceiverConfig::live(SRT_FIRST, 8, srt_clock(), tsbpd);
            let mut receiver = Receiver::new(config);
            let (beginning, rest) = datagrams.split_at(WARM_UP_PACKETS);
            srt_receive(beginning, &mut receiver);
            measured_srt_receive(rest, &mut receiver);
            let received = receiver.statistics().pkt_recv_unique;
            assert_eq!(received, (WARM_UP_PACKETS + number) as u64);
        }
        "srt_send" => {
            let mut sender = srt_sender();
            let payload = Bytes::from(vec![0x47; PACKETS_A_DATAGRAM * TRANSPORT_PACKET]);
            let (beginning, end) = (WARM_UP_PACKETS as u32, (WARM_UP_PACKETS + number) as u32);
            srt_send(0..beginning, &mut sender, &payload);
            measured_srt_send(beginning..end, &mut sender, &payload);
            assert_eq!(sender.statistics().pkt_sent, u64::from(end));
        }
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}
