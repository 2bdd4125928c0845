//! RTP header extensions (RFC 8285). SRTP does not encrypt them.

use kit::media::rtp::header::FIXED_LENGTH;
use session::PacketHeader;

/// Extension bit in the first byte of a packet (RFC 3550, 5.1).
pub const EXTENSION_BIT: u8 = 0x10;

/// Profile of extensions with one-byte element headers (RFC 8285, 4.2), and upper 12 bits of the
/// profile with two-byte headers (4.3).
const ONE_BYTE: u16 = 0xbede;
const TWO_BYTE: u16 = 0x1000;

/// ID that ends a list of elements with one-byte headers.
const END_ID: u8 = 15;

/// Returns the data of the element with that ID. The beginning of the packet is sufficient. Returns
/// `None` if the element is absent or truncated.
pub fn find_element(packet: &[u8], id: u8) -> Option<&[u8]> {
    let first = *packet.first()?;
    if first & EXTENSION_BIT == 0 {
        return None;
    }
    let begin = FIXED_LENGTH + 4 * usize::from(first & 0x0f);
    let (head, rest) = packet.get(begin..)?.split_first_chunk::<4>()?;
    let [p0, p1, l0, l1] = *head;
    let profile = u16::from_be_bytes([p0, p1]);
    let length = 4 * usize::from(u16::from_be_bytes([l0, l1]));
    let mut rest = &rest[..rest.len().min(length)];
    loop {
        let (&head, after) = rest.split_first()?;
        let (number, length, after) = match (profile, head) {
            // Padding.
            (_, 0) => {
                rest = after;
                continue;
            }
            (ONE_BYTE, _) if head >> 4 == END_ID => return None,
            (ONE_BYTE, _) => (head >> 4, usize::from(head & 0x0f) + 1, after),
            (profile, number) if profile & 0xfff0 == TWO_BYTE => {
                let (&length, after) = after.split_first()?;
                (number, usize::from(length), after)
            }
            _ => return None,
        };
        let (data, after) = after.split_at_checked(length)?;
        if number == id {
            return Some(data);
        }
        rest = after;
    }
}

/// Returns the header with an additional element of one or two bytes. Returns `None` if there is no
/// room, or if the existing extension has another format. `header` is an RTP header without
/// payload.
pub fn add_element<const LENGTH: usize>(
    header: &PacketHeader,
    id: u8,
    data: [u8; LENGTH],
) -> Option<PacketHeader> {
    const { assert!(LENGTH == 1 || LENGTH == 2, "an element fills a word") };
    let &first = header.first()?;
    let begin = FIXED_LENGTH + 4 * usize::from(first & 0x0f);
    let length = LENGTH as u8;
    // A one-byte element is padded.
    let (one, two) = (data[0], data.get(1).copied().unwrap_or(0));
    let element = |profile: u16| match profile {
        ONE_BYTE => {
            Some([id << 4 | (length - 1), one, two, 0]).filter(|_| (1..END_ID).contains(&id))
        }
        _ => Some([id, length, one, two]).filter(|_| id > 0),
    };
    if first & EXTENSION_BIT == 0 {
        let profile = if id < END_ID { ONE_BYTE } else { TWO_BYTE };
        let element = element(profile)?;
        let fits = begin == header.len() && header.len() + 8 <= PacketHeader::CAPACITY;
        let added = || {
            PacketHeader::EMPTY
                .append(&[first | EXTENSION_BIT])
                .append(&header[1..])
                .append(&profile.to_be_bytes())
                .append(&[0, 1])
                .append(&element)
        };
        return fits.then(added);
    }
    let &[p0, p1, l0, l1] = header.get(begin..)?.first_chunk()?;
    let profile = u16::from_be_bytes([p0, p1]);
    let words = u16::from_be_bytes([l0, l1]);
    let is_known = profile == ONE_BYTE || profile & 0xfff0 == TWO_BYTE;
    let whole = begin + 4 + 4 * usize::from(words) == header.len();
    if !is_known || !whole || header.len() + 4 > PacketHeader::CAPACITY {
        return None;
    }
    let added = PacketHeader::EMPTY
        .append(&header[..begin + 2])
        .append(&(words + 1).to_be_bytes())
        .append(&header[begin + 4..])
        .append(&element(profile)?);
    Some(added)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Returns a packet with these elements, with one-byte or two-byte element headers.
    fn write(sources: usize, long: bool, elements: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (number, data) in elements {
            match long {
                true => body.extend([*number, data.len() as u8]),
                false => body.push(number << 4 | (data.len() as u8 - 1)),
            }
            body.extend(data);
            body.push(0);
        }
        body.resize(body.len().next_multiple_of(4), 0);
        let mut packet = vec![0x80 | EXTENSION_BIT | sources as u8, 96];
        packet.resize(FIXED_LENGTH + 4 * sources, 7);
        packet.extend(if long { [0x10, 0x00] } else { [0xbe, 0xde] });
        packet.extend((body.len() as u16 / 4).to_be_bytes());
        packet.extend(body);
        packet
    }

    proptest! {
        #[test]
        fn written_elements_are_found(
            sources in 0_usize..4,
            long: bool,
            elements in vec((1_u8..15, vec(any::<u8>(), 1..17)), 0..6),
            sought in 1_u8..15,
            kept in 0_usize..100,
        ) {
            let packet = write(sources, long, &elements);
            let first = elements.iter().find(|(number, _)| *number == sought);
            prop_assert_eq!(find_element(&packet, sought), first.map(|(_, data)| &data[..]));
            // A truncated packet yields the same data or `None`.
            let cut = find_element(&packet[..packet.len().min(kept)], sought);
            prop_assert!(cut.is_none() || cut == find_element(&packet, sought));
        }

        #[test]
        fn added_element_is_found_and_others_stay(
            sources in 0_usize..2,
            extended: bool,
            long: bool,
            own in (1_u8..15, vec(any::<u8>(), 1..5)),
            id in 1_u8..=255,
            data: [u8; 2],
            short: bool,
        ) {
            let packet = match extended {
                true => write(sources, long, std::slice::from_ref(&own)),
                false => [&[0x80 | sources as u8][..], &[5; 11], &[6; 4].repeat(sources)].concat(),
            };
            let header = PacketHeader::EMPTY.append(&packet);
            // An ID above 14 does not fit a one-byte element header.
            let (added, data) = match short {
                true => (add_element(&header, id, [data[0]]), &data[..1]),
                false => (add_element(&header, id, data), &data[..]),
            };
            match added {
                None => prop_assert!(extended && !long && id >= END_ID),
                Some(added) => {
                    prop_assert_eq!(added.len() % 4, 0);
                    let first = Some(own).filter(|own| extended && own.0 == id);
                    let expected = first.map_or(data.to_vec(), |own| own.1);
                    prop_assert_eq!(find_element(&added, id), Some(&expected[..]));
                    if extended && !long {
                        prop_assert_eq!(&added[1..12], &packet[1..12]);
                    }
                }
            }
        }

        #[test]
        fn arbitrary_packet_does_not_panic(
            packet in vec(any::<u8>(), 0..80),
            id: u8,
        ) {
            let _ = find_element(&packet, id);
        }
    }

    #[test]
    fn end_id_ends_the_elements() {
        let packet = write(0, false, &[(END_ID, vec![1]), (3, vec![2])]);
        assert_eq!(find_element(&packet, 3), None);
        let plain = [0x80; FIXED_LENGTH];
        assert_eq!(find_element(&plain, 3), None);
    }
}
