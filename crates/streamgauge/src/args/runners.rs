//! Options of runs over several machines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use cluster::{Access, ClusterError, Placement, Target};
use measure::units::TimeSpan;

use super::help;

/// Runners that play the clients.
#[derive(Debug, Args)]
#[command(next_help_heading = help::RUNNERS)]
pub(crate) struct RunnerPlacement {
    /// Let several runners play the clients, as one run: local:4 (four processes of this machine),
    /// ssh:HOST1,ssh:HOST2*2 (processes that SSH starts; the second with twice the clients), or,
    /// with --at, a number of runners that wait there
    #[arg(
        long,
        value_name = "RUNNERS",
        hide_short_help = true,
        conflicts_with = "trace"
    )]
    pub(crate) runners: Option<Placement>,
    /// Time for which runners are waited for
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        hide_short_help = true
    )]
    pub(crate) runner_timeout: TimeSpan,
    #[command(flatten)]
    pub(crate) access: AccessOptions,
}

/// The NATS server that connects coordinator and runners.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = help::RUNNERS)]
pub(crate) struct AccessOptions {
    /// NATS server with JetStream, such as nats://127.0.0.1:4222 or tls://HOST:4222 [default: one
    /// that is started for this run, on this machine only]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) at: Option<String>,
    /// File with a certificate, its key and the certificate that signs the server's (PEM)
    #[arg(long, value_name = "FILE", requires = "at", hide_short_help = true)]
    pub(crate) creds: Option<PathBuf>,
    /// Permit a NATS server on another machine without TLS or without credentials: everybody on the
    /// way can read the scenario with its passwords, and command the runners
    #[arg(long, requires = "at", hide_short_help = true)]
    pub(crate) insecure: bool,
}

impl AccessOptions {
    /// Returns how NATS is reached; `None` if no server is named.
    pub(crate) fn access(&self) -> Result<Option<Access>, ClusterError> {
        let Some(url) = &self.at else {
            return Ok(None);
        };
        let access = Access::new(url)?;
        Ok(Some(Access {
            credentials: self.creds.clone(),
            insecure: self.insecure,
            ..access
        }))
    }
}

/// Commands that prepare runs over several machines.
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Write certificates for a NATS server, a coordinator and runners, and the configuration of
    /// the server, which permits each of them only what it needs
    Keys(ClusterKeys),
}

/// Options of `cluster keys`.
#[derive(Debug, Args)]
pub(crate) struct ClusterKeys {
    /// Folder of the keys. Keys that it has are kept, so runners can be added later
    #[arg(long, value_name = "FOLDER", default_value = "cluster-keys")]
    pub(crate) folder: PathBuf,
    /// Host name or address by which the NATS server is reached (may be repeated) [default: the
    /// server's certificate is kept]
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Port of the NATS server [default: that of the folder's configuration, or 4222]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Name of a runner: letters, digits, - and _ (may be repeated)
    #[arg(long = "runner", value_name = "NAME")]
    pub(crate) runners: Vec<String>,
    /// Time for which the new certificates are valid
    #[arg(long, value_name = "TIME", default_value = "8760h")]
    pub(crate) valid: TimeSpan,
    /// Write the certificates of the coordinator and of all runners again, before they expire
    #[arg(long)]
    pub(crate) renew: bool,
}

/// Options of a runner.
#[derive(Debug, Args)]
pub(crate) struct Runner {
    /// NATS server at which it waits for runs, such as nats://127.0.0.1:4222 or tls://HOST:4222. -
    /// reads the URL from the first line of standard input; the runner then ends with that input
    #[arg(long, value_name = "URL")]
    pub(crate) at: String,
    /// File with a certificate, its key and the certificate that signs the server's (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,
    /// Permit a NATS server on another machine without TLS or without credentials
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Name of this runner: letters, digits, - and _ [default: the host name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A runner of weight 2 gets twice as many clients as one of weight 1
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) weight: u32,
    /// Target that its clients may send to: an address, a prefix such as 10.0.0.0/8, a host name,
    /// or any (may be repeated) [default: this machine only]
    #[arg(long = "allow-target", value_name = "TARGET")]
    pub(crate) allow_targets: Vec<Target>,
    /// Observe the server on this machine instead of playing clients: a process ID, or a unit of
    /// systemd. The scenario names this runner: server: {observe: {runner: NAME}}
    #[arg(
        long,
        value_name = "PID|UNIT",
        conflicts_with_all = ["allow_targets", "records"]
    )]
    pub(crate) observe: Option<String>,
    /// With --observe: log file of the server
    #[arg(long, value_name = "FILE", requires = "observe")]
    pub(crate) log: Option<PathBuf>,
    /// Folder for its own run files [default: streamgauge-runs, or that of STREAMGAUGE_RUNS; with
    /// --at -, it keeps none]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) records: Option<PathBuf>,
    /// End after the first run
    #[arg(long)]
    pub(crate) once: bool,
}
