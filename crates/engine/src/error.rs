//! Errors that keep a run from beginning.

use std::io;

/// Reason why a run could not begin. Later faults are part of its report.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The server under test could not be started or observed.
    #[error("the server under test: {0}")]
    Server(#[from] sut::SutError),
    /// A browser of `golden` could not be started.
    #[error("{0}")]
    Browser(sut::SutError),
    /// A browser of `golden` started but is not usable.
    #[error("the browser of `golden`: {why} {log}")]
    BrowserUnusable {
        why: String,
        /// Last lines of its output.
        log: String,
    },
    /// A browser cannot do what the clients of a population do.
    #[error("`clients.{population}.golden`: {message}")]
    Golden {
        population: String,
        /// Feature that a browser lacks.
        message: String,
    },
    /// A threshold cannot be judged.
    #[error("threshold `{text}`: {message}")]
    Threshold {
        /// Threshold as written in the scenario.
        text: String,
        /// Fault of the threshold, and how to fix it.
        message: String,
    },
    /// The run file cannot be created.
    #[error("{0}")]
    RunFile(#[from] runfile::RunFileError),
    /// The operating system refused an operation that every run needs.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed.
        what: String,
        error: io::Error,
    },
    /// A packet ring was requested and is not available.
    #[error("media cannot be received by a packet ring; {0}")]
    ReceivePath(String),
    /// Media cannot be received at the requested address or ports.
    #[error("`clients.{population}.media`: {message}")]
    Media {
        population: String,
        /// Fault, and how to fix it.
        message: String,
    },
    /// The receiver on another machine cannot be used.
    #[error("the receiver {address} of `clients.{population}.media`: {message}")]
    Receiver {
        address: std::net::SocketAddr,
        /// Population, or populations, whose media it should receive.
        population: String,
        /// Fault, and how to fix it.
        message: String,
    },
    /// The runners of the run cannot play it.
    #[error("{0}")]
    Runners(String),
    /// The runners did not begin together, so nothing was measured.
    #[error("the run did not begin: {0}")]
    NotBegun(String),
    /// A raised priority was requested and is not permitted.
    #[error(
        "tester.priority cannot be `raised`: {0}\n  give the program CAP_SYS_NICE (`setcap cap_sys_nice,cap_net_raw+ep` on it), or leave it `normal`"
    )]
    Priority(io::Error),
    /// A client that is to be traced does not exist.
    #[error("trace {0}")]
    Trace(String),
    /// The TLS configuration of a population cannot be loaded.
    #[error("TLS of `{population}`: {message}")]
    Tls {
        population: String,
        /// Reason why a certificate file cannot be used.
        message: String,
    },
    /// The media that a population publishes cannot be made.
    #[error("media that `{population}` publishes: {message}")]
    Source {
        population: String,
        /// Fault of the file or of its settings.
        message: String,
    },
    /// The network of the scenario cannot be made.
    #[error("`network: {network}`: {error}{}", network_hint(error))]
    Network {
        /// Kind of network: the value of the scenario key `network`.
        network: &'static str,
        error: io::Error,
    },
    /// The requested TCP congestion control is not available.
    #[error("`network.congestion: {name}`: {error}\n  {help}")]
    Congestion {
        /// Requested algorithm.
        name: String,
        /// How to fix it.
        help: String,
        error: io::Error,
    },
    /// The emulated link of the scenario cannot be made.
    #[error("`link`: {error}{}", link_hint(error))]
    Link {
        /// Error of the operating system.
        error: io::Error,
    },
    /// The settings of an emulated link are not valid.
    #[error("`link`: {0}")]
    LinkSettings(String),
    /// The stream of a source cannot be made.
    #[error("`sources.{name}`: {message}")]
    SourceFile {
        /// Name of the source.
        name: String,
        message: String,
    },
    /// A source could not start, or failed to send.
    #[error("{0}")]
    Sending(String),
    /// The user stopped the run before it began.
    #[error("stopped before the run began")]
    Stopped,
    /// The settings of the reference server are not valid.
    #[error("the reference server: {0}")]
    Settings(String),
}

/// Hint for an error while creating a network.
fn network_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "\n  creating network namespaces requires CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root (`sudo streamgauge ...`), \
             or in a user namespace (`unshare --map-root-user streamgauge ...`)"
        }
        _ => "",
    }
}

/// Hint for an error while creating a link.
fn link_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "\n  there is no /dev/net/tun: load the kernel module `tun`",
        _ => network_hint(error),
    }
}

impl EngineError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
        let what = what.into();
        move |error| EngineError::System { what, error }
    }
}
