//! The reference server. It serves generated media and streams published by clients, injects faults
//! on request, and reports exactly what it did.
//!
//! A [`Server`] is shared by all workers. Each connection gets a [`Session`] of its own, whose
//! channel 0 is the accepted connection. The flows of [`kit::media::rtp`] make the packets; the
//! session answers requests, sends reports, and reads the counts when it ends.

pub mod config;
pub mod faults;
mod group_streams;
mod pending;
mod play;
mod published;
mod record;
pub(super) mod reference;
mod requests;
mod sdp;
mod session;
mod setup;
mod streams;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use config::{AuthScheme, MulticastConfig, ServerConfig, Transports};
pub use faults::{ControlFaults, ServerFaults};

use ::session::Session;
use kit::auth::{AcceptedScheme, Algorithm, Verifier};
use kit::mediagen::clip::Clip;
use kit::mediagen::video::{PictureForm, VideoSettings};
use kit::url::Credentials;

/// A reference server: its settings and its media, which is generated once.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// Data shared by all sessions.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    /// Media of every stream, in the order of the description.
    clips: Vec<Arc<Clip>>,
    verifier: Option<Verifier>,
    /// Streams that are sent once for all clients that play them.
    group_streams: group_streams::GroupStreams,
    /// Streams published by clients.
    published: published::PublishedStreams,
}

impl Server {
    /// Generates the media. Takes up to a few seconds at a very high bit rate.
    ///
    /// # Errors
    /// The settings contradict each other, or no video can be generated with them; the text gives
    /// the reason.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        if config.session_timeout.as_secs() == 0 {
            return Err("the session timeout must be at least 1s".to_owned());
        }
        if config.length.is_some_and(|length| length.is_zero()) {
            return Err("the length of the streams must be above zero".to_owned());
        }
        if config.streams == Some(0) {
            return Err("there must be at least one stream".to_owned());
        }
        if let Some(multicast) = &config.multicast {
            group_streams::check(multicast)?;
        }
        let gop = config.gop.unwrap_or_else(|| {
            let rate = config.frame_rate;
            (2 * rate.numerator()).div_ceil(rate.denominator()).max(1)
        });
        let video = Clip::video(&VideoSettings {
            bits_per_second: config.bitrate.0,
            frame_rate: config.frame_rate,
            gop,
            mtu: config.mtu,
            form: PictureForm::default(),
        })
        .map_err(|error| error.to_string())?;
        let mut clips = vec![Arc::new(video)];
        if config.audio {
            clips.push(Arc::new(Clip::audio()));
        }
        let verifier = config.user.as_ref().map(|user| {
            let digest = AcceptedScheme::Digest(Algorithm::Md5);
            let digest_sha256 = AcceptedScheme::Digest(Algorithm::Sha256);
            let accepts = match config.auth {
                AuthScheme::Digest => vec![digest],
                AuthScheme::DigestSha256 => vec![digest_sha256],
                AuthScheme::Basic => vec![AcceptedScheme::Basic],
                AuthScheme::Any => vec![digest_sha256, digest, AcceptedScheme::Basic],
            };
            let credentials = Credentials {
                user: user.clone(),
                password: config.password.clone(),
            };
            Verifier::new("streamgauge", credentials, accepts)
        });
        Ok(Server(Arc::new(Shared {
            config,
            clips,
            verifier,
            group_streams: group_streams::GroupStreams::default(),
            published: published::PublishedStreams::default(),
        })))
    }

    /// Returns a session for the accepted connection with this number. Number and seed determine
    /// all random choices.
    pub fn session(&self, number: u64) -> Box<dyn Session> {
        Box::new(session::ServerSession::new(self.0.clone(), number))
    }

    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }
}
