//! Metrics of an emulated link, collected once a window: the ground truth for the figures of
//! clients and server. Each direction is a subject.

use crate::metric::{Catalogue, Group, Statistic};
use crate::totals::Totals;

/// Maximum 99th percentile of packets' lateness, in seconds. Beyond it, measurements over the link
/// are invalid.
pub const LATENESS_P99_MAX: f64 = 0.001;

/// Name of the subject for the direction from the clients to the server.
pub const UPLINK: &str = "uplink";

/// Name of the subject for the direction from the server to the clients.
pub const DOWNLINK: &str = "downlink";

crate::metrics! {
    /// One direction of an emulated link. Packet lengths include IP headers.
    pub LINK after Group::NONE;
    counters {
        /// Packets that arrived at the link.
        PACKETS = "packets", Count, "";
        /// Bytes of `packets`.
        BYTES = "bytes", Bytes, "";
        /// Packets that the link dropped, for any of the reasons below. Packets that it dropped
        /// unintentionally (`overload`) are not included.
        LOST = "lost", Count, "";
        /// Packets of `lost` that were dropped at random, or because a list names them.
        LOST_BY_CHANCE = "lost_by_chance", Count, "";
        /// Packets of `lost` that arrived during an outage.
        LOST_IN_OUTAGES = "lost_in_outages", Count, "";
        /// Packets of `lost` that were longer than the link's MTU.
        LOST_TOO_LONG = "lost_too_long", Count, "";
        /// Packets of `lost` that arrived when the queue was full.
        LOST_QUEUE_FULL = "lost_queue_full", Count, "";
        /// Packets of `lost` that CoDel dropped because of standing queue delay.
        LOST_BY_CODEL = "lost_by_codel", Count, "RFC 8289";
        /// Packets delivered at the other end, without duplicates.
        DELIVERED = "delivered", Count, "";
        /// Bytes of `delivered`.
        DELIVERED_BYTES = "delivered_bytes", Bytes, "";
        /// Duplicates delivered at the other end.
        DUPLICATED = "duplicated", Count, "";
        /// Packets of `delivered` that were overtaken by a packet that arrived at the link later.
        REORDERED = "reordered", Count, "";
        /// Packets of `delivered` with a bit error.
        CORRUPTED = "corrupted", Count, "";
        /// Packets dropped because the emulator could not keep up, which is the tester's own fault.
        /// They count in no other metric.
        OVERLOAD = "overload", Count, "proc(5), /proc/net/dev, drop";
    }
    gauges {
        /// Maximum number of bytes in the link's queue during the window.
        QUEUE_BYTES = "queue_bytes", Bytes, "", Max;
    }
    distributions {
        /// Planned time in the link for each packet, from its arrival to its planned departure:
        /// queueing, serialization, propagation and jitter.
        PLANNED_DELAY = "planned_delay", Seconds, "";
        /// Actual time in the link for each packet. An upper bound if the emulator was delayed.
        /// With many packets on a small machine, up to 0.2 ms wrong in both directions, but not on
        /// average.
        DELAY = "delay", Seconds, "";
        /// Lateness of each packet's departure. It includes the longest time that the packet may
        /// have waited to be read: some 0.1 ms with many packets on a small machine, more if the
        /// emulator was delayed.
        LATENESS = "lateness", Seconds, "";
    }
    derived {
        /// Share of the packets with a known fate that the link dropped.
        "loss", Ratio, "", Share(LOST, DELIVERED);
        /// Bit rate of the packets delivered at the other end.
        "bitrate", BitsPerSecond, "", Rate(DELIVERED_BYTES, 8);
    }
}

/// Names of the subjects of a link, uplink first: of the link of `population`, or of the link that
/// all populations share.
pub fn subjects(population: Option<&str>) -> [String; 2] {
    [UPLINK, DOWNLINK].map(|direction| match population {
        Some(population) => format!("{population}_{direction}"),
        None => direction.to_owned(),
    })
}

/// Metrics of the subjects [`UPLINK`] and [`DOWNLINK`].
pub static LINK_CATALOGUE: Catalogue = Catalogue(&[&LINK]);

/// Reason why a direction did not work as configured because of the tester, or `None`.
pub fn invalid_reason(totals: &Totals) -> Option<String> {
    let dropped = totals.counter(OVERLOAD);
    if dropped > 0 {
        let packets = crate::human::plural(dropped as f64, "packet", "packets");
        return Some(format!(
            "the emulator dropped {packets} because it could not keep up"
        ));
    }
    let late = totals
        .named("lateness", Statistic::Quantile(0.99))
        .filter(|&late| late > LATENESS_P99_MAX)?;
    let [late, most] = [late, LATENESS_P99_MAX].map(crate::human::seconds);
    Some(format!(
        "1 % of its packets left at least {late} late (limit {most})"
    ))
}
