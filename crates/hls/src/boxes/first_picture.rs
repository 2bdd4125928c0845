//! First picture of fragmented MP4 at which decoding can start, and where it ends.

use super::{TimeScales, child, children, number};

/// Maximum number of fragments of tracks that are kept.
const KEPT_MAX: usize = 32;

/// Flag of samples at which decoding cannot start (ISO/IEC 14496-12, 8.8.3.1).
pub(super) const IS_NO_SYNC_SAMPLE: u64 = 0x1_0000;

/// Flag of track fragments whose positions count from the beginning of the movie fragment (ISO/IEC
/// 14496-12, 8.8.7).
const COUNTS_FROM_FRAGMENT: u64 = 0x2_0000;

/// Search for the picture in the movie fragments of a body.
#[derive(Debug, Default)]
pub(super) struct Search {
    fragments: Vec<TrackFragment>,
}

/// First sample of one track in a movie fragment.
#[derive(Clone, Copy, Debug)]
struct TrackFragment {
    track: u32,
    sample: Sample,
    /// Position after the sample, if the fragment has it. Without the size of the sample if that
    /// is the one of all samples of the track.
    data_at: Option<u64>,
    /// Position at which the media data of the fragment ends.
    data_end: Option<u64>,
}

/// Size and flags of samples; `None` where others are to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    size: Option<u64>,
    flags: Option<u64>,
}

/// First sample of a run (ISO/IEC 14496-12, 8.8.8).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstSample {
    /// Position of its data in the fragment.
    data: Option<u64>,
    sample: Sample,
    /// Time from decoding to presentation.
    pub(super) offset: i64,
}

impl Search {
    /// Takes the beginning of a movie fragment, which begins at this position.
    pub(super) fn take_fragment(&mut self, at: u64, fragment: &[u8]) {
        let tracks = children(fragment).filter(|(kind, _)| *kind == b"traf");
        for (number, (_, track)) in tracks.enumerate() {
            let found = TrackFragment::read(at, number == 0, track);
            self.fragments.extend(found);
        }
        self.fragments.truncate(KEPT_MAX);
    }

    /// Notes that the media data of the fragments so far ends at this position.
    pub(super) fn begin_data(&mut self, end: u64) {
        for fragment in &mut self.fragments {
            fragment.data_end.get_or_insert(end);
        }
    }

    /// Returns the position after the picture, if that has arrived. If it is not known where the
    /// picture ends, that is the end of the media data. The first `position` bytes have arrived.
    pub(super) fn end(&self, scales: &TimeScales, position: u64, is_whole: bool) -> Option<u64> {
        let mut fragments = self.fragments.iter();
        let (found, sample) = fragments.find_map(|own| {
            let defaults = scales.video(own.track)?;
            let sample = own.sample.or(defaults);
            let can_start = sample.flags.unwrap_or(0) & IS_NO_SYNC_SAMPLE == 0;
            can_start.then_some((own, sample))
        })?;
        let end = found.data_at.and_then(|at| at.checked_add(sample.size?));
        match end.or(found.data_end)? {
            // Media data up to the end of the body.
            u64::MAX => is_whole.then_some(position),
            end => (end <= position).then_some(end),
        }
    }
}

impl TrackFragment {
    /// Reads a track fragment (ISO/IEC 14496-12, 8.8.6) of a movie fragment at this position.
    fn read(at: u64, is_first: bool, fragment: &[u8]) -> Option<TrackFragment> {
        let header = child(fragment, *b"tfhd")?;
        let flags = number(header.get(1..4)?)?;
        // Other positions count from the beginning of a file, or from the data of the track
        // fragment before.
        let counts_from_fragment = flags & COUNTS_FROM_FRAGMENT != 0 || is_first && flags & 1 == 0;
        let run = child(fragment, *b"trun").and_then(FirstSample::read)?;
        let data = run.data.filter(|_| counts_from_fragment);
        Some(TrackFragment {
            track: number(header.get(4..8)?)? as u32,
            sample: run.sample.or(Sample::of_header(header, flags)),
            data_at: data.and_then(|data| at.checked_add(data)),
            data_end: None,
        })
    }
}

impl Sample {
    /// Reads what a track fragment states for all of its samples (ISO/IEC 14496-12, 8.8.7).
    fn of_header(header: &[u8], present: u64) -> Sample {
        // After version, flags and track: base, description, duration, size, and flags.
        let fields = [(0x1, 8), (0x2, 4), (0x8, 4), (0x10, 4), (0x20, 4)];
        let [.., size, flags] = fields_of(header, 8, present, fields);
        Sample { size, flags }
    }

    /// Reads what an initialization section states for all samples of a track (ISO/IEC 14496-12,
    /// 8.8.3).
    pub(super) fn of_track(extends: &[u8]) -> Sample {
        // After version, flags, track, description and duration.
        let field = |at: usize| number(extends.get(at..at + 4)?);
        Sample {
            // 0: none is stated.
            size: field(16).filter(|size| *size > 0),
            flags: field(20),
        }
    }

    fn or(self, other: Sample) -> Sample {
        Sample {
            size: self.size.or(other.size),
            flags: self.flags.or(other.flags),
        }
    }
}

impl FirstSample {
    pub(super) fn read(run: &[u8]) -> Option<FirstSample> {
        let present = number(run.get(1..4)?)?;
        // After version, flags and number of samples: data offset and flags of the first sample,
        // then its duration, size, flags and offset.
        let fields = [0x1, 0x4, 0x100, 0x200, 0x400, 0x800].map(|flag| (flag, 4));
        let [data, first_flags, _, size, flags, offset] = fields_of(run, 8, present, fields);
        Some(FirstSample {
            data,
            sample: Sample {
                size,
                flags: first_flags.or(flags),
            },
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

#[cfg(test)]
mod tests {
    use kit::mediagen::frame_rate::FrameRate;
    use kit::mediagen::segments::{Container, Cut, SegmentedVideo};
    use kit::mediagen::video::{PictureForm, VideoSettings};

    use super::super::tests::boxed;
    use super::super::{Boxes, TrackScale};
    use super::*;

    fn seek(bytes: &[u8], piece: usize, scales: &TimeScales) -> Option<u64> {
        let mut boxes = Boxes::seeking_picture();
        bytes.chunks(piece).for_each(|bytes| boxes.feed(bytes));
        boxes.first_picture_end(scales, false)
    }

    /// Tracks 3, of video, and 4, of audio.
    fn scales(defaults: Sample) -> TimeScales {
        let track = |track, is_video| TrackScale {
            track,
            scale: 1000,
            is_video,
            defaults,
        };
        TimeScales(vec![track(3, true), track(4, false)])
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
        let mut places = first.windows(4);
        let data = places
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
            assert_eq!(seek(&segment[..end - 1], piece, &scales), None);
            assert_eq!(seek(&segment[..end], piece, &scales), Some(end as u64));
            assert_eq!(seek(&segment, piece, &scales), Some(end as u64));
        }
        // Without the initialization section, it may be of any kind.
        assert_eq!(seek(&segment, 100, &TimeScales::default()), None);
        let mut unsought = Boxes::default();
        unsought.feed(&segment);
        assert_eq!(unsought.first_picture_end(&scales, true), None);
    }

    fn full(flags: u32, fields: &[u32]) -> Vec<u8> {
        let words: Vec<u8> = fields.iter().flat_map(|word| word.to_be_bytes()).collect();
        [&flags.to_be_bytes()[..], &words].concat()
    }

    fn track(header: &[u8], run: &[u8]) -> Vec<u8> {
        let own = [
            boxed(b"tfhd", header),
            boxed(b"tfdt", &full(0, &[5])),
            boxed(b"trun", run),
        ];
        boxed(b"traf", &own.concat())
    }

    const NO_SYNC: u32 = IS_NO_SYNC_SAMPLE as u32;

    #[test]
    fn first_sample_is_read_in_every_form() {
        let large = Sample {
            size: Some(70),
            flags: Some(0),
        };
        let late = Sample {
            size: None,
            flags: Some(IS_NO_SYNC_SAMPLE),
        };
        let none = Sample::default();
        // Header of the track, run of samples, values for the whole track, and where the first
        // sample ends; 0 is the end of the data.
        for (header, run, defaults, end) in [
            // Size and flags of each sample.
            (
                full(0, &[3]),
                full(0x601, &[1, 200, 50, 0]),
                none,
                Some(250),
            ),
            (
                full(0, &[3]),
                full(0x601, &[1, 200, 50, 0]),
                late,
                Some(250),
            ),
            (
                full(0, &[3]),
                full(0x601, &[1, 200, 50, NO_SYNC]),
                none,
                None,
            ),
            // Flags of the first one only, before those of all.
            (
                full(0, &[3]),
                full(0x605, &[1, 200, 0, 50, NO_SYNC]),
                none,
                Some(250),
            ),
            (
                full(0x20, &[3, NO_SYNC]),
                full(0x205, &[1, 200, 0, 50]),
                none,
                Some(250),
            ),
            (
                full(0x30, &[3, 60, NO_SYNC]),
                full(0x1, &[1, 200]),
                none,
                None,
            ),
            (
                full(0x38, &[3, 9, 60, 0]),
                full(0x1, &[1, 200]),
                none,
                Some(260),
            ),
            // Values of the initialization section.
            (full(0, &[3]), full(0x1, &[1, 200]), large, Some(270)),
            (full(0x10, &[3, 60]), full(0x1, &[1, 200]), late, None),
            // A position in a file; a missing position; a missing size.
            (
                full(0x11, &[3, 0, 0, 60]),
                full(0x1, &[1, 200]),
                none,
                Some(0),
            ),
            (full(0x10, &[3, 60]), full(0, &[1]), none, Some(0)),
            (full(0, &[3]), full(0x1, &[1, 200]), none, Some(0)),
            // Audio.
            (full(0x10, &[4, 60]), full(0x1, &[1, 200]), none, None),
        ] {
            let fragment = boxed(b"moof", &track(&header, &run));
            let data = boxed(b"mdat", &[0; 900]);
            let body = [boxed(b"styp", b"msdh"), fragment, data].concat();
            let expected = end.map(|end| match end {
                0 => body.len() as u64,
                _ => 12 + end,
            });
            let found = seek(&body, 7, &scales(defaults));
            assert_eq!(found, expected, "{header:?} {run:?}");
        }
    }

    #[test]
    fn picture_is_found_behind_audio_and_later_pictures() {
        let audio = track(&full(0x10, &[4, 60]), &full(0x1, &[1, 200]));
        let video = |flags, data| track(&full(0x2_0030, &[3, 60, flags]), &full(0x1, &[1, data]));
        let data = || boxed(b"mdat", &[0; 900]);
        let scales = scales(Sample::default());
        // Both are in one movie fragment.
        let both = [
            &boxed(b"moof", &[audio.clone(), video(0, 300)].concat())[..],
            &data(),
        ]
        .concat();
        assert_eq!(seek(&both, 50, &scales), Some(360));
        // The picture is in the third movie fragment, after one at which decoding cannot start.
        let first = [&boxed(b"moof", &audio)[..], &data()].concat();
        let second = [&boxed(b"moof", &video(NO_SYNC, 300))[..], &data()].concat();
        let third = [&boxed(b"moof", &video(0, 300))[..], &data()].concat();
        let end = first.len() + second.len() + 360;
        let all = [first, second, third].concat();
        assert_eq!(seek(&all, 50, &scales), Some(end as u64));
        assert_eq!(seek(&all[..end - 1], 50, &scales), None);
        // The media still starts with the first fragment.
        let starts = [Boxes::default(), Boxes::seeking_picture()].map(|mut boxes| {
            boxes.feed(&all);
            boxes.track_start()
        });
        assert!(starts[0].is_some() && starts[0] == starts[1]);
        // Without a size, it ends with the data of its own movie fragment.
        let no_size = track(&full(0, &[3]), &full(0x1, &[1, 200]));
        let alone = [&boxed(b"moof", &no_size)[..], &data()].concat();
        let end = alone.len() as u64;
        assert_eq!(seek(&alone.repeat(2), 50, &scales), Some(end));
        // Positions of a second track may count from the data of the first one.
        let second = track(&full(0x10, &[3, 60]), &full(0x1, &[1, 300]));
        let both = [&boxed(b"moof", &[audio, second].concat())[..], &data()].concat();
        assert_eq!(seek(&both, 50, &scales), Some(both.len() as u64));
        // Data up to the end of the body.
        let mut open = [
            &boxed(b"moof", &track(&full(0, &[3]), &full(0, &[1])))[..],
            &data(),
        ]
        .concat();
        let at = open.len() - 908;
        open[at..at + 4].fill(0);
        let mut boxes = Boxes::seeking_picture();
        boxes.feed(&open);
        assert_eq!(boxes.first_picture_end(&scales, false), None);
        let end = boxes.first_picture_end(&scales, true);
        assert_eq!(end, Some(open.len() as u64));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let video = track(&full(0, &[9]), &full(0x1, &[1, 200]));
        let fragment = boxed(b"moof", &video.repeat(20));
        let mut search = Search::default();
        for _ in 0..100 {
            search.take_fragment(0, &fragment[8..]);
        }
        assert_eq!(search.fragments.len(), KEPT_MAX);
    }
}
