//! What to start and when it is ready, as plain data.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::SutError;
use crate::exporters::Exporters;
use crate::log::Matcher;
use crate::user::User;
use kit::descriptor::Transport;
use scenario::{Clips, DEFAULT_READY_TIMEOUT, DEFAULT_STOP_TIMEOUT, ServerLog};

/// Default interface on which a server of the catalogue receives multicast.
pub const INTERFACE: &str = "lo";

/// The server under test: its origin, the clips that it plays, and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSpec {
    pub origin: Origin,
    /// Address at which clients find the server. Default 127.0.0.1.
    pub host: IpAddr,
    /// Clips that are made before the start.
    pub clips: Option<Clips>,
    /// Readiness condition; default: that of the catalogue, else as soon as it runs.
    pub ready: Option<Ready>,
    /// Time limit until it is ready; default [`DEFAULT_READY_TIMEOUT`].
    pub ready_timeout: Duration,
    /// Time limit to end after SIGTERM before it is killed; default [`DEFAULT_STOP_TIMEOUT`].
    pub stop_within: Duration,
    /// Log, and the patterns to search it for.
    pub log: ServerLog,
    /// Environment variables, in addition to [`crate::PASSED_ON_VARIABLES`].
    pub environment: Vec<(OsString, OsString)>,
    /// User to run as, by name or number; only root can change it. Default: as the entry of the
    /// catalogue says; for any other server the user of streamgauge.
    pub user: Option<String>,
    /// Working directory of a command; default: that of streamgauge. Servers of the catalogue have
    /// one of their own.
    pub directory: Option<PathBuf>,
}

impl ServerSpec {
    /// Creates a specification with default settings.
    pub fn new(origin: Origin) -> ServerSpec {
        ServerSpec {
            origin,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            clips: None,
            ready: None,
            ready_timeout: DEFAULT_READY_TIMEOUT,
            stop_within: DEFAULT_STOP_TIMEOUT,
            log: ServerLog::default(),
            environment: Vec::new(),
            user: None,
            directory: None,
        }
    }

    /// Sets the address at which clients find the server, and at which it must become ready.
    pub fn with_host(mut self, host: IpAddr) -> ServerSpec {
        self.host = host;
        if let Some(Ready::Port { address, .. } | Ready::Served { address, .. }) = &mut self.ready {
            address.set_ip(host);
        }
        self
    }
}

impl From<&scenario::Server> for ServerSpec {
    fn from(server: &scenario::Server) -> ServerSpec {
        ServerSpec {
            origin: match &server.start {
                scenario::ServerStart::Launch { name, port } => Origin::Catalogue {
                    name: name.clone(),
                    port: *port,
                    interface: server.interface.clone(),
                    groups: server.groups.clone(),
                },
                scenario::ServerStart::Command(words) => {
                    Origin::Command(words.iter().map(Into::into).collect())
                }
                scenario::ServerStart::Observe { pid } => Origin::Observe { pid: *pid },
                scenario::ServerStart::Observer { runner } => Origin::Observer {
                    runner: runner.clone(),
                },
                scenario::ServerStart::Exporters {
                    node,
                    process,
                    group,
                } => Origin::Exporters(Exporters {
                    node: node.clone(),
                    process: process.clone(),
                    group: group.clone(),
                }),
            },
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            clips: server.clips.clone(),
            ready: server.ready.as_ref().map(|ready| match ready {
                scenario::Ready::Port(port) => Ready::tcp(*port),
                scenario::Ready::Udp(port) => Ready::udp(*port),
                scenario::Ready::Line(text) => Ready::Text(text.clone()),
                scenario::Ready::Pattern(pattern) => Ready::Pattern(pattern.clone()),
            }),
            ready_timeout: server.ready_timeout,
            stop_within: server.stop_timeout,
            log: server.log.clone(),
            environment: server
                .environment
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            user: server.user.clone(),
            directory: server.directory.clone(),
        }
    }
}

/// Origin of a server under test.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Started from the catalogue (see [`crate::catalogue::list`]).
    Catalogue {
        /// Name in the catalogue, or path of a server entry.
        name: String,
        /// Port to listen on; default: that of the entry.
        port: Option<u16>,
        /// Interface to receive multicast on; default: [`INTERFACE`].
        interface: Option<String>,
        /// Multicast groups to relay, for servers that must know them at their start.
        groups: Vec<scenario::Group>,
    },
    /// Started with a custom command: the program (looked up in PATH if it has no slash) and its
    /// arguments.
    Command(Vec<OsString>),
    /// Already running and only observed, with all its descendants.
    Observe {
        /// Process ID.
        pid: u32,
    },
    /// Running on another machine and observed through exporters there.
    Exporters(Exporters),
    /// Running on another machine and observed by a runner there. Only its coordinator can use it
    /// ([`crate::Sut::observe_through`]).
    Observer {
        /// Name of the runner.
        runner: String,
    },
}

/// A command to start, and its readiness condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// Program (looked up in PATH if it has no slash) and arguments.
    pub(crate) command: Vec<OsString>,
    /// Environment variables, in addition to [`crate::PASSED_ON_VARIABLES`].
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Working directory; default: that of streamgauge.
    pub(crate) directory: Option<PathBuf>,
    /// Port that must be free before the start and owned by the server once it is ready, in
    /// addition to `ready`; default: that of `ready`.
    pub(crate) port: Option<(SocketAddr, Transport)>,
    /// Readiness condition.
    pub(crate) ready: Ready,
    /// Time limit until it is ready.
    pub(crate) ready_timeout: Duration,
    /// Time limit to end after SIGTERM before it is killed.
    pub(crate) stop_within: Duration,
    /// User to run as. Only root can change it; default: unchanged.
    pub(crate) user: Option<User>,
    /// True if it may run as root instead; default: true.
    pub(crate) may_be_root: bool,
}

impl Launch {
    /// Creates a launch of `command` that is ready at once, with default settings.
    pub(crate) fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Launch {
        Launch {
            command: command.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            directory: None,
            port: None,
            ready: Ready::Started,
            ready_timeout: DEFAULT_READY_TIMEOUT,
            stop_within: DEFAULT_STOP_TIMEOUT,
            user: None,
            may_be_root: true,
        }
    }

    /// Returns a hint about the user, for a server that did not start; empty if the user cannot be
    /// the cause.
    pub(crate) fn user_hint(&self) -> String {
        match &self.user {
            Some(user) if self.may_be_root => format!(
                "\n  it ran as user {user}: if it needs root, set `user: root` under `server`"
            ),
            _ => String::new(),
        }
    }
}

/// Readiness condition of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// As soon as it runs.
    Started,
    /// A process of its tree owns the port and, with TCP, accepts a connection.
    Port {
        /// Address to connect to. For the owner only the port matters.
        address: SocketAddr,
        transport: Transport,
    },
    /// It owns the port of the address, and answers there that it serves each of these URLs: see
    /// [`kit::descriptor::Probe`].
    Served {
        /// TCP address to connect to.
        address: SocketAddr,
        /// URLs that it must serve.
        urls: Vec<String>,
    },
    /// A line of its output contains this text.
    Text(String),
    /// A line of its output matches this regular expression.
    Pattern(String),
}

impl Ready {
    /// Returns the matcher for the server's output, if the condition depends on output.
    pub(crate) fn matcher(&self) -> Result<Option<Matcher>, SutError> {
        match self {
            Ready::Text(text) => Ok(Some(Matcher::Text(text.clone()))),
            Ready::Pattern(text) => Matcher::of_pattern(text).map(Some),
            Ready::Started | Ready::Port { .. } | Ready::Served { .. } => Ok(None),
        }
    }

    /// Returns the condition that it owns a TCP port and accepts a connection on 127.0.0.1.
    pub fn tcp(port: u16) -> Ready {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let transport = Transport::Tcp;
        Ready::Port { address, transport }
    }

    /// Returns the condition that it owns a UDP port, bound to any address.
    pub fn udp(port: u16) -> Ready {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let transport = Transport::Udp;
        Ready::Port { address, transport }
    }

    /// Returns the port that the condition depends on, if any.
    pub(crate) fn port(&self) -> Option<(SocketAddr, Transport)> {
        match self {
            Ready::Port { address, transport } => Some((*address, *transport)),
            Ready::Served { address, .. } => Some((*address, Transport::Tcp)),
            Ready::Started | Ready::Text(_) | Ready::Pattern(_) => None,
        }
    }
}
