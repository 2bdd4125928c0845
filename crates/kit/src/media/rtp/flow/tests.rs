//! Compares the counts of a flow with those of a receiver that sees only the packets that left.

use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::video::{PictureForm, VideoSettings};

fn clip() -> Arc<Clip> {
    static CLIP: LazyLock<Arc<Clip>> = LazyLock::new(|| {
        let settings = VideoSettings {
            bits_per_second: 400_000,
            frame_rate: FrameRate::whole(25),
            gop: 25,
            mtu: 600,
            form: PictureForm::default(),
        };
        Arc::new(Clip::video(&settings).unwrap())
    });
    CLIP.clone()
}

fn settings(clip: &Arc<Clip>, faults: &[&str], length: Option<u64>) -> FlowSettings {
    let mut all = Faults::default();
    for fault in faults {
        let (name, value) = fault.split_once('=').unwrap();
        all.set(name, value).unwrap().unwrap();
    }
    FlowSettings {
        clip: clip.clone(),
        pacing: Pacing::Spread,
        ssrc: 7,
        first_seq: 65_500,
        first_timestamp: u32::MAX - 1000,
        length: length.map(Duration::from_secs),
        faults: all,
        seed: 5,
        log: false,
    }
}

/// A packet as a receiver sees it.
#[derive(Clone, Debug, PartialEq)]
struct ReceivedPacket {
    at: Time,
    seq: u16,
    timestamp: u32,
    marker: bool,
    payload: Bytes,
}

/// Runs a flow to its end or to `until`. `taken` decides which packets the network accepts.
fn run(flow: &mut RtpFlow, until: Time, mut taken: impl FnMut(u64) -> bool) -> Vec<ReceivedPacket> {
    let mut seen = Vec::new();
    let mut handed_out = 0;
    while let Some(due) = flow.next_due().filter(|&due| due <= until) {
        while let Some(packet) = flow.next_packet(due) {
            assert!(packet.due <= due);
            let header = packet.header;
            let left = taken(handed_out);
            handed_out += 1;
            flow.report_departure(packet.tag, left.then(|| Handover::at(due)));
            if left {
                seen.push(ReceivedPacket {
                    at: packet.due,
                    seq: u16::from_be_bytes([header[2], header[3]]),
                    timestamp: u32::from_be_bytes(header[4..8].try_into().unwrap()),
                    marker: header[1] & 0x80 != 0,
                    payload: packet.payload,
                });
            }
        }
    }
    seen
}

/// Counts of a receiver that knows the first sequence number and remembers every packet.
fn naive(seen: &[ReceivedPacket], first_seq: u16) -> ServedStream {
    let mut counts = ServedStream {
        first_seq,
        first_left_extended_seq: first_seq.into(),
        last_left_extended_seq: first_seq.into(),
        ..ServedStream::default()
    };
    let mut highest = i64::from(first_seq) - 1;
    let mut known = HashSet::new();
    for packet in seen {
        let ahead = packet.seq.wrapping_sub(highest as u16) as i16;
        let extended = highest + i64::from(ahead);
        if !known.insert(extended) {
            counts.duplicated += 1;
            continue;
        }
        if counts.sent == 0 {
            counts.first_left_extended_seq = extended as u64;
        }
        counts.sent += 1;
        counts.payload_bytes += packet.payload.len() as u64;
        if extended < highest {
            counts.reordered += 1;
        }
        highest = highest.max(extended);
    }
    if counts.sent > 0 {
        counts.last_left_extended_seq = highest as u64;
        counts.expected = (highest - i64::from(first_seq) + 1) as u64;
    }
    counts.lost = counts.expected - counts.sent;
    counts
}

#[test]
fn stream_without_faults_is_exact() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &[], Some(5)));
    assert_eq!(flow.next_due(), None);
    let start = Time::from_nanos(123);
    flow.start(start);
    let seen = run(&mut flow, Time::NEVER, |_| true);
    let served = flow.statistics();
    assert_eq!(seen.iter().filter(|packet| packet.marker).count(), 125);
    assert!(served.payload_bytes.abs_diff(250_000) <= 30, "{served:?}");
    assert_eq!(
        served.lost + served.duplicated + served.reordered + served.lost_tail,
        0
    );
    assert_eq!(served.last_extended_seq, 65_500 + seen.len() as u64 - 1);
    assert!(!flow.stopped_early());
    // Frame n is due n / 25 s after the start, its timestamp 3600 n after the first.
    let mut frame = 0;
    let mut first = true;
    for packet in &seen {
        let at = Duration::from_millis(40 * frame);
        assert_eq!(
            packet.timestamp,
            (u32::MAX - 1000).wrapping_add(3600 * frame as u32)
        );
        assert!(packet.at >= start + at && packet.at < start + at + Duration::from_millis(40));
        assert!(!first || packet.at == start + at);
        first = packet.marker;
        frame += u64::from(packet.marker);
    }
}

#[test]
fn at_once_sends_all_packets_of_a_frame_together() {
    let clip = clip();
    let mut all = settings(&clip, &[], Some(1));
    all.pacing = Pacing::AtOnce;
    let mut flow = RtpFlow::new(all);
    flow.start(Time::ZERO);
    let times: HashSet<Time> = run(&mut flow, Time::NEVER, |_| true)
        .iter()
        .map(|packet| packet.at)
        .collect();
    assert_eq!(times.len(), 25);
}

#[test]
fn same_seed_makes_the_same_choices() {
    let clip = clip();
    let faults = ["loss=5%", "reorder=5%x3", "duplicate=5%", "jitter=9ms"];
    let once = |seed| {
        let mut flow = RtpFlow::new(FlowSettings {
            seed,
            ..settings(&clip, &faults, Some(3))
        });
        flow.start(Time::ZERO);
        run(&mut flow, Time::NEVER, |_| true)
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

#[test]
fn fault_shares_are_met() {
    let clip = clip();
    let count = |faults: &[&str]| {
        let mut flow = RtpFlow::new(settings(&clip, faults, Some(200)));
        flow.start(Time::ZERO);
        run(&mut flow, Time::NEVER, |_| true);
        let served = flow.statistics();
        let share = |count: u64| count as f64 / served.expected as f64;
        (
            share(served.lost),
            share(served.duplicated),
            share(served.reordered),
        )
    };
    let (lost, duplicated, reordered) = count(&["loss=2%"]);
    assert!(
        (lost - 0.02).abs() < 0.004 && duplicated + reordered == 0.0,
        "{lost}"
    );
    let (lost, duplicated, reordered) = count(&["duplicate=3%"]);
    assert!((duplicated - 0.03).abs() < 0.004 && lost + reordered == 0.0);
    let (lost, duplicated, reordered) = count(&["reorder=1%x3"]);
    assert!(
        (reordered - 0.01).abs() < 0.003 && lost + duplicated == 0.0,
        "{reordered}"
    );
    let (lost, ..) = count(&["loss-burst=0.2%x5"]);
    assert!((lost - 0.01).abs() < 0.004, "{lost}");
}

#[test]
fn stall_delays_packets_and_loses_none() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &["stall=1s+2s"], Some(5)));
    flow.start(Time::ZERO);
    let seen = run(&mut flow, Time::NEVER, |_| true);
    let second = Duration::from_secs(1);
    let within = |from, until| {
        let range = Time::ZERO + from..Time::ZERO + until;
        seen.iter()
            .filter(|packet| range.contains(&packet.at))
            .count()
    };
    assert_eq!(within(second, 3 * second), 0);
    assert!(within(3 * second, 3 * second + Duration::from_nanos(1)) > 50);
    assert_eq!(flow.statistics().lost, 0);
    assert_eq!(flow.statistics().reordered, 0);
}

#[test]
fn stream_with_total_loss_ends() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &["loss=100%"], Some(2)));
    flow.start(Time::ZERO);
    assert!(run(&mut flow, Time::NEVER, |_| true).is_empty());
    let served = flow.statistics();
    assert_eq!((served.expected, served.lost), (0, 0));
    assert!(served.lost_tail > 50);
}

#[test]
fn stop_fault_is_reported_as_early_stop() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &["stop=1s"], None));
    flow.start(Time::ZERO);
    let seen = run(&mut flow, Time::NEVER, |_| true);
    assert_eq!(seen.iter().filter(|packet| packet.marker).count(), 25);
    assert!(flow.stopped_early());
}

#[test]
fn pause_leaves_no_gap_in_sequence_numbers() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &[], Some(4)));
    let second = Duration::from_secs(1);
    flow.start(Time::ZERO);
    let before = run(&mut flow, Time::ZERO + Duration::from_millis(990), |_| true);
    flow.pause();
    assert_eq!(flow.next_due(), None);
    let at = Time::ZERO + 11 * second;
    let (seq, timestamp) = flow.next_rtp_info(at);
    flow.start(at);
    let after = run(&mut flow, Time::NEVER, |_| true);
    assert_eq!(seq, before.last().unwrap().seq.wrapping_add(1));
    assert_eq!((after[0].seq, after[0].timestamp), (seq, timestamp));
    // Timestamps advance during the ten seconds of pause as well, within one frame.
    let gap = after[0].timestamp.wrapping_sub(before[0].timestamp);
    assert!(gap.abs_diff(11 * 90_000) <= 3600, "{gap}");
    assert!(after[0].at.since(at) < Duration::from_millis(40));
    assert_eq!(flow.statistics().lost, 0);
    let frames = before.iter().chain(&after).filter(|packet| packet.marker);
    assert_eq!(frames.count(), 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn counts_match_those_of_a_receiver(
        seed: u64,
        first_seq: u16,
        loss in 0.0f64..0.3,
        burst in proptest::option::of((0.0f64..0.05, 1u32..20)),
        duplicate in 0.0f64..1.0,
        reorder in proptest::option::of((0.0f64..1.0, 1u32..9)),
        jitter in proptest::option::of((0u64..50, any::<bool>())),
        delay in 0u64..50,
        not_taken in 0.0f64..0.5,
        until in 0u64..12_000,
    ) {
        let clip = clip();
        let mut flow = RtpFlow::new(FlowSettings {
            first_seq,
            seed,
            faults: Faults {
                loss,
                loss_burst: burst.map(|(probability, length)| crate::media::rtp::faults::LossBurst {
                    probability,
                    length,
                }),
                duplicate,
                reorder: reorder.map(|(probability, distance)| crate::media::rtp::faults::Reorder {
                    probability,
                    distance,
                }),
                jitter: jitter.map(|(max, in_order)| crate::media::rtp::faults::Jitter {
                    max: Duration::from_millis(max),
                    in_order,
                }),
                delay: Duration::from_millis(delay),
                ..Faults::default()
            },
            ..settings(&clip, &[], Some(10))
        });
        flow.start(Time::ZERO);
        let mut network = Pcg64::seed_from_u64(seed ^ 1);
        let seen = run(&mut flow, Time::ZERO + Duration::from_millis(until), |_| {
            (network.next_u32() as f64) >= not_taken * f64::from(u32::MAX)
        });
        let served = flow.statistics();
        let counted = naive(&seen, first_seq);
        prop_assert_eq!(
            served.last_extended_seq + 1 - u64::from(first_seq),
            (served.expected + served.lost_tail).max(1)
        );
        let comparable = ServedStream {
            first_left_nanos: None,
            ssrc: 0,
            lost_tail: 0,
            not_taken: 0,
            last_extended_seq: 0,
            ..served
        };
        prop_assert_eq!(comparable, counted);
    }
}

#[test]
fn log_has_every_packet_that_left() {
    let clip = clip();
    let faults = ["loss=5%", "duplicate=5%", "reorder=5%x2", "jitter=30ms"];
    let mut flow = RtpFlow::new(FlowSettings {
        log: true,
        ..settings(&clip, &faults, Some(4))
    });
    flow.start(Time::ZERO);
    // The network rejects every seventh packet.
    let seen = run(&mut flow, Time::NEVER, |handed_out| handed_out % 7 != 0);
    let served = flow.statistics();
    assert_eq!(
        served.departures.len() as u64,
        served.sent + served.duplicated
    );
    assert_eq!(served.departures.len(), seen.len());
    for (departure, seen) in served.departures.iter().zip(&seen) {
        assert_eq!(departure.number as u16, seen.seq);
        assert_eq!(departure.timestamp, seen.timestamp);
        assert_eq!(departure.payload as usize, seen.payload.len());
        assert_eq!(departure.when.began, departure.when.ended);
        assert!(departure.when.began >= seen.at);
    }
    assert!(flow.needs_send_times());
}

#[test]
fn only_first_departure_is_timed_without_log() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &[], Some(1)));
    flow.start(Time::from_start(Duration::from_secs(3)));
    assert!(flow.needs_send_times());
    run(&mut flow, Time::NEVER, |handed_out| handed_out >= 2);
    assert!(!flow.needs_send_times());
    let served = flow.statistics();
    assert!(served.departures.is_empty());
    assert!(served.first_left_nanos > Some(3_000_000_000), "{served:?}");
}

#[test]
fn seek_continues_numbers_and_timestamps() {
    let clip = clip();
    let mut flow = RtpFlow::new(settings(&clip, &[], Some(10)));
    flow.start(Time::ZERO);
    let second = Time::from_start(Duration::from_secs(1));
    let before = run(&mut flow, second, |_| true);
    for (from, until, seconds) in [(4, None, 6), (0, Some(2), 2), (9, Some(30), 1)] {
        let at = second + Duration::from_secs(20);
        let until = until.map(Duration::from_secs);
        flow.set_playback(Playback {
            start: Some(Duration::from_secs(from)),
            end: until,
            ..Playback::CONTINUE
        });
        assert_eq!(flow.next_due(), None);
        assert_eq!(flow.position(), Duration::from_secs(from));
        let (seq, timestamp) = flow.next_rtp_info(at);
        flow.start(at);
        let seen = run(&mut flow, Time::NEVER, |_| true);
        assert_eq!((seen[0].seq, seen[0].timestamp), (seq, timestamp));
        assert_eq!(seen[0].at, at);
        // The first packet is the first one of that frame, regardless of the loop's length.
        assert_eq!(seen[0].payload, before[0].payload);
        let frames: std::collections::BTreeSet<u32> =
            seen.iter().map(|packet| packet.timestamp).collect();
        assert_eq!(frames.len(), seconds * 25, "from {from} s");
        let numbers = seen
            .windows(2)
            .map(|pair| pair[1].seq.wrapping_sub(pair[0].seq));
        assert!(numbers.into_iter().all(|step| step == 1));
    }
    assert_eq!(flow.statistics().lost, 0);
}

#[test]
fn scale_changes_media_and_speed_changes_rate() {
    let clip = clip();
    let seconds = Duration::from_secs;
    // Ten seconds of media from 20 s on: number of frames, duration, end position.
    for (scale, speed, until, frames, took, end) in [
        (2.0, 1.0, 30, 125, 5.0, 30),
        (0.5, 1.0, 30, 500, 20.0, 30),
        (1.0, 2.0, 30, 250, 5.0, 30),
        (1.0, 0.5, 30, 250, 20.0, 30),
        (4.0, 2.0, 30, 63, 1.25, 30),
        (-1.0, 1.0, 10, 250, 10.0, 10),
        (-4.0, 1.0, 10, 63, 2.5, 10),
    ] {
        let mut flow = RtpFlow::new(settings(&clip, &[], Some(60)));
        flow.start(Time::ZERO);
        run(&mut flow, Time::from_start(seconds(1)), |_| true);
        flow.set_playback(Playback {
            start: Some(seconds(20)),
            end: Some(seconds(until)),
            scale,
            speed,
        });
        let at = Time::from_start(seconds(3));
        let (_, timestamp) = flow.next_rtp_info(at);
        flow.start(at);
        let seen = run(&mut flow, Time::NEVER, |_| true);
        assert_eq!(seen[0].timestamp, timestamp);
        let mut stamps: Vec<u32> = seen.iter().map(|packet| packet.timestamp).collect();
        stamps.dedup();
        assert_eq!(stamps.len(), frames, "{scale} {speed}");
        // The timestamps advance by one frame, regardless of scale and speed (RFC 2326, B).
        assert!(stamps.windows(2).all(|pair| pair[1] - pair[0] == 3600));
        let lasted = seen[seen.len() - 1].at.since(at).as_secs_f64();
        assert!((lasted - took).abs() < 0.1, "{scale} {speed}: {lasted}");
        let apart = flow.position().abs_diff(seconds(end));
        assert!(apart < Duration::from_millis(200), "{:?}", flow.position());
        // At normal pace again: not before the last timestamp, regardless of the previous speed.
        flow.set_playback(Playback {
            start: Some(seconds(40)),
            ..Playback::CONTINUE
        });
        let back = seen[seen.len() - 1].at;
        let next = flow.next_rtp_info(back).1;
        assert!(next.wrapping_sub(stamps[stamps.len() - 1]) as i32 > 0);
    }
}
