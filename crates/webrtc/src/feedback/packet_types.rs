//! RTCP packet types and feedback message types.

/// Packet types of transport-layer and payload-specific feedback (RFC 4585, 6.1).
pub(super) const RTPFB: u8 = 205;
pub(super) const PSFB: u8 = 206;

/// Feedback message types (FMT; RFC 4585, 6.2.1 and 6.3.1; RFC 5104, 4.3.1; RFC 4585, 6.4).
pub(super) const NACK: u8 = 1;
pub(super) const TRANSPORT_CC: u8 = 15;
pub(super) const PLI: u8 = 1;
pub(super) const FIR: u8 = 4;
pub(super) const AFB: u8 = 15;

/// Identifier at the start of application layer feedback that carries a REMB.
pub(super) const REMB: &[u8; 4] = b"REMB";
