//! Settings of a link's direction.

use std::time::Duration;

use measure::Time;

/// Settings of one direction of a link. By default packets arrive at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Propagation delay, from the end of serialisation to arrival.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Loss by chance or by number.
    pub loss: Loss,
    /// Bit rate, counted over packets with their IP headers; unlimited if `None`. Rates below 1
    /// bit/s are treated as 1 bit/s.
    pub rate: Option<u64>,
    /// Queue in front of the serialiser. Has no effect without a rate.
    pub queue: Queue,
    /// Share of packets that arrive twice, 0 to 1. The second copy has its own delay.
    pub duplicate: f64,
    /// Share of packets that are held back and may be overtaken, 0 to 1.
    pub reorder: f64,
    /// Additional delay of packets that are held back.
    pub held_back: Duration,
    /// Share of packets that arrive with a wrong bit, 0 to 1.
    pub corrupt: f64,
    /// Periods in which no packet passes, in order of time.
    pub outages: Vec<Outage>,
    /// Maximum length of packets, in bytes with the IP header; unlimited if `None`.
    pub mtu: Option<usize>,
}

/// Variation of the delay. The delay is never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// Spread of the distribution: see [`Shape`].
    pub spread: Duration,
    /// Distribution of the delay.
    pub shape: Shape,
    /// Whether packets may overtake each other, each with a delay of its own. Otherwise the delay
    /// varies over time, with the same mean at any packet rate: packets behind a late one arrive
    /// with it, as behind a router's queue.
    pub reorders: bool,
}

/// Distribution of delays around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Uniform between mean minus `spread` and mean plus `spread`.
    #[default]
    Uniform,
    /// Normal with standard deviation `spread`, limited to four standard deviations.
    Normal,
    /// Pareto with shape 3, shifted to mean 0, with standard deviation `spread`: a few packets
    /// arrive much later. Limited to 20 standard deviations.
    Pareto,
}

/// Selection of packets that are lost before they reach the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent losses with this probability, 0 to 1 (Bernoulli).
    Random(f64),
    /// Losses in bursts (Gilbert model): all packets are lost in one state, none in the other.
    Bursts {
        /// Long-term share of lost packets: 0 to below 1.
        share: f64,
        /// Mean length of a burst in packets: at least 1.
        length: f64,
    },
    /// Every n-th packet; 1 loses all, 0 none.
    Every(u64),
    /// Packets with these numbers, counted from 0, in ascending order.
    List(Vec<u64>),
}

impl Loss {
    /// Checks the parameters. Returns an error text if they are out of range.
    pub fn check(&self) -> Result<(), String> {
        match *self {
            Loss::Random(share) if !(0.0..=1.0).contains(&share) => {
                Err("a share must be from 0 to 1".into())
            }
            Loss::Bursts { share, length } => match share / (length * (1.0 - share)) {
                _ if !(0.0..1.0).contains(&share) => {
                    Err("the share of bursts must be from 0 to below 1".into())
                }
                _ if length.is_nan() || length < 1.0 => {
                    Err("a burst must have at least one packet".into())
                }
                begins if begins > 1.0 => {
                    let shortest = share / (1.0 - share);
                    Err(format!(
                        "to lose {} % in bursts, a burst must have at least {shortest:.2} packets",
                        share * 100.0
                    ))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Queue in front of the serialiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Maximum that waits in it.
    pub limit: QueueLimit,
    /// Rule by which packets are dropped.
    pub discipline: Discipline,
}

/// Limit of a queue. The packet that is being serialised does not count as queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Limit in bytes, IP headers included.
    Bytes(u64),
    /// Limit in time at the link's rate, including the rest of the packet that is being serialised.
    Time(Duration),
}

/// Selection of packets that a queue drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Drops packets that arrive while the queue is full.
    #[default]
    DropTail,
    /// Drops those too, and others once packets have waited longer than `target` for an `interval`
    /// (CoDel, RFC 8289).
    CoDel {
        /// Acceptable standing delay. RFC 8289, 4.4 recommends 5 ms.
        target: Duration,
        /// Period above `target` before packets are dropped. RFC 8289, 4.3 recommends 100 ms.
        interval: Duration,
    },
}

impl Default for Queue {
    /// 100 ms, drop-tail.
    fn default() -> Queue {
        Queue {
            limit: QueueLimit::Time(Duration::from_millis(100)),
            discipline: Discipline::DropTail,
        }
    }
}

/// Period in which no packet is accepted. Packets under way still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start, inclusive.
    pub from: Time,
    /// End, exclusive.
    pub until: Time,
}

/// Reason for the loss of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The packet was sent in an [`Outage`].
    Outage,
    /// The packet is longer than the MTU.
    TooLong,
    /// Selected by [`Loss`].
    Chance,
    /// The queue was full.
    QueueFull,
}
