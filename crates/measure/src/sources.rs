//! What sources of our own sent, and how well they kept to their schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Statistic;
use crate::tester;
use crate::totals::Totals;

/// How well a reference server, or a source, kept its packets to their schedule, those of streams
/// that still run included. Times are in seconds; see the metrics `tester.send_lateness`,
/// `sent_packets`, `sent_in_bursts` and `sends_failed` for what exactly they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pacing {
    /// Packets of media that left, second copies included.
    pub packets: u64,
    /// How late half of them left at most; nothing where none left.
    pub lateness_p50_seconds: Option<f64>,
    /// How late 99 % of them left at most.
    pub lateness_p99_seconds: Option<f64>,
    /// How late the latest left.
    pub lateness_max_seconds: Option<f64>,
    /// Packets that left right behind another of their stream though they were due apart.
    pub in_bursts: u64,
    /// Packets and messages that the network stack refused.
    pub refused: u64,
}

impl Pacing {
    /// Out of the tester's figures.
    pub fn of(tester: &Totals) -> Pacing {
        let lateness = |statistic| tester.named("send_lateness", statistic);
        let count = |id| u64::try_from(tester.counter(id)).unwrap_or(0);
        Pacing {
            packets: count(tester::SENT_PACKETS),
            lateness_p50_seconds: lateness(Statistic::Quantile(0.5)),
            lateness_p99_seconds: lateness(Statistic::Quantile(0.99)),
            lateness_max_seconds: lateness(Statistic::Max),
            in_bursts: count(tester::SENT_IN_BURSTS),
            refused: count(tester::SENDS_FAILED),
        }
    }
}

/// What the sources of a run did, from before its server started until every client had ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sources {
    /// Each stream, in the scenario's order.
    pub streams: Vec<SourceStream>,
    /// How well all of them were kept to their schedule.
    pub pacing: Pacing,
}

/// What a source sent to one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceStream {
    /// The source's name in the scenario.
    pub source: String,
    /// Where to: `udp://GROUP:PORT` or `rtp://GROUP:PORT`.
    pub url: String,
    /// The number in its stamps, by which runs of a source are told apart, in hexadecimal.
    pub number: String,
    /// The bit rate that it was sent at: transport packets, stamps included, in bit/s.
    pub bits_per_second: u64,
    /// Datagrams that were due.
    pub datagrams: u64,
    /// Of these, those that left.
    pub sent: u64,
    /// Of these, those that the network stack did not take.
    pub refused: u64,
    /// Bytes of transport packets that left.
    pub bytes: u64,
}

impl Sources {
    /// Datagrams that were due, to all groups.
    pub fn datagrams(&self) -> u64 {
        self.streams.iter().map(|stream| stream.datagrams).sum()
    }

    /// Of these, those that left.
    pub fn sent(&self) -> u64 {
        self.streams.iter().map(|stream| stream.sent).sum()
    }

    /// Of these, those that the network stack did not take.
    pub fn refused(&self) -> u64 {
        self.streams.iter().map(|stream| stream.refused).sum()
    }

    /// The bit rate of all streams in sum, in bit/s.
    pub fn bits_per_second(&self) -> u64 {
        self.streams
            .iter()
            .map(|stream| stream.bits_per_second)
            .sum()
    }

    /// The share of the datagrams that left in bursts; none where none left.
    pub fn burst_share(&self) -> Option<f64> {
        let packets = self.pacing.packets;
        (packets > 0).then(|| self.pacing.in_bursts as f64 / packets as f64)
    }

    /// Why nothing can be concluded of a run with these sources; none where they did all they were
    /// to do.
    pub fn fault(&self) -> Option<String> {
        let refused = self.refused();
        (refused > 0).then(|| {
            format!(
                "the network stack refused {refused} of {} datagrams of the run's own sources, so groups were not sent what \
                 clients are held against: see whether there is a route to each group, or send less",
                self.datagrams()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(refused: u64) -> SourceStream {
        SourceStream {
            source: "channels".to_owned(),
            url: "udp://239.81.0.1:4056".to_owned(),
            number: "a".to_owned(),
            bits_per_second: 1_000_000,
            datagrams: 100,
            sent: 100 - refused,
            refused,
            bytes: 1316 * (100 - refused),
        }
    }

    #[test]
    fn refused_datagrams_are_a_fault_and_others_are_not() {
        let mut sources = Sources {
            streams: vec![stream(0), stream(0)],
            pacing: Pacing::default(),
        };
        assert_eq!((sources.fault(), sources.burst_share()), (None, None));
        assert_eq!((sources.datagrams(), sources.sent()), (200, 200));
        sources.streams[1] = stream(3);
        let fault = sources.fault().expect("three are missing");
        assert!(fault.contains("refused 3 of 200 datagrams"), "{fault}");
        sources.pacing.packets = 197;
        sources.pacing.in_bursts = 197;
        assert_eq!(sources.burst_share(), Some(1.0));
    }
}
