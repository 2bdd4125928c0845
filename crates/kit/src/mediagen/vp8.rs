//! Generated VP8 video, like H.264 ([`super::h264`]): a valid stream of any bit rate, without an
//! encoder library.
//!
//! The pictures are grey columns with a moving bar and a moving patch of texture, which has as many
//! blocks as the bit rate requires. Zeros fill the rest of a frame, followed by its time code: a
//! decoder stops reading before them. There is one coefficient partition, no loop filter, and the
//! key frame is the only golden frame, so the stream can be looped and a lost frame damages no
//! other.

mod bool_encoder;
mod encoder;
mod picture;
mod tables;

pub use encoder::Vp8Stream;
pub(crate) use encoder::cut;
