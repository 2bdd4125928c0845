//! Packets of several sources on one socket.

use super::*;
use crate::feedback;
use crate::metrics::WEBRTC;
use crate::srtp::{RtpSealer, SrtpKeys, SrtpProfile};

const VIDEO: PayloadFormat = PayloadFormat {
    payload_type: 96,
    kind: MediaKind::Video,
    codec: Some(VideoCodec::H264),
    clock_rate: 90_000,
    is_rtx: false,
    apt: None,
    nack: true,
    key_frame_request: Some(KeyFrameRequest::Pli),
};

const GROUPS: &[&measure::Group] = &[
    &kit::metrics::CLIENTS,
    &kit::metrics::ZAPPING,
    &kit::media::rtp::metrics::RTP,
    &WEBRTC,
];

fn tracks() -> (Tracks, Recorder) {
    let mut tracks = Tracks::new(Duration::from_secs(1));
    tracks.set_formats(vec![
        VIDEO,
        PayloadFormat {
            payload_type: 97,
            is_rtx: true,
            apt: Some(96),
            ..VIDEO
        },
        PayloadFormat {
            payload_type: 111,
            kind: MediaKind::Audio,
            codec: None,
            clock_rate: 48_000,
            is_rtx: false,
            apt: None,
            nack: false,
            key_frame_request: None,
        },
    ]);
    tracks.srtp_overhead = 16;
    (tracks, Recorder::new(measure::Catalogue(GROUPS)))
}

fn packet(first: u8, payload_type: u8, sequence: u16, ssrc: u32) -> Vec<u8> {
    let mut bytes = vec![first, payload_type];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(u32::from(sequence).to_be_bytes());
    bytes.extend(ssrc.to_be_bytes());
    bytes.resize(12 + 100 + 16, 0xee);
    bytes
}

fn take(tracks: &mut Tracks, recorder: &mut Recorder, bytes: &[u8], ms: u64) -> Option<MediaEvent> {
    let arrival = Arrival {
        at: Time::from_nanos(ms * 1_000_000),
        bytes,
        length: bytes.len(),
        overhead: 28,
    };
    tracks.packet(&arrival, recorder)
}

#[test]
fn only_authentic_packets_are_counted() {
    let keys = |client| SrtpKeys::from_exported(SrtpProfile::AeadAes128Gcm, &[7; 56], client);
    let mut sealer = keys(false).expect("it is long enough").rtp_sealer();
    let (mut tracks, mut recorder) = tracks();
    tracks.srtp_overhead = 0;
    tracks.enable_decryption();
    let sealed = |sealer: &mut RtpSealer, sequence| {
        let mut bytes = packet(0x80, 96, sequence, 50);
        sealer.seal(&mut bytes).expect("it is in order");
        bytes
    };
    let early = sealed(&mut sealer, 1);
    assert_eq!(take(&mut tracks, &mut recorder, &early, 1), None);
    assert_eq!(recorder.counter(rtp::WIRE_BYTES), 0);
    let keys = keys(true).expect("it is long enough");
    tracks.set_opener(Time::ZERO, Some(keys.rtp_opener()));
    let second = sealed(&mut sealer, 2);
    assert!(take(&mut tracks, &mut recorder, &second, 2).is_some());
    let mut forged = sealed(&mut sealer, 3);
    forged[20] ^= 1;
    assert_eq!(take(&mut tracks, &mut recorder, &forged, 3), None);
    assert_eq!(take(&mut tracks, &mut recorder, &second, 4), None);
    assert_eq!(recorder.counter(rtp::RECEIVED), 1);
    // Wire bytes include the encryption overhead, payload bytes do not.
    assert_eq!(recorder.counter(rtp::WIRE_BYTES), second.len() as u64 + 28);
    assert_eq!(recorder.counter(rtp::PAYLOAD_BYTES), 116);
    let counts = tracks.opener_counts();
    assert_eq!((counts.unauthentic, counts.replayed), (1, 1));
}

#[test]
fn streams_are_separated_by_ssrc() {
    let (mut tracks, mut recorder) = tracks();
    let first = take(&mut tracks, &mut recorder, &packet(0x80, 96, 7, 50), 1);
    assert_eq!(
        first,
        Some(MediaEvent::First {
            at: Time::from_nanos(1_000_000)
        })
    );
    for (payload_type, sequence, ssrc) in [
        (111, 1, 20),
        (96, 9, 50),
        (97, 1, 60),
        (111, 2, 20),
        (100, 1, 70),
    ] {
        let bytes = packet(0x80, payload_type, sequence, ssrc);
        assert_eq!(take(&mut tracks, &mut recorder, &bytes, 2), None);
    }
    let rows = tracks.rows("whep+http://h/");
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.kind, row.ssrc, row.counts.received, row.counts.lost()))
        .collect();
    let expected = [
        (MediaKind::Audio, Some(20), 2, 0),
        (MediaKind::Video, Some(50), 2, 1),
    ];
    assert_eq!(found, expected);
    assert_eq!(rows[0].counts.payload_bytes, 200);
    assert_eq!(rows[0].counts.wire_bytes, 2 * (12 + 100 + 16 + 28));
}

#[test]
fn encrypted_padding_is_not_malformed() {
    let (mut tracks, mut recorder) = tracks();
    take(&mut tracks, &mut recorder, &packet(0xa0, 96, 7, 50), 1);
    let rows = tracks.rows("");
    assert_eq!((rows[0].counts.received, rows[0].counts.malformed), (1, 0));
}

#[test]
fn padded_packet_is_media_if_longer_than_any_padding() {
    let (mut tracks, mut recorder) = tracks();
    take(&mut tracks, &mut recorder, &packet(0xa0, 96, 7, 50), 1);
    assert_eq!(tracks.first_arrival(), None);
    let mut long = packet(0xa0, 96, 8, 50);
    long.resize(12 + 256 + 16, 0);
    let event = take(&mut tracks, &mut recorder, &long, 2);
    assert!(matches!(event, Some(MediaEvent::First { .. })));
    let rows = tracks.rows("");
    assert_eq!(rows[0].counts.payload_bytes, 256);
    let wire = (12 + 100 + 16 + 28) + (12 + 256 + 16 + 28);
    assert_eq!(rows[0].counts.wire_bytes, wire);
}

#[test]
fn number_of_streams_is_bounded() {
    let (mut tracks, mut recorder) = tracks();
    for ssrc in 0..2 * TRACKS_MAX as u32 {
        take(&mut tracks, &mut recorder, &packet(0x80, 96, 1, ssrc), 1);
    }
    assert_eq!(tracks.rows("").len(), TRACKS_MAX);
    assert_eq!(take(&mut tracks, &mut recorder, &[0x80; 11], 1), None);
}

#[test]
fn each_stream_has_its_own_report() {
    let (mut tracks, mut recorder) = tracks();
    for (payload_type, ssrc) in [(96, 50), (111, 20), (97, 60)] {
        let bytes = packet(0x80, payload_type, 1, ssrc);
        take(&mut tracks, &mut recorder, &bytes, 1);
    }
    let mut about = Vec::new();
    let next = tracks.write_reports(Time::from_nanos(9), 1, "me", 0, |compound| {
        for packet in rtcp::packets(compound) {
            if let Ok(Packet::ReceiverReport { ssrc, blocks }) = packet {
                about.push((ssrc, blocks.len(), blocks[0].ssrc));
            }
        }
    });
    assert_eq!(about, [(1, 1, 20), (1, 1, 50)]);
    assert_eq!(next, None);
    for ssrc in 1000..1080 {
        let bytes = packet(0x80, 96, 1, ssrc);
        take(&mut tracks, &mut recorder, &bytes, 1);
    }
    let (mut from, mut pieces) = (Some(0), Vec::new());
    while let Some(at) = from {
        let mut count = 0;
        let count_report = |_: &mut Vec<u8>| count += 1;
        from = tracks.write_reports(Time::from_nanos(9), 1, "me", at, count_report);
        pieces.push(count);
    }
    // One of the first streams contains retransmissions.
    assert_eq!(pieces, [31, 32, 19]);
}

#[test]
fn missing_packets_are_requested_if_negotiated() {
    let (mut tracks, mut recorder) = tracks();
    tracks.nack_enabled = true;
    for (payload_type, sequence, ssrc) in [(96, 1, 50), (111, 1, 20), (96, 4, 50), (111, 4, 20)] {
        let bytes = packet(0x80, payload_type, sequence, ssrc);
        take(&mut tracks, &mut recorder, &bytes, 1);
    }
    let now = Time::from_nanos(2_000_000);
    let mut requested = Vec::new();
    let key_frames = tracks.write_requests(now, 1, None, |compound| {
        requested.extend(feedback::messages(compound).filter_map(Result::ok));
    });
    assert_eq!(key_frames, 0);
    let nack = feedback::Message::Nack {
        sender: 1,
        media: 50,
        missing: vec![2, 3],
    };
    assert_eq!(requested, [nack]);
    take(&mut tracks, &mut recorder, &packet(0x80, 96, 2, 50), 3);
    tracks.finish(None, &mut recorder);
    assert_eq!(recorder.counter(m::ASKED_PACKETS), 2);
    assert_eq!(recorder.counter(m::RECOVERED_PACKETS), 1);
    // Too many are missing for requests: a key frame is requested, for video only.
    take(&mut tracks, &mut recorder, &packet(0x80, 96, 2000, 50), 4);
    let key_frames = tracks.write_requests(Time::from_nanos(5_000_000), 1, None, |_| ());
    assert_eq!(key_frames, 1);
}

#[test]
fn key_frame_is_requested_by_the_negotiated_message() {
    for negotiated in [Some(KeyFrameRequest::Pli), Some(KeyFrameRequest::Fir), None] {
        let mut recorder = Recorder::new(measure::Catalogue(GROUPS));
        let mut tracks = Tracks::new(Duration::from_secs(1));
        tracks.set_formats(vec![PayloadFormat {
            key_frame_request: negotiated,
            ..VIDEO
        }]);
        tracks.srtp_overhead = 16;
        tracks.nack_enabled = true;
        for sequence in [1, 2000] {
            take(
                &mut tracks,
                &mut recorder,
                &packet(0x80, 96, sequence, 50),
                1,
            );
        }
        let mut requests = Vec::new();
        let now = Time::from_nanos(2_000_000);
        let key_frames = tracks.write_requests(now, 1, None, |compound| {
            let kinds = feedback::messages(compound).flatten().map(|own| match own {
                feedback::Message::PictureLoss { .. } => Some(KeyFrameRequest::Pli),
                feedback::Message::FullIntra { .. } => Some(KeyFrameRequest::Fir),
                _ => None,
            });
            requests.extend(kinds.flatten());
        });
        assert_eq!(key_frames, u64::from(negotiated.is_some()));
        assert_eq!(requests, Vec::from_iter(negotiated));
    }
}

#[test]
fn requests_rotate_over_streams_and_wait_a_round_trip() {
    let (mut tracks, mut recorder) = tracks();
    tracks.nack_enabled = true;
    for (sequence, ssrc) in [1, 3].into_iter().flat_map(|number| {
        // More streams than one call covers.
        (1000..1080).map(move |ssrc| (number, ssrc))
    }) {
        let bytes = packet(0x80, 96, sequence, ssrc);
        take(&mut tracks, &mut recorder, &bytes, 1);
    }
    let ask = |tracks: &mut Tracks, ms: u64| {
        let (mut requested, round_trip) = (Vec::new(), Some(Duration::from_millis(300)));
        let now = Time::from_nanos(ms * 1_000_000);
        tracks.write_requests(now, 1, round_trip, |compound| {
            for message in feedback::messages(compound).filter_map(Result::ok) {
                if let feedback::Message::Nack { media, .. } = message {
                    requested.push(media);
                }
            }
        });
        requested
    };
    assert!(ask(&mut tracks, 10).into_iter().eq(1000..1032));
    // A new gap in the first streams must not delay those that still wait for their turn.
    for ssrc in 1000..1032 {
        take(&mut tracks, &mut recorder, &packet(0x80, 96, 5, ssrc), 20);
    }
    assert!(ask(&mut tracks, 50).into_iter().eq(1032..1064));
    let next = ask(&mut tracks, 90);
    assert!(next.into_iter().eq((1064..1080).chain(1000..1016)));
    assert!(ask(&mut tracks, 130).into_iter().eq(1016..1032));
    assert!(ask(&mut tracks, 300).is_empty());
    assert_eq!(ask(&mut tracks, 320).len(), 32);
}

#[test]
fn ended_streams_are_not_reported() {
    let (mut tracks, mut recorder) = tracks();
    for (ssrc, ms) in [(50, 1), (60, 1), (70, 9_000)] {
        take(&mut tracks, &mut recorder, &packet(0x80, 96, 1, ssrc), ms);
    }
    let mut goodbye = Vec::new();
    rtcp::write_receiver_report(&mut goodbye, 60, &[]);
    rtcp::write_bye(&mut goodbye, &[60], None);
    let about = |tracks: &mut Tracks, ms: u64| {
        let (mut about, now) = (0, Time::from_nanos(ms * 1_000_000));
        tracks.write_reports(now, 1, "me", 0, |_| about += 1);
        about
    };
    assert_eq!(about(&mut tracks, 7_000), 3);
    tracks.handle_rtcp(&goodbye, Time::from_nanos(0), &mut recorder);
    assert_eq!(about(&mut tracks, 7_000), 2);
    assert_eq!(about(&mut tracks, 9_000), 1);
    // Bandwidth estimates do not name them either.
    let mut named = |ms: u64| {
        let (now, mut message) = (Time::from_nanos(ms * 1_000_000), Vec::new());
        tracks.write_remb(now, 1, &mut message);
        let all = feedback::messages(&message).filter_map(Result::ok);
        all.filter_map(|message| match message {
            feedback::Message::Remb { sources, .. } => Some(sources),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    assert!(named(8_500).is_empty());
    assert_eq!(named(9_500), [[70]]);
}

fn section(mid: &str, kind: MediaKind, sources: &[u32]) -> Section {
    Section {
        mid: mid.to_owned(),
        kind,
        track: Some(format!("track {mid}")),
        sources: sources.iter().map(|ssrc| (*ssrc, None)).collect(),
        since: Time::ZERO,
    }
}

/// Returns the status of each section at a time, if packets of the given sources and payload types
/// arrived every 20 ms up to the times given.
fn statuses(sections: &[Section], came: &[(u32, u8, u64)], at: u64) -> Vec<MediaStatus> {
    let (mut tracks, mut recorder) = tracks();
    tracks.set_sections(sections.to_vec());
    for ms in (0..at).step_by(20) {
        for (ssrc, payload_type, until) in came {
            if ms < *until {
                let bytes = packet(0x80, *payload_type, (ms / 20) as u16, *ssrc);
                take(&mut tracks, &mut recorder, &bytes, ms);
            }
        }
    }
    let now = Time::from_nanos(at * 1_000_000);
    let statuses = tracks.section_statuses(now, Time::ZERO, Duration::from_secs(10), |_| None);
    statuses.into_iter().map(|(_, status)| status).collect()
}

#[test]
fn section_without_media_is_detected() {
    use MediaKind::{Audio, Video};
    let stopped = |ms| MediaStatus::Stopped(Duration::from_millis(ms));
    let never = |ms| MediaStatus::NeverArrived(Duration::from_millis(ms));
    let named = [section("0", Audio, &[20]), section("1", Video, &[50])];
    let unnamed = [section("0", Audio, &[]), section("1", Video, &[])];
    for sections in [&named, &unnamed] {
        for (until, expected) in [
            (8_000, MediaStatus::Flowing),
            (6_100, MediaStatus::Flowing),
            (5_000, stopped(3_020)),
            (0, never(8_000)),
        ] {
            let came = [(20, 111, 8_000), (50, 96, until)];
            let found = statuses(sections, &came, 8_000);
            assert_eq!(found, [MediaStatus::Flowing, expected], "{until}");
        }
    }
    // The section of a stream is ambiguous.
    let two = [section("0", Video, &[]), section("1", Video, &[51])];
    assert_eq!(
        statuses(&two, &[(50, 96, 5_000)], 8_000),
        [MediaStatus::Unknown, MediaStatus::Unknown]
    );
    // The newest of two sources of a section counts.
    let both = [section("0", Video, &[50, 51])];
    let came = [(50, 96, 2_000), (51, 96, 8_000)];
    assert_eq!(statuses(&both, &came, 8_000), [MediaStatus::Flowing]);
}

#[test]
fn muted_section_is_not_silent_and_gets_time_after_unmute() {
    let (mut tracks, mut recorder) = tracks();
    tracks.set_sections(vec![
        section("0", MediaKind::Audio, &[20]),
        section("1", MediaKind::Video, &[50]),
    ]);
    for ms in (0..1000).step_by(20) {
        let bytes = packet(0x80, 96, (ms / 20) as u16, 50);
        take(&mut tracks, &mut recorder, &bytes, ms);
    }
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    for (muted, expected) in [
        (Some(Time::NEVER), [MediaStatus::Muted; 2]),
        (
            Some(at(8_500)),
            [
                MediaStatus::NeverArrived(Duration::from_millis(500)),
                MediaStatus::Flowing,
            ],
        ),
        (
            None,
            [
                MediaStatus::NeverArrived(Duration::from_millis(9_000)),
                MediaStatus::Stopped(Duration::from_millis(8_020)),
            ],
        ),
    ] {
        let until = |track: &str| muted.filter(|_| track.starts_with("track "));
        let found = tracks.section_statuses(at(9_000), Time::ZERO, Duration::from_secs(10), until);
        let found: Vec<MediaStatus> = found.into_iter().map(|(_, status)| status).collect();
        assert_eq!(found, expected, "{muted:?}");
    }
}

#[test]
fn source_that_sent_bye_is_not_silent() {
    let (mut tracks, mut recorder) = tracks();
    tracks.set_sections(vec![section("0", MediaKind::Video, &[50])]);
    for ms in (0..2000).step_by(20) {
        let bytes = packet(0x80, 96, (ms / 20) as u16, 50);
        take(&mut tracks, &mut recorder, &bytes, ms);
    }
    let statuses = |tracks: &Tracks| {
        let now = Time::from_nanos(9_000_000_000);
        tracks.section_statuses(now, Time::ZERO, Duration::from_secs(10), |_| None)[0].1
    };
    assert!(matches!(statuses(&tracks), MediaStatus::Stopped(_)));
    // A renegotiated section has time for its media to arrive.
    let renegotiated = Section {
        since: Time::from_nanos(8_000_000_000),
        ..section("7", MediaKind::Video, &[50])
    };
    tracks.set_sections(vec![renegotiated.clone()]);
    assert_eq!(statuses(&tracks), MediaStatus::Flowing);
    tracks.set_sections(vec![section("0", MediaKind::Video, &[50])]);
    tracks.handle_bye(50);
    assert_eq!(statuses(&tracks), MediaStatus::Flowing);
}

/// A retransmission of a packet, with that SSRC and sequence number.
fn retransmission(rtx: u32, sequence: u16, of: &[u8]) -> Vec<u8> {
    let mut bytes = vec![of[0], of[1] & 0x80 | 97];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(&of[4..8]);
    bytes.extend(rtx.to_be_bytes());
    bytes.extend(&of[2..4]);
    bytes.extend(&of[12..]);
    bytes
}

#[test]
fn rtx_packets_count_in_the_repaired_stream() {
    // The description names the repaired stream, or only one stream is possible.
    for sources in [&[(50, Some(60)), (51, Some(61))][..], &[]] {
        let (mut tracks, mut recorder) = tracks();
        tracks.srtp_overhead = 0;
        tracks.nack_enabled = true;
        let kind = MediaKind::Video;
        tracks.set_sections(vec![Section {
            sources: sources.to_vec(),
            ..section("0", kind, &[])
        }]);
        for sequence in [1, 4] {
            take(
                &mut tracks,
                &mut recorder,
                &packet(0x80, 96, sequence, 50),
                1,
            );
            if !sources.is_empty() {
                take(
                    &mut tracks,
                    &mut recorder,
                    &packet(0x80, 96, sequence, 51),
                    1,
                );
            }
        }
        tracks.write_requests(Time::from_nanos(2_000_000), 1, None, |_| ());
        let original = packet(0x80, 96, 3, 50);
        let rtx = retransmission(60, 900, &original);
        take(&mut tracks, &mut recorder, &rtx, 3);
        // A packet with only padding, as sent to probe the bandwidth; and one that has arrived
        // before.
        let mut padding = packet(0xa0, 97, 901, 60);
        *padding.last_mut().expect("it is long") = 116;
        take(&mut tracks, &mut recorder, &padding, 3);
        take(
            &mut tracks,
            &mut recorder,
            &retransmission(60, 902, &original),
            3,
        );
        tracks.finish(None, &mut recorder);
        let rows = tracks.rows("");
        let row = rows
            .iter()
            .find(|row| row.ssrc == Some(50))
            .expect("it came");
        let counts = &row.counts;
        assert_eq!((counts.received, counts.lost()), (3, 1), "{sources:?}");
        assert_eq!((counts.reordered, counts.duplicated), (1, 1));
        assert_eq!(counts.payload_bytes, 3 * 116);
        assert_eq!(counts.wire_bytes, 4 * (128 + 28) + 2 * 2);
        assert_eq!(recorder.counter(m::RTX_PACKETS), 3);
        assert_eq!(recorder.counter(m::RECOVERED_PACKETS), 1);
    }
}

#[test]
fn unassignable_retransmissions_are_only_counted() {
    let (mut tracks, mut recorder) = tracks();
    tracks.srtp_overhead = 0;
    let of = packet(0x80, 96, 3, 50);
    for (ssrc, sequence) in [(50, 1), (51, 1)] {
        take(
            &mut tracks,
            &mut recorder,
            &packet(0x80, 96, sequence, ssrc),
            1,
        );
    }
    for bytes in [
        retransmission(60, 1, &of),
        retransmission(60, 1, &of)[..13].to_vec(),
        packet(0x9f, 97, 2, 60),
    ] {
        take(&mut tracks, &mut recorder, &bytes, 2);
    }
    assert_eq!(recorder.counter(m::RTX_PACKETS), 3);
    assert!(tracks.rows("").iter().all(|row| row.counts.received == 1));
}

#[test]
fn remb_is_one_and_a_half_times_the_received_rate() {
    let (mut tracks, mut recorder) = tracks();
    let mut rembs = Vec::new();
    let mut estimate = |tracks: &mut Tracks, ms: u64| {
        let now = Time::from_nanos(ms * 1_000_000);
        let mut message = Vec::new();
        let estimate = tracks.write_remb(now, 1, &mut message);
        rembs.extend(feedback::messages(&message).filter_map(Result::ok));
        estimate
    };
    assert_eq!(estimate(&mut tracks, 0), None);
    // 156 bytes on the wire every ms: 1.248 Mb/s. Then every fifth packet is lost.
    for ms in 0..1000 {
        take(
            &mut tracks,
            &mut recorder,
            &packet(0x80, 96, ms as u16, 50),
            ms,
        );
    }
    assert_eq!(estimate(&mut tracks, 1000), Some(1_872_000));
    for ms in 1000..2000 {
        if ms % 5 > 0 || ms == 1000 {
            take(
                &mut tracks,
                &mut recorder,
                &packet(0x80, 96, ms as u16, 50),
                ms,
            );
        }
    }
    let lowered = estimate(&mut tracks, 2000).expect("media came");
    assert!((1_340_000..1_360_000).contains(&lowered), "{lowered}");
    // No packets arrive: the minimum.
    assert_eq!(estimate(&mut tracks, 3000), Some(300_000));
    let first = rembs.first().expect("it was written");
    assert!(
        matches!(first, feedback::Message::Remb { bitrate, sources, .. }
            if bitrate.abs_diff(1_872_000) < 10_000 && sources == &[50]),
        "{first:?}"
    );
}

#[test]
fn key_frames_count_once_and_first_delay_is_recorded() {
    let keys = |client| SrtpKeys::from_exported(SrtpProfile::AeadAes128Gcm, &[7; 56], client);
    let mut sealer = keys(false).expect("it is long enough").rtp_sealer();
    let (mut tracks, mut recorder) = tracks();
    tracks.srtp_overhead = 0;
    tracks.enable_decryption();
    let opener = keys(true).expect("it is long enough").rtp_opener();
    tracks.set_opener(Time::from_nanos(1_000_000), Some(opener));
    // A predicted picture, two slices of a key frame, another predicted picture, and a key frame.
    let pictures = [(0x41, 1u32), (0x65, 2), (0x65, 2), (0x41, 3), (0x65, 4)];
    for (number, (unit, timestamp)) in (1..).zip(pictures) {
        let mut bytes = packet(0x80, 96, number, 50);
        bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
        bytes[12] = unit;
        sealer.seal(&mut bytes).expect("it is in order");
        take(&mut tracks, &mut recorder, &bytes, number.into());
    }
    assert_eq!(recorder.counter(m::KEY_FRAMES), 2);
    let delays = recorder.histogram(m::FIRST_KEY_FRAME_DELAY).expect("one");
    assert_eq!((delays.count(), delays.max()), (1, Some(1_000_000)));
}

#[test]
fn key_frame_request_uses_feedback_enabled_on_both_sides() {
    let wanted = |pli, fir| FeedbackTypes {
        pli,
        fir,
        ..FeedbackTypes::default()
    };
    let both = [
        "nack".to_owned(),
        "nack pli".to_owned(),
        "ccm fir".to_owned(),
    ];
    let (pli, fir) = (Some(KeyFrameRequest::Pli), Some(KeyFrameRequest::Fir));
    for (negotiated, wanted, expected) in [
        (&both[..], wanted(true, true), pli),
        (&both[2..], wanted(true, true), fir),
        // A server that accepts more than it was offered.
        (&both[..], wanted(false, true), fir),
        (&both[..], wanted(false, false), None),
        (&both[2..], wanted(true, false), None),
        (&both[..1], wanted(true, true), None),
    ] {
        let codec = Codec {
            feedback: negotiated.to_vec(),
            ..Codec::new(96, "H264", 90_000)
        };
        let chosen = KeyFrameRequest::negotiated(&codec, wanted);
        assert_eq!(chosen, expected, "{negotiated:?}");
    }
}

#[test]
fn more_than_a_tenth_of_unknown_media_is_described() {
    for (unknown, is_described) in [
        (0, false),
        (20, false),
        (22, false),
        (23, true),
        (600, true),
    ] {
        let (mut tracks, mut recorder) = tracks();
        for number in 0..200 {
            take(&mut tracks, &mut recorder, &packet(0x80, 96, number, 50), 1);
        }
        for number in 0..unknown {
            let payload_type = 120 + (number % 6) as u8;
            let bytes = packet(0x80, payload_type, number, 60);
            take(&mut tracks, &mut recorder, &bytes, 1);
        }
        assert_eq!(recorder.counter(m::UNKNOWN_MEDIA), u64::from(unknown));
        let text = tracks.describe_unknown_media();
        assert_eq!(text.is_some(), is_described, "{text:?}");
        if let Some(text) = text {
            let all = 200 + unknown;
            let wanted = format!(
                "{unknown} of {all} packets belong to no negotiated media \
                 (payload types 120, 121, 122, 123 and others)"
            );
            assert_eq!(text, wanted);
        }
    }
}

#[test]
fn each_new_gap_is_reported_once() {
    let (mut tracks, mut recorder) = tracks();
    tracks.nack_enabled = true;
    assert!(!tracks.has_requests());
    let mut event = |tracks: &mut Tracks, sequence: u16| {
        let bytes = packet(0x80, 96, sequence, 50);
        match take(tracks, &mut recorder, &bytes, sequence.into()) {
            Some(MediaEvent::First { .. }) => None,
            other => other,
        }
    };
    let missing = |sequence: u64| {
        let at = Time::from_nanos(sequence * 1_000_000);
        Some(MediaEvent::FeedbackDue { at })
    };
    assert_eq!(event(&mut tracks, 1), None);
    assert_eq!(event(&mut tracks, 3), missing(3));
    // Both are requested at once.
    assert_eq!(event(&mut tracks, 5), None);
    let mut compounds = 0;
    tracks.write_requests(Time::from_nanos(6_000_000), 1, None, |_| compounds += 1);
    assert!(tracks.has_requests() && compounds == 1);
    assert_eq!(event(&mut tracks, 6), None);
    assert_eq!(event(&mut tracks, 8), missing(8));
    assert!(tracks.has_requests());
    // A late packet, and a gap too large for requests.
    assert_eq!(event(&mut tracks, 7), None);
    assert_eq!(event(&mut tracks, 5_000), missing(5_000));
}

#[test]
fn first_packets_of_each_stream_have_to_be_authentic() {
    let keys = |own: u8, client| {
        let keys = SrtpKeys::from_exported(SrtpProfile::AeadAes128Gcm, &[own; 56], client);
        keys.expect("it is long enough")
    };
    // One packet in `whole` is captured whole.
    let receive = |own: u8, whole: u16, first: u16| {
        let (mut tracks, mut recorder) = tracks();
        tracks.authenticate_first_packets(Some(keys(7, true)));
        let mut sealer = keys(own, false).rtp_sealer();
        for (ssrc, number) in (1..=10).flat_map(|number| [(50, number), (60, number)]) {
            let mut bytes = packet(0x80, 96, first.wrapping_add(number), ssrc);
            // Key 0 means not encrypted.
            if own > 0 {
                sealer.seal(&mut bytes).expect("it is in order");
            }
            let arrival = Arrival {
                at: Time::from_nanos(1_000_000),
                bytes: match number % whole {
                    0 => &bytes,
                    _ => &bytes[..60],
                },
                length: bytes.len(),
                overhead: 28,
            };
            tracks.packet(&arrival, &mut recorder);
            // A repeated packet is a duplicate, also among the first ones.
            tracks.packet(&arrival, &mut recorder);
        }
        tracks.finish(None, &mut recorder);
        let rows = tracks.rows("");
        let counts = rows
            .iter()
            .map(|row| (row.counts.received, row.counts.duplicated));
        (
            counts.collect::<Vec<_>>(),
            tracks.opener_counts().unauthentic,
        )
    };
    let good = vec![(10, 10), (10, 10)];
    assert_eq!(receive(7, 1, 0), (good.clone(), 0));
    assert_eq!(receive(8, 1, 0), (vec![], 40), "other keys");
    assert_eq!(receive(0, 1, 0), (vec![], 40), "not encrypted");
    // A ring keeps a sample whole. What comes before its first packet counts.
    let caught = vec![(3, 3), (3, 3)];
    assert_eq!(receive(7, 4, 0), (good.clone(), 0));
    assert_eq!(receive(7, 4, 65_533), (good.clone(), 0), "a rollover first");
    assert_eq!(receive(8, 4, 0), (caught.clone(), 8), "other keys");
    assert_eq!(receive(0, 4, 0), (caught, 8), "not encrypted");
    // The sample had none of them.
    assert_eq!(receive(8, 11, 0), (good, 0));
}
