//! Which feedback is agreed on.

use super::codec::Codec;
use super::description::{MediaKind, MediaSection, extension};

/// Feedback that a receiver gives and a sender heeds. Default: all of it, as browsers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Packets that are missing are asked for (RFC 4585, 6.2.1).
    pub nack: bool,
    /// They come as a stream of their own (RFC 4588). Without it they come in the stream itself.
    pub rtx: bool,
    /// A key frame is asked for by what is lost (RFC 4585, 6.3.1).
    pub pli: bool,
    /// A key frame is asked for by command (RFC 5104, 4.3.1).
    pub fir: bool,
    /// When each packet of a transport arrived
    /// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
    pub transport_cc: bool,
    /// How much the receiver thinks it can take (draft-alvestrand-rmcat-remb-03).
    pub remb: bool,
}

impl Default for Feedback {
    fn default() -> Self {
        Feedback {
            nack: true,
            rtx: true,
            pli: true,
            fir: true,
            transport_cc: true,
            remb: true,
        }
    }
}

impl Feedback {
    /// None of it.
    pub const NONE: Feedback = Feedback {
        nack: false,
        rtx: false,
        pli: false,
        fir: false,
        transport_cc: false,
        remb: false,
    };

    /// Whether one of them is wanted, by its words in `a=rtcp-fb`.
    pub fn wants(self, words: &str) -> bool {
        match words {
            "nack" => self.nack,
            "nack pli" => self.pli,
            "ccm fir" => self.fir,
            "transport-cc" => self.transport_cc,
            "goog-remb" => self.remb,
            _ => false,
        }
    }

    /// The words of those that are wanted for a codec of that kind.
    fn words(self, kind: MediaKind) -> Vec<String> {
        let all: &[&str] = match kind {
            MediaKind::Video => &["goog-remb", "transport-cc", "ccm fir", "nack", "nack pli"],
            MediaKind::Audio => &["transport-cc", "nack"],
            MediaKind::Application => &[],
        };
        let wanted = all.iter().filter(|words| self.wants(words));
        wanted.map(|words| (*words).to_owned()).collect()
    }

    /// Says in an offered section what is wanted.
    pub(super) fn offer(self, section: &mut MediaSection) {
        section.codecs.retain(|codec| self.rtx || !codec.is("rtx"));
        for codec in section.codecs.iter_mut().filter(|codec| is_media(codec)) {
            codec.feedback = self.words(section.kind);
        }
        self.restrict_extensions(section);
    }

    /// Leaves in an answer what is wanted of what was offered.
    pub(super) fn restrict(self, section: &mut MediaSection) {
        section.codecs.retain(|codec| self.rtx || !codec.is("rtx"));
        for codec in &mut section.codecs {
            codec.feedback.retain(|words| self.wants(words));
        }
        self.restrict_extensions(section);
    }

    fn restrict_extensions(self, section: &mut MediaSection) {
        let keep_number = self.transport_cc;
        let extensions = &mut section.extensions;
        extensions.retain(|known| keep_number || known.uri != extension::TRANSPORT_CC);
    }
}

/// Whether a codec is of media, and not of what repairs it.
fn is_media(codec: &Codec) -> bool {
    ![
        "rtx",
        "red",
        "ulpfec",
        "flexfec-03",
        "CN",
        "telephone-event",
    ]
    .iter()
    .any(|name| codec.is(name))
}
