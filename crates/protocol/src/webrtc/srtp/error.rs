//! Why a packet is refused, and how many were.

use thiserror::Error;

/// Why a packet is neither opened nor sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SrtpError {
    /// It is no packet of RTP or RTCP, or is too short to be protected.
    #[error("no packet of RTP or RTCP")]
    Malformed,
    /// It was not made with the keys of this connection, or was changed on its way.
    #[error("not authentic")]
    Unauthentic,
    /// It came before, or is older than what is remembered (RFC 3711, 3.3.2).
    #[error("came before")]
    Replayed,
    /// There are as many sources as may be.
    #[error("too many sources")]
    TooManySources,
    /// A source has sent as many packets as one key may protect (RFC 3711, 9.2).
    #[error("the key is used up")]
    KeyUsedUp,
}

/// What became of the packets that came to an opener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrtpCounts {
    /// Packets that were authentic, and new.
    pub opened: u64,
    /// Packets that were not authentic.
    pub unauthentic: u64,
    /// Packets that came before, or were older than what is remembered.
    pub replayed: u64,
    /// Packets that were none of RTP or RTCP.
    pub malformed: u64,
    /// Authentic packets of sources beyond those that are remembered.
    pub of_too_many_sources: u64,
}

impl SrtpCounts {
    /// Counts how one packet went.
    pub(super) fn count<T>(&mut self, result: &Result<T, SrtpError>) {
        let counter = match result {
            Ok(_) => &mut self.opened,
            Err(SrtpError::Malformed) => &mut self.malformed,
            Err(SrtpError::Unauthentic) => &mut self.unauthentic,
            Err(SrtpError::Replayed | SrtpError::KeyUsedUp) => &mut self.replayed,
            Err(SrtpError::TooManySources) => &mut self.of_too_many_sources,
        };
        *counter += 1;
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: SrtpCounts) -> SrtpCounts {
        SrtpCounts {
            opened: self.opened + other.opened,
            unauthentic: self.unauthentic + other.unauthentic,
            replayed: self.replayed + other.replayed,
            malformed: self.malformed + other.malformed,
            of_too_many_sources: self.of_too_many_sources + other.of_too_many_sources,
        }
    }
}
