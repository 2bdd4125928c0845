//! Codecs in session descriptions.

use kit::media::rtp::Clip;
use kit::media::sdp::MediaKind;

/// A codec with its payload type in one section (RFC 8866, 6.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codec {
    pub payload_type: u8,
    /// Name as written, such as `VP8`. Names are compared case-insensitively.
    pub name: String,
    /// Clock rate of RTP timestamps, in Hz.
    pub clock_rate: u32,
    /// Number of audio channels, if given.
    pub channels: Option<u8>,
    /// Format parameters (`a=fmtp`).
    pub parameters: Option<String>,
    /// Supported feedback (`a=rtcp-fb`, RFC 4585, 4.2), such as `nack pli`.
    pub feedback: Vec<String>,
}

impl Codec {
    /// Creates a codec without parameters or feedback.
    pub fn new(payload_type: u8, name: &str, clock_rate: u32) -> Codec {
        Codec {
            payload_type,
            name: name.to_owned(),
            clock_rate,
            channels: None,
            parameters: None,
            feedback: Vec::new(),
        }
    }

    /// Returns the kind and the codec of a clip, without its parameters.
    pub fn of_clip(clip: &Clip) -> (MediaKind, Codec) {
        let kind = match clip.media() {
            "audio" => MediaKind::Audio,
            _ => MediaKind::Video,
        };
        let mut parts = clip.encoding().split('/');
        let name = parts.next().unwrap_or_default();
        let mut number = || parts.next().unwrap_or_default().parse::<u32>().ok();
        let rate = number().unwrap_or(clip.clock_rate());
        let channels = number().and_then(|channels| u8::try_from(channels).ok());
        let codec = Codec::new(clip.payload_type(), name, rate);
        (kind, Codec { channels, ..codec })
    }

    /// Returns the codec with these parameters.
    #[must_use]
    pub fn with_parameters(self, parameters: &str) -> Codec {
        let parameters = Some(parameters.to_owned());
        Codec { parameters, ..self }
    }

    /// Returns `true` if the codec has that name, ignoring case.
    pub fn has_name(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Returns `true` for a media codec, `false` for repair, comfort noise and DTMF formats.
    pub fn is_media(&self) -> bool {
        let auxiliary = [
            "rtx",
            "red",
            "ulpfec",
            "flexfec-03",
            "CN",
            "telephone-event",
        ];
        !auxiliary.iter().any(|name| self.has_name(name))
    }

    /// Returns `true` if the codec has that feedback, by its value in `a=rtcp-fb`.
    pub fn has_feedback(&self, words: &str) -> bool {
        self.feedback.iter().any(|own| own == words)
    }

    /// Returns the value of a format parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let parameters = self.parameters.as_deref()?.split(';');
        parameters
            .filter_map(|pair| pair.trim_ascii().split_once('='))
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Returns the payload type that this codec retransmits, if it is RTX (RFC 4588, 8.1).
    pub fn associated_payload_type(&self) -> Option<u8> {
        match self.has_name("rtx") {
            true => self.parameter("apt")?.parse().ok(),
            false => None,
        }
    }
}

/// Codecs that can be counted, as they are offered.
pub mod known {
    use super::Codec;

    /// Names of audio codecs.
    pub const AUDIO: &[&str] = &[
        "opus",
        "PCMU",
        "PCMA",
        "G722",
        "red",
        "telephone-event",
        "CN",
    ];

    /// Names of video codecs and their repair formats.
    pub const VIDEO: &[&str] = &[
        "VP8",
        "VP9",
        "H264",
        "H265",
        "AV1",
        "rtx",
        "red",
        "ulpfec",
        "flexfec-03",
    ];

    pub fn opus() -> Codec {
        let opus = Codec {
            channels: Some(2),
            ..Codec::new(111, "opus", 48_000)
        };
        opus.with_parameters("minptime=10;useinbandfec=1")
    }

    pub fn vp8() -> Codec {
        Codec::new(96, "VP8", 90_000)
    }

    /// RTX for a codec, with the next payload type.
    pub fn rtx(of: &Codec) -> Codec {
        Codec::new(of.payload_type + 1, "rtx", of.clock_rate)
            .with_parameters(&format!("apt={}", of.payload_type))
    }

    /// All audio codecs, best first.
    pub fn all_audio() -> Vec<Codec> {
        let g711 = [Codec::new(0, "PCMU", 8000), Codec::new(8, "PCMA", 8000)];
        [opus()].into_iter().chain(g711).collect()
    }

    /// All video codecs, each followed by its RTX.
    pub fn all_video() -> Vec<Codec> {
        // Constrained baseline, packetization mode 1.
        let h264 = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f";
        let h265 = "level-id=93;profile-id=1;tier-flag=0;tx-mode=SRST";
        let codecs = [
            Codec::new(102, "H264", 90_000).with_parameters(h264),
            vp8(),
            Codec::new(98, "VP9", 90_000).with_parameters("profile-id=0"),
            Codec::new(45, "AV1", 90_000),
            Codec::new(104, "H265", 90_000).with_parameters(h265),
        ];
        let both = |codec: Codec| {
            let rtx = rtx(&codec);
            [codec, rtx]
        };
        codecs.into_iter().flat_map(both).collect()
    }
}
