//! SRT in the protocol registry.

use std::path::PathBuf;
use std::sync::Arc;

use measure::{Catalogue, CounterId};

use super::calibration;
use super::client::Client;
use super::client::player_sink::NEEDS;
use super::config::{self, ClientConfig};
use super::failure::Failure;
use super::metrics::SRT;
use super::server::reference::SERVER;
use super::source_media::SourceMedia;
use super::url::{self, Url};
use kit::descriptor::{
    ClientFactory, ClientIdentity, Facts, KeysType, Location, PopulationKeys, Protocol, RunContext,
    SocketNeeds, StreamName, Transport,
};
use kit::keys::KeyError;
use kit::media::rtp::{RTP_COLUMNS, StreamSummary, TS_COLUMNS};
use kit::media::ts::metrics::TS;
use kit::metrics::{CLIENTS, ZAPPING, ZAPS_FAILED_BROKEN};
use kit::options::{ClientOption, ClientOptions};
use kit::viewer::VIEWERS;
use kit::zapping::{ViewerMaker, Viewers};
use session::StreamRow;

/// Secure Reliable Transport (draft-sharabayko-srt-01).
pub static PROTOCOL: Protocol = Protocol {
    name: "srt",
    schemes: &["srt"],
    path_suffix: None,
    default_port: url::DEFAULT_PORT,
    transport: Transport::Udp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &TS, &SRT]),
    datagrams: Some(NEEDS),
    capacity_thresholds: Protocol::LATE_OR_WITH_GAPS,
    stream_columns: &[RTP_COLUMNS, TS_COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: calibration::TRIALS,
    options: &OPTIONS,
    keys: KeysType::of::<ClientConfig>(),
    former_key: config::former_key,
};

static OPTIONS: ClientOptions = ClientOptions {
    heading: "SRT (srt URLs)",
    options: &[ClientOption::new(
        "latency",
        "latency",
        "TIME",
        "Latency within which lost packets are retransmitted [default: 120ms]",
    )],
};

fn read_url(text: &str) -> Result<Location, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: false,
        default_port: url::DEFAULT_PORT,
        stream: Some(StreamName::new(
            url.stream_name(),
            &url.host,
            &url.resource(),
        )),
    })
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        let usual = Facts::new(&PROTOCOL, self.publish.as_ref(), self.zap);
        let source = self.publish.as_ref();
        let generates = source.is_some_and(|source| source.file.is_none());
        let datagrams = usual.datagrams.filter(|_| self.receives_from_known_port());
        Facts {
            // Generated pictures have time codes, which servers pass on in other protocols too.
            time_codes: generates && !self.messages,
            by_sockets: datagrams.is_none(),
            datagrams,
            ..usual
        }
    }

    /// A client says goodbye to one channel while it calls the next.
    fn sockets_per_client(&self, _: u64) -> SocketNeeds {
        let descriptors = 1 + u64::from(self.zap.is_some());
        SocketNeeds {
            descriptors,
            udp_pairs: match self.receives_from_known_port() {
                true => descriptors,
                false => 0,
            },
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        match self.publish {
            Some(_) if self.messages => &[
                "messages_sent > 0",
                "messages_acknowledged > 0",
                "messages_dropped == 0",
                "messages_unacked == 0",
                "messages_not_taken == 0",
                "not_taken == 0",
            ],
            Some(_) => &[
                "pkt_sent > 0",
                "pkt_recv_ack > 0",
                "pkt_snd_drop == 0",
                "not_taken == 0",
            ],
            None if self.messages => &["messages_whole > 0", "pkt_rcv_undecrypt == 0"],
            None if self.zap.is_some() => &[
                "non_null_packets > 0",
                "streams_silent == 0",
                "pkt_rcv_undecrypt == 0",
                "zaps_failed == 0",
            ],
            None => &[
                "non_null_packets > 0",
                "streams_silent == 0",
                "pkt_rcv_undecrypt == 0",
            ],
        }
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let source = self.publish.as_mut();
        let file = source.and_then(|source| source.file.as_mut());
        file.into_iter().collect()
    }

    fn clients(
        &self,
        file: Option<&[u8]>,
        surroundings: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        let maker = ClientMaker {
            config: Arc::new(self.clone()),
            media: self.source_media(file)?,
            surroundings: surroundings.clone(),
        };
        Ok(Box::new(Viewers::new(maker, self.zap)))
    }
}

/// Maker of clients, each of which plays or publishes one URL.
#[derive(Debug)]
struct ClientMaker {
    config: Arc<ClientConfig>,
    media: Option<SourceMedia>,
    surroundings: RunContext,
}

impl ViewerMaker for ClientMaker {
    type Client = Client;

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Client, String> {
        let mut client = Client::new(self.config.clone(), url, identity.seed)
            .map_err(|error| error.to_string())?;
        if let Some(wall_clock) = self.surroundings.wall_clock() {
            client = client.with_wall_clock(wall_clock);
        }
        if let Some(media) = &self.media {
            client = client.publishing(media.clone());
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
