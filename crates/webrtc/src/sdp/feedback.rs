//! Negotiation of RTCP feedback.

use super::description::{MediaKind, MediaSection, extension};

/// Feedback that a receiver sends and a sender acts on. Default: all, as in browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackTypes {
    /// Missing packets are requested (RFC 4585, 6.2.1).
    pub nack: bool,
    /// Retransmissions have a stream of their own (RFC 4588). Without it, they are sent in the
    /// original stream.
    pub rtx: bool,
    /// Key frames are requested by picture loss indication (RFC 4585, 6.3.1).
    pub pli: bool,
    /// Key frames are requested by full intra request (RFC 5104, 4.3.1).
    pub fir: bool,
    /// Arrival times of all packets of a transport are reported
    /// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
    pub transport_cc: bool,
    /// The receiver's bandwidth estimate is reported (draft-alvestrand-rmcat-remb-03).
    pub remb: bool,
}

impl Default for FeedbackTypes {
    fn default() -> Self {
        FeedbackTypes {
            nack: true,
            rtx: true,
            pli: true,
            fir: true,
            transport_cc: true,
            remb: true,
        }
    }
}

impl FeedbackTypes {
    /// No feedback.
    pub const NONE: FeedbackTypes = FeedbackTypes {
        nack: false,
        rtx: false,
        pli: false,
        fir: false,
        transport_cc: false,
        remb: false,
    };

    /// Returns `true` if a feedback type is enabled, by its value in `a=rtcp-fb`.
    pub fn enables(self, words: &str) -> bool {
        match words {
            "nack" => self.nack,
            "nack pli" => self.pli,
            "ccm fir" => self.fir,
            "transport-cc" => self.transport_cc,
            "goog-remb" => self.remb,
            _ => false,
        }
    }

    /// Returns the `a=rtcp-fb` values of the enabled types for a codec of that kind.
    fn attribute_values(self, kind: MediaKind) -> Vec<String> {
        let all: &[&str] = match kind {
            MediaKind::Video => &["goog-remb", "transport-cc", "ccm fir", "nack", "nack pli"],
            MediaKind::Audio => &["transport-cc", "nack"],
            _ => &[],
        };
        let wanted = all.iter().filter(|words| self.enables(words));
        wanted.map(|words| (*words).to_owned()).collect()
    }

    /// Adds the enabled feedback to an offered section.
    pub(super) fn add_to_offer(self, section: &mut MediaSection) {
        self.restrict(section);
        for codec in section.codecs.iter_mut().filter(|codec| codec.is_media()) {
            codec.feedback = self.attribute_values(section.kind);
        }
    }

    /// Removes from an answered section all feedback that is not enabled.
    pub(super) fn retain_enabled(self, section: &mut MediaSection) {
        self.restrict(section);
        for codec in &mut section.codecs {
            codec.feedback.retain(|words| self.enables(words));
        }
    }

    /// Removes RTX and the extension for transport-wide numbers, unless they are enabled.
    fn restrict(self, section: &mut MediaSection) {
        let (codecs, extensions) = (&mut section.codecs, &mut section.extensions);
        codecs.retain(|codec| self.rtx || !codec.has_name("rtx"));
        extensions.retain(|own| self.transport_cc || own.uri != extension::TRANSPORT_CC);
    }
}
