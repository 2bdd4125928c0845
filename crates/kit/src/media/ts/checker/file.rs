//! Transport streams that arrive as files.

use crate::mediagen::steps;
use crate::mediagen::time_code::TimeCode;
use crate::mediagen::ts::packet::{Header, NULL_PID, PACKET_LEN, PAT_PID, SYNC};

use super::TsCounts;
use super::fast_path::{
    ADAPTATION, COUNTER_MASK, PID_MASK, PLAIN, PLAIN_MASK, UNIT_START, first_word,
};
use super::pids::Pids;
use super::tables::Tables;

/// Stream identifiers of video in a PES packet (ISO/IEC 13818-1, table 2-22).
const VIDEO: std::ops::RangeInclusive<u8> = 0xe0..=0xef;

/// Time stamps of a picture or another unit: 33 bits, at 90 kHz (ISO/IEC 13818-1, 2.4.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeStamps {
    /// Time of presentation.
    pub presentation: u64,
    /// Time of decoding.
    pub decoding: u64,
    /// True if they are those of a picture.
    pub is_picture: bool,
}

/// Checks a transport stream that arrives as a file, such as a segment of HLS: its contents, but
/// not its timing, which says nothing if the file arrives as fast as it can. Takes less than 1 KiB.
///
/// If a packet does not begin with the sync byte, the rest of the file is not checked.
#[derive(Debug)]
pub struct TsFile {
    /// Beginning of a packet.
    held: [u8; PACKET_LEN],
    held_len: usize,
    is_in_sync: bool,
    /// True if the first picture has begun.
    has_picture: bool,
    /// Time stamps of the first picture, or of the first unit if there is none.
    time_stamps: Option<TimeStamps>,
    pids: Pids,
    tables: Tables,
    /// True if there is a programme association, and a programme map.
    has_tables: [bool; 2],
    counts: TsCounts,
    time_code: Option<TimeCode>,
    search: Search,
}

/// First picture at which decoding can start, as far as it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPicture {
    /// Number of bytes of the file up to the end of what has arrived of the picture.
    pub end: u64,
    /// True if the next picture has begun.
    pub is_complete: bool,
}

/// Search for that picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    Off,
    Sought,
    Found(FirstPicture),
}

impl Default for TsFile {
    fn default() -> TsFile {
        TsFile {
            held: [0; PACKET_LEN],
            held_len: 0,
            is_in_sync: true,
            has_picture: false,
            time_stamps: None,
            pids: Pids::default(),
            tables: Tables::default(),
            has_tables: [false; 2],
            counts: TsCounts::default(),
            time_code: None,
            search: Search::Off,
        }
    }
}

impl TsFile {
    /// Creates a checker that also seeks the first picture at which decoding can start.
    pub fn seeking_picture() -> TsFile {
        TsFile {
            search: Search::Sought,
            ..TsFile::default()
        }
    }

    /// Handles the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        steps::count_bytes(bytes.len());
        let mut rest = bytes;
        while self.is_in_sync && !rest.is_empty() {
            let (packets, _) = rest.as_chunks();
            if self.held_len == 0
                && let Some(first) = packets.first()
            {
                let plain = self.take_plain(packets);
                rest = &rest[plain * PACKET_LEN..];
                if plain == 0 {
                    self.inspect(first);
                    rest = if self.is_in_sync {
                        &rest[PACKET_LEN..]
                    } else {
                        rest
                    };
                }
                continue;
            }
            let taken = rest.len().min(PACKET_LEN - self.held_len);
            self.held[self.held_len..self.held_len + taken].copy_from_slice(&rest[..taken]);
            self.held_len += taken;
            rest = &rest[taken..];
            if self.held_len == PACKET_LEN {
                self.held_len = 0;
                let packet = self.held;
                self.inspect(&packet);
                if !self.is_in_sync {
                    self.counts.out_of_sync_bytes += PACKET_LEN as u64;
                }
            }
        }
        self.counts.out_of_sync_bytes += rest.len() as u64;
    }

    /// Returns the counts of the file, which ends here. A packet that is not complete counts as a
    /// loss of sync.
    pub fn finish(&self) -> TsCounts {
        TsCounts {
            sync_losses: self.counts.sync_losses + u64::from(self.held_len > 0),
            out_of_sync_bytes: self.counts.out_of_sync_bytes + self.held_len as u64,
            ..self.counts
        }
    }

    /// True if the file has a programme association and a programme map.
    pub fn has_tables(&self) -> bool {
        self.has_tables == [true; 2]
    }

    /// Returns the time code of the first picture that begins in the file.
    pub fn time_code(&self) -> Option<TimeCode> {
        self.time_code
    }

    /// Returns the time stamps of that picture, or of the first unit of any kind if no picture
    /// begins in the file.
    pub fn time_stamps(&self) -> Option<TimeStamps> {
        self.time_stamps
    }

    /// Returns the first picture at which decoding can start. `None` before it, if the file has no
    /// video, and if it is not sought.
    pub fn first_picture(&self) -> Option<FirstPicture> {
        match self.search {
            Search::Found(picture) => Some(picture),
            Search::Off | Search::Sought => None,
        }
    }

    /// Handles the packets at the beginning that need no inspection: those that continue the
    /// counter of the PID before, and of which nothing else is read. Nearly all are such packets.
    /// Returns their number.
    #[inline]
    fn take_plain(&mut self, packets: &[[u8; PACKET_LEN]]) -> usize {
        let Some((pid, counter)) = self.pids.expected() else {
            return 0;
        };
        // Maps may have arrived before the association that names their PID.
        if self.tables.is_map(pid) || self.search != Search::Off {
            return 0;
        }
        let of_units = if self.has_picture { 0 } else { UNIT_START };
        let mask = PLAIN_MASK & !ADAPTATION | of_units | PID_MASK | COUNTER_MASK;
        let mut expected = PLAIN | u32::from(pid) << 8 | u32::from(counter);
        let mut count = 0;
        for packet in packets {
            let word = first_word(packet);
            let is_plain = word & ADAPTATION == 0 || has_sound_adaptation(packet);
            if word & mask != expected || !is_plain {
                break;
            }
            expected = expected & !COUNTER_MASK | expected.wrapping_add(1) & COUNTER_MASK;
            count += 1;
        }
        self.pids.continued(count as u64);
        self.counts.ts_packets += count as u64;
        count
    }

    fn inspect(&mut self, packet: &[u8; PACKET_LEN]) {
        if packet[0] != SYNC {
            self.is_in_sync = false;
            self.counts.sync_losses += 1;
            return;
        }
        self.counts.ts_packets += 1;
        let Some(header) = self.counts.read_header(packet) else {
            return;
        };
        if header.pid == NULL_PID {
            return;
        }
        // Some segmenters begin each file with the same tables, whose counters then stand still.
        if header.pid != PAT_PID && !self.tables.is_map(header.pid) {
            self.pids.packet(&header, &mut self.counts);
        } else {
            self.has_tables[usize::from(header.pid != PAT_PID)] |= header.unit_start;
            self.tables
                .packet(&header, header.payload_of(packet), &mut self.counts);
        }
        if !self.has_picture && header.unit_start && !header.scrambled {
            self.begin_unit(header.payload_of(packet));
        }
        if self.search != Search::Off && header.has_payload {
            self.search_in(&header, header.payload_of(packet));
        }
    }

    /// Reads a packet while the first picture at which decoding can start is not complete.
    fn search_in(&mut self, header: &Header, payload: &[u8]) {
        let Some((_, coding)) = self.tables.video().filter(|own| own.0 == header.pid) else {
            return;
        };
        let arrived = FirstPicture {
            end: self.counts.ts_packets * PACKET_LEN as u64,
            is_complete: false,
        };
        match &mut self.search {
            Search::Found(picture) if picture.is_complete => {}
            Search::Found(picture) if header.unit_start => picture.is_complete = true,
            Search::Found(picture) => *picture = arrived,
            Search::Sought | Search::Off => {
                // Parameter sets may follow in a later packet of the picture.
                let is_entry = header.random_access && header.unit_start
                    || !header.scrambled && coding.is_entry_point(payload);
                if is_entry {
                    self.search = Search::Found(arrived);
                }
            }
        }
    }

    /// Reads the first packet of a unit, while there is no picture.
    fn begin_unit(&mut self, payload: &[u8]) {
        let [0, 0, 1, stream, ..] = payload else {
            return;
        };
        let is_picture = VIDEO.contains(stream);
        if is_picture {
            self.has_picture = true;
            self.time_code = TimeCode::find_in_stream(payload);
        }
        if is_picture || self.time_stamps.is_none() {
            self.time_stamps = TimeStamps::read(payload, is_picture);
        }
    }
}

/// True if the adaptation field of a packet with payload is well formed (ISO/IEC 13818-1, 2.4.3.4).
#[inline]
fn has_sound_adaptation(packet: &[u8; PACKET_LEN]) -> bool {
    let [_, _, _, _, length, flags, ..] = *packet;
    let has_room = flags & 0x10 == 0 || length >= 7;
    length == 0 || length <= 182 && has_room
}

impl TimeStamps {
    /// Reads the time stamps of a PES packet (ISO/IEC 13818-1, 2.4.3.6).
    fn read(payload: &[u8], is_picture: bool) -> Option<TimeStamps> {
        let (&[_, flags, _], fields) = payload.get(6..)?.split_first_chunk()?;
        let stamp = |bytes: &[u8; 5]| {
            let [first, second, third, fourth, fifth] = bytes.map(u64::from);
            let (upper, lower) = (second << 7 | third >> 1, fourth << 7 | fifth >> 1);
            (first >> 1 & 7) << 30 | upper << 15 | lower
        };
        let (first, rest) = fields.split_first_chunk::<5>()?;
        let presentation = (flags & 0x80 != 0).then(|| stamp(first))?;
        let decoding = rest.first_chunk().filter(|_| flags & 0x40 != 0);
        Some(TimeStamps {
            presentation,
            decoding: decoding.map_or(presentation, stamp),
            is_picture,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mediagen::frame_rate::FrameRate;
    use crate::mediagen::segments::{Container, Cut, SegmentedVideo};
    use crate::mediagen::video::{PictureForm, VideoSettings};

    const PICTURES: u64 = 10;

    fn segments(count: u64) -> Vec<Vec<u8>> {
        let settings = VideoSettings {
            bits_per_second: 500_000,
            frame_rate: FrameRate::whole(PICTURES as u32),
            gop: PICTURES as u32,
            mtu: 65_000,
            form: PictureForm::default(),
        };
        let video = SegmentedVideo::new(&settings, Container::MpegTs).expect("it can be generated");
        let cut = |segment| Cut {
            pictures: segment * PICTURES..(segment + 1) * PICTURES,
            segment,
            begins_segment: true,
            source: 7,
        };
        let due = |picture| 1_000_000_000 + picture;
        (0..count).map(|own| video.write(&cut(own), due)).collect()
    }

    fn check(bytes: &[u8], piece: usize) -> TsFile {
        let mut file = TsFile::default();
        bytes.chunks(piece).for_each(|bytes| file.feed(bytes));
        file
    }

    proptest! {
        #[test]
        fn files_are_checked_alike_in_pieces_of_any_size(piece in 1usize..1000) {
            let first_stamp = check(&segments(1)[0], 188).time_stamps().expect("they are there");
            for (number, segment) in segments(3).iter().enumerate() {
                let file = check(segment, piece);
                let ts_packets = (segment.len() / PACKET_LEN) as u64;
                let clean = TsCounts { ts_packets, ..TsCounts::default() };
                prop_assert_eq!(file.finish(), clean);
                prop_assert!(file.has_tables());
                let code = file.time_code().expect("it is there");
                prop_assert_eq!(code.number, number as u32 * PICTURES as u32);
                let stamps = file.time_stamps().expect("they are there");
                let since = number as u64 * 90_000;
                prop_assert_eq!(stamps.presentation, first_stamp.presentation + since);
                prop_assert_eq!(stamps.decoding, first_stamp.decoding + since);
                prop_assert!(stamps.is_picture);
            }
        }

        #[test]
        fn plain_packets_are_counted_as_if_inspected(
            changes in prop::collection::vec((0usize..60, 0usize..6, any::<u8>()), 0..8),
            fields in prop::collection::vec((0usize..60, 0usize..6, 0usize..4), 0..8),
            moved in prop::collection::vec((0usize..60, 0usize..60), 0..8),
            seeks: bool,
        ) {
            let mut bytes = segments(1).remove(0);
            let packets = bytes.as_chunks_mut::<PACKET_LEN>().0;
            let count = packets.len();
            for (packet, byte, value) in changes {
                packets[packet % count][byte] = value;
            }
            for (packet, length, flags) in fields {
                let packet = &mut packets[packet % count];
                packet[3] |= 0x20;
                packet[4] = [0, 1, 6, 7, 182, 183][length];
                packet[5] = [0, 0x10, 0x40, 0x80][flags];
            }
            for (from, to) in moved {
                packets[to % count] = packets[from % count];
            }
            let make = || match seeks {
                true => TsFile::seeking_picture(),
                false => TsFile::default(),
            };
            let mut inspected = make();
            for packet in &*packets {
                match inspected.is_in_sync {
                    true => inspected.inspect(packet),
                    false => break,
                }
            }
            let after = inspected.counts.ts_packets as usize * PACKET_LEN;
            inspected.counts.out_of_sync_bytes = (bytes.len() - after) as u64;
            let mut file = make();
            bytes.chunks(1316).for_each(|bytes| file.feed(bytes));
            prop_assert_eq!(file.finish(), inspected.finish());
            prop_assert_eq!(file.first_picture(), inspected.first_picture());
            prop_assert_eq!(file.time_code(), inspected.time_code());
            prop_assert_eq!(file.time_stamps(), inspected.time_stamps());
            prop_assert_eq!(file.has_tables(), inspected.has_tables());
            let own: Vec<_> = file.pids.counts().collect();
            let expected: Vec<_> = inspected.pids.counts().collect();
            prop_assert_eq!(own, expected);
        }

        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            packets in 0usize..4,
            piece in 1usize..400,
        ) {
            let bytes = [&segments(1)[0][..packets * PACKET_LEN], &bytes].concat();
            let counts = check(&bytes, piece).finish();
            let known = counts.ts_packets * PACKET_LEN as u64 + counts.out_of_sync_bytes;
            prop_assert_eq!(known, bytes.len() as u64);
        }
    }

    #[test]
    fn first_picture_ends_where_the_next_one_begins() {
        let segment = segments(1).remove(0);
        let packets = segment.chunks(PACKET_LEN).enumerate();
        let units = packets.filter(|(_, packet)| {
            let packet: &[u8; PACKET_LEN] = (*packet).try_into().expect("it is whole");
            let header = Header::parse(packet).expect("it is one");
            header.payload_of(packet).starts_with(&[0, 0, 1, 0xe0])
        });
        let starts: Vec<_> = units.map(|own| own.0 * PACKET_LEN).collect();
        assert_eq!(starts.len() as u64, PICTURES);
        let end = starts[1];
        let seek = |bytes: &[u8]| {
            let mut file = TsFile::seeking_picture();
            bytes.chunks(100).for_each(|bytes| file.feed(bytes));
            file.first_picture().map(|own| (own.end, own.is_complete))
        };
        // The picture counts as complete once the next one begins.
        assert_eq!(seek(&segment[..starts[0]]), None);
        let part = end - PACKET_LEN;
        assert_eq!(seek(&segment[..part]), Some((part as u64, false)));
        assert_eq!(seek(&segment[..end]), Some((end as u64, false)));
        assert_eq!(seek(&segment[..end + PACKET_LEN]), Some((end as u64, true)));
        assert_eq!(seek(&segment), Some((end as u64, true)));
        // Packets of other streams between two pictures do not belong to it.
        let mut other = [0xff; PACKET_LEN];
        other[..4].copy_from_slice(&[SYNC, 0x1a, 0xbc, 0x10]);
        let mixed = [&segment[..end], &other].concat();
        assert_eq!(seek(&mixed), Some((end as u64, false)));
        let mixed = [&mixed, &segment[end..]].concat();
        assert_eq!(seek(&mixed), Some((end as u64, true)));
        // Decoding cannot start at the second one.
        let tables = &segment[..starts[0]];
        assert_eq!(seek(&[tables, &segment[starts[1]..]].concat()), None);
        assert_eq!(check(&segment, 100).first_picture(), None);
    }

    #[test]
    fn maps_count_from_the_association_that_names_them() {
        let mut segment = segments(1).remove(0);
        let packets = segment.as_chunks_mut::<PACKET_LEN>().0;
        let [association, map, picture] = [packets[0], packets[1], packets[2]];
        let mut next_map = map;
        next_map[3] = next_map[3] & 0xf0 | next_map[3].wrapping_add(1) & 0x0f;
        let file = check(&[picture, map, association, next_map].concat(), 1316);
        assert!(file.has_tables() && file.time_code().is_some());
        let file = check(&[picture, map, association].concat(), 1316);
        assert!(!file.has_tables());
    }

    #[test]
    fn missing_packets_are_counted() {
        let mut segment = segments(1).remove(0);
        segment.drain(10 * PACKET_LEN..12 * PACKET_LEN);
        let counts = check(&segment, 1316).finish();
        assert_eq!((counts.continuity_errors, counts.continuity_lost), (1, 2));
    }

    #[test]
    fn shifted_bytes_and_half_a_packet_are_losses_of_sync() {
        let segment = &segments(1)[0];
        for piece in [100, 188, 1316] {
            let (before, after) = segment.split_at(2 * PACKET_LEN);
            let counts = check(&[before, b"x", after].concat(), piece).finish();
            assert_eq!((counts.ts_packets, counts.sync_losses), (2, 1));
            assert_eq!(counts.out_of_sync_bytes, after.len() as u64 + 1);
            let counts = check(&segment[..PACKET_LEN + 90], piece).finish();
            assert_eq!((counts.ts_packets, counts.sync_losses), (1, 1));
            assert_eq!(counts.out_of_sync_bytes, 90);
        }
    }

    #[test]
    fn files_without_tables_or_with_damaged_ones_are_noticed() {
        let segment = &segments(1)[0];
        let file = check(&segment[2 * PACKET_LEN..], 1316);
        assert!(!file.has_tables());
        let mut damaged = segment.clone();
        damaged[PACKET_LEN - 180] ^= 1;
        let file = check(&damaged, 1316);
        assert!(file.finish().table_errors > 0);
    }

    #[test]
    fn time_stamps_of_reordered_pictures_are_both_read() {
        let mut payload = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
        // 90,000 and 82,800.
        payload.extend([0x31, 0, 0x05, 0xbf, 0x21, 0x11, 0, 0x05, 0x86, 0xe1]);
        let stamps = TimeStamps::read(&payload, true).expect("they are there");
        assert_eq!((stamps.presentation, stamps.decoding), (90_000, 82_800));
        payload[7] = 0x80;
        let stamps = TimeStamps::read(&payload, true).expect("it is there");
        assert_eq!((stamps.presentation, stamps.decoding), (90_000, 90_000));
        payload[7] = 0;
        assert_eq!(TimeStamps::read(&payload, true), None);
    }

    #[test]
    fn tables_whose_counters_stand_still_are_no_errors() {
        let segment = &segments(1)[0];
        let (tables, rest) = segment.split_at(2 * PACKET_LEN);
        let counts = check(&[tables, tables, tables, rest].concat(), 1316).finish();
        assert_eq!((counts.continuity_errors, counts.ts_duplicates), (0, 0));
    }
}
