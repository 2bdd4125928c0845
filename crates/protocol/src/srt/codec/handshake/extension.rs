//! The extensions of a handshake (SRT, 3.2.1.1 and following).

use super::error::HandshakeError;

/// The most bytes of a text: a stream id, a congestion control's name, a filter's configuration.
pub const TEXT_MAX: usize = 512;

/// The bits of an HSREQ and HSRSP (SRT, 3.2.1.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// It sends by timestamps.
    pub const TSBPDSND: Flags = Flags(1);
    /// It receives by timestamps.
    pub const TSBPDRCV: Flags = Flags(1 << 1);
    /// It knows the bits of encryption in data packets. Always set.
    pub const CRYPT: Flags = Flags(1 << 2);
    /// It drops what is too late.
    pub const TLPKTDROP: Flags = Flags(1 << 3);
    /// It repeats NAKs.
    pub const PERIODICNAK: Flags = Flags(1 << 4);
    /// It marks what was sent before. Always set.
    pub const REXMITFLG: Flags = Flags(1 << 5);
    /// It carries a stream of bytes, not messages.
    pub const STREAM: Flags = Flags(1 << 6);
    /// It knows packet filters.
    pub const PACKET_FILTER: Flags = Flags(1 << 7);

    /// Those of live media.
    pub const LIVE: Flags = Flags(
        Flags::TSBPDSND.0
            | Flags::TSBPDRCV.0
            | Flags::CRYPT.0
            | Flags::TLPKTDROP.0
            | Flags::PERIODICNAK.0
            | Flags::REXMITFLG.0,
    );

    /// Those of messages, which are never too late and come whole.
    pub const MESSAGES: Flags = Flags(Flags::CRYPT.0 | Flags::PERIODICNAK.0 | Flags::REXMITFLG.0);

    /// Whether all of these are set.
    pub const fn has(self, others: Flags) -> bool {
        self.0 & others.0 == others.0
    }

    /// With these too.
    #[must_use]
    pub const fn with(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }

    /// Without these.
    #[must_use]
    pub const fn without(self, others: Flags) -> Flags {
        Flags(self.0 & !others.0)
    }
}

/// An HSREQ or HSRSP (SRT, 3.2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HsMessage {
    /// The version of SRT: `0x00010502` is 1.5.2.
    pub version: u32,
    /// What it can.
    pub flags: Flags,
    /// The latency with which it receives, in milliseconds.
    pub receive_latency_ms: u16,
    /// The latency that it asks of the peer's receiver, in milliseconds.
    pub send_latency_ms: u16,
}

/// What a KMRSP of one word says: that no key was agreed on. Little-endian on the wire, because
/// libsrt swaps it twice; the other order is read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KmState {
    /// It has a passphrase, and got no KMREQ.
    Unsecured = 0,
    /// Keys are being agreed on.
    Securing = 1,
    /// Keys are agreed on.
    Secured = 2,
    /// It has no passphrase.
    NoSecret = 3,
    /// Its passphrase is another one.
    BadSecret = 4,
    /// Its cipher is another one.
    BadCryptoMode = 5,
}

impl KmState {
    /// Reads the word.
    pub fn from_wire(word: [u8; 4]) -> Option<KmState> {
        let state = match word {
            [state, 0, 0, 0] | [0, 0, 0, state] => state,
            _ => return None,
        };
        Some(match state {
            0 => KmState::Unsecured,
            1 => KmState::Securing,
            2 => KmState::Secured,
            3 => KmState::NoSecret,
            4 => KmState::BadSecret,
            5 => KmState::BadCryptoMode,
            _ => return None,
        })
    }

    /// The word.
    pub fn to_wire(self) -> [u8; 4] {
        (self as u32).to_le_bytes()
    }
}

/// An extension, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension<'a> {
    /// What the initiator can (1).
    HsRequest(HsMessage),
    /// What the responder can (2).
    HsResponse(HsMessage),
    /// The key, wrapped (3).
    KmRequest(&'a [u8]),
    /// The same message back, or one word: see [`KmState`] (4).
    KmResponse(&'a [u8]),
    /// The stream id (5).
    StreamId(String),
    /// The name of the congestion control (6).
    Congestion(String),
    /// The configuration of the packet filter (7).
    Filter(String),
    /// The group of a bonded connection, not read (8).
    Group(&'a [u8]),
    /// One of a type that is not known. It may be passed over.
    Unknown(u16),
}

impl Extension<'_> {
    /// The type of HSREQ.
    pub const HS_REQUEST: u16 = 1;
    /// The type of HSRSP.
    pub const HS_RESPONSE: u16 = 2;
    /// The type of KMREQ, also of a message within the connection.
    pub const KM_REQUEST: u16 = 3;
    /// The type of KMRSP, also of a message within the connection.
    pub const KM_RESPONSE: u16 = 4;
    /// The type of a stream id.
    pub const STREAM_ID: u16 = 5;
    /// The type of a congestion control.
    pub const CONGESTION: u16 = 6;
    /// The type of a packet filter.
    pub const FILTER: u16 = 7;
    /// The type of a group.
    pub const GROUP: u16 = 8;

    /// Its type.
    pub fn kind(&self) -> u16 {
        match self {
            Extension::HsRequest(_) => Extension::HS_REQUEST,
            Extension::HsResponse(_) => Extension::HS_RESPONSE,
            Extension::KmRequest(_) => Extension::KM_REQUEST,
            Extension::KmResponse(_) => Extension::KM_RESPONSE,
            Extension::StreamId(_) => Extension::STREAM_ID,
            Extension::Congestion(_) => Extension::CONGESTION,
            Extension::Filter(_) => Extension::FILTER,
            Extension::Group(_) => Extension::GROUP,
            Extension::Unknown(kind) => *kind,
        }
    }
}

/// The extensions, one after the other. Ends behind the first that is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions<'a> {
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Extensions<'a> {
        Extensions { rest }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn read(&mut self) -> Result<Option<Extension<'a>>, HandshakeError> {
        let Some((&[a, b, c, d], rest)) = self.rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let (kind, claimed) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let Some((content, rest)) = rest.split_at_checked(usize::from(claimed) * 4) else {
            let left = rest.len() / 4;
            return Err(HandshakeError::ExtensionLength {
                kind,
                claimed,
                left,
            });
        };
        self.rest = rest;
        let wrong = HandshakeError::ExtensionContent {
            kind,
            length: content.len(),
        };
        let some = |content: &'a [u8]| match content.is_empty() {
            true => Err(wrong),
            false => Ok(content),
        };
        Ok(Some(match kind {
            Extension::HS_REQUEST => Extension::HsRequest(hs(content).ok_or(wrong)?),
            Extension::HS_RESPONSE => Extension::HsResponse(hs(content).ok_or(wrong)?),
            Extension::KM_REQUEST => Extension::KmRequest(some(content)?),
            Extension::KM_RESPONSE => Extension::KmResponse(some(content)?),
            Extension::STREAM_ID => Extension::StreamId(text(kind, content)?),
            Extension::CONGESTION => Extension::Congestion(text(kind, content)?),
            Extension::FILTER => Extension::Filter(text(kind, content)?),
            Extension::GROUP => Extension::Group(content),
            other => Extension::Unknown(other),
        }))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, HandshakeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose()?;
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

fn hs(content: &[u8]) -> Option<HsMessage> {
    let (words, _) = content.as_chunks::<4>();
    let &[version, flags, [a, b, c, d], ..] = words else {
        return None;
    };
    Some(HsMessage {
        version: u32::from_be_bytes(version),
        flags: Flags(u32::from_be_bytes(flags)),
        receive_latency_ms: u16::from_be_bytes([a, b]),
        send_latency_ms: u16::from_be_bytes([c, d]),
    })
}

/// A text stands with the bytes of each word reversed, and zeros behind it (SRT, 3.2.1.3).
fn text(kind: u16, content: &[u8]) -> Result<String, HandshakeError> {
    if content.is_empty() || content.len() > TEXT_MAX {
        let length = content.len();
        return Err(HandshakeError::ExtensionContent { kind, length });
    }
    let (words, _) = content.as_chunks::<4>();
    let mut bytes = Vec::with_capacity(content.len());
    for &[a, b, c, d] in words {
        bytes.extend_from_slice(&[d, c, b, a]);
    }
    let end = bytes.iter().rposition(|&byte| byte != 0);
    bytes.truncate(end.map_or(0, |last| last + 1));
    String::from_utf8(bytes).map_err(|_| HandshakeError::NoText(kind))
}

/// Appends words.
pub fn put_words<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

fn write_head(kind: u16, bytes: usize, out: &mut Vec<u8>) {
    let words = u16::try_from(bytes.div_ceil(4)).expect("extensions are shorter than a datagram");
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&words.to_be_bytes());
}

/// Appends an extension of whole words.
pub fn write_extension(kind: u16, content: &[u8], out: &mut Vec<u8>) {
    write_head(kind, content.len(), out);
    out.extend_from_slice(content);
    let padding = content.len().next_multiple_of(4) - content.len();
    out.extend_from_slice(&[0; 3][..padding]);
}

/// Appends an extension that is a text, of which at most [`TEXT_MAX`] bytes are taken.
pub fn write_text(kind: u16, text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = &text.as_bytes()[..end];
    write_head(kind, bytes.len(), out);
    for chunk in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        word.reverse();
        out.extend_from_slice(&word);
    }
}

impl HsMessage {
    /// Appends it as an extension of that type.
    pub fn write(&self, kind: u16, out: &mut Vec<u8>) {
        write_head(kind, 12, out);
        let latencies = u32::from(self.receive_latency_ms) << 16 | u32::from(self.send_latency_ms);
        put_words(out, [self.version, self.flags.0, latencies]);
    }
}
