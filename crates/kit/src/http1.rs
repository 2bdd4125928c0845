//! HTTP/1.0 and 1.1 without I/O (RFC 9110, RFC 9112): heads of requests and responses are read and
//! written, bodies of responses are read, whatever their content.
//!
//! The body of a response is passed on in pieces and never buffered. Heads, chunk size lines and
//! trailers are bounded, so that no response makes the decoder hold more than [`MAX_HEAD`] bytes.

use std::{fmt, iter};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mediagen::steps;
use head::write_fields;
use headers::USUAL_HEAD;

mod additional_fields;
mod cookies;
mod head;
mod headers;
mod url;

pub use additional_fields::AdditionalFields;
pub use cookies::Cookies;
pub use head::{
    Head, HeadReader, RequestLine, TooLong, lines, parse_status_line, start_line, write_field,
    write_head,
};
pub use headers::{FieldError, FieldRules, Headers, is_token, is_value};
pub use url::{Url, UrlError};

/// Maximum length in bytes of a response's head, and of its trailers.
pub const MAX_HEAD: usize = 16 * 1024;

/// Maximum number of header fields of a response.
pub const MAX_HEADERS: usize = 128;

/// Maximum length in bytes of a chunk size line, with extensions (RFC 9112, 7.1.1).
pub const MAX_CHUNK_LINE: usize = 256;

/// Maximum number of bytes of chunk framing in excess of a quarter of the body's bytes. Without a
/// limit, a peer could make each byte of a body cost as much as hundreds.
pub const MAX_FRAMING: usize = 64 * 1024;

/// Writes a request without a body. `headers` follow `Host`; names and values must not contain line
/// ends.
pub fn write_request(
    method: &str,
    url: &Url,
    version: Version,
    headers: &[(&str, &str)],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_HEAD);
    for part in [method, " ", url.target(), " ", version.name()] {
        out.extend_from_slice(part.as_bytes());
    }
    let host = ("Host", url.authority());
    write_fields(iter::once(host).chain(headers.iter().copied()), &mut out);
    out
}

/// Version of HTTP with a text format.
// The schema describes it as a key of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HttpVersion", description = "HTTP version of requests.")]
pub enum Version {
    /// HTTP/1.0, in which servers must not use chunks.
    #[serde(rename = "1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http11,
}

impl Version {
    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// A part of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseItem<'a> {
    /// The status line and the header fields. Returned once: interim responses (1xx) except 101 are
    /// skipped.
    Head(Box<Head>),
    /// Part of the body.
    Body {
        bytes: &'a [u8],
        /// Offset of the first of them in the piece of input.
        start: usize,
    },
    /// The response has ended, by its stated length or its last chunk. The bytes that follow do not
    /// belong to it.
    End,
}

/// Reason why the received bytes are not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The response does not begin with `HTTP/1.`.
    #[error("response does not begin with HTTP/1.")]
    NotHttp,
    /// The status line is malformed.
    #[error("malformed status line")]
    StatusLine,
    /// A header field has no colon, or its name is not a token.
    #[error("malformed header field")]
    HeaderField,
    /// The head or the trailers are longer than [`MAX_HEAD`] or have more fields than
    /// [`MAX_HEADERS`], or the interim responses and blank lines before the head are longer in
    /// total.
    #[error("response head of more than {MAX_HEAD} bytes or {MAX_HEADERS} fields")]
    HeadTooLong,
    /// `Content-Length` is not a number, or several values differ (RFC 9112, 6.3). Holds the
    /// unusable value.
    #[error("Content-Length `{0}` is not a number, or differs from another Content-Length")]
    Length(FieldText),
    /// A transfer coding other than `chunked` (RFC 9112, 7). Holds the field's value.
    #[error("unsupported Transfer-Encoding `{0}` (only chunked is supported)")]
    TransferCoding(FieldText),
    /// A chunk size is malformed, or its line is longer than [`MAX_CHUNK_LINE`].
    #[error("malformed chunk size")]
    ChunkSize,
    /// More than [`MAX_FRAMING`] bytes of chunk framing in excess of a quarter of the body.
    #[error("chunks so small that most bytes are framing")]
    ChunksTooSmall,
    /// A chunk does not end where its size says.
    #[error("chunk without a line end after its last byte")]
    ChunkEnd,
}

/// Printable beginning of a field's value: at most [`FieldText::BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FieldText {
    bytes: [u8; FieldText::BYTES_MAX],
    length: u8,
    truncated: bool,
}

impl FieldText {
    /// Maximum number of bytes kept.
    pub const BYTES_MAX: usize = 40;

    /// Keeps the first bytes of `value`.
    pub fn new(value: &str) -> FieldText {
        let mut bytes = [0; FieldText::BYTES_MAX];
        let kept = &value.as_bytes()[..value.len().min(FieldText::BYTES_MAX)];
        bytes[..kept.len()].copy_from_slice(kept);
        FieldText {
            bytes,
            length: kept.len() as u8,
            truncated: kept.len() < value.len(),
        }
    }
}

impl fmt::Display for FieldText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = String::from_utf8_lossy(&self.bytes[..usize::from(self.length)]);
        write!(out, "{kept}{}", if self.truncated { "..." } else { "" })
    }
}

impl fmt::Debug for FieldText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), out)
    }
}

/// State of a response when its connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseState {
    /// No byte of a response has arrived.
    Empty,
    /// Only part of the head has arrived.
    TruncatedHead,
    /// The body is incomplete, or its last chunk is missing.
    TruncatedBody,
    /// The body extends to the end of the connection (RFC 9112, 6.3, 8): truncation cannot be
    /// detected.
    UntilClose,
    /// The response was complete.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// Number of body bytes left.
    Length(u64),
    UntilClose,
    ChunkSize,
    /// Number of bytes of the chunk left.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    /// [`ResponseItem::End`] is still to be returned.
    Ending,
    Over,
}

/// Decoder of one response, fed in pieces that are split anywhere.
#[derive(Debug, Default)]
pub struct ResponseDecoder {
    state: State,
    /// Received part of a head, a line or trailers.
    buffer: Vec<u8>,
    /// Bytes of blank lines and interim responses before the head.
    skipped_bytes: usize,
    /// Bytes of chunk framing in excess of a quarter of the chunks' bytes.
    excess_framing: usize,
    /// Bytes of chunks that have not yet been deducted from `excess_framing`.
    undeducted_bytes: usize,
    failed: Option<ResponseError>,
}

impl ResponseDecoder {
    /// Creates a decoder of the response to a GET: a body may follow any head that does not forbid
    /// it.
    pub fn new() -> ResponseDecoder {
        ResponseDecoder::default()
    }

    /// Returns the number of body bytes that are still to arrive, if it is known.
    pub fn bytes_left(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Ending | State::Over => Some(0),
            _ => None,
        }
    }

    /// Returns the next item in `bytes` from offset `at` on, and advances `at` past it. Returns
    /// `None` if more bytes are needed. `bytes` is one piece of the input, in which offsets count
    /// from its first byte.
    ///
    /// # Errors
    /// [`ResponseError`]. Every later call then returns the same error.
    #[inline]
    pub fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<ResponseItem<'a>>, ResponseError> {
        if let Some(malformed) = self.failed {
            return Err(malformed);
        }
        let item = self.read(bytes, at);
        self.failed = item.as_ref().err().copied();
        item
    }

    #[inline]
    fn read<'a>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<ResponseItem<'a>>, ResponseError> {
        loop {
            let rest = bytes.get(*at..).unwrap_or_default();
            match self.state {
                State::UntilClose => {
                    return Ok(body(rest, u64::MAX, at).map(|(item, _)| item));
                }
                State::Length(left) => {
                    let Some((item, taken)) = body(rest, left, at) else {
                        return Ok(None);
                    };
                    self.state = match left - taken {
                        0 => State::Ending,
                        left => State::Length(left),
                    };
                    return Ok(Some(item));
                }
                State::Chunk(left) => {
                    let Some((item, taken)) = body(rest, left, at) else {
                        return Ok(None);
                    };
                    self.undeducted_bytes += taken as usize;
                    self.state = match left - taken {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                    return Ok(Some(item));
                }
                State::Ending => {
                    self.state = State::Over;
                    return Ok(Some(ResponseItem::End));
                }
                State::Over => return Ok(None),
                _ if rest.is_empty() => return Ok(None),
                State::Head => {
                    if let Some(head) = self.head(rest, at)? {
                        return Ok(Some(ResponseItem::Head(Box::new(head))));
                    }
                }
                State::ChunkSize => self.chunk_size(rest, at)?,
                State::ChunkEnd => {
                    let whole = self.buffer_line(rest, at, 2, ResponseError::ChunkEnd)?;
                    match (&self.buffer[..], whole) {
                        (b"\r\n" | b"\n", true) => self.begin(State::ChunkSize),
                        (b"\r", false) => {}
                        _ => return Err(ResponseError::ChunkEnd),
                    }
                }
                State::Trailers => self.trailers(rest, at)?,
            }
        }
    }

    fn begin(&mut self, state: State) {
        self.buffer.clear();
        self.state = state;
    }

    /// Buffers bytes up to a line end, and returns whether the line is complete. Returns `too_long`
    /// if more than `max` bytes would be buffered.
    fn buffer_line(
        &mut self,
        rest: &[u8],
        at: &mut usize,
        max: usize,
        too_long: ResponseError,
    ) -> Result<bool, ResponseError> {
        let end = steps::find(rest, b'\n');
        let taken = end.map_or(rest.len(), |end| end + 1);
        let room = max.saturating_sub(self.buffer.len());
        self.buffer.extend_from_slice(&rest[..taken.min(room)]);
        *at += taken;
        match taken <= room {
            true => Ok(end.is_some()),
            false => Err(too_long),
        }
    }

    fn chunk_size(&mut self, rest: &[u8], at: &mut usize) -> Result<(), ResponseError> {
        if !self.buffer_line(rest, at, MAX_CHUNK_LINE, ResponseError::ChunkSize)? {
            return Ok(());
        }
        // The line, and the line end after the chunk.
        self.excess_framing += self.buffer.len() + 2;
        self.excess_framing = self
            .excess_framing
            .saturating_sub(self.undeducted_bytes / 4);
        self.undeducted_bytes %= 4;
        if self.excess_framing > MAX_FRAMING {
            return Err(ResponseError::ChunksTooSmall);
        }
        let line = &self.buffer;
        // Extensions are ignored (RFC 9112, 7.1.1).
        let size = line.split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(size.trim_ascii()).ok();
        let size = size.filter(|size| size.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let size = size.and_then(|size| u64::from_str_radix(size, 16).ok());
        match size.ok_or(ResponseError::ChunkSize)? {
            0 => self.begin(State::Trailers),
            size => self.begin(State::Chunk(size)),
        }
        Ok(())
    }

    fn trailers(&mut self, rest: &[u8], at: &mut usize) -> Result<(), ResponseError> {
        // Trailers are skipped; only their end matters.
        let before = self.buffer.len();
        if self.buffer_line(rest, at, MAX_HEAD, ResponseError::HeadTooLong)? {
            let line = &self.buffer[line_start(&self.buffer, before)..];
            if matches!(line, b"\r\n" | b"\n") {
                self.begin(State::Ending);
            }
        }
        Ok(())
    }

    fn head(&mut self, rest: &[u8], at: &mut usize) -> Result<Option<Head>, ResponseError> {
        const NAME: &[u8] = b"HTTP/1.";
        let before = self.buffer.len();
        if before == 0 {
            self.buffer.reserve(USUAL_HEAD.min(rest.len()));
        }
        let whole = self.buffer_line(rest, at, MAX_HEAD, ResponseError::HeadTooLong);
        // Another protocol on this port is detected by the first bytes.
        let begin = &self.buffer[..self.buffer.len().min(NAME.len())];
        if !NAME.starts_with(begin) && !matches!(begin, [b'\r' | b'\n', ..]) {
            return Err(ResponseError::NotHttp);
        }
        if !whole? {
            return Ok(None);
        }
        let start = line_start(&self.buffer, before);
        if !matches!(&self.buffer[start..], b"\r\n" | b"\n") {
            return Ok(None);
        }
        if start == 0 {
            // Empty lines before a request are ignored (RFC 9112, 2.2); those before a response
            // too.
            self.skip_buffered()?;
            self.buffer.clear();
            return Ok(None);
        }
        steps::count_bytes(start);
        let head = Head::parse(&self.buffer[..start])?;
        if (100..200).contains(&head.status) && head.status != 101 {
            self.skip_buffered()?;
            self.buffer.clear();
            return Ok(None);
        }
        self.buffer = Vec::new();
        self.state = framing(&head)?;
        Ok(Some(head))
    }

    /// Counts the buffered bytes as skipped bytes before the head.
    fn skip_buffered(&mut self) -> Result<(), ResponseError> {
        self.skipped_bytes += self.buffer.len();
        match self.skipped_bytes > MAX_HEAD {
            true => Err(ResponseError::HeadTooLong),
            false => Ok(()),
        }
    }

    /// State of the response if the connection has closed now.
    pub fn at_close(&self) -> CloseState {
        match self.state {
            State::Head if self.buffer.is_empty() => CloseState::Empty,
            State::Head => CloseState::TruncatedHead,
            State::UntilClose => CloseState::UntilClose,
            State::Ending | State::Over => CloseState::Over,
            State::Length(_)
            | State::ChunkSize
            | State::Chunk(_)
            | State::ChunkEnd
            | State::Trailers => CloseState::TruncatedBody,
        }
    }
}

/// Offset of the last line of `buffer`, whose first `before` bytes contain at most its beginning.
fn line_start(buffer: &[u8], before: usize) -> usize {
    let before = &buffer[..before];
    let start = before.iter().rposition(|&byte| byte == b'\n');
    let start = start.map_or(0, |end| end + 1);
    steps::count_bytes(before.len() - start);
    start
}

/// Takes at most `max` bytes of body from the front of `rest`.
#[inline]
fn body<'a>(rest: &'a [u8], max: u64, at: &mut usize) -> Option<(ResponseItem<'a>, u64)> {
    let taken = usize::try_from(max).unwrap_or(usize::MAX).min(rest.len());
    if taken == 0 {
        return None;
    }
    let start = *at;
    *at += taken;
    steps::count_bytes(1);
    let bytes = &rest[..taken];
    Some((ResponseItem::Body { bytes, start }, taken as u64))
}

/// Body framing of the response to a GET (RFC 9112, 6.3).
fn framing(head: &Head) -> Result<State, ResponseError> {
    if matches!(head.status, 101 | 204 | 304) {
        return Ok(State::Ending);
    }
    // `identity` is not a coding: RFC 2616 (3.6) defined it, and some servers still send it.
    let codings = head.headers.list("Transfer-Encoding");
    let mut codings = codings.filter(|coding| !coding.eq_ignore_ascii_case("identity"));
    if let Some(coding) = codings.next() {
        let chunked = coding.eq_ignore_ascii_case("chunked") && codings.next().is_none();
        return match chunked {
            true => Ok(State::ChunkSize),
            false => {
                let all: Vec<_> = head.headers.list("Transfer-Encoding").collect();
                Err(ResponseError::TransferCoding(FieldText::new(
                    &all.join(", "),
                )))
            }
        };
    }
    Ok(match content_length(&head.headers)? {
        None => State::UntilClose,
        Some(0) => State::Ending,
        Some(length) => State::Length(length),
    })
}

/// Length stated by `Content-Length`. `None` if the field is missing, or negative, which servers
/// send if they do not know the length.
fn content_length(headers: &Headers) -> Result<Option<u64>, ResponseError> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut length = None;
    for (index, text) in headers.list("Content-Length").enumerate() {
        let wrong = ResponseError::Length(FieldText::new(text));
        // Servers of live streams that print an unknown length send -1. Browsers and players then
        // read until the connection ends.
        let own = match text.strip_prefix('-') {
            Some(digits) if is_number(digits) => None,
            _ if is_number(text) => Some(text.parse::<u64>().map_err(|_| wrong)?),
            _ => return Err(wrong),
        };
        if index > 0 && own != length {
            return Err(wrong);
        }
        length = own;
    }
    Ok(length)
}

#[cfg(test)]
mod tests;
