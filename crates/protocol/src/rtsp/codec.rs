//! Messages of RTSP 1.0 and the frames between them (RFC 2326, 4 to 7 and 10.12).
//!
//! [`Decoder`] takes the byte stream of one connection apart, as tolerantly as real servers ask
//! for: lines end in CRLF or LF, a reason phrase may be missing, header lines may be folded, a
//! space may stand before the colon, and blank lines may stand between messages. What is neither a
//! message nor a frame is skipped up to the next plausible start, and reported as
//! [`Item::Garbage`].
//!
//! However the stream is cut into reads, the same items come out (neighbouring [`Item::Garbage`]
//! added up), but that of a frame with RTP no more than the header may be there.

use std::fmt;

mod decoder;
#[cfg(test)]
mod linear;
mod message;
mod start_line;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, FRAME_KEPT, LASTING, MESSAGES_A_READ, Overflow, USELESS_BYTES};
pub use message::{Headers, Request, Response};

/// The longest start line taken for one, in bytes, line end included.
pub const MAX_START_LINE: usize = 8 * 1024;
/// The longest head of a message (start line and headers), in bytes.
pub const MAX_HEAD: usize = 32 * 1024;
/// The most header lines a message may have.
pub const MAX_HEADERS: usize = 256;
/// The longest body of a message, in bytes.
pub const MAX_BODY: usize = 256 * 1024;

/// What a request asks for (RFC 2326, 10).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Which methods there are.
    Options,
    /// Describe the media.
    Describe,
    /// Here is a description.
    Announce,
    /// Prepare a stream's transport.
    Setup,
    /// Send.
    Play,
    /// Send no more for now.
    Pause,
    /// Take media in.
    Record,
    /// Go to another server.
    Redirect,
    /// Read a parameter; with no body, a sign of life.
    GetParameter,
    /// Write a parameter.
    SetParameter,
    /// Let the session go.
    Teardown,
    /// Any other.
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

    /// Its name as it is written in messages.
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

    /// The method of that name. Names are told apart by case (RFC 2326, 6.1).
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

/// What the decoder found in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A frame of binary data between messages (RFC 2326, 10.12).
    Frame {
        /// The interleaved channel.
        channel: u8,
        /// What it carries: all of it, or of a packet of RTP that was cut by the end of a read its
        /// first bytes, the whole header at least.
        payload: &'a [u8],
        /// How long it really is, from the first byte of `payload`.
        length: usize,
    },
    /// A request.
    Request(Request),
    /// A response.
    Response(Response),
    /// Bytes that are neither, and were skipped.
    Garbage {
        /// How many.
        bytes: usize,
    },
    /// A message whose head cannot be trusted. Its head was skipped; a body that it may have is
    /// taken for what follows it.
    Malformed(Malformed),
}

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// Its start line; at most 200 bytes of it.
    pub start_line: String,
    /// Its `CSeq`, where it has a readable one.
    pub cseq: Option<u32>,
}
