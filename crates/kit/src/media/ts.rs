//! MPEG-2 transport streams (ISO/IEC 13818-1): a checker of received streams, and a sender.

pub mod checker;
pub mod flow;
pub mod metrics;
pub mod stamped_stream;
