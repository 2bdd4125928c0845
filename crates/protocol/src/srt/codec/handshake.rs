//! Handshakes (SRT, 3.2.1): a fixed part of 48 bytes, and extensions behind it.
//!
//! They are read where they lie. Every length is checked against what is there, and every kind of
//! damage has an error of its own.

mod error;
mod extension;
mod rejection;

pub use error::HandshakeError;
pub use extension::{
    Extension, Extensions, Flags, HsMessage, KmState, TEXT_MAX, put_words, write_extension,
    write_text,
};
pub use rejection::Rejection;

use crate::srt::seq::SeqNumber;

/// Bytes of the fixed part.
pub const FIXED: usize = 48;

/// The version of a handshake without extensions (SRT, 4.3.1: the caller's first one).
pub const VERSION_4: u32 = 4;
/// The version of a handshake with extensions.
pub const VERSION_5: u32 = 5;

/// In the extension field of an induction of version 4: the type of UDT's socket.
pub const DATAGRAM: u16 = 2;
/// In the extension field of a listener's induction: it knows version 5 (SRT, 3.2.1).
pub const MAGIC: u16 = 0x4a17;

/// In the extension field of a conclusion: it has an HSREQ or HSRSP.
pub const HAS_HS: u16 = 1;
/// It has a KMREQ or KMRSP.
pub const HAS_KM: u16 = 2;
/// It has further extensions.
pub const HAS_CONFIG: u16 = 4;

/// The lowest MTU that is taken: that of libsrt's checks, the headers and a little payload.
pub const MTU_MIN: u32 = 76;
/// The highest MTU that is taken: what a datagram has room for.
pub const MTU_MAX: u32 = 65_535;

/// What a handshake is for (SRT, 3.2.1, table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first of a rendezvous.
    WaveAHand,
    /// The first of a caller, and its answer.
    Induction,
    /// The second.
    Conclusion,
    /// The last of a rendezvous.
    Agreement,
    /// Nothing more is to be said. It never goes over the wire.
    Done,
    /// The peer does not want to.
    Rejected(Rejection),
    /// None of these.
    Unknown(i32),
}

impl Kind {
    /// Of the word in the packet.
    pub fn from_wire(word: i32) -> Kind {
        match word {
            0 => Kind::WaveAHand,
            1 => Kind::Induction,
            -1 => Kind::Conclusion,
            -2 => Kind::Agreement,
            -3 => Kind::Done,
            code if code >= 1000 => Kind::Rejected(Rejection::new(code.unsigned_abs())),
            other => Kind::Unknown(other),
        }
    }

    /// The word in the packet.
    pub fn to_wire(self) -> i32 {
        match self {
            Kind::WaveAHand => 0,
            Kind::Induction => 1,
            Kind::Conclusion => -1,
            Kind::Agreement => -2,
            Kind::Done => -3,
            Kind::Rejected(rejection) => rejection.code().cast_signed(),
            Kind::Unknown(other) => other,
        }
    }
}

/// The fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// 4 or 5.
    pub version: u32,
    /// The key length that is advertised, in words of eight bytes: 0 (none), 2, 3 or 4.
    pub encryption: u16,
    /// What the extension field says, which depends on version and kind.
    pub extension: u16,
    /// The sequence number of the first packet. The word as it stands: see [`Handshake::check`].
    pub initial_sequence: u32,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// How many packets may be in flight.
    pub flow_window: u32,
    /// What it is for.
    pub kind: Kind,
    /// The socket id of who sends it.
    pub socket_id: u32,
    /// The cookie.
    pub cookie: u32,
    /// The address of who receives it, as the sender sees it; words in the order of the host, so
    /// that an IPv4 address stands backwards in the first four bytes.
    pub peer_ip: [u8; 16],
}

impl Handshake {
    /// Reads a fixed part, and gives what is behind it.
    ///
    /// # Errors
    /// If it is cut, or what is behind it is not whole words.
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
            kind: Kind::from_wire(word(5).cast_signed()),
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

    /// The initial sequence number, of 31 bits.
    pub fn initial_sequence(&self) -> SeqNumber {
        SeqNumber::new(self.initial_sequence)
    }

    /// Whether the values that a connection needs are possible ones.
    ///
    /// # Errors
    /// The first that is not.
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
