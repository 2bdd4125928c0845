//! Splits VP8 and VP9 frames into RTP payloads (RFC 7741, RFC 9628).

use bytes::Bytes;

/// Maximum length of a frame, in bytes.
pub(super) const FRAME_MAX: usize = 8 << 20;

/// Returns whether a VP8 frame is a key frame (RFC 6386, 9.1), and its payloads. Their descriptor
/// has no picture ID, because it could not continue when the clip loops.
pub(super) fn vp8(frame: &[u8], mtu: usize) -> (bool, Vec<Bytes>) {
    let is_key = frame.first().is_some_and(|first| first & 1 == 0);
    let payloads = pieces(frame, mtu).map(|(part, first, _)| {
        // S: start of a partition (RFC 7741, 4.2).
        let descriptor = if first { 0x10 } else { 0x00 };
        Bytes::from([&[descriptor], part].concat())
    });
    (is_key, payloads.collect())
}

/// Returns whether a VP9 frame is a key frame (VP9 bitstream, 6.2), and its payloads.
pub(super) fn vp9(frame: &[u8], mtu: usize) -> (bool, Vec<Bytes>) {
    let is_key = frame.first().is_some_and(|first| {
        // Profile 3 has an additional bit here.
        let shift = u8::from(first & 0x30 == 0x30);
        let (shows_existing, is_inter) = (first & (0x08 >> shift), first & (0x04 >> shift));
        first & 0xc0 == 0x80 && shows_existing == 0 && is_inter == 0
    });
    let payloads = pieces(frame, mtu).map(|(part, first, last)| {
        // P, B and E (RFC 9628, 4.2).
        let inter = if is_key { 0 } else { 0x40 };
        let descriptor = inter | u8::from(first) << 3 | u8::from(last) << 2;
        Bytes::from([&[descriptor], part].concat())
    });
    (is_key, payloads.collect())
}

/// Returns the profile of a VP9 frame (VP9 bitstream, 6.2).
pub(super) fn vp9_profile(frame: &[u8]) -> Option<u8> {
    let first = frame.first().filter(|first| *first & 0xc0 == 0x80)?;
    Some(first >> 5 & 1 | (first >> 4 & 1) << 1)
}

/// Splits a frame into parts of nearly equal length. The flags mark the first and the last part.
fn pieces(frame: &[u8], mtu: usize) -> impl Iterator<Item = (&[u8], bool, bool)> {
    let count = frame.len().div_ceil(mtu - 1).max(1);
    let each = frame.len().div_ceil(count).max(1);
    let count = frame.len().div_ceil(each);
    let pieces = frame.chunks(each).enumerate();
    pieces.map(move |(at, part)| (part, at == 0, at + 1 == count))
}
