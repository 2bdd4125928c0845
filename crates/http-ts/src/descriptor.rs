//! Registry entry of transport streams over HTTP.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use measure::Catalogue;

use super::client::Client;
use super::config::{self, ClientConfig};
use super::metrics::HTTP_TS;
use super::relay::reference::SERVER;
use kit::descriptor::{
    ClientFactory, ClientIdentity, Facts, KeysType, Location, PopulationKeys, PopulationPlan,
    Protocol, RunContext, StreamName, Transport,
};
use kit::http1::Url;
use kit::keys::KeyError;
use kit::media::rtp::{RTP_COLUMNS, TS_COLUMNS};
use kit::media::ts::metrics::TS;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::options::ClientOptions;
use kit::viewer::VIEWERS;
use kit::zapping::Channels;
use session::Session;

/// Transport streams over HTTP/1 (ISO/IEC 13818-1, RFC 9112).
pub static PROTOCOL: Protocol = Protocol {
    name: "http-ts",
    schemes: &["http", "https"],
    path_suffix: None,
    default_port: Url::DEFAULT_PORT,
    transport: Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &TS, &HTTP_TS]),
    datagrams: None,
    capacity_thresholds: Protocol::LATE_OR_WITH_GAPS,
    stream_columns: &[RTP_COLUMNS, TS_COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: &[],
    options: &ClientOptions::NONE,
    keys: KeysType::of::<ClientConfig>(),
    former_key: config::removed_key_advice,
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.is_secure(),
        default_port: match url.is_secure() {
            true => Url::DEFAULT_TLS_PORT,
            false => Url::DEFAULT_PORT,
        },
        stream: Some(StreamName::new(
            format!("http {}:{} {}", url.host(), url.port(), url.target()),
            url.host(),
            stream_path(url.target()),
        )),
    })
}

/// Returns the path of a stream, without query and without the suffix `.ts`.
fn stream_path(target: &str) -> &str {
    let path = target.split('?').next().unwrap_or_default();
    path.strip_suffix(".ts").unwrap_or(path)
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            tls: Some(&self.tls),
            ..Facts::new(&PROTOCOL, None, self.zap)
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        match self.zap {
            Some(_) => &[
                "non_null_packets > 0",
                "streams_silent == 0",
                "zaps_failed == 0",
            ],
            None => &["non_null_packets > 0", "streams_silent == 0"],
        }
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.tls.ca.as_mut().into_iter().collect()
    }

    fn clients(
        &self,
        _file: Option<&[u8]>,
        surroundings: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        Ok(Box::new(Clients {
            config: Arc::new(self.clone()),
            channels: None,
            surroundings: surroundings.clone(),
        }))
    }

    fn group_of(&self, url: &str) -> Option<IpAddr> {
        let url = Url::parse(url).ok()?;
        Some(ClientConfig::group_of(self, &url)?.ip())
    }
}

/// State that the clients of a population share.
#[derive(Debug)]
struct Clients {
    config: Arc<ClientConfig>,
    /// Channels between which they change.
    channels: Option<Arc<Channels<Url>>>,
    surroundings: RunContext,
}

impl ClientFactory for Clients {
    fn set_population(&mut self, crowd: &PopulationPlan<'_>) -> Result<(), String> {
        if self.config.zap.is_some() {
            let urls = crowd.urls.iter().map(|url| Url::parse(url));
            let urls: Vec<Url> = urls
                .collect::<Result<_, _>>()
                .map_err(|error| error.to_string())?;
            self.channels = Some(Arc::new(Channels::new(urls, crowd.in_turn)));
        }
        Ok(())
    }

    fn client(&self, url: &str, seat: ClientIdentity) -> Result<Box<dyn Session>, String> {
        let mut client =
            Client::new(self.config.clone(), url).map_err(|error| error.to_string())?;
        if let Some(wall_clock) = self.surroundings.wall_clock() {
            client = client.with_wall_clock(wall_clock);
        }
        if let Some(channels) = &self.channels {
            client = client.zapping(channels.clone(), seat.seed);
        }
        Ok(Box::new(client))
    }
}
