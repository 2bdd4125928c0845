//! Generated H.264 video: a valid stream of any bit rate, without an encoder library.
//!
//! The pictures are a gradient with a moving bar and a moving patch of texture. Flat macroblocks
//! are Intra16x16 with one coefficient, unchanged ones are `P_Skip`, and texture is `I_PCM`, whose
//! size is known in advance. With as many texture macroblocks per picture as the bit rate requires,
//! and filler data for the rest, the stream has its bit rate to the byte. Constrained Baseline or
//! Main, CAVLC, one slice per picture, closed GOPs: the stream can be looped.

mod bits;
mod encoder;
pub mod packets;
mod picture;
pub mod sps;

pub(crate) use bits::BitWriter;
pub use encoder::H264Stream;
