//! SRT in the protocol registry.

use std::path::PathBuf;

use measure::{Catalogue, CounterId};
use schemars::JsonSchema;

use super::calibration;
use super::client::Client;
use super::client::player_sink::NEEDS;
use super::config::{self, ClientConfig, Mode};
use super::failure::Failure;
use super::metrics::SRT;
use super::server::reference::SERVER;
use super::source_media::SourceMedia;
use super::url::{self, Url};
use kit::descriptor::{
    ClientFactory, ClientIdentity, Location, PopulationKeys, Protocol, RunContext, StreamName,
    Transport,
};
use kit::media::rtp::{RTP_COLUMNS, StreamSummary, TS_COLUMNS};
use kit::media::source::SourceConfig;
use kit::media::ts::metrics::TS;
use kit::metrics::{CLIENTS, ZAPPING, ZAPS_FAILED_BROKEN};
use kit::options::{ClientOption, ClientOptions};
use kit::viewer::VIEWERS;
use kit::zapping::{ViewerMaker, Viewers};
use session::{CaptureNeeds, StreamRow};

/// Secure Reliable Transport (draft-sharabayko-srt-01).
pub static PROTOCOL: Protocol = Protocol {
    name: "srt",
    schemes: &["srt"],
    default_port: url::DEFAULT_PORT,
    transport: Transport::Udp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &TS, &SRT]),
    datagrams: Some(NEEDS),
    stream_columns: &[RTP_COLUMNS, TS_COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: calibration::TRIALS,
    options: &OPTIONS,
    config_schema: <ClientConfig as JsonSchema>::json_schema,
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
            url.host(),
            &url.resource(),
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
            config: self.clone(),
            media: self.source_media(file)?,
            surroundings: surroundings.clone(),
        };
        Ok(Box::new(Viewers::new(maker, self.zap)))
    }

    /// `None` for publishers, which receive control packets only, and in a rendezvous, in which the
    /// peer knows the port.
    fn datagrams(&self) -> Option<CaptureNeeds> {
        let receives = self.publish.is_none() && self.mode == Mode::Caller;
        PROTOCOL.datagrams.filter(|_| receives)
    }

    /// A client says goodbye to one channel while it calls the next.
    fn sockets_per_client(&self, _: u64) -> u64 {
        1 + u64::from(self.zap.is_some())
    }

    fn udp_pairs_per_client(&self, clients: u64) -> u64 {
        match self.datagrams() {
            Some(_) => self.sockets_per_client(clients),
            None => 0,
        }
    }

    fn actions(&self) -> Option<String> {
        self.zap.map(|zap| zap.describe())
    }

    fn changes_channel(&self) -> bool {
        self.zap.is_some()
    }

    fn published(&self) -> Option<&SourceConfig> {
        self.publish.as_ref()
    }

    /// Generated pictures have time codes, which servers pass on in other protocols too.
    fn allows_time_codes(&self) -> bool {
        let source = self.publish.as_ref();
        source.is_some_and(|source| source.file.is_none()) && !self.messages
    }

    fn stay_description(&self) -> Option<String> {
        let stays = self.publish.is_some();
        stays.then(|| "stay until the run ends".to_owned())
    }

    fn ends_on_its_own(&self) -> bool {
        self.publish.is_none()
    }
}

/// Maker of clients, each of which plays or publishes one URL.
#[derive(Debug)]
struct ClientMaker {
    config: ClientConfig,
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
