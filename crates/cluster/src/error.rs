//! Errors of a run over several machines.

use std::time::Duration;

/// Reason why runners cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Invalid address of NATS.
    #[error(
        "`{url}` is not a NATS address: write `nats://HOST:PORT`, or `tls://HOST:PORT` for TLS"
    )]
    Url { url: String },
    /// A connection off this machine would not be protected.
    #[error(
        "{url} is not on this machine, and the connection would be {lacks}: use `tls://` and \
         `--creds`, or add `--insecure`"
    )]
    Insecure { url: String, lacks: &'static str },
    /// A file with credentials cannot be used.
    #[error("cannot use the credentials in {path}: {why}")]
    Credentials { path: String, why: String },
    /// No name of a runner.
    #[error(
        "`{name}` cannot be the name of a runner: write 1 to 64 letters, digits, - and _, and not \
         `coordinator`"
    )]
    Name { name: String },
    /// The server does not permit a runner its name.
    #[error(
        "the server does not permit this runner the name `{name}`: each runner needs credentials \
         of its own (`streamgauge cluster keys --runner {name}`)"
    )]
    NameDenied { name: String },
    /// No host name and no address.
    #[error("`{host}` is neither a host name nor an address: write it without scheme and port")]
    Host { host: String },
    /// The first keys of a folder need a host.
    #[error(
        "specify the host name that coordinator and runners use for the NATS server: `--host NAME`, \
         or an address"
    )]
    NoHost,
    /// A file of keys cannot be written or read.
    #[error("{path}: {why}")]
    Keys { path: String, why: String },
    /// No connection to the server.
    #[error("no connection to NATS at {url}: {why}\n  {help}")]
    Connect {
        url: String,
        why: String,
        help: &'static str,
    },
    /// The server does not do what is needed.
    #[error("NATS at {url} cannot be used: {what}: {why}")]
    Nats {
        url: String,
        /// Operation that failed.
        what: &'static str,
        why: String,
    },
    /// Another process has the name.
    #[error(
        "another runner is called `{name}`: give this one another `--name`, or wait {} s if the other has just ended",
        .expires.as_secs()
    )]
    NameTaken {
        name: String,
        /// Time after which the name of a killed runner is free.
        expires: Duration,
    },
    /// Two runners have one name.
    #[error(
        "two runners are called `{name}` ({one} and {other}): give one of them another `--name`"
    )]
    NameTwice {
        name: String,
        one: String,
        other: String,
    },
    /// Too few runners came.
    #[error("{found} of {wanted} runners are ready after {} s{names}{others}: start the others, or ask for fewer", .within.as_secs())]
    TooFew {
        wanted: usize,
        found: usize,
        within: Duration,
        /// Names of those that came.
        names: String,
        /// Runners that came and cannot be used, and why.
        others: String,
    },
    /// A runner does not take part.
    #[error("runner `{name}`: {why}")]
    Runner { name: String, why: String },
    /// A file that clients read cannot be sent to the runners.
    #[error("cannot send {path} to the runners: {why}")]
    File { path: String, why: String },
    /// The server cannot be observed.
    #[error(transparent)]
    Server(#[from] sut::SutError),
    /// The observed server is gone.
    #[error("the observed server has ended: {server}")]
    ServerEnded { server: String },
    /// No runner observes the server.
    #[error(
        "no runner called `{runner}` observes a server after {} s{why}: start `streamgauge runner \
         --observe PID --name {runner}` on the server's machine, at the same NATS server",
        .within.as_secs()
    )]
    NoObserver {
        runner: String,
        within: Duration,
        /// Reason why a runner with this name cannot be used; empty if none has come.
        why: String,
    },
    /// The scenario needs something that only one machine has.
    #[error("{what} works only without `--runners`: {why}")]
    OneMachine {
        what: &'static str,
        why: &'static str,
    },
    /// A run cannot go on.
    #[error("the run cannot go on: {why}")]
    Resume { why: String },
    /// The scenario is too large to be sent.
    #[error("the scenario is too large for runners: {bytes} bytes, at most {max} are possible")]
    TooLarge { bytes: usize, max: usize },
    /// A runner's or server's process cannot be started.
    #[error("cannot start {what}: {why}")]
    Launch { what: String, why: String },
    /// The user ended it.
    #[error("stopped")]
    Stopped,
    /// The operating system refused an operation.
    #[error("{what}: {error}")]
    System {
        what: &'static str,
        error: std::io::Error,
    },
}

impl ClusterError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> ClusterError {
        move |error| ClusterError::System { what, error }
    }

    pub(crate) fn resume(why: impl Into<String>) -> ClusterError {
        ClusterError::Resume { why: why.into() }
    }

    /// NATS did not answer in time while everything was opened.
    pub(crate) fn no_answer(url: &str, within: Duration) -> ClusterError {
        ClusterError::Connect {
            url: url.to_owned(),
            why: format!("no answer within {} s", within.as_secs()),
            help: "check that the server is not overloaded",
        }
    }
}
