//! Boxes of fragmented MP4 (ISO/IEC 14496-12, 4.2), as they arrive.

use mediagen::time_code::TimeCode;

use crate::start::Start;

/// Length of the longest header of a box: size, type, and the larger size.
const HEADER_MAX: usize = 16;

/// Number of bytes at the beginning of media data in which a time code is searched. The video may
/// follow some audio, and parameter sets precede the code.
const SEARCHED_MAX: usize = 4096;

/// Number of bytes at the beginning of a movie fragment that are read: they have the number of the
/// first track, and its time.
const FRAGMENT_READ_MAX: usize = 256;

/// Maximum length of an initialization section that is read.
pub(crate) const SECTION_MAX: usize = 64 << 10;

/// Maximum number of tracks of which the time scale is kept.
const TRACKS_MAX: usize = 8;

/// Checks that a body consists of whole boxes, and reads the beginnings of some.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    header: [u8; HEADER_MAX],
    header_len: usize,
    /// Bytes left of the current box; `u64::MAX` if it ends with the body.
    left: u64,
    has_fragment: bool,
    has_media_data: bool,
    is_broken: bool,
    /// Purpose of reading the beginning of the current box; `None` if it is not read.
    reads: Option<Read>,
    /// Beginning of the current box, as far as it has arrived.
    beginning: Vec<u8>,
    time_code: Option<TimeCode>,
    track_start: Option<TrackStart>,
    /// Number of bytes so far.
    position: u64,
    /// Position at which the first movie fragment begins.
    fragment_at: u64,
    /// Position at which the first media data ends.
    data_end: Option<u64>,
}

/// Purpose of reading the beginning of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    TrackStart,
    TimeCode,
}

/// Time of the first sample of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackStart {
    track: u32,
    /// Times of decoding and of presentation, in units of the track's time scale.
    ticks: [u64; 2],
    /// False if the sample says that decoding cannot start at it.
    is_entry: bool,
    /// Number of bytes from the beginning of the fragment to the end of the sample.
    end: Option<u64>,
}

/// Time scales of the tracks of an initialization section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeScales(Vec<TrackScale>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrackScale {
    track: u32,
    /// Ticks per second.
    scale: u32,
    is_video: bool,
}

impl Boxes {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_broken {
            if self.left == 0 {
                bytes = self.take_header(bytes);
                continue;
            }
            let taken =
                usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (own, rest) = bytes.split_at(taken);
            self.position = self.position.saturating_add(taken as u64);
            if self.left != u64::MAX {
                self.left -= taken as u64;
            }
            if let Some(read) = self.reads {
                self.read(read, own);
            }
            bytes = rest;
        }
    }

    /// Takes bytes of a header, and returns the rest.
    fn take_header<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let wanted = match self.header[..4] {
            [0, 0, 0, 1] if self.header_len >= 8 => HEADER_MAX,
            _ => 8,
        };
        let taken = bytes.len().min(wanted - self.header_len);
        self.header[self.header_len..self.header_len + taken].copy_from_slice(&bytes[..taken]);
        self.header_len += taken;
        self.position = self.position.saturating_add(taken as u64);
        self.begin_box();
        &bytes[taken..]
    }

    /// Begins a box if its header is complete.
    fn begin_box(&mut self) {
        let Some((size, rest)) = self.header[..self.header_len].split_first_chunk::<4>() else {
            return;
        };
        let Some((kind, rest)) = rest.split_first_chunk::<4>() else {
            return;
        };
        let size = match (u32::from_be_bytes(*size), rest.first_chunk::<8>()) {
            (0, _) => u64::MAX,
            (1, None) => return,
            (1, Some(larger)) => u64::from_be_bytes(*larger),
            (size, _) => size.into(),
        };
        // Only the first of each kind.
        self.reads = match kind {
            b"moof" if !self.has_fragment => Some(Read::TrackStart),
            b"mdat" if !self.has_media_data => Some(Read::TimeCode),
            _ => None,
        };
        let begins_at = self.position - self.header_len as u64;
        if kind == b"moof" && !self.has_fragment {
            self.fragment_at = begins_at;
        } else if kind == b"mdat" && !self.has_media_data {
            self.data_end = begins_at.checked_add(size);
        }
        self.has_fragment |= kind == b"moof";
        self.has_media_data |= kind == b"mdat";
        match size.checked_sub(self.header_len as u64) {
            _ if size == u64::MAX => self.left = size,
            Some(left) => self.left = left,
            None => self.is_broken = true,
        }
        self.header_len = 0;
        self.header = [0; HEADER_MAX];
    }

    /// Reads a box whose next bytes these are, once enough of it has arrived.
    fn read(&mut self, read: Read, bytes: &[u8]) {
        let wanted = match read {
            Read::TrackStart => FRAGMENT_READ_MAX,
            Read::TimeCode => SEARCHED_MAX,
        };
        let room = wanted - self.beginning.len();
        let taken = &bytes[..bytes.len().min(room)];
        let is_all = bytes.len() >= room || self.left == 0;
        // A beginning that arrives in one piece, as most do, is not copied.
        let mut beginning = std::mem::take(&mut self.beginning);
        let all = match beginning.is_empty() && is_all {
            true => taken,
            false => {
                beginning.extend_from_slice(taken);
                &beginning
            }
        };
        match (is_all, read) {
            (false, _) => {
                self.beginning = beginning;
                return;
            }
            (true, Read::TrackStart) => self.track_start = TrackStart::read(all),
            (true, Read::TimeCode) => self.time_code = TimeCode::find_in_stream(all),
        }
        self.reads = None;
    }

    /// Ends the body, which has a segment or a part of one. Returns what is wrong with it.
    pub(crate) fn finish(&self) -> Option<&'static str> {
        if self.is_broken {
            Some("a box is smaller than its header")
        } else if self.header_len > 0 || !matches!(self.left, 0 | u64::MAX) {
            Some("its last box is not complete")
        } else if !self.has_fragment || !self.has_media_data {
            Some("it has no movie fragment with media data")
        } else {
            None
        }
    }

    /// Returns the time code of the first picture; `None` if it has none.
    pub(crate) fn time_code(&self) -> Option<TimeCode> {
        self.time_code
    }

    /// Returns the number of bytes after which the first picture is complete, if decoding can start
    /// at it. If it is not known where it ends, or if another track comes first, that is the end of
    /// the first media data.
    pub(crate) fn entry_end(&self, scales: &TimeScales) -> Option<u64> {
        let end = match self.track_start {
            Some(start) if scales.is_video(start.track) => match start.is_entry {
                true => start.end.and_then(|end| self.fragment_at.checked_add(end)),
                false => return None,
            },
            _ => None,
        };
        let known = end.or(self.data_end)?;
        (known <= self.position).then_some(known)
    }

    /// Returns the time of the first sample.
    pub(crate) fn track_start(&self) -> Option<TrackStart> {
        self.track_start
    }
}

impl TrackStart {
    /// Reads the beginning of a movie fragment (ISO/IEC 14496-12, 8.8.4).
    fn read(fragment: &[u8]) -> Option<TrackStart> {
        let track = child(fragment, *b"traf")?;
        let header = child(track, *b"tfhd")?;
        let time = child(track, *b"tfdt")?;
        let decoding = match time.first()? {
            0 => number(time.get(4..8)?)?,
            _ => number(time.get(4..12)?)?,
        };
        let sample = child(track, *b"trun").and_then(Sample::read);
        let sample = sample.unwrap_or_default();
        let defaults = SampleDefaults::read(header);
        let flags = sample.flags.or(defaults.flags).unwrap_or(0);
        let size = sample.size.or(defaults.size);
        // Positions in the file, as of old, say nothing about a segment.
        let data = sample.data.filter(|_| !defaults.has_base);
        let end = data.and_then(|data| data.checked_add(size?));
        Some(TrackStart {
            track: number(header.get(4..8)?)? as u32,
            ticks: [decoding, decoding.saturating_add_signed(sample.offset)],
            is_entry: flags & IS_NO_SYNC_SAMPLE == 0,
            end,
        })
    }
}

/// Flag of samples at which decoding cannot start (ISO/IEC 14496-12, 8.8.3.1).
const IS_NO_SYNC_SAMPLE: u64 = 0x1_0000;

/// Properties of all samples of a fragment that do not have their own (ISO/IEC 14496-12, 8.8.7).
struct SampleDefaults {
    has_base: bool,
    size: Option<u64>,
    flags: Option<u64>,
}

impl SampleDefaults {
    fn read(header: &[u8]) -> SampleDefaults {
        let present = header.get(1..4).and_then(number).unwrap_or(0);
        // After version, flags and track: base, description, duration, size, and flags.
        let fields = [(0x1, 8), (0x2, 4), (0x8, 4), (0x10, 4), (0x20, 4)];
        let mut found = fields_of(header, 8, present, fields);
        SampleDefaults {
            has_base: present & 0x1 != 0,
            size: found[3].take(),
            flags: found[4].take(),
        }
    }
}

/// First sample of a run (ISO/IEC 14496-12, 8.8.8).
#[derive(Default)]
struct Sample {
    /// Bytes from the beginning of the fragment.
    data: Option<u64>,
    size: Option<u64>,
    flags: Option<u64>,
    /// Time from decoding to presentation.
    offset: i64,
}

impl Sample {
    fn read(run: &[u8]) -> Option<Sample> {
        let present = number(run.get(1..4)?)?;
        // After version, flags and number of samples: data offset and flags of the first sample,
        // then its duration, size, flags and offset.
        let fields = [0x1, 0x4, 0x100, 0x200, 0x400, 0x800].map(|flag| (flag, 4));
        let [data, first_flags, _, size, flags, offset] = fields_of(run, 8, present, fields);
        Some(Sample {
            data,
            size,
            flags: first_flags.or(flags),
            // Signed in version 1. Larger ones of version 0 are no sensible offsets.
            offset: offset.map_or(0, |offset| (offset as u32 as i32).into()),
        })
    }
}

/// Returns the fields of a box that are present by its flags, of which each is given with its flag
/// and its length. They begin at byte `at`.
fn fields_of<const N: usize>(
    bytes: &[u8],
    mut at: usize,
    present: u64,
    fields: [(u64, usize); N],
) -> [Option<u64>; N] {
    fields.map(|(flag, length)| {
        let is_there = present & flag != 0;
        let field = bytes.get(at..at + length).filter(|_| is_there);
        at += if is_there { length } else { 0 };
        number(field?)
    })
}

impl TimeScales {
    /// Reads an initialization section (ISO/IEC 14496-12, 8.2.1).
    pub(crate) fn read(section: &[u8]) -> TimeScales {
        let movie = child(section, *b"moov").unwrap_or_default();
        let tracks = children(movie).filter(|(kind, _)| *kind == b"trak");
        let scale = |track: &[u8]| {
            let header = child(track, *b"tkhd")?;
            let information = child(track, *b"mdia")?;
            let media = child(information, *b"mdhd")?;
            // The kind of media, after version, flags and four bytes (ISO/IEC 14496-12, 8.4.3).
            let handler = child(information, *b"hdlr").and_then(|own| own.get(8..12));
            // Two times precede, of 4 or 8 bytes each.
            let times = |full_box: &[u8]| if full_box.first() == Some(&0) { 12 } else { 20 };
            let (id, scale) = (header.get(times(header)..)?, media.get(times(media)..)?);
            Some(TrackScale {
                track: number(id.get(..4)?)? as u32,
                scale: number(scale.get(..4)?)? as u32,
                is_video: handler == Some(b"vide"),
            })
        };
        let found = tracks.filter_map(|(_, track)| scale(track));
        TimeScales(found.filter(|own| own.scale > 0).take(TRACKS_MAX).collect())
    }

    /// Returns the time of a fragment; `None` if its track is unknown.
    pub(crate) fn start(&self, start: TrackStart) -> Option<Start> {
        let own = self.0.iter().find(|own| own.track == start.track)?;
        Some(Start::new(start.ticks, own.scale, own.track))
    }

    fn is_video(&self, track: u32) -> bool {
        self.0.iter().any(|own| own.track == track && own.is_video)
    }
}

/// Returns the boxes in a piece of memory; the last one may be cut off.
fn children(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (size, rest) = bytes.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let size = u32::from_be_bytes(*size).checked_sub(8)? as usize;
        let (body, after) = rest.split_at(size.min(rest.len()));
        bytes = after;
        Some((kind, body))
    })
}

fn child(bytes: &[u8], kind: [u8; 4]) -> Option<&[u8]> {
    let mut found = children(bytes).filter(|own| *own.0 == kind);
    found.next().map(|own| own.1)
}

fn number(bytes: &[u8]) -> Option<u64> {
    (bytes.len() <= 8).then(|| {
        bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use mediagen::frame_rate::FrameRate;
    use mediagen::segments::{Container, Cut, SegmentedVideo};
    use mediagen::video::{PictureForm, VideoSettings};

    use super::*;

    fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len() as u32).to_be_bytes();
        [&size[..], kind, body].concat()
    }

    fn larger(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = (16 + body.len() as u64).to_be_bytes();
        [&[0, 0, 0, 1], &kind[..], &size, body].concat()
    }

    fn check(bytes: &[u8], piece: usize) -> Boxes {
        let mut boxes = Boxes::default();
        bytes.chunks(piece).for_each(|bytes| boxes.feed(bytes));
        boxes
    }

    fn code(number: u32) -> TimeCode {
        TimeCode {
            source: 3,
            number,
            nanos: 1_700_000_000_000_000_000,
        }
    }

    proptest! {
        #[test]
        fn whole_boxes_are_whole_in_pieces_of_any_size(
            piece in 1usize..200,
            before in 0usize..5000,
            after in 0usize..300,
            is_larger: bool,
            is_last: bool,
        ) {
            let data = [&vec![9; before][..], &code(5).to_nal(), &vec![8; after]].concat();
            let mut data = match is_larger && !is_last {
                true => larger(b"mdat", &data),
                false => boxed(b"mdat", &data),
            };
            if is_last {
                data[..4].copy_from_slice(&[0; 4]);
            }
            let body = [boxed(b"styp", b"msdh"), boxed(b"moof", &[1; 90]), data].concat();
            let boxes = check(&body, piece);
            prop_assert_eq!(boxes.finish(), None);
            // A box up to the end of the body is not known to be complete before.
            if before + 39 <= SEARCHED_MAX && !is_last {
                prop_assert_eq!(boxes.time_code(), Some(code(5)));
            } else if before > SEARCHED_MAX {
                prop_assert_eq!(boxes.time_code(), None);
            }
            let cut = &body[..body.len() - 1];
            prop_assert_eq!(check(cut, piece).finish().is_none(), is_last);
        }

        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            kind in prop::sample::select(vec![*b"moof", *b"moov", *b"mdat"]),
            piece in 1usize..50,
        ) {
            let bytes = [&boxed(&kind, &bytes)[..], &bytes].concat();
            let boxes = check(&bytes, piece);
            let whole = check(&bytes, bytes.len());
            prop_assert_eq!(boxes.finish(), whole.finish());
            prop_assert_eq!(boxes.track_start(), whole.track_start());
            TimeScales::read(&bytes);
        }

        #[test]
        fn times_are_read_in_both_versions(
            ticks: u32,
            high: u32,
            id in 1u32..9,
            scale in 1u32..,
            offset: i32,
            piece in 1usize..100,
        ) {
            let (id, scale) = (id.to_be_bytes(), scale.to_be_bytes());
            let large = u64::from(high) << 32 | u64::from(ticks);
            for version in [0u8, 1] {
                let full = |fields: &[&[u8]]| [&[version, 0, 0, 0], &fields.concat()[..]].concat();
                let times = vec![7; 8 << version];
                let (time, ticks) = match version {
                    0 => (ticks.to_be_bytes().to_vec(), ticks.into()),
                    _ => (large.to_be_bytes().to_vec(), large),
                };
                let media = boxed(b"mdia", &boxed(b"mdhd", &full(&[&times, &scale])));
                let track = [boxed(b"tkhd", &full(&[&times, &id])), media].concat();
                let movie = boxed(b"moov", &[boxed(b"mvhd", &[0; 9]), boxed(b"trak", &track)].concat());
                let scales = TimeScales::read(&[boxed(b"ftyp", b"iso5"), movie].concat());
                let head = boxed(b"tfhd", &full(&[&id]));
                // With size and offset of each sample.
                let flags = [version, 0, 0x0a, 0];
                let run = [&flags[..], &1u32.to_be_bytes(), &[9; 4], &offset.to_be_bytes()].concat();
                let own = [head, boxed(b"tfdt", &full(&[&time])), boxed(b"trun", &run)].concat();
                let inner = [boxed(b"mfhd", &[0; 8]), boxed(b"traf", &own)].concat();
                let body = [boxed(b"moof", &inner), boxed(b"mdat", b"x")].concat();
                let start = check(&body, piece).track_start().expect("it is there");
                let ticks = [ticks, ticks.saturating_add_signed(offset.into())];
                let expected = Start::new(ticks, u32::from_be_bytes(scale), u32::from_be_bytes(id));
                prop_assert_eq!(scales.start(start), Some(expected));
                prop_assert_eq!(TimeScales::default().start(start), None);
            }
        }
    }

    /// A segment of ten pictures, its first picture, and the time scales of its track.
    fn pictures() -> (Vec<u8>, Vec<u8>, TimeScales) {
        let settings = VideoSettings {
            bits_per_second: 500_000,
            frame_rate: FrameRate::whole(10),
            gop: 10,
            mtu: 65_000,
            form: PictureForm::default(),
        };
        let video =
            SegmentedVideo::new(&settings, Container::FragmentedMp4).expect("it can be made");
        let write = |pictures| {
            let cut = Cut {
                pictures,
                segment: 0,
                begins_segment: true,
                source: 7,
            };
            video.write(&cut, |picture| picture)
        };
        let first = write(0..1);
        let data = first
            .windows(4)
            .position(|kind| kind == b"mdat")
            .expect("it has data");
        let scales = TimeScales::read(video.initialization().expect("it has one"));
        (write(0..10), first[data + 4..].to_vec(), scales)
    }

    #[test]
    fn first_picture_ends_where_its_fragment_says() {
        let (segment, first, scales) = pictures();
        let at = segment.windows(first.len()).position(|own| own == first);
        let end = at.expect("it is in the segment") + first.len();
        assert!(end < segment.len() / 2);
        for piece in [1, 100, segment.len()] {
            assert_eq!(check(&segment[..end - 1], piece).entry_end(&scales), None);
            let boxes = check(&segment[..end], piece);
            assert_eq!(boxes.entry_end(&scales), Some(end as u64));
        }
        // Without the initialization section, it may be of any kind.
        let all = check(&segment, 100);
        assert_eq!(
            all.entry_end(&TimeScales::default()),
            Some(segment.len() as u64)
        );
        let cut = check(&segment[..segment.len() - 1], 100);
        assert_eq!(cut.entry_end(&TimeScales::default()), None);
    }

    #[test]
    fn first_sample_is_read_in_every_form() {
        let full = |flags: u32, fields: &[u32]| {
            let words: Vec<u8> = fields.iter().flat_map(|word| word.to_be_bytes()).collect();
            [&flags.to_be_bytes()[..], &words].concat()
        };
        let scales = TimeScales(vec![TrackScale {
            track: 3,
            scale: 1000,
            is_video: true,
        }]);
        let no_entry = IS_NO_SYNC_SAMPLE as u32;
        // Header of the track, run of samples, and where the first one ends.
        for (header, run, end) in [
            // Size and flags of each sample.
            (full(0, &[3]), full(0x601, &[1, 200, 50, 0]), Some(250)),
            (full(0, &[3]), full(0x601, &[1, 200, 50, no_entry]), None),
            // Flags of the first one only, with the defaults of the others.
            (
                full(0x20, &[3, no_entry]),
                full(0x205, &[1, 200, 0, 50]),
                Some(250),
            ),
            (full(0x30, &[3, 60, no_entry]), full(0x1, &[1, 200]), None),
            (full(0x38, &[3, 9, 60, 0]), full(0x1, &[1, 200]), Some(260)),
            // A position in a file, no position, and no size: the end of the data.
            (full(0x11, &[3, 0, 0, 60]), full(0x1, &[1, 200]), Some(0)),
            (full(0x10, &[3, 60]), full(0, &[1]), Some(0)),
            (full(0, &[3]), full(0x1, &[1, 200]), Some(0)),
            // Audio comes first.
            (full(0x10, &[4, 60]), full(0x1, &[1, 200]), Some(0)),
        ] {
            let own = [
                boxed(b"tfhd", &header),
                boxed(b"tfdt", &full(0, &[5])),
                boxed(b"trun", &run),
            ];
            let fragment = boxed(b"moof", &boxed(b"traf", &own.concat()));
            let body = [boxed(b"styp", b"msdh"), fragment, boxed(b"mdat", &[0; 900])].concat();
            let expected = end.map(|end| match end {
                0 => body.len() as u64,
                _ => 12 + end,
            });
            assert_eq!(
                check(&body, 7).entry_end(&scales),
                expected,
                "{header:?} {run:?}"
            );
        }
    }

    #[test]
    fn bodies_that_are_not_whole_are_named() {
        let fragment = boxed(b"moof", b"x");
        let small = [0, 0, 0, 7, b'm', b'd', b'a', b't'];
        for (body, text) in [
            (&fragment[..], "no movie fragment"),
            (&boxed(b"mdat", b"x"), "no movie fragment"),
            (&[&fragment[..], &small].concat(), "smaller than its header"),
            (&[&fragment[..], &[0, 0]].concat(), "not complete"),
            (
                &[&fragment[..], &[0, 0, 0, 1], b"mdat", &[0; 7]].concat(),
                "not complete",
            ),
        ] {
            let found = check(body, 5).finish().expect("it is wrong");
            assert!(found.contains(text), "{found}");
        }
    }
}
