//! Channels: a header of four bytes instead of a STUN message (RFC 8656, 12).

/// Length of the channel data header, in bytes (RFC 8656, 12.4).
pub(super) const CHANNEL_HEADER_LENGTH: usize = 4;

/// Channel of a TURN server, through which datagrams are sent to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayChannel {
    pub number: u16,
    /// True if channel data is padded, because the server is reached over TCP or TLS.
    pub padded: bool,
}

impl RelayChannel {
    /// Returns the header and the padding for a datagram of this length. Only channel data over TCP
    /// or TLS is padded (RFC 8656, 12.4 and 12.5).
    pub fn header_and_padding(self, length: usize) -> ([u8; CHANNEL_HEADER_LENGTH], &'static [u8]) {
        let ([a, b], [c, d]) = (self.number.to_be_bytes(), (length as u16).to_be_bytes());
        let padding = length.next_multiple_of(4) - length;
        let padding = if self.padded { padding } else { 0 };
        ([a, b, c, d], &[0; 3][..padding])
    }
}
