//! Figures that a page posts once a second.

use std::time::Duration;

use measure::{CounterId, Recorder};
use serde::Deserialize;

use super::metrics as m;
use crate::metrics::STARTUP_DELAY;

/// Maximum number of values of one kind read from one message: streams or PeerConnections.
const VALUES_MAX: usize = 2_000;

/// Maximum plausible delay in seconds. Longer ones are ignored.
const SECONDS_MAX: f64 = 3_600.0;

/// Maximum length of a page's text in characters.
const TEXT_MAX: usize = 300;

/// State of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageState {
    /// Waiting for the run, or for the stream.
    #[default]
    Waiting,
    /// Connected: media is sent or received.
    Playing,
    /// The page could not connect, or was disconnected.
    Failed,
    /// The page has disconnected as commanded.
    Left,
}

/// A message that a page posts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Number of the message, from 1.
    pub number: u64,
    pub state: PageState,
    /// Reason of a failure, or another text for the list of events.
    pub text: String,
    /// Delay from the start to the first media, in seconds.
    pub first_media: Option<f64>,
    /// Number of streams that received packets since the last message.
    streams: u32,
    /// Totals since the page was opened.
    totals: Totals,
    jitter: Vec<f64>,
    jitter_buffer_delay: Vec<f64>,
    decode_time: Vec<f64>,
    round_trip_time: Vec<f64>,
}

/// Totals of a page. All except the lost packets only increase.
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
    /// Parses a message of a page.
    ///
    /// # Errors
    /// If the message is malformed.
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

/// Last recorded totals of one page.
#[derive(Clone, Debug, Default)]
pub struct PageTotals {
    number: u64,
    totals: Totals,
    startup_recorded: bool,
}

impl PageTotals {
    /// Records the changes since the last message. Returns `false` if the message is not newer.
    pub fn record(&mut self, figures: &Figures, recorder: &mut Recorder) -> bool {
        if figures.number <= self.number {
            return false;
        }
        self.number = figures.number;
        let counts = figures.totals.counts().into_iter();
        for ((counter, now), (_, before)) in counts.zip(self.totals.counts()) {
            // Each total is rounded on its own, so that rounding errors do not accumulate. NaN
            // counts as 0.
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
        if let (false, Some(delay)) = (
            self.startup_recorded,
            figures.first_media.and_then(nanoseconds),
        ) {
            self.startup_recorded = true;
            recorder.record(STARTUP_DELAY, delay);
        }
        true
    }

    /// Number of streams in a message.
    pub fn streams(figures: &Figures) -> f64 {
        f64::from(figures.streams)
    }

    /// Returns `true` if any media was received or sent.
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
    fn totals_of_a_page_are_recorded_once() {
        let mut recorder = Recorder::new(BROWSER_CATALOGUE);
        let mut seen = PageTotals::default();
        let first = figures(
            r#"{"number":1,"state":"playing","first_media":0.25,"streams":2,
                "totals":{"packets_received":10,"packets_lost":3,"freeze_seconds":0.5},
                "jitter":[0.001,-1,1e9,0.003]}"#,
        );
        assert!(!seen.has_media());
        assert!(seen.record(&first, &mut recorder));
        // The same message again, as from a page that received no response.
        assert!(!seen.record(&first, &mut recorder));
        assert_eq!(recorder.counter(m::PACKETS_RECEIVED), 10);
        assert_eq!(recorder.counter(m::FREEZE_NANOSECONDS), 500_000_000);
        let jitter = recorder.histogram(m::JITTER).expect("two values are valid");
        assert_eq!(jitter.to_sparse().count(), 2);
        let startup = recorder.histogram(STARTUP_DELAY).expect("media arrived");
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
    fn malformed_or_huge_messages_are_handled() {
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
        assert!(PageTotals::default().record(&huge, &mut recorder));
    }
}
