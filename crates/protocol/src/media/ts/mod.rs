//! MPEG-2 transport streams (ISO/IEC 13818-1): what checks one that comes, and what sends one.

pub mod checker;
pub mod flow;
pub mod metrics;
