//! Options of `link`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use measure::units::{BitRate, Ratio, TimeSpan};
use session::link::{
    HeldBack, Jitter, LinkConfig, Loss, Outage, PartialSettings, PhaseConfig, Queue,
};

const EXAMPLES: &str = "\
Examples:
  streamgauge link --rtt 178ms --loss 0.5% -- ffplay rtmp://{host}/live/a
  streamgauge link --rtt 60ms --rate 20Mbps --queue 100ms --down 'loss=1% in bursts of 4' -- bash
  streamgauge link --rtt 178ms -- streamgauge load rtsp://{host}:8554/a -c 20 -d 30s

The program runs in a network of its own, whose only way out is the link. This machine is at the
other end. Its address there (10.82.0.1, or the next free one) is {host} in the program's arguments
and STREAMGAUGE_LINK_HOST in its environment. A server must listen on that address or on all. The
command needs CAP_NET_ADMIN and CAP_SYS_ADMIN (root).

The exit code is the program's, or 110 if the program succeeded but the link was late or dropped
packets by its own fault: then the link did not behave as configured.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Link {
    /// Round-trip time: half of it each way
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    rtt: Option<TimeSpan>,
    /// Delay of a packet, each way
    #[arg(long, value_name = "TIME")]
    delay: Option<TimeSpan>,
    /// Jitter of the delay: 3ms, '3ms normal', '3ms pareto reordering'
    #[arg(long, value_name = "JITTER")]
    jitter: Option<Jitter>,
    /// Packet loss: 0.5%, '1% in bursts of 4', 'every 100', 'packets 3, 7, 9' (counted from 0)
    #[arg(long, value_name = "LOSS")]
    loss: Option<Loss>,
    /// Bit rate of the link
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Queue in front of the rate limit: 100ms, 64KiB, '100ms codel' [default: 100ms]
    #[arg(long, value_name = "QUEUE", requires = "rate")]
    queue: Option<Queue>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<Ratio>,
    /// Share of packets that are held back, and for how long: '1% by 10ms'
    #[arg(long, value_name = "SHARE by TIME")]
    reorder: Option<HeldBack>,
    /// Share of packets that arrive with a wrong bit
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<Ratio>,
    /// Outage, during which nothing passes: 10s..12s (may be repeated)
    #[arg(long, value_name = "FROM..UNTIL")]
    outage: Vec<Outage>,
    /// Setting for packets from the program to this machine only, instead of the one for both
    /// directions: loss=1%, delay=70ms, rate=5Mbps and so on (may be repeated)
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_direction_key)]
    up: Vec<PartialSettings>,
    /// Setting for packets from this machine to the program only, as --up
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_direction_key)]
    down: Vec<PartialSettings>,
    /// Longest packet that passes, in bytes with its IP header
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=9000))]
    mtu: Option<u16>,
    /// Course of the link over time: lines of time,rate,delay,loss in seconds, bit/s, seconds one
    /// way and a share from 0 to 1; an empty field keeps its value
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Random seed [default: a new one each time, which is printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write the record to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Link {
    /// Returns the configuration of the link, without its trace.
    pub(crate) fn config(&self) -> LinkConfig {
        let sum = |keys: &[PartialSettings]| {
            keys.iter()
                .fold(PartialSettings::default(), |mut sum, keys| {
                    sum.overlay(keys);
                    sum
                })
        };
        LinkConfig {
            first: PhaseConfig {
                rtt: self.rtt,
                both: PartialSettings {
                    delay: self.delay,
                    jitter: self.jitter,
                    loss: self.loss.clone(),
                    rate: self.rate,
                    queue: self.queue,
                    duplicate: self.duplicate,
                    reorder: self.reorder,
                    corrupt: self.corrupt,
                    outages: (!self.outage.is_empty()).then(|| self.outage.clone()),
                },
                up: sum(&self.up),
                down: sum(&self.down),
            },
            mtu: self.mtu,
            stages: Vec::new(),
        }
    }
}

/// Parses one setting of one direction.
fn parse_direction_key(text: &str) -> Result<PartialSettings, String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("write a key and its value, such as `loss=1%`")?;
    let mut keys = PartialSettings::default();
    let words = |error: measure::units::QuantityError| error.to_string();
    match key {
        "delay" => keys.delay = Some(value.parse().map_err(words)?),
        "jitter" => keys.jitter = Some(value.parse()?),
        "loss" => keys.loss = Some(value.parse()?),
        "rate" => keys.rate = Some(value.parse().map_err(words)?),
        "queue" => keys.queue = Some(value.parse()?),
        "duplicate" => keys.duplicate = Some(value.parse().map_err(words)?),
        "reorder" => keys.reorder = Some(value.parse()?),
        "corrupt" => keys.corrupt = Some(value.parse().map_err(words)?),
        _ => {
            return Err(format!(
                "unknown key `{key}`: use delay, jitter, loss, rate, queue, duplicate, reorder or corrupt"
            ));
        }
    }
    Ok(keys)
}
