//! Framing: boundaries of messages in a stream of bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::websocket as ws;
pub use crate::websocket::{Frame, Item};
use mediagen::steps;

/// Maximum length of a delimiter in bytes.
pub const MAX_DELIMITER: usize = 16;

/// Byte order of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Most significant byte first (network byte order).
    #[default]
    Big,
    /// Least significant byte first.
    Little,
}

/// Length prefix before each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthPrefix {
    /// Size of the prefix in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Byte order: `big` (default) or `little`.
    #[serde(default)]
    pub order: Order,
    /// True if the length includes the prefix itself. Default false.
    #[serde(default)]
    pub includes_itself: bool,
}

impl LengthPrefix {
    /// Returns the prefix of a message of this length, or `None` if it does not fit.
    fn number(self, length: u64) -> Option<u64> {
        let own = if self.includes_itself {
            u64::from(self.bytes)
        } else {
            0
        };
        let number = length.checked_add(own)?;
        let bits = 8 * u32::from(self.bytes);
        (bits >= 64 || number >> bits == 0).then_some(number)
    }

    fn write(self, length: u64, out: &mut Vec<u8>) {
        let number = self.number(length).unwrap_or(u64::MAX);
        let bytes = usize::from(self.bytes);
        match self.order {
            Order::Big => out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]),
            Order::Little => out.extend_from_slice(&number.to_le_bytes()[..bytes]),
        }
    }

    fn read(self, header: &[u8]) -> Result<u64, Malformed> {
        let number = match self.order {
            Order::Big => header
                .iter()
                .fold(0, |number, &byte| number << 8 | u64::from(byte)),
            Order::Little => header
                .iter()
                .rev()
                .fold(0, |number, &byte| number << 8 | u64::from(byte)),
        };
        match self.includes_itself {
            false => Ok(number),
            true => number
                .checked_sub(u64::from(self.bytes))
                .ok_or(Malformed::Length(number)),
        }
    }
}

/// Framing of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No framing: a message consists of its bytes only.
    None,
    /// A length prefix before each message.
    Length(LengthPrefix),
    /// These bytes after each message: at least one, at most [`MAX_DELIMITER`].
    Delimiter(Box<[u8]>),
    /// WebSocket frames (RFC 6455, 5), text or binary.
    WebSocket {
        /// True if frames are masked, as those of clients are (RFC 6455, 5.3).
        masked: bool,
        /// True for text frames.
        text: bool,
    },
}

/// Violation of the framing in received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A length that includes the prefix but is less than the prefix.
    #[error("length {0} is too small to include the prefix")]
    Length(u64),
    /// A message exceeds the length limit.
    #[error("message of at least {0} bytes, which exceeds the limit")]
    TooLong(u64),
    /// An invalid WebSocket frame.
    #[error("invalid WebSocket frame (RFC 6455): {0}")]
    WebSocket(&'static str),
}

impl From<ws::Malformed> for Malformed {
    fn from(malformed: ws::Malformed) -> Malformed {
        match malformed {
            ws::Malformed::TooLong(length) => Malformed::TooLong(length),
            ws::Malformed::Rule(rule) => Malformed::WebSocket(rule),
        }
    }
}

impl Framing {
    /// Returns the maximum length of a message with this framing.
    pub fn longest(&self) -> u64 {
        match self {
            Framing::Length(prefix) if prefix.bytes < 8 => {
                let most = (1u64 << (8 * prefix.bytes)) - 1;
                most - if prefix.includes_itself {
                    u64::from(prefix.bytes)
                } else {
                    0
                }
            }
            _ => u64::MAX,
        }
    }

    /// Returns the number of bytes that framing adds to a message of this length.
    pub fn overhead(&self, length: usize) -> usize {
        match self {
            Framing::None => 0,
            Framing::Length(prefix) => usize::from(prefix.bytes),
            Framing::Delimiter(delimiter) => delimiter.len(),
            Framing::WebSocket { masked, .. } => ws::overhead(length, *masked),
        }
    }

    /// Appends the bytes before a message of this length. `mask` is the masking key of a WebSocket
    /// client.
    #[inline]
    pub fn begin(&self, length: usize, mask: u32, out: &mut Vec<u8>) {
        match self {
            Framing::None | Framing::Delimiter(_) => {}
            Framing::Length(prefix) => prefix.write(length as u64, out),
            Framing::WebSocket { masked, text } => {
                let opcode = if *text { ws::TEXT } else { ws::BINARY };
                ws::write_header(opcode, length, masked.then_some(mask), out);
            }
        }
    }

    /// Appends the bytes after a message, which is the last `length` bytes of `out`; or masks the
    /// message, if frames are masked.
    #[inline]
    pub fn end(&self, length: usize, mask: u32, out: &mut Vec<u8>) {
        match self {
            Framing::Delimiter(delimiter) => out.extend_from_slice(delimiter),
            Framing::WebSocket { masked: true, .. } => {
                let from = out.len() - length;
                ws::mask(mask, 0, &mut out[from..]);
            }
            Framing::None | Framing::Length(_) | Framing::WebSocket { masked: false, .. } => {}
        }
    }

    /// Appends a whole message with its framing.
    pub fn write(&self, body: &[u8], mask: u32, out: &mut Vec<u8>) {
        self.begin(body.len(), mask, out);
        out.extend_from_slice(body);
        self.end(body.len(), mask, out);
    }
}

/// Limits for reading messages.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Length of the next message without framing; 0 for all bytes available.
    pub fixed: usize,
    /// Maximum length of a message that is kept if it arrives in pieces. Of longer ones, only the
    /// length is returned.
    pub keep: usize,
    /// Maximum length of a message; longer ones are an error.
    pub longest: u64,
}

/// Reads messages from a stream of bytes, split at arbitrary positions. It buffers at most
/// [`ReadLimits::keep`] bytes, and only of an incomplete message.
#[derive(Clone, Debug, Default)]
pub struct MessageReader {
    /// Received bytes of an incomplete length prefix.
    head: [u8; 8],
    head_length: u8,
    /// Progress of an incomplete message.
    part: Option<Part>,
    kept: Vec<u8>,
    ws: Option<Box<ws::Assembly>>,
}

/// An incomplete message.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Length of the message if it is known, otherwise the number of bytes received.
    length: u64,
    /// Number of missing bytes, if it is known.
    left: u64,
}

impl MessageReader {
    /// Returns true if a message is incomplete.
    pub fn is_within(&self) -> bool {
        self.part.is_some()
            || self.head_length > 0
            || self.ws.as_ref().is_some_and(|ws| ws.is_within())
    }

    /// Returns the next complete item of `input` and removes it from there. Returns `None` if more
    /// bytes are needed; `input` is then empty.
    ///
    /// # Errors
    /// [`Malformed`]. The stream cannot be read any further.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        framing: &Framing,
        wanted: &ReadLimits,
        input: &mut &'i [u8],
    ) -> Result<Option<Item<'s>>, Malformed> {
        steps::took(1);
        let frame = match framing {
            Framing::None => match wanted.fixed {
                0 if input.is_empty() => None,
                0 => {
                    let body = std::mem::take(input);
                    Some(Frame {
                        length: body.len() as u64,
                        body: Some(body),
                    })
                }
                _ if input.is_empty() => None,
                fixed => self.counted(fixed as u64, wanted, input),
            },
            Framing::Length(prefix) => {
                if self.part.is_none() {
                    let Some(length) = self.head(*prefix, input)? else {
                        return Ok(None);
                    };
                    if length > wanted.longest {
                        return Err(Malformed::TooLong(length));
                    }
                    self.counted(length, wanted, input)
                } else {
                    self.counted(0, wanted, input)
                }
            }
            Framing::Delimiter(delimiter) => self.delimited(delimiter, wanted, input)?,
            Framing::WebSocket { masked, .. } => {
                let ws = self.ws.get_or_insert_with(Box::default);
                // Received frames are masked if sent ones are not.
                let limits = ws::Limits {
                    keep: wanted.keep,
                    longest: wanted.longest,
                };
                return Ok(ws.next(!masked, &limits, input)?);
            }
        };
        Ok(frame.map(Item::Frame))
    }

    /// Reads the length prefix of a message.
    #[inline]
    fn head(&mut self, prefix: LengthPrefix, input: &mut &[u8]) -> Result<Option<u64>, Malformed> {
        let bytes = usize::from(prefix.bytes);
        if self.head_length == 0
            && let Some((head, rest)) = input.split_at_checked(bytes)
        {
            *input = rest;
            return prefix.read(head).map(Some);
        }
        while usize::from(self.head_length) < bytes {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            steps::took(1);
            self.head[usize::from(self.head_length)] = byte;
            self.head_length += 1;
            *input = rest;
        }
        self.head_length = 0;
        prefix.read(&self.head[..bytes]).map(Some)
    }

    /// Reads a message of known length. `length` is used only at its beginning.
    #[inline]
    fn counted<'s, 'i: 's>(
        &'s mut self,
        length: u64,
        wanted: &ReadLimits,
        input: &mut &'i [u8],
    ) -> Option<Frame<'s>> {
        let part = match self.part {
            Some(part) => part,
            None => {
                let whole = usize::try_from(length)
                    .ok()
                    .and_then(|length| input.split_at_checked(length));
                if let Some((body, rest)) = whole {
                    *input = rest;
                    return Some(Frame {
                        length,
                        body: Some(body),
                    });
                }
                self.kept.clear();
                Part {
                    length,
                    left: length,
                }
            }
        };
        let here = usize::try_from(part.left)
            .unwrap_or(usize::MAX)
            .min(input.len());
        let (come, rest) = input.split_at(here);
        steps::took(here);
        *input = rest;
        let keeps = part.length <= wanted.keep as u64;
        if keeps {
            self.kept.extend_from_slice(come);
        }
        let left = part.left - here as u64;
        if left > 0 {
            self.part = Some(Part { left, ..part });
            return None;
        }
        self.part = None;
        let body = (keeps && self.kept.len() as u64 == part.length).then_some(&*self.kept);
        Some(Frame {
            length: part.length,
            body,
        })
    }

    /// Reads a message that ends with a delimiter.
    fn delimited<'s, 'i: 's>(
        &'s mut self,
        delimiter: &[u8],
        wanted: &ReadLimits,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'s>>, Malformed> {
        if self.part.is_none() {
            if let Some(at) = find(input, delimiter) {
                let (body, rest) = input.split_at(at);
                *input = &rest[delimiter.len()..];
                let length = body.len() as u64;
                return match length > wanted.longest {
                    true => Err(Malformed::TooLong(length)),
                    false => Ok(Some(Frame {
                        length,
                        body: Some(body),
                    })),
                };
            }
            if input.is_empty() {
                return Ok(None);
            }
            self.kept.clear();
        }
        // The message arrives in pieces, and the delimiter may, too. The last received bytes are
        // therefore always kept.
        let before = self.part.map_or(0, |part| part.length);
        let tail = self.kept.len().min(delimiter.len() - 1);
        let mut seam = [0; 2 * MAX_DELIMITER];
        let first = input.len().min(delimiter.len());
        seam[..tail].copy_from_slice(&self.kept[self.kept.len() - tail..]);
        seam[tail..tail + first].copy_from_slice(&input[..first]);
        let found = match find(&seam[..tail + first], delimiter) {
            Some(at) => Some(at + delimiter.len() - tail),
            None => find(input, delimiter).map(|at| at + delimiter.len()),
        };
        let here = found.unwrap_or(input.len());
        let (come, rest) = input.split_at(here);
        *input = rest;
        let all = before + here as u64;
        self.keep(
            come,
            wanted.keep + delimiter.len(),
            delimiter.len() - 1,
            all,
        );
        let length = match found {
            Some(_) => all - delimiter.len() as u64,
            None => all.saturating_sub(delimiter.len() as u64 - 1),
        };
        if length > wanted.longest {
            return Err(Malformed::TooLong(length));
        }
        if found.is_none() {
            self.part = Some(Part {
                length: all,
                left: 0,
            });
            return Ok(None);
        }
        self.part = None;
        let whole = self.kept.len() as u64 == all && length <= wanted.keep as u64;
        let body = whole.then(|| &self.kept[..self.kept.len() - delimiter.len()]);
        Ok(Some(Frame { length, body }))
    }

    /// Buffers received bytes; if there are more than `most` in total, only the last `tail` bytes.
    fn keep(&mut self, come: &[u8], most: usize, tail: usize, all: u64) {
        if self.kept.len() + come.len() <= most && self.kept.len() as u64 + come.len() as u64 == all
        {
            self.kept.extend_from_slice(come);
            return;
        }
        steps::took(self.kept.len());
        let from_come = come.len().min(tail);
        let from_kept = (tail - from_come).min(self.kept.len());
        let drop = self.kept.len() - from_kept;
        self.kept.drain(..drop);
        self.kept.extend_from_slice(&come[come.len() - from_come..]);
        self.kept.shrink_to(2 * MAX_DELIMITER);
    }

    /// Releases memory that is not needed between two messages.
    pub fn rest(&mut self) {
        if self.part.is_none() && self.kept.capacity() > 0 {
            self.kept = Vec::new();
        }
    }
}

/// Returns the first offset of `wanted`, which is not empty, in `bytes`.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (&first, rest) = wanted.split_first()?;
    let mut from = 0;
    loop {
        let at = from + steps::find(&bytes[from..], first)?;
        steps::took(rest.len());
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests;
