//! Registry entry of WebRTC.

use std::path::PathBuf;
use std::sync::Arc;

use measure::{Catalogue, CounterId};

use super::calibration::TRIALS;
use super::certificate::Certificate;
use super::client::Client;
use super::config::{self, Certificates, ClientConfig, Receive};
use super::failure::Failure;
use super::golden;
use super::metrics::WEBRTC;
use super::server::reference::SERVER;
use super::signalling::janus::room_config::Subscribe;
use super::tracks::{AUTHENTICATED_SAMPLE, FEEDBACK_DELAY_MAX};
use super::turn::TurnTransport;
use super::url::{Resource, SCHEMES, Url};
use kit::browser::Page;
use kit::descriptor::{
    self, ClientFactory, ClientIdentity, Facts, KeysType, Location, PopulationKeys, PopulationPlan,
    Protocol, RunContext, SocketNeeds, StreamName,
};
use kit::http1;
use kit::keys::KeyError;
use kit::media::rtp::{self, StreamSummary, metrics::RTP};
use kit::media::source::MediaSource;
use kit::media::talk::{Member, TalkConfig, TurnSchedule};
use kit::metrics::{CLIENTS, ZAPPING, ZAPS_FAILED_BROKEN};
use kit::options::{ClientOption, ClientOptions};
use kit::viewer::VIEWERS;
use kit::zapping::{ViewerMaker, Viewers};
use session::seeds::derive_seed;
use session::{CaptureNeeds, Session, StreamRow};

/// WebRTC with signalling by WHIP, WHEP, Janus or LiveKit.
pub static PROTOCOL: Protocol = Protocol {
    name: "webrtc",
    schemes: SCHEMES,
    path_suffix: None,
    default_port: http1::Url::DEFAULT_PORT,
    transport: descriptor::Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &WEBRTC]),
    datagrams: Some(CaptureNeeds {
        // The length of padding is encrypted, so no packet is needed whole.
        whole_if: 0,
        // To authenticate the first ones of each stream.
        whole_sample: Some(AUTHENTICATED_SAMPLE),
        delay_max: Some(FEEDBACK_DELAY_MAX),
        ..rtp::READ_NEEDS
    }),
    capacity_thresholds: &["loss < 1%", "startup_delay.p95 < 2s"],
    stream_columns: &[rtp::RTP_COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: TRIALS,
    options: &OPTIONS,
    keys: KeysType::of::<ClientConfig>(),
    former_key: |_| None,
};

static OPTIONS: ClientOptions = ClientOptions {
    heading: "WebRTC (whep+http, whip+http, janus+ws, janus+http and livekit+ws URLs)",
    options: &[
        ClientOption::new(
            "token",
            "token",
            "TOKEN",
            "Token for a WHIP, WHEP, Janus or LiveKit server",
        ),
        ClientOption::new(
            "api-key",
            "api_key",
            "NAME",
            "LiveKit API key, with which each client makes its token",
        ),
        ClientOption::new(
            "api-secret",
            "api_secret",
            "SECRET",
            "Secret of the LiveKit API key, or Janus API secret",
        ),
    ],
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.endpoint.is_secure(),
        // The port of the URL, or the default port of the scheme.
        default_port: url.endpoint.port(),
        stream: Some(StreamName {
            is_awaited: !url.is_room(),
            ..StreamName::new(
                url.topic(),
                &url.host(),
                &url.stream_path().unwrap_or_default(),
            )
        }),
    })
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        let published = self.publish.as_ref().or(self.feed.as_ref());
        let usual = Facts::new(&PROTOCOL, published, self.zap).sending(self.source());
        let only_sends = self.participate.is_some() && self.subscribe == Subscribe::Nobody;
        let turn = self.turn.as_ref().and_then(|turn| turn.check().ok());
        Facts {
            tls: Some(&self.tls),
            receives: usual.receives && !only_sends,
            time_codes: usual.time_codes || self.time_codes,
            datagrams: match (&self.turn, self.receive) {
                // Datagrams of a TURN server contain media that only the session can extract.
                (Some(_), _) => None,
                (None, Receive::Headers) => usual.datagrams,
                // Packets to be decrypted are needed whole.
                (None, Receive::Decrypted) => Some(CaptureNeeds {
                    delay_max: Some(FEEDBACK_DELAY_MAX),
                    ..CaptureNeeds::ALL
                }),
            },
            by_sockets: turn.is_some_and(|url| url.transport == TurnTransport::Udp),
            golden: self.golden,
            ..usual
        }
    }

    /// One socket per signalling connection and per PeerConnection. No UDP port with a TURN server,
    /// which is reached from arbitrary ports: the packet ring shows nothing of its datagrams, and
    /// only segments of a connection to it.
    fn sockets_per_client(&self, clients: u64) -> SocketNeeds {
        let peers = self.peers_per_client(clients);
        SocketNeeds {
            // The signalling has at most two connections.
            descriptors: self.channels() * (2 + peers),
            udp_pairs: match self.turn {
                Some(_) => 0,
                None => self.channels() * peers,
            },
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn check_url(&self, url: &str) -> Result<(), KeyError> {
        let resource = Url::parse(url).map(|url| url.resource);
        self.check_zap(matches!(resource, Ok(Resource::Whep) | Err(_)))?;
        self.check_mountpoint(matches!(resource, Ok(Resource::Mountpoint(_))))?;
        match resource {
            Ok(Resource::LiveKit(_)) => {
                self.check_without_janus_room(true)?;
                self.check_for_livekit()?;
                self.check_authorization(true)
            }
            Err(_) => Ok(()),
            Ok(Resource::Room(_)) => self.check_room(),
            Ok(Resource::Mountpoint(_)) => self.check_without_janus_room(false),
            Ok(resource @ (Resource::Whep | Resource::Whip)) => {
                self.check_without_janus_room(false)?;
                self.check_direction(resource == Resource::Whip)?;
                self.check_authorization(false)
            }
        }
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        // Janus does not report what a mount point receives.
        if self.feed.is_some() {
            return &["sent_packets > 0", "not_taken == 0"];
        }
        match (&self.publish, &self.participate) {
            // A server must report what it receives (RFC 8834, 4.1). Without reports, it is unknown
            // whether it received anything.
            (Some(_), _) => &["sent_packets > 0", "not_taken == 0", "receiver_reports > 0"],
            (None, Some(_)) => &[
                "sent_packets > 0",
                "not_taken == 0",
                "receiver_reports > 0",
                "unauthentic == 0",
                "streams_silent == 0",
            ],
            (None, None) if self.zap.is_some() => &[
                "received > 0",
                "unauthentic == 0",
                "streams_silent == 0",
                "zaps_failed == 0",
            ],
            (None, None) => &["received > 0", "unauthentic == 0", "streams_silent == 0"],
        }
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let source = self.publish.as_mut().or(self.participate.as_mut());
        let source = source.or(self.feed.as_mut());
        let file = source.and_then(|source| source.file.as_mut());
        self.tls.ca.as_mut().into_iter().chain(file).collect()
    }

    fn clients(
        &self,
        file: Option<&[u8]>,
        context: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        let source = self.source().map(config::with_limited_mtu);
        let source = source.map(|source| MediaSource::adaptive(&source, file));
        let maker = ClientMaker {
            config: Arc::new(self.clone()),
            source: source.transpose()?.map(Arc::new),
            certificate: Arc::new(Certificate::generate(CERTIFICATE_SEED)),
            context: context.clone(),
            urls: Vec::new(),
        };
        Ok(Box::new(Clients {
            viewers: Viewers::new(maker, self.zap),
            talk: self.source().and_then(|source| source.talk),
            rooms: Vec::new(),
            clients: 1,
        }))
    }

    fn golden_page(&self, url: &str) -> Result<Page, String> {
        golden::page(self, url)
    }
}

impl ClientConfig {
    /// Maximum number of channels of one client: it says goodbye to one while it requests the next.
    fn channels(&self) -> u64 {
        1 + u64::from(self.zap.is_some())
    }

    /// Number of PeerConnections per client: one to send, and one to receive all others, or one to
    /// receive each of them.
    fn peers_per_client(&self, clients: u64) -> u64 {
        let sends = u64::from(self.participate.is_some());
        match self.subscribe {
            Subscribe::Together => sends + 1,
            Subscribe::Each => sends + clients.saturating_sub(1).max(1),
            Subscribe::Nobody => 1,
        }
    }
}

/// Seed of the certificate that all clients share, unless each has its own. Its key is the same in
/// all runs. The certificate proves only that it is the one in the description.
const CERTIFICATE_SEED: u64 = 1;

/// Shared state of the clients of a population.
#[derive(Debug)]
struct Clients {
    viewers: Viewers<ClientMaker>,
    talk: Option<TalkConfig>,
    /// URLs of the rooms in which clients talk; empty if all talk together.
    rooms: Vec<String>,
    clients: u64,
}

impl Clients {
    /// Returns the position of a client among those that talk in the same room.
    fn member(&self, url: &str, identity: ClientIdentity) -> Member {
        let room = self.rooms.iter().position(|room| room == url);
        let (room, rooms) = match room {
            Some(room) => (room as u64, self.rooms.len() as u64),
            None => (0, 1),
        };
        Member {
            seed: derive_seed(&[identity.shared_seed, room]),
            // Consecutive clients are in consecutive rooms.
            index: identity.index / rooms,
            group_size: self.clients.saturating_sub(room).div_ceil(rooms),
        }
    }
}

/// Maker of clients, each of which has one URL.
#[derive(Debug)]
struct ClientMaker {
    config: Arc<ClientConfig>,
    source: Option<Arc<MediaSource>>,
    certificate: Arc<Certificate>,
    context: RunContext,
    /// URLs of the population.
    urls: Vec<String>,
}

impl ClientMaker {
    /// Returns the DTLS certificate of a client.
    fn certificate(&self, seed: u64) -> Arc<Certificate> {
        match self.config.certificate {
            Certificates::Shared => self.certificate.clone(),
            Certificates::Own => Arc::new(Certificate::generate(seed)),
        }
    }

    /// Returns the configuration of one client: with the token of its URL, if each URL has one, or
    /// else of its index.
    fn config_of(&self, url: &str, index: u64) -> Arc<ClientConfig> {
        let tokens = &self.config.tokens;
        if tokens.is_empty() {
            return self.config.clone();
        }
        let position = self.urls.iter().position(|own| own == url);
        let position = position.filter(|_| self.urls.len() == tokens.len());
        let position = position.unwrap_or(index as usize % tokens.len());
        Arc::new(ClientConfig {
            token: tokens.get(position).cloned(),
            tokens: Vec::new(),
            ..(*self.config).clone()
        })
    }
}

impl ViewerMaker for ClientMaker {
    type Client = Client;

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Client, String> {
        let (seed, config) = (identity.seed, self.config_of(url, identity.index));
        let certificate = self.certificate(seed);
        let mut client =
            Client::new(config, url, seed, certificate).map_err(|error| error.to_string())?;
        if let Some(wall_clock) = self.context.wall_clock() {
            client = client.with_wall_clock(wall_clock);
        }
        if self.context.has_time_codes() {
            client = client.with_time_codes();
        }
        if let Some(source) = &self.source {
            client = client.with_source(source.clone());
        }
        Ok(client)
    }

    fn for_later_channel(client: Client) -> Client {
        client.for_later_channel()
    }

    fn zap_failed_counter(&self, reason: &str) -> CounterId {
        Failure::from_name(reason).map_or(ZAPS_FAILED_BROKEN, Failure::zap_counter)
    }

    fn sum_rows(&self, rows: &[StreamRow], title: &str) -> Option<StreamRow> {
        StreamSummary::sum_rows(rows, title)
    }
}

impl ClientFactory for Clients {
    fn set_population(&mut self, plan: &PopulationPlan<'_>) -> Result<(), String> {
        let in_rooms = self.viewers.maker.config.participate.is_some() && plan.urls.len() > 1;
        if self.talk.is_some() && in_rooms && !plan.in_turn {
            return Err(
                "`talk` in several rooms needs `pick: in_turn` or `pick: own`: otherwise it is \
                 unknown who is in the same room"
                    .to_owned(),
            );
        }
        if self.talk.is_some() && in_rooms && plan.may_change_url {
            return Err(
                "`talk` in several rooms with `rejoin` needs `pick: own`: otherwise a replacement \
                 may join another room, where another participant has the same turns"
                    .to_owned(),
            );
        }
        if in_rooms {
            self.rooms = plan.urls.to_vec();
        }
        self.clients = plan.clients;
        let maker = Arc::get_mut(&mut self.viewers.maker).expect("no client has been made");
        maker.urls = plan.urls.to_vec();
        self.viewers.set_population(plan)
    }

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Box<dyn Session>, String> {
        if let Some(client) = self.viewers.zapping(url, identity) {
            return Ok(client);
        }
        let mut client = self.viewers.maker.client(url, identity)?;
        if let Some(talk) = self.talk {
            client = client.with_talk(TurnSchedule::new(talk, self.member(url, identity)));
        }
        Ok(Box::new(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(config: ClientConfig) -> ClientMaker {
        ClientMaker {
            source: None,
            certificate: Arc::new(Certificate::generate(CERTIFICATE_SEED)),
            context: RunContext::default(),
            urls: Vec::new(),
            config: config.into(),
        }
    }

    fn clients() -> Clients {
        let text = r#"{"participate":{"audio":true,"audio_codec":"opus","talk":{}}}"#;
        let config: ClientConfig = serde_json::from_str(text).expect("it is one");
        Clients {
            talk: config.source().and_then(|source| source.talk),
            viewers: Viewers::new(maker(config), None),
            rooms: Vec::new(),
            clients: 1,
        }
    }

    #[test]
    fn clients_share_a_certificate_or_have_their_own() {
        let shown = |maker: &ClientMaker, seed| maker.certificate(seed).fingerprint().clone();
        let shared = maker(ClientConfig::default());
        assert_eq!(shown(&shared, 1), shown(&shared, 2));
        let config: Result<ClientConfig, _> = serde_json::from_str(r#"{"certificate":"own"}"#);
        let own = maker(config.expect("it is one"));
        assert_ne!(shown(&own, 1), shown(&own, 2));
    }

    #[test]
    fn tokens_belong_to_urls_or_take_turns() {
        let config = serde_json::from_str(r#"{"tokens":["a","b"]}"#).expect("it is one");
        let mut maker = maker(config);
        let token = |maker: &ClientMaker, url: &str, index| {
            let config = maker.config_of(url, index);
            config.token.clone()
        };
        maker.urls = vec!["x".to_owned(), "y".to_owned()];
        assert_eq!(token(&maker, "y", 0).as_deref(), Some("b"));
        assert_eq!(token(&maker, "x", 1).as_deref(), Some("a"));
        maker.urls = vec!["x".to_owned()];
        let in_turn = [0, 1, 2].map(|index| token(&maker, "x", index).expect("one"));
        assert_eq!(in_turn, ["a", "b", "a"]);
    }

    #[test]
    fn file_of_every_source_is_resolved() {
        for key in ["publish", "participate", "feed"] {
            let text = format!(r#"{{"{key}":{{"file":"a.mp4"}}}}"#);
            let config: Result<ClientConfig, _> = serde_json::from_str(&text);
            let mut config = config.expect("it is one");
            let paths: Vec<_> = config
                .paths_mut()
                .iter()
                .map(|path| (*path).clone())
                .collect();
            assert_eq!(paths, [PathBuf::from("a.mp4")], "{key}");
        }
    }

    #[test]
    fn keys_are_checked_against_the_kind_of_url() {
        let refused = |text: &str, url: &str| {
            let config: ClientConfig = serde_json::from_str(text).expect("it is one");
            config.check_url(url).err().map(|(key, _)| key)
        };
        let (mount, room) = ("janus+ws://h/streaming/5", "janus+ws://h/videoroom/5");
        for (text, key, of_mount, of_room) in [
            (r#"{}"#, None, true, true),
            (r#"{"feed":{}}"#, Some("feed"), true, false),
            (r#"{"publish":{}}"#, Some("publish"), false, false),
            (r#"{"participate":{}}"#, Some("participate"), false, true),
        ] {
            for (url, is_accepted) in [(mount, of_mount), (room, of_room)] {
                let expected = key.filter(|_| !is_accepted);
                assert_eq!(refused(text, url), expected, "{text} {url}");
            }
        }
        let (whip, whep) = ("whip+http://h/a", "whep+http://h/a");
        for (text, of_whip, of_whep) in [
            (r#"{}"#, Some("publish"), None),
            (r#"{"publish":{}}"#, None, Some("publish")),
            (r#"{"feed":{}}"#, Some("feed"), Some("feed")),
        ] {
            assert_eq!(refused(text, whip), of_whip, "{text}");
            assert_eq!(refused(text, whep), of_whep, "{text}");
        }
        let twice = r#"{"token":"a","headers":{"authorization":"b"}}"#;
        let once = r#"{"headers":{"authorization":"b"}}"#;
        assert_eq!(refused(twice, whep), Some("headers"));
        assert_eq!(refused(once, whep), None);
        // The token of Janus is in its messages.
        assert_eq!(refused(twice, mount), None);
        let livekit = r#"{"api_key":"a","api_secret":"b","headers":{"authorization":"b"}}"#;
        assert_eq!(refused(livekit, "livekit+ws://h/a"), Some("headers"));
        let zap = r#"{"receive":"decrypted","zap":{"every":"1s"}}"#;
        assert_eq!(refused(zap, whep), None);
        assert_eq!(refused(zap, room), Some("zap"));
    }

    #[test]
    fn clients_of_a_room_talk_together() {
        let urls = ["a", "b", "c"].map(str::to_owned);
        let mut clients = clients();
        let plan = |in_turn, moves| PopulationPlan {
            urls: &urls,
            in_turn,
            may_change_url: moves,
            clients: 10,
        };
        assert!(clients.set_population(&plan(false, false)).is_err());
        let refused = clients
            .set_population(&plan(true, true))
            .expect_err("they move");
        assert!(refused.contains("`pick: own`"), "{refused}");
        let taken = clients.set_population(&plan(true, false));
        taken.expect("each room has its own");
        let member = |place: u64| {
            let identity = ClientIdentity {
                seed: place,
                shared_seed: 7,
                index: place,
            };
            clients.member(&urls[place as usize % 3], identity)
        };
        let all: Vec<Member> = (0..10).map(member).collect();
        for (at, one) in all.iter().enumerate() {
            // Ten clients in three rooms: the first room has four.
            let of = if at % 3 == 0 { 4 } else { 3 };
            assert_eq!((one.index, one.group_size), (at as u64 / 3, of));
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(one.seed == other.seed, at % 3 == other_at % 3);
            }
        }
    }
}
