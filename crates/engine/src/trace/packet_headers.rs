//! IP, UDP and TCP headers for a capture, which the traced client never sees.
//!
//! Addresses, payload bytes, their order and their times are real. TCP segment boundaries, sequence
//! numbers and acknowledgements are synthetic: each read or write becomes one segment (or several
//! if it exceeds an IP packet), and sequence numbers count bytes from 0.

use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Maximum payload of one segment in bytes. With all headers it fits into an IP packet.
pub(super) const SEGMENT_BYTES: usize = 65_000;

/// TCP options of the SYN segments: an MSS of 65,495 bytes and a window scale of 14. The window is
/// then one GiB and never looks full.
const SYN_OPTIONS: [u8; 8] = [2, 4, 0xff, 0xd7, 3, 3, 14, 1];

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowDirection {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
}

impl FlowDirection {
    /// From `remote` to `local` if `inbound`, otherwise from `local` to `remote`.
    pub(super) fn new(local: SocketAddr, remote: SocketAddr, inbound: bool) -> FlowDirection {
        let (from, to) = match inbound {
            true => (remote, local),
            false => (local, remote),
        };
        FlowDirection { from, to }
    }
}

/// IP and UDP headers of a datagram of `length` bytes, of which `bytes` are known.
pub(super) fn datagram(direction: FlowDirection, bytes: &[u8], length: usize) -> Vec<u8> {
    let mut udp = [0; 8];
    udp[0..2].copy_from_slice(&direction.from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&direction.to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&short(8 + length).to_be_bytes());
    // 0 means no checksum (RFC 768). A checksum needs the whole payload.
    if bytes.len() == length {
        let sum = match checksum(direction, UDP, &udp, bytes) {
            0 => 0xffff,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    let mut headers = ip(direction, UDP, 8 + length);
    headers.extend(udp);
    headers
}

/// State of a TCP connection in the capture.
#[derive(Debug)]
pub(super) struct TcpConnection {
    local: SocketAddr,
    remote: SocketAddr,
    /// Next sequence numbers: outbound, inbound.
    next: [u32; 2],
    established: bool,
}

/// A packet without its payload: whether it is inbound, and its headers.
pub(super) type Packet = (bool, Vec<u8>);

impl TcpConnection {
    /// Opens a connection. Returns its SYN segment as well.
    pub(super) fn open(local: SocketAddr, remote: SocketAddr) -> (TcpConnection, Packet) {
        let mut conversation = TcpConnection {
            local,
            remote,
            next: [0; 2],
            established: false,
        };
        let syn = conversation.segment(false, SYN, &[]);
        conversation.next[0] = 1;
        (conversation, syn)
    }

    /// Returns the rest of the handshake, or nothing if it was made before.
    pub(super) fn establish(&mut self) -> Vec<Packet> {
        if self.established {
            return Vec::new();
        }
        self.established = true;
        let answer = self.segment(true, SYN | ACK, &[]);
        self.next[1] = 1;
        vec![answer, self.segment(false, ACK, &[])]
    }

    /// Leaves a gap for bytes that were not kept.
    pub(super) fn skip(&mut self, inbound: bool, bytes: u64) {
        let next = &mut self.next[usize::from(inbound)];
        // Sequence numbers wrap around (RFC 9293, 3.4).
        *next = next.wrapping_add(bytes as u32);
    }

    /// Headers of a segment with at most [`SEGMENT_BYTES`] of payload. The last segment of a read
    /// or write has PSH set.
    pub(super) fn bytes(&mut self, inbound: bool, bytes: &[u8], last: bool) -> Packet {
        let push = if last { PSH } else { 0 };
        let packet = self.segment(inbound, ACK | push, bytes);
        self.skip(inbound, bytes.len() as u64);
        packet
    }

    /// One side closes its direction (FIN).
    pub(super) fn finish(&mut self, inbound: bool) -> Packet {
        let packet = self.segment(inbound, FIN | ACK, &[]);
        self.skip(inbound, 1);
        packet
    }

    /// One side resets or refuses the connection (RST).
    pub(super) fn reset(&mut self, inbound: bool) -> Packet {
        self.segment(inbound, RST | ACK, &[])
    }

    fn segment(&self, inbound: bool, flags: u8, payload: &[u8]) -> Packet {
        let direction = FlowDirection::new(self.local, self.remote, inbound);
        let options = if flags & SYN != 0 {
            &SYN_OPTIONS[..]
        } else {
            &[]
        };
        let length = 20 + options.len();
        let mut tcp = [0; 28];
        tcp[0..2].copy_from_slice(&direction.from.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&direction.to.port().to_be_bytes());
        tcp[4..8].copy_from_slice(&self.next[usize::from(inbound)].to_be_bytes());
        if flags & ACK != 0 {
            tcp[8..12].copy_from_slice(&self.next[usize::from(!inbound)].to_be_bytes());
        }
        tcp[12] = (length as u8 / 4) << 4;
        tcp[13] = flags;
        tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        tcp[20..length].copy_from_slice(options);
        let sum = checksum(direction, TCP, &tcp[..length], payload);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut headers = ip(direction, TCP, length + payload.len());
        headers.extend(&tcp[..length]);
        (inbound, headers)
    }
}

/// IP header in front of `length` bytes.
fn ip(direction: FlowDirection, protocol: u8, length: usize) -> Vec<u8> {
    const HOPS: u8 = 64;
    match addresses(direction) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0];
            header.extend(short(20 + length).to_be_bytes());
            // Not fragmented, so the identification is 0 (RFC 6864, 4.1).
            header.extend([0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = finish_checksum(sum(0, &header));
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

/// Both addresses, as IPv4 if possible.
fn addresses(direction: FlowDirection) -> (IpAddr, IpAddr) {
    (
        direction.from.ip().to_canonical(),
        direction.to.ip().to_canonical(),
    )
}

fn in_six(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    }
}

/// Checksum of a transport header and its payload, with the pseudo-header (RFC 768, RFC 9293 3.1,
/// RFC 8200 8.1).
fn checksum(direction: FlowDirection, protocol: u8, header: &[u8], payload: &[u8]) -> u16 {
    let length = header.len() + payload.len();
    let mut total = u64::from(protocol) + length as u64;
    total = match addresses(direction) {
        (IpAddr::V4(from), IpAddr::V4(to)) => sum(sum(total, &from.octets()), &to.octets()),
        (from, to) => sum(sum(total, &in_six(from)), &in_six(to)),
    };
    // Every header has an even number of bytes.
    finish_checksum(sum(sum(total, header), payload))
}

/// Adds 16-bit words (RFC 1071). An odd byte at the end is the upper half of a word.
fn sum(total: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u64 = words
        .iter()
        .map(|&word| u64::from(u16::from_be_bytes(word)))
        .sum();
    let rest = rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    total + words + rest
}

fn finish_checksum(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    !(total as u16)
}

fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
