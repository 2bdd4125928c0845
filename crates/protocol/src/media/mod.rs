//! What protocols share: media formats, receivers that measure, sources that send.

mod audio;
pub mod clip;
pub mod described;
mod file;
pub mod h264;
pub mod rtcp;
pub mod rtp;
pub mod sdp;
pub(crate) mod silence;
pub mod source;
pub mod time_code;
pub mod ts;
