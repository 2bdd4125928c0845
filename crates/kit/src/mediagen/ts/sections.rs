//! Parsing of programme tables: reassembly of sections from packets, and their contents (ISO/IEC
//! 13818-1, 2.4.4).

use super::tables::{PAT_TABLE, PMT_TABLE, crc, entry, finish};
use crate::mediagen::steps;

/// Maximum length of a section of these tables, in bytes (2.4.4.3, 2.4.4.8).
const SECTION_MAX: usize = 1024;

/// Returns number and map PID of each programme of a programme association table.
pub fn programmes(pat: &[u8]) -> Option<Vec<(u16, u16)>> {
    let body = body(pat, PAT_TABLE)?;
    let each = body.as_chunks::<4>().0.iter();
    let each = each.map(|&[a, b, c, d]| {
        (
            u16::from_be_bytes([a, b]),
            u16::from_be_bytes([c & 0x1f, d]),
        )
    });
    // Number 0 is the network information table (2.4.4.5).
    Some(each.filter(|&(number, _)| number != 0).collect())
}

/// Returns the clock PID of a programme map, and the PIDs of its streams.
pub fn streams(pmt: &[u8]) -> Option<(u16, Vec<u16>)> {
    let (clock, streams, _) = entries(pmt)?;
    Some((clock, streams))
}

/// Like [`streams`], and the number of stray bytes after the last complete stream entry.
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

/// Adds a stream to a programme map. Returns `None` if there is no room or it is not a map.
pub fn with_stream(pmt: &[u8], kind: u8, pid: u16) -> Option<Vec<u8>> {
    // A new entry after stray bytes would not be found.
    let (_, _, stray) = entries(pmt)?;
    let mut longer = pmt.get(..pmt.len().checked_sub(4 + stray)?)?.to_vec();
    longer.extend(entry(kind, pid));
    (longer.len() + 4 <= SECTION_MAX).then(|| finish(longer))
}

/// Returns the body of a complete section if it belongs to that table, is its only section, is
/// currently applicable, and has a correct checksum.
fn body(section: &[u8], table: u8) -> Option<&[u8]> {
    let (&[kind, _, _, _, _, flags, number, last], rest) = section.split_first_chunk()?;
    let body = rest.get(..rest.len().checked_sub(4)?)?;
    let whole = kind == table && flags & 1 == 1 && number == 0 && last == 0;
    (whole && crc(section) == 0).then_some(body)
}

/// Reassembles sections from the payloads of a PID's packets.
#[derive(Debug, Default)]
pub struct Sections {
    /// Bytes of the current section; at most [`SECTION_MAX`] bytes and a payload.
    bytes: Vec<u8>,
    open: bool,
}

impl Sections {
    /// Adds a packet's payload. `start` is true if a section begins in it. Calls `whole` for each
    /// complete section.
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

    /// Removes complete sections from the front.
    fn cut(&mut self, whole: &mut impl FnMut(&[u8])) {
        let mut at = 0;
        while self.open {
            match self.bytes[at..] {
                // Stuffing follows up to the end of the packet.
                [0xff, ..] => self.open = false,
                [_, high, low, ..] => {
                    let length = 3 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
                    if length > SECTION_MAX {
                        self.open = false;
                    } else if let Some(section) = self.bytes.get(at..at + length) {
                        steps::count_bytes(length);
                        whole(section);
                        at += length;
                    } else {
                        break;
                    }
                }
                _ => break,
            }
        }
        // The remainder is moved only once, however many sections there were.
        steps::count_bytes(self.bytes.len() - at);
        match self.open {
            true => drop(self.bytes.drain(..at)),
            false => self.bytes.clear(),
        }
    }
}

/// Reads arbitrary bytes as payloads of a PID's packets. The first byte of each is its length, with
/// the section start flag in the highest bit.
///
/// # Panics
/// If a section is too long, or a table does not contain what was written into it.
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
    // Random sections rarely have a correct checksum.
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
    use crate::mediagen::ts::packet::Header;
    use crate::mediagen::ts::packet::PACKET_LEN;
    use crate::mediagen::ts::tables::{packets, pat, pmt};

    #[test]
    fn tables_round_trip() {
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
    fn stream_is_added_after_the_last_complete_one() {
        let mut map = pmt(7, 0x100, &[(0x1b, 0x100)]);
        map.truncate(map.len() - 4);
        map.extend([0, 1, 2]);
        let map = finish(map);
        assert_eq!(streams(&map), Some((0x100, vec![0x100])));
        let more = with_stream(&map, 6, 0x1ab5).expect("there is room");
        assert_eq!(streams(&more), Some((0x100, vec![0x100, 0x1ab5])));
    }

    #[test]
    fn full_map_accepts_no_stream() {
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
        fn sections_are_reassembled_from_packets(lengths in prop::collection::vec(0usize..200, 1..4)) {
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
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            read_any(&bytes);
        }

        #[test]
        fn any_payloads_keep_the_buffer_bounded(payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..184)), 0..20)) {
            let mut sections = Sections::default();
            for (start, payload) in payloads {
                sections.take(start, &payload, |section| {
                    assert!(section.len() <= SECTION_MAX);
                    let _ = (programmes(section), streams(section));
                });
                prop_assert!(sections.bytes.len() <= SECTION_MAX + PACKET_LEN);
            }
        }
    }
}
