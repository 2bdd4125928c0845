//! Transport packets: header and adaptation field (ISO/IEC 13818-1, 2.4.3.2 to 2.4.3.5).

/// Bytes of a packet.
pub const PACKET_LEN: usize = 188;

/// The first byte of each packet.
pub const SYNC: u8 = 0x47;

/// The PID of the programme association table.
pub const PAT_PID: u16 = 0;

/// PID of null packets, which fill a stream up to its bit rate.
pub const NULL_PID: u16 = 0x1fff;

/// Ticks per second of a programme clock reference.
pub const PCR_HZ: u64 = 27_000_000;

/// Modulus of a programme clock reference: 33 bits of 90 kHz, with 300 parts each.
pub const PCR_WRAP: u64 = (1 << 33) * 300;

/// Fields of a packet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True if the packet was damaged before it was modulated or sent (transport_error_indicator).
    pub damaged: bool,
    /// True if a PES packet or a section begins in it (payload_unit_start_indicator).
    pub unit_start: bool,
    /// PID: identifies the elementary stream or table.
    pub pid: u16,
    /// True if the payload is scrambled (transport_scrambling_control).
    pub scrambled: bool,
    /// Continuity counter: counts the packets of a PID that have payload, modulo 16.
    pub continuity: u8,
    /// True if the packet has payload.
    pub has_payload: bool,
    /// True if the continuity counter and the clock may jump here (discontinuity_indicator).
    pub discontinuity: bool,
    /// True if a decoder can begin here (random_access_indicator).
    pub random_access: bool,
    /// Programme clock reference in ticks of 27 MHz, below [`PCR_WRAP`].
    pub pcr: Option<u64>,
    /// Offset of the payload; [`PACKET_LEN`] if there is none.
    pub payload: u8,
}

/// Reason why bytes are not a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first byte is not [`SYNC`].
    NoSync,
    /// The packet has neither payload nor adaptation field, which is reserved (2.4.3.3).
    Reserved,
    /// The adaptation field is longer than the packet, or too short for its flags.
    Adaptation,
}

impl Header {
    /// Parses the header of a packet, from its first 12 bytes at most.
    ///
    /// # Errors
    /// The packet is [`Malformed`].
    #[inline]
    pub fn parse(packet: &[u8; PACKET_LEN]) -> Result<Header, Malformed> {
        let [sync, second, third, fourth, length, flags, ..] = *packet;
        if sync != SYNC {
            return Err(Malformed::NoSync);
        }
        let mut header = Header {
            damaged: second & 0x80 != 0,
            unit_start: second & 0x40 != 0,
            pid: u16::from_be_bytes([second & 0x1f, third]),
            scrambled: fourth & 0xc0 != 0,
            continuity: fourth & 0x0f,
            has_payload: fourth & 0x10 != 0,
            discontinuity: false,
            random_access: false,
            pcr: None,
            payload: 4,
        };
        if fourth & 0x20 == 0 {
            return match header.has_payload {
                true => Ok(header),
                false => Err(Malformed::Reserved),
            };
        }
        let longest = if header.has_payload { 182 } else { 183 };
        if length > longest {
            return Err(Malformed::Adaptation);
        }
        header.payload = if header.has_payload { 5 + length } else { 188 };
        if length > 0 {
            header.discontinuity = flags & 0x80 != 0;
            header.random_access = flags & 0x40 != 0;
            if flags & 0x10 != 0 {
                if length < 7 {
                    return Err(Malformed::Adaptation);
                }
                let [.., a, b, c, d, e, f] = *packet.first_chunk::<12>().expect("it is longer");
                let base = u64::from(u32::from_be_bytes([a, b, c, d])) << 1 | u64::from(e >> 7);
                let extension = u64::from(e & 1) << 8 | u64::from(f);
                header.pcr = Some((base * 300 + extension) % PCR_WRAP);
            }
        }
        Ok(header)
    }

    /// Returns the payload of the packet with this header; empty if there is none.
    pub fn payload_of<'a>(&self, packet: &'a [u8; PACKET_LEN]) -> &'a [u8] {
        packet.get(usize::from(self.payload)..).unwrap_or_default()
    }
}

/// Encodes a programme clock reference as six bytes of an adaptation field (2.4.3.4).
pub fn write_pcr(pcr: u64) -> [u8; 6] {
    let pcr = pcr % PCR_WRAP;
    let (base, extension) = (pcr / 300, pcr % 300);
    let [.., a, b, c, d] = (base >> 1).to_be_bytes();
    let [.., high, low] = extension.to_be_bytes();
    // The six reserved bits in between are ones.
    let middle = (base & 1) as u8;
    [a, b, c, d, middle << 7 | 0x7e | high & 1, low]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(head: &[u8]) -> [u8; PACKET_LEN] {
        let mut packet = [0xff; PACKET_LEN];
        packet[..head.len()].copy_from_slice(head);
        packet
    }

    #[test]
    fn headers_are_parsed() {
        let plain = Header::parse(&packet(&[0x47, 0x41, 0x00, 0x1a])).expect("a header");
        assert!(plain.unit_start && plain.has_payload && !plain.damaged && !plain.scrambled);
        assert_eq!((plain.pid, plain.continuity, plain.payload), (0x100, 10, 4));
        assert_eq!(plain.payload_of(&packet(&[])).len(), 184);
        // A clock reference, random access, and a byte of stuffing.
        let mut bytes = vec![0x47, 0x01, 0x00, 0x3f, 8, 0x50];
        bytes.extend(write_pcr(PCR_WRAP - 1));
        let clock = Header::parse(&packet(&bytes)).expect("a header");
        assert_eq!((clock.pcr, clock.payload), (Some(PCR_WRAP - 1), 13));
        assert!(clock.random_access && !clock.discontinuity);
        // An adaptation field alone, and an empty one.
        let alone = Header::parse(&packet(&[0x47, 0x01, 0x00, 0x20, 183, 0x80])).expect("a header");
        assert!(alone.discontinuity && !alone.has_payload);
        assert_eq!(alone.payload_of(&packet(&[])), [0; 0]);
        let empty = Header::parse(&packet(&[0x47, 0x9f, 0xff, 0xf0, 0, 0xff])).expect("a header");
        assert_eq!((empty.payload, empty.pid, empty.pcr), (5, NULL_PID, None));
        assert!(empty.damaged && empty.scrambled && !empty.random_access);
    }

    #[test]
    fn malformed_packets_are_refused() {
        let parse = |head: &[u8]| Header::parse(&packet(head));
        assert_eq!(parse(&[0x46]), Err(Malformed::NoSync));
        assert_eq!(parse(&[0x47, 0, 0, 0]), Err(Malformed::Reserved));
        assert_eq!(parse(&[0x47, 0, 0, 0x30, 183]), Err(Malformed::Adaptation));
        assert_eq!(parse(&[0x47, 0, 0, 0x20, 184]), Err(Malformed::Adaptation));
        assert_eq!(
            parse(&[0x47, 0, 0, 0x30, 6, 0x10]),
            Err(Malformed::Adaptation)
        );
    }

    proptest! {
        #[test]
        fn clock_references_round_trip(pcr in 0..PCR_WRAP) {
            let mut bytes = vec![0x47, 0, 0, 0x30, 7, 0x10];
            bytes.extend(write_pcr(pcr));
            let header = Header::parse(&packet(&bytes)).expect("a header");
            prop_assert_eq!(header.pcr, Some(pcr));
        }

        #[test]
        fn payload_of_any_bytes_is_within_the_packet(bytes in prop::collection::vec(any::<u8>(), PACKET_LEN)) {
            let mut packet: [u8; PACKET_LEN] = bytes.try_into().expect("it is as long");
            packet[0] = SYNC;
            if let Ok(header) = Header::parse(&packet) {
                prop_assert!(usize::from(header.payload) <= PACKET_LEN);
                prop_assert_eq!(header.payload_of(&packet).is_empty(), usize::from(header.payload) == PACKET_LEN);
                prop_assert!(header.pcr.is_none_or(|pcr| pcr < PCR_WRAP));
            }
        }
    }
}
