//! Packetization of NAL units into RTP payloads, packetization mode 1 (RFC 6184).

use bytes::Bytes;

/// NAL unit type of an aggregation packet (RFC 6184, 5.7.1).
const STAP_A: u8 = 24;
/// NAL unit type of a fragment (RFC 6184, 5.8).
const FU_A: u8 = 28;

/// Bytes of RTP payload of a NAL unit of `length` bytes with at most `mtu` bytes per packet.
pub(super) fn payload_bytes(length: usize, mtu: usize) -> usize {
    if length <= mtu {
        return length;
    }
    length - 1 + 2 * (length - 1).div_ceil(mtu - 2)
}

/// Returns the length of the longest NAL unit that takes at most `payload` bytes.
pub(super) fn longest_within(payload: usize, mtu: usize) -> usize {
    if payload <= mtu {
        return payload;
    }
    let fragments = payload.div_ceil(mtu);
    let mut length = (payload - 2 * (fragments - 1) + 1).max(mtu);
    while payload_bytes(length, mtu) > payload {
        length -= 1;
    }
    length
}

/// Number of NAL units, from the first on, that share a packet: as many as fit.
fn sharing(nals: &[&[u8]], mtu: usize) -> usize {
    (1..=nals.len())
        .rev()
        .find(|&count| count == 1 || aggregate_bytes(&nals[..count]) <= mtu)
        .unwrap_or(0)
}

/// Bytes of RTP payload that [`cut`] produces for a picture.
pub(super) fn cut_bytes(mut nals: &[&[u8]], mtu: usize) -> usize {
    let mut bytes = 0;
    while !nals.is_empty() {
        let (first, rest) = nals.split_at(sharing(nals, mtu));
        bytes += match first {
            [nal] => payload_bytes(nal.len(), mtu),
            several => aggregate_bytes(several),
        };
        nals = rest;
    }
    bytes
}

/// Splits the NAL units of a picture into packets: those that fit share one, those that are too
/// long for one are fragmented.
pub fn cut(mut nals: &[&[u8]], mtu: usize, packets: &mut Vec<Bytes>) {
    while !nals.is_empty() {
        let (first, rest) = nals.split_at(sharing(nals, mtu));
        match first {
            [nal] => single_or_fragments(nal, mtu, packets),
            several => packets.push(aggregate(several)),
        }
        nals = rest;
    }
}

/// Bytes of RTP payload of an aggregation packet.
pub(crate) fn aggregate_bytes(nals: &[&[u8]]) -> usize {
    1 + nals.iter().map(|nal| 2 + nal.len()).sum::<usize>()
}

/// Combines several small NAL units into one packet (RFC 6184, 5.7.1).
pub fn aggregate(nals: &[&[u8]]) -> Bytes {
    let mut payload = Vec::with_capacity(aggregate_bytes(nals));
    let importance = nals.iter().map(|nal| nal[0] & 0x60).max().unwrap_or(0);
    payload.push(importance | STAP_A);
    for nal in nals {
        let length = u16::try_from(nal.len()).expect("shorter than a packet");
        payload.extend_from_slice(&length.to_be_bytes());
        payload.extend_from_slice(nal);
    }
    payload.into()
}

/// Puts a NAL unit into one packet, or into fragments if it is longer than `mtu` (RFC 6184, 5.8).
pub fn single_or_fragments(nal: &[u8], mtu: usize, packets: &mut Vec<Bytes>) {
    if nal.len() <= mtu {
        packets.push(Bytes::copy_from_slice(nal));
        return;
    }
    let (header, rest) = (nal[0], &nal[1..]);
    let count = rest.len().div_ceil(mtu - 2);
    for (index, fragment) in rest.chunks(mtu - 2).enumerate() {
        let start = u8::from(index == 0) << 7;
        let end = u8::from(index + 1 == count) << 6;
        let mut payload = Vec::with_capacity(fragment.len() + 2);
        payload.push(header & 0xe0 | FU_A);
        payload.push(start | end | header & 0x1f);
        payload.extend_from_slice(fragment);
        packets.push(payload.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mediagen::video::MTU_MIN;
    use proptest::prelude::*;

    #[test]
    fn parameter_sets_share_a_packet() {
        assert_eq!(
            aggregate(&[&[0x67, 1, 2], &[0x48, 3]])[..],
            [0x78, 0, 3, 0x67, 1, 2, 0, 2, 0x48, 3]
        );
    }

    /// Extracts the NAL units from packets.
    fn unpack(packets: &[Bytes]) -> Vec<Vec<u8>> {
        let mut nals: Vec<Vec<u8>> = Vec::new();
        for packet in packets {
            match packet[0] & 0x1f {
                STAP_A => {
                    let mut rest = &packet[1..];
                    while let [high, low, after @ ..] = rest {
                        let length = usize::from(*high) << 8 | usize::from(*low);
                        nals.push(after[..length].to_vec());
                        rest = &after[length..];
                    }
                }
                FU_A => {
                    if packet[1] & 0x80 != 0 {
                        nals.push(vec![packet[0] & 0xe0 | packet[1] & 0x1f]);
                    }
                    nals.last_mut().unwrap().extend_from_slice(&packet[2..]);
                }
                _ => nals.push(packet.to_vec()),
            }
        }
        nals
    }

    proptest! {
        #[test]
        fn picture_is_split_into_as_few_packets_as_possible(
            lengths in proptest::collection::vec(prop_oneof![2usize..60, 2usize..3000], 1..6),
            mtu in MTU_MIN..1500,
        ) {
            let nals: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0x61; length]).collect();
            let nals: Vec<&[u8]> = nals.iter().map(Vec::as_slice).collect();
            let mut packets = Vec::new();
            cut(&nals, mtu, &mut packets);
            prop_assert!(packets.iter().all(|packet| packet.len() <= mtu));
            prop_assert_eq!(packets.iter().map(Bytes::len).sum::<usize>(), cut_bytes(&nals, mtu));
            prop_assert_eq!(unpack(&packets), nals.clone());
            if aggregate_bytes(&nals) <= mtu {
                prop_assert_eq!(packets.len(), 1);
            }
        }

        #[test]
        fn fragments_reassemble_to_the_unit(
            nal in proptest::collection::vec(any::<u8>(), 1..5000),
            mtu in MTU_MIN..1500,
        ) {
            let mut packets = Vec::new();
            single_or_fragments(&nal, mtu, &mut packets);
            prop_assert_eq!(
                packets.iter().map(Bytes::len).sum::<usize>(),
                payload_bytes(nal.len(), mtu)
            );
            prop_assert!(packets.iter().all(|packet| packet.len() <= mtu));
            if packets.len() > 1 {
                prop_assert_eq!(packets[0][1] & 0xc0, 0x80);
                prop_assert_eq!(packets.last().unwrap()[1] & 0xc0, 0x40);
                let mut again = vec![packets[0][0] & 0xe0 | packets[0][1] & 0x1f];
                packets.iter().for_each(|packet| again.extend_from_slice(&packet[2..]));
                prop_assert_eq!(again, nal);
            } else {
                prop_assert_eq!(&packets[0][..], &nal[..]);
            }
        }

        #[test]
        fn longest_unit_fits_the_budget(payload in 2usize..100_000, mtu in MTU_MIN..1500) {
            let length = longest_within(payload, mtu);
            prop_assert!(payload_bytes(length, mtu) <= payload);
            prop_assert!(payload_bytes(length + 1, mtu) > payload);
        }
    }
}
