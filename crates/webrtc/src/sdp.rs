//! Session descriptions (RFC 8866) as WebRTC uses them (RFC 8829), in offers and answers (RFC
//! 3264).
//!
//! All media of a connection share one transport (RFC 9143). For an offer with several transports,
//! the answer accepts the first section and rejects those that do not share its transport.

mod answer;
mod candidate;
mod check_answer;
mod codec;
mod description;
mod error;
mod feedback;
mod fragment;
mod negotiated;
mod offer;
mod parse;
mod setup;
mod source;
mod transport;
mod transport_attributes;
mod write;

#[cfg(test)]
mod tests;

pub use answer::AnswerConfig;
pub use candidate::{Candidate, CandidateAddress, CandidateKind};
pub use check_answer::{AnswerError, SectionRef};
pub use codec::{Codec, known};
pub use description::{
    Direction, HeaderExtension, MediaKind, MediaSection, Rid, SessionDescription, SourceAttributes,
    SourceGroup, extension,
};
pub use error::{SdpError, SdpReason};
pub use feedback::FeedbackTypes;
pub use fragment::SdpFragment;
pub use negotiated::{NegotiatedMedia, RemoteSource, negotiated_media};
pub use offer::{OfferConfig, OfferedMedia};
pub use setup::Setup;
pub use source::LocalSource;
pub use transport::TransportParameters;
pub use transport_attributes::TransportAttributes;
