//! How well each viewer was served: its start, stalls and loss against bounds.
//!
//! A session judges its viewer once, when it ends, from facts that it has anyway. Nothing is done
//! for a packet.

#![deny(missing_docs)]

use std::time::Duration;

use measure::summary::{
    Part::{Further, Text},
    RowCondition::Above,
};
use measure::units::{Ratio, TimeSpan};
use measure::{KeyFigure, Recorder, SummaryRow, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metrics::ZAPPING;
use session::{Judgement, Service, Start};

measure::metrics! {
    /// Viewers: clients that receive media. Each is judged once, when it ends, against the bounds
    /// of `served_well` in its population.
    pub VIEWERS after ZAPPING;
    counters {
        /// Viewers that were served well: they did not fail, their first media arrived in time
        /// (`start`, default 2 s after the planned start), their stalls took at most `stalled` in
        /// total (default 0 s), and at most the share `loss` was lost (default 1 %). Start and
        /// stalls are inputs of ITU-T P.1203: initial loading delay, and stalling events with
        /// their durations. Counted when a viewer ends, over its whole time, and over the whole
        /// run including the warm-up. Viewers that end earlier than `start` without media and
        /// without having failed are not judged.
        VIEWERS_SERVED_WELL = "viewers_served_well", Count, "ITU-T P.1203";
        /// Viewers that were not served well. Each counts in exactly one of the four causes, the
        /// first that applies: `viewers_failed`, `viewers_started_late`, `viewers_stalled`,
        /// `viewers_with_loss`.
        VIEWERS_SERVED_BADLY = "viewers_served_badly", Count, "ITU-T P.1203";
        /// Viewers that failed.
        VIEWERS_FAILED = "viewers_failed", Count, "";
        /// Viewers that did not fail, but whose first media arrived after the bound `start`, or
        /// never. The delay is `startup_delay`.
        VIEWERS_STARTED_LATE = "viewers_started_late", Count, "ITU-T P.1203";
        /// Viewers that neither failed nor started late, but stalled for longer in total than the
        /// bound `stalled`: in the stream of theirs that stalled for the longest time. A stall is
        /// one of `stalls`, with the population's `playout_buffer`.
        VIEWERS_STALLED = "viewers_stalled", Count, "ITU-T P.1203";
        /// Viewers with no other cause that lost more than the bound `loss`: packets or datagrams
        /// of all their streams, as in `loss`. If nothing states what was sent: transport packets
        /// that the continuity counters miss, packets that SRT gave up, or published frames that
        /// did not arrive over RTMP.
        VIEWERS_WITH_LOSS = "viewers_with_loss", Count, "";
    }
    gauges {}
    distributions {}
    derived {
        /// Viewers that were judged.
        "viewers_judged", Count, "", Sum(VIEWERS_SERVED_WELL, VIEWERS_SERVED_BADLY);
        /// Share of the judged viewers that were served well. With `.worst`: of those that ended in
        /// one window.
        "served_well", Ratio, "ITU-T P.1203", Share(VIEWERS_SERVED_WELL, VIEWERS_SERVED_BADLY);
    }
    summary { ROWS; }
    whole_run {
        VIEWERS_SERVED_WELL;
        VIEWERS_SERVED_BADLY;
        VIEWERS_FAILED;
        VIEWERS_STARTED_LATE;
        VIEWERS_STALLED;
        VIEWERS_WITH_LOSS;
    }
    key_figures {
        KeyFigure::value("served_well");
    }
}

/// The first row of a population of viewers.
const ROWS: &[SummaryRow] = &[SummaryRow::text(
    "served_well",
    &[Above("viewers_judged")],
    &[
        Text("{served_well}   {viewers_served_well} of {viewers_judged:viewer|viewers}"),
        Further(&[
            ("viewers_failed", "{} failed"),
            ("viewers_started_late", "{} started late"),
            ("viewers_stalled", "{} stalled"),
            ("viewers_with_loss", "{} with loss"),
        ]),
    ],
)];

/// Bounds within which a viewer is served well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServedWell {
    /// Maximum time from the planned start of the client to its first media packet. Default 2s.
    pub start: TimeSpan,
    /// Maximum total duration of the stalls. Default 0s: a viewer that stalls is not served well.
    pub stalled: TimeSpan,
    /// Maximum share of the packets or frames that were lost. Default 1%.
    pub loss: Ratio,
}

impl Default for ServedWell {
    fn default() -> ServedWell {
        ServedWell {
            start: TimeSpan(Duration::from_secs(2)),
            stalled: TimeSpan(Duration::ZERO),
            loss: Ratio(0.01),
        }
    }
}

/// Media that reached a viewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Total duration of the stalls, in the stream for which it is longest.
    pub stalled: Duration,
    /// Packets or frames that should have arrived.
    pub expected: u64,
    /// The part of `expected` that did not.
    pub missing: u64,
}

impl Delivery {
    /// Adds another stream that the viewer received at the same time.
    pub fn add(&mut self, other: Delivery) {
        self.stalled = self.stalled.max(other.stalled);
        self.expected += other.expected;
        self.missing += other.missing;
    }
}

/// A viewer at its end.
#[derive(Clone, Copy, Debug)]
pub struct Viewing {
    /// Planned start of the client.
    pub due: Time,
    /// Arrival of its first media packet, if any.
    pub first_media: Option<Time>,
    /// End of the client.
    pub ended: Time,
    /// Received and lost media.
    pub delivery: Delivery,
}

impl ServedWell {
    /// Judges a viewer that ends.
    pub fn judge(&self, viewing: &Viewing) -> Service {
        let waited = viewing.first_media.unwrap_or(viewing.ended);
        let Delivery {
            stalled,
            expected,
            missing,
        } = viewing.delivery;
        Service {
            start: match waited.since(viewing.due) > self.start.0 {
                true => Start::Late,
                false if viewing.first_media.is_none() => Start::Unknown,
                false => Start::InTime,
            },
            stalled: stalled > self.stalled.0,
            lossy: missing as f64 > self.loss.0 * expected as f64,
        }
    }
}

/// Counts a viewer that was served so. `failed` is true if its client failed.
pub fn count(service: Service, failed: bool, recorder: &mut Recorder) {
    let cause = match service.judgement(failed) {
        None => return,
        Some(Judgement::Well) => return recorder.add(VIEWERS_SERVED_WELL, 1),
        Some(Judgement::Failed) => VIEWERS_FAILED,
        Some(Judgement::StartedLate) => VIEWERS_STARTED_LATE,
        Some(Judgement::Stalled) => VIEWERS_STALLED,
        Some(Judgement::Loss) => VIEWERS_WITH_LOSS,
    };
    recorder.add(VIEWERS_SERVED_BADLY, 1);
    recorder.add(cause, 1);
}

#[cfg(test)]
mod tests {
    use measure::Catalogue;

    use super::*;

    fn judge(viewing: Viewing, failed: bool) -> Option<Judgement> {
        ServedWell::default().judge(&viewing).judgement(failed)
    }

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// A viewer that was due at 1 s, saw its first media after `start` ms and left at 60 s.
    fn viewer(start: u64, stalled_ms: u64, missing: u64) -> Viewing {
        Viewing {
            due: ms(1000),
            first_media: Some(ms(1000 + start)),
            ended: ms(60_000),
            delivery: Delivery {
                stalled: Duration::from_millis(stalled_ms),
                expected: 10_000,
                missing,
            },
        }
    }

    #[test]
    fn first_cause_beyond_its_bound_counts() {
        let good = |viewing| judge(viewing, false);
        assert_eq!(good(viewer(2000, 0, 100)), Some(Judgement::Well));
        assert_eq!(good(viewer(2000, 0, 101)), Some(Judgement::Loss));
        assert_eq!(good(viewer(2000, 1, 101)), Some(Judgement::Stalled));
        let late = viewer(2001, 1, 101);
        assert_eq!(good(late), Some(Judgement::StartedLate));
        assert_eq!(judge(late, true), Some(Judgement::Failed));
        assert_eq!(judge(viewer(0, 0, 0), true), Some(Judgement::Failed));
        // The number of sent packets is unknown.
        let unknown = Viewing {
            delivery: Delivery::default(),
            ..viewer(0, 0, 0)
        };
        assert_eq!(good(unknown), Some(Judgement::Well));
    }

    #[test]
    fn viewer_without_media_is_late_once_it_waited_too_long() {
        let without = |ended: u64| Viewing {
            first_media: None,
            ended: ms(ended),
            ..viewer(0, 0, 0)
        };
        assert_eq!(judge(without(3000), false), None);
        let late = Some(Judgement::StartedLate);
        assert_eq!(judge(without(3001), false), late);
        assert_eq!(judge(without(1001), true), Some(Judgement::Failed));
    }

    #[test]
    fn causes_add_up_to_the_badly_served_viewers() {
        const CATALOGUE: Catalogue = Catalogue(&[&crate::metrics::CLIENTS, &ZAPPING, &VIEWERS]);
        let mut recorder = Recorder::new(CATALOGUE);
        let mut judge = |viewing, failed| {
            let service = ServedWell::default().judge(&viewing);
            count(service, failed, &mut recorder);
        };
        for (viewing, failed) in [
            (viewer(0, 0, 0), false),
            (viewer(0, 0, 0), false),
            (viewer(3000, 5, 0), false),
            (viewer(0, 5, 500), false),
            (viewer(0, 5, 0), false),
            (viewer(0, 0, 500), false),
            (viewer(9000, 5, 500), true),
        ] {
            judge(viewing, failed);
        }
        let counted = [
            VIEWERS_SERVED_WELL,
            VIEWERS_SERVED_BADLY,
            VIEWERS_FAILED,
            VIEWERS_STARTED_LATE,
            VIEWERS_STALLED,
            VIEWERS_WITH_LOSS,
        ]
        .map(|id| recorder.counter(id));
        assert_eq!(counted, [2, 5, 1, 1, 2, 1]);
    }

    #[test]
    fn streams_add_up_to_a_viewer() {
        let stream = |stalled, expected, missing| Delivery {
            stalled: Duration::from_millis(stalled),
            expected,
            missing,
        };
        let mut all = stream(300, 100, 3);
        all.add(stream(200, 1000, 0));
        // Video and audio stall at the same time.
        assert_eq!(all, stream(300, 1100, 3));
    }

    #[test]
    fn bounds_are_read_and_may_be_partial() {
        let read = |text| serde_json::from_str::<ServedWell>(text).map_err(|e| e.to_string());
        assert_eq!(read("{}"), Ok(ServedWell::default()));
        let own = read(r#"{"stalled":"500ms","loss":"0.1%"}"#).expect("valid");
        assert_eq!(own.start, ServedWell::default().start);
        assert_eq!(own.stalled.0, Duration::from_millis(500));
        assert_eq!(own.loss, Ratio(0.001));
        for wrong in [r#"{"stalls":"1s"}"#, r#"{"loss":1}"#, r#"{"start":2}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
