//! Reading tables of a programme: sections out of packets, and what they say (ISO/IEC 13818-1,
//! 2.4.4).

use super::tables::{PAT_TABLE, PMT_TABLE, crc, entry, finish};
use crate::steps;

/// The longest section of these tables, in bytes (2.4.4.3, 2.4.4.8).
const SECTION_MAX: usize = 1024;

/// The programmes of a table of programmes: number and PID of the map of each.
pub fn programmes(pat: &[u8]) -> Option<Vec<(u16, u16)>> {
    let body = body(pat, PAT_TABLE)?;
    let each = body.as_chunks::<4>().0.iter();
    let each = each.map(|&[a, b, c, d]| {
        (
            u16::from_be_bytes([a, b]),
            u16::from_be_bytes([c & 0x1f, d]),
        )
    });
    // Number 0 is the network's information (2.4.4.5).
    Some(each.filter(|&(number, _)| number != 0).collect())
}

/// The PID of the clock that a programme map names, and the PIDs of its streams.
pub fn streams(pmt: &[u8]) -> Option<(u16, Vec<u16>)> {
    let (clock, streams, _) = entries(pmt)?;
    Some((clock, streams))
}

/// The same, and how many bytes follow the last whole stream that are none.
fn entries(pmt: &[u8]) -> Option<(u16, Vec<u16>, usize)> {
    let body = body(pmt, PMT_TABLE)?;
    let (&[a, b, c, d], rest) = body.split_first_chunk()?;
    let pid = |high: u8, low| u16::from_be_bytes([high & 0x1f, low]);
    let length = |high: u8, low| usize::from(u16::from_be_bytes([high & 0x0f, low]));
    let mut rest = rest.get(length(c, d)..)?;
    let mut streams = Vec::new();
    while let Some((&[_, e, f, g, h], behind)) = rest.split_first_chunk() {
        streams.push(pid(e, f));
        rest = behind.get(length(g, h)..)?;
    }
    Some((pid(a, b), streams, rest.len()))
}

/// The same programme map with one stream more; none where there is no room, or it is no map.
pub fn with_stream(pmt: &[u8], kind: u8, pid: u16) -> Option<Vec<u8>> {
    // Behind bytes that are no stream the new one would not be found.
    let (_, _, stray) = entries(pmt)?;
    let mut longer = pmt.get(..pmt.len().checked_sub(4 + stray)?)?.to_vec();
    longer.extend(entry(kind, pid));
    (longer.len() + 4 <= SECTION_MAX).then(|| finish(longer))
}

/// What stands between the head of a whole section and its check, if it is of that table, the only
/// one of it, in force, and undamaged.
fn body(section: &[u8], table: u8) -> Option<&[u8]> {
    let (&[kind, _, _, _, _, flags, number, last], rest) = section.split_first_chunk()?;
    let body = rest.get(..rest.len().checked_sub(4)?)?;
    let whole = kind == table && flags & 1 == 1 && number == 0 && last == 0;
    (whole && crc(section) == 0).then_some(body)
}

/// Puts sections together out of the payloads of a PID's packets.
#[derive(Debug, Default)]
pub struct Sections {
    /// What there is of the section under way; at most [`SECTION_MAX`] bytes and a payload.
    bytes: Vec<u8>,
    open: bool,
}

impl Sections {
    /// Takes a packet's payload in; `start` says that a section begins in it. Hands over each
    /// section that is whole.
    pub fn take(&mut self, start: bool, payload: &[u8], mut whole: impl FnMut(&[u8])) {
        let mut rest = payload;
        if start {
            let Some((&pointer, behind)) = rest.split_first() else {
                return;
            };
            let Some((before, begins)) = behind.split_at_checked(usize::from(pointer)) else {
                self.open = false;
                return;
            };
            if self.open {
                self.bytes.extend_from_slice(before);
                self.cut(&mut whole);
            }
            self.bytes.clear();
            self.open = true;
            rest = begins;
        }
        if self.open {
            self.bytes.extend_from_slice(rest);
            self.cut(&mut whole);
        }
    }

    /// Takes whole sections off the front.
    fn cut(&mut self, whole: &mut impl FnMut(&[u8])) {
        let mut at = 0;
        while self.open {
            match self.bytes[at..] {
                // Stuffing follows to the end of the packet.
                [0xff, ..] => self.open = false,
                [_, high, low, ..] => {
                    let length = 3 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
                    if length > SECTION_MAX {
                        self.open = false;
                    } else if let Some(section) = self.bytes.get(at..at + length) {
                        steps::took(length);
                        whole(section);
                        at += length;
                    } else {
                        break;
                    }
                }
                _ => break,
            }
        }
        // What is left is moved once, however many sections there were.
        steps::took(self.bytes.len() - at);
        match self.open {
            true => drop(self.bytes.drain(..at)),
            false => self.bytes.clear(),
        }
    }
}

/// Reads any bytes as payloads of one PID's packets: of each first how long it is and, in the
/// highest bit, whether a section begins in it.
///
/// # Panics
/// If a section is longer than may be, or a table does not say what was written into it.
#[cfg(any(test, fuzzing))]
pub fn read_any(bytes: &[u8]) {
    let mut sections = Sections::default();
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        let length = usize::from(first & 0x7f).min(behind.len());
        let (payload, after) = behind.split_at(length);
        rest = after;
        sections.take(first & 0x80 != 0, payload, check);
        assert!(sections.bytes.len() <= SECTION_MAX + payload.len());
    }
    // Few sections have a right check by chance.
    if (8..SECTION_MAX - 4).contains(&bytes.len()) {
        check(&finish(bytes.to_vec()));
    }
}

#[cfg(any(test, fuzzing))]
fn check(section: &[u8]) {
    assert!(section.len() <= SECTION_MAX);
    let found = programmes(section).unwrap_or_default();
    assert!(found.len() <= SECTION_MAX / 4 && found.iter().all(|&(number, _)| number != 0));
    if let Some((clock, pids)) = streams(section)
        && let Some(more) = with_stream(section, 6, 0x1ab5)
    {
        let pids = [&pids[..], &[0x1ab5]].concat();
        assert_eq!(streams(&more), Some((clock, pids)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ts::packet::Header;
    use crate::ts::packet::PACKET;
    use crate::ts::tables::{packets, pat, pmt};

    #[test]
    fn tables_say_what_was_written() {
        assert_eq!(programmes(&pat(7, 0x123)), Some(vec![(7, 0x123)]));
        let map = pmt(7, 0x100, &[(0x1b, 0x100), (0x0f, 0x101)]);
        assert_eq!(streams(&map), Some((0x100, vec![0x100, 0x101])));
        let more = with_stream(&map, 6, 0x1ab5).expect("there is room");
        assert_eq!(streams(&more), Some((0x100, vec![0x100, 0x101, 0x1ab5])));
        assert_eq!(programmes(&map), None);
        let mut damaged = map;
        damaged[9] ^= 1;
        assert_eq!(streams(&damaged), None);
    }

    #[test]
    fn sections_are_cut_in_linear_time() {
        let (empty, long) = ([2, 0, 0], [&[2, 3, 0xfd][..], &[0; 1021]].concat());
        for section in [&empty[..], &long, &[0xff], &[2, 0x0f, 0xff]] {
            let make = |size| section.iter().copied().cycle().take(size).collect();
            steps::assert_linear("sections", 16, make, |pieces| {
                let mut sections = Sections::default();
                for piece in pieces {
                    for (number, payload) in piece.chunks(183).enumerate() {
                        let starts = number % 100 == 0;
                        let payload = [&[0][..usize::from(starts)], payload].concat();
                        sections.take(starts, &payload, |_| {});
                    }
                }
            });
        }
    }

    #[test]
    fn a_stream_is_added_behind_the_last_whole_one() {
        let mut map = pmt(7, 0x100, &[(0x1b, 0x100)]);
        map.truncate(map.len() - 4);
        map.extend([0, 1, 2]);
        let map = finish(map);
        assert_eq!(streams(&map), Some((0x100, vec![0x100])));
        let more = with_stream(&map, 6, 0x1ab5).expect("there is room");
        assert_eq!(streams(&more), Some((0x100, vec![0x100, 0x1ab5])));
    }

    #[test]
    fn a_map_that_is_full_takes_no_more() {
        let many: Vec<(u8, u16)> = (0..200).map(|pid| (6, 0x100 + pid)).collect();
        let map = pmt(1, 0x100, &many);
        let fits = (SECTION_MAX - map.len()) / 5;
        let mut map = Some(map);
        for _ in 0..fits {
            map = with_stream(&map.expect("there is room"), 6, 0x1ab5);
        }
        assert_eq!(with_stream(&map.expect("there is room"), 6, 1), None);
    }

    proptest! {
        #[test]
        fn sections_come_back_out_of_their_packets(lengths in prop::collection::vec(0usize..200, 1..4)) {
            let mut sections = Sections::default();
            let (mut written, mut found) = (Vec::new(), Vec::new());
            for (number, &length) in (0u16..).zip(&lengths) {
                let streams = vec![(6, number + 1); length];
                let section = pmt(number, 0x100, &streams);
                for packet in packets(0x20, &section) {
                    let header = Header::parse(&packet).expect("a packet");
                    prop_assert_eq!(header.pid, 0x20);
                    sections.take(header.unit_start, header.payload_of(&packet), |section| {
                        found.push(section.to_vec());
                    });
                }
                written.push(section);
            }
            prop_assert_eq!(found, written);
        }

        #[test]
        fn any_bytes_are_payloads_or_a_section(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            read_any(&bytes);
        }

        #[test]
        fn any_bytes_are_taken(payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..184)), 0..20)) {
            let mut sections = Sections::default();
            for (start, payload) in payloads {
                sections.take(start, &payload, |section| {
                    assert!(section.len() <= SECTION_MAX);
                    let _ = (programmes(section), streams(section));
                });
                prop_assert!(sections.bytes.len() <= SECTION_MAX + PACKET);
            }
        }
    }
}
