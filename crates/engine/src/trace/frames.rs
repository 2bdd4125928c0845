//! The headers that a program never sees: made for what it read and wrote, so that the capture can
//! be read as if it came off the wire.
//!
//! Addresses, bytes, their order and their times are real. Of a connection, where segments begin
//! and end, sequence numbers and acknowledgements are not: each read or write is a segment (or
//! several, where one IP packet cannot hold it), and sequence numbers count bytes from 0.

use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// How many bytes of a connection one segment holds at most: with all headers it fits into an IP
/// packet.
pub(super) const SEGMENT_BYTES: usize = 65_000;

/// What opens a connection has as options: a largest segment of 65,495 bytes, and a window in units
/// of 16 KiB. The window is then a gibibyte, and never looks full.
const SYN_OPTIONS: [u8; 8] = [2, 4, 0xff, 0xd7, 3, 3, 14, 1];

/// From where to where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
}

impl Way {
    /// From `remote` to `local`, or the other way.
    pub(super) fn new(local: SocketAddr, remote: SocketAddr, inbound: bool) -> Way {
        match inbound {
            true => Way {
                from: remote,
                to: local,
            },
            false => Way {
                from: local,
                to: remote,
            },
        }
    }
}

/// The headers of IP and UDP for a datagram of `length` bytes, of which `bytes` are known.
pub(super) fn datagram(way: Way, bytes: &[u8], length: usize) -> Vec<u8> {
    let mut udp = [0; 8];
    udp[0..2].copy_from_slice(&way.from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&way.to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&short(8 + length).to_be_bytes());
    // 0 is for no checksum (RFC 768); what is not known cannot be summed up.
    if bytes.len() == length {
        let sum = match checksum(way, UDP, &udp, bytes) {
            0 => 0xffff,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    let mut headers = ip(way, UDP, 8 + length);
    headers.extend(udp);
    headers
}

/// A connection, as far as its packets have been made.
#[derive(Debug)]
pub(super) struct Conversation {
    local: SocketAddr,
    remote: SocketAddr,
    /// Sequence number of what comes next: outbound, inbound.
    next: [u32; 2],
    established: bool,
}

/// A packet without its payload: which way it goes, and its headers.
pub(super) type Packet = (bool, Vec<u8>);

impl Conversation {
    /// A connection that is being opened, with its first packet.
    pub(super) fn open(local: SocketAddr, remote: SocketAddr) -> (Conversation, Packet) {
        let mut conversation = Conversation {
            local,
            remote,
            next: [0; 2],
            established: false,
        };
        let syn = conversation.segment(false, SYN, &[]);
        conversation.next[0] = 1;
        (conversation, syn)
    }

    /// The rest of the handshake, unless it has been made.
    pub(super) fn establish(&mut self) -> Vec<Packet> {
        if self.established {
            return Vec::new();
        }
        self.established = true;
        let answer = self.segment(true, SYN | ACK, &[]);
        self.next[1] = 1;
        vec![answer, self.segment(false, ACK, &[])]
    }

    /// Leaves a gap of bytes that were not kept.
    pub(super) fn skip(&mut self, inbound: bool, bytes: u64) {
        let next = &mut self.next[usize::from(inbound)];
        // Sequence numbers wrap around (RFC 9293, 3.4).
        *next = next.wrapping_add(bytes as u32);
    }

    /// The headers of a segment with bytes, at most [`SEGMENT_BYTES`]; the last one of a read or
    /// write says so.
    pub(super) fn bytes(&mut self, inbound: bool, bytes: &[u8], last: bool) -> Packet {
        let push = if last { PSH } else { 0 };
        let packet = self.segment(inbound, ACK | push, bytes);
        self.skip(inbound, bytes.len() as u64);
        packet
    }

    /// One side says that no more comes from it.
    pub(super) fn finish(&mut self, inbound: bool) -> Packet {
        let packet = self.segment(inbound, FIN | ACK, &[]);
        self.skip(inbound, 1);
        packet
    }

    /// One side breaks it off, or refuses it.
    pub(super) fn reset(&mut self, inbound: bool) -> Packet {
        self.segment(inbound, RST | ACK, &[])
    }

    fn segment(&self, inbound: bool, flags: u8, payload: &[u8]) -> Packet {
        let way = Way::new(self.local, self.remote, inbound);
        let options = if flags & SYN != 0 {
            &SYN_OPTIONS[..]
        } else {
            &[]
        };
        let length = 20 + options.len();
        let mut tcp = [0; 28];
        tcp[0..2].copy_from_slice(&way.from.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&way.to.port().to_be_bytes());
        tcp[4..8].copy_from_slice(&self.next[usize::from(inbound)].to_be_bytes());
        if flags & ACK != 0 {
            tcp[8..12].copy_from_slice(&self.next[usize::from(!inbound)].to_be_bytes());
        }
        tcp[12] = (length as u8 / 4) << 4;
        tcp[13] = flags;
        tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        tcp[20..length].copy_from_slice(options);
        let sum = checksum(way, TCP, &tcp[..length], payload);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut headers = ip(way, TCP, length + payload.len());
        headers.extend(&tcp[..length]);
        (inbound, headers)
    }
}

/// The header of IP for so many bytes behind it.
fn ip(way: Way, protocol: u8, length: usize) -> Vec<u8> {
    const HOPS: u8 = 64;
    match addresses(way) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0];
            header.extend(short(20 + length).to_be_bytes());
            // Not in fragments, and so without a number (RFC 6864, 4.1).
            header.extend([0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = fold(sum(0, &header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (from, to) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(short(length).to_be_bytes());
            header.extend([protocol, HOPS]);
            header.extend(in_six(from));
            header.extend(in_six(to));
            header
        }
    }
}

/// Both addresses; of one version if they can be.
fn addresses(way: Way) -> (IpAddr, IpAddr) {
    (way.from.ip().to_canonical(), way.to.ip().to_canonical())
}

fn in_six(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    }
}

/// The checksum of a transport's header and payload, with the pseudo-header (RFC 768, RFC 9293 3.1,
/// RFC 8200 8.1).
fn checksum(way: Way, protocol: u8, header: &[u8], payload: &[u8]) -> u16 {
    let length = header.len() + payload.len();
    let mut total = u64::from(protocol) + length as u64;
    total = match addresses(way) {
        (IpAddr::V4(from), IpAddr::V4(to)) => sum(sum(total, &from.octets()), &to.octets()),
        (from, to) => sum(sum(total, &in_six(from)), &in_six(to)),
    };
    // Every header is an even number of bytes.
    fold(sum(sum(total, header), payload))
}

/// Adds up 16-bit words (RFC 1071); an odd byte at the end is the upper half of one.
fn sum(total: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u64 = words
        .iter()
        .map(|&word| u64::from(u16::from_be_bytes(word)))
        .sum();
    let rest = rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    total + words + rest
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    !(total as u16)
}

fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
