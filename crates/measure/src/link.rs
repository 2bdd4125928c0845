//! What an emulated link did, once a window: the truth that the figures of clients and server are
//! held against. Each direction is a subject of its own.

use crate::metric::{Catalogue, Group, Statistic};
use crate::totals::Totals;

/// By how much packets may leave late at the 99th percentile, in seconds, before what is measured
/// over the link is invalid.
pub const LATENESS_P99_MAX: f64 = 0.001;

/// The subject that is the direction from the clients to the server.
pub const UPLINK: &str = "uplink";

/// The subject that is the direction from the server to the clients.
pub const DOWNLINK: &str = "downlink";

crate::metrics! {
    /// One direction of an emulated link. Lengths of packets are with their IP headers.
    pub LINK after Group::NONE;
    counters {
        /// Packets that came to the link.
        PACKETS = "packets", Count, "";
        /// Bytes in them.
        BYTES = "bytes", Bytes, "";
        /// Packets that the link lost, for whatever reason that is named below. What it should not
        /// have lost is not among them (`overload`).
        LOST = "lost", Count, "";
        /// Those of `lost` that were lost by chance, or because a list names them.
        LOST_BY_CHANCE = "lost_by_chance", Count, "";
        /// Those of `lost` that came in an outage.
        LOST_IN_OUTAGES = "lost_in_outages", Count, "";
        /// Those of `lost` that were longer than the link's MTU.
        LOST_TOO_LONG = "lost_too_long", Count, "";
        /// Those of `lost` that found the queue full.
        LOST_QUEUE_FULL = "lost_queue_full", Count, "";
        /// Those of `lost` that CoDel dropped, because the queue stood too long.
        LOST_BY_CODEL = "lost_by_codel", Count, "RFC 8289";
        /// Packets that arrived at the other end, second copies left out.
        DELIVERED = "delivered", Count, "";
        /// Bytes in them.
        DELIVERED_BYTES = "delivered_bytes", Bytes, "";
        /// Second copies that arrived at the other end.
        DUPLICATED = "duplicated", Count, "";
        /// Those of `delivered` that arrived after one that had come later.
        REORDERED = "reordered", Count, "";
        /// Those of `delivered` that arrived with a wrong bit.
        CORRUPTED = "corrupted", Count, "";
        /// Packets that were dropped because the emulator could not keep up: the tester's own
        /// fault. They are in no other figure.
        OVERLOAD = "overload", Count, "proc(5), /proc/net/dev, drop";
    }
    gauges {
        /// The most bytes that waited in the link's queue at once, in the window.
        QUEUE_BYTES = "queue_bytes", Bytes, "", Max;
    }
    distributions {
        /// How long each packet was to take, from when it came to when it was to leave: queue,
        /// serialisation, propagation and jitter.
        PLANNED_DELAY = "planned_delay", Seconds, "";
        /// How long it took: where the emulator was kept from its work, at most.
        DELAY = "delay", Seconds, "";
        /// How much later than planned it left; where the emulator was kept from its work, with the
        /// longest that it may have waited to be taken in.
        LATENESS = "lateness", Seconds, "";
    }
    derived {
        /// The share of packets that the link lost, of those whose fate is known.
        "loss", Ratio, "", Share(LOST, DELIVERED);
        /// Bits of packets per second that arrived at the other end.
        "bitrate", BitsPerSecond, "", Rate(DELIVERED_BYTES, 8);
    }
}

static GROUPS: [&Group; 1] = [&LINK];

/// The subjects that a link is, from the clients to the server and back: of one that a population
/// has for itself, or that all share.
pub fn subjects(population: Option<&str>) -> [String; 2] {
    [UPLINK, DOWNLINK].map(|direction| match population {
        Some(population) => format!("{population}_{direction}"),
        None => direction.to_owned(),
    })
}

/// The metrics of the subjects [`UPLINK`] and [`DOWNLINK`].
pub static LINK_CATALOGUE: Catalogue = Catalogue(&GROUPS);

/// Why a direction did not do what it was to do: the tester's own fault.
pub fn unfit(totals: &Totals) -> Option<String> {
    let dropped = totals.counter(OVERLOAD);
    if dropped > 0 {
        let packets = crate::human::plural(dropped as f64, "packet", "packets");
        return Some(format!(
            "it dropped {packets} by its own fault, because it could not keep up"
        ));
    }
    let late = totals
        .named("lateness", Statistic::Quantile(0.99))
        .filter(|&late| late > LATENESS_P99_MAX)?;
    let [late, most] = [late, LATENESS_P99_MAX].map(crate::human::seconds);
    Some(format!(
        "1 % of its packets left {late} late or more, where {most} is allowed"
    ))
}
