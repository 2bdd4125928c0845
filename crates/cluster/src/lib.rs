//! Runs over several machines: one coordinator, and runners that play its clients.
//!
//! The coordinator is the engine's, with a [`RemoteCrew`] in place of workers of its own. A
//! [runner](serve) is the engine's too, with a connection in place of a coordinator. Between them
//! is NATS with JetStream: requests for orders and clocks, a log for reports, a bucket for files.
//! This is the only crate with an async runtime, which has one thread (`background.rs`).
//!
//! - Once a run has begun, nobody needs the network to know what to do: each runner knows its
//!   clients, and when each of them is due.
//! - The record is each runner's own run file; the log is a copy, from which the coordinator makes
//!   the run file of the whole. A message counts only once the log has acknowledged it.
//! - Nothing is dealt again while a run goes on. A runner that is lost makes the run invalid.
//! - Every wait has a limit, and its error says who was waited for.

mod background;
mod clock;
mod connection;
mod coordinator;
mod credentials;
mod crew;
mod error;
mod files;
mod inbox;
mod keys;
mod machine;
mod member;
mod names;
mod nats_server;
mod observed;
mod orders;
mod outbox;
mod placed;
mod placement;
mod reports;
mod resume;
mod run_state;
mod runner;
mod session;
mod storage;
mod targets;
#[cfg(test)]
mod tests;

pub use clock::{ClockEstimate, Exchange, Offset};
pub use connection::Access;
pub use coordinator::{Coordinator, RUNNERS_MAX, RunnerFacts, Wanted};
pub use crew::RemoteCrew;
pub use error::ClusterError;
pub use keys::{KeyOptions, WrittenKeys, write_keys};
pub use names::is_name;
pub use orders::MachineFacts;
pub use placement::{Place, Placement, Site};
pub use run_state::{RUN_STATE, RunState};
pub use runner::{ObserverOptions, RunnerOptions, observe, serve};
pub use session::{Cluster, ClusterOptions};
pub use targets::{Target, Targets};
