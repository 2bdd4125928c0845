//! Media to send: generated H.264 and VP8, at a fixed bit rate or from an encoder that honours
//! requests; clips from MP4 files, transport streams and browser recordings; MPEG-2 transport
//! streams with tables and clocks; and time codes in generated media.
//!
//! Bytes in, bytes out. The protocols decide what is sent, how and when.

#![deny(missing_docs)]

pub mod aac;
mod audio;
pub mod clip;
pub mod file;
pub mod frame_rate;
pub mod h264;
pub mod ladder;
mod opus;
pub mod picture_size;
pub mod segments;
pub mod steps;
#[cfg(test)]
mod tests;
pub mod time_code;
pub mod ts;
pub mod video;
pub mod vp8;
