use measure::units::BitRate;

use super::*;
use crate::codec::chunk::{ChunkReader, ReadMessage};
use crate::codec::media::{MediaHeader as MediaTag, PacketContent, find_time_code};
use crate::codec::write;
use kit::media::source::SourceConfig;

const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn flow(bitrate: u64, chunk_size: u32, drop_after: Option<Duration>) -> MediaFlow {
    let source = SourceConfig {
        bitrate: Some(BitRate(bitrate)),
        audio: Some(true),
        ..SourceConfig::default()
    };
    let mut flow = MediaFlow::new(FlowConfig {
        tracks: Arc::new(Tracks::new(&source, None).expect("it can be made")),
        stream: 1,
        chunk_size,
        wall_clock: WALL_CLOCK,
        source: 9,
        drop_after,
        length: None,
        faults: FlowFaults::default(),
        seed: 1,
    });
    flow.start(ms(1000));
    flow
}

/// Takes a piece if one is due. All of it leaves.
fn take(flow: &mut MediaFlow, now: Time, out: &mut Vec<u8>) -> bool {
    let Some(packet) = flow.next_packet(now) else {
        return false;
    };
    assert!(flow.next_packet(now).is_none() && flow.next_due() == Some(Time::NEVER));
    out.extend_from_slice(&packet.payload);
    flow.packet_sent(packet.tag, Some(Handover::at(now)));
    true
}

#[test]
fn pieces_end_at_chunk_boundaries() {
    for chunk_size in [128, 4096, 65_536] {
        // Pictures of up to 700 kB.
        let mut flow = flow(20_000_000, chunk_size, None);
        let mut bytes = Vec::new();
        write::set_chunk_size(chunk_size, &mut bytes);
        let (mut now, mut pieces) = (ms(1000), 0);
        while now < ms(2000) {
            now = flow.next_due().expect("it goes on").max(now);
            while take(&mut flow, now, &mut bytes) {
                pieces += 1;
                write::acknowledgement(pieces, &mut bytes);
            }
        }
        let mut reader = ChunkReader::new(false);
        let (mut at, mut numbers, mut media, mut acknowledged) = (0, Vec::new(), 0, 0);
        while let Some(item) = reader.next_message(&bytes, &mut at).expect("it is RTMP") {
            match item {
                ReadMessage::Media(one) => {
                    media += 1;
                    let tag = MediaTag::parse(true, one.head).filter(|_| one.video);
                    numbers.extend(tag.and_then(|tag| find_time_code(one.head.get(tag.data..)?)));
                }
                ReadMessage::Message(_) => acknowledged += 1,
            }
        }
        assert_eq!((numbers.len(), media), (26, 26 + 47));
        assert_eq!(acknowledged, pieces + 1);
        let sent = flow.sent();
        assert_eq!((sent.video_frames, sent.audio_frames), (26, 47));
        for (number, code) in numbers.iter().enumerate() {
            let due = WALL_CLOCK + Duration::from_millis(1000 + number as u64 * 40);
            assert_eq!((code.source, code.number), (9, number as u32));
            assert_eq!(code.nanos, due.as_nanos() as u64);
        }
    }
}

#[test]
fn backlog_waits_and_is_measured() {
    let mut flow = flow(1_000_000, 4096, None);
    let mut bytes = Vec::new();
    while take(&mut flow, ms(1000), &mut bytes) {}
    // The connection takes nothing for two seconds.
    assert_eq!(flow.take_delays(), [0, 0]);
    let waiting = flow.backlog_bytes(ms(3000));
    assert!(waiting.abs_diff(298_000) < 9000, "{waiting}");
    // A refused piece is handed out again.
    let refused = flow.next_packet(ms(3000)).expect("it is due");
    flow.packet_sent(refused.tag, None);
    let again = flow.next_packet(ms(3000)).expect("it is due");
    assert_eq!(refused.payload, again.payload);
    flow.packet_sent(again.tag, Some(Handover::at(ms(3000))));
    while take(&mut flow, ms(3000), &mut bytes) {}
    assert_eq!(flow.backlog_bytes(ms(3000)), 0);
    let delays = flow.take_delays();
    assert_eq!(delays.len(), 50 + 93);
    let most = delays.iter().max().copied();
    assert_eq!(most.map(|most| most / 1_000_000), Some(1978));
    assert_eq!(flow.sent().not_taken, 0);
}

#[test]
fn late_frames_are_dropped_up_to_the_next_key_frame() {
    let mut flow = flow(1_000_000, 4096, Some(Duration::from_secs(1)));
    let mut bytes = Vec::new();
    while take(&mut flow, ms(1000), &mut bytes) {}
    while take(&mut flow, ms(6000), &mut bytes) {}
    let sent = flow.sent();
    assert_eq!(
        sent.not_taken + sent.video_frames + sent.audio_frames,
        126 + 235
    );
    assert!(sent.not_taken > 200, "{sent:?}");
    // Time code numbers continue, so that players miss the dropped frames.
    assert_eq!(flow.next_time_code, 126);
}

#[test]
fn injected_faults_match_what_a_player_sees() {
    let mut flow = flow(1_000_000, 4096, None);
    flow.config.faults = FlowFaults {
        lose: 0.1,
        malformed: 0.1,
        stall: Some((Duration::from_secs(1), Duration::from_millis(300))),
        ..FlowFaults::default()
    };
    flow.outlet.frame_faults = FrameFaults::new(&flow.config.faults, 1);
    let mut bytes = Vec::new();
    write::set_chunk_size(4096, &mut bytes);
    let mut now = ms(1000);
    while now < ms(9000) {
        now = flow.next_due().expect("it goes on").max(now);
        while take(&mut flow, now, &mut bytes) {}
    }
    let mut reader = ChunkReader::new(false);
    let (mut at, mut malformed, mut numbers, mut audio, mut keys) = (0, 0, Vec::new(), 0, 0);
    while let Some(item) = reader.next_message(&bytes, &mut at).expect("it is RTMP") {
        let ReadMessage::Media(one) = item else {
            continue;
        };
        let tag = MediaTag::parse(one.video, one.head);
        let Some(tag) = tag else {
            malformed += 1;
            continue;
        };
        keys += u64::from(one.video && tag.content == PacketContent::Frame { key: true });
        match one.video {
            true => numbers.extend(find_time_code(&one.head[tag.data..]).map(|code| code.number)),
            false => audio += 1,
        }
    }
    let sent = flow.sent();
    let pictures = numbers.len() as u64;
    assert_eq!((sent.video_frames, sent.audio_frames), (pictures, audio));
    assert_eq!((sent.malformed, sent.key_frames), (malformed, keys));
    let missed = u64::from(numbers[numbers.len() - 1] - numbers[0]) + 1 - pictures;
    assert_eq!(sent.missed, missed);
    assert!(
        sent.left_out > 20 && malformed > 20 && missed > 20,
        "{sent:?}"
    );
    // One pause of audio and one of video, from the first frame that was due within it.
    assert_eq!(sent.stalls, 2);
    let stalled = sent.stalled_nanos / 1_000_000;
    assert!((400..=600).contains(&stalled), "{stalled}");
    assert_eq!(sent.first_given_nanos, Some(1_000_000_000));
}
