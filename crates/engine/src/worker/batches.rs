//! The memory that datagrams are read into, which the UDP sockets of a worker share.

use net::ReceiveBatch;

/// Whoever reads takes a batch, and puts it back. Where it is gone, somebody is hearing what it
/// holds.
pub(super) struct Batches {
    /// Of sockets that are polled.
    pub(super) polled: Option<ReceiveBatch>,
    /// The same for the clients that are traced, of whose datagrams every byte is kept; memory is
    /// taken when they come.
    pub(super) traced: Option<ReceiveBatch>,
    /// Of media sockets that are read in batches, and of groups.
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

/// What a look at a socket brought.
pub(super) enum Look {
    Filled {
        /// Whether there may be more.
        more: bool,
    },
    Nothing,
    /// An error, which stands for one datagram or none; those behind it are not told of again.
    Error,
}
