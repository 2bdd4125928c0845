//! Errors of session descriptions.

use thiserror::Error;

/// A text is not a usable session description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}{reason}", line_prefix(*line))]
pub struct SdpError {
    /// Line number from 1, or 0 if the error concerns the whole description.
    pub line: usize,
    pub reason: SdpReason,
}

/// Returns the prefix of a message that concerns one line.
fn line_prefix(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line} of the session description: "),
    }
}

/// Reason why a session description is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SdpReason {
    #[error("more than 1 MiB")]
    TooLong,
    #[error("more than 40,000 lines")]
    TooManyLines,
    #[error("more than 512 media sections")]
    TooManySections,
    #[error("not of the form x=value")]
    MalformedLine,
    #[error("does not begin with v=0")]
    NotVersion0,
    #[error("unsupported media line: neither RTP nor a data channel")]
    MediaLine,
    #[error("invalid value of {0}")]
    Attribute(&'static str),
    #[error("all media sections are rejected, or there are none")]
    NoMedia,
    /// The ICE credentials are missing (RFC 8839, 5.4).
    #[error("ice-ufrag or ice-pwd is missing")]
    NoIce,
    /// The DTLS fingerprint is missing (RFC 8842, 5).
    #[error("the fingerprint is missing")]
    NoFingerprint,
}

impl SdpReason {
    /// Returns the error for that line.
    pub(super) fn at(self, line: usize) -> SdpError {
        SdpError { line, reason: self }
    }

    /// Returns the error for the whole description.
    pub(super) fn without_line(self) -> SdpError {
        self.at(0)
    }
}
