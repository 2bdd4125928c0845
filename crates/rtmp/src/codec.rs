//! RTMP wire format: handshake, chunks, messages, and AMF in commands.
//!
//! Memory is bounded: nothing is allocated for bytes that a peer only announces, and every buffer
//! has a limit. Media payload is skipped except for the first bytes of each message, unless a
//! reader keeps media.

pub mod amf0;
pub mod amf3;
mod amf_value;
pub mod chunk;
pub mod connection;
pub mod handshake;
pub mod media;
pub mod message;
pub mod write;

use thiserror::Error;

/// Violation of RTMP in received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Version other than 3 (RTMP, 5.2.2).
    #[error("RTMP version {0} instead of 3")]
    Version(u8),
    /// The peer's C2 or S2 does not echo the packet sent (RTMP, 5.2.4), and does not prove that its
    /// digest was read.
    #[error("the handshake does not echo the packet sent")]
    Echo,
    /// S1 states a version but has no valid digest.
    #[error("wrong digest in S1")]
    Digest,
    /// A chunk with an abbreviated header (type 2 or 3) begins a chunk stream (RTMP, 5.3.1.2).
    #[error("chunk stream {0} begins without a full header")]
    NoHeader(u32),
    /// A message begins before the previous one on the same chunk stream is complete.
    #[error("a message begins before the end of another on chunk stream {0}")]
    Interrupted(u32),
    /// A chunk size of 0, or of more than 31 bits (RTMP, 5.4.1).
    #[error("invalid chunk size {0}")]
    ChunkSize(u32),
    /// More chunk streams than supported.
    #[error("more than {} chunk streams", chunk::STREAMS_MAX)]
    ChunkStreams,
    /// A buffered message, or the sum of all incomplete messages, exceeds its limit.
    #[error("message of type {kind} too long: {length} bytes")]
    TooLong {
        /// Message type ID.
        kind: u8,
        /// Length stated in the message header.
        length: u32,
    },
    /// A control message is shorter than its fields (RTMP, 5.4 and 6.2).
    #[error("message of type {0} too short")]
    TooShort(u8),
    /// An AMF value is truncated or of an unknown type.
    #[error("invalid AMF")]
    Amf,
    /// AMF values are nested too deeply.
    #[error("AMF nested deeper than {}", amf0::DEPTH_MAX)]
    AmfTooDeep,
    /// One message holds too many AMF values.
    #[error("more than {} AMF values in a message", amf0::VALUES_MAX)]
    AmfTooMany,
    /// The first value of a command is not a string (RTMP, 7.1.1).
    #[error("command without a name")]
    Command,
    /// A part exceeds its aggregate message (RTMP, 7.1.6), or the limit of buffered media.
    #[error("a part exceeds its aggregate message")]
    Aggregate,
}
