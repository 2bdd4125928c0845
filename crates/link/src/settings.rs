//! What a link is to do.

use std::time::Duration;

use measure::Time;

/// What one direction of a link does. By default nothing: packets arrive at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// How long a packet takes from the end of its serialisation to the other end.
    pub delay: Duration,
    /// How that varies.
    pub jitter: Jitter,
    /// What is lost by chance, or on purpose.
    pub loss: Loss,
    /// Bits per second that pass, of packets with their IP headers; any number where there is none.
    /// Rates below 1 bit/s are 1 bit/s.
    pub rate: Option<u64>,
    /// What waits while others pass. Means nothing without a rate.
    pub queue: Queue,
    /// The share of packets that arrive twice, 0 to 1. The second copy has a delay of its own.
    pub duplicate: f64,
    /// The share of packets that are held back, and overtaken meanwhile, 0 to 1.
    pub reorder: f64,
    /// How much longer those take.
    pub held_back: Duration,
    /// The share of packets in which a bit is wrong when they arrive, 0 to 1.
    pub corrupt: f64,
    /// When nothing passes. In order of time.
    pub outages: Vec<Outage>,
    /// The longest packet that passes, in bytes with its IP header.
    pub mtu: Option<usize>,
}

/// How the delay of packets varies. The delay is never below 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// How far it spreads: see [`Shape`].
    pub spread: Duration,
    /// How it is distributed.
    pub shape: Shape,
    /// Whether packets overtake each other by it, each with a delay of its own. If not, the delay
    /// varies over time, with the same mean at any packet rate: packets behind a late one arrive
    /// with it, as behind a router's queue.
    pub reorders: bool,
}

/// A distribution of delays around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Evenly from `spread` less to `spread` more.
    #[default]
    Uniform,
    /// Normal, with `spread` as standard deviation, cut off at four of them.
    Normal,
    /// Pareto with shape 3, moved to mean 0, with `spread` as standard deviation: few packets come
    /// much later. Cut off at 20 standard deviations.
    Pareto,
}

/// Which packets are lost before they reach the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same chance, 0 to 1, whatever happened before (Bernoulli).
    Random(f64),
    /// In bursts: the two states of Gilbert, of which one loses all and the other none.
    Bursts {
        /// The share that is lost, in the long run: 0 to below 1.
        share: f64,
        /// How many are lost in a row, on average: at least 1.
        length: f64,
    },
    /// Every so many-th packet; 1 loses all, 0 none.
    Every(u64),
    /// Packets by their number, counted from 0. In ascending order.
    List(Vec<u64>),
}

impl Loss {
    /// Why a chance is not possible; nothing where it is.
    pub fn check(&self) -> Result<(), String> {
        match *self {
            Loss::Random(share) if !(0.0..=1.0).contains(&share) => {
                Err("a share is from 0 to 1".into())
            }
            Loss::Bursts { share, length } => match share / (length * (1.0 - share)) {
                _ if !(0.0..1.0).contains(&share) => {
                    Err("the share of bursts is from 0 to below 1".into())
                }
                _ if length.is_nan() || length < 1.0 => {
                    Err("a burst loses one packet at least".into())
                }
                begins if begins > 1.0 => {
                    let shortest = share / (1.0 - share);
                    Err(format!(
                        "to lose {} % in bursts they must have at least {shortest:.2} packets",
                        share * 100.0
                    ))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Packets that wait for the serialiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// How many may wait.
    pub limit: QueueLimit,
    /// Which are dropped.
    pub discipline: Discipline,
}

/// The bound of a queue. The packet that is being sent is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// As many bytes, IP headers included.
    Bytes(u64),
    /// As many as leave within that time at the link's rate, with the one that is being sent.
    Time(Duration),
}

/// Which packets a queue drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Those that come while it is full.
    #[default]
    DropTail,
    /// Those too; and others once packets have waited longer than `target` for an `interval`
    /// (CoDel, RFC 8289).
    CoDel {
        /// How long packets may wait in the long run. RFC 8289, 4.4 proposes 5 ms.
        target: Duration,
        /// How long they may wait longer before packets are dropped. RFC 8289, 4.3 proposes 100 ms.
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

/// A time in which nothing passes. What is under way arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins.
    pub from: Time,
    /// When it is over.
    pub until: Time,
}

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// It came in an [`Outage`].
    Outage,
    /// It is longer than the MTU.
    TooLong,
    /// By [`Loss`].
    Chance,
    /// The queue was full.
    QueueFull,
}
