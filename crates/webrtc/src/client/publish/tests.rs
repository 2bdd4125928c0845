//! Encryption of sent packets, retransmissions, and feedback.

use bytes::BytesMut;
use kit::mediagen::ladder::Encoder;

use super::*;
use crate::certificate::Certificate;
use crate::client::Client;
use crate::config::ClientConfig;
use crate::extension;
use crate::feedback::{RtxStream, parse_rtx, write_fir, write_nack, write_pli};
use crate::metrics::WEBRTC;
use crate::sdp::{Codec, Direction as Way, MediaKind};
use crate::srtp::{SrtpKeys, SrtpProfile};
use kit::media::rtp::flow::{Clip, Pacing};
use kit::media::rtp::{EncoderFlow, EncoderFlowSettings, Faults, FlowSettings, RtpFlow};
use kit::media::source::{AudioCodec, MediaSource, SourceConfig};
use session::{Flow as _, Handover, PacketHeader};

const GROUPS: &[&measure::Group] = &[
    &kit::metrics::CLIENTS,
    &kit::metrics::ZAPPING,
    &kit::viewer::VIEWERS,
    &kit::media::rtp::metrics::RTP,
    &WEBRTC,
];

fn keys(client: bool) -> SrtpKeys {
    let keys = SrtpKeys::from_exported(SrtpProfile::AeadAes128Gcm, &[7; 56], client);
    keys.expect("it is as long as it must be")
}

const BEGAN: Time = Time::from_nanos(1_000_000_000);

fn stream(rtx: Option<u8>, nack: bool) -> (Flows, OutgoingMedia, Time) {
    let mut flow = RtpFlow::new(FlowSettings {
        clip: std::sync::Arc::new(Clip::audio()),
        pacing: Pacing::Spread,
        ssrc: 7,
        first_seq: 65_530,
        first_timestamp: 0,
        length: None,
        faults: Faults::default(),
        seed: 0,
        log: false,
    });
    flow.start(BEGAN);
    sending(StreamMedia::Clip(flow), rtx, nack)
}

fn sending(media: StreamMedia, rtx: Option<u8>, nack: bool) -> (Flows, OutgoingMedia, Time) {
    let stream = rtx.map(|payload_type| RtxStream {
        ssrc: 8,
        payload_type,
        next_sequence: 1,
    });
    let mut flows = Flows::default();
    let flow = flows.insert(EncryptedFlow {
        media,
        sealer: Some(keys(true).rtp_sealer()),
        buffer: BytesMut::new(),
        retransmissions: nack.then(|| Retransmitter::new(stream)),
        numbering: None,
        channel: None,
        audio_level_id: None,
        layer_extensions: None,
    });
    let mut sent = OutgoingMedia::default();
    sent.streams.push(OutgoingStream::new(flow, 7));
    (flows, sent, BEGAN)
}

/// Returns the next packet that is due by `now`, as it is sent.
fn next(flows: &mut Flows, flow: FlowId, now: Time) -> Option<Vec<u8>> {
    flows.access(flow, |flow| {
        flow.next_due().filter(|due| *due <= now)?;
        let packet = flow.next_packet(now)?;
        flow.packet_sent(packet.tag, Some(Handover::at(now)));
        Some([&packet.header[..], &packet.payload].concat())
    })
}

#[test]
fn turn_channel_data_is_padded_only_over_a_connection() {
    for padded in [false, true] {
        let (mut flows, mut sent, mut now) = stream(None, true);
        let flow = sent.streams[0].flow;
        let channel = RelayChannel {
            number: 0x4007,
            padded,
        };
        sent.set_turn_channel(Some(channel), &mut flows);
        // Packets have 182 bytes with the authentication tag.
        let keys = |client| {
            let profile = SrtpProfile::AesCm128HmacSha1_80;
            SrtpKeys::from_exported(profile, &[7; 60], client).expect("it is long enough")
        };
        flows.access_as(flow, |sealed: &mut EncryptedFlow| {
            sealed.sealer = Some(keys(true).rtp_sealer());
        });
        let mut opener = keys(false).rtp_opener();
        let (mut plain, mut packets) = (Vec::new(), 0);
        while packets < 20 {
            now += Duration::from_millis(5);
            while let Some(packet) = next(&mut flows, flow, now) {
                let (head, rest) = packet.split_at(4);
                let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
                assert_eq!(head[..2], [0x40, 7]);
                assert!(opener.open(&rest[..length], &mut plain).is_ok());
                assert_eq!((length, rest.len()), (182, if padded { 184 } else { 182 }));
                packets += 1;
            }
        }
    }
}

#[test]
fn requested_packets_are_retransmitted() {
    for rtx in [None, Some(97)] {
        let (mut flows, mut sent, mut now) = stream(rtx, true);
        let flow = sent.streams[0].flow;
        let mut recorder = Recorder::new(measure::Catalogue(GROUPS));
        let mut opener = keys(false).rtp_opener();
        let (mut plain, mut all) = (Vec::new(), Vec::new());
        while all.len() < 20 {
            now += Duration::from_millis(5);
            while let Some(packet) = next(&mut flows, flow, now) {
                // The third and the twelfth are lost.
                if ![2, 11].contains(&all.len()) {
                    assert!(opener.open(&packet, &mut plain).is_ok());
                }
                all.push(packet);
            }
        }
        let number = |packet: &[u8]| u16::from_be_bytes([packet[2], packet[3]]);
        let lost = [number(&all[2]), number(&all[11])];
        let mut compound = Vec::new();
        rtcp::write_receiver_report(&mut compound, 1, &[]);
        write_nack(&mut compound, 1, 7, &[lost[0], lost[1], 99]);
        // For another source.
        write_nack(&mut compound, 1, 55, &[5]);
        write_pli(&mut compound, 1, 7);
        write_fir(&mut compound, 1, 7, 1);
        sent.handle_rtcp(&compound, now, &mut flows, &mut recorder);
        for lost in lost {
            let packet = next(&mut flows, flow, now).expect("it is due at once");
            let plain = opener.open(&packet, &mut plain).expect("it is authentic");
            let (source, sequence) = match rtx {
                None => (7, number(plain)),
                Some(_) => {
                    assert_eq!(plain[1] & 0x7f, 97);
                    (8, parse_rtx(&plain[12..]).expect("it carries one").0)
                }
            };
            assert_eq!((plain[11], sequence), (source, lost));
        }
        // Media continues with its own sequence numbers.
        now += Duration::from_millis(50);
        let packet = next(&mut flows, flow, now).expect("it is due");
        assert_eq!(number(&packet), number(&all[all.len() - 1]).wrapping_add(1));
        let counts = flows.access_as(flow, |sealed: &mut EncryptedFlow| {
            sealed
                .retransmissions
                .as_ref()
                .expect("it is agreed")
                .counts()
        });
        assert_eq!(
            (counts.requested, counts.retransmitted, counts.unknown),
            (3, 2, 1)
        );
        assert_eq!(recorder.counter(m::KEY_FRAME_REQUESTS), 2);
    }
}

#[test]
fn nothing_is_retransmitted_without_negotiated_nack() {
    let (mut flows, mut sent, mut now) = stream(None, false);
    let flow = sent.streams[0].flow;
    let mut recorder = Recorder::new(measure::Catalogue(GROUPS));
    now += Duration::from_millis(100);
    while next(&mut flows, flow, now).is_some() {}
    let mut compound = Vec::new();
    write_nack(&mut compound, 1, 7, &[65_530]);
    sent.handle_rtcp(&compound, now, &mut flows, &mut recorder);
    assert_eq!(next(&mut flows, flow, now), None);
}

#[test]
fn without_sender_reports_only_a_goodbye_is_sent() {
    // A sender report, or else a receiver report, then SDES and BYE.
    for (wall_clock, goodbye, kinds) in [
        (Some(Duration::ZERO), false, &[200, 202][..]),
        (Some(Duration::ZERO), true, &[200, 202, 203]),
        (None, true, &[201, 202, 203]),
    ] {
        let (mut flows, sent, now) = stream(None, false);
        let reports = sent.rtcp_compounds(&mut flows, (now, wall_clock, "name"), goodbye);
        assert_eq!(reports.len(), 1);
        let mut rest = &reports[0][..];
        let mut found = Vec::new();
        while let [_, kind, high, low, ..] = *rest {
            found.push(kind);
            rest = &rest[4 * (1 + usize::from(u16::from_be_bytes([high, low])))..];
        }
        assert_eq!(found, kinds);
    }
    let (mut flows, sent, now) = stream(None, false);
    let reports = sent.rtcp_compounds(&mut flows, (now, None, "name"), false);
    assert_eq!(reports, Vec::<Vec<u8>>::new());
}

#[test]
fn losses_in_a_first_report_do_not_lower_the_estimate() {
    let (mut flows, mut sent, now) = stream(None, false);
    let other = OutgoingStream::new(sent.streams[0].flow, 9);
    sent.streams.push(other);
    let congestion = CongestionControl::new(now, 1_000_000, 1100, None);
    let (initial, _) = congestion.estimate();
    sent.congestion = Some(Box::new(congestion));
    let mut recorder = Recorder::new(measure::Catalogue(GROUPS));
    let block = |ssrc, extended_highest, cumulative_lost| rtcp::ReportBlock {
        ssrc,
        extended_highest,
        cumulative_lost,
        ..rtcp::ReportBlock::default()
    };
    let mut report = |seconds: u64, blocks: &[rtcp::ReportBlock]| {
        let mut compound = Vec::new();
        rtcp::write_receiver_report(&mut compound, 1, blocks);
        let now = now + Duration::from_secs(seconds);
        sent.handle_rtcp(&compound, now, &mut flows, &mut recorder);
        sent.congestion.as_ref().map(|own| own.estimate().0)
    };
    assert_eq!(report(1, &[block(7, 100, 0)]), Some(initial));
    let both = [block(7, 200, 0), block(9, 300, 90)];
    assert_eq!(report(2, &both), Some(initial));
    // A report that goes back covers no packets.
    assert_eq!(
        report(3, &[block(7, 100, 50), block(9, 400, 90)]),
        Some(initial)
    );
    // 40 of 200 packets are lost.
    let both = [block(7, 200, 70), block(9, 500, 110)];
    let less = report(4, &both);
    assert!(less < Some(initial));
    // A report that goes back does not hide the losses of another stream: 60 of 100.
    let both = [block(7, 100, 70), block(9, 600, 170)];
    assert!(report(5, &both) < less);
}

#[test]
fn negotiated_parameters_come_from_the_answer() {
    let mut sent = OutgoingMedia::default();
    let codec = |payload_type, name: &str, feedback: &[&str]| Codec {
        feedback: feedback.iter().map(|words| (*words).to_owned()).collect(),
        ..Codec::new(payload_type, name, 90_000)
    };
    let section = |index, codecs| NegotiatedMedia {
        index,
        mid: index.to_string(),
        kind: MediaKind::Video,
        direction: Way::SendOnly,
        codecs,
        extensions: Vec::new(),
        track: None,
        remote_sources: Vec::new(),
        layers: Vec::new(),
    };
    sent.set_accepted_sections(
        &[
            section(0, vec![codec(96, "H264", &["nack"]), codec(97, "rtx", &[])]),
            section(1, vec![codec(98, "H264", &["nack pli"])]),
        ],
        source::LAYER_RIDS,
    );
    let accepted = |index, nack, rtx, level| AcceptedSection {
        section_index: index,
        nack,
        rtx_payload_type: rtx,
        audio_level_id: level,
        transport_cc_id: None,
        layers: [None; 3],
        single_stream: LayerExtensions {
            mid: None,
            rid: None,
            repaired_rid: None,
        },
    };
    let expected = [
        accepted(0, true, Some(97), None),
        accepted(1, false, None, None),
    ];
    assert_eq!(sent.accepted_sections, expected);
    // A server may accept numbers for video only. It would count numbered audio as lost.
    let numbered = |kind, feedback: &[&str], extensions: &[u16]| NegotiatedMedia {
        kind,
        extensions: extensions
            .iter()
            .map(|&id| crate::sdp::HeaderExtension {
                id,
                uri: header_extension::TRANSPORT_CC.to_owned(),
            })
            .collect(),
        ..section(0, vec![codec(96, "any", feedback)])
    };
    sent.set_accepted_sections(
        &[
            numbered(MediaKind::Video, &["transport-cc"], &[4]),
            numbered(MediaKind::Video, &["transport-cc"], &[]),
            numbered(MediaKind::Audio, &["nack"], &[4]),
        ],
        source::LAYER_RIDS,
    );
    let found: Vec<_> = sent
        .accepted_sections
        .iter()
        .map(|accepted| accepted.transport_cc_id)
        .collect();
    assert_eq!(found, [Some(4), None, None]);
    // Refused media is not sent.
    let inactive = NegotiatedMedia {
        direction: Way::Inactive,
        ..section(0, vec![codec(96, "H264", &["nack"])])
    };
    sent.set_accepted_sections(&[inactive], source::LAYER_RIDS);
    assert_eq!(sent.accepted_sections, []);
}

#[test]
fn requested_key_frame_is_the_next_picture() {
    let config = SourceConfig {
        mtu: 1200,
        ..SourceConfig::default()
    };
    let source = MediaSource::adaptive(&config, None).expect("valid");
    let ladder = source.ladder.expect("it is made");
    let mut flow = EncoderFlow::new(EncoderFlowSettings {
        encoder: Encoder::new(ladder),
        pacing: Pacing::AtOnce,
        ssrc: 7,
        first_seq: 1,
        first_timestamp: 0,
    });
    flow.start(BEGAN);
    let (mut flows, mut sent, mut now) = sending(StreamMedia::Live(flow), None, false);
    let flow = sent.streams[0].flow;
    let mut recorder = Recorder::new(measure::Catalogue(GROUPS));
    let mut opener = keys(false).rtp_opener();
    let mut keys_at = Vec::new();
    let mut plain = Vec::new();
    for picture in 0..100 {
        let mut compound = Vec::new();
        match picture {
            10 => write_pli(&mut compound, 1, 7),
            // A repeated request is ignored.
            30 | 31 => write_fir(&mut compound, 1, 7, 200),
            // For another source.
            50 => write_fir(&mut compound, 1, 8, 3),
            51 => write_pli(&mut compound, 1, 8),
            _ => {}
        }
        sent.handle_rtcp(&compound, now, &mut flows, &mut recorder);
        let mut first = true;
        while let Some(packet) = next(&mut flows, flow, now) {
            let plain = opener.open(&packet, &mut plain).expect("it is authentic");
            let timestamp = u32::from_be_bytes([plain[4], plain[5], plain[6], plain[7]]);
            assert_eq!(timestamp, picture * 3600);
            // A key frame begins with parameter sets, in a packet with others.
            if std::mem::take(&mut first) && plain[15] & 0x1f == 7 {
                keys_at.push(picture);
            }
        }
        assert!(!first, "{picture} has packets");
        now += Duration::from_millis(40);
    }
    assert_eq!(keys_at, [0, 10, 30, 80]);
    assert_eq!(recorder.counter(m::KEY_FRAME_REQUESTS), 5);
    let counts = flows.access_as(flow, |sealed: &mut EncryptedFlow| sealed.media.counts());
    let [.., frames, early_key_frames, _] = counts;
    assert_eq!((early_key_frames, frames), (2, 100));
}

#[test]
fn opus_is_offered_as_by_browsers_at_32_kbps() {
    let config = SourceConfig {
        audio: Some(true),
        audio_codec: Some(AudioCodec::Opus),
        ..SourceConfig::default()
    };
    let source = MediaSource::adaptive(&config, None).expect("valid");
    let clip = source.clips[1].clone();
    let bytes: usize = clip.packets.iter().map(|packet| packet.payload.len()).sum();
    assert_eq!((clip.packets.len(), bytes * 8), (50, 32_000));
    let certificate = std::sync::Arc::new(Certificate::generate(1));
    let url = "whip+http://h/live/whip";
    let client = Client::new(ClientConfig::default(), url, 1, certificate).expect("a URL");
    let client = client.with_source(std::sync::Arc::new(source));
    let offered = client.setup.offered_source();
    let codec = &offered[1].codecs[0];
    assert_eq!(
        (
            codec.payload_type,
            &codec.name[..],
            codec.clock_rate,
            codec.channels
        ),
        (111, "opus", 48_000, Some(2))
    );
}

#[test]
fn layer_packets_carry_the_rid_and_rtx_the_repaired_rid() {
    use kit::media::rtp::header::FIXED_LENGTH;

    for (rtx, retransmission_id) in [(Some(97), 5), (None, 4)] {
        let (mut flows, sent, _) = stream(rtx, true);
        let flow = sent.streams[0].flow;
        let names = LayerExtensions {
            mid: Some((3, b'0')),
            rid: Some((4, b'm')),
            repaired_rid: Some(5),
        };
        flows.access_as(flow, |sealed: &mut EncryptedFlow| {
            sealed.layer_extensions = Some(names)
        });
        let next = |flows: &mut Flows| {
            flows.access_as(flow, |sealed: &mut EncryptedFlow| {
                let now = sealed.next_due().expect("it goes on");
                (sealed.next_packet(now).expect("it is due").header, now)
            })
        };
        let element =
            |header: &PacketHeader, id| extension::find_element(header, id).map(<[u8]>::to_vec);
        let (first, now) = next(&mut flows);
        let now = now + Duration::from_millis(10);
        assert_eq!(
            first[0] & extension::EXTENSION_BIT,
            extension::EXTENSION_BIT
        );
        assert_eq!(element(&first, 3), Some(b"0".to_vec()));
        assert_eq!(element(&first, 4), Some(b"m".to_vec()));
        assert_eq!(element(&first, 5), None);
        let sequence = u16::from_be_bytes([first[2], first[3]]);
        flows.access_as(flow, |sealed: &mut EncryptedFlow| {
            let again = sealed.retransmissions.as_mut().expect("it was agreed upon");
            again.queue_requested(&[sequence], now, None);
        });
        let (again, _) = next(&mut flows);
        assert!(again.len() > FIXED_LENGTH);
        assert_eq!(element(&again, retransmission_id), Some(b"m".to_vec()));
        assert_eq!(element(&again, 9 - retransmission_id), None);
        assert_eq!(element(&again, 3), Some(b"0".to_vec()));
    }
}
