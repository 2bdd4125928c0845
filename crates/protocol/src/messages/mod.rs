//! Short messages over TCP, TLS, WebSockets and Unix sockets: as chats, games and telemetry send them.
//!
//! One connection is one client. Its session makes the connection, exchanges what has to come first, and then hands the connection
//! over as an [`exchange::Exchange`]: the worker sends and reads messages on it without asking the session for each.

pub mod client;
pub mod config;
mod descriptor;
pub mod exchange;
pub mod failure;
pub mod frame;
pub mod metrics;
pub mod schedule;
pub mod server;
mod summary;
pub mod template;
pub mod upgrade;
pub mod url;
pub mod ws;

pub use descriptor::PROTOCOL;

/// Several numbers to one that looks random (SplitMix64's finisher), the same for the same numbers.
#[inline]
pub(crate) fn mix(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15, |state, &number| {
            let mut value = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
            value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            value ^ (value >> 31)
        })
}
