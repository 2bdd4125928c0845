//! Contents of segments: transport packets or boxes, inspected as they arrive.

use kit::media::ts::checker::{FirstPicture, TimeStamps, TsCounts, TsFile};
use kit::mediagen::time_code::TimeCode;
use kit::mediagen::ts::packet::SYNC;

use crate::boxes::{Boxes, SECTION_MAX, TimeScales, TrackStart};
use crate::start::Start;

/// Inspection of the body of a segment, of a part of one, or of an initialization section.
#[derive(Debug, Default)]
pub(crate) enum Inspection {
    /// No byte of a segment or part has arrived. `seeks_picture` is true if the first picture is
    /// sought at which decoding can start.
    Before {
        seeks_picture: bool,
    },
    /// The body is encrypted, of another kind, or no media.
    #[default]
    Skipped,
    TransportStream(Box<TsFile>),
    Boxes(Box<Boxes>),
    /// Beginning of an initialization section.
    Section(Vec<u8>),
}

/// Findings in a body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Findings {
    /// Counts of transport packets.
    pub(crate) ts: TsCounts,
    /// True if it is a transport stream with both of its tables.
    has_tables: bool,
    /// Fault of its boxes.
    broken: Option<&'static str>,
    /// Time code of its first picture.
    pub(crate) time_code: Option<TimeCode>,
    time: Option<FirstTime>,
}

/// Time of the first picture or sample, as the body has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstTime {
    Stamps(TimeStamps),
    Track(TrackStart),
}

impl Inspection {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if let Inspection::Before { seeks_picture } = *self {
            *self = match bytes.first() {
                None => return,
                Some(&SYNC) => Inspection::TransportStream(match seeks_picture {
                    true => Box::new(TsFile::seeking_picture()),
                    false => Box::default(),
                }),
                // The size of the first box. Segments begin with a small one.
                Some(0) => Inspection::Boxes(match seeks_picture {
                    true => Box::new(Boxes::seeking_picture()),
                    false => Box::default(),
                }),
                Some(_) => Inspection::Skipped,
            };
        }
        match self {
            Inspection::TransportStream(file) => file.feed(bytes),
            Inspection::Boxes(boxes) => boxes.feed(bytes),
            Inspection::Section(section) => {
                let room = SECTION_MAX - section.len();
                section.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Inspection::Before { .. } | Inspection::Skipped => {}
        }
    }

    /// Returns the first picture at which decoding can start, if it is sought and has begun.
    /// `is_whole` is true if the body is complete.
    pub(crate) fn first_picture(
        &self,
        scales: &TimeScales,
        is_whole: bool,
    ) -> Option<FirstPicture> {
        match self {
            Inspection::TransportStream(file) => {
                let mut picture = file.first_picture()?;
                picture.is_complete |= is_whole;
                Some(picture)
            }
            Inspection::Boxes(boxes) => {
                let end = boxes.first_picture_end(scales, is_whole)?;
                let is_complete = true;
                Some(FirstPicture { end, is_complete })
            }
            Inspection::Before { .. } | Inspection::Skipped | Inspection::Section(_) => None,
        }
    }

    /// Ends the body of a segment or part.
    pub(crate) fn finish(&mut self) -> Findings {
        match std::mem::take(self) {
            Inspection::TransportStream(file) => Findings {
                ts: file.finish(),
                has_tables: file.has_tables(),
                broken: None,
                time_code: file.time_code(),
                time: file.time_stamps().map(FirstTime::Stamps),
            },
            Inspection::Boxes(boxes) => Findings {
                broken: boxes.finish(),
                time_code: boxes.time_code(),
                time: boxes.track_start().map(FirstTime::Track),
                ..Findings::default()
            },
            Inspection::Before { .. } | Inspection::Skipped | Inspection::Section(_) => {
                Findings::default()
            }
        }
    }

    /// Ends the body of an initialization section. Returns the time scales of its tracks.
    pub(crate) fn finish_section(&mut self) -> TimeScales {
        match std::mem::take(self) {
            Inspection::Section(section) => TimeScales::read(&section),
            _ => TimeScales::default(),
        }
    }
}

impl Findings {
    /// Notes that the body is shorter than its byte range.
    pub(crate) fn add_short(&mut self) {
        self.broken
            .get_or_insert("it is shorter than its byte range");
    }

    /// Returns what is wrong with the body, if anything. `needs_tables` is true if a decoder begins
    /// with it.
    pub(crate) fn damage(&self, needs_tables: bool) -> Option<String> {
        let ts = &self.ts;
        let counted = [
            (ts.sync_losses, "losses of sync"),
            (ts.continuity_errors, "continuity errors"),
            (ts.transport_errors, "packets marked as damaged"),
            (ts.malformed, "malformed packets"),
            (ts.table_errors, "damaged tables"),
        ];
        let is_ts = ts.ts_packets + ts.sync_losses > 0;
        let without = is_ts && needs_tables && !self.has_tables;
        let without = without.then_some("it has no programme association or map");
        let counted = counted.iter().filter(|(count, _)| *count > 0);
        let counted = counted.map(|(count, what)| format!("{what}: {count}"));
        let others = without.or(self.broken).map(str::to_owned);
        let found: Vec<_> = counted.chain(others).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }

    /// Returns when the media starts, if that is known.
    pub(crate) fn start(&self, scales: &TimeScales) -> Option<Start> {
        match self.time? {
            FirstTime::Stamps(stamps) => Some(Start::of_stamps(stamps)),
            FirstTime::Track(start) => scales.start(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_other_kinds_are_not_inspected() {
        for body in [&b"ID3 tags"[..], b"WEBVTT", b"\xff\xf1", b""] {
            let mut inspection = Inspection::Before {
                seeks_picture: true,
            };
            inspection.feed(body);
            let found = inspection.finish();
            assert_eq!(
                (found.damage(true), found.start(&TimeScales::default())),
                (None, None)
            );
        }
    }

    #[test]
    fn long_sections_are_cut_off() {
        let mut inspection = Inspection::Section(Vec::new());
        for _ in 0..3 {
            inspection.feed(&[0; SECTION_MAX / 2 + 1]);
        }
        assert!(matches!(&inspection, Inspection::Section(kept) if kept.len() == SECTION_MAX));
        assert_eq!(inspection.finish_section(), TimeScales::default());
    }
}
