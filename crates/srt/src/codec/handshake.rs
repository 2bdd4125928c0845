//! Handshakes (SRT, 3.2.1): a fixed part of 48 bytes, followed by extensions.
//!
//! Parsing is zero-copy, except for text extensions. Every length is checked against the input, and
//! each kind of malformed input has its own error.

mod error;
mod extension;
mod rejection;

pub use error::HandshakeError;
pub use extension::{
    Extension, Extensions, Flags, HsMessage, KmState, TEXT_MAX, put_words, write_extension,
    write_text,
};
pub use rejection::Rejection;

use crate::seq::SeqNumber;

/// Length of the fixed part in bytes.
pub const FIXED: usize = 48;

/// Version of a handshake without extensions: the caller's first one (SRT, 4.3.1).
pub const VERSION_4: u32 = 4;
/// Version of a handshake with extensions.
pub const VERSION_5: u32 = 5;

/// Extension field of a version 4 induction: the UDT socket type.
pub const DATAGRAM: u16 = 2;
/// Extension field of a listener's induction: the listener supports version 5 (SRT, 3.2.1).
pub const VERSION_5_MAGIC: u16 = 0x4a17;

/// Extension field of a conclusion: an HSREQ or HSRSP follows.
pub const HAS_HS: u16 = 1;
/// A KMREQ or KMRSP follows.
pub const HAS_KM: u16 = 2;
/// Other extensions follow.
pub const HAS_CONFIG: u16 = 4;

/// Minimum accepted MTU, as in libsrt: the headers and a little payload.
pub const MTU_MIN: u32 = 76;
/// Maximum accepted MTU: the maximum size of a datagram.
pub const MTU_MAX: u32 = 65_535;

/// Handshake type (SRT, 3.2.1, table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeType {
    /// First handshake of a rendezvous.
    WaveAHand,
    /// First handshake of a caller, and the response to it.
    Induction,
    /// Second handshake.
    Conclusion,
    /// Last handshake of a rendezvous.
    Agreement,
    /// The handshake is complete. Never sent.
    Done,
    /// The peer rejects the connection.
    Rejected(Rejection),
    /// Unknown type.
    Unknown(i32),
}

impl HandshakeType {
    pub fn from_wire(word: i32) -> HandshakeType {
        match word {
            0 => HandshakeType::WaveAHand,
            1 => HandshakeType::Induction,
            -1 => HandshakeType::Conclusion,
            -2 => HandshakeType::Agreement,
            -3 => HandshakeType::Done,
            code if code >= 1000 => HandshakeType::Rejected(Rejection::new(code.unsigned_abs())),
            other => HandshakeType::Unknown(other),
        }
    }

    pub fn to_wire(self) -> i32 {
        match self {
            HandshakeType::WaveAHand => 0,
            HandshakeType::Induction => 1,
            HandshakeType::Conclusion => -1,
            HandshakeType::Agreement => -2,
            HandshakeType::Done => -3,
            HandshakeType::Rejected(rejection) => rejection.code().cast_signed(),
            HandshakeType::Unknown(other) => other,
        }
    }
}

/// Fixed part of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// 4 or 5.
    pub version: u32,
    /// Advertised key length in 8-byte words: 0 (none), 2, 3 or 4.
    pub encryption: u16,
    /// Extension field. Its meaning depends on the version and the type.
    pub extension: u16,
    /// Sequence number of the first packet, unchecked: see [`Handshake::check`].
    pub initial_sequence: u32,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u32,
    /// Maximum number of packets in flight.
    pub flow_window: u32,
    pub kind: HandshakeType,
    /// Socket id of the sender.
    pub socket_id: u32,
    pub cookie: u32,
    /// Address of the receiver as the sender sees it. Words are in host byte order, so an IPv4
    /// address is reversed in the first four bytes.
    pub peer_ip: [u8; 16],
}

impl Handshake {
    /// Parses the fixed part, and returns it with the extensions behind it.
    ///
    /// # Errors
    /// The fixed part is truncated, or the extensions are not whole words.
    pub fn parse(cif: &[u8]) -> Result<(Handshake, Extensions<'_>), HandshakeError> {
        let Some((fixed, rest)) = cif.split_first_chunk::<FIXED>() else {
            return Err(HandshakeError::Short(cif.len()));
        };
        if rest.len() % 4 != 0 {
            return Err(HandshakeError::Unaligned(rest.len()));
        }
        let (words, _) = fixed.as_chunks::<4>();
        let word = |number: usize| u32::from_be_bytes(words[number]);
        let mut peer_ip = [0; 16];
        peer_ip.copy_from_slice(&fixed[32..]);
        let handshake = Handshake {
            version: word(0),
            encryption: (word(1) >> 16) as u16,
            extension: word(1) as u16,
            initial_sequence: word(2),
            mtu: word(3),
            flow_window: word(4),
            kind: HandshakeType::from_wire(word(5).cast_signed()),
            socket_id: word(6),
            cookie: word(7),
            peer_ip,
        };
        Ok((handshake, Extensions::new(rest)))
    }

    /// Appends the fixed part.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_words(
            out,
            [
                self.version,
                u32::from(self.encryption) << 16 | u32::from(self.extension),
                self.initial_sequence,
                self.mtu,
                self.flow_window,
                self.kind.to_wire().cast_unsigned(),
                self.socket_id,
                self.cookie,
            ],
        );
        out.extend_from_slice(&self.peer_ip);
    }

    /// Initial sequence number, reduced to 31 bits.
    pub fn initial_sequence(&self) -> SeqNumber {
        SeqNumber::new(self.initial_sequence)
    }

    /// Checks the values that a connection needs.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), HandshakeError> {
        if self.initial_sequence > SeqNumber::MAX.value() {
            return Err(HandshakeError::InitialSequence(self.initial_sequence));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(HandshakeError::Mtu(self.mtu));
        }
        if self.flow_window < 2 || self.flow_window > i32::MAX.unsigned_abs() {
            return Err(HandshakeError::FlowWindow(self.flow_window));
        }
        if self.socket_id == 0 {
            return Err(HandshakeError::NoSocketId);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
