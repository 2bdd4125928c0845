//! What is decrypted where only headers are read: the first packets of each stream, because media
//! that is not encrypted, or by keys of somebody else, would pass for good; and which packet a
//! retransmission carries.

use crate::session::Arrival;
use crate::webrtc::feedback::original;
use crate::webrtc::srtp::{PayloadStart, RtpOpener, SrtpError, SrtpKeys};

/// How many packets of a stream have to be authentic before the others are believed.
pub(super) const CHECKED: u8 = 3;

/// Opens first packets, and reads retransmissions.
#[derive(Debug)]
pub(super) struct Check {
    keys: SrtpKeys,
    /// Only while a stream is being checked: it takes memory, and there are thousands.
    opener: Option<RtpOpener>,
    plain: Vec<u8>,
    /// Once a retransmission came.
    start: Option<Box<PayloadStart>>,
    /// Packets that were not authentic.
    unauthentic: u64,
}

/// What a first packet was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Authentic,
    Unauthentic,
    /// It cannot be told: the packet ring has not kept all of it.
    Unknown,
}

impl Check {
    pub(super) fn new(keys: SrtpKeys) -> Check {
        Check {
            keys,
            opener: None,
            plain: Vec::new(),
            start: None,
            unauthentic: 0,
        }
    }

    pub(super) fn packet(&mut self, arrival: &Arrival<'_>) -> Checked {
        if arrival.bytes.len() < arrival.length {
            return Checked::Unknown;
        }
        let opener = self.opener.get_or_insert_with(|| self.keys.rtp_opener());
        match opener.open(arrival.bytes, &mut self.plain) {
            Err(SrtpError::Unauthentic | SrtpError::Malformed) => {
                self.unauthentic += 1;
                Checked::Unauthentic
            }
            // Duplicates are authentic, and the receiver counts them.
            Ok(_) | Err(_) => Checked::Authentic,
        }
    }

    /// The number of the packet that a retransmission carries (RFC 4588, 4).
    pub(super) fn carried(&mut self, retransmission: &[u8]) -> Option<u16> {
        let keys = &self.keys;
        let start = self
            .start
            .get_or_insert_with(|| Box::new(keys.payload_start()));
        let number: [u8; 2] = start.of(retransmission)?;
        original(&number).map(|(sequence, _)| sequence)
    }

    /// No stream is being checked.
    pub(super) fn rest(&mut self) {
        self.opener = None;
        self.plain = Vec::new();
    }

    pub(super) fn unauthentic(&self) -> u64 {
        self.unauthentic
    }
}
