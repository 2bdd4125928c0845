//! Scenario keys of HLS players.

use std::time::Duration;

use measure::units::{BitRate, Ratio, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use kit::http1::{self, AdditionalFields};
use kit::keys::{KeyError, check_positive};
use kit::redirect_policy::RedirectPolicy;
use kit::viewer::ServedWell;
use session::seeds::derive_seed;
use session::tls::TlsConfig;

/// Variant that a player plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VariantChoice {
    /// The one with the highest bit rate.
    #[default]
    Highest,
    /// The one with the lowest bit rate.
    Lowest,
    /// The first of the playlist. Players that do not know their link begin with it.
    First,
    /// The variant that fits the measured bandwidth; it changes during playback.
    Adaptive,
}

/// Use that players make of low-latency HLS, if the server offers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LowLatency {
    /// Players request the part that a hint names before the playlist lists it, as Apple's player
    /// does.
    #[default]
    Hints,
    /// Players request the parts that the playlist lists, as hls.js does.
    Parts,
    /// Players play whole segments, and do not ask the server to wait.
    None,
}

/// Keys of a population of HLS players.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Variant of a multivariant playlist: `highest` (default), `lowest`, `first`, or `adaptive`:
    /// by the measured bandwidth, as hls.js does.
    pub variant: VariantChoice,
    /// With `variant: highest`, a player plays the best variant with at most this bit rate, or the
    /// lowest one. With `adaptive`, it assumes at most this bandwidth, and begins with it. Default:
    /// no limit, and 500kbps to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BitRate>,
    /// Share of `bandwidth` by which that of a player is higher or lower, at random: with `50%`, it
    /// is from half to one and a half. Default: 0%.
    pub bandwidth_spread: Ratio,
    /// Use of low-latency HLS, if the server offers it: `hints` (default: parts of segments, also
    /// before the playlist lists them), `parts` (only those that it lists), or `none` (whole
    /// segments, and the server is not asked to wait).
    pub low_latency: LowLatency,
    /// Distance from the end of a live playlist at which players begin. Default: `HOLD-BACK` of the
    /// playlist, or `PART-HOLD-BACK` if they play parts; otherwise three target durations, or three
    /// of a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_distance: Option<TimeSpan>,
    /// Media that must be buffered before playback begins, and before it goes on after a stall.
    /// Default 0s: what the first segment has from the position on at which playback begins, and
    /// one segment after a stall.
    pub playout_buffer: TimeSpan,
    /// Media that players buffer at most: a segment is requested as soon as it would fit, and while
    /// the one before it plays even if it would not. Default 30s.
    pub buffer_max: TimeSpan,
    /// Time limit for connecting, including name resolution. Default 5s.
    pub connect_timeout: TimeSpan,
    /// Time limit for each response head. Default 10s.
    pub request_timeout: TimeSpan,
    /// Time limit for each response body. Default 20s.
    pub body_timeout: TimeSpan,
    /// Time limit for the first segment of a client. If it is exceeded, the client fails with
    /// `no_media`. Default 20s.
    pub no_media: TimeSpan,
    /// Time without a complete segment, counted from the end of the buffer, after which the client
    /// fails with `media_stopped`. Default 20s.
    pub silence: TimeSpan,
    /// Bounds within which a viewer counts as served well (`viewers.served_well`):
    /// `{start: 2s, stalled: 0s, loss: 1%}`. It starts with the beginning of playback; lost are
    /// segments.
    pub served_well: ServedWell,
    /// Hosts to which redirects and the URIs of playlists may lead: `same_host` (default: that of
    /// the URL, at any port), `any`, or `none`: no redirects at all, and URIs of the same host.
    pub follow: RedirectPolicy,
    /// Additional header fields of each request, by name, such as `{Origin: "https://a.org"}`.
    /// Those with credentials (`Authorization`, `Cookie`) are sent only to the host and port of the
    /// URL. Default: none.
    pub headers: AdditionalFields,
    /// Value of `User-Agent`. Default: `streamgauge/` and the version.
    pub user_agent: String,
    /// TLS settings for `hls+https` URLs: `{verify: false}` or `{ca: FILE}`.
    pub tls: TlsConfig,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            variant: VariantChoice::default(),
            bandwidth: None,
            bandwidth_spread: Ratio(0.0),
            low_latency: LowLatency::default(),
            live_distance: None,
            playout_buffer: seconds(0),
            buffer_max: seconds(30),
            connect_timeout: seconds(5),
            request_timeout: seconds(10),
            body_timeout: seconds(20),
            no_media: seconds(20),
            silence: seconds(20),
            served_well: ServedWell::default(),
            follow: RedirectPolicy::default(),
            headers: AdditionalFields::default(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
            tls: TlsConfig::default(),
        }
    }
}

/// Header fields that the client sets itself.
const RESERVED_HEADERS: [&str; 7] = [
    "Host",
    "User-Agent",
    "Connection",
    "Accept-Encoding",
    "Range",
    "Content-Length",
    "Transfer-Encoding",
];

impl ClientConfig {
    /// Value of `bandwidth` for the player with this seed, in bit/s.
    pub(crate) fn bandwidth_of(&self, seed: u64) -> Option<f64> {
        let bandwidth = self.bandwidth?.0 as f64;
        let drawn = derive_seed(&[seed, 0x0068_6c73]) as f64 / u64::MAX as f64;
        Some(bandwidth * (1.0 + self.bandwidth_spread.0 * (2.0 * drawn - 1.0)))
    }

    /// Checks that the values are consistent. Otherwise returns the wrong key and the reason.
    pub fn check(&self) -> Result<(), KeyError> {
        check_positive([
            ("buffer_max", self.buffer_max),
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("body_timeout", self.body_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
        ])?;
        let is_limited = matches!(
            self.variant,
            VariantChoice::Highest | VariantChoice::Adaptive
        );
        if !is_limited && self.bandwidth.is_some() {
            let text = "only players with `variant: highest` or `adaptive` have a `bandwidth`";
            return Err(("bandwidth", text.to_owned()));
        }
        if self.bandwidth_spread.0 > 0.0 && self.bandwidth.is_none() {
            let text = "`bandwidth_spread` needs a `bandwidth`".to_owned();
            return Err(("bandwidth_spread", text));
        }
        if self.playout_buffer.0 > self.buffer_max.0 {
            let text = "`playout_buffer` must be at most `buffer_max`, or playback never begins";
            return Err(("playout_buffer", text.to_owned()));
        }
        if !http1::is_value(&self.user_agent) {
            let text = "`user_agent` must be one line of printable characters".to_owned();
            return Err(("user_agent", text));
        }
        let instead = |own: &str| (own == "User-Agent").then_some("write `user_agent`");
        self.headers
            .check(&RESERVED_HEADERS, instead)
            .map_err(|text| ("headers", text))?;
        self.tls.check().map_err(|text| ("tls", text))
    }
}
