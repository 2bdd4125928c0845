//! Declaration of a protocol, made in its own crate. All other code reads it from here.

#![deny(missing_docs)]

use std::any::Any;
use std::fmt::{self, Debug};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dyn_clone::DynClone;
use measure::Catalogue;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserializer, Serialize, Serializer};

use crate::browser::{Golden, Page};
use crate::calibration::Trial;
use crate::keys::KeyError;
use crate::media::source::SourceConfig;
use crate::options::ClientOptions;
use crate::reference::ReferenceServer;
use crate::remote_receiver::MediaConfig;
use crate::zapping::Zap;
use session::tls::TlsConfig;
use session::{CaptureNeeds, Session};

/// Declaration of a protocol that clients speak.
#[derive(Debug)]
pub struct Protocol {
    /// Name in scenarios: the value of `protocol`.
    pub name: &'static str,
    /// URL schemes of the protocol.
    pub schemes: &'static [&'static str],
    /// URLs with a scheme of another protocol that belong to this one; `None` if there are none.
    pub path_suffix: Option<PathSuffix>,
    /// Port of a URL that has none.
    pub default_port: u16,
    /// Transport of the server port on which conversations begin.
    pub transport: Transport,
    /// Metrics of the protocol's populations.
    pub catalogue: Catalogue,
    /// Bytes that the clients' sinks read of each datagram. `None` if all media arrives on
    /// connections.
    pub datagrams: Option<CaptureNeeds>,
    /// Default thresholds of a search for the capacity of a server: what viewers notice first if it
    /// is overloaded, in addition to [`PopulationKeys::default_thresholds`].
    pub capacity_thresholds: &'static [&'static str],
    /// Columns of the streams' rows in the run file ([`session::StreamRow`]), as JSON
    /// pointers (RFC 6901). A name never changes, because run files are kept.
    pub stream_columns: &'static [&'static [&'static str]],
    /// Parses a URL. The error says why it is not valid for a client.
    pub parse_url: fn(&str) -> Result<Location, String>,
    /// Readiness probe of a server; `None` if the protocol has none.
    pub probe: Option<Probe>,
    /// The protocol's reference server; `None` if it has none.
    pub server: Option<&'static ReferenceServer>,
    /// Trials of `calibrate`, which verify the clients' measurements; empty if none is declared.
    pub trials: &'static [Trial],
    /// Command-line options of the clients.
    pub options: &'static ClientOptions,
    /// Type of the keys of a population.
    pub keys: KeysType,
    /// Returns the replacement of a key that this protocol had in the past; `None` for any other
    /// key.
    pub former_key: fn(&str) -> Option<&'static str>,
}

/// URLs whose path shows the protocol.
#[derive(Clone, Copy, Debug)]
pub struct PathSuffix {
    /// Schemes of the URLs.
    pub schemes: &'static [&'static str],
    /// End of their path, such as `.m3u8`, in lower or upper case.
    pub suffix: &'static str,
}

/// Transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP: the server has a listening socket.
    Tcp,
    /// UDP: the server has a bound socket.
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

/// Readiness probe: a request on a TCP connection of its own, and the answer to it.
#[derive(Debug)]
pub struct Probe {
    /// Returns the request for a URL.
    pub request: fn(&str) -> String,
    /// First bytes of the answer if the URL is served.
    pub answer: &'static [u8],
}

/// Meaning of a URL in its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// `true` if clients of the URL use TLS.
    pub is_secure: bool,
    /// Port of a URL that has none.
    pub default_port: u16,
    /// Stream at the URL; `None` for protocols without streams.
    pub stream: Option<StreamName>,
}

/// Name of a stream among the clients of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamName {
    /// Topic of the publisher's messages ([`session::Output::Publish`]).
    pub topic: String,
    /// Host of the server and path of the stream without query, which all protocols of a server
    /// share. `None` if the URL names no path.
    pub host_and_path: Option<(String, String)>,
    /// `true` if players of the same URL wait for the stream. `false` in rooms, in which every
    /// participant may publish.
    pub is_awaited: bool,
}

impl StreamName {
    /// A stream that players of its URL wait for. Slashes at the ends of `path` are ignored.
    pub fn new(topic: String, host: &str, path: &str) -> StreamName {
        let path = path.trim_matches('/');
        let host_and_path = (host.to_ascii_lowercase(), path.to_owned());
        StreamName {
            topic,
            host_and_path: (!path.is_empty()).then_some(host_and_path),
            is_awaited: true,
        }
    }

    /// Returns `true` if players of `self` wait for `published`.
    fn awaits(&self, published: &StreamName) -> bool {
        let same_place =
            self.host_and_path.is_some() && self.host_and_path == published.host_and_path;
        self.is_awaited && published.is_awaited && (self.topic == published.topic || same_place)
    }
}

/// Assumed number of streams where it must be known before the media: video and audio.
pub const ASSUMED_STREAMS: usize = 2;

/// Protocol-independent access to the keys of a population.
pub trait PopulationKeys: Debug + Send + Sync + DynClone + AnyEq + erased_serde::Serialize {
    /// The protocol that the keys belong to.
    fn protocol(&self) -> &'static Protocol;

    /// Facts about clients with these values, for the engine.
    fn facts(&self) -> Facts<'_>;

    /// Validates the values. The error has the offending key and the reason.
    fn check(&self) -> Result<(), KeyError>;

    /// Checks that clients with these values can connect to `url`. The error has the offending key
    /// and the reason.
    fn check_url(&self, _url: &str) -> Result<(), KeyError> {
        Ok(())
    }

    /// Default thresholds of the population, in addition to those of
    /// [`measure::threshold::implied_thresholds`]. Each applies unless the scenario has a threshold
    /// on the same metric. They require that anything was measured at all, and that errors of the
    /// protocol are absent.
    fn default_thresholds(&self) -> &'static [&'static str];

    /// Sockets that one of `clients` needs, for media of one video and one audio stream. If clients
    /// receive each other's media, it depends on the number of clients in the run. Default: one
    /// connection.
    fn sockets_per_client(&self, _clients: u64) -> SocketNeeds {
        SocketNeeds {
            descriptors: 1,
            udp_pairs: 0,
        }
    }

    /// All paths in the keys, to be resolved by the reader of the scenario: they are relative to
    /// its file. Default: none.
    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// Prepares what the clients of a population share, which may take some seconds. `file` holds
    /// the contents of the media file that they send.
    ///
    /// # Errors
    /// If the media to publish cannot be made; the text says why.
    fn clients(
        &self,
        file: Option<&[u8]>,
        context: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String>;

    /// Returns a session that asks the server for a description of the media of `url`. `None` if
    /// the protocol has no such request; an error if the URL is invalid.
    fn describe_session(&self, _url: &str, _seed: u64) -> Option<Result<Box<dyn Session>, String>> {
        None
    }

    /// Multicast group to which a server relays the stream of a URL; `None` if unknown.
    fn group_of(&self, _url: &str) -> Option<IpAddr> {
        None
    }

    /// Mutable [`Facts::media`]: the receiver's address is known only when the run begins.
    fn media_mut(&mut self) -> Option<&mut MediaConfig> {
        None
    }

    /// The page of a golden browser for `url`.
    ///
    /// # Errors
    /// If a browser cannot do what the clients do; the text says why.
    fn golden_page(&self, _url: &str) -> Result<Page, String> {
        Err("a browser does not speak this protocol".to_owned())
    }
}

/// Keys of a population of any protocol. Dereferences to its [`PopulationKeys`].
#[derive(Clone, Debug)]
pub struct ClientConfig(Box<dyn PopulationKeys>);

impl Deref for ClientConfig {
    type Target = dyn PopulationKeys;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for ClientConfig {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl PartialEq for ClientConfig {
    fn eq(&self, other: &ClientConfig) -> bool {
        self.0.equals(&*other.0)
    }
}

impl Serialize for ClientConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        erased_serde::serialize(&*self.0, serializer)
    }
}

impl ClientConfig {
    /// Returns a session that asks for a description of the media of `url`, as a client of the
    /// population would before it plays. It emits [`session::Output::Described`] or fails, and
    /// ends. `None` if the protocol has no such request, or the clients publish.
    ///
    /// The error says why the URL is invalid.
    pub fn description_of(&self, url: &str, seed: u64) -> Option<Result<Box<dyn Session>, String>> {
        match self.facts().publishes() {
            true => None,
            false => self.describe_session(url, seed),
        }
    }
}

dyn_clone::clone_trait_object!(PopulationKeys);

/// Comparison with a value of an unknown type. Every type with `PartialEq` has it.
pub trait AnyEq: Any {
    /// Returns `true` if `other` has the same type and is equal.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: Any + PartialEq> AnyEq for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// Type of the keys of a protocol's populations.
#[derive(Debug)]
pub struct KeysType {
    default: fn() -> ClientConfig,
    read: fn(&mut dyn erased_serde::Deserializer<'_>) -> erased_serde::Result<ClientConfig>,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl KeysType {
    /// The type `K`.
    pub const fn of<K: PopulationKeys + Default + DeserializeOwned + JsonSchema>() -> KeysType {
        KeysType {
            default: || ClientConfig(Box::new(K::default())),
            read: |deserializer| {
                let keys: K = erased_serde::deserialize(deserializer)?;
                Ok(ClientConfig(Box::new(keys)))
            },
            schema: K::json_schema,
        }
    }
}

/// Properties of clients that follow from the keys of their population.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// TLS settings for URLs that require TLS; `None` if the protocol has no TLS.
    pub tls: Option<&'a TlsConfig>,
    /// `true` if clients send or receive media at all.
    pub has_media: bool,
    /// `true` if connections with media are read as soon as data arrives, so that no packet ring
    /// has to receive the arrival times of their segments.
    pub reads_at_once: bool,
    /// `true` if the clients receive media.
    pub receives: bool,
    /// Media that the clients publish; `None` if they play.
    pub published: Option<&'a SourceConfig>,
    /// Media that the clients send, also while they receive that of others. Clients of other
    /// populations may wait for it.
    pub sent: Option<&'a SourceConfig>,
    /// `true` if the frames of a run with such clients may bear time codes, for all players of the
    /// run.
    pub time_codes: bool,
    /// Description of each client's actions during playback; `None` if there are none.
    pub actions: Option<String>,
    /// `true` if clients switch between the URLs of their population.
    pub changes_channel: bool,
    /// Description of how long a client stays if no plan ends it. `None` if it ends with the media
    /// that it receives.
    pub stay: Option<String>,
    /// `true` if a client ends on its own, with its media or after its last action.
    pub ends_on_its_own: bool,
    /// Bytes that the clients' sinks read of each datagram, if a packet ring may receive them.
    /// `None` if only sockets receive them.
    pub datagrams: Option<CaptureNeeds>,
    /// `true` if media arrives in datagrams that only sockets receive.
    pub by_sockets: bool,
    /// Destination of media if it differs from the origin of the requests.
    pub media: Option<&'a MediaConfig>,
    /// `true` if media comes from multicast groups, which clients share.
    pub is_multicast: bool,
    /// Local addresses that connections come from, used in turn. Empty if the routing table
    /// decides.
    pub source_addresses: &'a [IpAddr],
    /// Real browsers that do the same as the clients, for comparison; `None` if there are none.
    pub golden: Option<Golden>,
}

impl<'a> Facts<'a> {
    /// Facts of clients that only publish `published`, or only play if it is `None`, and then
    /// change channels by `zap`. Their datagrams are those of `protocol`.
    pub fn new(
        protocol: &Protocol,
        published: Option<&'a SourceConfig>,
        zap: Option<Zap>,
    ) -> Facts<'a> {
        Facts {
            tls: None,
            has_media: true,
            reads_at_once: false,
            receives: published.is_none(),
            published,
            sent: None,
            time_codes: false,
            actions: zap.map(|zap| zap.describe()),
            changes_channel: zap.is_some(),
            stay: None,
            ends_on_its_own: true,
            datagrams: protocol.datagrams,
            by_sockets: protocol.transport == Transport::Udp && protocol.datagrams.is_none(),
            media: None,
            is_multicast: false,
            source_addresses: &[],
            golden: None,
        }
        .sending(published)
    }

    /// These facts for clients that send `sent`: they stay until the run ends, and their pictures
    /// may bear time codes.
    pub fn sending(self, sent: Option<&'a SourceConfig>) -> Facts<'a> {
        Facts {
            sent,
            time_codes: sent.is_some(),
            stay: sent.map(|_| "stay until the run ends".to_owned()),
            ends_on_its_own: sent.is_none(),
            ..self
        }
    }

    /// `true` if the clients publish media instead of playing it.
    pub fn publishes(&self) -> bool {
        self.published.is_some()
    }
}

/// Sockets of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketNeeds {
    /// File descriptors.
    pub descriptors: u64,
    /// Pairs of UDP ports. A single port takes a pair too.
    pub udp_pairs: u64,
}

/// Factory of a population's clients.
pub trait ClientFactory: Debug + Send + Sync {
    /// Passes properties of the whole population. Called once, before the first client is made.
    ///
    /// # Errors
    /// If a URL or the combination of keys is invalid; the text says why.
    fn set_population(&mut self, _population: &PopulationPlan<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Makes a client for `url`. All its random choices follow from the seeds of its identity.
    ///
    /// # Errors
    /// If the URL is invalid; the text says why.
    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Box<dyn Session>, String>;
}

/// Properties that the clients of a population share by their plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopulationPlan<'a> {
    /// URLs of the clients, which are also the channels that clients switch between.
    pub urls: &'a [String],
    /// `true` if the URLs are used in their order, `false` if they are drawn at random.
    pub in_turn: bool,
    /// `true` if a client that replaces another may get another URL.
    pub may_change_url: bool,
    /// Maximum number of concurrent clients.
    pub clients: u64,
}

/// Identity of a client within its population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Seed of this client.
    pub seed: u64,
    /// Seed that all clients of the population share.
    pub shared_seed: u64,
    /// Index among the population's clients, from 0. A client that replaces another has its index.
    pub index: u64,
}

/// Facts about a run that its clients need.
#[derive(Clone, Debug, Default)]
pub struct RunContext {
    /// Wall-clock time since 1970 at the start of the run's clock.
    wall_clock: Arc<OnceLock<Duration>>,
    /// Streams that the run's clients publish.
    published: Arc<Vec<Published>>,
    /// `true` if frames may bear time codes.
    time_codes: bool,
}

/// Streams that one population publishes.
#[derive(Debug)]
struct Published {
    population: String,
    /// In the order of the population's URLs.
    streams: Vec<Option<StreamName>>,
}

/// A population as seen by other populations of its run.
#[derive(Clone, Copy, Debug)]
pub struct PopulationView<'a> {
    /// Name of the population.
    pub name: &'a str,
    /// Configuration of the clients.
    pub keys: &'a dyn PopulationKeys,
    /// URLs of the clients.
    pub urls: &'a [String],
}

impl RunContext {
    /// Context of a run with the given populations.
    pub fn new<'a>(populations: impl IntoIterator<Item = PopulationView<'a>>) -> RunContext {
        let mut context = RunContext::default();
        let mut published = Vec::new();
        for own in populations {
            let protocol = own.keys.protocol();
            let facts = own.keys.facts();
            context.time_codes |= facts.time_codes;
            if facts.sent.is_some() {
                published.push(Published {
                    population: own.name.to_owned(),
                    streams: own.urls.iter().map(|url| protocol.stream(url)).collect(),
                });
            }
        }
        context.published = Arc::new(published);
        context
    }

    /// Returns the topics of the streams that a player of `url` waits for; empty if it does not
    /// wait.
    ///
    /// By default, a player waits for the stream at the same host and path, whatever the protocol
    /// and the port. With `waits_for` it waits for that population: for the stream at the same
    /// position if both populations have the same number of URLs, otherwise for any of its streams.
    pub fn awaited(
        &self,
        player: PopulationView<'_>,
        waits_for: Option<&str>,
        url: &str,
    ) -> Vec<String> {
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
        if player.keys.facts().publishes() || self.published.is_empty() {
            return Vec::new();
        }
        let Some(own) = player.keys.protocol().stream(url) else {
            return Vec::new();
        };
        let all = self
            .published
            .iter()
            .flat_map(|own| own.streams.iter().flatten());
        let found = all.filter(|published| own.awaits(published));
        found.map(|published| published.topic.clone()).collect()
    }

    /// Returns `true` if the population publishes anything.
    pub fn publishes(&self, population: &str) -> bool {
        self.published
            .iter()
            .any(|own| own.population == population)
    }

    /// Sets the wall-clock time at the start of the run's clock. Must be called before the first
    /// client is made. Only the first call counts, so that all clients of the run share one clock.
    pub fn set_wall_clock(&self, wall_clock: Duration) {
        // A second call changes nothing.
        let _ = self.wall_clock.set(wall_clock);
    }

    /// Wall-clock time at the start of the run's clock; `None` before
    /// [`RunContext::set_wall_clock`].
    pub fn wall_clock(&self) -> Option<Duration> {
        self.wall_clock.get().copied()
    }

    /// Returns `true` if frames may bear time codes.
    pub fn has_time_codes(&self) -> bool {
        self.time_codes
    }
}

impl Protocol {
    /// Thresholds of a search for viewers that notice a late start and a gap first.
    pub const LATE_OR_WITH_GAPS: &'static [&'static str] =
        &["startup_delay.p95 < 2s", "longest_gap.p95 < 2s"];

    /// Returns the keys with their defaults.
    pub fn default_config(&self) -> ClientConfig {
        (self.keys.default)()
    }

    /// Reads the keys of a population. Unknown keys are errors; missing ones get their defaults.
    ///
    /// # Errors
    /// Of the deserializer and of the keys. Of an error of the deserializer only its text is left.
    pub fn read_keys<'de>(
        &self,
        deserializer: impl Deserializer<'de>,
    ) -> erased_serde::Result<ClientConfig> {
        (self.keys.read)(&mut <dyn erased_serde::Deserializer<'_>>::erase(
            deserializer,
        ))
    }

    /// JSON schema of the keys: an object. Its definitions are added to the generator.
    pub fn keys_schema(&self, generator: &mut SchemaGenerator) -> Schema {
        (self.keys.schema)(generator)
    }

    /// Returns the replacement of a key that this protocol had in the past; `None` for any other
    /// key.
    pub fn former_key(&self, key: &str) -> Option<&'static str> {
        (self.former_key)(key)
    }

    /// Returns `true` if the URL's scheme belongs to this protocol.
    pub fn has_scheme_of(&self, url: &str) -> bool {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let mut own = self.schemes.iter();
        scheme.is_some_and(|scheme| own.any(|own| own.eq_ignore_ascii_case(scheme)))
    }

    /// Returns `true` if the URL's path shows that it belongs to this protocol, although its scheme
    /// belongs to another.
    pub fn has_path_of(&self, url: &str) -> bool {
        let Some(PathSuffix { schemes, suffix }) = self.path_suffix else {
            return false;
        };
        let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (_, path) = rest.split_once('/').unwrap_or(("", ""));
        let end = path.len().checked_sub(suffix.len());
        let end = end.and_then(|at| path.get(at..)).unwrap_or_default();
        end.eq_ignore_ascii_case(suffix)
            && schemes.iter().any(|own| own.eq_ignore_ascii_case(scheme))
    }

    /// Stream that a URL of this protocol leads to.
    pub fn stream(&self, url: &str) -> Option<StreamName> {
        (self.parse_url)(url).ok()?.stream
    }

    /// Returns `true` if clients of this URL use TLS.
    pub fn is_secure(&self, url: &str) -> bool {
        (self.parse_url)(url).is_ok_and(|location| location.is_secure)
    }

    /// Port of this URL if it has none of its own.
    pub fn default_port_of(&self, url: &str) -> u16 {
        (self.parse_url)(url).map_or(self.default_port, |location| location.default_port)
    }

    /// Checks that a client can be sent to this URL. The error says why not.
    pub fn check_url(&self, url: &str) -> Result<(), String> {
        (self.parse_url)(url).map(|_| ())
    }

    /// Names of the protocol's keys.
    pub fn config_keys(&self) -> Vec<String> {
        let schema = self.keys_schema(&mut SchemaGenerator::default());
        schema
            .get("properties")
            .and_then(|properties| properties.as_object())
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    }
}
