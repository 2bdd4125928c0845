//! Boxes of fragmented MP4 (ISO/IEC 14496-12, 4.2), as they arrive.

use kit::mediagen::time_code::TimeCode;

use crate::start::Start;

mod first_picture;

use first_picture::{FirstSample, Sample, Search};

/// Length of the longest header of a box: size, type, and the larger size.
const HEADER_MAX: usize = 16;

/// Number of bytes at the beginning of media data in which a time code is searched. The video may
/// follow some audio, and parameter sets precede the code.
const SEARCHED_MAX: usize = 4096;

/// Number of bytes at the beginning of a movie fragment that are read: they have the number of the
/// first track, and its time.
const FRAGMENT_READ_MAX: usize = 256;

/// Number of these bytes while a picture is sought: its track may follow others.
const FRAGMENT_SOUGHT_MAX: usize = 4096;

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
    /// Position at which the current box begins.
    box_at: u64,
    /// Search for the first picture at which decoding can start.
    search: Option<Search>,
}

/// Purpose of reading the beginning of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Fragment { is_first: bool },
    TimeCode,
}

/// Time of the first sample of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackStart {
    track: u32,
    /// Times of decoding and of presentation, in units of the track's time scale.
    ticks: [u64; 2],
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
    /// Size and flags of samples whose fragments do not state them.
    defaults: Sample,
}

impl Boxes {
    /// Creates a checker that also seeks the first picture at which decoding can start.
    pub(crate) fn seeking_picture() -> Boxes {
        Boxes {
            search: Some(Search::default()),
            ..Boxes::default()
        }
    }

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
        let is_sought = self.search.is_some();
        // Only the first of each kind, unless a picture is sought.
        self.reads = match kind {
            b"moof" if is_sought || !self.has_fragment => Some(Read::Fragment {
                is_first: !self.has_fragment,
            }),
            b"mdat" if !self.has_media_data => Some(Read::TimeCode),
            _ => None,
        };
        self.box_at = self.position - self.header_len as u64;
        if let Some(search) = self.search.as_mut().filter(|_| kind == b"mdat") {
            search.begin_data(self.box_at.saturating_add(size));
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
            Read::Fragment { .. } if self.search.is_some() => FRAGMENT_SOUGHT_MAX,
            Read::Fragment { .. } => FRAGMENT_READ_MAX,
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
            (true, Read::Fragment { is_first }) => {
                if is_first {
                    self.track_start = TrackStart::read(all);
                }
                if let Some(search) = &mut self.search {
                    search.take_fragment(self.box_at, all);
                }
            }
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

    /// Returns the number of bytes up to the end of the first picture at which decoding can start,
    /// if it is sought and has arrived. `is_whole` is true if the body is complete.
    pub(crate) fn first_picture_end(&self, scales: &TimeScales, is_whole: bool) -> Option<u64> {
        let search = self.search.as_ref()?;
        search.end(scales, self.position, is_whole)
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
        let first = child(track, *b"trun").and_then(FirstSample::read);
        let offset = first.unwrap_or_default().offset;
        Some(TrackStart {
            track: number(header.get(4..8)?)? as u32,
            ticks: [decoding, decoding.saturating_add_signed(offset)],
        })
    }
}

impl TimeScales {
    /// Reads an initialization section (ISO/IEC 14496-12, 8.2.1).
    pub(crate) fn read(section: &[u8]) -> TimeScales {
        let movie = child(section, *b"moov").unwrap_or_default();
        let tracks = children(movie).filter(|(kind, _)| *kind == b"trak");
        // Values for all samples, by the number of the track.
        let extends = child(movie, *b"mvex").unwrap_or_default();
        let defaults_of = |id: &[u8]| {
            let mut all = children(extends).filter(|(kind, _)| *kind == b"trex");
            let own = all.find(|(_, own)| own.get(4..8) == Some(id));
            own.map_or(Sample::default(), |(_, own)| Sample::of_track(own))
        };
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
                defaults: defaults_of(id.get(..4)?),
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

    /// Returns what holds for all samples of a track of video; `None` if it is not one.
    fn video(&self, track: u32) -> Option<Sample> {
        let mut tracks = self.0.iter();
        let own = tracks.find(|own| own.track == track && own.is_video)?;
        Some(own.defaults)
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

    use super::*;

    pub(super) fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
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
            let mut seeking = Boxes::seeking_picture();
            bytes.chunks(piece).for_each(|bytes| seeking.feed(bytes));
            let scales = TimeScales::read(&bytes);
            if let Some(end) = seeking.first_picture_end(&scales, true) {
                prop_assert!(end <= bytes.len() as u64);
            }
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
