//! Transport-wide sequence numbers, which count the packets of all streams of a transport
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01, 2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::extension;
use session::PacketHeader;

/// Sequence numbers of one transport, shared by its streams.
#[derive(Clone, Debug)]
pub(super) struct TransportSequence {
    /// ID of the header extension.
    extension_id: u8,
    next: Arc<AtomicU16>,
}

impl TransportSequence {
    /// Counts from 1, with the header extension of that ID.
    pub(super) fn new(extension_id: u8) -> TransportSequence {
        TransportSequence {
            extension_id,
            next: Arc::new(AtomicU16::new(1)),
        }
    }

    /// Returns the header with the next number, and that number. Returns `None` if the header has
    /// no room.
    pub(super) fn add_number(&self, header: &PacketHeader) -> Option<(PacketHeader, u16)> {
        // One thread sends all streams of a transport: nothing happens between load and store.
        let number = self.next.load(Ordering::Relaxed);
        let numbered = extension::add_element(header, self.extension_id, number.to_be_bytes())?;
        self.next.store(number.wrapping_add(1), Ordering::Relaxed);
        Some((numbered, number))
    }
}
