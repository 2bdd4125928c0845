//! What media may be coded with.

/// A codec under the payload type that it has in one section (RFC 8866, 6.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codec {
    /// Its number in RTP.
    pub payload_type: u8,
    /// Its name, as it was written: `VP8`. Names are compared without regard to case.
    pub name: String,
    /// Timestamps count so often in a second.
    pub clock_rate: u32,
    /// Channels of sound, where there is more than one.
    pub channels: Option<u8>,
    /// Parameters (`a=fmtp`).
    pub parameters: Option<String>,
    /// Feedback that it takes (`a=rtcp-fb`, RFC 4585, 4.2): `nack pli`.
    pub feedback: Vec<String>,
}

impl Codec {
    /// One without parameters and feedback.
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

    /// The same with parameters.
    #[must_use]
    pub fn with_parameters(self, parameters: &str) -> Codec {
        let parameters = Some(parameters.to_owned());
        Codec { parameters, ..self }
    }

    /// Whether it has that name.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The value of one of its parameters.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let parameters = self.parameters.as_deref()?.split(';');
        parameters
            .filter_map(|pair| pair.trim_ascii().split_once('='))
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The payload type whose packets it sends again, where it is for that (RFC 4588, 8.1).
    pub fn retransmits(&self) -> Option<u8> {
        match self.is("rtx") {
            true => self.parameter("apt")?.parse().ok(),
            false => None,
        }
    }
}

/// Codecs whose packets can be counted here, as they are offered.
pub mod known {
    use super::Codec;

    /// Names of sound.
    pub const AUDIO: &[&str] = &[
        "opus",
        "PCMU",
        "PCMA",
        "G722",
        "red",
        "telephone-event",
        "CN",
    ];

    /// Names of pictures, and of what repairs them.
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

    /// Opus.
    pub fn opus() -> Codec {
        let opus = Codec {
            channels: Some(2),
            ..Codec::new(111, "opus", 48_000)
        };
        opus.with_parameters("minptime=10;useinbandfec=1")
    }

    /// G.711, both laws.
    pub fn g711() -> Vec<Codec> {
        vec![Codec::new(0, "PCMU", 8000), Codec::new(8, "PCMA", 8000)]
    }

    /// VP8.
    pub fn vp8() -> Codec {
        Codec::new(96, "VP8", 90_000)
    }

    /// VP9, profile 0.
    pub fn vp9() -> Codec {
        Codec::new(98, "VP9", 90_000).with_parameters("profile-id=0")
    }

    /// H.264, constrained baseline, in packets that may be of several units.
    pub fn h264() -> Codec {
        let parameters = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f";
        Codec::new(102, "H264", 90_000).with_parameters(parameters)
    }

    /// H.265.
    pub fn h265() -> Codec {
        Codec::new(104, "H265", 90_000)
            .with_parameters("level-id=93;profile-id=1;tier-flag=0;tx-mode=SRST")
    }

    /// AV1.
    pub fn av1() -> Codec {
        Codec::new(45, "AV1", 90_000)
    }

    /// Retransmissions of a codec, under the next payload type.
    pub fn rtx(of: &Codec) -> Codec {
        Codec::new(of.payload_type + 1, "rtx", of.clock_rate)
            .with_parameters(&format!("apt={}", of.payload_type))
    }

    /// All sound, the best first.
    pub fn all_audio() -> Vec<Codec> {
        [vec![opus()], g711()].concat()
    }

    /// All pictures, each with its retransmissions.
    pub fn all_video() -> Vec<Codec> {
        let codecs = [h264(), vp8(), vp9(), av1(), h265()];
        let both = |codec: Codec| {
            let rtx = rtx(&codec);
            [codec, rtx]
        };
        codecs.into_iter().flat_map(both).collect()
    }
}
