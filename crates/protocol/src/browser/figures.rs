//! What a page tells of itself once a second.

use std::time::Duration;

use measure::{CounterId, Recorder};
use serde::Deserialize;

use super::metrics as m;
use crate::metrics::STARTUP_DELAY;

/// The most values of one kind that are taken out of one message: streams or PeerConnections.
const VALUES_MAX: usize = 2_000;

/// The longest that any delay may be, in seconds: beyond it the page is wrong.
const SECONDS_MAX: f64 = 3_600.0;

/// The longest text of a page that is kept, in characters.
const TEXT_MAX: usize = 300;

/// How far a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for the run, or for what it is to play.
    #[default]
    Waiting,
    /// It is there: it sends or receives.
    Playing,
    /// It could not get there, or was sent away.
    Failed,
    /// It has left as it was told to.
    Left,
}

/// What a page posts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// The number of the message, from 1.
    pub number: u64,
    /// How far the page is.
    pub state: State,
    /// Why it failed, and what else is worth an event.
    pub text: String,
    /// How long after it began the first media came, in seconds.
    pub first_media: Option<f64>,
    /// Streams of which packets came since the last message.
    streams: u32,
    /// What was counted since the page was opened.
    totals: Totals,
    jitter: Vec<f64>,
    jitter_buffer_delay: Vec<f64>,
    decode_time: Vec<f64>,
    round_trip_time: Vec<f64>,
}

/// Counts, as the page adds them up. All but what is lost only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Totals {
    packets_received: f64,
    packets_lost: f64,
    bytes_received: f64,
    frames_received: f64,
    frames_decoded: f64,
    frames_dropped: f64,
    key_frames_decoded: f64,
    freezes: f64,
    freeze_seconds: f64,
    received_samples: f64,
    concealed_samples: f64,
    nacks_sent: f64,
    plis_sent: f64,
    packets_sent: f64,
    bytes_sent: f64,
    frames_encoded: f64,
    reported_lost: f64,
}

impl Totals {
    fn counts(&self) -> [(CounterId, f64); 17] {
        [
            (m::PACKETS_RECEIVED, self.packets_received),
            (m::PACKETS_LOST, self.packets_lost),
            (m::BYTES_RECEIVED, self.bytes_received),
            (m::FRAMES_RECEIVED, self.frames_received),
            (m::FRAMES_DECODED, self.frames_decoded),
            (m::FRAMES_DROPPED, self.frames_dropped),
            (m::KEY_FRAMES_DECODED, self.key_frames_decoded),
            (m::FREEZES, self.freezes),
            (m::FREEZE_NANOSECONDS, self.freeze_seconds * 1e9),
            (m::RECEIVED_SAMPLES, self.received_samples),
            (m::CONCEALED_SAMPLES, self.concealed_samples),
            (m::NACKS_SENT, self.nacks_sent),
            (m::PLIS_SENT, self.plis_sent),
            (m::PACKETS_SENT, self.packets_sent),
            (m::BYTES_SENT, self.bytes_sent),
            (m::FRAMES_ENCODED, self.frames_encoded),
            (m::REPORTED_LOST, self.reported_lost),
        ]
    }
}

impl Figures {
    /// Reads what a page posted.
    ///
    /// # Errors
    /// It is no such message.
    pub fn parse(bytes: &[u8]) -> Result<Figures, String> {
        let mut figures: Figures =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if figures.text.chars().count() > TEXT_MAX {
            figures.text = figures.text.chars().take(TEXT_MAX).collect();
        }
        for values in [
            &mut figures.jitter,
            &mut figures.jitter_buffer_delay,
            &mut figures.decode_time,
            &mut figures.round_trip_time,
        ] {
            values.truncate(VALUES_MAX);
        }
        Ok(figures)
    }
}

/// What has been seen of one page.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    number: u64,
    totals: Totals,
    started_up: bool,
}

impl Seen {
    /// Records what is new since the last figures; says whether anything is.
    pub fn record(&mut self, figures: &Figures, recorder: &mut Recorder) -> bool {
        if figures.number <= self.number {
            return false;
        }
        self.number = figures.number;
        let counts = figures.totals.counts().into_iter();
        for ((counter, now), (_, before)) in counts.zip(self.totals.counts()) {
            // Each is rounded for itself, so that rounding never adds up. What is no number is 0.
            let (now, before) = (now.round() as i64, before.round() as i64);
            recorder.add(counter, now.wrapping_sub(before) as u64);
        }
        self.totals = figures.totals;
        for (distribution, values) in [
            (m::JITTER, &figures.jitter),
            (m::JITTER_BUFFER_DELAY, &figures.jitter_buffer_delay),
            (m::DECODE_TIME, &figures.decode_time),
            (m::ROUND_TRIP_TIME, &figures.round_trip_time),
        ] {
            for nanoseconds in values.iter().copied().filter_map(nanoseconds) {
                recorder.record(distribution, nanoseconds);
            }
        }
        if let (false, Some(delay)) = (self.started_up, figures.first_media.and_then(nanoseconds)) {
            self.started_up = true;
            recorder.record(STARTUP_DELAY, delay);
        }
        true
    }

    /// How many streams the figures are of that were recorded last.
    pub fn streams(figures: &Figures) -> f64 {
        f64::from(figures.streams)
    }

    /// Whether any media went either way.
    pub fn has_media(&self) -> bool {
        self.totals.packets_received > 0.0 || self.totals.packets_sent > 0.0
    }
}

fn nanoseconds(seconds: f64) -> Option<u64> {
    (0.0..=SECONDS_MAX)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::browser::BROWSER_CATALOGUE;

    fn figures(text: &str) -> Figures {
        Figures::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn what_a_page_counts_in_all_is_recorded_once() {
        let mut recorder = Recorder::new(BROWSER_CATALOGUE);
        let mut seen = Seen::default();
        let first = figures(
            r#"{"number":1,"state":"playing","first_media":0.25,"streams":2,
                "totals":{"packets_received":10,"packets_lost":3,"freeze_seconds":0.5},
                "jitter":[0.001,-1,1e9,0.003]}"#,
        );
        assert!(!seen.has_media());
        assert!(seen.record(&first, &mut recorder));
        // The same message again, as a page posts it that heard no answer.
        assert!(!seen.record(&first, &mut recorder));
        assert_eq!(recorder.counter(m::PACKETS_RECEIVED), 10);
        assert_eq!(recorder.counter(m::FREEZE_NANOSECONDS), 500_000_000);
        let jitter = recorder.histogram(m::JITTER).expect("two are good");
        assert_eq!(jitter.to_sparse().count(), 2);
        let startup = recorder.histogram(STARTUP_DELAY).expect("media came");
        assert_eq!(startup.to_sparse().count(), 1);
        recorder.take_window();
        let second = figures(
            r#"{"number":2,"first_media":0.25,"totals":{"packets_received":15,"packets_lost":1}}"#,
        );
        assert!(seen.record(&second, &mut recorder));
        assert!(seen.has_media());
        let window = recorder.take_window();
        let count = |id: CounterId| window.counters[usize::from(id.0)];
        assert_eq!(count(m::PACKETS_RECEIVED), 5);
        assert_eq!(count(m::PACKETS_LOST), -2);
        assert!(!window.histograms.contains_key(&STARTUP_DELAY));
    }

    #[test]
    fn what_no_page_of_ours_posts_does_no_harm() {
        for wrong in ["", "1", r#"{"state":"dancing"}"#, r#"{"number":-1}"#] {
            assert!(Figures::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let long = format!(r#"{{"number":1,"text":"{}"}}"#, "ä".repeat(5_000));
        assert_eq!(figures(&long).text.chars().count(), TEXT_MAX);
        let values = vec!["0.5"; 10_000].join(",");
        let many = figures(&format!(r#"{{"number":1,"jitter":[{values}]}}"#));
        assert_eq!(many.jitter.len(), VALUES_MAX);
        let huge = figures(r#"{"number":1,"totals":{"bytes_sent":1e300,"packets_lost":-1e300}}"#);
        let mut recorder = Recorder::new(BROWSER_CATALOGUE);
        assert!(Seen::default().record(&huge, &mut recorder));
    }
}
