//! True figures, computed from the reference server's log of departures and from nothing else.
//!
//! This module shares no code with the code that measures. It is written to be obvious rather than
//! fast: sets of numbers, floating point, one pass for each question.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::judge::TrueValue;
use crate::exit::Failure;

/// Clock rate of the reference server's video in Hz (RFC 6184, 8.2.1).
const VIDEO_CLOCK: f64 = 90_000.0;

/// A packet that the server sent. Times are nanoseconds of `CLOCK_MONOTONIC`, which all processes
/// share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Departure {
    /// Times right before and right after it was handed to the network stack.
    pub(super) sent_between: (f64, f64),
    /// Extended sequence number.
    pub(super) number: u64,
    pub(super) timestamp: u32,
    /// Bytes of payload.
    pub(super) payload: u64,
}

impl Departure {
    fn at(&self) -> f64 {
        f64::midpoint(self.sent_between.0, self.sent_between.1)
    }

    /// Returns the maximum error of [`Departure::at`].
    fn uncertainty(&self) -> f64 {
        (self.sent_between.1 - self.sent_between.0) / 2.0
    }
}

/// A stream as the server reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServedStream {
    /// Synchronisation source. It identifies the stream of a client.
    pub(super) ssrc: u64,
    /// First sequence number of the stream, which the server told its client.
    pub(super) first_number: u64,
    /// Departure of the first packet, in nanoseconds of `CLOCK_MONOTONIC`. `None` if none left.
    pub(super) first_sent_at: Option<f64>,
    /// All packets that left, in the order of their departure.
    pub(super) departures: Vec<Departure>,
}

/// Counts of one stream, or their sums over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) expected: u64,
    pub(super) received: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    /// Sum of the distances of reordered packets behind the highest number.
    pub(super) reorder_distance: u64,
    pub(super) loss_bursts: u64,
    pub(super) longest_burst: u64,
    pub(super) payload_bytes: u64,
}

impl ServedStream {
    /// Reads the report of a reference server. With `logged`, the server must have logged every
    /// packet.
    pub(super) fn read(path: &Path, logged: bool) -> Result<Vec<ServedStream>, Failure> {
        let unreadable = |error: &dyn std::fmt::Display| {
            Failure::bad(format_args!(
                "the reference server's report {}: {error}",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|error| unreadable(&error)))
            // The last line is about the server as a whole.
            .filter(|line: &Result<Value, _>| !line.as_ref().is_ok_and(|l| l["pacing"].is_object()))
            .map(|line| {
                ServedStream::from_line(&line?, logged).ok_or_else(|| {
                    unreadable(&"a malformed line, or one whose log disagrees with its counts")
                })
            })
            .collect()
    }

    fn from_line(line: &Value, logged: bool) -> Option<ServedStream> {
        let number = |name: &str| line[name].as_u64();
        let clock = line["clock_monotonic_nanos"].as_i64()? as f64;
        let departures: Vec<Departure> = match &line["departures"] {
            Value::Array(list) => list
                .iter()
                .map(|entry| {
                    let at = |index: usize| entry.get(index)?.as_u64();
                    Some(Departure {
                        sent_between: (clock + at(0)? as f64, clock + at(1)? as f64),
                        number: at(2)?,
                        timestamp: u32::try_from(at(3)?).ok()?,
                        payload: at(4)?,
                    })
                })
                .collect::<Option<_>>()?,
            _ => Vec::new(),
        };
        // The server keeps two independent records. If they differ, there is no truth to compare
        // with.
        let left = number("sent")? + number("duplicated")?;
        if logged && left != departures.len() as u64 {
            return None;
        }
        Some(ServedStream {
            ssrc: number("ssrc")?,
            first_number: number("first_seq")?,
            first_sent_at: number("first_left_nanos").map(|nanos| clock + nanos as f64),
            departures,
        })
    }

    /// Returns the counts of a receiver that loses nothing.
    pub(super) fn counts(&self) -> Counts {
        let mut seen = BTreeSet::new();
        let mut counts = Counts::default();
        let mut highest = None;
        for departure in &self.departures {
            if !seen.insert(departure.number) {
                counts.duplicated += 1;
                continue;
            }
            counts.received += 1;
            counts.payload_bytes += departure.payload;
            match highest {
                Some(highest) if departure.number < highest => {
                    counts.reordered += 1;
                    counts.reorder_distance += highest - departure.number;
                }
                _ => highest = Some(departure.number),
            }
        }
        let Some(highest) = highest else {
            return counts;
        };
        let mut burst = 0;
        for number in self.first_number..=highest {
            counts.expected += 1;
            if seen.contains(&number) {
                burst = 0;
                continue;
            }
            burst += 1;
            counts.loss_bursts += u64::from(burst == 1);
            counts.longest_burst = counts.longest_burst.max(burst);
        }
        counts
    }

    /// Returns the interarrival jitter after each packet, in seconds (RFC 3550, A.8), of a receiver
    /// that packets reach the moment they leave: the time of the packet, the jitter and its
    /// uncertainty.
    fn jitter(&self) -> Vec<(f64, TrueValue)> {
        let (mut jitter, mut unsure) = (0.0, 0.0);
        let pairs = self.departures.windows(2);
        pairs
            .map(|pair| {
                let ticks = pair[1].timestamp.wrapping_sub(pair[0].timestamp) as i32;
                let sent = f64::from(ticks) / VIDEO_CLOCK;
                let came = (pair[1].at() - pair[0].at()) / 1e9;
                let doubt = (pair[0].uncertainty() + pair[1].uncertainty()) / 1e9;
                jitter += ((came - sent).abs() - jitter) / 16.0;
                unsure += (doubt - unsure) / 16.0;
                let known = TrueValue {
                    value: jitter,
                    uncertainty: unsure,
                };
                (pair[1].at(), known)
            })
            .collect()
    }
}

impl Counts {
    /// Returns the counts of all these streams together.
    pub(super) fn of(streams: &[ServedStream]) -> Counts {
        let mut all = Counts::default();
        for counts in streams.iter().map(ServedStream::counts) {
            all.expected += counts.expected;
            all.received += counts.received;
            all.duplicated += counts.duplicated;
            all.reordered += counts.reordered;
            all.reorder_distance += counts.reorder_distance;
            all.loss_bursts += counts.loss_bursts;
            all.longest_burst = all.longest_burst.max(counts.longest_burst);
            all.payload_bytes += counts.payload_bytes;
        }
        all
    }
}

/// Returns the mean of the jitter after each packet that left from `from` to before `to`, over all
/// streams. `None` if no packet left then.
pub(super) fn mean_jitter(streams: &[ServedStream], from: f64, to: f64) -> Option<TrueValue> {
    let mut sum = TrueValue::default();
    let mut count = 0.0;
    for (at, known) in streams.iter().flat_map(ServedStream::jitter) {
        if (from..to).contains(&at) {
            sum.value += known.value;
            sum.uncertainty += known.uncertainty;
            count += 1.0;
        }
    }
    (count > 0.0).then(|| TrueValue {
        value: sum.value / count,
        uncertainty: sum.uncertainty / count,
    })
}

/// Returns the payload of first copies that left from `from` to before `to`, in bit/s. A packet
/// that was being handed over at one of these times may have left before it or after it.
pub(super) fn bit_rate(streams: &[ServedStream], from: f64, to: f64) -> TrueValue {
    let (mut certain, mut possible) = (0, 0);
    for stream in streams {
        let mut seen = BTreeSet::new();
        for departure in &stream.departures {
            if !seen.insert(departure.number) {
                continue;
            }
            let (began, ended) = departure.sent_between;
            if from <= began && ended < to {
                certain += departure.payload;
            }
            if from <= ended && began < to {
                possible += departure.payload;
            }
        }
    }
    let rate = |bytes: u64| bytes as f64 * 8.0 / ((to - from) / 1e9);
    TrueValue::between(rate(certain), rate(possible))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a stream of packets of 100 bytes that left at these milliseconds.
    fn stream(packets: &[(u64, f64)]) -> ServedStream {
        ServedStream {
            first_number: 65_534,
            departures: packets
                .iter()
                .map(|&(number, at)| Departure {
                    sent_between: (at * 1e6, at * 1e6),
                    number,
                    // One frame every 10 ms.
                    timestamp: (number as u32).wrapping_mul(900),
                    payload: 100,
                })
                .collect(),
            ..ServedStream::default()
        }
    }

    #[test]
    fn counts_equal_those_computed_by_hand() {
        // Lost: the first, and 65,538 with its neighbour. Duplicated: 65,536. Overtaken by two:
        // 65,537.
        let numbers = [65_535, 65_536, 65_536, 65_540, 65_541, 65_537];
        let stream = stream(&numbers.map(|number| (number, 0.0)));
        assert_eq!(
            stream.counts(),
            Counts {
                expected: 8,
                received: 5,
                duplicated: 1,
                reordered: 1,
                reorder_distance: 4,
                loss_bursts: 2,
                longest_burst: 2,
                payload_bytes: 500,
            }
        );
    }

    #[test]
    fn jitter_equals_that_computed_by_hand() {
        // The second is 1.6 ms late, the third on time again: |D| is 1.6 ms twice.
        let stream = stream(&[(65_534, 0.0), (65_535, 11.6), (65_536, 20.0)]);
        let mean = mean_jitter(&[stream], 0.0, 1e9).expect("two values");
        let (first, second) = (1.6 / 16.0, 1.6 / 16.0 + (1.6 - 0.1) / 16.0);
        assert!(
            (mean.value * 1e3 - (first + second) / 2.0).abs() < 1e-9,
            "{mean:?}"
        );
        assert_eq!(mean.uncertainty, 0.0);
    }

    #[test]
    fn uncertain_departures_make_the_jitter_uncertain() {
        let mut stream = stream(&[(65_534, 0.0), (65_535, 10.0)]);
        stream.departures[1].sent_between = (10e6, 10.32e6);
        let mean = mean_jitter(&[stream], 0.0, 1e9).expect("one value");
        assert!((mean.uncertainty * 1e6 - 10.0).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn bit_rate_excludes_duplicates() {
        let stream = stream(&[
            (65_534, 0.0),
            (65_535, 10.0),
            (65_535, 10.0),
            (65_536, 1000.0),
        ]);
        assert_eq!(bit_rate(&[stream], 0.0, 1e9), TrueValue::exactly(1600.0));
    }

    #[test]
    fn packets_handed_over_at_the_edges_make_the_bit_rate_uncertain() {
        // Over the second that begins at 10 ms: the packets at 20 and 30 ms are certain.
        let packets = [10.0, 20.0, 30.0, 1010.0].into_iter().zip(65_534..);
        let packets: Vec<_> = packets.map(|(at, number)| (number, at)).collect();
        let mut stream = stream(&packets);
        let rate = |stream: &ServedStream| bit_rate(std::slice::from_ref(stream), 10e6, 1010e6);
        assert_eq!(rate(&stream), TrueValue::exactly(2400.0));
        stream.departures[0].sent_between = (9e6, 11e6);
        stream.departures[3].sent_between = (1005e6, 1015e6);
        let (value, uncertainty) = (2400.0, 800.0);
        assert_eq!(rate(&stream), TrueValue { value, uncertainty });
    }

    #[test]
    fn log_that_disagrees_with_its_counts_is_refused() {
        let line = |sent: u64| {
            serde_json::json!({
                "ssrc": 1, "first_seq": 2, "first_left_nanos": 5, "sent": sent, "duplicated": 0,
                "clock_monotonic_nanos": 1000, "departures": [[5, 7, 2, 90, 100]],
            })
        };
        let served = ServedStream::from_line(&line(1), true).expect("they agree");
        assert_eq!(served.first_sent_at, Some(1005.0));
        assert_eq!(served.departures[0].sent_between, (1005.0, 1007.0));
        assert_eq!(ServedStream::from_line(&line(2), true), None);
    }
}
