//! Last flight of a DTLS server, kept for retransmission: a client that did not receive it repeats
//! its own last flight (RFC 6347, 4.2.4).
//!
//! The same bytes are sent again, as if the network had duplicated them. So the DTLS state, which
//! is a hundred times as large, need not be kept for this.

use measure::Time;

/// Maximum number of retransmissions; the client doubles the interval between its attempts.
const RETRANSMISSIONS_MAX: u8 = 16;

/// Content types change_cipher_spec and handshake (RFC 5246, 6.2.1); length of a record header, and
/// the positions of epoch and length in it (RFC 6347, 4.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const RECORD_HEADER_LENGTH: usize = 13;
const EPOCH: std::ops::Range<usize> = 3..5;
const LENGTH: std::ops::Range<usize> = 11..13;

/// The last flight, kept as long as the client may request it.
#[derive(Debug)]
pub(super) struct LastFlight {
    datagrams: Box<[Vec<u8>]>,
    retransmissions: u8,
    /// Time after which the client no longer requests it.
    pub expires_at: Time,
}

impl LastFlight {
    pub(super) fn new(datagrams: Vec<Vec<u8>>, expires_at: Time) -> LastFlight {
        LastFlight {
            datagrams: datagrams.into(),
            retransmissions: 0,
            expires_at,
        }
    }

    /// Returns `true` if a datagram may belong to the last flight of a client that has not received
    /// this one. The client's flight may span several datagrams, of which only one requires an
    /// answer.
    pub(super) fn is_client_flight(bytes: &[u8]) -> bool {
        matches!(bytes, [CHANGE_CIPHER_SPEC | HANDSHAKE, ..])
    }

    /// Returns the datagrams to send in answer to `bytes`: the whole flight if `bytes` contains the
    /// client's last message, the encrypted one; otherwise nothing.
    pub(super) fn retransmit_for(&mut self, bytes: &[u8]) -> &[Vec<u8>] {
        if self.retransmissions >= RETRANSMISSIONS_MAX || !records(bytes).any(is_finished) {
            return &[];
        }
        self.retransmissions += 1;
        &self.datagrams
    }
}

fn is_finished(head: &[u8; RECORD_HEADER_LENGTH]) -> bool {
    head[0] == HANDSHAKE && head[EPOCH] == [0, 1]
}

/// Iterates over the record headers of a datagram, up to the first incomplete record.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8; RECORD_HEADER_LENGTH]> {
    std::iter::from_fn(move || {
        let head: &[u8; RECORD_HEADER_LENGTH] = bytes.first_chunk()?;
        let length = u16::from_be_bytes([head[LENGTH.start], head[LENGTH.start + 1]]);
        bytes = bytes.get(RECORD_HEADER_LENGTH + usize::from(length)..)?;
        Some(head)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, epoch: u16, length: u16) -> Vec<u8> {
        let mut record = vec![kind, 0xfe, 0xfd];
        record.extend_from_slice(&epoch.to_be_bytes());
        record.extend_from_slice(&[0, 0, 0, 0, 0, 5]);
        record.extend_from_slice(&length.to_be_bytes());
        record.resize(RECORD_HEADER_LENGTH + usize::from(length), 7);
        record
    }

    fn last() -> LastFlight {
        LastFlight::new(vec![vec![1], vec![2]], Time::ZERO)
    }

    #[test]
    fn only_a_finished_message_is_answered() {
        let finished = record(22, 1, 40);
        let answered = [
            finished.clone(),
            // Preceded by other messages and the change of cipher.
            [record(22, 0, 500), record(20, 0, 1), finished].concat(),
        ];
        for datagram in &answered {
            assert_eq!(last().retransmit_for(datagram).len(), 2);
        }
        for datagram in [
            record(22, 0, 500),
            record(20, 0, 1),
            record(21, 1, 26),
            record(23, 1, 80),
            [record(23, 1, 1), record(22, 2, 40)].concat(),
        ] {
            assert_eq!(last().retransmit_for(&datagram).len(), 0, "{datagram:?}");
        }
    }

    #[test]
    fn truncated_record_is_not_answered() {
        let datagram = [record(20, 0, 1), record(22, 1, 40)].concat();
        for length in 0..datagram.len() {
            assert_eq!(
                last().retransmit_for(&datagram[..length]).len(),
                0,
                "{length}"
            );
        }
    }

    #[test]
    fn retransmissions_are_bounded() {
        let mut last = last();
        let finished = record(22, 1, 40);
        let answered = (0..1000).filter(|_| !last.retransmit_for(&finished).is_empty());
        assert_eq!(answered.count(), usize::from(RETRANSMISSIONS_MAX));
    }
}
