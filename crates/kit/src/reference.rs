//! Declaration of a protocol's reference server: the flags of `serve NAME`, how the server is made
//! from them, and what it counts. The command that runs it knows no protocol.

#![deny(missing_docs)]

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::mediagen::frame_rate::FrameRate;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches as _, value_parser};
use measure::units::BitRate;
use measure::{Catalogue, Time, Window};

use crate::media::source::SourceConfig;
use session::{Endpoint, Interface, Record, Session};

/// A reference server as its protocol declares it.
#[derive(Debug)]
pub struct ReferenceServer {
    /// Noun for the server in texts: `reference server`.
    pub title: &'static str,
    /// Description in the list of servers.
    pub about: &'static str,
    /// Other names that `serve` accepts for it, such as that of a signalling.
    pub aliases: &'static [&'static str],
    /// The port, as `--help` describes it.
    pub port: Port,
    /// URL schemes over TLS, as `--help` names them; `None` without TLS.
    pub tls: Option<&'static str>,
    /// Default of `--max-sessions`.
    pub max_sessions: &'static str,
    /// Help of `--report`.
    pub report: &'static str,
    /// Flags besides those that every server has.
    pub flags: OwnFlags,
    /// `true` if each serving worker has a file descriptor table of its own.
    pub own_descriptor_tables: bool,
    /// Demonstration by `demo`; `None` if there is none.
    pub demo: Option<Demo>,
}

/// The flag `--port` of a server.
#[derive(Debug)]
pub struct Port {
    /// Help text.
    pub help: &'static str,
    /// Default.
    pub default: &'static str,
    /// `true` if the server may listen on several ports at each address.
    pub many: bool,
}

/// A demonstration: clients that play from a reference server on the same machine.
#[derive(Debug)]
pub struct Demo {
    /// URL that the clients play. `{port}` stands for the server's port.
    pub url: &'static str,
    /// Default number of clients.
    pub clients: u32,
    /// Default of the server's `--bitrate`.
    pub bitrate: &'static str,
}

/// Headings of flags in `--help`.
pub mod heading {
    /// Addresses, ports and certificates.
    pub const LISTENING: &str = "Listening";
    /// Media that the server sends.
    pub const MEDIA: &str = "Media";
    /// Behaviour of the server towards its clients.
    pub const SERVICE: &str = "Service";
    /// Deliberate faults.
    pub const FAULTS: &str = "Faults";
    /// Reports.
    pub const OUTPUT: &str = "Output";
}

/// Settings of a server, or the reason why its flags are invalid.
pub type SettingsResult = Result<Box<dyn ServerSettings>, String>;

/// Flags of one server besides the common ones.
pub trait ServerFlags: Args {
    /// Makes the server's settings. `seed` is the value of `--seed`.
    ///
    /// # Errors
    /// If flags contradict each other or a fault is unknown; the text names the flag.
    fn settings(self, seed: u64) -> SettingsResult;
}

/// Functions that declare and read the flags of one server.
#[derive(Clone, Copy, Debug)]
pub struct OwnFlags {
    augment: fn(Command) -> Command,
    read: fn(&ArgMatches, u64) -> SettingsResult,
}

impl OwnFlags {
    /// Flags of the type `F`.
    pub const fn of<F: ServerFlags>() -> OwnFlags {
        OwnFlags {
            augment: F::augment_args,
            read: |matches, seed| {
                let flags = F::from_arg_matches(matches).map_err(|error| error.to_string())?;
                flags.settings(seed)
            },
        }
    }
}

/// Addresses to listen on.
#[derive(Debug, Args)]
struct ListenFlags {
    /// Addresses to listen on, separated by commas
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        value_delimiter = ','
    )]
    #[arg(help_heading = heading::LISTENING)]
    listen: Vec<IpAddr>,
    #[arg(long, value_name = "PORT", help_heading = heading::LISTENING)]
    port: Vec<u16>,
}

#[derive(Debug, Args)]
struct TlsFlags {
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = heading::LISTENING)]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = heading::LISTENING)]
    tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct RunFlags {
    /// Seed of everything random
    #[arg(long, value_name = "SEED", default_value_t = 1, help_heading = heading::FAULTS)]
    seed: u64,
    /// Maximum number of connections at each address; further ones are refused
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=1_000_000))]
    #[arg(help_heading = heading::SERVICE)]
    max_sessions: u32,
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    report: Option<PathBuf>,
}

/// Flags of generated video.
#[derive(Debug, Args)]
pub struct VideoFlags {
    /// Bit rate of the video
    #[arg(long, value_name = "RATE", default_value = "1Mbps", help_heading = heading::MEDIA)]
    pub bitrate: BitRate,
    /// Frame rate of the video, such as 25 or 30000/1001
    #[arg(long, value_name = "NUMBER", default_value = "25", help_heading = heading::MEDIA)]
    pub fps: FrameRate,
    /// Frames from one key frame to the next [default: those of two seconds]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=10_000))]
    #[arg(help_heading = heading::MEDIA)]
    pub gop: Option<u32>,
}

impl VideoFlags {
    /// The media, with generated audio if `audio` is true.
    pub fn source(self, audio: bool) -> SourceConfig {
        SourceConfig {
            bitrate: Some(self.bitrate),
            frame_rate: Some(self.fps),
            gop: self.gop,
            audio: Some(audio),
            ..SourceConfig::default()
        }
    }
}

/// A server as its flags describe it.
#[derive(Debug)]
pub struct Configured {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Files of the certificates and of their private key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Maximum number of sessions at each address.
    pub max_sessions: usize,
    /// File of the report.
    pub report: Option<PathBuf>,
    /// Settings of the server itself.
    pub settings: Box<dyn ServerSettings>,
}

impl ReferenceServer {
    /// Adds the flags of the server to its command.
    pub fn add_flags(&self, command: Command) -> Command {
        let mut command = ListenFlags::augment_args(command);
        if let Some(schemes) = self.tls {
            let help = format!(
                "Use TLS ({schemes}) on all connections, with the certificate chain in this file \
                 (PEM), the server's own first"
            );
            command = TlsFlags::augment_args(command).mut_arg("tls_cert", |file| file.help(help));
        }
        command = RunFlags::augment_args((self.flags.augment)(command));
        let (action, delimiter) = match self.port.many {
            true => (ArgAction::Append, Some(',')),
            false => (ArgAction::Set, None),
        };
        let port = |port: Arg| {
            port.help(self.port.help)
                .default_value(self.port.default)
                .action(action)
                .value_delimiter(delimiter)
        };
        command
            .about(self.about)
            .mut_arg("port", port)
            .mut_arg("max_sessions", |most| {
                most.required(false).default_value(self.max_sessions)
            })
            .mut_arg("report", |report| report.help(self.report))
    }

    /// Reads the flags of a command to which [`ReferenceServer::add_flags`] has added them.
    ///
    /// # Errors
    /// If flags contradict each other or a fault is unknown; the text names the flag.
    pub fn read(&self, matches: &ArgMatches) -> Result<Configured, String> {
        let text = |error: clap::Error| error.to_string();
        let ListenFlags { listen, port } = ListenFlags::from_arg_matches(matches).map_err(text)?;
        let run = RunFlags::from_arg_matches(matches).map_err(text)?;
        let tls = match self.tls {
            Some(_) => {
                let files = TlsFlags::from_arg_matches(matches).map_err(text)?;
                files.tls_cert.zip(files.tls_key)
            }
            None => None,
        };
        let at = |&address: &IpAddr| port.iter().map(move |&port| (address, port).into());
        Ok(Configured {
            listen: listen.iter().flat_map(at).collect(),
            tls,
            max_sessions: run.max_sessions as usize,
            report: run.report,
            settings: (self.flags.read)(matches, run.seed)?,
        })
    }

    /// Reads flags as they are written in a command line.
    ///
    /// # Errors
    /// If a flag is unknown or has an invalid value, and those of [`ReferenceServer::read`].
    pub fn parse<W: AsRef<str>>(&self, words: &[W]) -> Result<Configured, String> {
        let command = self.add_flags(Command::new("serve").no_binary_name(true));
        let words = words.iter().map(AsRef::as_ref);
        let matches = command.try_get_matches_from(words);
        self.read(&matches.map_err(|error| error.to_string())?)
    }
}

/// Replaces `\n`, `\r`, `\t` and `\0` by the characters that they stand for.
pub fn unescape(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let pairs = [("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\0", "\0")];
    let replace = |text: String, (written, meant): (&str, &str)| text.replace(written, meant);
    pairs.into_iter().fold(text.to_owned(), replace).into()
}

/// Reads an interface of this machine, given by one of its addresses or by its name.
pub fn interface(text: &str) -> Interface {
    match text.parse() {
        Ok(address) => Interface::Address(address),
        Err(_) => Interface::Name(text.to_owned()),
    }
}

/// Validated settings of a reference server.
pub trait ServerSettings: Debug {
    /// Makes the server, which may take some seconds. `wall_clock` is the wall-clock time since
    /// 1970 at the start of its clock.
    ///
    /// # Errors
    /// If settings contradict each other; the text says how.
    fn server(self: Box<Self>, wall_clock: Duration) -> Result<Box<dyn RunningServer>, String>;
}

/// A reference server that is ready to run.
pub trait RunningServer: Debug + Send + Sync {
    /// Metrics of the server's sessions.
    fn catalogue(&self) -> Catalogue;

    /// Seed of all random choices.
    fn seed(&self) -> u64;

    /// URL of the served media at an address.
    fn url(&self, address: SocketAddr, tls: bool) -> String;

    /// Makes the session of the accepted connection `number`. Its random choices follow from the
    /// seed and the number. Not called for a server that accepts no connections.
    fn session(&self, _number: u64) -> Box<dyn Session> {
        unreachable!("a server with only UDP ports accepts no connection")
    }

    /// Makes the endpoint of a UDP port for one worker; `None` if the server has no UDP ports.
    fn endpoint(&self, _worker: u32) -> Option<Box<dyn Endpoint>> {
        None
    }

    /// Returns `true` if the server accepts TCP connections; together with an
    /// [`RunningServer::endpoint`], on the TCP port of the same number as the UDP port. Default:
    /// `true` without an endpoint.
    fn accepts_connections(&self) -> bool {
        self.endpoint(0).is_none()
    }

    /// Returns `true` if each datagram is to be sent with a system call of its own, without
    /// segmentation by the kernel (GSO). Default: `false`.
    fn sends_singly(&self) -> bool {
        false
    }

    /// Makes the counter of the sessions' work. `clock_monotonic_nanos` is the value of
    /// CLOCK_MONOTONIC at the start of the server's clock.
    fn tally(&self, clock_monotonic_nanos: i64) -> Box<dyn Tally>;
}

/// Counts of one second, summed over all workers of a server.
#[derive(Clone, Copy, Debug)]
pub struct Second<'a> {
    /// Start of the second.
    pub start: Time,
    /// Exact length in seconds.
    pub seconds: f64,
    /// Metrics of the server's sessions.
    pub sessions: &'a Window,
    /// Metrics of this process itself: [`measure::TESTER_CATALOGUE`].
    pub tester: &'a Window,
}

/// Running counts of a reference server.
pub trait Tally: Debug {
    /// Adds a second. Returns its line of the report, if it has one.
    fn second(&mut self, second: Second<'_>) -> Option<String>;

    /// Adds the record of a session. Returns its line of the report, if it has one.
    fn session_ended(&mut self, _done: Record) -> Option<String> {
        None
    }

    /// Progress in words.
    fn progress(&self) -> String;

    /// Result in words, after the end.
    fn result(&self) -> Vec<String>;

    /// Last line of the report.
    fn final_line(&self) -> String;
}

/// Serializes a line of a report.
pub fn to_line(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).expect("reports are plain data with texts as keys")
}
