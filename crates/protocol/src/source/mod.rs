//! Sources: sessions that send a transport stream to a multicast group, of their own accord.

mod session;
mod target;

pub use session::{Source, SourceSettings};
pub use target::{Carriage, Target, TargetError};
