//! Settings of one side of a handshake.

use std::net::IpAddr;
use std::time::Duration;

use crate::codec::handshake::Flags;
use crate::crypto::Secret;
use crate::seq::{SeqNumber, SocketClock};

/// Type of transmission (`SRTO_TRANSTYPE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransmissionType {
    /// Live media.
    #[default]
    Live,
    /// Messages, every one of which must arrive (`SRTT_FILE` with `SRTO_MESSAGEAPI`).
    Messages,
}

impl TransmissionType {
    /// Name of the congestion control. Both sides must use the same.
    pub(super) fn congestion(self) -> &'static str {
        match self {
            TransmissionType::Live => LIVE,
            TransmissionType::Messages => "file",
        }
    }
}

/// Congestion control of live media, and the default if none is named.
pub(super) const LIVE: &str = "live";

/// Settings of one side.
#[derive(Clone, Debug)]
pub struct HandshakeSettings {
    /// Socket id: not 0, and of 30 bits, like those of libsrt.
    pub socket_id: u32,
    /// Sequence number of the first packet. A listener uses the caller's instead, as libsrt does.
    pub initial_sequence: SeqNumber,
    /// Clock of the timestamps.
    pub clock: SocketClock,
    /// Requested latency of this side's receiver. Default: 120 ms.
    pub receive_latency: Duration,
    /// Minimum latency requested of the peer's receiver. Default: 0.
    pub send_latency: Duration,
    /// Maximum size of an accepted IP packet, in bytes. Default: 1500.
    pub mtu: u32,
    /// Maximum number of packets in flight to this side. Default: 8192.
    pub flow_window: u32,
    /// SRT version of this side. Default: 1.5.5.
    pub version: u32,
    /// Minimum SRT version of the peer. Default: 1.3.0, the first with these handshakes.
    pub minimum_version: u32,
    /// Capabilities of this side. Default: [`Flags::LIVE`].
    pub flags: Flags,
    /// Type of transmission. Default: live media.
    pub transmission: TransmissionType,
    /// Address of the peer.
    pub peer_ip: IpAddr,
    /// Encryption settings. Default: no encryption.
    pub secret: Option<Secret>,
    /// True if a connection fails whose passphrases differ. Default: true.
    pub enforced_encryption: bool,
    /// Maximum duration of the handshake. Default: 3 s.
    pub timeout: Duration,
    /// Seed of keys and cookies.
    pub seed: u64,
}

impl HandshakeSettings {
    /// Changes the settings to messages.
    #[must_use]
    pub fn messages(self) -> HandshakeSettings {
        HandshakeSettings {
            flags: Flags::MESSAGES,
            transmission: TransmissionType::Messages,
            ..self
        }
    }

    /// Settings for live media, with all defaults.
    pub fn live(
        socket_id: u32,
        initial_sequence: SeqNumber,
        clock: SocketClock,
        peer_ip: IpAddr,
        seed: u64,
    ) -> HandshakeSettings {
        HandshakeSettings {
            socket_id,
            initial_sequence,
            clock,
            receive_latency: Duration::from_millis(120),
            send_latency: Duration::ZERO,
            mtu: 1500,
            flow_window: 8192,
            version: 0x0001_0505,
            minimum_version: 0x0001_0300,
            flags: Flags::LIVE,
            transmission: TransmissionType::Live,
            peer_ip,
            secret: None,
            enforced_encryption: true,
            timeout: Duration::from_secs(3),
            seed,
        }
    }
}
