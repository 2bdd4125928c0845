//! Decryption if only headers are read: of the first packets of each stream, because plain media
//! and media with foreign keys would pass otherwise, and of the packet number in retransmissions.

use crate::feedback::parse_rtx;
use crate::srtp::{PayloadStartDecryptor, RtpOpener, SrtpError, SrtpKeys};
use session::Arrival;

/// Number of packets of a stream that are authenticated.
pub(super) const CHECKED_PACKETS: u8 = 3;

/// Opens first packets, and reads retransmissions.
#[derive(Debug)]
pub(super) struct FirstPacketCheck {
    keys: SrtpKeys,
    /// Kept only while a stream is being checked, because thousands of clients need memory for it.
    opener: Option<RtpOpener>,
    plain: Vec<u8>,
    /// Created for the first retransmission.
    start: Option<Box<PayloadStartDecryptor>>,
    /// Packets that were not authentic.
    pub(super) unauthentic: u64,
}

/// Result for a first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CheckResult {
    Authentic,
    Unauthentic,
    /// The packet ring did not keep the whole packet, so it cannot be authenticated. A ring keeps a
    /// random sample of packets whole.
    #[default]
    Unknown,
}

impl FirstPacketCheck {
    pub(super) fn new(keys: SrtpKeys) -> FirstPacketCheck {
        FirstPacketCheck {
            keys,
            opener: None,
            plain: Vec::new(),
            start: None,
            unauthentic: 0,
        }
    }

    pub(super) fn check_packet(&mut self, arrival: &Arrival<'_>) -> CheckResult {
        let opener = self.opener.get_or_insert_with(|| self.keys.rtp_opener());
        if arrival.bytes.len() < arrival.length {
            opener.pass_over(arrival.bytes);
            return CheckResult::Unknown;
        }
        match opener.open(arrival.bytes, &mut self.plain) {
            Err(SrtpError::Unauthentic | SrtpError::Malformed) => {
                self.unauthentic += 1;
                CheckResult::Unauthentic
            }
            // Duplicates are authentic, and the receiver counts them.
            Ok(_) | Err(_) => CheckResult::Authentic,
        }
    }

    /// Original sequence number in a retransmission (RFC 4588, 4).
    pub(super) fn original_sequence(&mut self, retransmission: &[u8]) -> Option<u16> {
        let keys = &self.keys;
        let start = self
            .start
            .get_or_insert_with(|| Box::new(keys.payload_start()));
        let number: [u8; 2] = start.decrypt(retransmission)?;
        parse_rtx(&number).map(|(sequence, _)| sequence)
    }

    /// Frees memory while no stream is being checked.
    pub(super) fn free_memory(&mut self) {
        self.opener = None;
        self.plain = Vec::new();
    }
}
