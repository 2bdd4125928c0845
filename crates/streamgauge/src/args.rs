//! The command line: what can be asked, and with what.

mod load;
mod messages;
mod serve;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use load::{Demo, Load, Protocol, Receiving, Tracing};
pub(crate) use messages::{ByteOrder, MessageMode, ServeMessages, unescaped};
pub(crate) use serve::{Auth, Receive, Send, Serve, ServeHttpTs, ServeRtsp, Transports, interface};

/// Measures how much a real-time media server can carry, how well, and where it breaks.
#[derive(Debug, Parser)]
#[command(name = "streamgauge", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  passed
   99  a threshold failed
  104  the scenario, an argument or the launch of the server is wrong
  105  stopped by the user
  110  the measurement is invalid: the tester itself was at its end, or measured the wrong thing; or
       calibrate found that what it measures here is not true
A series ends with the first of 104, 105, 110 and 99 that any of its runs came to.";

/// The seed of a reference server where none is named: always the same, so that what it does is too.
pub(crate) const DEFAULT_SEED: u64 = 1;

/// The seed of a run where none is named: another one each time, which the report names. It is short enough to be
/// typed.
pub(crate) fn new_seed() -> u64 {
    let drawn = RandomState::new().build_hasher().finish();
    drawn & u64::from(u32::MAX)
}

/// What every command takes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Global {
    /// No progress, and of the summary the verdict and its cause alone
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Every metric and event in the summary
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// No colours, also on a terminal (the environment's NO_COLOR does the same)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Play clients against an embedded reference server: no set-up at all
    Demo(Box<Demo>),
    /// Play clients against a server: one line, no file
    Load(Box<Load>),
    /// Run a scenario file: once, or once for each of the values under its `vary`, with one table at the end
    Run(Run),
    /// Prove on this machine that what is measured is true: against a reference server with known faults
    Calibrate(Calibrate),
    /// Validate a scenario file, say what it will need and do, and ask the server what its media is; plays nothing
    Check(Check),
    /// Run an embedded reference server, with faults on request
    #[command(subcommand)]
    Serve(Serve),
    /// Send MPEG-TS to multicast groups at a constant bit rate, each datagram stamped, so that receivers can account for all
    Send(Box<Send>),
    /// Receive media on this machine for runs on another, which know a secret, and report back what came
    Receive(Receive),
    /// Report a run again, out of its run file, or a series out of its folder
    Report(Report),
    /// List every metric: name, unit, definition and source
    Metrics(Metrics),
    /// List the servers that a scenario can launch (`server: {launch: NAME}`), and which are installed here
    Servers(Servers),
    /// Print a JSON Schema: of the scenario file, or of the JSON report of a run or a series
    Schema(Schema),
}

/// How media is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// UDP, from a packet ring of each worker
    Ring,
    /// UDP, from the clients' sockets
    Sockets,
    /// Interleaved in the connection
    Tcp,
}

/// Where results go.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Results {
    /// Write the JSON report to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where to keep the run; of a series, the folder for its runs [default: streamgauge-NAME-TIME.run in this
    /// folder, or .series]
    #[arg(short, long, value_name = "RUNFILE")]
    pub(crate) out: Option<PathBuf>,
    /// Begin without asking the server what the media of each URL is (its bit rate, length and codecs)
    #[arg(long)]
    pub(crate) no_describe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The scenario file (YAML)
    pub(crate) scenario: PathBuf,
    /// Set a key of it, such as clients.viewers.load.clients=500 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of everything random, in place of the scenario's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) receiving: Receiving,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) results: Results,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Shorter trials: some figures are then of fewer packets
    #[arg(long)]
    pub(crate) quick: bool,
    /// Find out only whether figures are true, and not how much this machine can stand for
    #[arg(long)]
    pub(crate) skip_capacity: bool,
    /// Calibrate only this receive path (may be repeated) [default: all that this process can have]
    #[arg(long, value_enum, value_name = "PATH")]
    pub(crate) path: Vec<Way>,
    /// Set a key of the tester to calibrate it as it will be used, such as tester.receive_buffer=64KiB (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Write what was found to this file, as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The scenario file (YAML)
    pub(crate) scenario: PathBuf,
    /// Set a key of it, such as clients.viewers.load.clients=500 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Send nothing: do not ask the server what the media of each URL is
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The run file, or the folder of a series
    pub(crate) run: PathBuf,
    /// Write the JSON report to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Only the metrics whose name contains this
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Servers {
    /// Show this one in full: how it is started, its configuration, what to know, what to do where it is missing;
    /// the path of a file of your own checks that
    pub(crate) name: Option<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The file of NAME as it is, to begin one of your own with
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub(crate) yaml: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Of what
    #[arg(value_enum, default_value = "scenario")]
    pub(crate) of: SchemaOf,
}

/// Of what a schema is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The scenario file
    Scenario,
    /// The JSON report of a run
    Report,
    /// The JSON report of a series
    Series,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn one_liners_are_read() {
        let line = "streamgauge load rtsp://h/a -c 200 --ramp 20s -d 60s --json - -q";
        let cli = Cli::try_parse_from(line.split(' ')).expect("it is a good line");
        let Command::Load(load) = cli.command else {
            panic!("it is a load");
        };
        assert_eq!(load.clients.as_deref(), Some("200"));
        assert_eq!(load.ramp.as_deref(), Some("20s"));
        assert_eq!(load.duration.as_deref(), Some("60s"));
        assert!(cli.global.quiet);
    }

    #[test]
    fn units_are_asked_for() {
        let error = Cli::try_parse_from(["streamgauge", "demo", "-d", "60"]).expect_err("60 what?");
        let text = error.to_string();
        assert!(text.contains("--duration") && text.contains("60"), "{text}");
    }
}
