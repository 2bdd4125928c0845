//! Registry entry of RTSP.

use std::path::PathBuf;
use std::sync::Arc;

use measure::{Catalogue, CounterId};

use super::actions;
use super::client::Client;
use super::config::{ClientConfig, Transport};
use super::failure::Failure;
use super::metrics::RTSP;
use super::server::reference::SERVER;
use super::url::{self, Url};
use kit::descriptor::{
    self, ASSUMED_STREAMS, ClientFactory, ClientIdentity, Facts, KeysType, Location,
    PopulationKeys, Probe, Protocol, RunContext, SocketNeeds, StreamName,
};
use kit::keys::KeyError;
use kit::media::rtp::{self, StreamSummary, metrics::RTP};
use kit::media::source::MediaSource;
use kit::metrics::{CLIENTS, ZAPPING, ZAPS_FAILED_BROKEN};
use kit::options::ClientOptions;
use kit::remote_receiver::MediaConfig;
use kit::viewer::VIEWERS;
use kit::zapping::{ViewerMaker, Viewers};
use session::{CaptureNeeds, Session, StreamRow};

/// RTSP 1.0 with RTP (RFC 2326, RFC 3550).
pub static PROTOCOL: Protocol = Protocol {
    name: "rtsp",
    schemes: &["rtsp", "rtsps"],
    path_suffix: None,
    default_port: url::DEFAULT_PORT,
    transport: descriptor::Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &RTSP]),
    datagrams: Some(rtp::READ_NEEDS),
    capacity_thresholds: &["loss < 1%", "startup_delay.p95 < 2s"],
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
    keys: KeysType::of::<ClientConfig>(),
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

    fn facts(&self) -> Facts<'_> {
        let usual = Facts::new(&PROTOCOL, self.publish.as_ref(), self.zap);
        // The beginning of each payload shows whether it begins a picture.
        let datagrams = self.zap.map(|_| CaptureNeeds {
            prefix_bytes: rtp::READ_NEEDS.prefix_bytes + PICTURE_BYTES,
            ..rtp::READ_NEEDS
        });
        Facts {
            tls: Some(&self.tls),
            time_codes: usual.time_codes || self.time_codes,
            actions: usual
                .actions
                .or_else(|| actions::describe_actions(&self.actions)),
            datagrams: datagrams.or(usual.datagrams),
            media: self.media.as_ref(),
            is_multicast: self.transport == Transport::Multicast,
            ..usual
        }
    }

    fn sockets_per_client(&self, _: u64) -> SocketNeeds {
        SocketNeeds {
            descriptors: self.channels() * self.max_sockets(ASSUMED_STREAMS) as u64,
            udp_pairs: match self.transport {
                Transport::Udp if self.has_remote_receiver() => 0,
                Transport::Udp => self.channels() * ASSUMED_STREAMS as u64,
                Transport::Tcp | Transport::Http | Transport::Multicast => 0,
            },
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        match self.publish {
            Some(_) => &["sent_packets > 0", "not_taken == 0"],
            None if self.zap.is_some() => {
                &["received > 0", "streams_silent == 0", "zaps_failed == 0"]
            }
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
        let maker = ClientMaker {
            config: Arc::new(self.clone()),
            source: source.map(Arc::new),
            surroundings: surroundings.clone(),
        };
        Ok(Box::new(Viewers::new(maker, self.zap)))
    }

    fn describe_session(&self, url: &str, seed: u64) -> Option<Result<Box<dyn Session>, String>> {
        Some(match Client::describing(self.clone(), url, seed) {
            Ok(client) => Ok(Box::new(client)),
            Err(error) => Err(error.to_string()),
        })
    }

    fn media_mut(&mut self) -> Option<&mut MediaConfig> {
        self.media.as_mut()
    }
}

impl ClientConfig {
    /// Maximum number of channels of one client: it says goodbye to one while it requests the next.
    fn channels(&self) -> u64 {
        1 + u64::from(self.zap.is_some())
    }
}

/// Bytes of a payload that show whether it begins a picture: an aggregation packet may have
/// parameter sets before it.
const PICTURE_BYTES: u8 = 64;

/// Maker of clients, each of which plays or publishes one URL.
#[derive(Debug)]
struct ClientMaker {
    config: Arc<ClientConfig>,
    source: Option<Arc<MediaSource>>,
    surroundings: RunContext,
}

impl ViewerMaker for ClientMaker {
    type Client = Client;

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Client, String> {
        let mut client = Client::new(self.config.clone(), url, identity.seed)
            .map_err(|error| error.to_string())?;
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
