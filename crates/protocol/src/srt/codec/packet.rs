//! Packets (SRT, 3): a header of 16 bytes, then media or control information.
//!
//! A datagram is read where it lies. What a peer claims is never allocated, and a list that lies is
//! an error as a whole.

use thiserror::Error;

use crate::srt::seq::SeqNumber;

/// Bytes of the header of every packet.
pub const HEADER: usize = 16;

/// The most bytes of payload in a packet: what an Ethernet frame has room for behind the headers of
/// IPv4, UDP and SRT.
pub const PAYLOAD_MAX: usize = 1500 - 20 - 8 - HEADER;

/// The most words that fit into the list of one NAK.
const NAK_WORDS_MAX: usize = PAYLOAD_MAX / 4;

/// The highest message number (26 bits).
pub const MESSAGE_MAX: u32 = (1 << 26) - 1;

const CONTROL_BIT: u32 = 1 << 31;
/// In a loss list: more numbers follow, up to the next word's.
const RANGE_BIT: u32 = 1 << 31;
const IN_ORDER_BIT: u32 = 1 << 29;
const RETRANSMITTED_BIT: u32 = 1 << 26;

const HANDSHAKE: u16 = 0;
const KEEP_ALIVE: u16 = 1;
const ACK: u16 = 2;
const NAK: u16 = 3;
const CONGESTION_WARNING: u16 = 4;
const SHUTDOWN: u16 = 5;
const ACK_ACK: u16 = 6;
const DROP_REQUEST: u16 = 7;
const PEER_ERROR: u16 = 8;
const USER_DEFINED: u16 = 0x7fff;

/// What libsrt has behind the header of a packet that needs nothing there: older ones could send
/// none without it.
const PADDING: [u8; 4] = [0; 4];

/// Why a datagram is no packet of SRT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Shorter than a header.
    #[error("a datagram of {0} bytes, shorter than a header")]
    Short(usize),
    /// A control packet without all that its kind needs.
    #[error("a control packet of type {kind} with {length} bytes of information")]
    ControlLength {
        /// Its type (SRT, 3.2, table 1).
        kind: u16,
        /// Bytes behind its header.
        length: usize,
    },
    /// A range of lost packets, or of dropped ones, that ends before it begins, or does not end.
    #[error("a range of packets from {first} that does not end behind it")]
    Range {
        /// Where it begins.
        first: u32,
    },
}

/// A datagram, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Media, and its payload.
    Data(DataHeader, &'a [u8]),
    /// Control.
    Control(ControlHeader, Control<'a>),
}

/// The header of a data packet (SRT, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Its sequence number.
    pub sequence: SeqNumber,
    /// Where it stands in its message. Live streams have messages of one packet.
    pub position: Position,
    /// Whether messages are to be delivered in order. Means nothing with TSBPD.
    pub in_order: bool,
    /// With which key the payload is encrypted.
    pub key: Key,
    /// Whether it was sent before.
    pub retransmitted: bool,
    /// The number of its message, of 26 bits.
    pub message: u32,
    /// When its media was handed to the sender, by the sender's [`SocketClock`], in microseconds.
    /// A retransmission has that of the first copy.
    ///
    /// [`SocketClock`]: crate::srt::seq::SocketClock
    pub timestamp: u32,
    /// The socket id of the peer.
    pub destination: u32,
}

/// Where a packet stands in its message (PP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Neither first nor last.
    Middle = 0,
    /// The last of several.
    Last = 1,
    /// The first of several.
    First = 2,
    /// The only one.
    Solo = 3,
}

/// Which key a payload is encrypted with (KK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// It is not encrypted.
    None = 0,
    /// The even one.
    Even = 1,
    /// The odd one.
    Odd = 2,
    /// Both: never of data.
    Both = 3,
}

/// What the header of a control packet says beside its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlHeader {
    /// When it was sent, by the sender's clock, in microseconds.
    pub timestamp: u32,
    /// The socket id of the peer; 0 in a handshake that knows none.
    pub destination: u32,
}

/// A control packet (SRT, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// A handshake, not read (SRT, 3.2.1).
    Handshake(&'a [u8]),
    /// Nothing else was sent for a second (SRT, 3.2.3).
    KeepAlive,
    /// What has come (SRT, 3.2.4).
    Ack(Ack),
    /// What has not (SRT, 3.2.5).
    Nak(LossList<'a>),
    /// Packets come later and later; nobody sends it (SRT, 3.2.6).
    CongestionWarning,
    /// The peer goes (SRT, 3.2.7).
    Shutdown,
    /// A full ACK has come (SRT, 3.2.8).
    AckAck {
        /// The number of the ACK.
        number: u32,
    },
    /// These packets will not be sent again (SRT, 3.2.9).
    DropRequest {
        /// The number of their message; 0 where that is not known.
        message: u32,
        /// The first.
        first: SeqNumber,
        /// The last, not before the first.
        last: SeqNumber,
    },
    /// The peer could not write what it received; only of files (SRT, 3.2.10).
    PeerError {
        /// Why.
        code: u32,
    },
    /// A message of an extension, such as a key that is changed (SRT, 3.2.2).
    UserDefined {
        /// Which extension.
        subtype: u16,
        /// The second word of the header.
        info: u32,
        /// What is behind the header.
        cif: &'a [u8],
    },
    /// One of a type that the draft does not have. It may be passed over.
    Unknown {
        /// Its type.
        kind: u16,
        /// The second word of the header.
        info: u32,
    },
}

/// An acknowledgement (SRT, 3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Its number, from 1 on, which the ACKACK repeats. 0 in light and small ones, which are not
    /// answered.
    pub number: u32,
    /// The packet behind the last of those that have come, or were given up, without a gap.
    pub next: SeqNumber,
    /// What a light one lacks.
    pub report: Option<AckReport>,
}

/// What small and full acknowledgements say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckReport {
    /// The smoothed RTT, in microseconds.
    pub rtt: u32,
    /// Its variance, in microseconds.
    pub rtt_variance: u32,
    /// For how many more packets the receiver has room.
    pub room: u32,
    /// What a small one lacks.
    pub rates: Option<AckRates>,
}

/// What only full acknowledgements say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckRates {
    /// Packets received in a second.
    pub packets: u32,
    /// Packets that the link could carry in a second, as estimated.
    pub capacity: u32,
    /// Bytes received in a second. 0 from peers of before libsrt 1.0.1, which do not say it.
    pub bytes: u32,
}

/// Packets in a row, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRange {
    /// The first.
    pub first: SeqNumber,
    /// The last, not before the first.
    pub last: SeqNumber,
}

impl LossRange {
    /// How many there are.
    #[inline]
    pub fn count(self) -> u32 {
        self.last.since(self.first).unsigned_abs() + 1
    }
}

/// The list of lost packets of a NAK, all ranges of which are sound (SRT, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossList<'a>(&'a [u8]);

impl<'a> LossList<'a> {
    /// Reads a list.
    ///
    /// # Errors
    /// If it is empty or no list of words, or a range does not end, or ends before it begins.
    pub fn parse(bytes: &'a [u8]) -> Result<LossList<'a>, Malformed> {
        let (words, rest) = bytes.as_chunks::<4>();
        if words.is_empty() || !rest.is_empty() {
            return Err(Malformed::ControlLength {
                kind: NAK,
                length: bytes.len(),
            });
        }
        let mut words = words.iter().copied().map(u32::from_be_bytes);
        while let Some(word) = words.next() {
            if word & RANGE_BIT == 0 {
                continue;
            }
            let first = SeqNumber::new(word);
            let sound = words.next().is_some_and(|last| {
                last & RANGE_BIT == 0 && !SeqNumber::new(last).is_before(first)
            });
            if !sound {
                let first = first.value();
                return Err(Malformed::Range { first });
            }
        }
        Ok(LossList(bytes))
    }

    /// The ranges, as they stand in it: they may overlap, and be in any order.
    pub fn ranges(&self) -> impl Iterator<Item = LossRange> + 'a {
        let (words, _) = self.0.as_chunks::<4>();
        let mut words = words.iter().copied().map(u32::from_be_bytes);
        std::iter::from_fn(move || {
            let word = words.next()?;
            let first = SeqNumber::new(word);
            let last = match word & RANGE_BIT {
                0 => first,
                _ => SeqNumber::new(words.next()?),
            };
            Some(LossRange { first, last })
        })
    }
}

/// The socket id that a datagram is for; none where it is shorter than a header.
#[inline]
pub fn destination(datagram: &[u8]) -> Option<u32> {
    datagram.first_chunk::<HEADER>().map(|head| word(head, 3))
}

/// Whether a datagram is a data packet.
#[inline]
pub fn is_data(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER && datagram[0] & 0x80 == 0
}

#[inline]
fn word(head: &[u8; HEADER], number: usize) -> u32 {
    let (words, _) = head.as_chunks::<4>();
    u32::from_be_bytes(words[number])
}

impl<'a> Packet<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// If it is no packet: see [`Malformed`].
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        let Some((head, rest)) = datagram.split_first_chunk::<HEADER>() else {
            return Err(Malformed::Short(datagram.len()));
        };
        if word(head, 0) & CONTROL_BIT == 0 {
            return Ok(Packet::Data(DataHeader::read(head), rest));
        }
        let header = ControlHeader {
            timestamp: word(head, 2),
            destination: word(head, 3),
        };
        let kind = (word(head, 0) >> 16) as u16 & 0x7fff;
        let subtype = word(head, 0) as u16;
        let control = Control::read((kind, subtype), word(head, 1), rest)?;
        Ok(Packet::Control(header, control))
    }
}

impl DataHeader {
    #[inline]
    fn read(head: &[u8; HEADER]) -> DataHeader {
        let second = word(head, 1);
        DataHeader {
            sequence: SeqNumber::new(word(head, 0)),
            position: match second >> 30 {
                0 => Position::Middle,
                1 => Position::Last,
                2 => Position::First,
                _ => Position::Solo,
            },
            in_order: second & IN_ORDER_BIT != 0,
            key: match second >> 27 & 3 {
                0 => Key::None,
                1 => Key::Even,
                2 => Key::Odd,
                _ => Key::Both,
            },
            retransmitted: second & RETRANSMITTED_BIT != 0,
            message: second & MESSAGE_MAX,
            timestamp: word(head, 2),
            destination: word(head, 3),
        }
    }

    /// Its bytes. Of the message number, the low 26 bits.
    #[inline]
    pub fn write(&self) -> [u8; HEADER] {
        let second = (self.position as u32) << 30
            | if self.in_order { IN_ORDER_BIT } else { 0 }
            | (self.key as u32) << 27
            | if self.retransmitted {
                RETRANSMITTED_BIT
            } else {
                0
            }
            | self.message & MESSAGE_MAX;
        head([
            self.sequence.value(),
            second,
            self.timestamp,
            self.destination,
        ])
    }
}

#[inline]
fn head(words: [u32; 4]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    bytes
}

impl<'a> Control<'a> {
    fn read(
        (kind, subtype): (u16, u16),
        info: u32,
        cif: &'a [u8],
    ) -> Result<Control<'a>, Malformed> {
        let words = cif.as_chunks::<4>().0;
        let word = |number: usize| words.get(number).copied().map(u32::from_be_bytes);
        let short = Malformed::ControlLength {
            kind,
            length: cif.len(),
        };
        Ok(match kind {
            HANDSHAKE => Control::Handshake(cif),
            KEEP_ALIVE => Control::KeepAlive,
            ACK => {
                let next = SeqNumber::new(word(0).ok_or(short)?);
                let report = word(1).zip(word(2)).zip(word(3));
                let rates = word(4).zip(word(5));
                Control::Ack(Ack {
                    number: info,
                    next,
                    report: report.map(|((rtt, rtt_variance), room)| AckReport {
                        rtt,
                        rtt_variance,
                        room,
                        rates: rates.map(|(packets, capacity)| AckRates {
                            packets,
                            capacity,
                            bytes: word(6).unwrap_or(0),
                        }),
                    }),
                })
            }
            NAK => Control::Nak(LossList::parse(cif)?),
            CONGESTION_WARNING => Control::CongestionWarning,
            SHUTDOWN => Control::Shutdown,
            ACK_ACK => Control::AckAck { number: info },
            DROP_REQUEST => {
                let (first, last) = word(0).zip(word(1)).ok_or(short)?;
                let (first, last) = (SeqNumber::new(first), SeqNumber::new(last));
                if last.is_before(first) {
                    let first = first.value();
                    return Err(Malformed::Range { first });
                }
                Control::DropRequest {
                    message: info,
                    first,
                    last,
                }
            }
            PEER_ERROR => Control::PeerError { code: info },
            USER_DEFINED => Control::UserDefined { subtype, info, cif },
            _ => Control::Unknown { kind, info },
        })
    }

    fn kind(&self) -> u16 {
        match self {
            Control::Handshake(_) => HANDSHAKE,
            Control::KeepAlive => KEEP_ALIVE,
            Control::Ack(_) => ACK,
            Control::Nak(_) => NAK,
            Control::CongestionWarning => CONGESTION_WARNING,
            Control::Shutdown => SHUTDOWN,
            Control::AckAck { .. } => ACK_ACK,
            Control::DropRequest { .. } => DROP_REQUEST,
            Control::PeerError { .. } => PEER_ERROR,
            Control::UserDefined { .. } => USER_DEFINED,
            Control::Unknown { kind, .. } => *kind,
        }
    }

    /// Appends it, as one datagram.
    pub fn write(&self, header: ControlHeader, out: &mut Vec<u8>) {
        let (subtype, info) = match *self {
            Control::Ack(ack) => (0, ack.number),
            Control::AckAck { number } => (0, number),
            Control::DropRequest { message, .. } => (0, message),
            Control::PeerError { code } => (0, code),
            Control::UserDefined { subtype, info, .. } => (subtype, info),
            Control::Unknown { info, .. } => (0, info),
            _ => (0, 0),
        };
        write_head(self.kind(), subtype, info, header, out);
        match *self {
            Control::Handshake(cif) | Control::UserDefined { cif, .. } => {
                out.extend_from_slice(cif);
            }
            Control::Ack(ack) => {
                words(out, [ack.next.value()]);
                if let Some(report) = ack.report {
                    words(out, [report.rtt, report.rtt_variance, report.room]);
                    if let Some(rates) = report.rates {
                        words(out, [rates.packets, rates.capacity, rates.bytes]);
                    }
                }
            }
            Control::Nak(list) => out.extend_from_slice(list.0),
            Control::DropRequest { first, last, .. } => {
                words(out, [first.value(), last.value()]);
            }
            Control::KeepAlive
            | Control::CongestionWarning
            | Control::Shutdown
            | Control::AckAck { .. }
            | Control::PeerError { .. }
            | Control::Unknown { .. } => out.extend_from_slice(&PADDING),
        }
    }
}

fn write_head(kind: u16, subtype: u16, info: u32, header: ControlHeader, out: &mut Vec<u8>) {
    out.extend_from_slice(&head([
        CONTROL_BIT | u32::from(kind) << 16 | u32::from(subtype),
        info,
        header.timestamp,
        header.destination,
    ]));
}

fn words<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// Appends a NAK with these ranges, as one datagram: as many of them as fit, and nothing where
/// there is none. Says how many packets it names.
pub fn write_nak(
    header: ControlHeader,
    ranges: impl Iterator<Item = LossRange>,
    out: &mut Vec<u8>,
) -> u64 {
    let begin = out.len();
    let end_max = begin + HEADER + NAK_WORDS_MAX * 4;
    write_head(NAK, 0, 0, header, out);
    let mut named = 0;
    for range in ranges {
        // Room for a range is asked for even where one word is enough.
        if out.len() + 8 > end_max {
            break;
        }
        named += u64::from(range.count());
        if range.first == range.last {
            words(out, [range.first.value()]);
        } else {
            words(out, [range.first.value() | RANGE_BIT, range.last.value()]);
        }
    }
    if named == 0 {
        out.truncate(begin);
    }
    named
}

#[cfg(test)]
mod tests;
