//! Numbers that all packets of a transport share, whatever their streams
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01, 2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::extension;
use crate::session::PacketHeader;

/// The numbers of one transport. All its streams have the same.
#[derive(Clone, Debug)]
pub(super) struct TransportNumbers {
    /// The number of the header extension.
    extension: u8,
    next: Arc<AtomicU16>,
}

impl TransportNumbers {
    /// From 1 on, in the header extension of that number.
    pub(super) fn new(extension: u8) -> TransportNumbers {
        TransportNumbers {
            extension,
            next: Arc::new(AtomicU16::new(1)),
        }
    }

    /// The header with the next number, and which that is. `None` where it has no room.
    pub(super) fn number(&self, header: &PacketHeader) -> Option<(PacketHeader, u16)> {
        // Streams of a transport leave by one thread: none overtakes another between the two.
        let number = self.next.load(Ordering::Relaxed);
        let numbered = extension::add(header, self.extension, number.to_be_bytes())?;
        self.next.store(number.wrapping_add(1), Ordering::Relaxed);
        Some((numbered, number))
    }
}
