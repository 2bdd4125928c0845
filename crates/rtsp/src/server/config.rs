//! Settings of the reference server.

use std::net::IpAddr;
use std::time::Duration;

use measure::units::BitRate;

use super::faults::ServerFaults;
use kit::media::rtp::Pacing;
use kit::mediagen::frame_rate::FrameRate;

/// Transports that the server accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transports {
    /// Any transport that the client requests.
    #[default]
    Any,
    /// Only UDP; interleaved is refused with 461.
    Udp,
    /// Only interleaved; UDP is refused with 461.
    Tcp,
}

/// Authentication scheme, if `user` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuthScheme {
    /// Digest with MD5 (RFC 2617), which every client supports.
    #[default]
    Digest,
    /// Digest with SHA-256 (RFC 7616).
    DigestSha256,
    /// Basic (RFC 7617): the password in clear text.
    Basic,
    /// Any of these schemes.
    Any,
}

/// Multicast groups of streams that are sent once for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// First group. Each stream being sent has a group of its own, counting up from here, at most
    /// 64 at a time. With a group for source-specific multicast (232.0.0.0/8, ff3x::/32; RFC 4607),
    /// the server names itself as the only source. Default: 239.255.42.1, which administrators keep
    /// within their site (RFC 2365, 6.1).
    pub group: IpAddr,
    /// First port, which must be even. The first track of a stream uses this port, and the next one
    /// for RTCP; the next track uses the two ports above. Default: 5004.
    pub port: u16,
    /// TTL of the packets. Default: 1, only the server's own links.
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

/// Settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Bit rate of the video: RTP payload, without headers. Default: 1Mbps.
    pub bitrate: BitRate,
    /// Frames per second. Default: 25.
    pub frame_rate: FrameRate,
    /// Frames from one IDR frame to the next. Default: two seconds.
    pub gop: Option<u32>,
    /// Whether each stream has audio too: G.711 mu-law, 64 kb/s in addition to the video's bit
    /// rate. Default: no.
    pub audio: bool,
    /// Length of each stream. Default: endless.
    pub length: Option<Duration>,
    /// Number of streams: `/stream1`, `/stream2` and so on; other paths are not found (404).
    /// Default: any path is a stream.
    pub streams: Option<u32>,
    /// Maximum RTP payload in bytes. Default: 1400.
    pub mtu: usize,
    /// Distribution of a frame's packets over time. Default: evenly until the next frame.
    pub pacing: Pacing,
    /// Accepted transports. Default: any transport that the client requests.
    pub transports: Transports,
    /// Multicast groups for clients that request multicast. A stream is sent once for all of them,
    /// from the first PLAY to the last TEARDOWN. Default: none; multicast is refused with 461.
    pub multicast: Option<MulticastConfig>,
    /// Addresses to which media is sent on request (`destination`; RFC 2326, 12.39), in addition to
    /// the address that the request comes from. A server that sends to any requested address can be
    /// used to attack others. Default: none; such a SETUP is refused with 461.
    pub destinations: Vec<IpAddr>,
    /// User name that clients must give. Default: none, every client is admitted.
    pub user: Option<String>,
    /// Password of the user. Default: empty.
    pub password: String,
    /// Authentication scheme. Default: Digest with MD5.
    pub auth: AuthScheme,
    /// Session timeout: maximum time without a sign of life from the client. Stated in whole
    /// seconds in the answers to SETUP. Default: 60s.
    pub session_timeout: Duration,
    /// Seed of all random choices: identifiers, first numbers, faults. Default: 1.
    pub seed: u64,
    /// First sequence number of each stream. Default: random.
    pub first_seq: Option<u16>,
    /// First RTP timestamp of each stream. Default: random.
    pub first_timestamp: Option<u32>,
    /// Whether answers to PLAY contain RTP-Info (RFC 2326, 12.33). Default: yes.
    pub rtp_info: bool,
    /// Faults that the server injects, each as on the command line: `loss=1%`. Default: none.
    pub faults: ServerFaults,
    /// Whether the report on a stream lists each packet that left, with its time. Default: no.
    pub log_packets: bool,
    /// Whether each datagram is passed to the kernel separately, instead of several of a stream in
    /// one buffer that the kernel splits (UDP_SEGMENT, udp(7)), which a capture on the same machine
    /// shows as one packet. Default: no.
    pub send_singly: bool,
    /// Wall-clock time at the start of the server, since 1970, on which sender reports are based.
    /// Set by the program that runs the server.
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
            send_singly: false,
            wall_clock: Duration::ZERO,
        }
    }
}
