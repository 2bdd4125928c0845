//! RTSP 1.0 messages and interleaved frames (RFC 2326, 4 to 7 and 10.12).
//!
//! [`Decoder`] splits the byte stream of one connection into items. It tolerates what real servers
//! send: lines that end in CRLF or LF, a missing reason phrase, folded header lines, a space before
//! the colon, and blank lines between messages. Bytes that are neither a message nor a frame are
//! skipped up to the next plausible start and reported as [`Item::Garbage`].
//!
//! The items do not depend on where reads split the stream (adjacent [`Item::Garbage`] added up),
//! with one exception: an RTP frame that is split between reads may carry only the beginning of its
//! packet.

use std::fmt;

mod decoder;
#[cfg(test)]
mod linear_time;
mod message;
mod start_line;
#[cfg(test)]
mod tests;

pub use decoder::{
    BUFFER_KEPT_MAX, Decoder, MESSAGES_PER_READ_MAX, Overflow, SPLIT_FRAME_KEPT, USELESS_BYTES_MAX,
};
pub use message::{Headers, Request, Response, cseq};

/// Maximum length of a start line in bytes, line end included.
pub const MAX_START_LINE: usize = 8 * 1024;
/// Maximum length of a message head (start line and headers) in bytes.
pub const MAX_HEAD: usize = 32 * 1024;
/// Maximum number of header lines in a message.
pub const MAX_HEADERS: usize = 256;
/// Maximum length of a message body in bytes.
pub const MAX_BODY: usize = 256 * 1024;

/// Returns the interleaved frame of a packet, which has at most 65535 bytes (RFC 2326, 10.12).
pub(crate) fn frame(channel: u8, packet: &[u8]) -> Vec<u8> {
    debug_assert!(u16::try_from(packet.len()).is_ok());
    let mut frame = Vec::with_capacity(4 + packet.len());
    frame.extend_from_slice(&[b'$', channel]);
    frame.extend_from_slice(&(packet.len() as u16).to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

/// A request method (RFC 2326, 10).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Options,
    Describe,
    Announce,
    Setup,
    Play,
    Pause,
    Record,
    Redirect,
    /// Also used as a keep-alive, then without a body.
    GetParameter,
    SetParameter,
    Teardown,
    /// A method that RFC 2326 does not define.
    Other(String),
}

impl Method {
    /// Methods that RFC 2326 defines.
    pub const KNOWN: [Method; 11] = [
        Method::Options,
        Method::Describe,
        Method::Announce,
        Method::Setup,
        Method::Play,
        Method::Pause,
        Method::Record,
        Method::Redirect,
        Method::GetParameter,
        Method::SetParameter,
        Method::Teardown,
    ];

    /// Returns the name as written in messages.
    pub fn name(&self) -> &str {
        match self {
            Method::Options => "OPTIONS",
            Method::Describe => "DESCRIBE",
            Method::Announce => "ANNOUNCE",
            Method::Setup => "SETUP",
            Method::Play => "PLAY",
            Method::Pause => "PAUSE",
            Method::Record => "RECORD",
            Method::Redirect => "REDIRECT",
            Method::GetParameter => "GET_PARAMETER",
            Method::SetParameter => "SET_PARAMETER",
            Method::Teardown => "TEARDOWN",
            Method::Other(name) => name,
        }
    }

    /// Returns the method with this name. Method names are case-sensitive (RFC 2326, 6.1).
    pub fn from_name(name: &str) -> Method {
        Method::KNOWN
            .into_iter()
            .find(|method| method.name() == name)
            .unwrap_or_else(|| Method::Other(name.to_owned()))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An item of the byte stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An interleaved frame of binary data (RFC 2326, 10.12).
    Frame {
        channel: u8,
        /// Whole payload, or the first bytes of an RTP packet that was split between reads: at
        /// least its header.
        payload: &'a [u8],
        /// Length of the whole payload; `payload` may be shorter.
        length: usize,
    },
    Request(Request),
    Response(Response),
    /// Skipped bytes that are neither a message nor a frame.
    Garbage {
        bytes: usize,
    },
    /// A message with an invalid head. Only the head is skipped: the bytes of a body are decoded as
    /// the next items.
    Malformed(Malformed),
}

/// A message that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub reason: &'static str,
    /// Start line, truncated to 200 bytes.
    pub start_line: String,
    /// `CSeq` of the message, if it is readable.
    pub cseq: Option<u32>,
}
