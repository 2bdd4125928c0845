//! WebSocket frames (RFC 6455, 5).

use crate::mediagen::steps;

/// Opcode of a text frame (RFC 6455, 5.2).
pub const TEXT: u8 = 1;
/// Opcode of a binary frame.
pub const BINARY: u8 = 2;
/// Opcode of a close frame.
pub const CLOSE: u8 = 8;
/// Opcode of a ping.
pub const PING: u8 = 9;
/// Opcode of a pong.
pub const PONG: u8 = 10;

/// Close code of a normal closure (RFC 6455, 7.4.1).
pub const NORMAL: u16 = 1000;

const CONTINUATION: u8 = 0;
const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// Maximum payload of a control frame in bytes (RFC 6455, 5.5).
const CONTROL_MAX: u64 = 125;

/// Maximum length of a header in bytes.
const HEADER_MAX: usize = 14;

/// Length in bytes of the header of a frame with `length` bytes of payload.
pub const fn header_len(length: usize, masked: bool) -> usize {
    let mask = if masked { 4 } else { 0 };
    match length {
        0..=125 => 2 + mask,
        126..=0xffff => 4 + mask,
        _ => 10 + mask,
    }
}

/// Writes the header of an unfragmented message.
#[inline]
pub fn write_header(opcode: u8, length: usize, mask: Option<u32>, out: &mut Vec<u8>) {
    let masked = if mask.is_some() { MASKED } else { 0 };
    out.push(FIN | opcode);
    match length {
        0..=125 => out.push(masked | length as u8),
        126..=0xffff => {
            out.push(masked | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    if let Some(mask) = mask {
        out.extend_from_slice(&mask.to_be_bytes());
    }
}

/// Writes a control frame. A payload that is too long is truncated.
pub fn write_control(opcode: u8, payload: &[u8], mask: Option<u32>, out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(CONTROL_MAX as usize)];
    write_message(opcode, payload, mask, out);
}

/// Writes an unfragmented message. Clients must mask theirs with an unpredictable key (RFC 6455,
/// 5.3); servers must not.
pub fn write_message(opcode: u8, payload: &[u8], mask: Option<u32>, out: &mut Vec<u8>) {
    write_header(opcode, payload.len(), mask, out);
    let from = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        self::mask(key, 0, &mut out[from..]);
    }
}

/// Masks or unmasks bytes that begin at `offset` of a payload (RFC 6455, 5.3).
#[inline]
pub fn mask(key: u32, offset: usize, bytes: &mut [u8]) {
    let key = key.to_be_bytes();
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte ^= key[(offset + at) & 3];
    }
}

/// Reason why bytes are not valid frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message exceeds [`Limits::length_max`]. Holds its length so far.
    #[error("message of at least {0} bytes, which exceeds the limit")]
    TooLong(u64),
    /// A violation of the protocol.
    #[error("invalid WebSocket frame (RFC 6455): {0}")]
    Violation(&'static str),
}

/// A complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Length of the payload in bytes.
    pub length: u64,
    /// Payload; `None` if it was too long to be kept ([`Limits::keep_max`]).
    pub body: Option<&'a [u8]>,
}

/// A received item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    Message(Message<'a>),
    /// A ping, to be answered with the same payload (RFC 6455, 5.5.2).
    Ping(&'a [u8]),
    /// The peer closes the WebSocket, with its close code (RFC 6455, 5.5.1).
    Close(Option<u16>),
}

/// Limits for received messages.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length in bytes of a fragmented or partly received message whose payload is kept. Of
    /// a longer one only the length is reported.
    pub keep_max: usize,
    /// Maximum length of a message in bytes. A longer one is an error.
    pub length_max: u64,
}

/// A parsed frame header.
#[derive(Clone, Copy, Debug)]
struct Header {
    fin: bool,
    opcode: u8,
    mask: Option<u32>,
    length: u64,
}

/// A partly received frame.
#[derive(Clone, Copy, Debug)]
struct PartialFrame {
    header: Header,
    /// Number of payload bytes received.
    received: u64,
}

/// Reassembles messages from frames. The memory is bounded by [`Limits::keep_max`].
#[derive(Clone, Debug, Default)]
pub struct Reassembler {
    head: Vec<u8>,
    open: Option<PartialFrame>,
    /// Length so far of an incomplete message.
    message: Option<u64>,
    kept: Vec<u8>,
    control: Vec<u8>,
}

impl Reassembler {
    /// Returns the next complete item. `masked` is `true` if received frames must be masked;
    /// otherwise they must not be.
    ///
    /// # Errors
    /// If the bytes are not a valid frame.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        masked: bool,
        limits: &Limits,
        input: &mut &'i [u8],
    ) -> Result<Option<Received<'s>>, FrameError> {
        loop {
            let mut open = match self.open {
                Some(open) => open,
                None => {
                    let Some(header) = self.header(masked, input)? else {
                        return Ok(None);
                    };
                    self.begin(&header, limits)?;
                    let whole = header.fin
                        && header.opcode != CONTINUATION
                        && header.opcode < CLOSE
                        && header.mask.is_none();
                    let length = usize::try_from(header.length).ok();
                    if whole
                        && let Some((body, rest)) =
                            length.and_then(|length| input.split_at_checked(length))
                    {
                        *input = rest;
                        self.message = None;
                        return Ok(Some(Received::Message(Message {
                            length: header.length,
                            body: Some(body),
                        })));
                    }
                    PartialFrame {
                        header,
                        received: 0,
                    }
                }
            };
            let left = open.header.length - open.received;
            let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            let (come, rest) = input.split_at(here);
            steps::count_bytes(here);
            *input = rest;
            let is_control = open.header.opcode >= CLOSE;
            let keeps = is_control
                || self
                    .message
                    .is_some_and(|length| length <= limits.keep_max as u64);
            let into = if is_control {
                &mut self.control
            } else {
                &mut self.kept
            };
            if keeps {
                let from = into.len();
                into.extend_from_slice(come);
                if let Some(key) = open.header.mask {
                    mask(key, (open.received & 3) as usize, &mut into[from..]);
                }
            } else {
                *into = Vec::new();
            }
            open.received += here as u64;
            if open.received < open.header.length {
                self.open = Some(open);
                return Ok(None);
            }
            self.open = None;
            match open.header.opcode {
                PING => return Ok(Some(Received::Ping(&self.control))),
                CLOSE => {
                    let code = self
                        .control
                        .first_chunk()
                        .map(|code| u16::from_be_bytes(*code));
                    return Ok(Some(Received::Close(code)));
                }
                PONG => {}
                _ if !open.header.fin => {}
                _ => {
                    let length = self.message.take().unwrap_or(0);
                    let body = (self.kept.len() as u64 == length
                        && length <= limits.keep_max as u64)
                        .then_some(&*self.kept);
                    return Ok(Some(Received::Message(Message { length, body })));
                }
            }
        }
    }

    /// Starts a frame: checks its header against the message under way.
    fn begin(&mut self, header: &Header, limits: &Limits) -> Result<(), FrameError> {
        if header.opcode >= CLOSE {
            self.control.clear();
            return Ok(());
        }
        let before = match (header.opcode, self.message) {
            (CONTINUATION, Some(length)) => length,
            (CONTINUATION, None) => {
                return Err(FrameError::Violation(
                    "continuation with nothing to continue",
                ));
            }
            (_, Some(_)) => {
                return Err(FrameError::Violation("new message within a fragmented one"));
            }
            (_, None) => {
                self.kept.clear();
                0
            }
        };
        let length = before.saturating_add(header.length);
        if length > limits.length_max {
            return Err(FrameError::TooLong(length));
        }
        self.message = Some(length);
        Ok(())
    }

    fn header(&mut self, masked: bool, input: &mut &[u8]) -> Result<Option<Header>, FrameError> {
        steps::count_bytes(1);
        if self.head.is_empty()
            && let Some((header, length)) = header(input, masked)?
        {
            *input = &input[length..];
            return Ok(Some(header));
        }
        while let Some((&byte, rest)) = input.split_first() {
            self.head.push(byte);
            steps::count_bytes(self.head.len());
            *input = rest;
            if let Some((header, _)) = header(&self.head, masked)? {
                self.head.clear();
                return Ok(Some(header));
            }
            debug_assert!(self.head.len() < HEADER_MAX);
        }
        Ok(None)
    }
}

/// Parses the header at the beginning of `bytes` and returns it with its length. Returns `None` if
/// more bytes are needed.
fn header(bytes: &[u8], masked: bool) -> Result<Option<(Header, usize)>, FrameError> {
    let [first, second, rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & RESERVED != 0 {
        return Err(FrameError::Violation(
            "reserved bits are set without a negotiated extension",
        ));
    }
    if (second & MASKED != 0) != masked {
        return Err(FrameError::Violation(match masked {
            true => "client frame without a mask",
            false => "server frame with a mask",
        }));
    }
    let (fin, opcode) = (first & FIN != 0, first & 0x0f);
    let (length, rest, size) = match second & 0x7f {
        126 => match rest.split_first_chunk() {
            Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest, 4),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk() {
            Some((length, rest)) => (u64::from_be_bytes(*length), rest, 10),
            None => return Ok(None),
        },
        length => (u64::from(length), rest, 2),
    };
    match opcode {
        CONTINUATION | TEXT | BINARY => {}
        CLOSE | PING | PONG if length > CONTROL_MAX || !fin => {
            return Err(FrameError::Violation(
                "control frame that is too long or fragmented",
            ));
        }
        CLOSE | PING | PONG => {}
        _ => return Err(FrameError::Violation("undefined opcode")),
    }
    let (mask, size) = match masked {
        false => (None, size),
        true => match rest.first_chunk() {
            Some(key) => (Some(u32::from_be_bytes(*key)), size + 4),
            None => return Ok(None),
        },
    };
    let header = Header {
        fin,
        opcode,
        mask,
        length,
    };
    Ok(Some((header, size)))
}
