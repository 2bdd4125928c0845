//! Reference server: offers generated video live or recorded, in segments and parts, injects faults
//! on request, and reports exactly what it sent.
//!
//! `/NAME/index.m3u8` is a playlist under any name. With several variants it is a multivariant
//! playlist of `/NAME/0/index.m3u8` and so on, otherwise the playlist of the only one.

mod body;
pub mod faults;
mod media;
mod playlists;
pub(super) mod reference;
mod request;
mod session;
#[cfg(test)]
mod tests;
mod timeline;

use std::sync::Arc;
use std::time::Duration;

use kit::mediagen::frame_rate::FrameRate;
use kit::mediagen::segments::{Container, SegmentedVideo};
use kit::mediagen::video::{PictureForm, VideoSettings};
use measure::Catalogue;
use serde::Serialize;

pub use faults::{AnswerFault, ServerFaults};

use ::session::Session;
use kit::metrics::CLIENTS;
use timeline::Timeline;

/// Metrics of the server's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// Maximum number of variants.
pub const VARIANTS_MAX: u32 = 8;

/// Settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Bit rate of the video, in bit/s. Each further variant has half of the one before.
    pub bitrate: u64,
    /// Pictures per second.
    pub frame_rate: FrameRate,
    /// Pictures from one key frame to the next; `None`: those of a segment.
    pub gop: Option<u32>,
    /// Duration of a segment.
    pub segment: Duration,
    /// Duration of a part. `None` for a server that offers no parts and answers all requests at
    /// once.
    pub part: Option<Duration>,
    /// Number of whole segments in a live playlist.
    pub window: u64,
    /// Number of variants.
    pub variants: u32,
    /// Format of the segments.
    pub container: Container,
    /// Length of the media, from the start of the server if it is live; `None`: endless.
    pub length: Option<Duration>,
    /// True for recorded media: the playlist has all segments, and ends.
    pub is_recorded: bool,
    /// Faults to inject.
    pub faults: ServerFaults,
    /// Seed of the identity of the video.
    pub seed: u64,
    /// Wall-clock time since 1970 at the start of the server's clock.
    pub wall_clock: Duration,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            bitrate: 1_000_000,
            frame_rate: FrameRate::whole(25),
            gop: None,
            segment: Duration::from_secs(2),
            part: None,
            window: 10,
            variants: 1,
            container: Container::default(),
            length: None,
            is_recorded: false,
            faults: ServerFaults::default(),
            seed: 1,
            wall_clock: Duration::ZERO,
        }
    }
}

/// Report on one connection: a line of the server's report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedConnection {
    /// Number of the connection, from 1.
    pub connection: u64,
    /// Address of the client.
    pub remote: Option<String>,
    /// Requests whose head was read.
    pub requests: u64,
    /// Playlists sent, of either kind.
    pub playlists: u64,
    /// Playlists whose request waited, or could have, for a segment or part.
    pub reloads: u64,
    /// Playlists that left out segments.
    pub deltas: u64,
    /// Initialization sections sent to their end.
    pub initializations: u64,
    /// Whole segments sent to their end.
    pub segments: u64,
    /// Parts of segments sent to their end.
    pub parts: u64,
    /// Parts whose request came before the part was complete.
    pub hinted: u64,
    /// Segments and parts before which the playlist states a discontinuity.
    pub discontinuities: u64,
    /// Segments and parts that were answered late on purpose.
    pub late: u64,
    /// Segments and parts whose body was spread on purpose.
    pub slow: u64,
    /// Segments and parts that were damaged on purpose.
    pub damaged: u64,
    /// Whole segments whose duration in the playlist is wrong on purpose, and that another follows.
    pub misstated: u64,
    /// Segments and parts that were refused on purpose.
    pub missing: u64,
    /// Requests that were refused for another reason, such as an unknown path.
    pub refused: u64,
    /// Responses that the client did not take to their end.
    pub unfinished: u64,
    /// Total time from the arrival of each request for a segment or part to the end of its
    /// response, in nanoseconds.
    pub media_nanos: u64,
    /// Body bytes of segments, parts and initialization sections that the kernel took.
    pub bytes: u64,
}

/// The HLS reference server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// State that all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    timeline: Timeline,
    /// The video of each variant, best first.
    videos: Vec<SegmentedVideo>,
    /// Peak bit rate of each variant in bit/s.
    bandwidths: Vec<u64>,
    source: u32,
    kept: media::Kept,
}

impl Server {
    /// Creates a server. Takes up to some seconds if the bit rate is very high.
    ///
    /// # Errors
    /// The settings contradict each other, or the video cannot be generated. The text names the
    /// flag.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let rate = config.frame_rate;
        let pictures = |length: Duration| {
            let frames =
                length.as_secs_f64() * f64::from(rate.numerator()) / f64::from(rate.denominator());
            frames.round() as u64
        };
        let segment = pictures(config.segment);
        if segment == 0 {
            return Err("--segment is shorter than a picture".to_owned());
        }
        let gop = config.gop.map_or(segment, u64::from);
        if gop == 0 || !segment.is_multiple_of(gop) {
            return Err(format!(
                "a segment of {segment} pictures (--segment) does not consist of whole groups of \
                 {gop} (--gop)"
            ));
        }
        let part = config.part.map(pictures);
        if part.is_some_and(|part| part == 0 || part > segment) {
            return Err("--part must be at least a picture, and at most --segment".to_owned());
        }
        let length = config
            .length
            .map(|length| pictures(length).div_ceil(segment));
        if config.is_recorded && length.is_none() {
            return Err("recorded media needs a --length".to_owned());
        }
        let earlier = match config.is_recorded {
            true => 0,
            false => config.window,
        };
        let timeline = Timeline {
            frame_rate: rate,
            segment,
            part,
            earlier,
            end: length.map(|length| earlier + length),
            wall_clock: config.wall_clock,
        };
        let mut videos = Vec::new();
        for variant in 0..config.variants.clamp(1, VARIANTS_MAX) {
            let settings = VideoSettings {
                bits_per_second: config.bitrate >> variant,
                frame_rate: rate,
                gop: u32::try_from(gop).map_err(|_| "--segment is too long")?,
                mtu: 65_000,
                form: PictureForm::default(),
            };
            let video = SegmentedVideo::new(&settings, config.container);
            videos.push(video.map_err(|error| error.to_string())?);
        }
        let mut shared = Shared {
            timeline,
            bandwidths: vec![0; videos.len()],
            videos,
            source: (config.seed ^ config.seed >> 32) as u32,
            kept: media::Kept::default(),
            config,
        };
        shared.bandwidths = (0..shared.videos.len())
            .map(|variant| shared.bandwidth(variant))
            .collect();
        Ok(Server(Arc::new(shared)))
    }

    /// Creates the session of the accepted connection `number`.
    pub fn session(&self, number: u64) -> Box<dyn Session> {
        Box::new(session::ServerSession::new(self.0.clone(), number))
    }

    /// Metrics of the server's sessions.
    pub fn catalogue(&self) -> Catalogue {
        CATALOGUE
    }

    /// The settings.
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }
}
