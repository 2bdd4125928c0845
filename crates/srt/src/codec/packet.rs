//! Packets (SRT, 3): a 16-byte header, followed by media or control information.
//!
//! Parsing is zero-copy: it allocates nothing, whatever lengths a peer claims, and rejects a
//! malformed list as a whole.

use measure::Time;
use thiserror::Error;

use super::handshake::put_words;
use crate::seq::{SeqNumber, SocketClock};

/// Length of the packet header in bytes.
pub const HEADER: usize = 16;

/// Maximum payload of a packet in bytes: an Ethernet frame less the IPv4, UDP and SRT headers.
pub const PAYLOAD_MAX: usize = 1500 - 20 - 8 - HEADER;

/// Bytes of headers of each data packet on the wire: RFC 791, 3.1, or RFC 8200, 3; RFC 768; SRT.
pub fn wire_overhead(over_ipv6: bool) -> usize {
    HEADER + 8 + if over_ipv6 { 40 } else { 20 }
}

/// Maximum number of words in the loss list of one NAK.
const NAK_WORDS_MAX: usize = PAYLOAD_MAX / 4;

/// Highest message number (26 bits).
pub const MESSAGE_MAX: u32 = (1 << 26) - 1;

const CONTROL_BIT: u32 = 1 << 31;
/// Range marker in a loss list: the next word is the last number of the range.
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

/// Padding after the header of a control packet without content, as in libsrt: old versions could
/// not send a packet without it.
const PADDING: [u8; 4] = [0; 4];

/// Reason why a datagram is not an SRT packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("datagram of {0} bytes is shorter than an SRT header")]
    Short(usize),
    /// Control packet whose length is invalid for its type.
    #[error("control packet of type {kind} has an invalid length of {length} bytes")]
    ControlLength {
        /// Packet type (SRT, 3.2, table 1).
        kind: u16,
        /// Bytes after the header.
        length: usize,
    },
    /// Range of lost or dropped packets that has no end, or ends before it begins.
    #[error("packet range from {first} has no end, or ends before it begins")]
    Range {
        /// First packet of the range.
        first: u32,
    },
}

/// Parsed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Data packet with its payload.
    Data(DataHeader, &'a [u8]),
    Control(ControlHeader, Control<'a>),
}

/// Header of a data packet (SRT, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    pub sequence: SeqNumber,
    /// Position within the message. Live streams have messages of one packet.
    pub position: Position,
    /// True if messages are to be delivered in order. Has no meaning with TSBPD.
    pub in_order: bool,
    /// Key that the payload is encrypted with.
    pub key: KeyFlag,
    /// True for a retransmission.
    pub retransmitted: bool,
    /// Message number of 26 bits.
    pub message: u32,
    /// Time when the media was handed to the sender, by the sender's [`SocketClock`], in
    /// microseconds. A retransmission has the timestamp of the first transmission.
    ///
    /// [`SocketClock`]: crate::seq::SocketClock
    pub timestamp: u32,
    /// Destination socket id.
    pub destination: u32,
}

/// Position of a packet within its message (PP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Neither the first nor the last packet.
    Middle = 0,
    /// Last packet of several.
    Last = 1,
    /// First packet of several.
    First = 2,
    /// Only packet of its message.
    Solo = 3,
}

/// Key that a payload is encrypted with (KK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFlag {
    /// The payload is not encrypted.
    None = 0,
    Even = 1,
    Odd = 2,
    /// Both keys. Invalid for data packets.
    Both = 3,
}

/// Fields of a control packet header that are common to all types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlHeader {
    /// Send time by the sender's clock, in microseconds.
    pub timestamp: u32,
    /// Destination socket id; 0 in a handshake if it is not known yet.
    pub destination: u32,
}

impl ControlHeader {
    /// Header of a packet that is sent at `now` by `clock`.
    pub fn sent_at(now: Time, clock: SocketClock, destination: u32) -> ControlHeader {
        ControlHeader {
            timestamp: clock.timestamp(now),
            destination,
        }
    }
}

/// Control packet (SRT, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Handshake, unparsed (SRT, 3.2.1).
    Handshake(&'a [u8]),
    /// Keep-alive: nothing else was sent for a second (SRT, 3.2.3).
    KeepAlive,
    /// Acknowledgement (SRT, 3.2.4).
    Ack(Ack),
    /// Loss report (SRT, 3.2.5).
    Nak(LossList<'a>),
    /// Congestion warning: the delay of packets grows. No implementation sends it (SRT, 3.2.6).
    CongestionWarning,
    /// The peer closes the connection (SRT, 3.2.7).
    Shutdown,
    /// Acknowledgement of a full ACK (SRT, 3.2.8).
    AckAck {
        /// Number of the ACK.
        number: u32,
    },
    /// Packets that will not be retransmitted (SRT, 3.2.9).
    DropRequest {
        /// Message number; 0 if unknown.
        message: u32,
        first: SeqNumber,
        /// Not before `first`.
        last: SeqNumber,
    },
    /// The peer could not write the received data. Used for files only (SRT, 3.2.10).
    PeerError {
        /// Error code of the peer.
        code: u32,
    },
    /// Message of an extension, such as a key update (SRT, 3.2.2).
    UserDefined {
        subtype: u16,
        /// Second word of the header.
        info: u32,
        /// Content after the header.
        cif: &'a [u8],
    },
    /// Control packet of a type that the draft does not define. It can be ignored.
    Unknown {
        kind: u16,
        /// Second word of the header.
        info: u32,
    },
}

/// Acknowledgement (SRT, 3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Number from 1 on, which the ACKACK repeats. 0 in light and small acknowledgements, which get
    /// no ACKACK.
    pub number: u32,
    /// Sequence number before which all packets were received or given up.
    pub next: SeqNumber,
    /// `None` in a light acknowledgement.
    pub report: Option<AckReport>,
}

/// Fields of small and full acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckReport {
    /// Smoothed RTT in microseconds.
    pub rtt: u32,
    /// RTT variance in microseconds.
    pub rtt_variance: u32,
    /// Free space of the receive buffer, in packets.
    pub free_packets: u32,
    /// `None` in a small acknowledgement.
    pub rates: Option<AckRates>,
}

/// Fields of full acknowledgements only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckRates {
    /// Received packets per second.
    pub packets: u32,
    /// Estimated link capacity in packets per second.
    pub capacity: u32,
    /// Received bytes per second. 0 from peers older than libsrt 1.0.1, which do not send it.
    pub bytes: u32,
}

/// Consecutive packets from `first` to `last` inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRange {
    pub first: SeqNumber,
    /// Not before `first`.
    pub last: SeqNumber,
}

impl LossRange {
    /// Number of packets in the range.
    #[inline]
    pub fn count(self) -> u32 {
        self.last.distance_from(self.first).unsigned_abs() + 1
    }
}

/// Loss list of a NAK (SRT, appendix A). All its ranges are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossList<'a>(&'a [u8]);

impl<'a> LossList<'a> {
    /// Parses a loss list.
    ///
    /// # Errors
    /// The list is empty or not a sequence of whole words, or a range has no end or ends before it
    /// begins.
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

    /// Ranges in the order of the list. They may overlap, and need not be sorted.
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

/// Returns the destination socket id of a datagram, or `None` if it is shorter than a header.
#[inline]
pub fn destination_socket_id(datagram: &[u8]) -> Option<u32> {
    datagram.first_chunk::<HEADER>().map(|head| word(head, 3))
}

/// True if a datagram is a data packet.
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
    /// Parses a datagram.
    ///
    /// # Errors
    /// [`Malformed`] if it is not a valid packet.
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
                0 => KeyFlag::None,
                1 => KeyFlag::Even,
                2 => KeyFlag::Odd,
                _ => KeyFlag::Both,
            },
            retransmitted: second & RETRANSMITTED_BIT != 0,
            message: second & MESSAGE_MAX,
            timestamp: word(head, 2),
            destination: word(head, 3),
        }
    }

    /// Returns the encoded header. Only the low 26 bits of the message number are used.
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
                    report: report.map(|((rtt, rtt_variance), free_packets)| AckReport {
                        rtt,
                        rtt_variance,
                        free_packets,
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

    /// Appends the packet to `out`, as one datagram.
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
                put_words(out, [ack.next.value()]);
                if let Some(report) = ack.report {
                    put_words(out, [report.rtt, report.rtt_variance, report.free_packets]);
                    if let Some(rates) = report.rates {
                        put_words(out, [rates.packets, rates.capacity, rates.bytes]);
                    }
                }
            }
            Control::Nak(list) => out.extend_from_slice(list.0),
            Control::DropRequest { first, last, .. } => {
                put_words(out, [first.value(), last.value()]);
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

/// Appends a NAK with as many of these ranges as fit, as one datagram. Appends nothing if `ranges`
/// is empty. Returns the number of packets that the NAK names.
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
        // Requires space for two words, although a single packet takes one.
        if out.len() + 8 > end_max {
            break;
        }
        named += u64::from(range.count());
        if range.first == range.last {
            put_words(out, [range.first.value()]);
        } else {
            put_words(out, [range.first.value() | RANGE_BIT, range.last.value()]);
        }
    }
    if named == 0 {
        out.truncate(begin);
    }
    named
}

#[cfg(test)]
mod tests;
