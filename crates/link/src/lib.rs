//! What an emulated link does to packets, without sending any: packets and times go in, fates and
//! times come out.
//!
//! One [`Link`] is one direction. Each packet passes, in this order: outages and the MTU, random
//! [`Loss`], a bounded [`Queue`] in front of a serialiser with a bit rate, propagation delay with
//! [`Jitter`], and being held back. What happens to a packet by chance is drawn when it comes, and
//! the same number of draws is made for each. So with one seed the same packets in the same order
//! meet the same fate, whatever the times, and one setting does not change what another does.

mod codel;
mod config;
mod counts;
mod model;
mod random;
mod settings;
mod text;
mod wander;

pub use config::{Course, Keys, LinkConfig, Phase, Stage};
pub use counts::Counts;
pub use model::{Delivery, Link};
pub use settings::{Discipline, Jitter, Loss, Lost, Outage, Queue, QueueLimit, Settings, Shape};
pub use text::HeldBack;
