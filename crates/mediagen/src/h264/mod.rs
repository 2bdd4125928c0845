//! H.264 video made from nothing: a real stream of any bit rate, without an encoder library.
//!
//! The pictures are a gradient with a bar that walks across, and a moving patch of texture. Flat
//! macroblocks are Intra16x16 with one coefficient, what does not change is `P_Skip`, and the
//! texture is `I_PCM`, whose size is known beforehand: with as many of them a picture as the bit
//! rate wants, and filler data for the rest, the stream comes out at its rate to the byte.
//! Constrained Baseline or Main, CAVLC, one slice a picture, closed GOPs: it can be repeated
//! endlessly.

mod bits;
mod encoder;
pub mod packets;
mod picture;
pub mod sps;

pub use encoder::H264Stream;
