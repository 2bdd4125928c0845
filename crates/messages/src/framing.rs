//! Framing: boundaries of messages in a stream of bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use kit::mediagen::steps;
use kit::websocket as ws;
pub use kit::websocket::{Message, Received};

/// Maximum length of a delimiter in bytes.
pub const DELIMITER_BYTES_MAX: usize = 16;

/// Byte order of a number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
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
    /// Number of bytes that the length counts for the prefix itself.
    fn own_bytes(self) -> u64 {
        match self.includes_itself {
            true => self.bytes.into(),
            false => 0,
        }
    }

    /// Returns the prefix of a message of this length, or `None` if it does not fit.
    fn prefix_value(self, length: u64) -> Option<u64> {
        let number = length.checked_add(self.own_bytes())?;
        let bits = 8 * u32::from(self.bytes);
        (bits >= 64 || number >> bits == 0).then_some(number)
    }

    fn write(self, length: u64, out: &mut Vec<u8>) {
        let number = self.prefix_value(length).unwrap_or(u64::MAX);
        let bytes = usize::from(self.bytes);
        match self.order {
            Order::Big => out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]),
            Order::Little => out.extend_from_slice(&number.to_le_bytes()[..bytes]),
        }
    }

    fn read(self, header: &[u8]) -> Result<u64, Malformed> {
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = match self.order {
            Order::Big => header.iter().fold(0, append),
            Order::Little => header.iter().rev().fold(0, append),
        };
        let length = number.checked_sub(self.own_bytes());
        length.ok_or(Malformed::Length(number))
    }
}

/// Framing of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No framing: a message consists of its bytes only.
    None,
    /// A length prefix before each message.
    Length(LengthPrefix),
    /// These bytes after each message: at least one, at most [`DELIMITER_BYTES_MAX`].
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

impl From<ws::FrameError> for Malformed {
    fn from(malformed: ws::FrameError) -> Malformed {
        match malformed {
            ws::FrameError::TooLong(length) => Malformed::TooLong(length),
            ws::FrameError::Violation(rule) => Malformed::WebSocket(rule),
        }
    }
}

impl Framing {
    /// Returns the maximum length of a message with this framing.
    pub fn length_max(&self) -> u64 {
        match self {
            Framing::Length(prefix) if prefix.bytes < 8 => {
                (1u64 << (8 * prefix.bytes)) - 1 - prefix.own_bytes()
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
            Framing::WebSocket { masked, .. } => ws::header_len(length, *masked),
        }
    }

    /// Appends the bytes before a message of this length. `mask` is the masking key of a WebSocket
    /// client.
    #[inline]
    pub fn write_header(&self, length: usize, mask: u32, out: &mut Vec<u8>) {
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
    pub fn write_trailer(&self, length: usize, mask: u32, out: &mut Vec<u8>) {
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
        self.write_header(body.len(), mask, out);
        out.extend_from_slice(body);
        self.write_trailer(body.len(), mask, out);
    }
}

/// Limits for reading messages.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Length of the next message without framing; 0 for all bytes available.
    pub unframed_length: usize,
    /// Maximum length of a message that is kept if it arrives in pieces. Of longer ones, only the
    /// length is returned.
    pub kept_bytes_max: usize,
    /// Maximum length of a message; longer ones are an error.
    pub length_max: u64,
}

/// Reads messages from a stream of bytes, split at arbitrary positions. It buffers at most
/// [`ReadLimits::kept_bytes_max`] bytes, and only of an incomplete message.
#[derive(Clone, Debug, Default)]
pub struct MessageReader {
    /// Received bytes of an incomplete length prefix.
    prefix: [u8; 8],
    prefix_length: u8,
    /// Progress of an incomplete message.
    incomplete: Option<IncompleteMessage>,
    buffer: Vec<u8>,
    ws: Option<Box<ws::Reassembler>>,
}

#[derive(Clone, Copy, Debug)]
struct IncompleteMessage {
    /// Length of the message if it is known, otherwise the number of bytes received.
    length: u64,
    /// Number of missing bytes, if it is known.
    left: u64,
}

impl MessageReader {
    /// Returns the next complete item of `input` and removes it from there. Returns `None` if more
    /// bytes are needed; `input` is then empty.
    ///
    /// # Errors
    /// [`Malformed`]. The stream cannot be read any further.
    pub fn next_item<'s, 'i: 's>(
        &'s mut self,
        framing: &Framing,
        limits: &ReadLimits,
        input: &mut &'i [u8],
    ) -> Result<Option<Received<'s>>, Malformed> {
        steps::count_bytes(1);
        let frame = match framing {
            Framing::None => match limits.unframed_length {
                0 if input.is_empty() => None,
                0 => Some(whole_message(std::mem::take(input))),
                _ if input.is_empty() => None,
                fixed => self.read_counted(fixed as u64, limits, input),
            },
            Framing::Length(prefix) => {
                if self.incomplete.is_none() {
                    let Some(length) = self.read_prefix(*prefix, input)? else {
                        return Ok(None);
                    };
                    if length > limits.length_max {
                        return Err(Malformed::TooLong(length));
                    }
                    self.read_counted(length, limits, input)
                } else {
                    self.read_counted(0, limits, input)
                }
            }
            Framing::Delimiter(delimiter) => self.read_delimited(delimiter, limits, input)?,
            Framing::WebSocket { masked, .. } => {
                let ws = self.ws.get_or_insert_with(Box::default);
                // Received frames are masked if sent ones are not.
                let limits = ws::Limits {
                    keep_max: limits.kept_bytes_max,
                    length_max: limits.length_max,
                };
                return Ok(ws.next(!masked, &limits, input)?);
            }
        };
        Ok(frame.map(Received::Message))
    }

    /// Reads the length prefix of a message.
    #[inline]
    fn read_prefix(
        &mut self,
        prefix: LengthPrefix,
        input: &mut &[u8],
    ) -> Result<Option<u64>, Malformed> {
        let bytes = usize::from(prefix.bytes);
        if self.prefix_length == 0
            && let Some((head, rest)) = input.split_at_checked(bytes)
        {
            *input = rest;
            return prefix.read(head).map(Some);
        }
        while usize::from(self.prefix_length) < bytes {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            steps::count_bytes(1);
            self.prefix[usize::from(self.prefix_length)] = byte;
            self.prefix_length += 1;
            *input = rest;
        }
        self.prefix_length = 0;
        prefix.read(&self.prefix[..bytes]).map(Some)
    }

    /// Reads a message of known length. `length` is used only at its beginning.
    #[inline]
    fn read_counted<'s, 'i: 's>(
        &'s mut self,
        length: u64,
        limits: &ReadLimits,
        input: &mut &'i [u8],
    ) -> Option<Message<'s>> {
        let incomplete = match self.incomplete {
            Some(incomplete) => incomplete,
            None => {
                let whole = usize::try_from(length)
                    .ok()
                    .and_then(|length| input.split_at_checked(length));
                if let Some((body, rest)) = whole {
                    *input = rest;
                    return Some(whole_message(body));
                }
                self.buffer.clear();
                IncompleteMessage {
                    length,
                    left: length,
                }
            }
        };
        let here = usize::try_from(incomplete.left)
            .unwrap_or(usize::MAX)
            .min(input.len());
        let (received, rest) = input.split_at(here);
        steps::count_bytes(here);
        *input = rest;
        let keeps = incomplete.length <= limits.kept_bytes_max as u64;
        if keeps {
            self.buffer.extend_from_slice(received);
        }
        let left = incomplete.left - here as u64;
        if left > 0 {
            self.incomplete = Some(IncompleteMessage { left, ..incomplete });
            return None;
        }
        self.incomplete = None;
        let body =
            (keeps && self.buffer.len() as u64 == incomplete.length).then_some(&*self.buffer);
        Some(Message {
            length: incomplete.length,
            body,
        })
    }

    /// Reads a message that ends with a delimiter.
    fn read_delimited<'s, 'i: 's>(
        &'s mut self,
        delimiter: &[u8],
        limits: &ReadLimits,
        input: &mut &'i [u8],
    ) -> Result<Option<Message<'s>>, Malformed> {
        if self.incomplete.is_none() {
            if let Some(at) = find(input, delimiter) {
                let (body, rest) = input.split_at(at);
                *input = &rest[delimiter.len()..];
                let message = whole_message(body);
                return match message.length > limits.length_max {
                    true => Err(Malformed::TooLong(message.length)),
                    false => Ok(Some(message)),
                };
            }
            if input.is_empty() {
                return Ok(None);
            }
            self.buffer.clear();
        }
        // The message arrives in pieces, and the delimiter may, too. The last received bytes are
        // therefore always kept.
        let before = self.incomplete.map_or(0, |incomplete| incomplete.length);
        let tail = self.buffer.len().min(delimiter.len() - 1);
        let mut seam = [0; 2 * DELIMITER_BYTES_MAX];
        let first = input.len().min(delimiter.len());
        seam[..tail].copy_from_slice(&self.buffer[self.buffer.len() - tail..]);
        seam[tail..tail + first].copy_from_slice(&input[..first]);
        let found = match find(&seam[..tail + first], delimiter) {
            Some(at) => Some(at + delimiter.len() - tail),
            None => find(input, delimiter).map(|at| at + delimiter.len()),
        };
        let here = found.unwrap_or(input.len());
        let (received, rest) = input.split_at(here);
        *input = rest;
        let all = before + here as u64;
        self.buffer_bytes(
            received,
            limits.kept_bytes_max + delimiter.len(),
            delimiter.len() - 1,
            all,
        );
        let length = match found {
            Some(_) => all - delimiter.len() as u64,
            None => all.saturating_sub(delimiter.len() as u64 - 1),
        };
        if length > limits.length_max {
            return Err(Malformed::TooLong(length));
        }
        if found.is_none() {
            self.incomplete = Some(IncompleteMessage {
                length: all,
                left: 0,
            });
            return Ok(None);
        }
        self.incomplete = None;
        let whole = self.buffer.len() as u64 == all && length <= limits.kept_bytes_max as u64;
        let body = whole.then(|| &self.buffer[..self.buffer.len() - delimiter.len()]);
        Ok(Some(Message { length, body }))
    }

    /// Buffers received bytes; if there are more than `kept_max` in total, only the last `tail`
    /// bytes.
    fn buffer_bytes(&mut self, received: &[u8], kept_max: usize, tail: usize, all: u64) {
        if self.buffer.len() + received.len() <= kept_max
            && self.buffer.len() as u64 + received.len() as u64 == all
        {
            self.buffer.extend_from_slice(received);
            return;
        }
        steps::count_bytes(self.buffer.len());
        let from_received = received.len().min(tail);
        let from_buffer = (tail - from_received).min(self.buffer.len());
        let drop = self.buffer.len() - from_buffer;
        self.buffer.drain(..drop);
        self.buffer
            .extend_from_slice(&received[received.len() - from_received..]);
        self.buffer.shrink_to(2 * DELIMITER_BYTES_MAX);
    }

    /// Releases memory that is not needed between two messages.
    pub fn release_memory(&mut self) {
        if self.incomplete.is_none() && self.buffer.capacity() > 0 {
            self.buffer = Vec::new();
        }
    }
}

fn whole_message(body: &[u8]) -> Message<'_> {
    Message {
        length: body.len() as u64,
        body: Some(body),
    }
}

/// Returns the first offset of `wanted`, which is not empty, in `bytes`.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (&first, rest) = wanted.split_first()?;
    let mut from = 0;
    loop {
        let at = from + steps::find(&bytes[from..], first)?;
        steps::count_bytes(rest.len());
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests;
