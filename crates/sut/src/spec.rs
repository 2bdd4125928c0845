//! What to start and how to know that it is ready, in plain data.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::complaints::LogSpec;
use crate::error::SutError;
use crate::exporters::Exporters;
use crate::log::Matcher;
use crate::user::User;
use protocol::descriptor::Transport;

/// How long a server may take until it is ready, where nothing else is said.
pub const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long a server may take to end after SIGTERM before it is killed, where nothing else is said.
pub const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The interface that a server of the catalogue receives multicast on, where nothing else is said.
pub const INTERFACE: &str = "lo";

/// The server under test: where it comes from, the clips it plays, and how it is handled.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSpec {
    /// Where the server comes from.
    pub origin: Origin,
    /// The address at which clients find it. Default 127.0.0.1.
    pub host: IpAddr,
    /// Clips that are made before it starts.
    pub clips: Option<Clips>,
    /// How to know that it is ready; default: as the catalogue says, else as soon as it runs.
    pub ready: Option<Ready>,
    /// How long it may take until it is ready; default [`READY_WITHIN`].
    pub ready_within: Duration,
    /// How long it may take to end after SIGTERM before it is killed; default [`STOP_WITHIN`].
    pub stop_within: Duration,
    /// Its log, and what is looked for in it.
    pub log: LogSpec,
    /// Variables of its environment, beside [`crate::PASSED_ON`].
    pub environment: Vec<(OsString, OsString)>,
    /// Whom it runs as, by name or number; only root can change that. Default: a server of the
    /// catalogue as its entry says, any other as streamgauge does.
    pub user: Option<String>,
    /// The folder that a command starts in; default: the one streamgauge was started in. Servers of
    /// the catalogue have one of their own.
    pub directory: Option<PathBuf>,
}

impl ServerSpec {
    /// A server from there, with every other setting at its default.
    pub fn new(origin: Origin) -> ServerSpec {
        ServerSpec {
            origin,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            clips: None,
            ready: None,
            ready_within: READY_WITHIN,
            stop_within: STOP_WITHIN,
            log: LogSpec::default(),
            environment: Vec::new(),
            user: None,
            directory: None,
        }
    }
}

impl ServerSpec {
    /// The same of a server that clients find at that address: there it has to be ready.
    pub fn at(mut self, host: IpAddr) -> ServerSpec {
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
            clips: server.clips.as_ref().map(Clips::from),
            ready: server.ready.as_ref().map(|ready| match ready {
                scenario::Ready::Port(port) => Ready::tcp(*port),
                scenario::Ready::Udp(port) => Ready::udp(*port),
                scenario::Ready::Line(text) => Ready::Text(text.clone()),
                scenario::Ready::Pattern(pattern) => Ready::Pattern(pattern.clone()),
            }),
            ready_within: server.ready_timeout,
            stop_within: server.stop_timeout,
            log: LogSpec {
                file: server.log.file.clone(),
                patterns: server.log.patterns.clone(),
                ignore: server.log.ignore.clone(),
            },
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

impl From<&scenario::Clips> for Clips {
    fn from(clips: &scenario::Clips) -> Clips {
        Clips {
            directory: clips.directory.clone(),
            count: clips.count,
            length: clips.length,
            video: clips.video.0,
            audio: clips.audio.map(|rate| rate.0),
            frame_rate: clips.frame_rate,
        }
    }
}

/// Where a server under test comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It is started from the catalogue (see [`crate::catalogue::list`]).
    Catalogue {
        /// Its name in the catalogue, or the path of an entry's file.
        name: String,
        /// The port to listen on; default: the entry's own.
        port: Option<u16>,
        /// The interface to receive multicast on; default: [`INTERFACE`].
        interface: Option<String>,
        /// The multicast groups to relay, for servers that must be told.
        groups: Vec<scenario::Group>,
    },
    /// It is started with a command of the user's: the program (looked for in PATH where it has no
    /// slash) and its arguments.
    Command(Vec<OsString>),
    /// It runs already and is only observed, with all its descendants.
    Observe {
        /// Its process number.
        pid: u32,
    },
    /// It runs on another machine; exporters there tell of it.
    Exporters(Exporters),
}

/// A command to start, and how to know that it is ready.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// The program (looked for in PATH where it has no slash) and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Variables of its environment, beside [`crate::PASSED_ON`].
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The folder to start in; default: the one streamgauge was started in.
    pub(crate) directory: Option<PathBuf>,
    /// The port that must be nobody's before it starts, and its own once it is ready, whatever else
    /// shows that; default: that of `ready`.
    pub(crate) port: Option<(SocketAddr, Transport)>,
    /// How to know that it is ready.
    pub(crate) ready: Ready,
    /// How long it may take until it is ready.
    pub(crate) ready_within: Duration,
    /// How long it may take to end after SIGTERM before it is killed.
    pub(crate) stop_within: Duration,
    /// The user to run as. Only root can change it; default: unchanged.
    pub(crate) user: Option<User>,
    /// Whether it may run as root instead; default: yes.
    pub(crate) may_be_root: bool,
}

impl Launch {
    /// Starts `command` and calls it ready at once; every other setting at its default.
    pub(crate) fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Launch {
        Launch {
            command: command.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            directory: None,
            port: None,
            ready: Ready::Started,
            ready_within: READY_WITHIN,
            stop_within: STOP_WITHIN,
            user: None,
            may_be_root: true,
        }
    }

    /// What to say of the user where the server did not come up; empty where that cannot be why.
    pub(crate) fn user_hint(&self) -> String {
        match &self.user {
            Some(user) if self.may_be_root => format!(
                "\n  it ran as user {user}: if it needs root, say `user: root` under `server`"
            ),
            _ => String::new(),
        }
    }
}

/// How to know that a server is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// As soon as it runs.
    Started,
    /// When a process of its tree has the port; with TCP, when it also accepts a connection.
    Port {
        /// Where to connect to. Only the port counts in finding out who has it.
        address: SocketAddr,
        /// TCP or UDP.
        transport: Transport,
    },
    /// When it has the port of the address, and answers there that it serves each of these URLs:
    /// see [`protocol::descriptor::Probe`].
    Served {
        /// Where to connect to, with TCP.
        address: SocketAddr,
        /// What it must serve.
        urls: Vec<String>,
    },
    /// When a line of its output contains this text.
    Text(String),
    /// When a line of its output matches this regular expression.
    Pattern(String),
}

impl Ready {
    /// What to look for in the server's output, where that tells.
    pub(crate) fn matcher(&self) -> Result<Option<Matcher>, SutError> {
        match self {
            Ready::Text(text) => Ok(Some(Matcher::Text(text.clone()))),
            Ready::Pattern(text) => Matcher::of_pattern(text).map(Some),
            Ready::Started | Ready::Port { .. } | Ready::Served { .. } => Ok(None),
        }
    }

    /// When it has that TCP port and accepts a connection on 127.0.0.1.
    pub fn tcp(port: u16) -> Ready {
        Ready::Port {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            transport: Transport::Tcp,
        }
    }

    /// When it has that UDP port, bound to any address.
    pub fn udp(port: u16) -> Ready {
        Ready::Port {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            transport: Transport::Udp,
        }
    }

    /// The port it waits for, if it waits for one.
    pub(crate) fn port(&self) -> Option<(SocketAddr, Transport)> {
        match self {
            Ready::Port { address, transport } => Some((*address, *transport)),
            Ready::Served { address, .. } => Some((*address, Transport::Tcp)),
            Ready::Started | Ready::Text(_) | Ready::Pattern(_) => None,
        }
    }
}

/// Clips for a server to play: H.264 of a constant bit rate and, if wanted, AAC, in MP4 files
/// `clip1.mp4`, `clip2.mp4` and so on. Made with ffmpeg where they are missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Clips {
    /// The folder to keep them in; a relative one counts from the scenario's.
    pub directory: PathBuf,
    /// How many.
    pub count: u32,
    /// How long each of them is.
    pub length: Duration,
    /// The video's bit rate, bit/s.
    pub video: u64,
    /// The audio's bit rate, bit/s; none: no audio.
    pub audio: Option<u64>,
    /// Pictures per second.
    pub frame_rate: u32,
}
