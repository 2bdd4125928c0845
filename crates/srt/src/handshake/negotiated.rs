//! Result of a successful handshake.

use std::time::Duration;

use measure::Time;

use crate::arq::TsbpdConfig;
use crate::arq::receiver::ReceiverConfig;
use crate::codec::handshake::{Flags, KmState};
use crate::codec::stream_id::StreamId;
use crate::crypto::{Decryptor, Encryptor};
use crate::seq::{SeqNumber, SocketClock};

/// Parameters that two sides negotiated.
#[derive(Debug)]
pub struct Negotiated {
    /// Socket id of the peer: the destination of all packets.
    pub peer_socket_id: u32,
    /// Sequence number of this side's first packet.
    pub initial_sequence: SeqNumber,
    /// Sequence number of the peer's first packet.
    pub peer_initial_sequence: SeqNumber,
    /// Latency of this side's receiver.
    pub receive_latency: Duration,
    /// Latency of the peer's receiver.
    pub send_latency: Duration,
    /// True if this side delivers by timestamps.
    pub tsbpd_receiving: bool,
    /// True if the peer delivers by timestamps.
    pub tsbpd_sending: bool,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u32,
    /// Maximum number of packets in flight to the peer before its first acknowledgement.
    pub flow_window: u32,
    /// Stream id that the caller sent.
    pub stream_id: Option<StreamId>,
    /// Capabilities of the peer.
    pub flags: Flags,
    /// SRT version of the peer.
    pub version: u32,
    /// Arrival time of the peer's HSREQ or HSRSP, to which the timestamps of its packets relate.
    pub reference: Time,
    /// Timestamp of that packet, in microseconds of the peer's clock.
    pub timestamp: u32,
    pub security: Security,
    /// Sending half, if the connection is encrypted.
    pub encryptor: Option<Encryptor>,
    /// Receiving half, if the connection is encrypted.
    pub decryptor: Option<Decryptor>,
}

impl Negotiated {
    /// Configuration of this side's receiver in live mode.
    pub(crate) fn receiver(&self, clock: SocketClock) -> ReceiverConfig {
        let tsbpd = TsbpdConfig {
            reference: self.reference,
            timestamp: self.timestamp,
            latency: self.receive_latency,
        };
        let first = self.peer_initial_sequence;
        ReceiverConfig::live(first, self.peer_socket_id, clock, tsbpd)
    }
}

/// Encryption state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Neither side has a passphrase.
    Clear,
    /// Both sides have the same passphrase.
    Encrypted,
    /// The sides share no key, and encryption is not enforced: encrypted media is lost.
    Mismatch(KmState),
}
