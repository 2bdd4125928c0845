//! Registry entry of RTMP.

use std::path::PathBuf;
use std::sync::Arc;

use measure::Catalogue;

use super::calibration;
use super::client::{COLUMNS, Client};
use super::config::ClientConfig;
use super::metrics::RTMP;
use super::server::reference::SERVER;
use super::source::Tracks;
use super::url::{self, Url};
use crate::descriptor::{
    ClientFactory, ClientIdentity, Location, PopulationKeys, Protocol, RunContext, StreamName,
    Transport,
};
use crate::media::frames::metrics::FRAMES_GROUP;
use crate::media::source::SourceConfig;
use crate::metrics::CLIENTS;
use crate::options::ClientOptions;
use crate::session::Session;
use crate::tls::TlsConfig;
use crate::viewer::VIEWERS;

/// RTMP 1.0.
pub static PROTOCOL: Protocol = Protocol {
    name: "rtmp",
    schemes: &["rtmp", "rtmps"],
    default_port: url::DEFAULT_PORT,
    transport: Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &VIEWERS, &FRAMES_GROUP, &RTMP]),
    datagrams: None,
    stream_columns: &[COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: calibration::TRIALS,
    options: &ClientOptions::NONE,
    former_key: |_| None,
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text, None).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.is_secure(),
        default_port: match url.is_secure() {
            true => url::DEFAULT_TLS_PORT,
            false => url::DEFAULT_PORT,
        },
        stream: Some(StreamName::new(url.topic(), url.host(), &url.path())),
    })
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        ClientConfig::check(self)
    }

    fn tls(&self) -> Option<&TlsConfig> {
        Some(&self.tls)
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        match self.publish {
            Some(_) => &["sent_frames > 0", "not_taken == 0"],
            None => &["frames > 0", "streams_silent == 0"],
        }
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let source = self.publish.as_mut();
        let file = source.and_then(|source| source.file.as_mut());
        self.tls.ca.as_mut().into_iter().chain(file).collect()
    }

    fn clients(
        &self,
        file: Option<&[u8]>,
        surroundings: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        let source = self.publish.as_ref();
        let source = source.map(|source| Tracks::new(source, file)).transpose()?;
        Ok(Box::new(Clients {
            config: self.clone(),
            source: source.map(Arc::new),
            surroundings: surroundings.clone(),
        }))
    }

    fn published(&self) -> Option<&SourceConfig> {
        self.publish.as_ref()
    }

    fn allows_time_codes(&self) -> bool {
        self.publish.is_some() || self.time_codes
    }

    fn stay_description(&self) -> Option<String> {
        let stays = self.publish.is_some();
        stays.then(|| "stay until the run ends".to_owned())
    }

    fn ends_on_its_own(&self) -> bool {
        self.publish.is_none()
    }
}

/// State that the clients of a population share.
#[derive(Debug)]
struct Clients {
    config: ClientConfig,
    source: Option<Arc<Tracks>>,
    surroundings: RunContext,
}

impl ClientFactory for Clients {
    fn client(&self, url: &str, seat: ClientIdentity) -> Result<Box<dyn Session>, String> {
        let mut client =
            Client::new(self.config.clone(), url, seat.seed).map_err(|error| error.to_string())?;
        // Players look for time codes only if frames may carry them.
        if (self.surroundings.has_time_codes() || self.source.is_some())
            && let Some(wall_clock) = self.surroundings.wall_clock()
        {
            client = client.with_wall_clock(wall_clock);
        }
        if let Some(source) = &self.source {
            client = client.publishing(source.clone());
        }
        Ok(Box::new(client))
    }
}
