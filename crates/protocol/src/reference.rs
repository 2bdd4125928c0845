//! What a protocol declares of its reference server: the flags of `serve NAME`, how the server is
//! made from them, and what it counts. Whoever runs one knows no protocol.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use measure::{Catalogue, Time, Window};

use crate::session::{Endpoint, Interface, Record, Session};

/// A reference server as its protocol declares it.
#[derive(Debug)]
pub struct ReferenceServer {
    /// What it is, where it is spoken of: `reference server`.
    pub title: &'static str,
    /// What it does, for the list of servers.
    pub about: &'static str,
    /// Its flags, in the order in which help shows them.
    pub flags: &'static [Flag],
    /// Whether each worker that serves has a table of file descriptors of its own.
    pub own_files: bool,
    /// Reads the flags. The error says what is wrong with one.
    pub read: fn(&Flags) -> Result<Box<dyn Settings>, String>,
    /// What `demo` shows of it; none where there is no demonstration.
    pub demo: Option<Demo>,
}

/// A demonstration: clients that play from a reference server on the same machine.
#[derive(Debug)]
pub struct Demo {
    /// What they play; `{port}` stands for the server's port.
    pub url: &'static str,
    /// How many there are where nothing is said.
    pub clients: u32,
    /// What the server's `--bitrate` is where nothing is said.
    pub bitrate: &'static str,
}

/// The flags that whoever runs the server reads itself, of those that a server declares: where it
/// listens, what its certificates are, and where its report goes.
pub mod common {
    /// Addresses.
    pub const LISTEN: &str = "listen";
    /// Ports, at each of the addresses.
    pub const PORT: &str = "port";
    /// File of certificates.
    pub const TLS_CERT: &str = "tls-cert";
    /// File of the key to them.
    pub const TLS_KEY: &str = "tls-key";
    /// File of the report.
    pub const REPORT: &str = "report";
    /// Each datagram is handed to the kernel by itself.
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
    /// Its name, without dashes.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Under which heading.
    pub section: Section,
    /// Its value.
    pub takes: Takes,
    /// What it is where it is not given.
    pub default: Option<&'static str>,
    /// Its value where it is given without one.
    pub bare: Option<&'static str>,
    /// How often it may be given.
    pub times: Times,
    /// Flags that have to be given with it.
    pub requires: &'static [&'static str],
    /// Flags that may not.
    pub conflicts: &'static [&'static str],
}

/// A heading of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Where it listens.
    Listening,
    /// What it sends.
    Media,
    /// What it does for its clients.
    Service,
    /// What it does wrong.
    Faults,
    /// Where results go.
    Output,
}

/// How often a flag may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Once.
    Once,
    /// Any number of times.
    Any,
    /// Any number of times, and several values with commas between them.
    Listed,
}

/// What the value of a flag is.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// There is none: it is given or not.
    Nothing,
    /// A file.
    File,
    /// One of these, with what each means. The first text is how help names it.
    OneOf(&'static str, &'static [(&'static str, &'static str)]),
    /// A whole number, from one to the other.
    Number(&'static str, u64, u64),
    /// A text, where this says what is wrong with it: see [`parses`].
    Text(&'static str, fn(&str) -> Result<(), String>),
}

impl Takes {
    /// Any text.
    pub const fn any(name: &'static str) -> Takes {
        Takes::Text(name, |_| Ok(()))
    }
}

/// Whether a text is a `T`; if not, why.
///
/// # Errors
/// What its reader says.
pub fn parses<T: FromStr<Err: ToString>>(text: &str) -> Result<(), String> {
    text.parse::<T>()
        .map(|_| ())
        .map_err(|error| error.to_string())
}

impl Flag {
    /// A flag that may be given once, and is for itself.
    pub const fn new(
        section: Section,
        name: &'static str,
        takes: Takes,
        help: &'static str,
    ) -> Flag {
        Flag {
            name,
            help,
            section,
            takes,
            default: None,
            bare: None,
            times: Times::Once,
            requires: &[],
            conflicts: &[],
        }
    }

    /// The same, which is this where it is not given.
    pub const fn default(self, value: &'static str) -> Flag {
        Flag {
            default: Some(value),
            ..self
        }
    }

    /// The same, which is this where it is given without a value.
    pub const fn bare(self, value: &'static str) -> Flag {
        Flag {
            bare: Some(value),
            ..self
        }
    }

    /// The same, to be given so often.
    pub const fn times(self, times: Times) -> Flag {
        Flag { times, ..self }
    }

    /// The same, to be given with these alone.
    pub const fn requires(self, others: &'static [&'static str]) -> Flag {
        Flag {
            requires: others,
            ..self
        }
    }

    /// The same, not to be given with any of these.
    pub const fn conflicts(self, others: &'static [&'static str]) -> Flag {
        Flag {
            conflicts: others,
            ..self
        }
    }
}

/// The values of a server's flags, each of which its declaration has found good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(BTreeMap<&'static str, Vec<String>>);

impl Flags {
    /// As they are where none is given.
    pub fn usual(declared: &[Flag]) -> Flags {
        let defaults = declared
            .iter()
            .filter_map(|flag| Some((flag.name, vec![flag.default?.to_owned()])));
        Flags(defaults.collect())
    }

    /// The same with these values of a flag, which its declaration must have found good. One that
    /// takes nothing is given by an empty text.
    pub fn with(mut self, name: &'static str, values: Vec<String>) -> Flags {
        self.0.insert(name, values);
        self
    }

    /// Whether a flag is given or has a default.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All values of a flag.
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of a flag as it is written.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.all(name).last().map(String::as_str)
    }

    /// The value of a flag.
    ///
    /// # Panics
    /// The flag's declaration lets values through that are no `T`.
    pub fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name).map(|text| read(name, text))
    }

    /// The value of a flag that has a default.
    ///
    /// # Panics
    /// The flag's declaration has no default, or lets values through that are no `T`.
    pub fn value<T: FromStr>(&self, name: &str) -> T {
        match self.get(name) {
            Some(value) => value,
            None => panic!("--{name} has a default"),
        }
    }

    /// All values of a flag.
    ///
    /// # Panics
    /// The flag's declaration lets values through that are no `T`.
    pub fn values<T: FromStr>(&self, name: &str) -> Vec<T> {
        let all = self.all(name).iter();
        all.map(|text| read(name, text)).collect()
    }
}

fn read<T: FromStr>(name: &str, text: &str) -> T {
    match text.parse() {
        Ok(value) => value,
        Err(_) => panic!("the declaration of --{name} has found `{text}` good"),
    }
}

/// What is written as `\\n`, `\\r`, `\\t` or `\\0` as that character.
pub fn unescaped(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let pairs = [("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\0", "\0")];
    let replace = |text: String, (written, meant): (&str, &str)| text.replace(written, meant);
    pairs.into_iter().fold(text.to_owned(), replace).into()
}

/// An interface of this machine, by an address that it has or by its name.
pub fn interface(text: &str) -> Interface {
    match text.parse() {
        Ok(address) => Interface::With(address),
        Err(_) => Interface::Named(text.to_owned()),
    }
}

/// The settings of a reference server.
pub trait Settings: Debug {
    /// Makes the server. It may take some seconds. `wall_clock` is what the wall clock showed,
    /// since 1970, when its time began.
    ///
    /// # Errors
    /// The settings contradict each other; the text says how.
    fn server(self: Box<Self>, wall_clock: Duration) -> Result<Box<dyn Serve>, String>;
}

/// A reference server that was made.
pub trait Serve: Debug + Send + Sync {
    /// The metrics of its sessions.
    fn catalogue(&self) -> Catalogue;

    /// The seed of all that is drawn.
    fn seed(&self) -> u64;

    /// The URL of what it serves at an address.
    fn url(&self, address: SocketAddr, tls: bool) -> String;

    /// A session for the connection that was accepted as number `number`: the number decides, with
    /// the seed, what it draws. None is asked for of a server that accepts no connections.
    fn session(&self, _number: u64) -> Box<dyn Session> {
        unreachable!("who listens on UDP ports alone accepts no connection")
    }

    /// What answers on a UDP port, of a server that listens there. Each worker, by its number, has
    /// one.
    fn endpoint(&self, _worker: u32) -> Option<Box<dyn Endpoint>> {
        None
    }

    /// Whether connections are accepted: with an [`Serve::endpoint`], at the port of TCP that has
    /// the number of its port of UDP. Default: a server without an endpoint does.
    fn accepts_connections(&self) -> bool {
        self.endpoint(0).is_none()
    }

    /// Counts what its sessions do. `clock_monotonic_nanos` is what CLOCK_MONOTONIC showed when its
    /// time began.
    fn tally(&self, clock_monotonic_nanos: i64) -> Box<dyn Tally>;
}

/// One second of a server, of all its workers.
#[derive(Clone, Copy, Debug)]
pub struct Second<'a> {
    /// When it began.
    pub begins: Time,
    /// How long it was.
    pub seconds: f64,
    /// What its sessions counted.
    pub served: &'a Window,
    /// What was counted of this program itself: [`measure::TESTER_CATALOGUE`].
    pub tester: &'a Window,
}

/// What a server did so far.
pub trait Tally: Debug {
    /// Counts a second; gives the line of the report about it, where there is one.
    fn second(&mut self, second: Second<'_>) -> Option<String>;

    /// Counts what a session did; gives the line of the report about it, where there is one.
    fn done(&mut self, _done: Record) -> Option<String> {
        None
    }

    /// How it goes, in words.
    fn so_far(&self) -> String;

    /// What it came to in the end, in words.
    fn at_the_end(&self) -> Vec<String>;

    /// The last line of the report.
    fn last_line(&self) -> String;
}

/// A line of a report.
pub(crate) fn line(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).expect("reports are plain data with texts as keys")
}

/// Finds what a value of a fault stands for.
///
/// # Errors
/// There is none of that name; the text has those that are.
pub(crate) fn one_of<T: Copy>(all: &[(&str, T)], value: &str) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, fault)| *fault).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("it is one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Protocol;
    use crate::registry::PROTOCOLS;

    fn servers() -> impl Iterator<Item = (&'static Protocol, &'static ReferenceServer)> {
        let with_server = |&protocol: &&'static Protocol| Some((protocol, protocol.server?));
        PROTOCOLS.iter().filter_map(with_server)
    }

    fn is_good(takes: Takes, value: &str) -> bool {
        match takes {
            Takes::Nothing => false,
            Takes::File => true,
            Takes::OneOf(_, values) => values.iter().any(|(name, _)| *name == value),
            Takes::Number(_, least, most) => value
                .parse()
                .is_ok_and(|number: u64| (least..=most).contains(&number)),
            Takes::Text(_, check) => check(value).is_ok(),
        }
    }

    #[test]
    fn every_server_can_be_made_without_flags() {
        for (protocol, server) in servers() {
            let usual = Flags::usual(server.flags);
            let settings = (server.read)(&usual).expect("defaults are good");
            let made = settings.server(Duration::ZERO).expect("defaults agree");
            assert_eq!(made.seed(), 1, "{}", protocol.name);
            for name in [common::LISTEN, common::PORT] {
                assert!(usual.has(name), "--{name} of {}", protocol.name);
            }
        }
    }

    #[test]
    fn flags_name_each_other_and_have_good_defaults() {
        for (_, server) in servers() {
            let flags = server.flags;
            let known = |name: &str| flags.iter().filter(|flag| flag.name == name).count();
            for flag in flags {
                assert_eq!(known(flag.name), 1, "--{}", flag.name);
                for other in flag.requires.iter().chain(flag.conflicts) {
                    assert_eq!(known(other), 1, "--{other} of --{}", flag.name);
                }
                for value in flag.default.iter().chain(flag.bare.iter()) {
                    assert!(is_good(flag.takes, value), "{value} of --{}", flag.name);
                }
            }
        }
    }

    #[test]
    fn schemes_of_servers_are_those_of_their_protocol() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        for (protocol, server) in servers() {
            let usual = Flags::usual(server.flags);
            let settings = (server.read)(&usual).expect("defaults are good");
            let made = settings.server(Duration::ZERO).expect("defaults agree");
            for tls in [false, true] {
                let url = made.url(address, tls);
                let (scheme, _) = url.split_once("://").expect("it is a URL");
                assert!(protocol.schemes.contains(&scheme), "{url}");
            }
        }
    }
}
