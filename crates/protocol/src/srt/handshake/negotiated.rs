//! What two sides agreed on.

use std::time::Duration;

use measure::Time;

use crate::srt::codec::handshake::{Flags, KmState};
use crate::srt::codec::stream_id::StreamId;
use crate::srt::crypto::{Decryptor, Encryptor};
use crate::srt::seq::SeqNumber;

/// What two sides agreed on.
#[derive(Debug)]
pub struct Negotiated {
    /// The peer's socket id: the destination of all that is sent.
    pub peer_socket_id: u32,
    /// The sequence number of this side's first packet.
    pub initial_sequence: SeqNumber,
    /// The sequence number of the peer's first packet.
    pub peer_initial_sequence: SeqNumber,
    /// The latency with which this side receives.
    pub receive_latency: Duration,
    /// The latency with which the peer receives.
    pub send_latency: Duration,
    /// Whether this side receives by timestamps.
    pub tsbpd_receiving: bool,
    /// Whether the peer receives by timestamps.
    pub tsbpd_sending: bool,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// How many packets may be in flight to the peer, before its first acknowledgement says it.
    pub flow_window: u32,
    /// What the caller said that it wants; at a caller its own.
    pub stream_id: Option<StreamId>,
    /// What the peer can.
    pub flags: Flags,
    /// The peer's version of SRT.
    pub version: u32,
    /// When the peer's HSREQ or HSRSP came, for the timestamps of its packets.
    pub reference: Time,
    /// The timestamp of that packet, in microseconds of the peer's clock.
    pub timestamp: u32,
    /// Whether it is encrypted.
    pub security: Security,
    /// The sending half, where it is.
    pub encryptor: Option<Encryptor>,
    /// The receiving half, where it is.
    pub decryptor: Option<Decryptor>,
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Neither side has a passphrase.
    Clear,
    /// Both have the same.
    Encrypted,
    /// They have not, and this side does not insist: media that is encrypted is lost to it.
    Mismatch(KmState),
}
