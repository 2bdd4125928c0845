//! Channels: a head of four bytes in place of a message (RFC 8656, 12).

/// How long the head of channel data is (RFC 8656, 12.4).
pub(super) const CHANNEL_HEAD: usize = 4;

/// A channel at a TURN server, by which datagrams leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayChannel {
    /// Its number.
    pub number: u16,
    /// Whether what is sent on it is padded, because the server is reached over a connection.
    pub padded: bool,
}

impl RelayChannel {
    /// What stands before and behind a datagram of that length: its head, and padding where a
    /// connection wants it (RFC 8656, 12.4 and 12.5).
    pub fn around(self, length: usize) -> ([u8; CHANNEL_HEAD], &'static [u8]) {
        let ([a, b], [c, d]) = (self.number.to_be_bytes(), (length as u16).to_be_bytes());
        let padding = length.next_multiple_of(4) - length;
        let padding = if self.padded { padding } else { 0 };
        ([a, b, c, d], &[0; 3][..padding])
    }
}
