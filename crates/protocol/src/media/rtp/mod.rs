//! RTP (RFC 3550): what a receiver measures, what a sender makes.

mod codes;
pub mod faults;
pub mod flow;
pub mod header;
mod jitter;
pub mod metrics;
mod outage;
mod playout;
pub mod receiver;
mod report;
mod sequence;
mod served;
mod summary;

pub use flow::{Clip, Course, Faults, FlowSettings, Pacing, RtpFlow};
pub use receiver::{Position, ReceiverConfig, RtpReceiver, StreamCounts};
pub use report::REPORT_EVERY;
pub use served::{Departure, ServedStream};
pub use summary::StreamSummary;
