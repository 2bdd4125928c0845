//! Registry entry of RTMP.

use std::path::PathBuf;
use std::sync::Arc;

use measure::{Catalogue, CounterId};

use super::calibration;
use super::client::{COLUMNS, Client, StreamSummary};
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics::RTMP;
use super::server::reference::SERVER;
use super::source::Tracks;
use super::url::{self, Url};
use kit::descriptor::{
    ClientFactory, ClientIdentity, Facts, KeysType, Location, PopulationKeys, Protocol, RunContext,
    SocketNeeds, StreamName, Transport,
};
use kit::keys::KeyError;
use kit::media::frames::metrics::FRAMES_GROUP;
use kit::metrics::{CLIENTS, ZAPPING, ZAPS_FAILED_BROKEN};
use kit::options::ClientOptions;
use kit::viewer::VIEWERS;
use kit::zapping::{ViewerMaker, Viewers};
use session::StreamRow;

/// RTMP 1.0.
pub static PROTOCOL: Protocol = Protocol {
    name: "rtmp",
    schemes: &["rtmp", "rtmps"],
    path_suffix: None,
    default_port: url::DEFAULT_PORT,
    transport: Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &FRAMES_GROUP, &RTMP]),
    datagrams: None,
    capacity_thresholds: Protocol::LATE_OR_WITH_GAPS,
    stream_columns: &[COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: calibration::TRIALS,
    options: &ClientOptions::NONE,
    keys: KeysType::of::<ClientConfig>(),
    former_key: |_| None,
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text, None).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.secure,
        default_port: match url.secure {
            true => url::DEFAULT_TLS_PORT,
            false => url::DEFAULT_PORT,
        },
        stream: Some(StreamName::new(url.topic(), &url.host, &url.path())),
    })
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        let usual = Facts::new(&PROTOCOL, self.publish.as_ref(), self.zap);
        Facts {
            tls: Some(&self.tls),
            time_codes: usual.time_codes || self.time_codes,
            ..usual
        }
    }

    /// A client says goodbye to one channel while it requests the next.
    fn sockets_per_client(&self, _: u64) -> SocketNeeds {
        SocketNeeds {
            descriptors: 1 + u64::from(self.zap.is_some()),
            udp_pairs: 0,
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        match self.publish {
            Some(_) => &["sent_frames > 0", "not_taken == 0"],
            None if self.zap.is_some() => {
                &["frames > 0", "streams_silent == 0", "zaps_failed == 0"]
            }
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
        let maker = ClientMaker {
            config: Arc::new(self.clone()),
            source: source.map(Arc::new),
            surroundings: surroundings.clone(),
        };
        Ok(Box::new(Viewers::new(maker, self.zap)))
    }
}

/// Maker of clients, each of which plays or publishes one URL.
#[derive(Debug)]
struct ClientMaker {
    config: Arc<ClientConfig>,
    source: Option<Arc<Tracks>>,
    surroundings: RunContext,
}

impl ViewerMaker for ClientMaker {
    type Client = Client;

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Client, String> {
        let mut client = Client::new(self.config.clone(), url, identity.seed)
            .map_err(|error| error.to_string())?;
        // Players look for time codes only if frames may carry them.
        if (self.surroundings.has_time_codes() || self.source.is_some())
            && let Some(wall_clock) = self.surroundings.wall_clock()
        {
            client = client.with_wall_clock(wall_clock);
        }
        if let Some(source) = &self.source {
            client = client.publishing(source.clone());
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
