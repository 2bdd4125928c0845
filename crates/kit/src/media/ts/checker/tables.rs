//! Programme association and programme map (ISO/IEC 13818-1, 2.4.4): the meaning of PIDs.

use super::TsCounts;
use crate::mediagen::steps;
use crate::mediagen::ts::packet::{Header, PAT_PID};

/// Maximum length of a section of either table (2.4.4.3 and 2.4.4.8).
const SECTION_MAX: usize = 1024;

/// Video coding, which determines how random-access points are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VideoCoding {
    /// MPEG-1 and MPEG-2.
    Mpeg2,
    H264,
    H265,
    /// A coding whose random-access points are known only from the packets' flags.
    Other,
}

/// Stream with which a decoder begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryStream {
    Video(VideoCoding),
    /// Audio, because there is no video.
    Audio,
}

/// Maximum number of programmes of an association that are kept.
const PROGRAMMES_MAX: usize = 256;

/// Maximum number of maps that may arrive in parts at the same time, until a programme is chosen.
const MAPS_MAX: usize = 8;

/// Maximum number of audio streams of a programme that are kept.
const AUDIO_PIDS_MAX: usize = 8;

/// The programme of a stream that is watched: of those in the association, the one whose map is the
/// first to arrive that names video or audio. An association may list programmes that are off the
/// air.
#[derive(Debug, Default)]
pub(super) struct Tables {
    association: PartialSection,
    /// Maps that have arrived in part, by PID.
    maps: Vec<(u16, PartialSection)>,
    /// Numbers and map PIDs of the programmes to choose from; empty once one is chosen.
    candidates: Vec<(u16, u16)>,
    /// Version of the association, once it has arrived.
    version: Option<u8>,
    /// Number and map PID of the programme that is watched.
    programme: Option<(u16, u16)>,
    pub(super) clock_pid: Option<u16>,
    pub(super) entry: Option<(u16, EntryStream)>,
    /// PIDs of the programme's audio.
    pub(super) audio_pids: Vec<u16>,
    pub(super) has_map: bool,
}

impl Tables {
    /// True if maps arrive on this PID.
    #[inline]
    pub(super) fn is_map(&self, pid: u16) -> bool {
        match self.programme {
            Some((_, own)) => own == pid,
            None => self.candidates.iter().any(|&(_, own)| own == pid),
        }
    }

    /// PID and coding of the programme's video.
    #[inline]
    pub(super) fn video(&self) -> Option<(u16, VideoCoding)> {
        match self.entry {
            Some((pid, EntryStream::Video(coding))) => Some((pid, coding)),
            _ => None,
        }
    }

    pub(super) fn has_association(&self) -> bool {
        self.version.is_some()
    }

    /// Handles a packet of one of the tables.
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
        let begun = begun.map(|index| self.maps.swap_remove(index).1);
        let mut section = begun.unwrap_or_default();
        section.packet(header.unit_start, payload, |found| {
            let read = self.read_map(header.pid, found);
            counts.table_errors += u64::from(read.is_none());
        });
        if !section.bytes.is_empty() && self.is_map(header.pid) && self.maps.len() < MAPS_MAX {
            self.maps.push((header.pid, section));
        }
    }

    /// Reads an association. Returns `None` if the section is damaged; other tables are skipped.
    fn read_association(&mut self, section: Result<&[u8], DamagedSection>) -> Option<()> {
        let section = section.ok()?;
        let Some(data) = section_body(section, 0)? else {
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
        // Programme 0 is the network information table.
        let listed: Vec<_> = programmes.filter(|&(number, _)| number != 0).collect();
        let before = self.version.replace(version);
        // A long association consists of several sections, each with some of the programmes.
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
                if self.candidates.len() < PROGRAMMES_MAX && !self.candidates.contains(&programme) {
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

    fn read_map(&mut self, pid: u16, section: Result<&[u8], DamagedSection>) -> Option<()> {
        let section = section.ok()?;
        let Some(data) = section_body(section, 2)? else {
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
            match stream_kind(kind, descriptors) {
                Some(found @ EntryStream::Video(_)) if video.is_none() => {
                    video = Some((pid, found))
                }
                Some(EntryStream::Audio) if sounds.len() < AUDIO_PIDS_MAX => sounds.push(pid),
                _ => {}
            }
        }
        self.has_map = true;
        let sound = sounds.first().map(|&pid| (pid, EntryStream::Audio));
        let entry = video.or(sound);
        // A programme with only data leaves the choice to the others.
        if entry.is_none() && self.candidates.len() > 1 {
            return Some(());
        }
        self.programme = Some(own);
        self.candidates = Vec::new();
        self.maps.retain(|&(of, _)| of == pid);
        self.clock_pid = Some(u16::from_be_bytes([clock_high & 0x1f, clock_low]));
        self.entry = entry;
        self.audio_pids = sounds;
        Some(())
    }
}

/// Kind of an elementary stream, from its type and its descriptors.
fn stream_kind(kind: u8, descriptors: &[u8]) -> Option<EntryStream> {
    match kind {
        // Private data in PES packets, and user-defined types: the descriptors identify the stream.
        0x06 | 0x80.. => kind_from_type(kind).or_else(|| kind_from_descriptors(descriptors)),
        _ => kind_from_type(kind),
    }
}

/// Kind of an elementary stream from its type (table 2-34; ETSI TS 101 154 for the private types
/// there).
fn kind_from_type(kind: u8) -> Option<EntryStream> {
    Some(match kind {
        0x01 | 0x02 => EntryStream::Video(VideoCoding::Mpeg2),
        0x1b => EntryStream::Video(VideoCoding::H264),
        0x24 => EntryStream::Video(VideoCoding::H265),
        // MPEG-4 part 2, JPEG 2000, VVC, AVS, AVS2, VC-1.
        0x10 | 0x21 | 0x33 | 0x42 | 0xd2 | 0xea => EntryStream::Video(VideoCoding::Other),
        // MPEG-1, MPEG-2, AAC in ADTS, AAC in LATM, raw AAC, MPEG-H, AC-3, E-AC-3, DTS.
        0x03 | 0x04 | 0x0f | 0x11 | 0x1c | 0x2d | 0x81 | 0x87 | 0x8a => EntryStream::Audio,
        _ => return None,
    })
}

/// Kind of a stream from the first descriptor that identifies it (ETSI EN 300 468, 6.2, 6.4 and
/// annex D; ISO/IEC 13818-1, 2.6.8).
fn kind_from_descriptors(mut descriptors: &[u8]) -> Option<EntryStream> {
    while let &[tag, length, ref rest @ ..] = descriptors {
        let body;
        (body, descriptors) = rest.split_at_checked(length.into())?;
        let found = match tag {
            // Registration.
            0x05 => match body.first_chunk() {
                Some(b"HEVC") => Some(EntryStream::Video(VideoCoding::H265)),
                Some(b"AV01" | b"VVC " | b"VC-1" | b"drac") => {
                    Some(EntryStream::Video(VideoCoding::Other))
                }
                Some(b"AC-3" | b"EAC3" | b"AC-4" | b"Opus" | b"BSSD") => Some(EntryStream::Audio),
                Some(b"DTS1" | b"DTS2" | b"DTS3" | b"DTSH") => Some(EntryStream::Audio),
                _ => None,
            },
            // AVC and HEVC video.
            0x28 => Some(EntryStream::Video(VideoCoding::H264)),
            0x38 => Some(EntryStream::Video(VideoCoding::H265)),
            // AC-3, E-AC-3, DTS, AAC.
            0x6a | 0x7a..=0x7c => Some(EntryStream::Audio),
            // Extension descriptors: DTS-HD, DTS-UHD, AC-4, and Opus as ffmpeg writes it.
            0x7f => matches!(body.first(), Some(0x0e | 0x15 | 0x21 | 0x80))
                .then_some(EntryStream::Audio),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

impl VideoCoding {
    /// True if a decoder can begin with a unit that has these first bytes: it finds what precedes a
    /// key picture.
    pub(super) fn is_entry_point(self, payload: &[u8]) -> bool {
        let codes = payload
            .windows(4)
            .filter(|bytes| bytes.starts_with(&[0, 0, 1]));
        let mut codes = codes.map(|bytes| bytes[3]);
        match self {
            VideoCoding::Mpeg2 => codes.any(|code| code == 0xb3),
            VideoCoding::H264 => codes.any(|code| code & 0x80 == 0 && matches!(code & 0x1f, 5 | 7)),
            VideoCoding::H265 => {
                codes.any(|code| code & 0x80 == 0 && matches!(code >> 1, 16..=21 | 32 | 33))
            }
            VideoCoding::Other => false,
        }
    }
}

/// Returns the bytes between the length and the checksum of a section, or `Some(None)` if the
/// section is of another table or not current. Returns `None` if it is damaged.
#[allow(clippy::option_option)]
fn section_body(section: &[u8], table: u8) -> Option<Option<&[u8]>> {
    if section[0] != table {
        return Some(None);
    }
    steps::count_bytes(section.len());
    if crc(section) != 0 {
        return None;
    }
    let data = section.get(3..section.len().checked_sub(4)?)?;
    let current = data.get(2)? & 1 == 1;
    Some(current.then_some(data))
}

/// Checksum of sections (annex A); 0 for a section that includes its checksum.
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

/// A section with an impossible length.
struct DamagedSection;

/// The received part of a section that does not fit into one packet.
#[derive(Debug, Default)]
struct PartialSection {
    bytes: Vec<u8>,
}

impl PartialSection {
    /// Handles the payload of a packet, and passes on the sections that it completes.
    fn packet(
        &mut self,
        unit_start: bool,
        payload: &[u8],
        mut found: impl FnMut(Result<&[u8], DamagedSection>),
    ) {
        if !unit_start {
            self.append(payload, &mut found);
            return;
        }
        let Some((&pointer, payload)) = payload.split_first() else {
            return;
        };
        let Some((before, mut rest)) = payload.split_at_checked(pointer.into()) else {
            self.bytes.clear();
            return found(Err(DamagedSection));
        };
        self.append(before, &mut found);
        // A section that is incomplete now stays incomplete.
        self.bytes.clear();
        // Stuffing continues to the end of the packet (2.4.4.1).
        while let Some(&first) = rest.first()
            && first != 0xff
        {
            match section_length(rest) {
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

    fn append(&mut self, payload: &[u8], found: &mut impl FnMut(Result<&[u8], DamagedSection>)) {
        if self.bytes.is_empty() {
            return;
        }
        // A packet has fewer bytes than a section can have, so this is bounded.
        steps::count_bytes(payload.len());
        self.bytes.extend_from_slice(payload);
        match section_length(&self.bytes) {
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

/// Length of a section that begins with these bytes; `None` if there are too few bytes.
fn section_length(bytes: &[u8]) -> Option<Result<usize, DamagedSection>> {
    let &[_, high, low, ..] = bytes else {
        return None;
    };
    let length = 3 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
    Some(match length {
        12..=SECTION_MAX => Ok(length),
        _ => Err(DamagedSection),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a section with its length and checksum.
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
    fn programme_map_names_clock_and_video() {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        let payload = [&[0][..], &pat(), &[0xff; 20]].concat();
        tables.packet(&header(PAT_PID, true), &payload, &mut counts);
        assert!(tables.has_association() && !tables.has_map);
        assert!(tables.is_map(0x1000) && !tables.is_map(0x1001));
        // The map of another programme on the same PID, and then the own one, in two packets, with
        // many descriptors.
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
        assert!(!tables.has_map);
        tables.packet(&header(0x1000, false), second, &mut counts);
        assert!(tables.has_map);
        assert_eq!(tables.clock_pid, Some(0x100));
        assert_eq!(
            tables.entry,
            Some((0x102, EntryStream::Video(VideoCoding::H264)))
        );
        assert_eq!(counts, TsCounts::default());
    }

    /// Builds an association of these programmes.
    fn association(version: u8, number: u8, last: u8, programmes: &[(u16, u16)]) -> Vec<u8> {
        let mut data = vec![0, 1, 0xc1 | version << 1, number, last];
        for &(number, pid) in programmes {
            data.extend(number.to_be_bytes());
            data.extend((0xe000 | pid).to_be_bytes());
        }
        section(0, &data)
    }

    /// Builds a map from types, PIDs and descriptors of its streams.
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

    /// Feeds sections, each in its own packets.
    fn tables_of(sections: &[(u16, Vec<u8>)]) -> Tables {
        let (mut tables, mut counts) = (Tables::default(), TsCounts::default());
        for (pid, section) in sections {
            let payload = [&[0][..], section].concat();
            for (index, part) in payload.chunks(184).enumerate() {
                tables.packet(&header(*pid, index == 0), part, &mut counts);
            }
        }
        assert_eq!(counts, TsCounts::default());
        tables
    }

    #[test]
    fn first_programme_with_a_map_is_watched() {
        let dead_first = association(0, 0, 0, &[(1, 0x20), (2, 0x30)]);
        let alive = map(2, &[(0x1b, 0x31, &[])]);
        let tables = tables_of(&[(0, dead_first.clone())]);
        assert!(tables.is_map(0x20) && tables.is_map(0x30) && !tables.has_map);
        // A map on another programme's PID, or of a programme that is not listed, decides nothing;
        // nor does a map with only data.
        let data = map(1, &[(0x05, 0x21, &[])]);
        for (other, has_map) in [
            ((0x20, alive.clone()), false),
            ((0x30, map(9, &[])), false),
            ((0x20, data), true),
        ] {
            let tables = tables_of(&[(0, dead_first.clone()), other]);
            assert_eq!((tables.has_map, tables.entry), (has_map, None));
            assert!(tables.is_map(0x20) && tables.is_map(0x30));
        }
        // The programme stays the same until the association table drops it.
        let own = [(0, dead_first.clone()), (0x30, alive), (0, dead_first)];
        let late = (0x20, map(1, &[(0x0f, 0x22, &[])]));
        let tables = tables_of(&[&own[..], std::slice::from_ref(&late)].concat());
        assert_eq!(tables.video(), Some((0x31, VideoCoding::H264)));
        assert!(tables.is_map(0x30) && !tables.is_map(0x20));
        let gone = (0, association(1, 0, 0, &[(1, 0x20)]));
        let tables = tables_of(&[&own[..], &[gone, late]].concat());
        assert_eq!(
            (tables.video(), &tables.audio_pids[..]),
            (None, &[0x22][..])
        );
    }

    #[test]
    fn association_may_span_several_sections() {
        let parts = [
            (0, association(0, 0, 1, &[(1, 0x20)])),
            (0, association(0, 1, 1, &[(2, 0x30)])),
        ];
        let alive = (0x30, map(2, &[(0x1b, 0x31, &[])]));
        let tables = tables_of(&[&parts[..], &[alive], &parts[..]].concat());
        assert_eq!(tables.video(), Some((0x31, VideoCoding::H264)));
        assert!(tables.is_map(0x30));
        // The number of programmes is bounded.
        let many = |from: u16| (from..from + 250).map(|n| (n, n)).collect::<Vec<_>>();
        let parts = [1, 251, 501, 751].map(|from| (0, association(0, 0, 9, &many(from))));
        assert!(tables_of(&parts).candidates.len() <= PROGRAMMES_MAX);
    }

    #[test]
    fn maps_of_several_programmes_may_interleave() {
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
        assert_eq!(tables.video(), Some((0x21, VideoCoding::H264)));
        assert!(tables.maps.is_empty() && counts == TsCounts::default());
    }

    #[test]
    fn descriptors_identify_private_streams() {
        const HEVC: Option<EntryStream> = Some(EntryStream::Video(VideoCoding::H265));
        const SOUND: Option<EntryStream> = Some(EntryStream::Audio);
        let cases: [(u8, &[u8], Option<EntryStream>); 16] = [
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
            (
                6,
                b"\x05\x04AV01",
                Some(EntryStream::Video(VideoCoding::Other)),
            ),
            // Teletext, subtitles, cues, and truncated descriptors.
            (6, b"\x56\x00\x59\x00", None),
            (0x86, b"\x05\x04CUEI", None),
            (6, b"\x05\x02HE\x6a", None),
            (5, b"\x6a\x01\x00", None),
        ];
        for (kind, descriptors, expected) in cases {
            let found = tables_of(&[(0, pat()), (0x1000, map(7, &[(kind, 0x44, descriptors)]))]);
            assert_eq!(
                found.entry.map(|(_, entry)| entry),
                expected,
                "{descriptors:x?}"
            );
        }
    }

    #[test]
    fn damaged_tables_are_counted_and_ignored() {
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
    fn checksum_has_the_standard_check_value() {
        // Check value of "123456789" in catalogues of checksums.
        assert_eq!(crc(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn key_pictures_are_recognised_by_preceding_units() {
        assert!(VideoCoding::H264.is_entry_point(&[0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x67]));
        assert!(
            !VideoCoding::H264.is_entry_point(&[0, 0, 1, 0xe0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x41])
        );
        assert!(VideoCoding::H265.is_entry_point(&[0, 0, 1, 0x40, 1]));
        assert!(VideoCoding::Mpeg2.is_entry_point(&[0, 0, 1, 0xe0, 0, 0, 0, 1, 0xb3]));
        assert!(!VideoCoding::Other.is_entry_point(&[0, 0, 1, 0xb3]));
    }
}
