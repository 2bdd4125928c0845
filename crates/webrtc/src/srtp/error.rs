//! Errors and counts of SRTP.

use thiserror::Error;

/// Reason why a packet is neither opened nor sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SrtpError {
    /// The packet is neither RTP nor RTCP, or is too short to be protected.
    #[error("neither RTP nor RTCP")]
    Malformed,
    /// The packet was not protected with the keys of this connection, or was modified in transit.
    #[error("not authentic")]
    Unauthentic,
    /// The packet was received before, or is older than the replay window (RFC 3711, 3.3.2).
    #[error("replayed")]
    Replayed,
    /// The maximum number of sources is reached.
    #[error("too many sources")]
    TooManySources,
    /// A source has sent as many packets as one key may protect (RFC 3711, 9.2).
    #[error("the key is used up")]
    KeyUsedUp,
}

/// Counts of the packets handled by an opener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrtpCounts {
    /// Authentic packets that were new.
    pub opened: u64,
    /// Packets that were not authentic.
    pub unauthentic: u64,
    /// Packets that were received before, or were older than the replay window.
    pub replayed: u64,
    /// Packets that were neither RTP nor RTCP.
    pub malformed: u64,
    /// Authentic packets of sources beyond the maximum number.
    pub too_many_sources: u64,
}

impl SrtpCounts {
    /// Counts the result of one packet.
    pub(super) fn count<T>(&mut self, result: &Result<T, SrtpError>) {
        let counter = match result {
            Ok(_) => &mut self.opened,
            Err(SrtpError::Malformed) => &mut self.malformed,
            Err(SrtpError::Unauthentic) => &mut self.unauthentic,
            Err(SrtpError::Replayed | SrtpError::KeyUsedUp) => &mut self.replayed,
            Err(SrtpError::TooManySources) => &mut self.too_many_sources,
        };
        *counter += 1;
    }
}
