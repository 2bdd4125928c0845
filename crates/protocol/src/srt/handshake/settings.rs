//! What one side brings into a handshake.

use std::net::IpAddr;
use std::time::Duration;

use crate::srt::codec::handshake::Flags;
use crate::srt::crypto::Secret;
use crate::srt::seq::{SeqNumber, SocketClock};

/// What is carried (`SRTO_TRANSTYPE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transmission {
    /// Live media.
    #[default]
    Live,
    /// Messages, all of which are to come (`SRTT_FILE` with `SRTO_MESSAGEAPI`).
    Messages,
}

impl Transmission {
    /// The name of its congestion control. Both sides must have the same.
    pub(super) fn congestion(self) -> &'static str {
        match self {
            Transmission::Live => LIVE,
            Transmission::Messages => "file",
        }
    }
}

/// The congestion control of live media, which is what nothing said means.
pub(super) const LIVE: &str = "live";

/// What one side brings in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its socket id: not 0, and of 30 bits, as those of libsrt.
    pub socket_id: u32,
    /// The sequence number of its first packet. Who accepts a caller takes the caller's instead, as
    /// libsrt does.
    pub initial_sequence: SeqNumber,
    /// What makes its timestamps.
    pub clock: SocketClock,
    /// The latency with which it wants to receive. Default: 120 ms.
    pub receive_latency: Duration,
    /// The least latency that it asks of the peer's receiver. Default: 0.
    pub send_latency: Duration,
    /// The largest IP packet that it takes, in bytes. Default: 1500.
    pub mtu: u32,
    /// How many packets it lets be in flight to it. Default: 8192.
    pub flow_window: u32,
    /// The version of SRT that it says to be. Default: 1.5.5.
    pub version: u32,
    /// The lowest version that the peer may be. Default: 1.3.0, the first with these handshakes.
    pub minimum_version: u32,
    /// What it can. Default: [`Flags::LIVE`].
    pub flags: Flags,
    /// What is carried. Default: live media.
    pub transmission: Transmission,
    /// The address of the peer.
    pub peer_ip: IpAddr,
    /// What encrypts. Default: nothing.
    pub secret: Option<Secret>,
    /// Whether a connection fails on which the passphrases are not the same. Default: it does.
    pub enforced_encryption: bool,
    /// How long it may take. Default: 3 s.
    pub timeout: Duration,
    /// What its keys and cookies come from.
    pub seed: u64,
}

impl Settings {
    /// The same for messages.
    #[must_use]
    pub fn messages(self) -> Settings {
        Settings {
            flags: Flags::MESSAGES,
            transmission: Transmission::Messages,
            ..self
        }
    }

    /// Those of live media, with all defaults.
    pub fn live(
        socket_id: u32,
        initial_sequence: SeqNumber,
        clock: SocketClock,
        peer_ip: IpAddr,
        seed: u64,
    ) -> Settings {
        Settings {
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
            transmission: Transmission::Live,
            peer_ip,
            secret: None,
            enforced_encryption: true,
            timeout: Duration::from_secs(3),
            seed,
        }
    }
}
