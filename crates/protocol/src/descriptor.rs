//! What a protocol declares of itself, in its own folder; everything else reads it here.

use std::fmt::{self, Debug};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use measure::Catalogue;

use crate::browser::{Golden, Page};
use crate::calibration::Trial;
use crate::media::source::SourceConfig;
use crate::options::ClientOptions;
use crate::reference::ReferenceServer;
use crate::remote_receiver::MediaConfig;
use crate::session::{Needs, Session};
use crate::tls::TlsConfig;

/// A protocol that clients speak.
#[derive(Debug)]
pub struct Protocol {
    /// Its name in scenarios: the value of `protocol`.
    pub name: &'static str,
    /// The URL schemes that mean it.
    pub schemes: &'static [&'static str],
    /// The port where a URL names none.
    pub default_port: u16,
    /// What a server's port is of, where conversations begin.
    pub transport: Transport,
    /// The metrics that its populations have.
    pub catalogue: Catalogue,
    /// How much the sinks of its clients' datagrams read of each; none where all media comes in
    /// connections.
    pub datagrams: Option<Needs>,
    /// What the row of each stream of a client tells in the run file ([`crate::session::StreamRow`]),
    /// as JSON pointers (RFC 6901). Names never change, because run files are kept.
    pub stream_columns: &'static [&'static [&'static str]],
    /// Reads a URL. The error says why no client can be sent there.
    pub read_url: fn(&str) -> Result<Location, String>,
    /// By what a server that was started shows that it serves a URL; none where it cannot be asked.
    pub probe: Option<Probe>,
    /// Its reference server; none where there is none.
    pub server: Option<&'static ReferenceServer>,
    /// How what its clients measure is proved; empty where that is not declared.
    pub trials: &'static [Trial],
    /// The options of a command line for its clients.
    pub options: &'static ClientOptions,
    /// What to write in place of a key that this protocol once had; none where it had none of that
    /// name.
    pub former_key: fn(&str) -> Option<&'static str>,
}

/// The transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP: a listening socket has the port.
    Tcp,
    /// UDP: a bound socket has the port.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// A question to a server, in a TCP connection of its own.
#[derive(Debug)]
pub struct Probe {
    /// What is sent, for a URL.
    pub request: fn(&str) -> String,
    /// How the answer begins where the URL is served.
    pub answer: &'static [u8],
}

/// Where a URL leads, as its protocol reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Whether clients of the URL speak TLS.
    pub is_secure: bool,
    /// The port where the URL names none.
    pub default_port: u16,
    /// The stream there; `None` for protocols without streams.
    pub stream: Option<StreamName>,
}

/// Names of a stream among the clients of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamName {
    /// Topic of its publisher's messages ([`crate::session::Output::Tell`]).
    pub topic: String,
    /// Host of the server, and path of the stream without query. Both are the same in all protocols
    /// of a server. `None` if the URL does not say.
    pub place: Option<(String, String)>,
    /// Whether players of the same URL wait for it. They do not in rooms, in which everybody may
    /// publish.
    pub is_awaited: bool,
}

impl StreamName {
    /// A stream that players of its URL wait for. `path`: with slashes at its ends, or not.
    pub fn new(topic: String, host: &str, path: &str) -> StreamName {
        let path = path.trim_matches('/');
        let place = (host.to_ascii_lowercase(), path.to_owned());
        StreamName {
            topic,
            place: (!path.is_empty()).then_some(place),
            is_awaited: true,
        }
    }

    /// Whether players of `self` wait for `published`.
    fn is(&self, published: &StreamName) -> bool {
        let same_place = self.place.is_some() && self.place == published.place;
        self.is_awaited && published.is_awaited && (self.topic == published.topic || same_place)
    }
}

/// How many streams the media is taken to have, where that must be known beforehand: a picture and
/// a sound.
pub const USUAL_STREAMS: usize = 2;

/// What is asked of the keys of a population, whatever protocol they are of.
pub trait Keys: Debug + Send + Sync {
    /// The protocol that they are of.
    fn protocol(&self) -> &'static Protocol;

    /// Whether the values make sense; if not, which key is wrong, and why.
    fn check(&self) -> Result<(), (&'static str, String)>;

    /// Whether clients with these values can be sent to `url`; if not, by which key, and why.
    fn check_url(&self, _url: &str) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// How the clients speak TLS, where a URL asks for it; none where the protocol knows no TLS.
    fn tls(&self) -> Option<&TlsConfig> {
        None
    }

    /// What must hold of every population beside the thresholds of
    /// [`measure::threshold::unwritten`], unless the scenario has another threshold on the same
    /// metric: that anything was measured at all, and what is never as it should be.
    fn unwritten(&self) -> &'static [&'static str];

    /// All paths that the scenario names, to be changed: they are relative to its file, which
    /// whoever reads that knows.
    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// Makes what the clients have in common. It may take some seconds. `file` is what
    /// [`Keys::source_file`] holds.
    ///
    /// # Errors
    /// What they publish cannot be made; the text says why.
    fn clients(
        &self,
        file: Option<&[u8]>,
        surroundings: &Surroundings,
    ) -> Result<Box<dyn MakeClients>, String>;

    /// A session that asks what the media of `url` is; none where the protocol describes nothing
    /// beforehand. The error says what is wrong with the URL.
    fn asking(&self, _url: &str, _seed: u64) -> Option<Result<Box<dyn Session>, String>> {
        None
    }

    /// How many file descriptors one of `clients` needs, for media of a picture and a sound: where
    /// clients receive each other, that depends on how many there are in the run.
    fn sockets_per_client(&self, _clients: u64) -> u64 {
        1
    }

    /// How many pairs of UDP ports one of `clients` needs, for media of a picture and a sound. A
    /// single port of a client takes a pair too.
    fn udp_pairs_per_client(&self, _clients: u64) -> u64 {
        0
    }

    /// How much of each datagram the clients' sinks read, where a packet ring may bring them; none
    /// where sockets alone do.
    fn datagrams(&self) -> Option<Needs> {
        self.protocol().datagrams
    }

    /// Whether media comes in datagrams that sockets alone bring. Default: of protocols over UDP,
    /// where no ring may bring them.
    fn by_sockets(&self) -> bool {
        self.protocol().transport == Transport::Udp && self.datagrams().is_none()
    }

    /// What each client does while it plays, in words; `None` where it just plays.
    fn actions(&self) -> Option<String> {
        None
    }

    /// Whether clients change between the URLs of their population.
    fn changes_channel(&self) -> bool {
        false
    }

    /// The multicast group that a server relays to who asks for that URL, as far as it is known.
    fn group_of(&self, _url: &str) -> Option<IpAddr> {
        None
    }

    /// Where media goes, where that is not where requests come from.
    fn media(&self) -> Option<&MediaConfig> {
        None
    }

    /// The same, to be changed: where a receiver hears clients is known when the run begins.
    fn media_mut(&mut self) -> Option<&mut MediaConfig> {
        None
    }

    /// What the clients publish; none where they play.
    fn published(&self) -> Option<&SourceConfig> {
        None
    }

    /// Whether the clients publish media, and do not play.
    fn publishes(&self) -> bool {
        self.published().is_some()
    }

    /// Whether clients of other populations may wait for what the clients send.
    fn is_awaited(&self) -> bool {
        self.publishes()
    }

    /// The file that the clients publish, where they publish one.
    fn source_file(&self) -> Option<&PathBuf> {
        self.published()?.file.as_ref()
    }

    /// How many real browsers do what the clients do, beside them; none where there are none.
    fn golden(&self) -> Option<Golden> {
        None
    }

    /// The page of such a browser that is sent to `url`.
    ///
    /// # Errors
    /// A browser cannot do what the clients do; the text says why.
    fn golden_page(&self, _url: &str) -> Result<Page, String> {
        Err("a browser does not speak this protocol".to_owned())
    }

    /// Whether frames may bear time codes in a run with such clients: of all that play in it.
    fn brings_time_codes(&self) -> bool {
        self.publishes()
    }

    /// Whether clients send or receive media at all.
    fn has_media(&self) -> bool {
        true
    }

    /// Until when a client stays that is not told to leave, in words. None where that is the end of
    /// the media it receives.
    fn stays(&self) -> Option<String> {
        None
    }

    /// Whether a client leaves by itself: at its media's end, or when it has done all it has to.
    fn leaves(&self) -> bool {
        true
    }

    /// The addresses of this machine that connections come from, in their order; none where its
    /// routes decide.
    fn source_addresses(&self) -> &[IpAddr] {
        &[]
    }

    /// Whether media comes from multicast groups, which clients share.
    fn is_multicast(&self) -> bool {
        false
    }
}

/// Makes the clients of a population.
pub trait MakeClients: Debug + Send + Sync {
    /// Says among whom a client is. It is said once, before any client is made.
    ///
    /// # Errors
    /// What is wrong with a URL.
    fn among(&mut self, _crowd: &Crowd<'_>) -> Result<(), String> {
        Ok(())
    }

    /// A client that is sent to `url`. All that it chooses at random follows from its seat's seeds.
    ///
    /// # Errors
    /// What is wrong with the URL.
    fn client(&self, url: &str, seat: Seat) -> Result<Box<dyn Session>, String>;
}

/// What the clients of a population have in common, as its plan says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd<'a> {
    /// The URLs that they are sent to, and between which those change that change channel.
    pub urls: &'a [String],
    /// Whether each URL is followed by the next one; if not, by any other.
    pub in_turn: bool,
    /// Whether who takes another's place may be sent to another URL.
    pub moves: bool,
    /// The most clients that are wanted at a time.
    pub clients: u64,
}

/// Which of its population's clients one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// Its own seed.
    pub seed: u64,
    /// The seed that all clients of its population have in common.
    pub shared_seed: u64,
    /// Its place among them, from 0. A client that replaces another has the same place.
    pub place: u64,
}

/// What the clients of a run know of it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// What the wall clock showed, since 1970, when the run's time began.
    wall_clock: Arc<OnceLock<Duration>>,
    /// The streams that its clients publish.
    published: Arc<Vec<Published>>,
    /// Whether frames may bear time codes.
    time_codes: bool,
}

/// The streams that a population publishes.
#[derive(Debug)]
struct Published {
    population: String,
    /// In the order of its URLs.
    streams: Vec<Option<StreamName>>,
}

/// A population, as others of its run need to know it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Name of the population.
    pub name: &'a str,
    /// Configuration of the clients.
    pub keys: &'a dyn Keys,
    /// URLs of the clients.
    pub urls: &'a [String],
}

impl Surroundings {
    /// Surroundings in a run of these populations.
    pub fn new<'a>(populations: impl IntoIterator<Item = Member<'a>>) -> Surroundings {
        let mut surroundings = Surroundings::default();
        let mut published = Vec::new();
        for own in populations {
            let protocol = own.keys.protocol();
            surroundings.time_codes |= own.keys.brings_time_codes();
            if own.keys.is_awaited() {
                published.push(Published {
                    population: own.name.to_owned(),
                    streams: own.urls.iter().map(|url| protocol.stream(url)).collect(),
                });
            }
        }
        surroundings.published = Arc::new(published);
        surroundings
    }

    /// Topics of the streams that a player of `url` waits for; empty if it does not wait.
    ///
    /// By default, it waits for the stream at the same host and path, whatever the protocol and the
    /// port. With `waits_for`, it waits for that population: for the stream at the same position if
    /// both have the same number of URLs, else for any.
    pub fn awaited(&self, player: Member<'_>, waits_for: Option<&str>, url: &str) -> Vec<String> {
        if let Some(name) = waits_for {
            let mut all = self.published.iter();
            let Some(own) = all.find(|own| own.population == name) else {
                return Vec::new();
            };
            let same_length = player.urls.len() == own.streams.len();
            let position = player.urls.iter().position(|own| own == url);
            let streams = match position.filter(|_| same_length) {
                Some(position) => &own.streams[position..=position],
                None => &own.streams[..],
            };
            let topics = streams.iter().flatten().map(|stream| stream.topic.clone());
            return topics.collect();
        }
        if player.keys.publishes() || self.published.is_empty() {
            return Vec::new();
        }
        let Some(own) = player.keys.protocol().stream(url) else {
            return Vec::new();
        };
        let all = self
            .published
            .iter()
            .flat_map(|own| own.streams.iter().flatten());
        let found = all.filter(|published| own.is(published));
        found.map(|published| published.topic.clone()).collect()
    }

    /// Whether a population publishes anything.
    pub fn publishes(&self, population: &str) -> bool {
        self.published
            .iter()
            .any(|own| own.population == population)
    }

    /// Says what the wall clock showed when the run's time began. To be said before any client is
    /// made; only the first call counts, so that all clients of the run share one clock.
    pub fn begin(&self, wall_clock: Duration) {
        // Said twice, it stays as it was.
        let _ = self.wall_clock.set(wall_clock);
    }

    /// What the wall clock showed when the run's time began, once that is known.
    pub fn wall_clock(&self) -> Option<Duration> {
        self.wall_clock.get().copied()
    }

    /// Whether frames may bear time codes.
    pub fn has_time_codes(&self) -> bool {
        self.time_codes
    }
}

impl Protocol {
    /// What to write in place of a key that this protocol once had; none where it had none of that
    /// name.
    pub fn former_key(&self, key: &str) -> Option<&'static str> {
        (self.former_key)(key)
    }

    /// Whether a URL's scheme means this protocol.
    pub fn is_meant_by(&self, url: &str) -> bool {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let mut own = self.schemes.iter();
        scheme.is_some_and(|scheme| own.any(|own| own.eq_ignore_ascii_case(scheme)))
    }

    /// The stream that a URL of this protocol leads to.
    fn stream(&self, url: &str) -> Option<StreamName> {
        (self.read_url)(url).ok()?.stream
    }

    /// Whether clients of this URL speak TLS.
    pub fn is_secure(&self, url: &str) -> bool {
        (self.read_url)(url).is_ok_and(|location| location.is_secure)
    }

    /// The port where this URL names none.
    pub fn default_port_of(&self, url: &str) -> u16 {
        (self.read_url)(url).map_or(self.default_port, |location| location.default_port)
    }

    /// Whether a client can be sent to this URL; if not, why.
    pub fn check_url(&self, url: &str) -> Result<(), String> {
        (self.read_url)(url).map(|_| ())
    }

    /// The names of this protocol's keys.
    pub fn config_keys(&self) -> Vec<String> {
        let schema = self.config_schema(&mut schemars::SchemaGenerator::default());
        schema
            .get("properties")
            .and_then(|properties| properties.as_object())
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    }
}
