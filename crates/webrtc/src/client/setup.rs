//! Configuration, identity and media of a client.

use std::sync::Arc;
use std::time::Duration;

use crate::certificate::Certificate;
use crate::config::{ClientConfig, Layer};
use crate::signalling::janus::{self, Janus, Subscribe};
use crate::signalling::livekit::{self, LiveKit};
use crate::signalling::whip::{self, Whip};
use crate::signalling::{CommonSettings, Direction, Signalling};
use crate::url::{Resource, Url};
use kit::media::source::{MediaSource, SIMULCAST_LAYERS, SourceConfig};
use kit::media::talk::TurnSchedule;
use session::seeds::derive_seed;

/// Configuration, identity and media of a client. They do not change after its start.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Shared by all clients of the population.
    pub(super) config: Arc<ClientConfig>,
    pub(super) url: Url,
    pub(super) seed: u64,
    pub(super) certificate: Arc<Certificate>,
    /// SSRC of our receiver reports.
    pub(super) ssrc: u32,
    /// CNAME of our streams and reports.
    pub(super) cname: String,
    pub(super) source: Option<Arc<MediaSource>>,
    /// Speaking schedule of the voice. `None` if audio is sent all the time.
    pub(super) talk_schedule: Option<Box<TurnSchedule>>,
    /// Wall-clock time at [`Time::ZERO`](measure::Time::ZERO), since 1970.
    pub(super) wall_clock: Option<Duration>,
    /// True if decrypted frames may carry time codes.
    pub(super) reads_time_codes: bool,
}

impl Setup {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        url: Url,
        seed: u64,
        certificate: Arc<Certificate>,
    ) -> Setup {
        Setup {
            config,
            url,
            seed,
            certificate,
            ssrc: derive_seed(&[seed, 2]) as u32,
            cname: format!("{:016x}", derive_seed(&[seed, 3])),
            source: None,
            talk_schedule: None,
            wall_clock: None,
            reads_time_codes: false,
        }
    }

    /// Creates the signalling.
    pub(super) fn signalling(&self) -> Box<dyn Signalling> {
        let (config, url) = (&*self.config, &self.url);
        let common = CommonSettings {
            request_timeout: config.request_timeout.0,
            token: config.token.clone(),
            user_agent: config.user_agent.clone(),
            headers: config.headers.clone(),
            seed: derive_seed(&[self.seed, 1]),
        };
        match url.resource {
            Resource::Whep | Resource::Whip => {
                let direction = match url.resource {
                    Resource::Whip => Direction::Send,
                    _ => Direction::Receive,
                };
                let settings = whip::Settings {
                    common,
                    follow: config.follow,
                    trickle: config.trickle,
                };
                Box::new(Whip::new(settings, url.endpoint.clone(), direction))
            }
            Resource::Room(_) | Resource::Mountpoint(_) => {
                let settings = janus::Settings {
                    common,
                    place: url.resource.clone(),
                    trickle: config.trickle,
                    publishes: config.participate.is_some(),
                    subscribe: config.subscribe,
                    api_secret: config.api_secret.clone(),
                    pin: config.pin.clone(),
                    room: config.room_request(),
                    substream: config.layer.map(|layer| u64::from(layer.number())),
                    last_n: config.last_n.map(|count| count as usize),
                    long_poll: url.long_poll,
                };
                Box::new(Janus::new(settings, url.endpoint.clone()))
            }
            Resource::LiveKit(ref room) => {
                let participate = config.participate.as_ref();
                let size = participate.and_then(|source| source.size);
                let settings = livekit::Settings {
                    common,
                    room: room.clone(),
                    key: config.api_key.clone().zip(config.api_secret.clone()),
                    trickle: config.trickle,
                    publishes: participate.is_some(),
                    subscribes: config.subscribe != Subscribe::Nobody,
                    size: size.map(|size| (size.width, size.height)),
                    layers: participate.map_or_else(Vec::new, sent_layers),
                    quality: config.layer.map(Layer::number),
                };
                Box::new(LiveKit::new(settings, url.endpoint.clone()))
            }
        }
    }

    /// Session id of our descriptions (RFC 8829, 5.2.1).
    pub(super) fn session_id(&self) -> u64 {
        derive_seed(&[self.seed, 4]) >> 2
    }

    /// True if the client is to receive media.
    pub(super) fn is_viewer(&self) -> bool {
        match self.url.resource {
            Resource::Whip => false,
            Resource::Whep | Resource::Mountpoint(_) => self.config.feed.is_none(),
            Resource::Room(_) | Resource::LiveKit(_) => self.config.subscribe != Subscribe::Nobody,
        }
    }
}

/// Layers of the simulcast that is sent, best first. Empty without simulcast.
fn sent_layers(source: &SourceConfig) -> Vec<livekit::SentLayer> {
    let layer = |layer| {
        let own = source.layer(layer);
        livekit::SentLayer {
            size: own.size.map(|size| (size.width, size.height)),
            bitrate: own.generated_bitrate(),
        }
    };
    let layers = (0..SIMULCAST_LAYERS).filter(|_| source.simulcast);
    layers.map(layer).collect()
}
