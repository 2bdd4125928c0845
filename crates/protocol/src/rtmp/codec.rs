//! What goes over a connection of RTMP: the handshake, chunks, messages, and AMF in commands.
//!
//! Everything is bounded: what a peer claims is never allocated before it has come, and what comes
//! is kept up to a limit. Media is not kept at all, but for the first bytes of each message.

pub mod amf0;
pub mod amf3;
pub mod chunk;
pub mod handshake;
pub mod link;
pub mod media;
pub mod message;
pub mod write;

use thiserror::Error;

/// Why bytes are no RTMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Another version than 3 (RTMP, 5.2.2).
    #[error("version {0} instead of 3")]
    Version(u8),
    /// The other side's second packet is no echo of ours (RTMP, 5.2.4).
    #[error("the handshake does not repeat what was sent")]
    Echo,
    /// The other side's second packet states a version, and bears no digest that is right.
    #[error("a handshake with a wrong digest")]
    Digest,
    /// A chunk without a header of its own begins a chunk stream (RTMP, 5.3.1.2).
    #[error("chunk stream {0} begins without a whole header")]
    NoHeader(u32),
    /// A message begins before the one before it on the same chunk stream is over.
    #[error("a message begins within another on chunk stream {0}")]
    Interrupted(u32),
    /// A chunk size of 0, or of more than 31 bits (RTMP, 5.4.1).
    #[error("chunk size {0}")]
    ChunkSize(u32),
    /// More chunk streams at a time than are looked after.
    #[error("more than {} chunk streams", chunk::STREAMS_MAX)]
    ChunkStreams,
    /// A message that has to be kept is longer than is taken.
    #[error("a message of type {kind} with {length} bytes")]
    TooLong {
        /// Its type.
        kind: u8,
        /// Its length, as its header states it.
        length: u32,
    },
    /// A control message is shorter than its fields (RTMP, 5.4 and 6.2).
    #[error("a message of type {0} that is too short")]
    TooShort(u8),
    /// A value of AMF is cut off, or of no type there is.
    #[error("AMF that cannot be read")]
    Amf,
    /// AMF within AMF, deeper than is followed.
    #[error("AMF nested deeper than {}", amf0::DEPTH_MAX)]
    AmfTooDeep,
    /// More values in one message than are taken.
    #[error("AMF with more than {} values", amf0::VALUES_MAX)]
    AmfTooMany,
    /// A command whose first value is no text (RTMP, 7.1.1).
    #[error("a command without a name")]
    Command,
    /// Parts of an aggregate do not fill it (RTMP, 7.1.6).
    #[error("an aggregate whose parts are longer than it")]
    Aggregate,
}
