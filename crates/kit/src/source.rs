//! Sources: sessions that send a transport stream to a multicast group without being asked.

mod session;
mod target;

pub use session::{GroupSender, SourceSettings};
pub use target::{Destination, Encapsulation, TargetError};

/// Default bit rate of a generated programme, in bit/s: 4 Mb/s.
pub const DEFAULT_RATE: u64 = 4_000_000;

/// Maximum number of groups that one process sends to.
pub const GROUPS_MAX: usize = 1_000;
