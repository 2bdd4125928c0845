//! Options of `capacity`.

use std::path::PathBuf;

use clap::Args;

use super::load::{ServerOptions, SharedOptions};
use super::{Results, RunnerPlacement, help};

/// Times and numbers are parsed together with the scenario that they become part of, and mean the
/// same as there.
#[derive(Debug, Args)]
#[command(after_long_help = help::CAPACITY_EXAMPLES)]
pub(crate) struct Capacity {
    /// URL to play, such as rtsp://host/clip{1..10}
    ///
    /// {1..10} stands for ten URLs. Each client picks one of all URLs.
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Must hold: "viewers.loss < 1%" (may repeat)
    ///
    /// The population is called `viewers`, and with message URLs `senders`. Default: what viewers
    /// of the protocol notice; the search prints it.
    #[arg(long = "threshold", value_name = "THRESHOLD", help_heading = help::SEARCH)]
    pub(crate) thresholds: Vec<String>,
    /// First number of clients [default: 10]
    #[arg(long, value_name = "NUMBER", help_heading = help::SEARCH)]
    pub(crate) from: Option<String>,
    /// Smallest number of clients [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = help::SEARCH)]
    pub(crate) min: Option<String>,
    /// Largest number of clients [default: 10000000]
    #[arg(long, value_name = "NUMBER", help_heading = help::SEARCH)]
    pub(crate) max: Option<String>,
    /// Judge each number for this time, after ramp and settling [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = help::SEARCH)]
    pub(crate) hold: Option<String>,
    /// Begin no trial that would end later [default: 30m]
    #[arg(long, value_name = "TIME", help_heading = help::SEARCH)]
    pub(crate) budget: Option<String>,
    /// Make one trial for each number, at most eight, and state no interval
    #[arg(long, help_heading = help::SEARCH)]
    pub(crate) quick: bool,
    /// Probability with which the interval contains the capacity [default: 95%]
    #[arg(long, value_name = "SHARE", help_heading = help::SEARCH, hide_short_help = true)]
    pub(crate) sure: Option<String>,
    /// Width of the interval at which the search ends [default: 10%]
    #[arg(long, value_name = "SHARE", help_heading = help::SEARCH, hide_short_help = true)]
    pub(crate) within: Option<String>,
    /// Start the clients of each trial evenly over this time
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = help::LOAD)]
    pub(crate) ramp: String,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    /// How a client picks its URL: random or in_turn [default: random]
    #[arg(long, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) pick: Option<String>,
    /// Random seed [default: a new one each time]
    #[arg(long, value_name = "NUMBER", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) seed: Option<String>,
    /// Set any other key of the scenario, such as tester.priority=raised (may be repeated)
    #[arg(long, value_name = "KEY=VALUE", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) set: Vec<String>,
    /// udp, tcp, http or multicast [default: udp]
    ///
    /// Transport of media with RTSP: RTP over UDP, interleaved in the connection, interleaved and
    /// tunnelled over HTTP, or by a multicast group.
    #[arg(long, help_heading = help::MEDIA)]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) shared: SharedOptions,
    #[command(flatten)]
    pub(crate) resuming: ResumeOptions,
    #[command(flatten)]
    pub(crate) runners: RunnerPlacement,
    #[command(flatten)]
    pub(crate) results: Results,
}

/// Continuation of an interrupted search or run.
#[derive(Debug, Args)]
pub(crate) struct ResumeOptions {
    /// Go on with the interrupted search for a capacity in this folder, after the trials that it
    /// has completed; or with the run of this run file, whose runners wait at --at and play on for
    /// 10 s after the end of their coordinator
    #[arg(long, value_name = "FOLDER|RUN", conflicts_with_all = ["out", "no_run_file"],
          help_heading = help::OUTPUT, hide_short_help = true)]
    pub(crate) resume: Option<PathBuf>,
}
