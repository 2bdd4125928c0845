//! Registry entry of RTSP.

use std::path::PathBuf;
use std::sync::Arc;

use measure::Catalogue;

use super::actions;
use super::client::Client;
use super::config::{ClientConfig, Transport};
use super::metrics::RTSP;
use super::server::reference::SERVER;
use super::url::{self, Url};
use crate::descriptor::{
    self, ASSUMED_STREAMS, ClientFactory, ClientIdentity, Location, PopulationKeys, Probe,
    Protocol, RunContext, StreamName,
};
use crate::media::rtp::{self, metrics::RTP};
use crate::media::source::{MediaSource, SourceConfig};
use crate::metrics::CLIENTS;
use crate::options::ClientOptions;
use crate::remote_receiver::MediaConfig;
use crate::session::Session;
use crate::tls::TlsConfig;
use crate::viewer::VIEWERS;

/// RTSP 1.0 with RTP (RFC 2326, RFC 3550).
pub static PROTOCOL: Protocol = Protocol {
    name: "rtsp",
    schemes: &["rtsp", "rtsps"],
    default_port: url::DEFAULT_PORT,
    transport: descriptor::Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &VIEWERS, &RTP, &RTSP]),
    datagrams: Some(rtp::READ_NEEDS),
    stream_columns: &[rtp::RTP_COLUMNS],
    parse_url: read_url,
    probe: Some(Probe {
        request: |url| {
            format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n")
        },
        answer: b"RTSP/1.0 200",
    }),
    server: Some(&SERVER),
    trials: &[],
    options: &ClientOptions::NONE,
    former_key: |_| None,
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.is_secure(),
        default_port: match url.is_secure() {
            true => url::DEFAULT_TLS_PORT,
            false => url::DEFAULT_PORT,
        },
        stream: Some(StreamName::new(
            url.stream_name(),
            url.host(),
            url.target().split('?').next().unwrap_or_default(),
        )),
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

    fn capacity_thresholds(&self) -> &'static [&'static str] {
        &["loss < 1%", "startup_delay.p95 < 2s"]
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        match self.publish {
            Some(_) => &["sent_packets > 0", "not_taken == 0"],
            None => &["received > 0", "streams_silent == 0"],
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
        let source = source
            .map(|source| MediaSource::new(source, file))
            .transpose()?;
        Ok(Box::new(RtspClients {
            config: self.clone(),
            source: source.map(Arc::new),
            surroundings: surroundings.clone(),
        }))
    }

    fn describe_session(&self, url: &str, seed: u64) -> Option<Result<Box<dyn Session>, String>> {
        Some(match Client::describing(self.clone(), url, seed) {
            Ok(client) => Ok(Box::new(client)),
            Err(error) => Err(error.to_string()),
        })
    }

    fn sockets_per_client(&self, _: u64) -> u64 {
        self.max_sockets(ASSUMED_STREAMS) as u64
    }

    fn udp_pairs_per_client(&self, _: u64) -> u64 {
        match self.transport {
            Transport::Udp if self.has_remote_receiver() => 0,
            Transport::Udp => ASSUMED_STREAMS as u64,
            Transport::Tcp | Transport::Http | Transport::Multicast => 0,
        }
    }

    fn actions(&self) -> Option<String> {
        actions::describe_actions(&self.actions)
    }

    fn media(&self) -> Option<&MediaConfig> {
        self.media.as_ref()
    }

    fn media_mut(&mut self) -> Option<&mut MediaConfig> {
        self.media.as_mut()
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

    fn is_multicast(&self) -> bool {
        self.transport == Transport::Multicast
    }
}

/// Factory for the clients of a population.
#[derive(Debug)]
struct RtspClients {
    config: ClientConfig,
    source: Option<Arc<MediaSource>>,
    surroundings: RunContext,
}

impl ClientFactory for RtspClients {
    fn client(&self, url: &str, seat: ClientIdentity) -> Result<Box<dyn Session>, String> {
        let mut client =
            Client::new(self.config.clone(), url, seat.seed).map_err(|error| error.to_string())?;
        // Players look for time codes only where there may be any, because it makes each packet
        // more expensive.
        if (self.surroundings.has_time_codes() || self.source.is_some())
            && let Some(wall_clock) = self.surroundings.wall_clock()
        {
            client = client.with_wall_clock(wall_clock);
        }
        if let Some(source) = &self.source {
            client = client.with_source(source.clone());
        }
        Ok(Box::new(client))
    }
}
