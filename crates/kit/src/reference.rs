//! Declaration of a protocol's reference server: the flags of `serve NAME`, how the server is made
//! from them, and what it counts. The command that runs it knows no protocol.

#![deny(missing_docs)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use measure::{Catalogue, Time, Window};

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
    /// Flags in the order of `--help`.
    pub flags: &'static [Flag],
    /// `true` if each serving worker has a file descriptor table of its own.
    pub own_descriptor_tables: bool,
    /// Reads the flags. The error names the invalid one.
    pub read: fn(&Flags) -> Result<Box<dyn ServerSettings>, String>,
    /// Demonstration by `demo`; `None` if there is none.
    pub demo: Option<Demo>,
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

/// Names of flags that the command reads itself, if a server declares them: addresses, certificates
/// and the report.
pub mod common {
    /// Addresses to listen on.
    pub const LISTEN: &str = "listen";
    /// Ports at each of the addresses.
    pub const PORT: &str = "port";
    /// File of certificates.
    pub const TLS_CERT: &str = "tls-cert";
    /// File of the private key of the certificates.
    pub const TLS_KEY: &str = "tls-key";
    /// File of the report.
    pub const REPORT: &str = "report";
    /// Sends each datagram with a system call of its own.
    pub const NO_GSO: &str = "no-gso";
    /// Maximum number of sessions at each address.
    pub const MAX_SESSIONS: &str = "max-sessions";
    /// Help of [`MAX_SESSIONS`].
    pub const MAX_SESSIONS_HELP: &str =
        "Maximum number of connections at each address; further ones are refused";
}

/// A flag of a reference server.
#[derive(Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Heading in `--help`.
    pub section: Section,
    /// Type of the value.
    pub value: FlagValue,
    /// Value if the flag is absent.
    pub default: Option<&'static str>,
    /// Value if the flag is given without one.
    pub bare_value: Option<&'static str>,
    /// Number of times that the flag may be given.
    pub occurrence: Occurrence,
    /// Flags that must be given with it.
    pub requires: &'static [&'static str],
    /// Flags that must not be given with it.
    pub conflicts: &'static [&'static str],
}

/// A heading in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Addresses, ports and certificates.
    Listening,
    /// Media that the server sends.
    Media,
    /// Service to the clients.
    Service,
    /// Deliberate faults.
    Faults,
    /// Reports.
    Output,
}

/// Number of times that a flag may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// Once.
    Once,
    /// Any number of times.
    Any,
    /// Any number of times, each with one value or several separated by commas.
    Listed,
}

/// Type of a flag's value.
#[derive(Clone, Copy, Debug)]
pub enum FlagValue {
    /// No value: the flag is present or absent.
    Nothing,
    /// Path of a file.
    File,
    /// One of the listed values, each with its help. The first text is the placeholder in `--help`.
    OneOf(&'static str, &'static [(&'static str, &'static str)]),
    /// A whole number between two bounds, both included.
    Number(&'static str, u64, u64),
    /// A text that the function accepts; its error says what is wrong. See [`check_parse`].
    Text(&'static str, fn(&str) -> Result<(), String>),
}

impl FlagValue {
    /// Any text.
    pub const fn any(name: &'static str) -> FlagValue {
        FlagValue::Text(name, |_| Ok(()))
    }
}

/// Checks that `text` parses as `T`.
///
/// # Errors
/// The error of the parser.
pub fn check_parse<T: FromStr<Err: ToString>>(text: &str) -> Result<(), String> {
    text.parse::<T>()
        .map(|_| ())
        .map_err(|error| error.to_string())
}

impl Flag {
    /// A flag that may be given once, without requirements or conflicts.
    pub const fn new(
        section: Section,
        name: &'static str,
        takes: FlagValue,
        help: &'static str,
    ) -> Flag {
        Flag {
            name,
            help,
            section,
            value: takes,
            default: None,
            bare_value: None,
            occurrence: Occurrence::Once,
            requires: &[],
            conflicts: &[],
        }
    }

    /// Sets the value of an absent flag.
    pub const fn default(self, value: &'static str) -> Flag {
        Flag {
            default: Some(value),
            ..self
        }
    }

    /// Sets the value of a flag that is given without one.
    pub const fn bare(self, value: &'static str) -> Flag {
        Flag {
            bare_value: Some(value),
            ..self
        }
    }

    /// Sets the number of times that the flag may be given.
    pub const fn times(self, times: Occurrence) -> Flag {
        Flag {
            occurrence: times,
            ..self
        }
    }

    /// Sets the flags that must be given with this one.
    pub const fn requires(self, others: &'static [&'static str]) -> Flag {
        Flag {
            requires: others,
            ..self
        }
    }

    /// Sets the flags that must not be given with this one.
    pub const fn conflicts(self, others: &'static [&'static str]) -> Flag {
        Flag {
            conflicts: others,
            ..self
        }
    }
}

/// Values of a server's flags, validated against their declarations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(BTreeMap<&'static str, Vec<String>>);

impl Flags {
    /// The defaults of the declared flags.
    pub fn defaults(declared: &[Flag]) -> Flags {
        let defaults = declared
            .iter()
            .filter_map(|flag| Some((flag.name, vec![flag.default?.to_owned()])));
        Flags(defaults.collect())
    }

    /// Sets the values of a flag, which must be valid by its declaration. A flag without a value is
    /// set with an empty text.
    pub fn set(mut self, name: &'static str, values: Vec<String>) -> Flags {
        self.0.insert(name, values);
        self
    }

    /// Returns `true` if a flag was given or has a default.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All values of a flag as text.
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Value of a flag as text. The last one counts.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.all(name).last().map(String::as_str)
    }

    /// Value of a flag; `None` if it is absent.
    ///
    /// # Panics
    /// If the declaration accepts a value that is not a `T`.
    pub fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name).map(|text| read(name, text))
    }

    /// Value of a flag that has a default.
    ///
    /// # Panics
    /// If the declaration has no default, or accepts a value that is not a `T`.
    pub fn value<T: FromStr>(&self, name: &str) -> T {
        match self.get(name) {
            Some(value) => value,
            None => panic!("--{name} must have a default"),
        }
    }

    /// All values of a flag.
    ///
    /// # Panics
    /// If the declaration accepts a value that is not a `T`.
    pub fn values<T: FromStr>(&self, name: &str) -> Vec<T> {
        let all = self.all(name).iter();
        all.map(|text| read(name, text)).collect()
    }
}

fn read<T: FromStr>(name: &str, text: &str) -> T {
    match text.parse() {
        Ok(value) => value,
        Err(_) => panic!("the declaration of --{name} accepted the invalid value `{text}`"),
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

/// Returns the item named `value`.
///
/// # Errors
/// If there is none of that name; the text lists the names.
pub fn find_by_name<T: Copy>(all: &[(&str, T)], value: &str) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, fault)| *fault).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", names.join(", "))
    })
}
