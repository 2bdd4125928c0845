//! Checks an answer against its offer. The rules are those of Chromium, which refuses every answer
//! that is refused here (libwebrtc, `ValidateSessionDescription`).

use std::fmt;

use super::description::{MediaKind, MediaSection, SessionDescription};

/// Maximum length of `a=mid` in browsers, in bytes.
const MID_MAX: usize = 16;

/// The rule that an answer breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("all {0} media sections are refused: their port is 0 (RFC 3264, 6)")]
    AllRefused(usize),
    #[error("{answered} media sections, {offered} were offered (RFC 3264, 6)")]
    SectionCountMismatch {
        /// Sections of the offer.
        offered: usize,
        /// Sections of the answer.
        answered: usize,
    },
    #[error("{place} was offered as {offered}: sections keep their order (RFC 3264, 6)")]
    KindMismatch {
        place: SectionRef,
        /// Kind of the offered section.
        offered: &'static str,
    },
    #[error("{place} has mid `{mid}`, `{offered}` was offered (RFC 5888, 9.1)")]
    MidMismatch {
        place: SectionRef,
        /// `a=mid` of the section.
        mid: String,
        /// `a=mid` of the offered section.
        offered: String,
    },
    #[error("BUNDLE names mid `{0}`, which no media section has (RFC 9143, 7.3)")]
    UnknownBundledMid(String),
    /// One of several sections does not share the transport of the others.
    #[error(
        "{0} is not in the BUNDLE group, but all sections must share one transport (RFC 9143, 7.3)"
    )]
    NotBundled(SectionRef),
    /// RTCP would use another port.
    #[error("{0} has no rtcp-mux (RFC 8834, 4.5; RFC 8858, 4)")]
    NoRtcpMux(SectionRef),
    /// The direction does not fit the offered one: a section receives what is not sent, or sends
    /// what is not received.
    #[error("{place} is {direction}, {offered} was offered (RFC 3264, 6.1)")]
    DirectionMismatch {
        place: SectionRef,
        /// Direction in the answer.
        direction: &'static str,
        /// Direction in the offer.
        offered: &'static str,
    },
}

/// Position and kind of a media section, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionRef {
    /// Index of the section, from 0.
    pub index: usize,
    pub kind: MediaKind,
}

impl fmt::Display for SectionRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "media section {} ({})",
            self.index + 1,
            self.kind.name()
        )
    }
}

impl SessionDescription {
    /// Checks this answer against `offer`. A missing `a=mid` is replaced by that of the offer, as
    /// in browsers.
    ///
    /// # Errors
    /// The first rule that the answer breaks.
    pub fn check_answer(&mut self, offer: &SessionDescription) -> Result<(), AnswerError> {
        if self.media.len() != offer.media.len() {
            return Err(AnswerError::SectionCountMismatch {
                offered: offer.media.len(),
                answered: self.media.len(),
            });
        }
        let pairs = self.media.iter_mut().zip(&offer.media).enumerate();
        for (index, (section, offered)) in pairs {
            check_section(index, section, offered)?;
        }
        let mut names = self.bundle.iter();
        if let Some(name) = names.find(|name| self.media.iter().all(|own| own.mid != **name)) {
            let name = name.chars().take(MID_MAX).collect();
            return Err(AnswerError::UnknownBundledMid(name));
        }
        let accepted = self.media.iter().enumerate();
        let accepted: Vec<_> = accepted.filter(|(_, own)| !own.rejected).collect();
        if accepted.is_empty() {
            return Err(AnswerError::AllRefused(self.media.len()));
        }
        let mut unbundled = accepted
            .iter()
            .filter(|(_, own)| !self.bundle.contains(&own.mid));
        match unbundled.next() {
            Some((index, section)) if accepted.len() > 1 => {
                Err(AnswerError::NotBundled(section_ref(*index, section)))
            }
            _ => Ok(()),
        }
    }
}

fn section_ref(index: usize, section: &MediaSection) -> SectionRef {
    SectionRef {
        index,
        kind: section.kind,
    }
}

fn check_section(
    index: usize,
    section: &mut MediaSection,
    offered: &MediaSection,
) -> Result<(), AnswerError> {
    let place = section_ref(index, section);
    if section.kind != offered.kind {
        return Err(AnswerError::KindMismatch {
            place,
            offered: offered.kind.name(),
        });
    }
    if section.mid.is_empty() {
        section.mid.clone_from(&offered.mid);
    }
    if section.mid != offered.mid {
        return Err(AnswerError::MidMismatch {
            place,
            mid: section.mid.chars().take(MID_MAX).collect(),
            offered: offered.mid.clone(),
        });
    }
    if section.rejected {
        return Ok(());
    }
    if section.kind != MediaKind::Application && !section.rtcp_mux {
        return Err(AnswerError::NoRtcpMux(place));
    }
    let (answers, offers) = (section.direction, offered.direction);
    let fits = (offers.sends() || !answers.receives()) && (offers.receives() || !answers.sends());
    if !fits {
        return Err(AnswerError::DirectionMismatch {
            place,
            direction: answers.name(),
            offered: offers.name(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
