//! VP8 video made from nothing, as H.264 is ([`crate::h264`]): a real stream of any bit rate,
//! without an encoder library.
//!
//! The pictures are columns of grey with a bar that walks across, and a moving patch of texture, of
//! as many blocks as the bit rate wants. Zeros fill the rest of a frame, behind which its time code
//! stands: a decoder has read all by then. One partition of coefficients, no loop filter, no golden
//! frame but the key frame: it can be repeated endlessly, and a frame that is lost spoils no other.

mod bool_encoder;
mod encoder;
mod picture;
mod tables;

pub use encoder::Vp8Stream;
pub(crate) use encoder::cut;
