//! Where in a stream of bytes a message ends, and the next begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::websocket as ws;
pub use crate::websocket::{Frame, Item};
use mediagen::steps;

/// The longest delimiter.
pub const MAX_DELIMITER: usize = 16;

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The highest first, as networks have it.
    #[default]
    Big,
    /// The lowest first.
    Little,
}

/// A number before each message that says how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthPrefix {
    /// How many bytes the number has: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Their order: `big` (default) or `little`.
    #[serde(default)]
    pub order: Order,
    /// Whether the number counts its own bytes too. Default false.
    #[serde(default)]
    pub includes_itself: bool,
}

impl LengthPrefix {
    /// The number before a message of that length; none where it does not fit.
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

/// How messages are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// They are not: a message is its bytes.
    None,
    /// A number before each.
    Length(LengthPrefix),
    /// These bytes after each: at least one, at most [`MAX_DELIMITER`].
    Delimiter(Box<[u8]>),
    /// Frames of a WebSocket (RFC 6455, 5), text or binary.
    WebSocket {
        /// Whether they are masked, as those of clients are (RFC 6455, 5.3).
        masked: bool,
        /// Whether they are text.
        text: bool,
    },
}

/// What is wrong with bytes that ought to be messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A length that counts its own bytes and is less than those.
    #[error("a length of {0} that is to count its own bytes")]
    Length(u64),
    /// A message longer than is taken.
    #[error("a message of {0} bytes or more, which is longer than is taken")]
    TooLong(u64),
    /// What no frame of a WebSocket is.
    #[error("a frame that RFC 6455 does not know: {0}")]
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
    /// The longest message that can be framed so.
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

    /// How many bytes framing adds to a message of that length.
    pub fn overhead(&self, length: usize) -> usize {
        match self {
            Framing::None => 0,
            Framing::Length(prefix) => usize::from(prefix.bytes),
            Framing::Delimiter(delimiter) => delimiter.len(),
            Framing::WebSocket { masked, .. } => ws::overhead(length, *masked),
        }
    }

    /// Writes what comes before a message of that length. `mask` is what a WebSocket's client masks
    /// it with.
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

    /// Writes what comes after a message, the last `length` bytes of `out`.
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

    /// Writes a whole message.
    pub fn write(&self, body: &[u8], mask: u32, out: &mut Vec<u8>) {
        self.begin(body.len(), mask, out);
        out.extend_from_slice(body);
        self.end(body.len(), mask, out);
    }
}

/// How messages are to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Without framing: how long the next message is; 0 for whatever has come.
    pub fixed: usize,
    /// Up to what length a message that comes in pieces is kept; of longer ones just the length is
    /// told.
    pub keep: usize,
    /// Above what length a message is refused.
    pub longest: u64,
}

/// Reads messages out of a stream of bytes, cut anywhere. It keeps at most what [`ReadLimits::keep`]
/// says, and only of a message that has not come as a whole.
#[derive(Clone, Debug, Default)]
pub struct MessageReader {
    /// What has come of the length before a message.
    head: [u8; 8],
    head_length: u8,
    /// How far a message is that has not come as a whole.
    part: Option<Part>,
    kept: Vec<u8>,
    ws: Option<Box<ws::Assembly>>,
}

/// A message of which not all has come.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// How long it is, as far as that is known: else how much has come.
    length: u64,
    /// How much is to come, where that is known.
    left: u64,
}

impl MessageReader {
    /// Whether a message has begun and is not over.
    pub fn is_within(&self) -> bool {
        self.part.is_some()
            || self.head_length > 0
            || self.ws.as_ref().is_some_and(|ws| ws.is_within())
    }

    /// The next thing that is over, out of `input`, from which it is taken; none where more has to
    /// come, all of it being taken.
    ///
    /// # Errors
    /// [`Malformed`]: the stream is of no further use.
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
                // What comes is masked where what we send is not.
                let limits = ws::Limits {
                    keep: wanted.keep,
                    longest: wanted.longest,
                };
                return Ok(ws.next(!masked, &limits, input)?);
            }
        };
        Ok(frame.map(Item::Frame))
    }

    /// The number before a message.
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

    /// A message whose length is known: `length` where it begins, else as when it began.
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

    /// A message that ends with a delimiter.
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
        // It comes in pieces, and the delimiter may too: the last bytes of what came are always
        // kept.
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

    /// Keeps what came, or where all of it is more than `most`, its last `tail` bytes.
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

    /// Gives memory back that nothing needs between two messages.
    pub fn rest(&mut self) {
        if self.part.is_none() && self.kept.capacity() > 0 {
            self.kept = Vec::new();
        }
    }
}

/// Where `wanted`, which is not empty, is found first.
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
