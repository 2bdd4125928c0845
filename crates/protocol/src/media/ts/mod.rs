//! MPEG-2 transport streams (ISO/IEC 13818-1), as they are sent over IP and HTTP.

pub mod checker;
pub mod flow;
mod looped;
pub mod metrics;
mod mux;
pub mod packet;
pub mod reel;
mod sections;
pub mod stamp;
mod synthetic;
mod tables;

#[cfg(any(test, fuzzing))]
pub use sections::read_any;
