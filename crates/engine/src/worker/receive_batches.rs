//! Receive batches that the UDP sockets of a worker share.

use net::ReceiveBatch;

/// A reader takes a batch and puts it back. A batch is `None` while its datagrams are being
/// delivered.
pub(super) struct Batches {
    /// For polled sockets.
    pub(super) polled: Option<ReceiveBatch>,
    /// For polled sockets of traced clients. Keeps every datagram whole; allocates its memory on
    /// first use.
    pub(super) traced: Option<ReceiveBatch>,
    /// For media sockets that are read in batches, and for multicast groups.
    pub(super) media: Option<ReceiveBatch>,
}

impl Batches {
    pub(super) fn new() -> Batches {
        Batches {
            polled: Some(ReceiveBatch::new()),
            traced: Some(ReceiveBatch::whole()),
            media: Some(ReceiveBatch::new()),
        }
    }
}

/// Result of one receive call on a socket.
pub(super) enum ReceiveOutcome {
    Filled {
        /// True if the socket may hold more datagrams.
        more: bool,
    },
    Nothing,
    /// An error, which stands for one datagram or none. Datagrams behind it are not announced
    /// again.
    Error,
}
