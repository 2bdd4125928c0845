//! Media code that protocols share: formats, measuring receivers, and senders.

pub mod frames;
pub mod media_description;
pub mod play_range;
pub mod rtcp;
pub mod rtp;
pub mod sdp;
pub mod shared;
pub mod silence;
pub mod source;
pub mod talk;
pub mod ts;
