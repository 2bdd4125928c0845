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

/// The most programmes of an association that are known.
const PROGRAMMES: usize = 256;

/// The most maps that may come in parts at once while it is not known which programme is watched.
const MAPS: usize = 8;

/// The most streams of sound of a programme that are known.
const SOUNDS: usize = 8;

/// The programme of a stream that is watched: of those in the association the first of which a map
/// comes that names video or sound. An association may list programmes that are off the air.
#[derive(Debug, Default)]
pub(super) struct Tables {
    association: Section,
    /// Maps that have come in part, by their PIDs.
    maps: Vec<(u16, Section)>,
    /// Numbers and PIDs of the maps of which one decides; none once one has.
    candidates: Vec<(u16, u16)>,
    /// The version of the association, where it has come.
    version: Option<u8>,
    /// Number and PID of the map of the programme that is watched.
    programme: Option<(u16, u16)>,
    clock: Option<u16>,
    entry: Option<(u16, Entry)>,
    sounds: Vec<u16>,
    has_map: bool,
}

impl Tables {
    /// True if maps come on that PID.
    #[inline]
    pub(super) fn is_map(&self, pid: u16) -> bool {
        match self.programme {
            Some((_, own)) => own == pid,
            None => self.candidates.iter().any(|&(_, own)| own == pid),
        }
    }

    #[inline]
    pub(super) fn clock_pid(&self) -> Option<u16> {
        self.clock
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<(u16, Entry)> {
        self.entry
    }

    /// PID and coding of the video of the programme.
    #[inline]
    pub(super) fn video(&self) -> Option<(u16, Coding)> {
        match self.entry {
            Some((pid, Entry::Video(coding))) => Some((pid, coding)),
            _ => None,
        }
    }

    /// The PIDs of the programme's sound.
    #[inline]
    pub(super) fn sounds(&self) -> &[u16] {
        &self.sounds
    }

    pub(super) fn has_association(&self) -> bool {
        self.version.is_some()
    }

    pub(super) fn has_map(&self) -> bool {
        self.has_map
    }

    /// Takes in a packet of one of the tables.
    pub(super) fn packet(&mut self, header: &Header, payload: &[u8], counts: &mut TsCounts) {
        if header.pid == PAT_PID {
            let mut section = std::mem::take(&mut self.association);
            section.packet(header.unit_start, payload, |found| {
                counts.table_errors += u64::from(self.read_association(found).is_none());
            });
            self.association = section;
            return;
        }
        let begun = self.maps.iter().position(|&(pid, _)| pid == header.pid);
        let begun = begun.map(|place| self.maps.swap_remove(place).1);
        let mut section = begun.unwrap_or_default();
        section.packet(header.unit_start, payload, |found| {
            let read = self.read_map(header.pid, found);
            counts.table_errors += u64::from(read.is_none());
        });
        if !section.bytes.is_empty() && self.is_map(header.pid) && self.maps.len() < MAPS {
            self.maps.push((header.pid, section));
        }
    }

    /// Nothing where it is damaged; what is no table of ours is passed over.
    fn read_association(&mut self, section: Result<&[u8], Damaged>) -> Option<()> {
        let section = section.ok()?;
        let Some(data) = body(section, 0)? else {
            return Some(());
        };
        let &[_, _, version, _, last, ref programmes @ ..] = data else {
            return None;
        };
        let programmes = programmes.as_chunks::<4>().0.iter();
        let programmes = programmes.map(|&[a, b, c, d]| {
            (
                u16::from_be_bytes([a, b]),
                u16::from_be_bytes([c & 0x1f, d]),
            )
        });
        // Programme 0 is the network's own table.
        let listed: Vec<_> = programmes.filter(|&(number, _)| number != 0).collect();
        let before = self.version.replace(version);
        // A long association comes in several sections, each with some of the programmes.
        let is_whole = last == 0;
        if let Some(own) = self.programme {
            let has_moved = |&(number, pid): &(u16, u16)| number == own.0 && pid != own.1;
            let is_gone = is_whole && !listed.contains(&own) || listed.iter().any(has_moved);
            if !is_gone || listed.is_empty() {
                return Some(());
            }
            self.programme = None;
        } else if !is_whole && before == Some(version) {
            for programme in listed {
                if self.candidates.len() < PROGRAMMES && !self.candidates.contains(&programme) {
                    self.candidates.push(programme);
                }
            }
            return Some(());
        }
        if !listed.is_empty() && listed != self.candidates {
            self.candidates = listed;
            self.maps.clear();
        }
        Some(())
    }

    fn read_map(&mut self, pid: u16, section: Result<&[u8], Damaged>) -> Option<()> {
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
        let own = (u16::from_be_bytes([number_high, number_low]), pid);
        if !self
            .programme
            .iter()
            .chain(&self.candidates)
            .any(|&each| each == own)
        {
            return Some(());
        }
        let info = usize::from(u16::from_be_bytes([info_high & 0x0f, info_low]));
        let mut rest = rest.get(info..)?;
        let mut video = None;
        let mut sounds = Vec::new();
        while let &[kind, high, low, info_high, info_low, ref after @ ..] = rest {
            let pid = u16::from_be_bytes([high & 0x1f, low]);
            let info = usize::from(u16::from_be_bytes([info_high & 0x0f, info_low]));
            let descriptors;
            (descriptors, rest) = after.split_at_checked(info)?;
            match of_stream(kind, descriptors) {
                Some(found @ Entry::Video(_)) if video.is_none() => video = Some((pid, found)),
                Some(Entry::Sound) if sounds.len() < SOUNDS => sounds.push(pid),
                _ => {}
            }
        }
        self.has_map = true;
        let sound = sounds.first().map(|&pid| (pid, Entry::Sound));
        let entry = video.or(sound);
        // One that has only data leaves the choice to others.
        if entry.is_none() && self.candidates.len() > 1 {
            return Some(());
        }
        self.programme = Some(own);
        self.candidates = Vec::new();
        self.maps.retain(|&(of, _)| of == pid);
        self.clock = Some(u16::from_be_bytes([clock_high & 0x1f, clock_low]));
        self.entry = entry;
        self.sounds = sounds;
        Some(())
    }
}

/// Kind of an elementary stream, from its type and its descriptors.
fn of_stream(kind: u8, descriptors: &[u8]) -> Option<Entry> {
    match kind {
        // Private data in PES packets, and what users define: the descriptors say what it is.
        0x06 | 0x80.. => of_type(kind).or_else(|| of_descriptors(descriptors)),
        _ => of_type(kind),
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
        // MPEG-1, MPEG-2, AAC in ADTS, LATM and bare, MPEG-H, AC-3, E-AC-3, DTS.
        0x03 | 0x04 | 0x0f | 0x11 | 0x1c | 0x2d | 0x81 | 0x87 | 0x8a => Entry::Sound,
        _ => return None,
    })
}

/// Kind of a stream from the first descriptor that tells it (ETSI EN 300 468, 6.2, 6.4 and annex D;
/// ISO/IEC 13818-1, 2.6.8).
fn of_descriptors(mut descriptors: &[u8]) -> Option<Entry> {
    while let &[tag, length, ref rest @ ..] = descriptors {
        let body;
        (body, descriptors) = rest.split_at_checked(length.into())?;
        let found = match tag {
            // Registration.
            0x05 => match body.first_chunk() {
                Some(b"HEVC") => Some(Entry::Video(Coding::H265)),
                Some(b"AV01" | b"VVC " | b"VC-1" | b"drac") => Some(Entry::Video(Coding::Other)),
                Some(b"AC-3" | b"EAC3" | b"AC-4" | b"Opus" | b"BSSD") => Some(Entry::Sound),
                Some(b"DTS1" | b"DTS2" | b"DTS3" | b"DTSH") => Some(Entry::Sound),
                _ => None,
            },
            // AVC and HEVC video.
            0x28 => Some(Entry::Video(Coding::H264)),
            0x38 => Some(Entry::Video(Coding::H265)),
            // AC-3, E-AC-3, DTS, AAC.
            0x6a | 0x7a..=0x7c => Some(Entry::Sound),
            // Extension descriptors: DTS-HD, DTS-UHD, AC-4, and Opus as ffmpeg writes it.
            0x7f => matches!(body.first(), Some(0x0e | 0x15 | 0x21 | 0x80)).then_some(Entry::Sound),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
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
    fn the_programmes_map_names_clock_and_video() {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        let payload = [&[0][..], &pat(), &[0xff; 20]].concat();
        tables.packet(&header(PAT_PID, true), &payload, &mut counts);
        assert!(tables.has_association() && !tables.has_map());
        assert!(tables.is_map(0x1000) && !tables.is_map(0x1001));
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

    /// An association of these programmes.
    fn association(version: u8, number: u8, last: u8, programmes: &[(u16, u16)]) -> Vec<u8> {
        let mut data = vec![0, 1, 0xc1 | version << 1, number, last];
        for &(number, pid) in programmes {
            data.extend(number.to_be_bytes());
            data.extend((0xe000 | pid).to_be_bytes());
        }
        section(0, &data)
    }

    /// A map: types, PIDs and descriptors of its streams.
    fn map(programme: u16, streams: &[(u8, u16, &[u8])]) -> Vec<u8> {
        let mut data = [
            &programme.to_be_bytes()[..],
            &[0xc1, 0, 0, 0xe1, 0, 0xf0, 0],
        ]
        .concat();
        for &(kind, pid, descriptors) in streams {
            data.push(kind);
            data.extend((0xe000 | pid).to_be_bytes());
            data.extend((0xf000 | descriptors.len() as u16).to_be_bytes());
            data.extend_from_slice(descriptors);
        }
        section(2, &data)
    }

    /// Feeds sections, each in packets of its own.
    fn tables_of(sections: &[(u16, Vec<u8>)]) -> Tables {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        for (pid, section) in sections {
            let payload = [&[0][..], section].concat();
            for (place, part) in payload.chunks(184).enumerate() {
                tables.packet(&header(*pid, place == 0), part, &mut counts);
            }
        }
        assert_eq!(counts, TsCounts::default());
        tables
    }

    #[test]
    fn the_programme_whose_map_comes_is_watched() {
        let dead_first = association(0, 0, 0, &[(1, 0x20), (2, 0x30)]);
        let alive = map(2, &[(0x1b, 0x31, &[])]);
        let tables = tables_of(&[(0, dead_first.clone())]);
        assert!(tables.is_map(0x20) && tables.is_map(0x30) && !tables.has_map());
        // The map on another programme's PID, or of a programme that is not listed, decides
        // nothing; nor does one that has only data.
        let data = map(1, &[(0x05, 0x21, &[])]);
        for (other, has_map) in [
            ((0x20, alive.clone()), false),
            ((0x30, map(9, &[])), false),
            ((0x20, data), true),
        ] {
            let tables = tables_of(&[(0, dead_first.clone()), other]);
            assert_eq!((tables.has_map(), tables.entry()), (has_map, None));
            assert!(tables.is_map(0x20) && tables.is_map(0x30));
        }
        // The programme stays the same until the association table drops it.
        let own = [(0, dead_first.clone()), (0x30, alive), (0, dead_first)];
        let late = (0x20, map(1, &[(0x0f, 0x22, &[])]));
        let tables = tables_of(&[&own[..], std::slice::from_ref(&late)].concat());
        assert_eq!(tables.video(), Some((0x31, Coding::H264)));
        assert!(tables.is_map(0x30) && !tables.is_map(0x20));
        let gone = (0, association(1, 0, 0, &[(1, 0x20)]));
        let tables = tables_of(&[&own[..], &[gone, late]].concat());
        assert_eq!((tables.video(), tables.sounds()), (None, &[0x22][..]));
    }

    #[test]
    fn an_association_may_come_in_several_sections() {
        let parts = [
            (0, association(0, 0, 1, &[(1, 0x20)])),
            (0, association(0, 1, 1, &[(2, 0x30)])),
        ];
        let alive = (0x30, map(2, &[(0x1b, 0x31, &[])]));
        let tables = tables_of(&[&parts[..], &[alive], &parts[..]].concat());
        assert_eq!(tables.video(), Some((0x31, Coding::H264)));
        assert!(tables.is_map(0x30));
        // The number of programmes is bounded.
        let many = |from: u16| (from..from + 250).map(|n| (n, n)).collect::<Vec<_>>();
        let parts = [1, 251, 501, 751].map(|from| (0, association(0, 0, 9, &many(from))));
        assert!(tables_of(&parts).candidates.len() <= PROGRAMMES);
    }

    #[test]
    fn maps_of_several_programmes_may_come_in_turns() {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        let pat = [&[0][..], &association(0, 0, 0, &[(1, 0x20), (2, 0x30)])].concat();
        tables.packet(&header(PAT_PID, true), &pat, &mut counts);
        let long = [[0x0a, 4, b'e', b'n', b'g', 0]; 40].concat();
        let maps = [(0x20, 1u16), (0x30, 2)].map(|(pid, number)| {
            (
                pid,
                [&[0][..], &map(number, &[(0x1b, pid + 1, &long)])].concat(),
            )
        });
        for part in 0..2 {
            for (pid, bytes) in &maps {
                let part = bytes.chunks(184).nth(part).expect("it is long");
                let starts = part.len() == 184;
                tables.packet(&header(*pid, starts), part, &mut counts);
            }
        }
        assert_eq!(tables.video(), Some((0x21, Coding::H264)));
        assert!(tables.maps.is_empty() && counts == TsCounts::default());
    }

    #[test]
    fn descriptors_say_what_private_streams_are() {
        const HEVC: Option<Entry> = Some(Entry::Video(Coding::H265));
        const SOUND: Option<Entry> = Some(Entry::Sound);
        let cases: [(u8, &[u8], Option<Entry>); 16] = [
            (6, b"\x6a\x01\x00", SOUND),
            (6, b"\x0a\x04eng\x00\x7a\x00", SOUND),
            (6, b"\x7b\x00", SOUND),
            (6, b"\x7c\x02\x51\x00", SOUND),
            (6, b"\x7f\x02\x15\x00", SOUND),
            (6, b"\x7f\x02\x80\x02", SOUND),
            (6, b"\x05\x04Opus\x7f\x02\x80\x02", SOUND),
            (6, b"\x05\x04AC-3", SOUND),
            (6, b"\x05\x05HEVC\x00", HEVC),
            (0x99, b"\x05\x04HEVC", HEVC),
            (6, b"\x38\x00", HEVC),
            (6, b"\x05\x04AV01", Some(Entry::Video(Coding::Other))),
            // Teletext, subtitles, cues, and what is cut.
            (6, b"\x56\x00\x59\x00", None),
            (0x86, b"\x05\x04CUEI", None),
            (6, b"\x05\x02HE\x6a", None),
            (5, b"\x6a\x01\x00", None),
        ];
        for (kind, descriptors, expected) in cases {
            let found = tables_of(&[(0, pat()), (0x1000, map(7, &[(kind, 0x44, descriptors)]))]);
            assert_eq!(
                found.entry().map(|(_, entry)| entry),
                expected,
                "{descriptors:x?}"
            );
        }
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
        assert!(!tables.is_map(0x1000));
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
