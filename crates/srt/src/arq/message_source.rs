//! Generated messages.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

/// Messages of a sender: all of one size, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSource {
    /// Size of a message in bytes.
    pub size: usize,
    /// Bit rate of the messages: at least 1.
    pub bits_per_second: u64,
    /// True if messages are to be delivered in order.
    pub in_order: bool,
    /// Time after which an unacknowledged message is dropped. Default: never.
    pub ttl: Option<Duration>,
}

impl MessageSource {
    /// Content of a message: its number, and bytes derived from the number.
    pub fn content(&self, number: u64) -> Bytes {
        let mut content = BytesMut::zeroed(self.size);
        let mut next = number as u8;
        for byte in content.iter_mut() {
            *byte = next;
            next = next.wrapping_add(1);
        }
        let number = number.to_be_bytes();
        let shown = number.len().min(self.size);
        content[..shown].copy_from_slice(&number[number.len() - shown..]);
        content.freeze()
    }

    pub(super) fn bits(&self) -> u64 {
        8 * self.size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_between_messages_of_any_size() {
        for size in [1, 7, 8, 5000] {
            let messages = MessageSource {
                size,
                bits_per_second: 1,
                in_order: true,
                ttl: None,
            };
            let (one, next) = (messages.content(258), messages.content(259));
            assert_eq!((one.len(), next.len()), (size, size));
            assert_ne!(one, next);
            assert_eq!(one, messages.content(258));
        }
    }
}
