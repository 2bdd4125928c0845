//! Why a description is refused.

use thiserror::Error;

/// Why a text is no session description that a connection can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}{reason}", of_line(*line))]
pub struct SdpError {
    /// The line, counted from 1; 0 where it is about the whole.
    pub line: usize,
    /// What is wrong.
    pub reason: SdpReason,
}

/// The line in front of a message, where it is about one.
fn of_line(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line} of the session description: "),
    }
}

/// What is wrong with a session description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SdpReason {
    /// It is longer than is read.
    #[error("more than 1 MiB")]
    TooLong,
    /// It has more lines than are read.
    #[error("more than 40,000 lines")]
    TooManyLines,
    /// It describes more media than are read.
    #[error("more than 512 media sections")]
    TooManySections,
    /// A line is not `x=value`.
    #[error("not of the form x=value")]
    NoLine,
    /// It does not begin with `v=0`.
    #[error("it does not begin with v=0")]
    NotVersion0,
    /// A media line cannot be read.
    #[error("no media line of RTP or of a data channel")]
    MediaLine,
    /// An attribute cannot be read.
    #[error("a wrong value of {0}")]
    Attribute(&'static str),
    /// There is nothing that a connection could be made by.
    #[error("no media section that is not refused")]
    NoMedia,
    /// What ICE needs is not there (RFC 8839, 5.4).
    #[error("no ice-ufrag and ice-pwd")]
    NoIce,
    /// What DTLS needs is not there (RFC 8842, 5).
    #[error("no fingerprint")]
    NoFingerprint,
}

impl SdpReason {
    /// At that line.
    pub(super) fn at(self, line: usize) -> SdpError {
        SdpError { line, reason: self }
    }

    /// About the whole.
    pub(super) fn of_all(self) -> SdpError {
        self.at(0)
    }
}
