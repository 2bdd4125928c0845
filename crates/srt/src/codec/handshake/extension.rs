//! Extensions of a handshake (SRT, 3.2.1.1 and following).

use super::error::HandshakeError;

/// Maximum length in bytes of a text: a stream id, a congestion control name, or a filter
/// configuration.
pub const TEXT_MAX: usize = 512;

/// Flags of an HSREQ or HSRSP (SRT, 3.2.1.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Sends with timestamps (TSBPD).
    pub const TSBPDSND: Flags = Flags(1);
    /// Delivers by timestamps (TSBPD).
    pub const TSBPDRCV: Flags = Flags(1 << 1);
    /// Understands the encryption bits of data packets. Always set.
    pub const CRYPT: Flags = Flags(1 << 2);
    /// Drops packets that are too late.
    pub const TLPKTDROP: Flags = Flags(1 << 3);
    /// Repeats NAKs.
    pub const PERIODICNAK: Flags = Flags(1 << 4);
    /// Marks retransmissions. Always set.
    pub const REXMITFLG: Flags = Flags(1 << 5);
    /// Carries a stream of bytes instead of messages.
    pub const STREAM: Flags = Flags(1 << 6);
    /// Supports packet filters.
    pub const PACKET_FILTER: Flags = Flags(1 << 7);

    /// Flags of live media.
    pub const LIVE: Flags = Flags(
        Flags::TSBPDSND.0
            | Flags::TSBPDRCV.0
            | Flags::CRYPT.0
            | Flags::TLPKTDROP.0
            | Flags::PERIODICNAK.0
            | Flags::REXMITFLG.0,
    );

    /// Flags of message mode, in which no packet is ever too late and every message arrives whole.
    pub const MESSAGES: Flags = Flags(Flags::CRYPT.0 | Flags::PERIODICNAK.0 | Flags::REXMITFLG.0);

    /// True if all of `others` are set.
    pub const fn has(self, others: Flags) -> bool {
        self.0 & others.0 == others.0
    }

    #[must_use]
    pub const fn with(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }

    #[must_use]
    pub const fn without(self, others: Flags) -> Flags {
        Flags(self.0 & !others.0)
    }
}

/// HSREQ or HSRSP (SRT, 3.2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HsMessage {
    /// SRT version: `0x00010502` is 1.5.2.
    pub version: u32,
    pub flags: Flags,
    /// Latency of the receiver on the side that sends the message, in milliseconds.
    pub receive_latency_ms: u16,
    /// Latency that this side requests of the peer's receiver, in milliseconds.
    pub send_latency_ms: u16,
}

/// State in a KMRSP of one word: no key was negotiated. Little-endian on the wire, because libsrt
/// swaps it twice; both byte orders are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KmState {
    /// A passphrase is set, but no KMREQ arrived.
    Unsecured = 0,
    /// The key exchange is in progress.
    Securing = 1,
    /// Keys are negotiated.
    Secured = 2,
    /// No passphrase is set.
    NoSecret = 3,
    /// The passphrases differ.
    BadSecret = 4,
    /// The ciphers differ.
    BadCryptoMode = 5,
}

impl KmState {
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

    pub fn to_wire(self) -> [u8; 4] {
        (self as u32).to_le_bytes()
    }
}

/// Parsed extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension<'a> {
    /// Capabilities of the initiator (1).
    HsRequest(HsMessage),
    /// Capabilities of the responder (2).
    HsResponse(HsMessage),
    /// Wrapped key (3).
    KmRequest(&'a [u8]),
    /// The KMREQ returned unchanged, or one word: see [`KmState`] (4).
    KmResponse(&'a [u8]),
    /// Stream id (5).
    StreamId(String),
    /// Name of the congestion control (6).
    Congestion(String),
    /// Configuration of the packet filter (7).
    Filter(String),
    /// Group of a bonded connection, unparsed (8).
    Group(&'a [u8]),
    /// Extension of an unknown type. It can be ignored.
    Unknown(u16),
}

impl Extension<'_> {
    pub const HS_REQUEST: u16 = 1;
    pub const HS_RESPONSE: u16 = 2;
    /// Also the subtype of a KMREQ within the connection.
    pub const KM_REQUEST: u16 = 3;
    /// Also the subtype of a KMRSP within the connection.
    pub const KM_RESPONSE: u16 = 4;
    pub const STREAM_ID: u16 = 5;
    pub const CONGESTION: u16 = 6;
    pub const FILTER: u16 = 7;
    pub const GROUP: u16 = 8;

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

/// Iterator over the extensions. It ends after the first malformed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions<'a> {
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Extensions<'a> {
        Extensions { rest }
    }

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

/// Parses a text. The bytes of each word are reversed, and zeros pad the last word (SRT, 3.2.1.3).
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
    String::from_utf8(bytes).map_err(|_| HandshakeError::InvalidUtf8(kind))
}

/// Appends words in network byte order.
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

/// Appends an extension, padded to whole words.
pub fn write_extension(kind: u16, content: &[u8], out: &mut Vec<u8>) {
    write_head(kind, content.len(), out);
    out.extend_from_slice(content);
    let padding = content.len().next_multiple_of(4) - content.len();
    out.extend_from_slice(&[0; 3][..padding]);
}

/// Appends a text extension. The text is truncated to [`TEXT_MAX`] bytes.
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
    /// Appends the message as an extension of type `kind`.
    pub fn write(&self, kind: u16, out: &mut Vec<u8>) {
        write_head(kind, 12, out);
        let latencies = u32::from(self.receive_latency_ms) << 16 | u32::from(self.send_latency_ms);
        put_words(out, [self.version, self.flags.0, latencies]);
    }
}
