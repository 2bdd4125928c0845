//! Command-line arguments: the commands and their options.

mod capacity;
mod compare;
mod help;
mod link;
mod load;
mod protocol_options;
mod runners;
mod send;
mod serve;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use measure::units::TimeSpan;

pub(crate) use capacity::{Capacity, ResumeOptions};
pub(crate) use compare::Compare;
pub(crate) use link::Link;
pub(crate) use load::{Demo, Load, ReceiveOptions, TraceOptions, Transport, given};
pub(crate) use runners::{Cluster, ClusterKeys, Runner, RunnerPlacement};
pub(crate) use send::{Receive, Send};
pub(crate) use serve::Serve;

/// Measures how much a real-time media server can carry, how well, and where it breaks.
#[derive(Debug, Parser)]
#[command(name = "streamgauge", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten, next_help_heading = help::OUTPUT)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  passed
   99  a threshold failed, or a compared metric is worse
  104  the scenario, an argument or the launch of the server is wrong
  105  stopped by the user
  110  the measurement is invalid: the tester itself was overloaded or measured the wrong thing, or
       calibrate found that figures measured on this machine are wrong
A series exits with the first of 104, 105, 110 and 99 that any of its runs exited with.";

/// Draws the seed of a run for which none is given. The report names it. It has 32 bits, short
/// enough to be typed.
pub(crate) fn new_seed() -> u64 {
    let drawn = RandomState::new().build_hasher().finish();
    drawn & u64::from(u32::MAX)
}

/// Options of every command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Global {
    /// Print only the verdict and its cause, and no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print every metric and event in the summary
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Print plain progress lines instead of the live view, as without a terminal
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_live: bool,
    /// When to use colours: auto (on a terminal), always or never. With auto, NO_COLOR in the
    /// environment turns them off; otherwise CLICOLOR_FORCE turns them on everywhere
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        overrides_with = "no_color"
    )]
    pub(crate) color: ColorMode,
    /// Same as --color never
    #[arg(long, global = true, hide = true, overrides_with = "color")]
    no_color: bool,
}

impl Global {
    /// Returns when to use colours: the last of the two options wins.
    pub(crate) fn color(self) -> ColorMode {
        match self.no_color {
            true => ColorMode::Never,
            false => self.color,
        }
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMode {
    /// On a terminal, unless the environment says otherwise
    Auto,
    /// Also in files and pipes
    Always,
    /// Not at all
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run clients against an embedded reference server, without any set-up
    Demo(Box<Demo>),
    /// Run clients against a server: one command line, no file
    Load(Box<Load>),
    /// Find how many clients a server can serve, with an interval
    Capacity(Box<Capacity>),
    /// Run a scenario file: once, or once for each value under its `vary`, with one table at the
    /// end
    Run(Box<Run>),
    /// Check against a reference server with known faults that figures measured on this machine are
    /// right
    Calibrate(Calibrate),
    /// Validate a scenario file, print what it needs and does, and ask the server for a description
    /// of its media; starts no clients
    Check(Check),
    /// Run an embedded reference server, with faults on request
    #[command(subcommand)]
    Serve(Serve),
    /// Send MPEG-TS to multicast groups at a constant bit rate, with a stamp in each datagram, so
    /// that receivers can account for every datagram
    Send(Box<Send>),
    /// Receive media on this machine for runs on other machines that know a secret, and report the
    /// figures back to them
    Receive(Receive),
    /// Play parts of the runs of a coordinator, together with other runners (`run --runners`)
    Runner(Box<Runner>),
    /// Prepare runs over several machines
    #[command(subcommand)]
    Cluster(Cluster),
    /// Run any program behind an emulated link: delay, loss, rate, queue
    Link(Box<Link>),
    /// Report a run again from its run file, or a series from its folder
    Report(Report),
    /// Compare two runs, series or searches: better, worse, the same, or unknown, metric by metric
    Compare(Compare),
    /// List every metric: name, unit, definition and source
    Metrics(Metrics),
    /// List the servers that a scenario can launch (`server: {launch: NAME}`), and which of them
    /// are installed here
    Servers(Servers),
    /// Print a JSON Schema: that of the scenario file, or of the JSON report of a run or a series
    Schema(Schema),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the manual page (roff), or write one for each command to a folder
    Man(Man),
}

/// Path by which media is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReceivePath {
    /// UDP, from a packet ring of each worker
    Ring,
    /// UDP, from the clients' sockets
    Sockets,
    /// Interleaved in the connection
    Tcp,
}

/// Report files, written in addition to the summary on the terminal.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = help::OUTPUT)]
pub(crate) struct Reports {
    /// Write the JSON report to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as a page with charts to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write JUnit XML to this file: a test case for each threshold, and one for the tester
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) junit: Option<PathBuf>,
    /// Write the report as Markdown to this file, for a pull request
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) markdown: Option<PathBuf>,
    /// Write runs.csv, windows.csv, clients.csv and streams.csv to this folder
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    pub(crate) csv: Option<PathBuf>,
}

/// Where results go.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = help::OUTPUT)]
#[command(group = clap::ArgGroup::new("replaceable")
    .args(["out", "json", "html", "junit", "markdown", "csv"]).multiple(true))]
pub(crate) struct Results {
    #[command(flatten)]
    pub(crate) reports: Reports,
    /// Run file to write, or a folder for it; a series gets a folder of its own [default: in the
    /// folder streamgauge-runs]
    #[arg(short, long, value_name = "RUNFILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite an existing run file or series, and reports
    #[arg(long, requires = "replaceable")]
    pub(crate) force: bool,
    /// Keep no run file, only the report
    #[arg(long, conflicts_with_all = ["out", "trace"])]
    pub(crate) no_run_file: bool,
    /// Compare with an earlier run or series: exit with 99 if a metric became worse, with 110 if
    /// that cannot be told. Reports are then those of the comparison
    #[arg(
        long,
        value_name = "RUN",
        conflicts_with = "no_run_file",
        hide_short_help = true
    )]
    pub(crate) baseline: Option<PathBuf>,
    /// Serve the figures of the current run to Prometheus at http://ADDRESS/metrics; a port alone
    /// means 127.0.0.1. Other machines need the token that is printed, or that STREAMGAUGE_TOKEN
    /// holds
    #[arg(long, value_name = "ADDRESS", value_parser = crate::live::view_server::address, hide_short_help = true)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Push the figures of the current run to an OpenTelemetry collector once a second: OTLP over
    /// HTTP, at this URL, such as http://127.0.0.1:4318. Headers are taken from
    /// OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) otlp: Option<String>,
    /// Show the run live in a browser, on the page of --html, served at this address; a port alone
    /// means 127.0.0.1. Other machines need a token, as with --metrics [default: 127.0.0.1:9106]
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = crate::live::dashboard::DEFAULT_ADDRESS,
        value_parser = crate::live::view_server::address,
        hide_short_help = true
    )]
    pub(crate) dashboard: Option<SocketAddr>,
    /// Keep the page of --dashboard after the end of the run until a key is pressed or the process
    /// is stopped, or at most for this time
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        requires = "dashboard",
        hide_short_help = true
    )]
    pub(crate) dashboard_linger: Option<Option<TimeSpan>>,
    /// Start without asking the server for a description of the media of each URL (bit rate, length
    /// and codecs)
    #[arg(long, hide_short_help = true)]
    pub(crate) no_describe: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = help::ENVIRONMENT)]
pub(crate) struct Run {
    /// The scenario file (YAML); - is standard input
    pub(crate) scenario: PathBuf,
    /// Set a key of the scenario, such as clients.viewers.load.clients=500 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Random seed, instead of the scenario's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) receiving: ReceiveOptions,
    #[command(flatten)]
    pub(crate) tracing: TraceOptions,
    #[command(flatten)]
    pub(crate) resuming: ResumeOptions,
    #[command(flatten)]
    pub(crate) runners: RunnerPlacement,
    #[command(flatten)]
    pub(crate) results: Results,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Run shorter trials; some figures then rest on fewer packets
    #[arg(long)]
    pub(crate) quick: bool,
    /// Check only whether figures are right, not how much load this machine can measure
    #[arg(long)]
    pub(crate) skip_capacity: bool,
    /// Calibrate only this protocol (may be repeated) [default: all that declare trials]
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Vec<String>,
    /// Calibrate only this receive path (may be repeated) [default: all that this process can use]
    #[arg(long, value_enum, value_name = "PATH")]
    pub(crate) path: Vec<ReceivePath>,
    /// Set a key of the tester, to calibrate it with the settings of later runs, such as
    /// tester.receive_buffer=64KiB (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Write the results to this file, as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_long_help = help::ENVIRONMENT)]
pub(crate) struct Check {
    /// The scenario file (YAML); - is standard input
    pub(crate) scenario: PathBuf,
    /// Set a key of the scenario, such as clients.viewers.load.clients=500 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Say how the clients are dealt to these runners, and what each of them needs: a number, or as
    /// for `run`
    #[arg(long, value_name = "RUNNERS")]
    pub(crate) runners: Option<cluster::Placement>,
    /// Check the file only: send nothing, and do not look for the programs of servers
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Reports of runs that have ended.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = help::OUTPUT)]
#[command(group = clap::ArgGroup::new("replaceable")
    .args(["json", "html", "junit", "markdown", "csv"]).multiple(true))]
pub(crate) struct LaterReports {
    #[command(flatten)]
    pub(crate) reports: Reports,
    /// Overwrite files that are not reports
    #[arg(long, requires = "replaceable")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The run file, or the folder of a series [default: the newest in the folder streamgauge-runs,
    /// or in that of STREAMGAUGE_RUNS]
    pub(crate) run: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reports: LaterReports,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that the script is for
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write the page of every command to this folder: streamgauge.1, streamgauge-run.1 and others
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// List only metrics whose name contains this, or all metrics of the protocol or subject of
    /// this name
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Servers {
    /// Show this server in full: how it is started, its configuration, notes, and what to do if it
    /// is not installed. The path of a server file of your own checks that file
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the file of NAME unchanged, as a start for one of your own
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub(crate) yaml: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Document that the schema describes
    #[arg(value_enum, default_value = "scenario")]
    pub(crate) of: SchemaOf,
}

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

    /// Returns the help of a command with `-h` or `--help`, at 80 columns.
    fn help_of(path: &[&str], long: bool) -> String {
        let mut command = Cli::command().term_width(80);
        command.build();
        let found = path.iter().try_fold(&mut command, |command, name| {
            command.find_subcommand_mut(name)
        });
        let found = found.expect("it is a command");
        match long {
            true => found.render_long_help().to_string(),
            false => found.render_help().to_string(),
        }
    }

    #[test]
    fn help_of_load_has_sections_examples_and_variables() {
        let text = help_of(&["load"], true);
        let sections = ["Load:", "Media:", "Messages", "TLS", "Tester:", "Output:"];
        let after = ["Examples:", "Environment:"];
        let positions = sections.into_iter().chain(after).map(|heading| {
            let position = text.find(&format!("\n{heading}"));
            position.unwrap_or_else(|| panic!("{heading} is missing in {text}"))
        });
        assert!(positions.collect::<Vec<_>>().is_sorted(), "{text}");
        assert_eq!(
            text.matches("\n      streamgauge load ").count(),
            3,
            "{text}"
        );
        for word in ["STREAMGAUGE_KEY", "STREAMGAUGE_CATALOGUE", "NO_COLOR"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
        // Every new option must name its section.
        let options = &text[text.find("\nOptions:").expect("--help")..];
        let options = &options[..options.find("\nLoad:").expect("it is after that")];
        assert_eq!(options.matches("\n  -").count(), 1, "{options}");
    }

    #[test]
    fn short_help_of_load_is_one_screen() {
        let text = help_of(&["load"], false);
        assert!(text.lines().count() <= 36, "{text}");
        assert!(!text.contains("--tls-ca"), "{text}");
    }

    #[test]
    fn help_lists_variables_for_commands_that_read_them() {
        for name in ["demo", "load", "run", "check"] {
            let text = help_of(&[name], true);
            assert!(text.contains("STREAMGAUGE_KEY"), "{name}: {text}");
        }
    }

    #[test]
    fn help_with_many_options_has_sections() {
        for path in [
            &["demo"][..],
            &["serve", "rtsp"],
            &["serve", "http-ts"],
            &["serve", "messages"],
        ] {
            let text = help_of(path, true);
            let headings = text
                .lines()
                .filter(|line| line.ends_with(':') && !line.starts_with(' '));
            assert!(headings.count() >= 4, "{path:?}: {text}");
        }
    }

    #[test]
    fn load_accepts_a_one_liner() {
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
    fn last_colour_option_wins() {
        for (line, when) in [
            ("streamgauge metrics", ColorMode::Auto),
            ("streamgauge metrics --color always", ColorMode::Always),
            ("streamgauge --color=never metrics", ColorMode::Never),
            ("streamgauge metrics --no-color", ColorMode::Never),
            (
                "streamgauge metrics --no-color --color always",
                ColorMode::Always,
            ),
            (
                "streamgauge metrics --color always --no-color",
                ColorMode::Never,
            ),
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).expect("it is a good line");
            assert_eq!(cli.global.color(), when, "{line}");
        }
    }

    #[test]
    fn duration_without_a_unit_is_an_error() {
        let error = Cli::try_parse_from(["streamgauge", "demo", "-d", "60"]).expect_err("60 what?");
        let text = error.to_string();
        assert!(text.contains("--duration") && text.contains("60"), "{text}");
    }
}
