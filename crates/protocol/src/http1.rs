//! HTTP/1.0 and 1.1 without I/O (RFC 9110, RFC 9112): heads of requests and answers are read and
//! written, and bodies of answers are read, whatever is in them.
//!
//! The body of an answer is handed on as it comes and is never gathered. A head, a line of a
//! chunk's size and trailers are bounded, so that no answer makes this hold more than [`MAX_HEAD`]
//! bytes.

use std::fmt;

use mediagen::steps;

mod cookies;
mod head;
mod url;

pub(crate) use cookies::Cookies;
pub(crate) use head::{
    FieldError, FieldRules, HeadReader, RequestLine, TooLong, check_further, lines,
    parse_status_line, start_line, write_field, write_head,
};
pub use head::{Head, Headers, is_token, is_value};
pub use url::{Url, UrlError};

/// The longest head of an answer that is taken, and the longest trailers, in bytes.
pub const MAX_HEAD: usize = 16 * 1024;

/// The most header fields of an answer that are taken.
pub const MAX_HEADERS: usize = 128;

/// The longest line that states the size of a chunk, extensions included (RFC 9112, 7.1.1), in
/// bytes.
pub const MAX_CHUNK_LINE: usize = 256;

/// How many bytes of framing around chunks are taken beyond those that their contents make up for:
/// a quarter of the bytes of a body makes up for as many of framing. A peer could else have each
/// byte of a body cost as much as hundreds.
pub const MAX_FRAMING: usize = 64 * 1024;

/// Writes a request without a body. `headers` go behind `Host`; names and values must hold no line
/// ends.
pub fn write_request(
    method: &str,
    url: &Url,
    version: Version,
    headers: &[(&str, &str)],
) -> Vec<u8> {
    let line = format!("{method} {} {}", url.target(), version.name());
    let mut fields = vec![("Host", url.authority())];
    fields.extend_from_slice(headers);
    write_head(&line, &fields)
}

/// A version of HTTP that speaks in lines of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.0 (RFC 1945).
    Http10,
    /// 1.1 (RFC 9112).
    Http11,
}

impl Version {
    /// As a message names it.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The status line and the header fields. Comes once: provisional answers (1xx) are passed
    /// over.
    Head(Box<Head>),
    /// Some of the body.
    Body {
        /// What.
        bytes: &'a [u8],
        /// Where the first of them stands in what was fed.
        start: usize,
    },
    /// The answer is over, by its stated length or its last chunk. Whatever follows is none of it.
    End,
}

/// Why what came is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not begin with the name of HTTP.
    #[error("an answer that does not begin with HTTP/1.")]
    NotHttp,
    /// A status line that cannot be read.
    #[error("a status line that cannot be read")]
    StatusLine,
    /// A header field without a colon, or whose name is none.
    #[error("a header field that cannot be read")]
    HeaderField,
    /// A head or trailers longer than [`MAX_HEAD`], or of more fields than [`MAX_HEADERS`]; or
    /// provisional answers and blank lines before it that are as long together.
    #[error("a head of more than {MAX_HEAD} bytes or {MAX_HEADERS} fields")]
    HeadTooLong,
    /// A `Content-Length` that is not a number, or several that differ (RFC 9112, 6.3): the value
    /// that cannot be used.
    #[error("Content-Length `{0}` is not a number, or differs from another Content-Length")]
    Length(FieldText),
    /// A transfer coding other than `chunked` (RFC 9112, 7): the field's value.
    #[error("Transfer-Encoding `{0}`, where only chunked can be read")]
    TransferCoding(FieldText),
    /// The size of a chunk cannot be read, or its line is longer than [`MAX_CHUNK_LINE`].
    #[error("a chunk whose size cannot be read")]
    ChunkSize,
    /// More than [`MAX_FRAMING`] bytes of chunks' framing, and little in them.
    #[error("chunks so small that most of what comes is their framing")]
    ChunksTooSmall,
    /// A chunk is not over where its size says.
    #[error("a chunk that is not over where its size says")]
    ChunkEnd,
}

/// The beginning of a field's value, as it may be shown: at most [`FieldText::MOST`] bytes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FieldText {
    bytes: [u8; FieldText::MOST],
    length: u8,
    cut: bool,
}

impl FieldText {
    /// The most bytes that are kept.
    pub const MOST: usize = 40;

    /// Keeps the beginning of `value`.
    pub fn new(value: &str) -> FieldText {
        let mut bytes = [0; FieldText::MOST];
        let kept = &value.as_bytes()[..value.len().min(FieldText::MOST)];
        bytes[..kept.len()].copy_from_slice(kept);
        FieldText {
            bytes,
            length: kept.len() as u8,
            cut: kept.len() < value.len(),
        }
    }
}

impl fmt::Display for FieldText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = String::from_utf8_lossy(&self.bytes[..usize::from(self.length)]);
        write!(out, "{kept}{}", if self.cut { "..." } else { "" })
    }
}

impl fmt::Debug for FieldText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), out)
    }
}

/// What it means for an answer that the connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtClose {
    /// Nothing of an answer has come.
    Nothing,
    /// The head has come in part.
    CutInHead,
    /// The body was to be longer, or its last chunk is missing.
    CutInBody,
    /// The body went on until the connection ended (RFC 9112, 6.3, 8): whether something is missing
    /// cannot be known.
    UntilClose,
    /// The answer was over before.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of body are left.
    Length(u64),
    UntilClose,
    ChunkSize,
    /// So many bytes of a chunk are left.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    Trailers,
    /// The end is to be said.
    Ending,
    Over,
}

/// Reads one answer, in pieces cut anywhere.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// A head, a line or trailers, as far as they have come.
    gathered: Vec<u8>,
    /// How many bytes of blank lines and provisional answers came before the head.
    before: usize,
    /// How many bytes of chunks' framing came, less what was made up for.
    framing: usize,
    /// How many bytes came in chunks that have made up for nothing yet.
    in_chunks: usize,
    failed: Option<Malformed>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder of the answer to a GET: a body may follow any head that does not forbid it.
    pub fn new() -> Decoder {
        Decoder {
            state: State::Head,
            gathered: Vec::new(),
            before: 0,
            framing: 0,
            in_chunks: 0,
            failed: None,
        }
    }

    /// The next item in `bytes`, which came in one piece, from `at` on; `at` then stands behind it.
    /// Nothing where more has to come.
    ///
    /// # Errors
    /// [`Malformed`]: nothing more can be read then, and the same is said ever after.
    #[inline]
    pub fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, Malformed> {
        if let Some(malformed) = self.failed {
            return Err(malformed);
        }
        let item = self.read(bytes, at);
        self.failed = item.as_ref().err().copied();
        item
    }

    #[inline]
    fn read<'a>(&mut self, bytes: &'a [u8], at: &mut usize) -> Result<Option<Item<'a>>, Malformed> {
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
                    self.in_chunks += taken as usize;
                    self.state = match left - taken {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                    return Ok(Some(item));
                }
                State::Ending => {
                    self.state = State::Over;
                    return Ok(Some(Item::End));
                }
                State::Over => return Ok(None),
                _ if rest.is_empty() => return Ok(None),
                State::Head => {
                    if let Some(head) = self.head(rest, at)? {
                        return Ok(Some(Item::Head(Box::new(head))));
                    }
                }
                State::ChunkSize => self.chunk_size(rest, at)?,
                State::ChunkEnd => {
                    let whole = self.gather(rest, at, 2).ok_or(Malformed::ChunkEnd)?;
                    match (&self.gathered[..], whole) {
                        (b"\r\n" | b"\n", true) => self.begin(State::ChunkSize),
                        (b"\r", false) => {}
                        _ => return Err(Malformed::ChunkEnd),
                    }
                }
                State::Trailers => self.trailers(rest, at)?,
            }
        }
    }

    fn begin(&mut self, state: State) {
        self.gathered.clear();
        self.state = state;
    }

    /// Gathers up to the end of a line; says whether it is whole. Nothing where more than `most`
    /// bytes would be gathered.
    fn gather(&mut self, rest: &[u8], at: &mut usize, most: usize) -> Option<bool> {
        let end = steps::find(rest, b'\n');
        let taken = end.map_or(rest.len(), |end| end + 1);
        let room = most.saturating_sub(self.gathered.len());
        self.gathered.extend_from_slice(&rest[..taken.min(room)]);
        *at += taken;
        (taken <= room).then_some(end.is_some())
    }

    fn chunk_size(&mut self, rest: &[u8], at: &mut usize) -> Result<(), Malformed> {
        let whole = self
            .gather(rest, at, MAX_CHUNK_LINE)
            .ok_or(Malformed::ChunkSize)?;
        if !whole {
            return Ok(());
        }
        // That line, and what ends the chunk.
        self.framing += self.gathered.len() + 2;
        self.framing = self.framing.saturating_sub(self.in_chunks / 4);
        self.in_chunks %= 4;
        if self.framing > MAX_FRAMING {
            return Err(Malformed::ChunksTooSmall);
        }
        let line = &self.gathered;
        // Extensions mean nothing to us (RFC 9112, 7.1.1).
        let size = line.split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(size.trim_ascii()).ok();
        let size = size.filter(|size| size.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let size = size.and_then(|size| u64::from_str_radix(size, 16).ok());
        match size.ok_or(Malformed::ChunkSize)? {
            0 => self.begin(State::Trailers),
            size => self.begin(State::Chunk(size)),
        }
        Ok(())
    }

    fn trailers(&mut self, rest: &[u8], at: &mut usize) -> Result<(), Malformed> {
        // They are passed over; only where they end matters.
        let before = self.gathered.len();
        let whole = self
            .gather(rest, at, MAX_HEAD)
            .ok_or(Malformed::HeadTooLong)?;
        if whole {
            let line = &self.gathered[line_start(&self.gathered, before)..];
            if matches!(line, b"\r\n" | b"\n") {
                self.begin(State::Ending);
            }
        }
        Ok(())
    }

    fn head(&mut self, rest: &[u8], at: &mut usize) -> Result<Option<Head>, Malformed> {
        const NAME: &[u8] = b"HTTP/1.";
        let before = self.gathered.len();
        let whole = self.gather(rest, at, MAX_HEAD);
        // Something else on this port need not be heard to its end.
        let begin = &self.gathered[..self.gathered.len().min(NAME.len())];
        if !NAME.starts_with(begin) && !matches!(begin, [b'\r' | b'\n', ..]) {
            return Err(Malformed::NotHttp);
        }
        if !whole.ok_or(Malformed::HeadTooLong)? {
            return Ok(None);
        }
        let start = line_start(&self.gathered, before);
        if !matches!(&self.gathered[start..], b"\r\n" | b"\n") {
            return Ok(None);
        }
        if start == 0 {
            // Empty lines before a message are passed over (RFC 9112, 2.2); so are those before an
            // answer.
            self.came_before()?;
            self.gathered.clear();
            return Ok(None);
        }
        steps::took(start);
        let head = Head::parse(&self.gathered[..start])?;
        if (100..200).contains(&head.status) && head.status != 101 {
            self.came_before()?;
            self.gathered.clear();
            return Ok(None);
        }
        self.gathered = Vec::new();
        self.state = framing(&head)?;
        Ok(Some(head))
    }

    /// What was gathered comes before the head, and is passed over.
    fn came_before(&mut self) -> Result<(), Malformed> {
        self.before += self.gathered.len();
        match self.before > MAX_HEAD {
            true => Err(Malformed::HeadTooLong),
            false => Ok(()),
        }
    }

    /// What it means that the connection has ended now.
    pub fn at_close(&self) -> AtClose {
        match self.state {
            State::Head if self.gathered.is_empty() => AtClose::Nothing,
            State::Head => AtClose::CutInHead,
            State::UntilClose => AtClose::UntilClose,
            State::Ending | State::Over => AtClose::Over,
            State::Length(_)
            | State::ChunkSize
            | State::Chunk(_)
            | State::ChunkEnd
            | State::Trailers => AtClose::CutInBody,
        }
    }
}

/// Where the last line of `gathered` begins: what was gathered before holds at most its beginning.
fn line_start(gathered: &[u8], before: usize) -> usize {
    let before = &gathered[..before];
    let start = before.iter().rposition(|&byte| byte == b'\n');
    let start = start.map_or(0, |end| end + 1);
    steps::took(before.len() - start);
    start
}

/// At most `most` bytes of body from the front of `rest`.
#[inline]
fn body<'a>(rest: &'a [u8], most: u64, at: &mut usize) -> Option<(Item<'a>, u64)> {
    let taken = usize::try_from(most).unwrap_or(usize::MAX).min(rest.len());
    if taken == 0 {
        return None;
    }
    let start = *at;
    *at += taken;
    steps::took(1);
    let bytes = &rest[..taken];
    Some((Item::Body { bytes, start }, taken as u64))
}

/// How the body of an answer to a GET ends (RFC 9112, 6.3).
fn framing(head: &Head) -> Result<State, Malformed> {
    if matches!(head.status, 101 | 204 | 304) {
        return Ok(State::Ending);
    }
    // `identity` is no coding: RFC 2616 (3.6) had it, and some servers still send it.
    let codings = head.headers.list("Transfer-Encoding");
    let mut codings = codings.filter(|coding| !coding.eq_ignore_ascii_case("identity"));
    if let Some(coding) = codings.next() {
        let chunked = coding.eq_ignore_ascii_case("chunked") && codings.next().is_none();
        return match chunked {
            true => Ok(State::ChunkSize),
            false => {
                let all: Vec<_> = head.headers.list("Transfer-Encoding").collect();
                Err(Malformed::TransferCoding(FieldText::new(&all.join(", "))))
            }
        };
    }
    Ok(match content_length(&head.headers)? {
        None => State::UntilClose,
        Some(0) => State::Ending,
        Some(length) => State::Length(length),
    })
}

/// The length that `Content-Length` states. `None` if the field is missing, or negative, which
/// servers send if they do not know the length.
fn content_length(headers: &Headers) -> Result<Option<u64>, Malformed> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut length = None;
    for (place, text) in headers.list("Content-Length").enumerate() {
        let wrong = Malformed::Length(FieldText::new(text));
        // Servers of live streams that print an unknown length write -1. Browsers and players read
        // until the connection ends then.
        let own = match text.strip_prefix('-') {
            Some(digits) if is_number(digits) => None,
            _ if is_number(text) => Some(text.parse::<u64>().map_err(|_| wrong)?),
            _ => return Err(wrong),
        };
        if place > 0 && own != length {
            return Err(wrong);
        }
        length = own;
    }
    Ok(length)
}

#[cfg(test)]
mod tests;
