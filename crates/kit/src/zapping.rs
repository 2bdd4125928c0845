//! Channel changes, as viewers make them.
//!
//! Changes follow a schedule: each stay begins when the change before it was due, counted from the
//! client's planned start, however long a change takes. Delays are measured from when the change
//! was due. A failed change is counted, and the client waits for the next one, as a viewer without
//! a picture would.

mod channels;
mod client;
mod summary;
mod viewer;
mod viewers;
mod watched;

pub use channels::{Channels, Zap};
pub use summary::SUMMARY;
pub use viewer::{Viewer, ViewerMaker};
pub use viewers::Viewers;

use measure::CounterId;

use crate::connect_failure::ConnectFailure;
use crate::metrics as m;

/// Returns the counter for changes that failed for want of a connection.
pub const fn counter_of_connect_failure(failure: ConnectFailure) -> CounterId {
    match failure.is_local() {
        true => m::ZAPS_FAILED_LOCAL,
        false => m::ZAPS_FAILED_CONNECT,
    }
}
