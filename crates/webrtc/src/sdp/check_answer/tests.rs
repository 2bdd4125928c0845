//! Answers that browsers refuse, and unusual ones that they accept.

use super::*;
use crate::fingerprint::Fingerprint;
use crate::sdp::{
    AnswerConfig, Candidate, Direction, FeedbackTypes, LocalSource, OfferConfig, OfferedMedia,
    Setup, TransportParameters, known, negotiated_media,
};

fn transport() -> TransportParameters {
    TransportParameters {
        ufrag: "abcdefgh".to_owned(),
        pwd: "abcdefghijklmnopqrstuvwx".to_owned(),
        lite: false,
        fingerprints: vec![Fingerprint::of_certificate(b"a certificate")],
        setup: Setup::Active,
        candidates: vec![Candidate::host(([127, 0, 0, 1], 5000).into(), 0)],
        end_of_candidates: true,
    }
}

/// A player's offer of audio and video.
fn offer() -> SessionDescription {
    let media = |kind, codecs| OfferedMedia {
        kind,
        direction: Direction::RecvOnly,
        codecs,
        extensions: Vec::new(),
        source: None,
    };
    let config = OfferConfig {
        session_id: 9,
        media: vec![
            media(MediaKind::Audio, vec![known::opus()]),
            media(MediaKind::Video, known::all_video()),
        ],
        feedback: FeedbackTypes::default(),
    };
    SessionDescription::offer(&config, &transport())
}

/// A valid answer to that offer.
fn answer() -> String {
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
        sources: vec![(MediaKind::Audio, source(5)), (MediaKind::Video, source(6))],
        codecs: vec!["opus".to_owned(), "VP8".to_owned()],
        ..AnswerConfig::receive_all(1)
    };
    offer().answer(&config, &transport()).to_string()
}

fn checked(text: &str) -> Result<SessionDescription, AnswerError> {
    let mut answer = SessionDescription::parse(text).unwrap_or_else(|error| panic!("{error}"));
    answer.check_answer(&offer())?;
    Ok(answer)
}

fn swapped(text: &str) -> String {
    let first = text.find("m=").expect("it has media");
    let last = text.rfind("m=").expect("it has media");
    [&text[..first], &text[last..], &text[first..last]].concat()
}

#[test]
fn answer_that_browsers_refuse_names_the_broken_rule() {
    let good = answer();
    assert!(good.contains("a=group:BUNDLE 0 1\r\n") && good.contains("a=sendonly\r\n"));
    let video = good.rfind("m=").expect("it has media");
    let extra = format!("{good}m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:2\r\na=rtcp-mux\r\n");
    for (text, said) in [
        (
            good.replace("a=group:BUNDLE 0 1\r\n", ""),
            "media section 1 (audio) is not in the BUNDLE group, but all sections must share one \
             transport (RFC 9143, 7.3)",
        ),
        (
            good.replace("BUNDLE 0 1", "BUNDLE 0"),
            "media section 2 (video) is not in the BUNDLE group",
        ),
        (
            good.replace("BUNDLE 0 1", "BUNDLE 0 1 7"),
            "BUNDLE names mid `7`, which no media section has (RFC 9143, 7.3)",
        ),
        (
            good.replace("a=rtcp-mux\r\n", ""),
            "media section 1 (audio) has no rtcp-mux (RFC 8834, 4.5; RFC 8858, 4)",
        ),
        (
            good.replace("a=sendonly", "a=recvonly"),
            "media section 1 (audio) is recvonly, recvonly was offered (RFC 3264, 6.1)",
        ),
        (
            good.replace("a=sendonly", "a=sendrecv"),
            "media section 1 (audio) is sendrecv, recvonly was offered",
        ),
        (
            good.replace("a=sendonly\r\n", ""),
            "media section 1 (audio) is sendrecv, recvonly was offered",
        ),
        (
            good[..video].to_owned(),
            "1 media sections, 2 were offered (RFC 3264, 6)",
        ),
        (extra, "3 media sections, 2 were offered"),
        (
            swapped(&good),
            "media section 1 (video) was offered as audio: sections keep their order",
        ),
        (
            good.replace("a=mid:1", "a=mid:0"),
            "media section 2 (video) has mid `0`, `1` was offered (RFC 5888, 9.1)",
        ),
        (
            good.replace("a=mid:1", "a=mid:v"),
            "media section 2 (video) has mid `v`, `1` was offered",
        ),
        (
            good.replace("m=audio 9", "m=audio 0")
                .replace("m=video 9", "m=video 0"),
            "all 2 media sections are refused: their port is 0 (RFC 3264, 6)",
        ),
    ] {
        let fault = checked(&text).expect_err(said).to_string();
        assert!(fault.starts_with(said), "{fault}");
    }
}

#[test]
fn unusual_answers_that_browsers_accept_are_accepted() {
    let good = answer();
    let (sound, pictures) = good.split_at(good.rfind("m=").expect("it has media"));
    let refused = sound
        .replace("a=sendonly", "a=sendrecv")
        .replace("a=rtcp-mux\r\n", "")
        .replace("m=audio 9", "m=audio 0");
    for (text, taken) in [
        (good.clone(), 2),
        // A missing mid is that of the offer.
        (
            good.replace("a=mid:0\r\n", "").replace("a=mid:1\r\n", ""),
            2,
        ),
        // A single section needs no bundle.
        (
            good.replace("a=group:BUNDLE 0 1\r\n", "")
                .replace("m=audio 9", "m=audio 0"),
            1,
        ),
        // A rejected section may contain anything.
        (format!("{refused}{pictures}"), 1),
        (good.replace("a=sendonly", "a=inactive"), 2),
    ] {
        let answer = checked(&text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        assert_eq!(
            negotiated_media(&offer(), &answer, false).len(),
            taken,
            "{text}"
        );
    }
}

#[test]
fn received_media_uses_payload_types_of_the_offer() {
    let text = answer();
    let (vp8, rtx) = (known::vp8(), known::rtx(&known::vp8()));
    assert!(text.contains("a=rtpmap:96 VP8/90000"), "{text}");
    // Another payload type, which the offer uses for another codec; and other parameters.
    for other in ["122", "98"] {
        let vp8_line = format!("a=rtpmap:{other} VP8/90000\r\n");
        let text = text
            .replace(" 96 97\r\n", &format!(" {other} 97\r\n"))
            .replace(":96 ", &format!(":{other} "))
            .replace("apt=96", &format!("apt={other}"))
            .replace(&vp8_line, &format!("{vp8_line}a=fmtp:{other} max-fs=1\r\n"));
        let answer = checked(&text).expect("numbers may differ");
        let both = negotiated_media(&offer(), &answer, false);
        let codecs = &both[1].codecs;
        let found = codecs.iter().find(|own| own.payload_type == 96);
        let found = found.expect("it was offered");
        assert!(found.has_name("VP8") && found.feedback.contains(&"nack".to_owned()));
        let own = codecs.iter().find(|own| own.payload_type == 97);
        assert_eq!(
            own.and_then(|own| own.associated_payload_type()),
            rtx.associated_payload_type()
        );
        // Codecs that the answer omits have no feedback.
        let vp9 = codecs.iter().find(|own| own.has_name("VP9"));
        assert!(vp9.expect("it was offered").feedback.is_empty());
        assert!(codecs.iter().all(|own| own.payload_type != 122));
        // Senders use the payload types of the answer.
        let mut sends = offer();
        sends.media[1].direction = Direction::SendOnly;
        let sent = negotiated_media(&sends, &answer, false);
        assert_eq!(sent[1].codecs[0].payload_type.to_string(), other);
        assert!(sent[1].codecs[0].has_name(&vp8.name));
    }
}

#[test]
fn first_bundled_section_determines_the_transport() {
    let good = answer();
    let text = good.replace("BUNDLE 0 1", "BUNDLE 1 0");
    let video = text.rfind("m=").expect("it has media");
    let (sound, pictures) = text.split_at(video);
    let pictures = pictures.replace("a=ice-ufrag:abcdefgh", "a=ice-ufrag:zzzz");
    let second = "a=mid:1\r\na=candidate:9 1 udp 5 127.0.0.2 5002 typ host\r\n";
    let pictures = pictures.replace("a=mid:1\r\n", second);
    let answer = checked(&format!("{sound}{pictures}")).expect("it is an answer");
    let transport = answer.transport().expect("it is whole");
    assert_eq!(transport.ufrag, "zzzz");
    let ports = transport.candidates.iter().map(|own| own.port);
    let mut ports: Vec<_> = ports.collect();
    ports.sort_unstable();
    assert_eq!(ports, [5000, 5002]);
}
