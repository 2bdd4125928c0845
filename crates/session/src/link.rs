//! Model of an emulated link, without I/O: packets and times go in, fates and times come out.
//!
//! A [`Link`] is one direction. Each packet passes, in this order: outages and the MTU, random
//! [`Loss`], a bounded [`Queue`] in front of a serialiser with a bit rate, propagation delay with
//! [`Jitter`], and optional hold-back. Random values are drawn when a packet is sent, the same
//! number for each packet. With one seed, the same packets in the same order therefore meet the
//! same fate at any times, and one setting does not change the effect of another.

mod codel;
mod config;
mod counts;
mod model;
mod ordered_jitter;
mod random;
mod settings;
mod text;

pub use config::{LinkConfig, PartialSettings, PhaseConfig, SettingsTimeline, StageConfig};
pub use counts::Counts;
pub use model::{Delivery, Link};
pub use settings::{Discipline, Jitter, Loss, Lost, Outage, Queue, QueueLimit, Settings, Shape};
pub use text::HeldBack;
