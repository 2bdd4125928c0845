//! Parses the IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768) and TCP (RFC 9293) headers of captured
//! packets.
//!
//! Lengths come from the headers, never from the number of captured bytes. A header that
//! contradicts the packet's length, or that was not captured completely, makes the packet
//! malformed, as it does for the kernel. Checksums are not verified: too little of a datagram is
//! captured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::block::Frame;
use crate::arrival_times::SegmentHeader;

/// Length of the UDP header.
pub(super) const UDP_BYTES: usize = 8;
/// Length of the TCP header without options.
const TCP_BYTES: usize = 20;

const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// Maximum number of headers after the IPv6 header, that of UDP or TCP included. Packets with more
/// are malformed: RFC 8200, 4.1 defines seven extension headers.
const EXTENSIONS_MAX: usize = 8;

/// Result of parsing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    /// One datagram, or several of one sender that the packet combines.
    Udp(Udp<'a>),
    /// A fragment of a datagram.
    Fragment(Fragment<'a>),
    /// One segment, or several of one sender that the packet combines.
    Tcp(Tcp),
    /// Valid as far as it was parsed, but neither UDP nor TCP.
    Other,
    /// Too short, or inconsistent.
    Malformed,
}

/// A UDP packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Udp<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Captured part of the payload.
    pub(super) kept: &'a [u8],
    /// Length of the payload.
    pub(super) length: usize,
    /// Length of the IP and UDP headers in bytes.
    pub(super) overhead: usize,
}

/// A TCP packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) header: SegmentHeader,
}

/// Identity of the datagram to which a fragment belongs (RFC 791, 3.2; RFC 8200, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FragmentKey {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) id: u32,
}

/// A fragment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment<'a> {
    pub(super) key: FragmentKey,
    /// Offset in the datagram in bytes, counted from the UDP header.
    pub(super) offset: usize,
    /// Number of bytes of the datagram in the fragment.
    pub(super) length: usize,
    /// True for the last fragment.
    pub(super) last: bool,
    /// Captured bytes of the fragment.
    pub(super) kept: &'a [u8],
    /// Length of its IP headers in bytes.
    pub(super) overhead: usize,
    pub(super) interface: u32,
}

/// The fields of a UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UdpHeader {
    pub(super) from: u16,
    pub(super) to: u16,
    /// Length of header and payload.
    pub(super) length: usize,
}

impl UdpHeader {
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<UdpHeader> {
        let header: &[u8; UDP_BYTES] = bytes.first_chunk()?;
        Some(UdpHeader {
            from: u16::from_be_bytes([header[0], header[1]]),
            to: u16::from_be_bytes([header[2], header[3]]),
            length: usize::from(u16::from_be_bytes([header[4], header[5]])),
        })
    }
}

/// Returns a socket address; a link-local IPv6 address includes its interface, as in `recvfrom`.
#[inline(always)]
pub(super) fn socket_address(ip: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) => {
            let link_local = ip.is_unicast_link_local() || ip.octets()[..2] == [0xff, 0x02];
            let scope = if link_local { interface } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))
        }
        IpAddr::V4(_) => SocketAddr::new(ip, port),
    }
}

/// Destination port of a packet, as far as a short check can find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    /// This port, if the packet is valid.
    Known(u16),
    /// No port can be found.
    None,
    /// Any port is possible: the packet is a fragment, or has extension headers.
    Unknown,
}

/// Finds the destination port of the packet that begins with these bytes. [`Packet::read`] finds
/// the same port, unless the result is [`Port::Unknown`].
#[inline]
pub(super) fn destination_port(packet: &[u8]) -> Port {
    let port_at = |at: usize| match packet.get(at + 2..at + 4) {
        Some(bytes) => Port::Known(u16::from_be_bytes([bytes[0], bytes[1]])),
        None => Port::None,
    };
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let Some(header) = packet.first_chunk::<20>() else {
                return Port::None;
            };
            match (header[9], u16::from_be_bytes([header[6], header[7]])) {
                (UDP | TCP, fragment) if fragment & 0x3fff == 0 => {
                    port_at(usize::from(header[0] & 0xf) * 4)
                }
                (UDP, _) => Port::Unknown,
                _ => Port::None,
            }
        }
        Some(6) => match packet.get(6) {
            Some(&(UDP | TCP)) => port_at(40),
            Some(_) => Port::Unknown,
            None => Port::None,
        },
        _ => Port::None,
    }
}

impl<'a> Packet<'a> {
    /// Parses the packet of a frame.
    pub(super) fn read(frame: &Frame<'a>) -> Packet<'a> {
        let packet = match frame.packet.first().map(|byte| byte >> 4) {
            Some(4) => read_v4(frame),
            Some(6) => read_v6(frame),
            _ => None,
        };
        packet.unwrap_or(Packet::Malformed)
    }
}

/// Contents of an IPv4 header, and what follows it.
struct V4<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    header_length: usize,
    /// Field with the fragment's offset and flags.
    fragment: u16,
    kept: &'a [u8],
    /// Number of bytes after the header, captured or not.
    length: usize,
}

impl<'a> V4<'a> {
    /// Bits that only fragments have: more fragments, and the offset.
    const FRAGMENT: u16 = 0x3fff;

    #[inline(always)]
    fn read(frame: &Frame<'a>) -> Option<V4<'a>> {
        let packet = frame.packet;
        let header: &[u8; 20] = packet.first_chunk()?;
        let header_length = usize::from(header[0] & 0xf) * 4;
        let total = match u16::from_be_bytes([header[2], header[3]]) {
            // Longer than the field allows: Linux merges segments to such packets if configured
            // ("BIG TCP").
            0 if header[9] == TCP && frame.length > usize::from(u16::MAX) => frame.length,
            total => usize::from(total),
        };
        if header_length < 20 || total < header_length || total > frame.length {
            return None;
        }
        let address = |at: usize| {
            let [a, b, c, d] = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        };
        Some(V4 {
            from: address(12),
            to: address(16),
            protocol: header[9],
            header_length,
            fragment: u16::from_be_bytes([header[6], header[7]]),
            // Excludes the padding of a short Ethernet packet.
            kept: packet.get(header_length..packet.len().min(total))?,
            length: total - header_length,
        })
    }
}

/// Returns the datagram of an IPv4 packet that is not a fragment, as nearly all are. It is what
/// [`Packet::read`] returns, found sooner. `None` implies nothing about the packet.
#[inline(always)]
pub(super) fn whole_udp_v4<'a>(frame: &Frame<'a>) -> Option<Udp<'a>> {
    if frame.packet.first()? >> 4 != 4 {
        return None;
    }
    let ip = V4::read(frame)?;
    if ip.protocol != UDP || ip.fragment & V4::FRAGMENT != 0 {
        return None;
    }
    udp(frame, ip.from, ip.to, ip.kept, ip.length, ip.header_length)
}

#[inline(never)]
fn read_v4<'a>(frame: &Frame<'a>) -> Option<Packet<'a>> {
    let ip = V4::read(frame)?;
    let fragmented = ip.fragment & V4::FRAGMENT != 0;
    match (ip.protocol, fragmented) {
        (UDP, false) => {
            udp(frame, ip.from, ip.to, ip.kept, ip.length, ip.header_length).map(Packet::Udp)
        }
        (UDP, true) => {
            let id: &[u8; 2] = frame.packet.get(4..)?.first_chunk()?;
            Some(Packet::Fragment(Fragment {
                key: FragmentKey {
                    from: ip.from,
                    to: ip.to,
                    id: u32::from(u16::from_be_bytes(*id)),
                },
                offset: usize::from(ip.fragment & 0x1fff) * 8,
                length: ip.length,
                last: ip.fragment & 0x2000 == 0,
                kept: ip.kept,
                overhead: ip.header_length,
                interface: frame.interface,
            }))
        }
        (TCP, false) => tcp(frame, ip.from, ip.to, ip.kept, ip.length),
        _ => Some(Packet::Other),
    }
}

#[inline(never)]
fn read_v6<'a>(frame: &Frame<'a>) -> Option<Packet<'a>> {
    let packet = frame.packet;
    let header: &[u8; 40] = packet.first_chunk()?;
    let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if total > frame.length {
        return None;
    }
    let packet = &packet[..packet.len().min(total)];
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let (from, to) = (address(8), address(24));
    let mut next = header[6];
    let mut at = 40;
    for _ in 0..EXTENSIONS_MAX {
        let rest = packet.get(at..)?;
        match next {
            UDP => {
                let length = total.checked_sub(at)?;
                return udp(frame, from, to, rest, length, at).map(Packet::Udp);
            }
            TCP => return tcp(frame, from, to, rest, total.checked_sub(at)?),
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                let extension: &[u8; 2] = rest.first_chunk()?;
                next = extension[0];
                at += (usize::from(extension[1]) + 1) * 8;
            }
            FRAGMENT => {
                let extension: &[u8; 8] = rest.first_chunk()?;
                next = extension[0];
                at += 8;
                let place = u16::from_be_bytes([extension[2], extension[3]]);
                let (more, offset) = (place & 1 != 0, usize::from(place & 0xfff8));
                // A fragment that holds the whole datagram ("atomic", RFC 6946) is treated as
                // unfragmented.
                if !more && offset == 0 {
                    continue;
                }
                if next != UDP {
                    return Some(Packet::Other);
                }
                let [_, _, _, _, id @ ..] = *extension;
                return Some(Packet::Fragment(Fragment {
                    key: FragmentKey {
                        from,
                        to,
                        id: u32::from_be_bytes(id),
                    },
                    offset,
                    length: total.checked_sub(at)?,
                    last: !more,
                    kept: packet.get(at..)?,
                    overhead: at,
                    interface: frame.interface,
                }));
            }
            _ => return Some(Packet::Other),
        }
    }
    None
}

/// Parses UDP in the `length` bytes after the IP headers, of which `kept` were captured.
#[inline(always)]
fn udp<'a>(
    frame: &Frame<'a>,
    from: IpAddr,
    to: IpAddr,
    kept: &'a [u8],
    length: usize,
    ip_bytes: usize,
) -> Option<Udp<'a>> {
    let header = UdpHeader::read(kept)?;
    // Bytes beyond the UDP length are not part of the datagram.
    let payload = header.length.checked_sub(UDP_BYTES)?;
    if header.length > length {
        return None;
    }
    Some(Udp {
        from: socket_address(from, header.from, frame.interface),
        to: socket_address(to, header.to, frame.interface),
        kept: &kept[UDP_BYTES..kept.len().min(header.length)],
        length: payload,
        overhead: ip_bytes + UDP_BYTES,
    })
}

/// Parses TCP in the `length` bytes after the IP headers, of which `kept` were captured.
#[inline(never)]
fn tcp<'a>(
    frame: &Frame<'a>,
    from: IpAddr,
    to: IpAddr,
    kept: &'a [u8],
    length: usize,
) -> Option<Packet<'a>> {
    const SYN: u8 = 2;
    const RST: u8 = 4;
    let header: &[u8; TCP_BYTES] = kept.first_chunk()?;
    let header_length = usize::from(header[12] >> 4) * 4;
    if header_length < TCP_BYTES {
        return None;
    }
    let payload = length.checked_sub(header_length)?;
    let flags = header[13];
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(Packet::Tcp(Tcp {
        from: socket_address(from, port(0), frame.interface),
        to: socket_address(to, port(2), frame.interface),
        header: SegmentHeader {
            sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            // The payload of a reset is not part of the stream (RFC 9293, 3.5.3).
            length: if flags & RST == 0 { payload } else { 0 },
            syn: flags & SYN != 0,
        },
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An IPv4 packet with a UDP header to `port` and `payload`.
    pub(in crate::ring) fn v4(options: usize, port: u16, payload: &[u8]) -> Vec<u8> {
        let total = 20 + options + 8 + payload.len();
        let mut packet = vec![0; 20 + options];
        packet[0] = 0x45 + u8::try_from(options / 4).expect("at most 10 words");
        packet[2..4].copy_from_slice(&u16::try_from(total).expect("it fits").to_be_bytes());
        packet[9] = UDP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(header(port, payload.len()));
        packet.extend(payload);
        packet
    }

    fn v6(extensions: &[u8], port: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = extensions.first().copied().unwrap_or(UDP);
        packet[8..10].copy_from_slice(&[0xfe, 0x80]);
        packet[23] = 1;
        packet[39] = 2;
        for next in extensions
            .iter()
            .skip(1)
            .chain([&UDP])
            .take(extensions.len())
        {
            packet.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
        }
        packet.extend(header(port, payload.len()));
        packet.extend(payload);
        let length = u16::try_from(packet.len() - 40).expect("it fits");
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    pub(in crate::ring) fn header(port: u16, payload: usize) -> Vec<u8> {
        let length = u16::try_from(payload + 8).expect("it fits");
        [1234, port, length, 0].map(u16::to_be_bytes).concat()
    }

    /// An IPv4 packet with a TCP segment to `port` that has `payload` bytes of payload.
    pub(in crate::ring) fn tcp_v4(port: u16, sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
        let mut packet = v4(0, port, &[0; 24]);
        packet.truncate(20);
        packet[9] = TCP;
        packet.extend(tcp_header(port, sequence, flags));
        packet.resize(packet.len() + payload, 0);
        let total = u16::try_from(packet.len()).expect("it fits");
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet
    }

    /// A TCP header with 12 bytes of options.
    fn tcp_header(port: u16, sequence: u32, flags: u8) -> Vec<u8> {
        let mut header = [554, port].map(u16::to_be_bytes).concat();
        header.extend(sequence.to_be_bytes());
        header.extend([0, 0, 0, 0, 0x80, flags]);
        header.resize(32, 0);
        header
    }

    fn frame(packet: &[u8], length: usize) -> Frame<'_> {
        Frame {
            packet,
            length,
            realtime_nanos: 0,
            kind: 0,
            interface: 3,
            segment: None,
        }
    }

    fn udp_of<'a>(packet: &'a [u8], length: usize) -> Udp<'a> {
        match Packet::read(&frame(packet, length)) {
            Packet::Udp(udp) => udp,
            other => panic!("not UDP: {other:?}"),
        }
    }

    #[test]
    fn addresses_lengths_and_payload_are_read() {
        for options in [0, 4, 40] {
            let packet = v4(options, 5000, &[7; 100]);
            let udp = udp_of(&packet, packet.len());
            assert_eq!(udp.from, "10.0.0.1:1234".parse().expect("an address"));
            assert_eq!(udp.to, "10.0.0.2:5000".parse().expect("an address"));
            assert_eq!((udp.length, udp.kept), (100, &[7; 100][..]));
            assert_eq!(udp.overhead, 28 + options);
        }
        for extensions in [&[][..], &[0], &[60, 43], &[0, 60, 43, 44, 60]] {
            let packet = v6(extensions, 5000, &[7; 100]);
            let udp = udp_of(&packet, packet.len());
            // Only a link-local address needs its interface.
            assert_eq!(udp.from, "[fe80::1%3]:1234".parse().expect("an address"));
            assert_eq!(udp.to, "[::2]:5000".parse().expect("an address"));
            assert_eq!((udp.length, udp.kept), (100, &[7; 100][..]));
            assert_eq!(udp.overhead, 48 + 8 * extensions.len());
        }
    }

    #[test]
    fn lengths_come_from_headers_not_from_captured_bytes() {
        for whole in [v4(0, 5000, &[7; 1000]), v6(&[0], 5000, &[7; 1000])] {
            // Truncated; and padded at the end, as short Ethernet packets are.
            let udp = udp_of(&whole[..100], whole.len());
            assert_eq!((udp.length, udp.kept.len()), (1000, 100 - udp.overhead));
            let mut padded = whole.clone();
            padded.extend([9; 6]);
            let udp = udp_of(&padded, padded.len());
            assert_eq!((udp.length, udp.kept), (1000, &[7; 1000][..]));
        }
    }

    #[test]
    fn headers_that_contradict_the_packet_are_malformed() {
        let check = |packet: &[u8], length: usize| {
            let read = Packet::read(&frame(packet, length));
            assert_eq!(read, Packet::Malformed, "{packet:?}");
        };
        let change = |packet: &[u8], at: usize, value: u8| {
            let mut packet = packet.to_vec();
            packet[at] = value;
            packet
        };
        let (four, six) = (v4(0, 5000, &[1; 10]), v6(&[60], 5000, &[1; 10]));
        for packet in [&four, &six] {
            check(packet, packet.len() - 1);
            check(&change(packet, 0, 0x50), packet.len());
            for kept in 0..packet.len() - 10 {
                check(&packet[..kept], packet.len());
            }
        }
        check(&change(&four, 0, 0x44), four.len());
        check(&change(&four, 3, 19), four.len());
        // UDP length: less than its header, more than the packet.
        check(&change(&four, 25, 7), four.len());
        check(&change(&four, 25, 19), four.len());
        check(&change(&six, 48 + 5, 19), six.len());
        // Extension headers longer than the packet, and an endless chain of them.
        check(&change(&six, 41, 200), six.len());
        let endless = v6(&[60; 9], 5000, &[1; 10]);
        check(&endless, endless.len());
    }

    #[test]
    fn fragment_identity_and_offset_are_read() {
        let mut packet = v4(0, 5000, &[1; 100]);
        packet[4..8].copy_from_slice(&[0xab, 0xcd, 0x20, 0x02]);
        let Packet::Fragment(fragment) = Packet::read(&frame(&packet, packet.len())) else {
            panic!("it is a fragment");
        };
        assert_eq!((fragment.offset, fragment.length), (16, 108));
        assert_eq!((fragment.last, fragment.key.id), (false, 0xabcd));
        let mut packet = v6(&[44], 5000, &[1; 100]);
        packet[42..48].copy_from_slice(&[0x00, 0x10, 1, 2, 3, 4]);
        let Packet::Fragment(fragment) = Packet::read(&frame(&packet, packet.len())) else {
            panic!("it is a fragment");
        };
        assert_eq!((fragment.offset, fragment.length), (16, 108));
        assert_eq!((fragment.last, fragment.key.id), (true, 0x0102_0304));
        assert_eq!(fragment.overhead, 48);
        let other = v6(&[44, 60], 5000, &[1; 100]);
        let mut fragment = other.clone();
        fragment[43] = 1;
        let read = Packet::read(&frame(&fragment, fragment.len()));
        assert_eq!(read, Packet::Other);
    }

    fn tcp_of(packet: &[u8], length: usize) -> Tcp {
        match Packet::read(&frame(packet, length)) {
            Packet::Tcp(tcp) => tcp,
            other => panic!("not TCP: {other:?}"),
        }
    }

    #[test]
    fn segment_position_in_the_stream_is_read() {
        let whole = tcp_v4(5000, 0x8765_4321, 0x18, 1000);
        // Independent of the captured length and of padding.
        for packet in [
            whole.clone(),
            whole[..40].to_vec(),
            [&whole[..], &[0; 6]].concat(),
        ] {
            let tcp = tcp_of(&packet, whole.len().max(packet.len()));
            assert_eq!(tcp.from, "10.0.0.1:554".parse().expect("an address"));
            assert_eq!(tcp.to, "10.0.0.2:5000".parse().expect("an address"));
            let (sequence, length, syn) = (0x8765_4321, 1000, false);
            assert_eq!(
                tcp.header,
                SegmentHeader {
                    sequence,
                    length,
                    syn
                }
            );
        }
        let syn = tcp_v4(5000, 7, 0x12, 0);
        assert!(tcp_of(&syn, syn.len()).header.syn);
        let reset = tcp_v4(5000, 7, 0x14, 10);
        assert_eq!(tcp_of(&reset, reset.len()).header.length, 0);
        let mut six = v6(&[], 5000, &[]);
        six.truncate(40);
        six[4..6].copy_from_slice(&132u16.to_be_bytes());
        six[6] = TCP;
        six.extend(tcp_header(5000, 9, 0x10));
        let tcp = tcp_of(&six, 172);
        assert_eq!((tcp.header.sequence, tcp.header.length), (9, 100));
        // Merged by the kernel to more than IPv4 can express.
        let mut big = whole.clone();
        big[2..4].fill(0);
        assert_eq!(tcp_of(&big, 100_000).header.length, 100_000 - 52);
        assert_eq!(Packet::read(&frame(&big, 1052)), Packet::Malformed);
    }

    #[test]
    fn inconsistent_segments_are_malformed_and_fragments_other() {
        let whole = tcp_v4(5000, 7, 0x18, 100);
        for kept in [0, 19, 20, 39] {
            let read = Packet::read(&frame(&whole[..kept], whole.len()));
            assert_eq!(read, Packet::Malformed, "{kept}");
        }
        // A header shorter than the minimum, and one longer than the packet.
        for words in [0, 4, 15] {
            let mut packet = tcp_v4(5000, 7, 0x18, 0);
            packet[32] = words << 4;
            let read = Packet::read(&frame(&packet, packet.len()));
            assert_eq!(read, Packet::Malformed, "{words}");
        }
        for place in [0x20, 0x01] {
            let mut packet = whole.clone();
            packet[6] = place;
            assert_eq!(Packet::read(&frame(&packet, whole.len())), Packet::Other);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_consistently(mut packet in prop::collection::vec(any::<u8>(), 0..200), six: bool, more in 0usize..2000) {
            if let Some(first) = packet.first_mut() {
                *first = if six { 0x60 } else { 0x40 | (*first & 0xf) };
            }
            match Packet::read(&frame(&packet, packet.len() + more)) {
                Packet::Udp(udp) => {
                    prop_assert!(udp.kept.len() <= udp.length);
                    prop_assert!(udp.length + udp.overhead <= packet.len() + more);
                }
                Packet::Fragment(part) => prop_assert!(part.kept.len() <= part.length),
                Packet::Tcp(tcp) => prop_assert!(tcp.header.length <= packet.len() + more),
                Packet::Other | Packet::Malformed => {}
            }
        }

        /// Headers that are nearly valid, so that all variants occur.
        #[test]
        fn short_parsers_agree_with_the_full_one(
            (six, options, protocol) in (any::<bool>(), 0usize..6, prop::sample::select(vec![UDP, TCP, 0, 43, 44, 60, 99])),
            fragment in prop::sample::select(vec![0u16, 0x4000, 0x2000, 0x0001, 0x8000]),
            port: u16,
            payload in prop::collection::vec(any::<u8>(), 0..60),
            cut in 0usize..80,
            more in 0usize..50,
        ) {
            let mut packet = if six {
                v6(&[], port, &payload)
            } else {
                let mut packet = v4(options * 4, port, &payload);
                packet[6..8].copy_from_slice(&fragment.to_be_bytes());
                packet
            };
            packet[if six { 6 } else { 9 }] = protocol;
            let length = packet.len() + more;
            packet.truncate(packet.len().saturating_sub(cut.saturating_sub(40)));
            let frame = frame(&packet, length);
            let short = destination_port(&packet);
            match Packet::read(&frame) {
                Packet::Udp(udp) => {
                    prop_assert!(matches!(short, Port::Known(_) | Port::Unknown));
                    if let Port::Known(port) = short {
                        prop_assert_eq!(port, udp.to.port());
                    }
                    let whole = whole_udp_v4(&frame);
                    prop_assert_eq!(whole, (!six).then_some(udp));
                }
                Packet::Tcp(tcp) => prop_assert!(short == Port::Known(tcp.to.port()) || short == Port::Unknown),
                Packet::Fragment(_) => prop_assert_eq!(short, Port::Unknown),
                Packet::Other | Packet::Malformed => {}
            }
            if !matches!(Packet::read(&frame), Packet::Udp(_)) {
                prop_assert_eq!(whole_udp_v4(&frame), None);
            }
        }
    }
}
