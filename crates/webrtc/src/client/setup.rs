//! Configuration, identity and media of a client.

use std::sync::Arc;
use std::time::Duration;

use crate::certificate::Certificate;
use crate::config::ClientConfig;
use crate::signalling::janus::Janus;
use crate::signalling::livekit::LiveKit;
use crate::signalling::whip::Whip;
use crate::signalling::{Direction, Signalling};
use crate::url::{Resource, Url};
use kit::media::source::MediaSource;
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
        let (config, url) = (self.config.clone(), self.url.clone());
        let seed = derive_seed(&[self.seed, 1]);
        match url.resource {
            Resource::Whep => Box::new(Whip::new(config, url.endpoint, Direction::Receive)),
            Resource::Whip => Box::new(Whip::new(config, url.endpoint, Direction::Send)),
            Resource::Room(_) | Resource::Mountpoint(_) => Box::new(Janus::new(config, url, seed)),
            Resource::LiveKit(room) => Box::new(LiveKit::new(config, room, url.endpoint, seed)),
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
            Resource::Room(_) | Resource::LiveKit(_) => self.config.receives_others(),
        }
    }
}
