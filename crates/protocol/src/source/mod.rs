//! Sources: sessions that send a transport stream to a multicast group, of their own accord.

mod session;
mod target;

pub use session::{GroupSender, SourceSettings};
pub use target::{Carriage, Target, TargetError};

/// The bit rate of a made programme where none is named, in bit/s: 4 Mb/s.
pub const DEFAULT_RATE: u64 = 4_000_000;

/// The most groups that one process sends to.
pub const GROUPS_MAX: usize = 1_000;
