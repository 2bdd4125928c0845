//! The only list of protocols: what each is called, what may be configured, how a client is made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use measure::Catalogue;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use crate::apart::MediaConfig;
use crate::http_ts::metrics::HTTP_TS;
use crate::media::rtp::metrics::RTP;
use crate::media::source::Source;
use crate::media::ts::metrics::TS;
use crate::messages;
use crate::messages::metrics::MESSAGES;
use crate::metrics::CLIENTS;
use crate::rtsp;
use crate::rtsp::metrics::RTSP;
use crate::session::Session;
use crate::tls::TlsConfig;
use crate::{http_ts, http1};

/// A protocol that clients speak.
#[derive(Debug)]
pub struct Protocol {
    /// Its name in scenarios: the value of `protocol`.
    pub name: &'static str,
    /// The URL schemes that mean it.
    pub schemes: &'static [&'static str],
    /// The port where a URL names none.
    pub default_port: u16,
    /// The metrics that its populations have.
    pub catalogue: Catalogue,
    kind: Kind,
}

/// Which protocol one is, where types differ.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Rtsp,
    HttpTs,
    Messages,
}

/// RTSP 1.0 with RTP (RFC 2326, RFC 3550).
pub static RTSP_PROTOCOL: Protocol = Protocol {
    name: "rtsp",
    schemes: &["rtsp", "rtsps"],
    default_port: rtsp::url::DEFAULT_PORT,
    catalogue: Catalogue(&[&CLIENTS, &RTP, &RTSP]),
    kind: Kind::Rtsp,
};

/// Transport streams over HTTP/1 (ISO/IEC 13818-1, RFC 9112).
pub static HTTP_TS_PROTOCOL: Protocol = Protocol {
    name: "http-ts",
    schemes: &["http", "https"],
    default_port: http1::Url::DEFAULT_PORT,
    catalogue: Catalogue(&[&CLIENTS, &TS, &HTTP_TS]),
    kind: Kind::HttpTs,
};

/// Messages over TCP, TLS, WebSockets and Unix sockets.
pub static MESSAGES_PROTOCOL: Protocol = Protocol {
    name: "messages",
    schemes: messages::url::SCHEMES,
    default_port: 9000,
    catalogue: Catalogue(&[&CLIENTS, &MESSAGES]),
    kind: Kind::Messages,
};

/// All protocols.
pub static PROTOCOLS: &[&Protocol] = &[&RTSP_PROTOCOL, &HTTP_TS_PROTOCOL, &MESSAGES_PROTOCOL];

/// The configuration of a population's clients, whatever protocol they speak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ClientConfig {
    /// Of RTSP.
    Rtsp(rtsp::config::ClientConfig),
    /// Of transport streams over HTTP.
    HttpTs(http_ts::config::ClientConfig),
    /// Of messages.
    Messages(messages::config::ClientConfig),
}

/// The protocol of that name.
pub fn find(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS
        .iter()
        .copied()
        .find(|protocol| protocol.name == name)
}

/// The protocol that a URL's scheme means.
pub fn find_by_url(url: &str) -> Option<&'static Protocol> {
    let (scheme, _) = url.split_once("://")?;
    PROTOCOLS.iter().copied().find(|protocol| {
        protocol
            .schemes
            .iter()
            .any(|own| own.eq_ignore_ascii_case(scheme))
    })
}

impl Protocol {
    /// Reads the keys of this protocol. Unknown keys are errors; missing ones take their defaults.
    pub fn decode_config<'de, D: Deserializer<'de>>(
        &self,
        deserializer: D,
    ) -> Result<ClientConfig, D::Error> {
        match self.kind {
            Kind::Rtsp => {
                rtsp::config::ClientConfig::deserialize(deserializer).map(ClientConfig::Rtsp)
            }
            Kind::HttpTs => {
                http_ts::config::ClientConfig::deserialize(deserializer).map(ClientConfig::HttpTs)
            }
            Kind::Messages => messages::config::ClientConfig::deserialize(deserializer)
                .map(ClientConfig::Messages),
        }
    }

    /// The configuration where no key is written.
    pub fn default_config(&self) -> ClientConfig {
        match self.kind {
            Kind::Rtsp => ClientConfig::Rtsp(rtsp::config::ClientConfig::default()),
            Kind::HttpTs => ClientConfig::HttpTs(http_ts::config::ClientConfig::default()),
            Kind::Messages => ClientConfig::Messages(messages::config::ClientConfig::default()),
        }
    }

    /// The JSON schema of this protocol's keys: an object. Its definitions go into the generator.
    pub fn config_schema(&self, generator: &mut SchemaGenerator) -> Schema {
        match self.kind {
            Kind::Rtsp => rtsp::config::ClientConfig::json_schema(generator),
            Kind::HttpTs => http_ts::config::ClientConfig::json_schema(generator),
            Kind::Messages => messages::config::ClientConfig::json_schema(generator),
        }
    }

    /// The names of this protocol's keys.
    pub fn config_keys(&self) -> Vec<String> {
        let schema = self.config_schema(&mut SchemaGenerator::default());
        schema
            .get("properties")
            .and_then(|properties| properties.as_object())
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// What to write in place of a key that this protocol once had; none where it had none of that name.
    pub fn former_key(&self, key: &str) -> Option<&'static str> {
        match self.kind {
            Kind::Messages => messages::config::former_key(key),
            Kind::Rtsp | Kind::HttpTs => None,
        }
    }

    /// Whether clients of this URL speak TLS.
    pub fn is_secure(&self, url: &str) -> bool {
        match self.kind {
            Kind::Rtsp => rtsp::url::Url::parse(url).is_ok_and(|url| url.is_secure()),
            Kind::HttpTs => http1::Url::parse(url).is_ok_and(|url| url.is_secure()),
            Kind::Messages => messages::url::Target::parse(url).is_ok_and(|url| url.is_secure()),
        }
    }

    /// The port where this URL names none.
    pub fn default_port_of(&self, url: &str) -> u16 {
        match self.kind {
            Kind::Rtsp if self.is_secure(url) => rtsp::url::DEFAULT_TLS_PORT,
            Kind::HttpTs if self.is_secure(url) => http1::Url::DEFAULT_TLS_PORT,
            Kind::Rtsp | Kind::HttpTs | Kind::Messages => self.default_port,
        }
    }

    /// Whether a client can be sent to this URL; if not, why.
    pub fn check_url(&self, url: &str) -> Result<(), String> {
        match self.kind {
            Kind::Rtsp => rtsp::url::Url::parse(url)
                .map(|_| ())
                .map_err(|error| error.to_string()),
            Kind::HttpTs => http1::Url::parse(url)
                .map(|_| ())
                .map_err(|error| error.to_string()),
            Kind::Messages => messages::url::Target::parse(url)
                .map(|_| ())
                .map_err(|error| error.to_string()),
        }
    }
}

/// How many streams the media is taken to have, where that must be known beforehand: a picture and a
/// sound.
const USUAL_STREAMS: usize = 2;

impl ClientConfig {
    /// The protocol that this is of.
    pub fn protocol(&self) -> &'static Protocol {
        match self {
            ClientConfig::Rtsp(_) => &RTSP_PROTOCOL,
            ClientConfig::HttpTs(_) => &HTTP_TS_PROTOCOL,
            ClientConfig::Messages(_) => &MESSAGES_PROTOCOL,
        }
    }

    /// Whether the values make sense; if not, which key is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        match self {
            ClientConfig::Rtsp(config) => config.check(),
            ClientConfig::HttpTs(config) => config.check(),
            ClientConfig::Messages(config) => config.check(),
        }
    }

    /// How the clients speak TLS, where a URL asks for it.
    pub fn tls(&self) -> &TlsConfig {
        match self {
            ClientConfig::Rtsp(config) => &config.tls,
            ClientConfig::HttpTs(config) => &config.tls,
            ClientConfig::Messages(config) => &config.tls,
        }
    }

    /// How many file descriptors one client needs, for media of a picture and a sound.
    pub fn sockets_per_client(&self) -> usize {
        match self {
            ClientConfig::Rtsp(config) => config.sockets(USUAL_STREAMS),
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => 1,
        }
    }

    /// How many pairs of UDP ports one client needs, for media of a picture and a sound.
    pub fn udp_pairs_per_client(&self) -> usize {
        match self {
            ClientConfig::Rtsp(config) => match config.transport {
                rtsp::config::Transport::Udp if config.has_receiver() => 0,
                rtsp::config::Transport::Udp => USUAL_STREAMS,
                rtsp::config::Transport::Tcp
                | rtsp::config::Transport::Http
                | rtsp::config::Transport::Multicast => 0,
            },
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => 0,
        }
    }

    /// What each client does while it plays, in words; `None` where it just plays.
    pub fn actions(&self) -> Option<String> {
        match self {
            ClientConfig::Rtsp(config) => rtsp::actions::in_words(&config.actions),
            ClientConfig::HttpTs(config) => config.zap.map(|zap| zap.in_words()),
            ClientConfig::Messages(_) => None,
        }
    }

    /// Whether clients change between the URLs of their population.
    pub fn changes_channel(&self) -> bool {
        match self {
            ClientConfig::Rtsp(_) | ClientConfig::Messages(_) => false,
            ClientConfig::HttpTs(config) => config.zap.is_some(),
        }
    }

    /// What must hold of every population beside the thresholds of
    /// [`measure::threshold::unwritten`], unless the scenario has another threshold on the same metric:
    /// that anything was measured at all, and what is never as it should be.
    pub fn unwritten(&self) -> &'static [&'static str] {
        match self {
            ClientConfig::Messages(_) => &[
                "sent > 0",
                "lost_in_flight == 0",
                "answers_wrong == 0",
                "answers_missed == 0",
                "answers_timed_out == 0",
                "unanswered == 0",
            ],
            ClientConfig::Rtsp(_) if self.publishes() => &["sent_packets > 0", "not_taken == 0"],
            ClientConfig::Rtsp(_) => &["received > 0"],
            ClientConfig::HttpTs(_) if self.changes_channel() => {
                &["ts_packets > 0", "zaps_failed == 0"]
            }
            ClientConfig::HttpTs(_) => &["ts_packets > 0"],
        }
    }

    /// The multicast group that a server relays to who asks for that URL, as far as it is known.
    pub fn group_of(&self, url: &str) -> Option<IpAddr> {
        match self {
            ClientConfig::Rtsp(_) | ClientConfig::Messages(_) => None,
            ClientConfig::HttpTs(config) => {
                let url = http1::Url::parse(url).ok()?;
                Some(config.group_of(&url)?.ip())
            }
        }
    }

    /// Where media goes, where that is not where requests come from.
    pub fn media(&self) -> Option<&MediaConfig> {
        match self {
            ClientConfig::Rtsp(config) => config.media.as_ref(),
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => None,
        }
    }

    /// The same, to be changed: where a receiver hears clients is known when the run begins.
    pub fn media_mut(&mut self) -> Option<&mut MediaConfig> {
        match self {
            ClientConfig::Rtsp(config) => config.media.as_mut(),
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => None,
        }
    }

    /// The file that the clients publish, where they publish one.
    pub fn source_file(&self) -> Option<&PathBuf> {
        match self {
            ClientConfig::Rtsp(config) => config.publish.as_ref()?.file.as_ref(),
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => None,
        }
    }

    /// All paths that the scenario names, to be changed: they are relative to its file, which whoever reads that knows.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            ClientConfig::Rtsp(config) => {
                let source = config.publish.as_mut();
                let file = source.and_then(|source| source.file.as_mut());
                config.tls.ca.as_mut().into_iter().chain(file).collect()
            }
            ClientConfig::HttpTs(config) => config.tls.ca.as_mut().into_iter().collect(),
            ClientConfig::Messages(config) => config.tls.ca.as_mut().into_iter().collect(),
        }
    }

    /// Whether the clients publish media, and do not play.
    pub fn publishes(&self) -> bool {
        match self {
            ClientConfig::Rtsp(config) => config.publish.is_some(),
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => false,
        }
    }

    /// Whether frames may bear time codes in a run with such clients: of all that play in it.
    pub fn brings_time_codes(&self) -> bool {
        match self {
            ClientConfig::Rtsp(config) => config.publish.is_some() || config.time_codes,
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => false,
        }
    }

    /// Whether clients send or receive media at all.
    pub fn has_media(&self) -> bool {
        !matches!(self, ClientConfig::Messages(_))
    }

    /// Until when a client stays that is not told to leave, in words. None where that is the end of the media it receives.
    pub fn stays(&self) -> Option<String> {
        match self {
            ClientConfig::Rtsp(config) if config.publish.is_some() => {
                Some("stay until the run ends".to_owned())
            }
            ClientConfig::Messages(config) => Some(match config.messages {
                Some(1) => "leave after 1 message each".to_owned(),
                Some(messages) => format!("leave after {messages} messages each"),
                None => "stay until the run ends".to_owned(),
            }),
            ClientConfig::Rtsp(_) | ClientConfig::HttpTs(_) => None,
        }
    }

    /// Whether a client leaves by itself: at its media's end, or after so many messages.
    pub fn leaves(&self) -> bool {
        match self {
            ClientConfig::Rtsp(config) => config.publish.is_none(),
            ClientConfig::HttpTs(_) => true,
            ClientConfig::Messages(config) => config.messages.is_some(),
        }
    }

    /// The addresses of this machine that connections come from, in their order; none where its routes decide.
    pub fn source_addresses(&self) -> &[IpAddr] {
        match self {
            ClientConfig::Rtsp(_) | ClientConfig::HttpTs(_) => &[],
            ClientConfig::Messages(config) => &config.source_addresses,
        }
    }

    /// Whether media comes from multicast groups, which clients share.
    pub fn is_multicast(&self) -> bool {
        match self {
            ClientConfig::Rtsp(config) => config.transport == rtsp::config::Transport::Multicast,
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => false,
        }
    }
}

/// What the clients of a run know of it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// What the wall clock showed, since 1970, when the run's time began.
    wall_clock: Arc<OnceLock<Duration>>,
    /// The streams that its clients publish, by the names that their protocols give them.
    published: Arc<BTreeSet<String>>,
    /// Whether frames may bear time codes.
    time_codes: bool,
}

impl Surroundings {
    /// Of a run of these populations: the configuration of each, and the URLs that its clients are sent to.
    pub fn new<'a>(
        populations: impl IntoIterator<Item = (&'a ClientConfig, &'a [String])>,
    ) -> Surroundings {
        let mut time_codes = false;
        let mut published = BTreeSet::new();
        for (own, urls) in populations {
            time_codes |= own.brings_time_codes();
            if own.publishes() {
                published.extend(urls.iter().filter_map(|url| stream_name(url)));
            }
        }
        Surroundings {
            wall_clock: Arc::default(),
            published: Arc::new(published),
            time_codes,
        }
    }

    /// Whether clients of the run publish the stream that a URL leads to.
    pub fn publishes(&self, url: &str) -> bool {
        !self.published.is_empty()
            && stream_name(url).is_some_and(|name| self.published.contains(&name))
    }

    /// Says what the wall clock showed when the run's time began. To be said before any client is made; only the first
    /// call counts, so that all clients of the run share one clock.
    pub fn begin(&self, wall_clock: Duration) {
        // Said twice, it stays as it was.
        let _ = self.wall_clock.set(wall_clock);
    }
}

/// The name of the stream that a URL leads to.
fn stream_name(url: &str) -> Option<String> {
    match find_by_url(url)?.kind {
        Kind::Rtsp => Some(rtsp::url::Url::parse(url).ok()?.stream_name()),
        Kind::HttpTs | Kind::Messages => None,
    }
}

/// The clients of a population, ready to be made: what they publish is made already.
#[derive(Clone, Debug)]
pub struct Clients {
    config: ClientConfig,
    source: Option<Arc<Source>>,
    /// What they change between.
    channels: Option<Arc<http_ts::client::Channels>>,
    surroundings: Surroundings,
    /// Of clients of messages: what those that are sent to one URL have in common.
    plans: Arc<Mutex<BTreeMap<String, Arc<messages::client::Plan>>>>,
}

impl Clients {
    /// Makes what they publish, where they do. It may take some seconds. `file` is what [`ClientConfig::source_file`] holds.
    ///
    /// # Errors
    /// The source cannot be made; the text says why.
    pub fn new(
        config: &ClientConfig,
        file: Option<&[u8]>,
        surroundings: &Surroundings,
    ) -> Result<Clients, String> {
        let source = match config {
            ClientConfig::Rtsp(config) => config.publish.as_ref(),
            ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => None,
        };
        let source = source.map(|source| Source::new(source, file)).transpose()?;
        Ok(Clients {
            config: config.clone(),
            source: source.map(Arc::new),
            channels: None,
            surroundings: surroundings.clone(),
            plans: Arc::default(),
        })
    }

    /// Says between which URLs those change that change channel: each is followed by the next where that is `in_turn`, else by any other.
    ///
    /// # Errors
    /// What is wrong with a URL.
    pub fn among(mut self, urls: &[String], in_turn: bool) -> Result<Clients, String> {
        if self.config.changes_channel() {
            let channels = http_ts::client::Channels::new(urls, in_turn);
            self.channels = Some(Arc::new(channels.map_err(|error| error.to_string())?));
        }
        Ok(self)
    }

    /// A client that is sent to `url`. All that it chooses at random follows from `seed`.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn client(&self, url: &str, seed: u64) -> Result<Box<dyn Session>, String> {
        let config = match &self.config {
            ClientConfig::Rtsp(config) => config,
            ClientConfig::HttpTs(config) => {
                let mut client = http_ts::client::Client::new(config.clone(), url)
                    .map_err(|error| error.to_string())?;
                if let Some(&wall_clock) = self.surroundings.wall_clock.get() {
                    client = client.with_wall_clock(wall_clock);
                }
                if let Some(channels) = &self.channels {
                    client = client.zapping(channels.clone(), seed);
                }
                return Ok(Box::new(client));
            }
            ClientConfig::Messages(config) => {
                let plan = self.plan(config, url)?;
                return Ok(Box::new(messages::client::Client::new(plan, seed)));
            }
        };
        let mut client = rtsp::client::Client::new(config.clone(), url, seed)
            .map_err(|error| error.to_string())?;
        // Players look for time codes where there may be any: each packet costs more there.
        if (self.surroundings.time_codes || self.source.is_some())
            && let Some(&wall_clock) = self.surroundings.wall_clock.get()
        {
            client = client.with_wall_clock(wall_clock);
        }
        if let Some(source) = &self.source {
            client = client.publishing(source.clone());
        } else if self.surroundings.publishes(url) {
            client = client.waiting_for_publisher();
        }
        Ok(Box::new(client))
    }
}

impl Clients {
    /// What clients of messages that are sent to this URL have in common.
    fn plan(
        &self,
        config: &messages::config::ClientConfig,
        url: &str,
    ) -> Result<Arc<messages::client::Plan>, String> {
        // A thread that broke down in here left the plans as they were.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(url) {
            return Ok(plan.clone());
        }
        let wall_clock = self.surroundings.wall_clock.get();
        let wall_clock = wall_clock.copied().unwrap_or_default();
        let plan = Arc::new(messages::client::Plan::new(config, url, wall_clock)?);
        plans.insert(url.to_owned(), plan.clone());
        Ok(plan)
    }
}

/// A session that asks what the media of `url` is, as one of [`Clients`] would before it plays: it says
/// [`crate::session::Output::Described`], or fails, and ends. None where that cannot be asked for: of who publishes, and
/// of a stream that the run publishes itself, which is not there before it begins.
///
/// An error says what is wrong with the URL.
pub fn asking(
    config: &ClientConfig,
    surroundings: &Surroundings,
    url: &str,
    seed: u64,
) -> Option<Result<Box<dyn Session>, String>> {
    if config.publishes() || surroundings.publishes(url) {
        return None;
    }
    match config {
        ClientConfig::Rtsp(config) => Some(
            rtsp::client::Client::asking(config.clone(), url, seed)
                .map(|client| Box::new(client) as Box<dyn Session>)
                .map_err(|error| error.to_string()),
        ),
        // Nothing describes what is to come.
        ClientConfig::HttpTs(_) | ClientConfig::Messages(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_schemes_lead_to_the_protocol() {
        assert_eq!(find("rtsp").map(|p| p.name), Some("rtsp"));
        assert!(find("RTSP2").is_none());
        assert_eq!(find_by_url("RTSP://h/a").map(|p| p.name), Some("rtsp"));
        assert!(find_by_url("h/a").is_none());
        assert_eq!(find_by_url("https://h/a").map(|p| p.name), Some("http-ts"));
        for (at, protocol) in PROTOCOLS.iter().enumerate() {
            assert!(PROTOCOLS[..at].iter().all(|p| p.name != protocol.name));
            assert_eq!(protocol.default_config().protocol().name, protocol.name);
        }
    }

    #[test]
    fn every_metric_of_a_protocol_has_a_name_of_its_own() {
        for protocol in PROTOCOLS {
            let mut names: Vec<&str> = protocol.catalogue.metrics().map(|m| m.name).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "of {}", protocol.name);
        }
    }

    #[test]
    fn keys_are_decoded_and_described() {
        let protocol = find("rtsp").expect("it is in the list");
        let config = protocol
            .decode_config(serde_json::json!({"transport": "tcp"}))
            .expect("valid");
        assert_eq!(config.sockets_per_client(), 1);
        assert_eq!(protocol.default_config().sockets_per_client(), 5);
        assert!(
            protocol
                .decode_config(serde_json::json!({"tranport": "tcp"}))
                .is_err()
        );
        let keys = protocol.config_keys();
        assert!(keys.iter().any(|key| key == "request_timeout"), "{keys:?}");
        let written = serde_json::to_value(&config).expect("plain data");
        assert_eq!(written["transport"], "tcp");
        assert_eq!(protocol.decode_config(written).expect("valid"), config);
    }

    #[test]
    fn nobody_asks_for_what_the_run_itself_publishes() {
        let player = RTSP_PROTOCOL.default_config();
        let ClientConfig::Rtsp(config) = &player else {
            panic!("{player:?} is of another protocol");
        };
        let publisher = ClientConfig::Rtsp(rtsp::config::ClientConfig {
            publish: Some(Default::default()),
            ..config.clone()
        });
        let own = ["rtsp://127.0.0.1:8554/live1".to_owned()];
        let surroundings = Surroundings::new([(&player, &own[..0]), (&publisher, &own[..])]);
        let asks = |config, url| asking(config, &surroundings, url, 0).is_some();
        assert!(!asks(&publisher, &own[0]));
        assert!(!asks(&player, &own[0]));
        assert!(asks(&player, "rtsp://127.0.0.1:8554/elsewhere"));
    }

    #[test]
    fn a_wrong_url_makes_no_client() {
        let config = RTSP_PROTOCOL.default_config();
        let clients =
            Clients::new(&config, None, &Surroundings::default()).expect("nothing to make");
        assert!(clients.client("rtsp://127.0.0.1/a", 1).is_ok());
        assert!(clients.client("http://127.0.0.1/a", 1).is_err());
        assert!(RTSP_PROTOCOL.check_url("rtsp://").is_err());
    }
}
