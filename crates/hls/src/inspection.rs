//! Contents of segments: transport packets or boxes, inspected as they arrive.

use kit::media::ts::checker::{TsCounts, TsFile};
use mediagen::time_code::TimeCode;
use mediagen::ts::packet::SYNC;

use crate::boxes::{Boxes, SECTION_MAX, TimeScales, TrackStart};

/// Unit and end of presentation time stamps of transport streams (ISO/IEC 13818-1, 2.4.3.7).
const STAMP_HZ: u32 = 90_000;
const STAMP_WRAP: u64 = 1 << 33;

/// Inspection of the body of a segment, of a part of one, or of an initialization section.
#[derive(Debug, Default)]
pub(crate) enum Inspection {
    /// No byte of a segment or part has arrived.
    #[default]
    Before,
    /// The body is encrypted, of another kind, or no media.
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
    Stamp(u64),
    Track(TrackStart),
}

/// Time at which the media of a body starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    ticks: u64,
    /// Ticks per second.
    scale: u32,
    /// Number of ticks after which the count begins again at zero.
    wrap: Option<u64>,
}

impl Inspection {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if let Inspection::Before = self {
            *self = match bytes.first() {
                None => return,
                Some(&SYNC) => Inspection::TransportStream(Box::default()),
                // The size of the first box. Segments begin with a small one.
                Some(0) => Inspection::Boxes(Box::default()),
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
            Inspection::Before | Inspection::Skipped => {}
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
                time: file.time_stamp().map(FirstTime::Stamp),
            },
            Inspection::Boxes(boxes) => Findings {
                broken: boxes.finish(),
                time_code: boxes.time_code(),
                time: boxes.track_start().map(FirstTime::Track),
                ..Findings::default()
            },
            Inspection::Before | Inspection::Skipped | Inspection::Section(_) => {
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
            FirstTime::Stamp(stamp) => Some(Start::new(stamp, STAMP_HZ, Some(STAMP_WRAP))),
            FirstTime::Track(start) => scales.start(start),
        }
    }
}

impl Start {
    pub(crate) fn new(ticks: u64, scale: u32, wrap: Option<u64>) -> Start {
        Start { ticks, scale, wrap }
    }

    /// Returns the seconds from `before` to this start, which are negative if it lies before; `None`
    /// if the two are counted in different units.
    pub(crate) fn seconds_since(&self, before: Start) -> Option<f64> {
        let is_comparable = (self.scale, self.wrap) == (before.scale, before.wrap);
        let difference = i128::from(self.ticks) - i128::from(before.ticks);
        let ticks = match self.wrap.map(i128::from) {
            Some(wrap) => (difference + wrap / 2).rem_euclid(wrap) - wrap / 2,
            None => difference,
        };
        (is_comparable && self.scale > 0).then(|| ticks as f64 / f64::from(self.scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_compared_in_their_unit_and_over_the_wrap() {
        let stamp = |ticks| Start::new(ticks, STAMP_HZ, Some(STAMP_WRAP));
        assert_eq!(stamp(90_007).seconds_since(stamp(7)), Some(1.0));
        assert_eq!(stamp(7).seconds_since(stamp(90_007)), Some(-1.0));
        let late = stamp(STAMP_WRAP - 45_000);
        assert_eq!(stamp(45_000).seconds_since(late), Some(1.0));
        assert_eq!(late.seconds_since(stamp(45_000)), Some(-1.0));
        let sample = |ticks, scale| Start::new(ticks, scale, None);
        let last = sample(u64::MAX, 1000);
        assert_eq!(last.seconds_since(sample(u64::MAX - 1000, 1000)), Some(1.0));
        assert_eq!(
            sample(0, 1000).seconds_since(sample(1000, 1000)),
            Some(-1.0)
        );
        assert_eq!(sample(2000, 1000).seconds_since(sample(0, 2000)), None);
        assert_eq!(sample(2000, STAMP_HZ).seconds_since(stamp(0)), None);
    }

    #[test]
    fn bodies_of_other_kinds_are_not_inspected() {
        for body in [&b"ID3 tags"[..], b"WEBVTT", b"\xff\xf1", b""] {
            let mut inspection = Inspection::default();
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
