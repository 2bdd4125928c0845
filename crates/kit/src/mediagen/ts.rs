//! MPEG-2 transport streams (ISO/IEC 13818-1): packets, tables, and streams that loop.

pub mod from_file;
pub mod looped_stream;
pub mod mux;
pub mod packet;
pub mod sections;
pub mod stamp;
pub mod synthetic;
pub mod tables;
pub(crate) mod video;

#[cfg(any(test, fuzzing))]
pub use sections::read_any;
