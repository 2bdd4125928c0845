//! Media to send: H.264 and VP8 made on the spot, at one bit rate or as an encoder makes it that
//! heeds requests, clips out of MP4 files, transport streams and recordings of what browsers send,
//! MPEG-2 transport streams with their tables and clocks, and time codes in what is made.
//!
//! Pure: bytes go in, bytes come out. What is sent with it, how and when, is the `protocol`
//! crate's.

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
pub mod steps;
#[cfg(test)]
mod tests;
pub mod time_code;
pub mod ts;
pub mod video;
pub mod vp8;
