//! Tags of packets that RTP flows send: the packet number, and below it two flags.

use session::Tag;

const COPY: u64 = 1;
const HAS_COPY: u64 = 2;

/// Returns the tag of packet `number`: the first or the second copy, of a packet that is sent twice
/// or once.
#[inline]
pub(super) fn new(number: u64, is_copy: bool, has_copy: bool) -> Tag {
    let copy = if is_copy { COPY } else { 0 };
    let doubled = if has_copy { HAS_COPY } else { 0 };
    Tag(number << 2 | doubled | copy)
}

/// Packet number, from 0.
#[inline]
pub(super) fn number(tag: Tag) -> u64 {
    tag.0 >> 2
}

/// True for a second copy.
#[inline]
pub(super) fn is_copy(tag: Tag) -> bool {
    tag.0 & COPY != 0
}

/// True if the packet is sent twice, for both copies.
#[inline]
pub(super) fn has_copy(tag: Tag) -> bool {
    tag.0 & HAS_COPY != 0
}
