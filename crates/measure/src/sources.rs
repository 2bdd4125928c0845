//! Figures of the tester's own multicast sources, and how well they kept their schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Statistic;
use crate::tester;
use crate::totals::Totals;

/// How well a reference server or a source kept its schedule, including streams that are still
/// running. Times are in seconds. See the metrics `tester.send_lateness`, `sent_packets`,
/// `sent_in_bursts` and `sends_failed` for exact definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pacing {
    /// Media packets sent, including duplicates.
    pub packets: u64,
    /// Median lateness; `null` if no packet was sent.
    pub lateness_p50_seconds: Option<f64>,
    /// 99th percentile of the lateness.
    pub lateness_p99_seconds: Option<f64>,
    /// Maximum lateness.
    pub lateness_max_seconds: Option<f64>,
    /// Packets that left directly after another packet of their stream although they were due at
    /// different times.
    pub in_bursts: u64,
    /// Packets and messages that the network stack refused.
    pub refused: u64,
}

impl Pacing {
    /// Extracts the figures from the tester's totals.
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

/// Figures of the sources of a run, from before its server started until every client had ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sources {
    /// Streams, in the scenario's order.
    pub streams: Vec<SourceStream>,
    /// How well all streams together kept their schedule.
    pub pacing: Pacing,
}

/// A stream that a source sent to one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceStream {
    /// Name of the source in the scenario.
    pub source: String,
    /// Destination: `udp://GROUP:PORT` or `rtp://GROUP:PORT`.
    pub url: String,
    /// Number in the source's stamps that identifies this run of the source, in hexadecimal.
    pub number: String,
    /// Bit rate of the transport packets, including stamps, in bit/s.
    pub bits_per_second: u64,
    /// Datagrams that were due.
    pub datagrams: u64,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that the network stack refused.
    pub refused: u64,
    /// Bytes of the transport packets that were sent.
    pub bytes: u64,
}

impl Sources {
    /// Datagrams that were due, of all streams.
    pub fn datagrams(&self) -> u64 {
        self.streams.iter().map(|stream| stream.datagrams).sum()
    }

    /// Datagrams that were sent, of all streams.
    pub fn sent(&self) -> u64 {
        self.streams.iter().map(|stream| stream.sent).sum()
    }

    /// Datagrams that the network stack refused, of all streams.
    pub fn refused(&self) -> u64 {
        self.streams.iter().map(|stream| stream.refused).sum()
    }

    /// Total bit rate of all streams, in bit/s.
    pub fn bits_per_second(&self) -> u64 {
        self.streams
            .iter()
            .map(|stream| stream.bits_per_second)
            .sum()
    }

    /// Share of the packets that left in bursts, or `None` if none was sent.
    pub fn burst_share(&self) -> Option<f64> {
        let packets = self.pacing.packets;
        (packets > 0).then(|| self.pacing.in_bursts as f64 / packets as f64)
    }

    /// Reason why a run with these sources is invalid, or `None` if they sent everything.
    pub fn fault(&self) -> Option<String> {
        let refused = self.refused();
        (refused > 0).then(|| {
            format!(
                "the network stack refused {refused} of {} datagrams of the run's own sources, so the groups did not receive \
                 all of the expected media: check the route to each group, or send less",
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
    fn only_refused_datagrams_are_a_fault() {
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
