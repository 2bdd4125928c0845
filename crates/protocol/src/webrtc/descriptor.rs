//! WebRTC as the registry lists it.

use std::path::PathBuf;
use std::sync::Arc;

use measure::Catalogue;

use super::calibration::TRIALS;
use super::certificate::Certificate;
use super::client::Client;
use super::config::{self, ClientConfig, Receive};
use super::golden;
use super::metrics::WEBRTC;
use super::server::reference::SERVER;
use super::signalling::janus::Subscribe;
use super::turn::TurnTransport;
use super::url::{SCHEMES, Url};
use crate::browser::{Golden, Page};
use crate::descriptor::{self, Keys, Location, MakeClients, Protocol, Seat, Surroundings};
use crate::http1;
use crate::media::rtp::{self, metrics::RTP};
use crate::media::source::{MediaSource, SourceConfig};
use crate::metrics::CLIENTS;
use crate::options::{ClientOption, ClientOptions};
use crate::session::{Needs, Session};
use crate::tls::TlsConfig;

/// WebRTC, by WHIP, WHEP or Janus.
pub static PROTOCOL: Protocol = Protocol {
    name: "webrtc",
    schemes: SCHEMES,
    default_port: http1::Url::DEFAULT_PORT,
    transport: descriptor::Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &RTP, &WEBRTC]),
    datagrams: Some(Needs {
        // The length of padding is encrypted: no packet is needed as a whole.
        whole_if: 0,
        ..rtp::NEEDS
    }),
    stream_columns: &[rtp::RTP_COLUMNS],
    read_url,
    probe: None,
    server: Some(&SERVER),
    trials: TRIALS,
    options: &OPTIONS,
    former_key: |_| None,
};

static OPTIONS: ClientOptions = ClientOptions {
    heading: "WebRTC (whep+http, whip+http, janus+ws and janus+http URLs)",
    options: &[ClientOption::new(
        "token",
        "token",
        "TOKEN",
        "The token that a WHIP, WHEP or Janus server is shown",
    )],
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.at.is_secure(),
        // What was written, or what is usual for the scheme.
        default_port: url.at.port(),
        stream_name: url.stream_name(),
    })
}

impl Keys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        ClientConfig::check(self)
    }

    fn tls(&self) -> Option<&TlsConfig> {
        Some(&self.tls)
    }

    fn unwritten(&self) -> &'static [&'static str] {
        match (&self.publish, &self.participate) {
            // A server says what it receives (RFC 8834, 4.1): of one that says nothing nobody knows
            // whether it took anything.
            (Some(_), _) => &["sent_packets > 0", "not_taken == 0", "receiver_reports > 0"],
            (None, Some(_)) => &[
                "sent_packets > 0",
                "not_taken == 0",
                "receiver_reports > 0",
                "unauthentic == 0",
                "streams_silent == 0",
            ],
            (None, None) => &["received > 0", "unauthentic == 0", "streams_silent == 0"],
        }
    }

    /// What is opened is needed as a whole.
    fn datagrams(&self) -> Option<Needs> {
        // Those of a TURN server have media within: only sessions take it out.
        match (&self.turn, self.receive) {
            (Some(_), _) => None,
            (None, Receive::Headers) => PROTOCOL.datagrams,
            (None, Receive::Decrypted) => Some(Needs::ALL),
        }
    }

    fn by_sockets(&self) -> bool {
        let url = self.turn.as_ref().and_then(|turn| turn.check().ok());
        url.is_some_and(|url| url.transport == TurnTransport::Udp)
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let source = self.publish.as_mut().or(self.participate.as_mut());
        let file = source.and_then(|source| source.file.as_mut());
        self.tls.ca.as_mut().into_iter().chain(file).collect()
    }

    fn clients(
        &self,
        file: Option<&[u8]>,
        surroundings: &Surroundings,
    ) -> Result<Box<dyn MakeClients>, String> {
        let source = self.source().map(config::usual);
        let source = source.map(|source| MediaSource::live(&source, file));
        Ok(Box::new(Clients {
            config: self.clone(),
            source: source.transpose()?.map(Arc::new),
            certificate: Arc::new(Certificate::generate(CERTIFICATE_SEED)),
            surroundings: surroundings.clone(),
        }))
    }

    /// The signalling, and those of PeerConnections.
    fn sockets_per_client(&self, clients: u64) -> u64 {
        1 + self.peers_per_client(clients)
    }

    /// A TURN server is reached from any port: a ring shows nothing of it, and of a connection to
    /// one it shows segments.
    fn udp_pairs_per_client(&self, clients: u64) -> u64 {
        match self.turn {
            Some(_) => 0,
            None => self.peers_per_client(clients),
        }
    }

    fn published(&self) -> Option<&SourceConfig> {
        self.publish.as_ref()
    }

    fn source_file(&self) -> Option<&PathBuf> {
        self.source()?.file.as_ref()
    }

    fn brings_time_codes(&self) -> bool {
        self.source().is_some() || self.time_codes
    }

    fn golden(&self) -> Option<Golden> {
        self.golden
    }

    fn golden_page(&self, url: &str) -> Result<Page, String> {
        golden::page(self, url)
    }

    fn stays(&self) -> Option<String> {
        let stays = self.source().is_some();
        stays.then(|| "stay until the run ends".to_owned())
    }

    fn leaves(&self) -> bool {
        self.source().is_none()
    }
}

impl ClientConfig {
    /// PeerConnections: one for what it sends, and one for all that it receives, or for each of the
    /// others.
    fn peers_per_client(&self, clients: u64) -> u64 {
        let sends = u64::from(self.participate.is_some());
        match self.subscribe {
            Subscribe::Together => sends + 1,
            Subscribe::Each => sends + clients.saturating_sub(1).max(1),
            Subscribe::Nobody => 1,
        }
    }
}

/// All clients of all runs show the same certificate: nobody trusts it for more than that it is the
/// one of which their descriptions tell.
const CERTIFICATE_SEED: u64 = 1;

/// What the clients of a population have in common.
#[derive(Debug)]
struct Clients {
    config: ClientConfig,
    source: Option<Arc<MediaSource>>,
    certificate: Arc<Certificate>,
    surroundings: Surroundings,
}

impl MakeClients for Clients {
    fn client(&self, url: &str, seat: Seat) -> Result<Box<dyn Session>, String> {
        let certificate = self.certificate.clone();
        let mut client = Client::new(self.config.clone(), url, seat.seed, certificate)
            .map_err(|error| error.to_string())?;
        if let Some(wall_clock) = self.surroundings.wall_clock() {
            client = client.with_wall_clock(wall_clock);
        }
        if self.surroundings.has_time_codes() {
            client = client.looking_for_codes();
        }
        if let Some(source) = &self.source {
            client = client.publishing(source.clone());
        } else if self.surroundings.publishes(url) {
            client = client.waiting_for_publisher();
        }
        Ok(Box::new(client))
    }
}
