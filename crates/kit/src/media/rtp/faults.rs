//! Deliberate faults in the packets of a reference server.

use crate::faults::{share, time};
use std::time::Duration;

/// Deliberate faults in the packets of every stream that a reference server sends.
///
/// The default is no faults. A seeded generator selects the affected packets, so the same seed
/// affects the same packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Share of packets that are dropped, each independently; from 0 to 1.
    pub loss: f64,
    /// Packets that are dropped in bursts.
    pub loss_burst: Option<LossBurst>,
    /// Share of packets that are sent twice, the copy directly after the original; from 0 to 1.
    pub duplicate: f64,
    /// Packets that are overtaken by later ones.
    pub reorder: Option<Reorder>,
    /// Random delay of each packet.
    pub jitter: Option<Jitter>,
    /// Constant delay of all packets.
    pub delay: Duration,
    /// A period in which nothing is sent. All late packets are sent at its end.
    pub stall: Option<Stall>,
    /// Media time after which nothing more is sent. There is no BYE, and the connection stays open.
    pub stop_after: Option<Duration>,
}

/// Packets that are dropped in bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossBurst {
    /// Share of the packets outside bursts that begin a burst; from 0 to 1.
    pub probability: f64,
    /// Number of packets in a burst.
    pub length: u32,
}

/// Packets that are overtaken by later ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of packets that are overtaken; from 0 to 1.
    pub probability: f64,
    /// Number of later packets that are sent first.
    pub distance: u32,
}

/// Random delay of each packet, uniform from 0 to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// Maximum delay.
    pub max: Duration,
    /// True if packets keep their order.
    pub in_order: bool,
}

/// A period in which nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Start of the period, from the start of the stream.
    pub at: Duration,
    pub length: Duration,
}

/// Maximum number of packets that are held back, or dropped in one burst.
const PACKETS_MAX: u32 = 1000;
/// Maximum delay of any kind. Delayed packets are kept in memory.
const DELAY_MAX: Duration = Duration::from_secs(60);

impl Faults {
    /// Examples of all faults in the syntax of the command line.
    pub const EXAMPLES: [&str; 9] = [
        "loss=1%",
        "loss-burst=0.1%x5",
        "duplicate=0.5%",
        "reorder=1%x3",
        "jitter=5ms",
        "jitter=5ms,in-order",
        "delay=20ms",
        "stall=10s+2s",
        "stop=30s",
    ];

    /// True if no fault is set.
    pub fn is_empty(&self) -> bool {
        *self == Faults::default()
    }

    /// Sets a fault from the command line, written `name=value`. Returns `None` if the name is
    /// unknown.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "loss" => share(value).map(|share| self.loss = share),
            "duplicate" => share(value).map(|share| self.duplicate = share),
            "loss-burst" => {
                share_and_count(value, "loss-burst=0.1%x5").map(|(probability, length)| {
                    self.loss_burst = Some(LossBurst {
                        probability,
                        length,
                    });
                })
            }
            "reorder" => share_and_count(value, "reorder=1%x3").map(|(probability, distance)| {
                self.reorder = Some(Reorder {
                    probability,
                    distance,
                });
            }),
            "jitter" => {
                let (max, in_order) = match value.strip_suffix(",in-order") {
                    Some(max) => (max, true),
                    None => (value, false),
                };
                delay(max).map(|max| self.jitter = Some(Jitter { max, in_order }))
            }
            "delay" => delay(value).map(|delay| self.delay = delay),
            "stall" => value
                .split_once('+')
                .ok_or_else(|| "write a stall as `stall=10s+2s`: start and length".to_owned())
                .and_then(|(at, length)| {
                    self.stall = Some(Stall {
                        at: time(at)?,
                        length: delay(length)?,
                    });
                    Ok(())
                }),
            "stop" => time(value).map(|after| self.stop_after = Some(after)),
            _ => return None,
        })
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    match time(text)? {
        delay if delay > DELAY_MAX => Err(format!(
            "`{text}` is longer than the maximum delay, {DELAY_MAX:?}"
        )),
        delay => Ok(delay),
    }
}

/// Parses a share and a number of packets, such as `1%x3`.
fn share_and_count(text: &str, example: &str) -> Result<(f64, u32), String> {
    let (part, number) = text
        .split_once('x')
        .ok_or_else(|| format!("`{text}`: write a share and a count, as in `{example}`"))?;
    let packets = number
        .parse()
        .ok()
        .filter(|packets| (1..=PACKETS_MAX).contains(packets))
        .ok_or_else(|| format!("`{number}` is not a number of packets from 1 to {PACKETS_MAX}"))?;
    Ok((share(part)?, packets))
}
