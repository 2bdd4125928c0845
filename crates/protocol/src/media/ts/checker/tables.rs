//! The programme association and the programme map (ISO/IEC 13818-1, 2.4.4): which PIDs are what.

use super::TsCounts;
use mediagen::steps;
use mediagen::ts::packet::{Header, PAT_PID};

/// The longest section of either table (2.4.4.3 and 2.4.4.8).
const LONGEST: usize = 1024;

/// What an encoding of video looks like where a decoder can begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// MPEG-1 and MPEG-2.
    Mpeg2,
    H264,
    H265,
    /// One of which only the packets themselves can say it.
    Other,
}

/// With what a decoder begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Video(Coding),
    /// There is no video.
    Sound,
}

/// The first programme of a stream.
#[derive(Debug, Default)]
pub(super) struct Tables {
    association: Section,
    map: Section,
    /// Number and PID of the map.
    programme: Option<(u16, u16)>,
    clock: Option<u16>,
    entry: Option<(u16, Entry)>,
    has_association: bool,
    has_map: bool,
}

impl Tables {
    #[inline]
    pub(super) fn map_pid(&self) -> Option<u16> {
        self.programme.map(|(_, pid)| pid)
    }

    #[inline]
    pub(super) fn clock_pid(&self) -> Option<u16> {
        self.clock
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<(u16, Entry)> {
        self.entry
    }

    pub(super) fn has_association(&self) -> bool {
        self.has_association
    }

    pub(super) fn has_map(&self) -> bool {
        self.has_map
    }

    /// Takes in a packet of one of the tables.
    pub(super) fn packet(&mut self, header: &Header, payload: &[u8], counts: &mut TsCounts) {
        let is_association = header.pid == PAT_PID;
        let mut section = std::mem::take(match is_association {
            true => &mut self.association,
            false => &mut self.map,
        });
        section.packet(header.unit_start, payload, |found| {
            let read = match is_association {
                true => self.read_association(found),
                false => self.read_map(found),
            };
            counts.table_errors += u64::from(read.is_none());
        });
        match is_association {
            true => self.association = section,
            false => self.map = section,
        }
    }

    /// Nothing where it is damaged; what is no table of ours is passed over.
    fn read_association(&mut self, section: Result<&[u8], Damaged>) -> Option<()> {
        let section = section.ok()?;
        let Some(data) = body(section, 0)? else {
            return Some(());
        };
        let programmes = data.get(5..)?.as_chunks::<4>().0.iter();
        let mut programmes = programmes.map(|&[a, b, c, d]| {
            (
                u16::from_be_bytes([a, b]),
                u16::from_be_bytes([c & 0x1f, d]),
            )
        });
        self.has_association = true;
        // Programme 0 is the network's own table.
        let first = programmes.find(|&(number, _)| number != 0);
        if first.is_some() && first != self.programme {
            self.programme = first;
            self.map = Section::default();
        }
        Some(())
    }

    fn read_map(&mut self, section: Result<&[u8], Damaged>) -> Option<()> {
        let section = section.ok()?;
        let Some(data) = body(section, 2)? else {
            return Some(());
        };
        let &[
            number_high,
            number_low,
            _,
            _,
            _,
            clock_high,
            clock_low,
            info_high,
            info_low,
            ref rest @ ..,
        ] = data
        else {
            return None;
        };
        if Some(u16::from_be_bytes([number_high, number_low]))
            != self.programme.map(|(number, _)| number)
        {
            return Some(());
        }
        let info = usize::from(u16::from_be_bytes([info_high & 0x0f, info_low]));
        let mut rest = rest.get(info..)?;
        let mut entry = None;
        while let &[kind, high, low, info_high, info_low, ref after @ ..] = rest {
            let pid = u16::from_be_bytes([high & 0x1f, low]);
            let info = usize::from(u16::from_be_bytes([info_high & 0x0f, info_low]));
            rest = after.get(info..)?;
            match of_type(kind) {
                Some(found @ Entry::Video(_)) if !matches!(entry, Some((_, Entry::Video(_)))) => {
                    entry = Some((pid, found))
                }
                Some(Entry::Sound) if entry.is_none() => entry = Some((pid, Entry::Sound)),
                _ => {}
            }
        }
        self.has_map = true;
        self.clock = Some(u16::from_be_bytes([clock_high & 0x1f, clock_low]));
        self.entry = entry;
        Some(())
    }
}

/// What elementary streams of that type are to who begins to watch (table 2-34; ETSI TS 101 154 for
/// what is private there).
fn of_type(kind: u8) -> Option<Entry> {
    Some(match kind {
        0x01 | 0x02 => Entry::Video(Coding::Mpeg2),
        0x1b => Entry::Video(Coding::H264),
        0x24 => Entry::Video(Coding::H265),
        // MPEG-4 part 2, JPEG 2000, VVC, AVS, AVS2, VC-1.
        0x10 | 0x21 | 0x33 | 0x42 | 0xd2 | 0xea => Entry::Video(Coding::Other),
        // MPEG-1, MPEG-2, AAC in ADTS and LATM, AC-3, E-AC-3.
        0x03 | 0x04 | 0x0f | 0x11 | 0x81 | 0x87 => Entry::Sound,
        _ => return None,
    })
}

impl Coding {
    /// Whether a unit that begins with these bytes says that a decoder can begin here: by what
    /// stands before a key picture.
    pub(super) fn begins_in(self, payload: &[u8]) -> bool {
        let codes = payload
            .windows(4)
            .filter(|bytes| bytes.starts_with(&[0, 0, 1]));
        let mut codes = codes.map(|bytes| bytes[3]);
        match self {
            Coding::Mpeg2 => codes.any(|code| code == 0xb3),
            Coding::H264 => codes.any(|code| code & 0x80 == 0 && matches!(code & 0x1f, 5 | 7)),
            Coding::H265 => {
                codes.any(|code| code & 0x80 == 0 && matches!(code >> 1, 16..=21 | 32 | 33))
            }
            Coding::Other => false,
        }
    }
}

/// What stands between the length and the checksum of a section of that table, if it is current.
/// Nothing on the outside where it is damaged.
#[allow(clippy::option_option)]
fn body(section: &[u8], table: u8) -> Option<Option<&[u8]>> {
    if section[0] != table {
        return Some(None);
    }
    steps::took(section.len());
    if crc(section) != 0 {
        return None;
    }
    let data = section.get(3..section.len().checked_sub(4)?)?;
    let current = data.get(2)? & 1 == 1;
    Some(current.then_some(data))
}

/// The checksum of sections (annex A); 0 of one that ends with its own.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |mut crc, &byte| {
        crc ^= u32::from(byte) << 24;
        for _ in 0..8 {
            let out = crc & 0x8000_0000 != 0;
            crc = crc << 1 ^ if out { 0x04c1_1db7 } else { 0 };
        }
        crc
    })
}

/// A section that cannot be: its length is wrong.
struct Damaged;

/// A section that does not fit into one packet, as far as it has come.
#[derive(Debug, Default)]
struct Section {
    bytes: Vec<u8>,
}

impl Section {
    /// Takes in the payload of a packet, and hands on the sections that are whole with it.
    fn packet(
        &mut self,
        unit_start: bool,
        payload: &[u8],
        mut found: impl FnMut(Result<&[u8], Damaged>),
    ) {
        if !unit_start {
            self.go_on(payload, &mut found);
            return;
        }
        let Some((&pointer, payload)) = payload.split_first() else {
            return;
        };
        let Some((before, mut rest)) = payload.split_at_checked(pointer.into()) else {
            self.bytes.clear();
            return found(Err(Damaged));
        };
        self.go_on(before, &mut found);
        // What is not whole by now never will be.
        self.bytes.clear();
        // Stuffing goes on to the end (2.4.4.1).
        while let Some(&first) = rest.first()
            && first != 0xff
        {
            match length(rest) {
                Some(Err(damaged)) => return found(Err(damaged)),
                Some(Ok(length)) if length <= rest.len() => {
                    let (section, after) = rest.split_at(length);
                    found(Ok(section));
                    rest = after;
                }
                _ => {
                    self.bytes.extend_from_slice(rest);
                    return;
                }
            }
        }
    }

    fn go_on(&mut self, payload: &[u8], found: &mut impl FnMut(Result<&[u8], Damaged>)) {
        if self.bytes.is_empty() {
            return;
        }
        // A packet brings less than it can take, so this is bounded.
        steps::took(payload.len());
        self.bytes.extend_from_slice(payload);
        match length(&self.bytes) {
            Some(Ok(length)) if length <= self.bytes.len() => {
                found(Ok(&self.bytes[..length]));
                self.bytes.clear();
            }
            Some(Err(damaged)) => {
                found(Err(damaged));
                self.bytes.clear();
            }
            _ => {}
        }
    }
}

/// How long a section is that begins with these bytes, once that can be known.
fn length(bytes: &[u8]) -> Option<Result<usize, Damaged>> {
    let &[_, high, low, ..] = bytes else {
        return None;
    };
    let length = 3 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
    Some(match length {
        12..=LONGEST => Ok(length),
        _ => Err(Damaged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section with its length and checksum.
    fn section(table: u8, data: &[u8]) -> Vec<u8> {
        let length = (data.len() + 4) as u16;
        let mut out = vec![table, 0xb0 | (length >> 8) as u8, length as u8];
        out.extend_from_slice(data);
        let crc = crc(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    fn header(pid: u16, unit_start: bool) -> Header {
        Header {
            damaged: false,
            unit_start,
            pid,
            scrambled: false,
            continuity: 0,
            has_payload: true,
            discontinuity: false,
            random_access: false,
            pcr: None,
            payload: 4,
        }
    }

    fn pat() -> Vec<u8> {
        section(0, &[0, 1, 0xc1, 0, 0, 0, 0, 0xe0, 0x10, 0, 7, 0xf0, 0x00])
    }

    #[test]
    fn the_first_programmes_map_names_clock_and_video() {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        let payload = [&[0][..], &pat(), &[0xff; 20]].concat();
        tables.packet(&header(PAT_PID, true), &payload, &mut counts);
        assert!(tables.has_association() && !tables.has_map());
        assert_eq!(tables.map_pid(), Some(0x1000));
        // The map of another programme on the same PID, and then its own, in two packets, with many
        // descriptors.
        let other = section(2, &[0, 8, 0xc1, 0, 0, 0xe1, 0x11, 0xf0, 0]);
        let mut data = vec![0, 7, 0xc1, 0, 0, 0xe1, 0x00, 0xf0, 200];
        data.extend([1; 200]);
        data.extend([
            0x0f, 0xe1, 0x01, 0xf0, 0, 0x1b, 0xe1, 0x02, 0xf0, 1, 9, 0x1b, 0xe1, 0x03, 0xf0, 0,
        ]);
        let own = section(2, &data);
        let all = [&[0][..], &other, &own].concat();
        let (first, second) = all.split_at(184);
        tables.packet(&header(0x1000, true), first, &mut counts);
        assert!(!tables.has_map());
        tables.packet(&header(0x1000, false), second, &mut counts);
        assert!(tables.has_map());
        assert_eq!(tables.clock_pid(), Some(0x100));
        assert_eq!(tables.entry(), Some((0x102, Entry::Video(Coding::H264))));
        assert_eq!(counts, TsCounts::default());
    }

    #[test]
    fn damaged_tables_are_counted_and_not_believed() {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        let mut bad = pat();
        bad[9] ^= 1;
        tables.packet(
            &header(PAT_PID, true),
            &[&[0][..], &bad].concat(),
            &mut counts,
        );
        tables.packet(&header(PAT_PID, true), &[200, 0, 0], &mut counts);
        tables.packet(&header(PAT_PID, true), &[0, 0, 0xbf, 0xff, 0], &mut counts);
        assert_eq!(counts.table_errors, 3);
        assert!(!tables.has_association());
        assert_eq!(tables.map_pid(), None);
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // Of "123456789", as catalogues of checksums have it.
        assert_eq!(crc(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn key_pictures_are_told_by_what_stands_before_them() {
        assert!(Coding::H264.begins_in(&[0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x67]));
        assert!(!Coding::H264.begins_in(&[0, 0, 1, 0xe0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x41]));
        assert!(Coding::H265.begins_in(&[0, 0, 1, 0x40, 1]));
        assert!(Coding::Mpeg2.begins_in(&[0, 0, 1, 0xe0, 0, 0, 0, 1, 0xb3]));
        assert!(!Coding::Other.begins_in(&[0, 0, 1, 0xb3]));
    }
}
