//! What keeps a run from beginning.

use std::io;

/// Why a run could not begin. Whatever goes wrong later is part of its report.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The server under test could not be started or observed.
    #[error("the server under test: {0}")]
    Server(#[from] sut::SutError),
    /// A browser of `golden` could not be started.
    #[error("{0}")]
    Browser(sut::SutError),
    /// A browser of `golden` is of no use.
    #[error("the browser that `golden` asks for: {why} {log}")]
    BrowserIdle {
        /// Why.
        why: String,
        /// The last of what it printed.
        log: String,
    },
    /// A browser cannot do what the clients of a population do.
    #[error("`clients.{population}.golden`: {message}")]
    Golden {
        /// Which population.
        population: String,
        /// Why.
        message: String,
    },
    /// A threshold cannot be judged.
    #[error("threshold `{text}`: {message}")]
    Threshold {
        /// As it was written.
        text: String,
        /// What is wrong with it, and how to mend it.
        message: String,
    },
    /// The run file cannot be made.
    #[error("{0}")]
    RunFile(#[from] runfile::RunFileError),
    /// The operating system refused something that every run needs.
    #[error("{what}: {error}")]
    System {
        /// What was wanted.
        what: String,
        /// What it said.
        error: io::Error,
    },
    /// Media was to be received by a packet ring, and there is none to be had.
    #[error("media cannot be received by a packet ring; {0}")]
    ReceivePath(String),
    /// Media was to be received at an address or at ports where it cannot be.
    #[error("`clients.{population}.media`: {message}")]
    Media {
        /// Which population.
        population: String,
        /// What is wrong, and what to do.
        message: String,
    },
    /// The machine that is to receive media cannot be used.
    #[error("the receiver {address} of `clients.{population}.media`: {message}")]
    Receiver {
        /// Where it should be.
        address: std::net::SocketAddr,
        /// Whose media it should receive.
        population: String,
        /// What is wrong, and what to do.
        message: String,
    },
    /// Workers were to go before others, and may not.
    #[error(
        "tester.priority cannot be `raised`: {0}\n  give the program CAP_SYS_NICE (`setcap cap_sys_nice,cap_net_raw+ep` on it), or leave it `normal`"
    )]
    Priority(io::Error),
    /// A client that was to be traced is not there.
    #[error("trace {0}")]
    Trace(String),
    /// What the clients of a population are to speak TLS with cannot be had.
    #[error("TLS of `{population}`: {message}")]
    Tls {
        /// Which population.
        population: String,
        /// What is wrong.
        message: String,
    },
    /// What the clients of a population are to publish cannot be made.
    #[error("what `{population}` publishes: {message}")]
    Source {
        /// Which population.
        population: String,
        /// What is wrong.
        message: String,
    },
    /// The network that a scenario wants cannot be made.
    #[error("`network: {network}`: {error}{}", what_it_takes(error))]
    Network {
        /// Which one.
        network: &'static str,
        /// What the operating system said.
        error: io::Error,
    },
    /// TCP cannot control congestion as the scenario wants it.
    #[error("`network.congestion: {name}`: {error}\n  {help}")]
    Congestion {
        /// What is wanted.
        name: String,
        /// What to do.
        help: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// The emulated link that a scenario wants cannot be made.
    #[error("`link`: {error}{}", what_a_link_takes(error))]
    Link {
        /// What the operating system said.
        error: io::Error,
    },
    /// What an emulated link is to do cannot be.
    #[error("`link`: {0}")]
    LinkPlan(String),
    /// What a source of the run is to send cannot be made.
    #[error("`sources.{name}`: {message}")]
    SourceFile {
        /// Which one.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// A source could not be set to work.
    #[error("{0}")]
    Sending(String),
    /// The user stopped it before it began.
    #[error("stopped before the run began")]
    Stopped,
    /// The reference server cannot be made from its settings.
    #[error("the reference server: {0}")]
    Settings(String),
}

/// What to do where a network may not be made.
fn what_it_takes(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "\n  to make network namespaces takes CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root (`sudo streamgauge ...`), \
             or in a user namespace of its own (`unshare --map-root-user streamgauge ...`)"
        }
        _ => "",
    }
}

/// What to do where a link may not be made.
fn what_a_link_takes(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "\n  there is no /dev/net/tun: load the kernel module `tun`",
        _ => what_it_takes(error),
    }
}

impl EngineError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
        let what = what.into();
        move |error| EngineError::System { what, error }
    }
}
