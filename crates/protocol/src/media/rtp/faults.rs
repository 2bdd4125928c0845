//! What a reference server does wrong with its packets, on purpose.

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};

/// What a reference server does wrong on purpose to the packets of every stream it sends.
///
/// Nothing by default. Which packets it strikes is drawn from a seeded generator, so the same seed
/// strikes the same ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of packets that are left out, each by itself; from 0 to 1.
    pub loss: f64,
    /// Packets that are left out in runs.
    pub loss_burst: Option<LossBurst>,
    /// The share of packets that are sent twice, the second copy right after the first; from 0 to
    /// 1.
    pub duplicate: f64,
    /// Packets that are overtaken.
    pub reorder: Option<Reorder>,
    /// Delay that is different for each packet.
    pub jitter: Option<Jitter>,
    /// Delay that is the same for all packets.
    pub delay: Duration,
    /// A time in which nothing is sent, and after which all that is late goes at once.
    pub stall: Option<Stall>,
    /// Packets stop coming after so much of the media, without a word: no BYE, the connection
    /// stays.
    pub stop_after: Option<Duration>,
}

/// Packets that are left out in runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossBurst {
    /// The share of packets, of those outside of runs, with which one begins; from 0 to 1.
    pub probability: f64,
    /// Packets in a run.
    pub length: u32,
}

/// Packets that are overtaken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The share of packets; from 0 to 1.
    pub probability: f64,
    /// How many later packets go first.
    pub distance: u32,
}

/// Delay that is different for each packet: uniform from nothing to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// The longest extra delay.
    pub max: Duration,
    /// Whether no packet overtakes another.
    pub in_order: bool,
}

/// A time in which nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it begins, from the beginning of the stream.
    pub at: Duration,
    /// How long it lasts.
    pub length: Duration,
}

/// Most packets that may be held back, or left out in one run.
const PACKETS_MAX: u32 = 1000;
/// The longest delay of any kind: what is delayed is held in memory.
const DELAY_MAX: Duration = Duration::from_secs(60);

impl Faults {
    /// The faults there are, as they are written.
    pub const KNOWN: [&str; 9] = [
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

    /// Whether there is nothing to do.
    pub fn is_none(&self) -> bool {
        *self == Faults::default()
    }

    /// Takes one fault as it is written on the command line, `name` and `value` being what stands
    /// before and after the `=`. `None` where there is none of that name.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "loss" => ratio(value).map(|share| self.loss = share),
            "duplicate" => ratio(value).map(|share| self.duplicate = share),
            "loss-burst" => ratio_times(value, "loss-burst=0.1%x5").map(|(probability, length)| {
                self.loss_burst = Some(LossBurst {
                    probability,
                    length,
                });
            }),
            "reorder" => ratio_times(value, "reorder=1%x3").map(|(probability, distance)| {
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
                .ok_or_else(|| "a stall is written `stall=10s+2s`: when, and how long".to_owned())
                .and_then(|(at, length)| {
                    self.stall = Some(Stall {
                        at: duration(at)?,
                        length: delay(length)?,
                    });
                    Ok(())
                }),
            "stop" => duration(value).map(|after| self.stop_after = Some(after)),
            _ => return None,
        })
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<Ratio>() {
        Ok(Ratio(share)) if share <= 1.0 => Ok(share),
        Ok(_) => Err(format!("`{text}` is more than 100%")),
        Err(error) => Err(error.to_string()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<TimeSpan>()
        .map(|span| span.0)
        .map_err(|error| error.to_string())
}

fn delay(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|delay| {
        if delay > DELAY_MAX {
            Err(format!(
                "`{text}`: packets are delayed by at most {DELAY_MAX:?}"
            ))
        } else {
            Ok(delay)
        }
    })
}

/// `1%x3`: a share, and a number of packets.
fn ratio_times(text: &str, example: &str) -> Result<(f64, u32), String> {
    let (share, number) = text
        .split_once('x')
        .ok_or_else(|| format!("`{text}`: write it as in `{example}`: a share, and packets"))?;
    let packets = number
        .parse()
        .ok()
        .filter(|packets| (1..=PACKETS_MAX).contains(packets))
        .ok_or_else(|| format!("`{number}` is no number of packets from 1 to {PACKETS_MAX}"))?;
    Ok((ratio(share)?, packets))
}
