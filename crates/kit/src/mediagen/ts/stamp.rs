//! Stamps: metadata of each datagram of streamgauge's multicast source, in a transport packet with
//! its own PID. It passes through anything that forwards packets and lets the receiver account for
//! each datagram.
//!
//! The packet has no payload. Its content is the private data of its adaptation field (ISO/IEC
//! 13818-1, 2.4.3.4), so it has no decoding time that a server could miss, and its continuity
//! counter stays. The programme map lists the PID as private data (stream type 6), so decoders
//! ignore it. The data, in network byte order:
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

use super::packet::{PACKET_LEN, SYNC};

/// PID of stamps.
pub const STAMP_PID: u16 = 0x1ab5;

/// Stream type of stamps in the programme map: private data in PES packets (ISO/IEC 13818-1, table
/// 2-34).
pub const STAMP_STREAM_TYPE: u8 = 6;

const MAGIC: [u8; 4] = *b"SGTS";
const VERSION: u8 = 1;
const DATA: usize = 52;
/// First bytes of the packet: its header, without payload, and that of an adaptation field that
/// fills the packet and has nothing but private data.
const HEAD: [u8; 7] = {
    let [high, low] = STAMP_PID.to_be_bytes();
    [
        SYNC,
        high,
        low,
        0x20,
        (PACKET_LEN - 5) as u8,
        0x02,
        DATA as u8,
    ]
};

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
    /// Encodes the stamp as a packet.
    pub fn write(&self) -> [u8; PACKET_LEN] {
        let mut packet = [0xff; PACKET_LEN];
        packet[..HEAD.len()].copy_from_slice(&HEAD);
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
        let mut at = HEAD.len();
        for part in data {
            packet[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        packet
    }

    /// Decodes the stamp of a packet, or returns `None` if it has none.
    #[inline]
    pub fn read(packet: &[u8; PACKET_LEN]) -> Option<Stamp> {
        // A relay may set the priority or the counter.
        let mut head = *packet.first_chunk()?;
        head[1] &= !0x20;
        head[3] &= 0xf0;
        if head != HEAD {
            return None;
        }
        let data: &[u8; DATA] = packet[HEAD.len()..].first_chunk()?;
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
    use crate::mediagen::ts::packet::Header;

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
    fn stamp_is_the_private_data_of_a_packet_without_payload() {
        let packet = stamp().write();
        let header = Header::parse(&packet).expect("a packet");
        assert_eq!((header.pid, header.continuity), (STAMP_PID, 0));
        assert!(!header.unit_start && !header.has_payload && header.pcr.is_none());
        assert!(!header.discontinuity && !header.random_access);
        assert_eq!(packet[4..7], [183, 0x02, 52]);
        assert_eq!(packet[7..15], *b"SGTS\x01\x07\x0f\xd8");
        assert_eq!(packet[59..], [0xff; 129]);
    }

    #[test]
    fn other_packets_have_no_stamp() {
        let good = stamp().write();
        assert_eq!(Stamp::read(&good), Some(stamp()));
        // Damaged, wrong PID, payload, length, flags, length of the data, magic number or version.
        let wrong = [
            (1, 0x80),
            (2, 1),
            (3, 0x10),
            (4, 1),
            (5, 1),
            (6, 1),
            (7, 1),
            (11, 1),
        ];
        for (at, bit) in wrong {
            let mut other = good;
            other[at] ^= bit;
            assert_eq!(Stamp::read(&other), None, "{at}");
        }
        // Another priority and counter, as relays may set them.
        for (at, bit) in [(1, 0x20), (3, 0x05)] {
            let mut other = good;
            other[at] ^= bit;
            assert_eq!(Stamp::read(&other), Some(stamp()), "{at}");
        }
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
            prop_assert_eq!(Stamp::read(&stamp.write()), Some(stamp));
        }
    }
}
