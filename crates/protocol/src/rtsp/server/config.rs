//! The settings of the reference server.

use std::net::IpAddr;
use std::time::Duration;

use measure::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::faults::ServerFaults;
use crate::media::rtp::Pacing;
use mediagen::frame_rate::FrameRate;

/// What carries the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transports {
    /// What the client asks for.
    #[default]
    Any,
    /// UDP; interleaved is refused with 461.
    Udp,
    /// Interleaved; UDP is refused with 461.
    Tcp,
}

/// How a client has to show who it is, where `user` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuthScheme {
    /// Digest with MD5 (RFC 2617), which every client knows.
    #[default]
    Digest,
    /// Digest with SHA-256 (RFC 7616).
    DigestSha256,
    /// Basic (RFC 7617): the password as it is.
    Basic,
    /// Any of them.
    Any,
}

/// Where streams go that are sent once to all their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MulticastConfig {
    /// The first group; each stream that is sent has one of its own, counting up from here, 64 at
    /// most at a time. A group for source-specific multicast (232.0.0.0/8, ff3x::/32; RFC 4607)
    /// makes the server name itself as the only source. Default: 239.255.42.1, which administrators
    /// keep within their site (RFC 2365, 6.1).
    pub group: IpAddr,
    /// The first port: even, for the first media of a stream, and the next for its RTCP; the next
    /// media has the two above. Default: 5004.
    pub port: u16,
    /// How many hops the packets live. Default: 1, the server's own links.
    pub ttl: u8,
}

impl Default for MulticastConfig {
    fn default() -> MulticastConfig {
        MulticastConfig {
            group: IpAddr::from([239, 255, 42, 1]),
            port: 5004,
            ttl: 1,
        }
    }
}

/// The settings of the reference server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Bit rate of the video: RTP payload, without headers. Default: 1Mbps.
    pub bitrate: BitRate,
    /// Pictures per second. Default: 25.
    pub frame_rate: FrameRate,
    /// Pictures from one IDR picture to the next. Default: as many as two seconds have.
    pub gop: Option<u32>,
    /// Whether each stream has audio too: G.711 mu-law, 64 kb/s beside the video's bit rate.
    /// Default: no.
    pub audio: bool,
    /// Length of each stream; endless without one. Default: endless.
    #[serde(with = "measure::units::optional_duration")]
    #[schemars(with = "Option<measure::units::TimeSpan>")]
    pub length: Option<Duration>,
    /// How many streams there are: `/stream1`, `/stream2` and so on; others are not found (404).
    /// Default: any path is a stream.
    pub streams: Option<u32>,
    /// The longest RTP payload in bytes. Default: 1400.
    pub mtu: usize,
    /// How the packets of a picture are spread. Default: over the time until the next.
    pub pacing: Pacing,
    /// What carries the media. Default: what the client asks for.
    pub transports: Transports,
    /// Where streams are sent to clients that ask for multicast: once, for all of them, from the
    /// first PLAY to the last TEARDOWN. Default: nowhere; multicast is refused with 461.
    pub multicast: Option<MulticastConfig>,
    /// Addresses to which media is sent beside the one a request comes from, where a client asks
    /// for that (`destination`; RFC 2326, 12.39). Who sends to any address that it is told is a
    /// weapon in others' hands. Default: none; such a SETUP is refused with 461.
    pub destinations: Vec<IpAddr>,
    /// User name that clients have to give. Default: none, everybody is let in.
    pub user: Option<String>,
    /// The password to it. Default: empty.
    pub password: String,
    /// How the user is to be shown. Default: Digest with MD5.
    pub auth: AuthScheme,
    /// How long a client may be silent before its session is dropped; stated in whole seconds in
    /// the answers to SETUP. Default: 60s.
    #[serde(with = "measure::units::duration")]
    #[schemars(with = "measure::units::TimeSpan")]
    pub session_timeout: Duration,
    /// Seed of all that is drawn: identifiers, first numbers, faults. Default: 1.
    pub seed: u64,
    /// First sequence number of each stream. Default: drawn.
    pub first_seq: Option<u16>,
    /// First RTP timestamp of each stream. Default: drawn.
    pub first_timestamp: Option<u32>,
    /// Whether answers to PLAY bear RTP-Info (RFC 2326, 12.33). Default: yes.
    pub rtp_info: bool,
    /// What the server does wrong on purpose, each as on the command line: `loss=1%`. Default:
    /// nothing.
    pub faults: ServerFaults,
    /// Whether the report on a stream lists each packet that left, with its time. Default: no.
    pub log_packets: bool,
    /// The wall clock at the beginning of the run, since 1970: what sender reports count from. Set
    /// by whoever runs the server.
    #[serde(skip)]
    pub wall_clock: Duration,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            bitrate: BitRate(1_000_000),
            frame_rate: FrameRate::whole(25),
            gop: None,
            audio: false,
            length: None,
            streams: None,
            mtu: 1400,
            pacing: Pacing::Spread,
            transports: Transports::Any,
            multicast: None,
            destinations: Vec::new(),
            user: None,
            password: String::new(),
            auth: AuthScheme::Digest,
            session_timeout: Duration::from_secs(60),
            seed: 1,
            first_seq: None,
            first_timestamp: None,
            rtp_info: true,
            faults: ServerFaults::default(),
            log_packets: false,
            wall_clock: Duration::ZERO,
        }
    }
}
