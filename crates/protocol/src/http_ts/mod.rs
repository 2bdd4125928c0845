//! Transport streams over HTTP.

pub mod relay;
