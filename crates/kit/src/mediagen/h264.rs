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

/// Splits the NAL units of a picture into those before the slices, such as the parameter sets, and
/// the slices. A time code comes between them.
pub(crate) fn before_slices(nals: &[Vec<u8>]) -> (&[Vec<u8>], &[Vec<u8>]) {
    let is_slice = |nal: &&Vec<u8>| nal.first().is_some_and(|header| header & 31 <= 5);
    let headers = nals.iter().take_while(|nal| !is_slice(nal)).count();
    nals.split_at(headers)
}
