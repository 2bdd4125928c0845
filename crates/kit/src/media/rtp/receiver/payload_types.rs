//! Payload types that a receiver accepts.

/// A set of payload types.
#[derive(Clone, Copy, Debug)]
pub(super) struct PayloadTypes([u64; 2]);

impl PayloadTypes {
    pub(super) fn new(types: &[u8]) -> PayloadTypes {
        let mut set = [0u64; 2];
        for &kind in types.iter().filter(|&&kind| kind < 128) {
            set[usize::from(kind / 64)] |= 1 << (kind % 64);
        }
        if types.is_empty() {
            set = [u64::MAX; 2];
        }
        // Misdirected RTCP: its packet types 200 to 204 look like these payload types (RFC 5761,
        // 4).
        for kind in 72..=76 {
            set[1] &= !(1 << (kind - 64));
        }
        PayloadTypes(set)
    }

    #[inline]
    pub(super) fn has(self, kind: u8) -> bool {
        self.0[usize::from(kind >> 6 & 1)] & 1 << (kind % 64) != 0
    }
}
