//! Stamps: metadata of each datagram of streamgauge's multicast source, in a transport packet with
//! its own PID. It passes through anything that forwards packets and lets the receiver account for
//! each datagram.
//!
//! The packet contains one PES packet of `private_stream_2` (ISO/IEC 13818-1, 2.4.3.7). The
//! programme map lists it as private data (stream type 6), so decoders ignore it. Its data, in
//! network byte order:
//!
//! | bytes | content |
//! |--:|---|
//! | 4 | `SGTS` |
//! | 1 | version, 1 |
//! | 1 | number of transport packets in the datagram, including this one |
//! | 2, 16 | port and address of the group, an IPv4 address mapped into IPv6 (RFC 4291, 2.5.5.2) |
//! | 8 | source: a number that identifies a run of a source |
//! | 8 | number of the datagram, from 0 |
//! | 8 | planned send time, in nanoseconds since 1970 |
//! | 4 | CRC-32 (IEEE 802.3) of the datagram's other packets |
//!
//! The stamp is the first packet of the datagram.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::packet::{Header, PACKET_LEN, SYNC};

/// PID of stamps.
pub const STAMP_PID: u16 = 0x1ab5;

/// Stream type of stamps in the programme map: private data in PES packets (ISO/IEC 13818-1, table
/// 2-34).
pub const STAMP_STREAM_TYPE: u8 = 6;

const MAGIC: [u8; 4] = *b"SGTS";
const VERSION: u8 = 1;
/// Start code and stream id of `private_stream_2`.
const PES_START: [u8; 4] = [0, 0, 1, 0xbf];
/// Lengths of the packet header, and of start code and length of the PES packet.
const HEAD: usize = 4 + 6;
const DATA: usize = 52;

/// Content of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of transport packets in the datagram, including the stamp.
    pub packets: u8,
    /// Destination group.
    pub group: SocketAddr,
    /// Number of the source.
    pub source: u64,
    /// Number of the datagram, from 0.
    pub number: u64,
    /// Planned send time, in nanoseconds since 1970.
    pub due: u64,
    /// CRC-32 (IEEE 802.3) of the datagram's other packets.
    pub check: u32,
}

impl Stamp {
    /// Encodes the stamp as a packet. The continuity counter is derived from the number.
    pub fn write(&self) -> [u8; PACKET_LEN] {
        let mut packet = [0xff; PACKET_LEN];
        let [high, low] = STAMP_PID.to_be_bytes();
        packet[..4].copy_from_slice(&[SYNC, 0x40 | high, low, 0x10 | (self.number & 0x0f) as u8]);
        packet[4..8].copy_from_slice(&PES_START);
        let length = (PACKET_LEN - HEAD) as u16;
        packet[8..HEAD].copy_from_slice(&length.to_be_bytes());
        let address = match self.group.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let data = [
            &MAGIC[..],
            &[VERSION, self.packets],
            &self.group.port().to_be_bytes(),
            &address.octets(),
            &self.source.to_be_bytes(),
            &self.number.to_be_bytes(),
            &self.due.to_be_bytes(),
            &self.check.to_be_bytes(),
        ];
        let mut at = HEAD;
        for part in data {
            packet[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        packet
    }

    /// Decodes the stamp of a packet, or returns `None` if it has none.
    #[inline]
    pub fn read(header: &Header, packet: &[u8; PACKET_LEN]) -> Option<Stamp> {
        if header.pid != STAMP_PID {
            return None;
        }
        let data = header
            .payload_of(packet)
            .strip_prefix(&PES_START)?
            .get(2..)?;
        let data: &[u8; DATA] = data.first_chunk()?;
        let (magic, rest) = data.split_first_chunk::<4>()?;
        let (&[version, packets], rest) = rest.split_first_chunk()?;
        if *magic != MAGIC || version != VERSION {
            return None;
        }
        let (port, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk::<16>()?;
        let (source, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (due, rest) = rest.split_first_chunk()?;
        let check = rest.first_chunk()?;
        let address = IpAddr::V6(Ipv6Addr::from(*address)).to_canonical();
        Some(Stamp {
            packets,
            group: SocketAddr::new(address, u16::from_be_bytes(*port)),
            source: u64::from_be_bytes(*source),
            number: u64::from_be_bytes(*number),
            due: u64::from_be_bytes(*due),
            check: u32::from_be_bytes(*check),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(packet: &[u8; PACKET_LEN]) -> Option<Stamp> {
        Stamp::read(&Header::parse(packet).ok()?, packet)
    }

    fn stamp() -> Stamp {
        Stamp {
            packets: 7,
            group: "239.81.0.1:4056".parse().expect("an address"),
            source: 1,
            number: 19,
            due: 1_700_000_000_000_000_000,
            check: 0xdead_beef,
        }
    }

    #[test]
    fn stamp_is_a_private_pes_packet_that_fills_its_packet() {
        let packet = stamp().write();
        let header = Header::parse(&packet).expect("a packet");
        assert_eq!((header.pid, header.continuity), (STAMP_PID, 3));
        assert!(header.unit_start && header.has_payload && header.pcr.is_none());
        assert_eq!(packet[4..10], [0, 0, 1, 0xbf, 0, 178]);
        assert_eq!(packet[10..18], *b"SGTS\x01\x07\x0f\xd8");
        assert_eq!(packet[62..], [0xff; 126]);
    }

    #[test]
    fn other_packets_have_no_stamp() {
        let good = stamp().write();
        assert_eq!(read(&good), Some(stamp()));
        // Wrong PID, stream ID, magic number or version.
        for at in [2, 7, 10, 14] {
            let mut other = good;
            other[at] ^= 1;
            assert_eq!(read(&other), None, "{at}");
        }
        // The adaptation field leaves no room for the stamp.
        let mut short = good;
        short[3] |= 0x20;
        short[4] = 150;
        assert_eq!(read(&short), None);
    }

    proptest! {
        #[test]
        fn stamps_round_trip(
            packets: u8,
            v4: bool,
            address: [u8; 16],
            port: u16,
            source: u64,
            number: u64,
            due: u64,
            check: u32,
        ) {
            let ip: IpAddr = match v4 {
                true => IpAddr::from([address[0], address[1], address[2], address[3]]),
                // A mapped address equals the IPv4 address.
                false => IpAddr::from(address).to_canonical(),
            };
            let stamp = Stamp { packets, group: SocketAddr::new(ip, port), source, number, due, check };
            prop_assert_eq!(read(&stamp.write()), Some(stamp));
        }
    }
}
