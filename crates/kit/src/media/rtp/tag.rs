//! Tags of packets that RTP flows send.

use session::Tag;

/// Meaning of a packet's tag: its number, and below it two flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct RtpTag(u64);

impl RtpTag {
    const COPY: u64 = 1;
    const HAS_COPY: u64 = 2;

    /// Returns the tag of packet `number`: the first or the second copy, of a packet that is sent
    /// twice or once.
    #[inline]
    pub(super) fn new(number: u64, is_copy: bool, has_copy: bool) -> RtpTag {
        let copy = if is_copy { RtpTag::COPY } else { 0 };
        let doubled = if has_copy { RtpTag::HAS_COPY } else { 0 };
        RtpTag(number << 2 | doubled | copy)
    }

    /// Packet number, from 0.
    #[inline]
    pub(super) fn number(self) -> u64 {
        self.0 >> 2
    }

    /// True for a second copy.
    #[inline]
    pub(super) fn is_copy(self) -> bool {
        self.0 & RtpTag::COPY != 0
    }

    /// True if the packet is sent twice, for both copies.
    #[inline]
    pub(super) fn has_copy(self) -> bool {
        self.0 & RtpTag::HAS_COPY != 0
    }
}

impl From<RtpTag> for Tag {
    #[inline]
    fn from(tag: RtpTag) -> Tag {
        Tag(tag.0)
    }
}

impl From<Tag> for RtpTag {
    #[inline]
    fn from(tag: Tag) -> RtpTag {
        RtpTag(tag.0)
    }
}
