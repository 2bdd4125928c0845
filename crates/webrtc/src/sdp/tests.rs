//! Descriptions of other implementations, and round trips of this side's own.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::fingerprint::Fingerprint;

const JANUS: &str = include_str!("testdata/janus_streaming_offer.sdp");
/// Offer of Chromium 156: audio to receive, simulcast video to send, and a data channel.
const CHROMIUM: &str = include_str!("testdata/chromium_offer.sdp");
const MEDIAMTX: &str = include_str!("testdata/mediamtx_whep_answer.sdp");

fn transport() -> TransportParameters {
    TransportParameters {
        ufrag: "abcdefgh".to_owned(),
        pwd: "abcdefghijklmnopqrstuvwx".to_owned(),
        lite: false,
        fingerprints: vec![Fingerprint::of_certificate(b"a certificate")],
        setup: Setup::ActPass,
        candidates: vec![Candidate::host(([127, 0, 0, 1], 5000).into(), 0)],
        end_of_candidates: true,
    }
}

fn parse(text: &str) -> SessionDescription {
    SessionDescription::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the address of a UDP candidate for media, or `None` for any other candidate.
fn udp_address(candidate: &Candidate) -> Option<SocketAddr> {
    match (
        &candidate.address,
        &candidate.transport[..],
        candidate.component,
    ) {
        (CandidateAddress::Ip(ip), "udp", 1) => Some(SocketAddr::new(*ip, candidate.port)),
        _ => None,
    }
}

#[test]
fn janus_offer_is_parsed_and_answered() {
    let offer = parse(JANUS);
    assert_eq!(offer.bundle, ["v"]);
    let media = &offer.media[0];
    assert_eq!(
        (media.kind, media.direction),
        (MediaKind::Video, Direction::SendOnly)
    );
    assert_eq!(media.rtx_payload_type(96), Some(97));
    assert_eq!(media.extension_id(extension::MID), Some(4));
    let theirs = offer.transport().expect("it is whole");
    assert_eq!((&theirs.ufrag[..], theirs.setup), ("Ca0a", Setup::ActPass));
    assert_eq!(
        udp_address(&theirs.candidates[0]),
        Some(([10, 77, 0, 1], 28580).into())
    );
    assert!(theirs.end_of_candidates && theirs.fingerprints[0].is_usable());

    let ours = TransportParameters {
        setup: Setup::Active,
        ..transport()
    };
    let answer = offer.answer(&AnswerConfig::receive_all(7), &ours);
    assert_eq!(answer.media[0].direction, Direction::RecvOnly);
    assert_eq!(answer.media[0].codecs, media.codecs);
    assert_eq!(answer.transport(), Ok(ours));
    let agreed = negotiated_media(&answer, &offer, true);
    assert_eq!(agreed.len(), 1);
    assert_eq!(
        agreed[0].remote_sources,
        [RemoteSource {
            ssrc: 4_082_646_372,
            rtx_ssrc: Some(162_417_960),
        }]
    );
    assert_eq!(parse(&answer.to_string()), answer);
}

#[test]
fn chromium_offer_is_parsed_and_answered() {
    let offer = parse(CHROMIUM);
    let kinds: Vec<_> = offer.media.iter().map(|media| media.kind).collect();
    assert_eq!(
        kinds,
        [MediaKind::Audio, MediaKind::Video, MediaKind::Application]
    );
    let video = &offer.media[1];
    let layers: Vec<_> = video.rids.iter().map(|rid| &rid.id[..]).collect();
    assert_eq!(layers, ["h", "m", "l"]);
    assert!(video.codecs.iter().any(|codec| codec.has_name("H264")));
    for codec in video
        .codecs
        .iter()
        .filter(|codec| codec.has_name("VP8") || codec.has_name("AV1"))
    {
        assert!(codec.feedback.contains(&"nack pli".to_owned()), "{codec:?}");
        assert!(
            video.rtx_payload_type(codec.payload_type).is_some(),
            "{codec:?}"
        );
    }
    assert!(offer.transport().expect("it is whole").fingerprints[0].is_usable());
    let answer = offer.answer(&AnswerConfig::receive_all(1), &transport());
    let directions: Vec<_> = answer.media.iter().map(|media| media.direction).collect();
    // The other side sends no audio, and data channels are refused.
    let expected = [
        Direction::Inactive,
        Direction::RecvOnly,
        Direction::Inactive,
    ];
    assert_eq!(directions, expected);
    assert_eq!(answer.bundle, ["0", "1"]);
    assert_eq!(answer.media[1].simulcast.as_deref(), Some("recv h;m;l"));
    assert_eq!(parse(&answer.to_string()).media[1], answer.media[1]);
}

#[test]
fn mediamtx_answer_is_parsed() {
    let answer = parse(MEDIAMTX);
    let theirs = answer.transport().expect("it is whole");
    assert_eq!(
        (&theirs.ufrag[..], theirs.setup),
        ("PNBzzuyGvrvKnntS", Setup::Active)
    );
    // The second candidate is for another component, which does not count with rtcp-mux.
    let usable: Vec<_> = theirs.candidates.iter().filter_map(udp_address).collect();
    assert_eq!(usable, [([127, 0, 0, 1], 18189).into()]);
    let offer = receiving(FeedbackTypes::default());
    let agreed = negotiated_media(&offer, &answer, false);
    let ssrcs = agreed.iter().map(|media| media.remote_sources[0].ssrc);
    assert_eq!(ssrcs.collect::<Vec<_>>(), [784_845_907, 3_930_246_521]);
    assert!(
        agreed
            .iter()
            .all(|media| media.direction == Direction::RecvOnly)
    );
    assert!(agreed[0].codecs[0].has_name("OPUS") && agreed[1].codecs[0].has_name("h264"));
}

fn receiving(feedback: FeedbackTypes) -> SessionDescription {
    let media = |kind, codecs| OfferedMedia {
        kind,
        direction: Direction::RecvOnly,
        codecs,
        extensions: vec![
            extension::MID.to_owned(),
            extension::TRANSPORT_CC.to_owned(),
        ],
        source: None,
    };
    let config = OfferConfig {
        session_id: 9,
        media: vec![
            media(MediaKind::Audio, known::all_audio()),
            media(MediaKind::Video, known::all_video()),
        ],
        feedback,
    };
    SessionDescription::offer(&config, &transport())
}

#[test]
fn disabled_feedback_is_neither_offered_nor_accepted() {
    let all = receiving(FeedbackTypes::default());
    let none = receiving(FeedbackTypes::NONE);
    let text = none.to_string();
    for word in ["rtcp-fb", "rtx", "transport-wide-cc"] {
        assert!(all.to_string().contains(word), "{word}");
        assert!(!text.contains(word), "{word}");
    }
    let config = AnswerConfig {
        feedback: FeedbackTypes::NONE,
        ..AnswerConfig::receive_all(1)
    };
    let mut offer = all;
    for media in &mut offer.media {
        media.direction = Direction::SendOnly;
    }
    let text = offer.answer(&config, &transport()).to_string();
    assert!(!text.contains("rtcp-fb") && !text.contains("rtx"), "{text}");
}

#[test]
fn offered_sources_are_found_by_the_answerer() {
    let source = |ssrc, layers: &[&str]| LocalSource {
        ssrc,
        rtx_ssrc: Some(ssrc + 1),
        cname: "somebody".to_owned(),
        stream_id: "stream".to_owned(),
        track_id: format!("track{ssrc}"),
        layers: layers.iter().map(|layer| (*layer).to_owned()).collect(),
    };
    let media = |kind, codecs, source| OfferedMedia {
        kind,
        direction: Direction::SendOnly,
        codecs,
        extensions: vec![extension::MID.to_owned(), extension::RID.to_owned()],
        source: Some(source),
    };
    let config = OfferConfig {
        session_id: 9,
        media: vec![
            media(MediaKind::Audio, known::all_audio(), source(10, &[])),
            media(MediaKind::Video, known::all_video(), source(20, &[])),
            media(
                MediaKind::Video,
                known::all_video(),
                source(30, &["h", "m", "l"]),
            ),
        ],
        feedback: FeedbackTypes::default(),
    };
    let offer = SessionDescription::offer(&config, &transport());
    let read = parse(&offer.to_string());
    assert_eq!(read, offer);
    let answer = read.answer(&AnswerConfig::receive_all(1), &transport());
    let agreed = negotiated_media(&answer, &read, true);
    let sources: Vec<_> = agreed
        .iter()
        .map(|media| media.remote_sources.clone())
        .collect();
    let found = |ssrc, rtx_ssrc| vec![RemoteSource { ssrc, rtx_ssrc }];
    // Audio has no retransmissions here; layers are identified by RID.
    assert_eq!(sources, [found(10, None), found(20, Some(21)), Vec::new()]);
    assert_eq!(answer.media[2].simulcast.as_deref(), Some("recv h;m;l"));
    assert!(answer.media[2].rids.iter().all(|rid| !rid.sends));
}

#[test]
fn answerer_sends_where_the_offer_receives() {
    let offer = receiving(FeedbackTypes::default());
    let source = |ssrc| LocalSource {
        ssrc,
        rtx_ssrc: None,
        cname: "server".to_owned(),
        stream_id: "s".to_owned(),
        track_id: "t".to_owned(),
        layers: Vec::new(),
    };
    let config = AnswerConfig {
        receive: false,
        sources: vec![(MediaKind::Video, source(5))],
        codecs: vec!["VP8".to_owned()],
        ..AnswerConfig::receive_all(1)
    };
    let answer = offer.answer(&config, &transport());
    // Audio is rejected: the answer accepts none of its codecs.
    assert!(answer.media[0].rejected && !answer.media[1].rejected);
    assert_eq!(answer.bundle, ["1"]);
    assert_eq!(answer.media[1].direction, Direction::SendOnly);
    let names: Vec<_> = answer.media[1]
        .codecs
        .iter()
        .map(|codec| &codec.name[..])
        .collect();
    assert_eq!(names, ["VP8", "rtx"]);
    let again = parse(&answer.to_string());
    assert!(again.media[0].rejected);
    assert_eq!(negotiated_media(&again, &offer, true)[0].mid, "1");
}

#[test]
fn sections_with_other_transports_are_rejected() {
    let mut offer = receiving(FeedbackTypes::default());
    offer
        .media
        .push(MediaSection::new(MediaKind::Application, "2"));
    offer.media[2].protocol = "UDP/DTLS/SCTP".to_owned();
    offer.media[2].formats = vec!["webrtc-datachannel".to_owned()];
    for media in &mut offer.media {
        media.direction = Direction::SendOnly;
    }
    offer.bundle = vec!["0".to_owned()];
    let offer = parse(&offer.to_string());
    let answer = offer.answer(&AnswerConfig::receive_all(1), &transport());
    let rejected: Vec<_> = answer.media.iter().map(|media| media.rejected).collect();
    assert_eq!(rejected, [false, true, true]);
    assert!(
        answer
            .to_string()
            .contains("m=application 0 UDP/DTLS/SCTP webrtc-datachannel")
    );
}

#[test]
fn data_channel_is_accepted_for_its_transport() {
    let offer = parse(concat!(
        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:0\r\na=sctp-port:5000\r\n",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:1\r\na=sendonly\r\na=rtcp-mux\r\n",
        "a=rtpmap:111 opus/48000/2\r\n",
    ));
    let config = AnswerConfig {
        accept_data: true,
        ..AnswerConfig::receive_all(1)
    };
    let text = offer.answer(&config, &transport()).to_string();
    assert!(text.contains("m=application 9 UDP/DTLS/SCTP webrtc-datachannel"));
    assert!(text.contains("a=sctp-port:5000"), "{text}");
    let answer = parse(&text);
    assert_eq!(answer.bundle, ["0", "1"]);
    assert_eq!(answer.transport(), Ok(transport()));
    // The result contains no data channel.
    let agreed = negotiated_media(&answer, &offer, true);
    let names: Vec<_> = agreed.iter().map(|own| (own.index, &own.mid[..])).collect();
    assert_eq!(names, [(1, "1")]);
}

#[test]
fn descriptions_are_bounded() {
    let head = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
    let error = |text: &str| {
        let error = SessionDescription::parse(text).expect_err("it is too much");
        (error.line, error.reason)
    };
    let lines = "a=nothing\r\n".repeat(40_001);
    assert_eq!(
        error(&format!("{head}{lines}")),
        (40_001, SdpReason::TooManyLines)
    );
    let sections = "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\n".repeat(513);
    assert_eq!(
        error(&format!("{head}{sections}")),
        (517, SdpReason::TooManySections)
    );
    assert_eq!(error(&"a".repeat((1 << 20) + 1)), (0, SdpReason::TooLong));
    // The number of sources in a section is limited; each has two lines.
    let mut many = format!("{head}m=audio 9 UDP/TLS/RTP/SAVPF 0\r\n");
    for ssrc in (1..10_000).flat_map(|ssrc| [ssrc, ssrc]) {
        many.push_str(&format!("a=ssrc:{ssrc} cname:a\r\n"));
    }
    let description = SessionDescription::parse(&many).expect("it is long and right");
    assert_eq!(description.media[0].ssrcs.len(), 256);
}

/// A LiveKit room: all codecs in each section, three of four feedback types each.
#[test]
fn offer_of_room_with_250_participants_is_parsed() {
    let mut offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n".to_owned();
    for mid in 0..500 {
        offer.push_str("m=video 9 UDP/TLS/RTP/SAVPF 96 97\r\n");
        offer.push_str(&format!(
            "a=mid:{mid}\r\na=sendonly\r\na=msid:PA_{mid} TR_{mid}\r\n"
        ));
        for payload_type in 96..110 {
            offer.push_str(&format!("a=rtpmap:{payload_type} VP8/90000\r\n"));
            for words in ["nack", "nack pli", "goog-remb"] {
                offer.push_str(&format!("a=rtcp-fb:{payload_type} {words}\r\n"));
            }
        }
    }
    assert!((500_000..1 << 20).contains(&offer.len()), "{}", offer.len());
    let description = SessionDescription::parse(&offer).expect("it is right");
    assert_eq!(description.media.len(), 500);
    assert_eq!(
        description.media[499].msid.as_deref(),
        Some("PA_499 TR_499")
    );
}

#[test]
fn errors_name_the_invalid_line() {
    let head = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
    let media = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\n";
    for (text, line, reason) in [
        (String::new(), 0, SdpReason::NotVersion0),
        ("v=1\r\n".to_owned(), 1, SdpReason::NotVersion0),
        (format!("{head}nonsense\r\n"), 5, SdpReason::MalformedLine),
        (
            format!("{head}m=video x UDP/TLS/RTP/SAVPF 96\r\n"),
            5,
            SdpReason::MediaLine,
        ),
        (
            format!("{head}m=video 9 TCP/MSRP *\r\n"),
            5,
            SdpReason::MediaLine,
        ),
        (
            format!("{head}m=video 9 RTP/SAVPF 128\r\n"),
            5,
            SdpReason::MediaLine,
        ),
        (
            format!("{head}a=setup:holdconn\r\n"),
            5,
            SdpReason::Attribute("setup"),
        ),
        (
            format!("{head}a=fingerprint:sha-256\r\n"),
            5,
            SdpReason::Attribute("fingerprint"),
        ),
        (
            format!("{head}{media}a=candidate:1 1\r\n"),
            6,
            SdpReason::Attribute("candidate"),
        ),
        (
            format!("{head}{media}a=rtpmap:96 VP8\r\n"),
            6,
            SdpReason::Attribute("rtpmap"),
        ),
        (
            format!("{head}{media}a=extmap:1\r\n"),
            6,
            SdpReason::Attribute("extmap"),
        ),
        (
            format!("{head}{media}a=ssrc:x cname:y\r\n"),
            6,
            SdpReason::Attribute("ssrc"),
        ),
        (
            format!("{head}{media}a=rid:h both\r\n"),
            6,
            SdpReason::Attribute("rid"),
        ),
    ] {
        let error = SessionDescription::parse(&text).expect_err("it is wrong");
        assert_eq!((error.line, error.reason), (line, reason), "{text}");
    }
    // A description without transport attributes can be parsed, but allows no connection.
    for (text, reason) in [
        (head.to_owned(), SdpReason::NoMedia),
        (format!("{head}{media}"), SdpReason::NoIce),
        (
            format!("{head}{media}a=ice-ufrag:abcd\r\na=ice-pwd:abc\r\n"),
            SdpReason::NoFingerprint,
        ),
    ] {
        assert_eq!(
            parse(&text).transport().map_err(|error| error.reason),
            Err(reason)
        );
    }
}

#[test]
fn slash_after_the_clock_rate_is_ignored() {
    let text = "v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96 97\r\na=rtpmap:96 VP8/90000/\r\n\
                a=rtpmap:97 rtx/90000/\r\n";
    let read = parse(text);
    let codec = read.media[0].codec(96).expect("it is there");
    assert!(codec.has_name("VP8"));
    assert_eq!((codec.clock_rate, codec.channels), (90_000, None));
}

#[test]
fn fragments_carry_candidates() {
    let fragment = SdpFragment {
        ufrag: Some("abcd".to_owned()),
        pwd: Some("abcdefghijklmnopqrstuv".to_owned()),
        mid: Some("0".to_owned()),
        candidates: vec![Candidate::host(([127, 0, 0, 1], 5000).into(), 0)],
        end_of_candidates: true,
    };
    assert_eq!(SdpFragment::parse(&fragment.to_string()), fragment);
}

#[test]
fn candidates_of_other_implementations_are_parsed() {
    for (text, udp) in [
        (
            "candidate:1467250027 1 udp 2122260223 192.168.0.196 46243 typ host generation 0",
            Some("192.168.0.196:46243"),
        ),
        (
            "a=candidate:2 1 UDP 1694498815 203.0.113.1 4000 typ srflx raddr 10.0.0.1 rport 8998",
            Some("203.0.113.1:4000"),
        ),
        ("1 1 udp 5 fe80::1 9 typ relay", Some("[fe80::1]:9")),
        (
            "candidate:3 1 tcp 1518280447 10.0.0.1 9 typ host tcptype active",
            None,
        ),
        (
            "candidate:1 1 udp 5 a1b2.local 5000 typ host generation 0 ufrag x network-cost 9",
            None,
        ),
    ] {
        let candidate: Candidate = text.parse().expect("it is one");
        assert_eq!(
            udp_address(&candidate),
            udp.map(|udp| udp.parse().expect("it is an address"))
        );
        assert_eq!(candidate.to_string().parse(), Ok(candidate));
    }
    for wrong in [
        "",
        "candidate:",
        "candidate:1 1 udp 5 10.0.0.1 70000 typ host",
        "1 1 udp 5 h 5 typ x",
    ] {
        assert!(wrong.parse::<Candidate>().is_err(), "{wrong}");
    }
}

prop_compose! {
    fn any_codec()(payload_type in 0u8..128, name in "[A-Za-z0-9-]{1,8}", clock_rate: u32,
        channels in prop::option::of(1u8..9),
        parameters in prop::option::of("[a-z]{1,5}=[a-z0-9]{1,5}"),
        feedback in prop::collection::vec("[a-z]{1,5}( [a-z]{1,5})?", 0..3)) -> Codec
    {
        Codec { payload_type, name, clock_rate, channels, parameters, feedback }
    }
}

prop_compose! {
    fn any_section(mid: usize)(is_audio: bool, rejected: bool, direction in 0usize..4,
        codecs in prop::collection::vec(any_codec(), 1..5),
        ids in prop::collection::vec(1u16..256, 0..3),
        ssrcs in prop::collection::btree_set(any::<u32>(), 0..3),
        msid in prop::option::of("[a-z]{1,5} [a-z]{1,5}"),
        rids in prop::collection::vec(("[a-z]{1,3}", any::<bool>(), "(|pt=96;max-width=1)"), 0..3),
        rtcp_mux: bool, rtcp_reduced_size: bool, ports in prop::collection::vec(any::<u16>(), 0..3),
        end_of_candidates: bool) -> MediaSection
    {
        let kind = if is_audio { MediaKind::Audio } else { MediaKind::Video };
        let mut section = MediaSection::new(kind, &mid.to_string());
        section.rejected = rejected;
        section.direction = Direction::ALL[direction];
        for codec in codecs {
            if section.codec(codec.payload_type).is_none() {
                section.codecs.push(codec);
            }
        }
        section.extensions = ids.iter()
            .map(|id| HeaderExtension { id: *id, uri: format!("urn:x:{id}") }).collect();
        section.ssrc_groups = vec![SourceGroup {
            semantics: "SIM".to_owned(), ssrcs: ssrcs.iter().copied().collect(),
        }];
        section.ssrcs = ssrcs.iter().map(|ssrc| SourceAttributes {
            ssrc: *ssrc, cname: Some("c".to_owned()), msid: msid.clone(),
        }).collect();
        section.rids = rids.into_iter()
            .map(|(id, sends, restrictions)| Rid { id, sends, restrictions }).collect();
        section.simulcast = section.rids.first().map(|rid| format!("send {}", rid.id));
        section.msid = msid;
        section.candidates = ports.iter().zip(0..)
            .map(|(port, number)| Candidate::host(([127, 0, 0, 1], *port).into(), number))
            .collect();
        (section.rtcp_mux, section.rtcp_reduced_size) = (rtcp_mux, rtcp_reduced_size);
        section.end_of_candidates = end_of_candidates;
        section
    }
}

proptest! {
    #[test]
    fn written_description_parses_back(
        session_id: u64, version: u64, ice_lite: bool, extmap_allow_mixed: bool,
        media in (0usize..4).prop_flat_map(|count| (0..count).map(any_section).collect::<Vec<_>>()),
    ) {
        let bundle = media.iter().map(|media| media.mid.clone()).collect();
        let transport = TransportAttributes {
            ufrag: Some("abcd".to_owned()),
            pwd: None,
            trickle: true,
            fingerprints: vec![Fingerprint::of_certificate(b"x")],
            setup: Some(Setup::Passive),
        };
        let written = SessionDescription {
            session_id, version, ice_lite, bundle, extmap_allow_mixed, transport, media,
        };
        prop_assert_eq!(SessionDescription::parse(&written.to_string()), Ok(written));
    }

    /// Every description that can be parsed can be answered, and the answer can be parsed.
    #[test]
    fn any_parsed_offer_can_be_answered(
        lines in prop::collection::vec(prop::sample::select(
            &[
                "m=audio 9 UDP/TLS/RTP/SAVPF 111 0", "m=video 0 RTP/SAVPF 96 97",
                "m=video 9 UDP/TLS/RTP/SAVPF 96 97",
                "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "a=mid:0", "a=mid:1",
                "a=sendonly", "a=recvonly", "a=group:BUNDLE 0 1", "a=rtpmap:96 VP8/90000",
                "a=rtpmap:97 rtx/90000", "a=fmtp:97 apt=96", "a=rtpmap:111 opus/48000/2",
                "a=rtcp-fb:* nack", "a=rid:h send", "a=simulcast:send h", "a=ssrc:1 cname:x",
                "a=extmap:3/sendonly urn:x", "a=extmap:4 \u{b}", "a=rtcp-fb:96 \u{b}", "a=bundle-only",
                "a=ice-lite",
                "a=candidate:1 1 udp 1 h 1 typ host", "b=AS:1",
            ][..],
        ), 0..40),
    ) {
        let text = format!("v=0\n{}\n", lines.join("\n"));
        let offer = SessionDescription::parse(&text).expect("each line is one");
        let answer = offer.answer(&AnswerConfig::receive_all(1), &transport());
        prop_assert_eq!(answer.media.len(), offer.media.len());
        let again = SessionDescription::parse(&answer.to_string()).expect("it was written");
        for (media, again) in answer.media.iter().zip(&again.media) {
            prop_assert_eq!((&media.mid, media.rejected), (&again.mid, again.rejected));
            prop_assert!(!media.direction.sends());
        }
    }
}

#[test]
fn accepted_simulcast_layers_follow_recv() {
    let transport = transport();
    let offered = OfferedMedia {
        kind: MediaKind::Video,
        direction: Direction::SendOnly,
        codecs: vec![Codec::new(96, "H264", 90_000)],
        extensions: vec![extension::MID.to_owned(), extension::RID.to_owned()],
        source: Some(LocalSource {
            ssrc: 1,
            rtx_ssrc: Some(2),
            cname: "c".to_owned(),
            stream_id: "s".to_owned(),
            track_id: "t".to_owned(),
            layers: ["h", "m", "l"].map(str::to_owned).to_vec(),
        }),
    };
    let sound = OfferedMedia {
        kind: MediaKind::Audio,
        codecs: vec![Codec::new(0, "PCMU", 8000)],
        extensions: vec![extension::AUDIO_LEVEL.to_owned(), extension::MID.to_owned()],
        source: None,
        ..offered.clone()
    };
    let offer = SessionDescription::offer(
        &OfferConfig {
            session_id: 1,
            media: vec![offered, sound],
            feedback: FeedbackTypes::NONE,
        },
        &transport,
    );
    // An extension has the same ID in all sections, and no two extensions share an ID.
    let number = |place: usize, uri| offer.media[place].extension_id(uri);
    assert_eq!(number(0, extension::MID), Some(1));
    assert_eq!(number(1, extension::MID), Some(1));
    assert_eq!(number(0, extension::RID), Some(2));
    assert_eq!(number(1, extension::AUDIO_LEVEL), Some(3));
    assert_eq!(offer.media[0].ssrcs, []);
    let text = offer.to_string();
    assert!(text.contains("a=rid:m send\r\n"), "{text}");
    assert!(text.contains("a=simulcast:send h;m;l\r\n"), "{text}");
    let answer = offer.answer(&AnswerConfig::receive_all(2), &transport);
    for (simulcast, expected) in [
        (answer.media[0].simulcast.clone(), &["h", "m", "l"][..]),
        (Some("recv h;~l".to_owned()), &["h"]),
        (Some("send x recv m,l".to_owned()), &["m"]),
        (Some("send h".to_owned()), &[]),
        (Some("recv".to_owned()), &[]),
        (None, &[]),
    ] {
        let mut answer = answer.clone();
        answer.media[0].simulcast = simulcast;
        let agreed = negotiated_media(&offer, &answer, false);
        assert_eq!(agreed[0].layers, expected);
    }
}
