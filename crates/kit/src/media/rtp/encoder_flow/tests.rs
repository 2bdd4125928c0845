//! Pictures of an encoder leave in order and when they are due, with time codes, and are counted.

use std::sync::Arc;

use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::ladder::Ladder;
use crate::mediagen::video::{PictureForm, VideoSettings};

use super::*;

fn flow(pacing: Pacing) -> EncoderFlow {
    let ladder = Ladder::h264(&VideoSettings {
        bits_per_second: 800_000,
        frame_rate: FrameRate::whole(25),
        gop: 50,
        mtu: 1200,
        form: PictureForm::default(),
    });
    EncoderFlow::new(EncoderFlowSettings {
        encoder: Encoder::new(Arc::new(ladder.expect("it is possible"))),
        pacing,
        ssrc: 5,
        first_seq: 65_000,
        first_timestamp: u32::MAX - 1000,
    })
}

const BEGAN: Time = Time::from_nanos(3_000_000_000);

#[test]
fn pictures_leave_when_due_with_time_codes() {
    for pacing in [Pacing::AtOnce, Pacing::Spread] {
        let mut flow = flow(pacing).with_time_codes(Duration::from_secs(100));
        assert_eq!(flow.next_due(), None);
        flow.start(BEGAN);
        let (mut bytes, mut packets, mut codes) = (0, 0u16, 0u32);
        let mut before = BEGAN;
        while let Some(due) = flow
            .next_due()
            .filter(|due| *due < BEGAN + Duration::from_secs(4))
        {
            assert!(due >= before);
            before = due;
            if due > BEGAN {
                assert_eq!(
                    flow.next_packet(due - Duration::from_nanos(1))
                        .map(|p| p.due),
                    None
                );
            }
            let packet = flow.next_packet(due).expect("it is due");
            assert_eq!(packet.due, due);
            let header = &packet.header;
            assert_eq!(header[2..4], 65_000u16.wrapping_add(packets).to_be_bytes());
            packets += 1;
            if let Some(code) = TimeCode::find(&packet.payload) {
                // The first packet of a picture, which spreading does not delay.
                let nanos = u64::from(codes) * 40_000_000;
                assert_eq!(due, BEGAN + Duration::from_nanos(nanos));
                assert_eq!((code.source, code.number), (5, codes));
                assert_eq!(code.nanos, 100_000_000_000 + due.as_nanos());
                let timestamp = (u32::MAX - 1000).wrapping_add(codes * 3600);
                assert_eq!(header[4..8], timestamp.to_be_bytes());
                codes += 1;
            }
            // The third packet is not accepted.
            let left = (packets != 3).then(|| Handover::at(due));
            flow.packet_sent(packet.tag, left);
            bytes += left.map_or(0, |_| packet.payload.len() as u64);
        }
        assert_eq!((codes, flow.pictures_sent()), (100, 100));
        assert_eq!(flow.sent(), (u64::from(packets) - 1, bytes));
        assert_eq!(flow.rejected(), 1);
        flow.stop();
        assert_eq!(flow.next_due(), None);
        // Half a second after the start, on a clock of 90 kHz.
        let report = flow.report(
            BEGAN + Duration::from_millis(500),
            Duration::ZERO,
            "me",
            true,
        );
        let timestamp = (u32::MAX - 1000).wrapping_add(45_000);
        assert_eq!(report[16..20], timestamp.to_be_bytes());
    }
}

#[test]
fn bit_rate_applies_from_the_next_picture() {
    let mut flow = flow(Pacing::AtOnce);
    flow.start(BEGAN);
    assert_eq!(flow.set_bitrate(400_000), 400_000);
    let end = BEGAN + Duration::from_secs(20);
    let mut bytes = 0;
    while let Some(packet) = flow
        .next_due()
        .filter(|due| *due < end)
        .and(flow.next_packet(end))
    {
        bytes += packet.payload.len() as i64;
    }
    assert!((bytes - 1_000_000).abs() < 4000, "{bytes}");
}
