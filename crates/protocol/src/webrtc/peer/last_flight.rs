//! What a server of DTLS said last. A client that has not heard it says its own last flight again,
//! and is to get the server's again (RFC 6347, 4.2.4).
//!
//! The same bytes go out again, as if the network had doubled them: so DTLS itself, which is a
//! hundred times as large, need not be kept for that.

use measure::Time;

/// How often it is sent again at most: the client's time to its next attempt doubles.
const AGAIN_MAX: u8 = 16;

/// The types of two records: the change of cipher, and the handshake (RFC 5246, 6.2.1). How long the
/// head of a record is, and where in it the epoch and the length are (RFC 6347, 4.1).
const CHANGE_CIPHER: u8 = 20;
const HANDSHAKE: u8 = 22;
const RECORD_HEAD: usize = 13;
const EPOCH: std::ops::Range<usize> = 3..5;
const LENGTH: std::ops::Range<usize> = 11..13;

/// The last flight, for as long as it may be asked for.
#[derive(Debug)]
pub(super) struct LastFlight {
    datagrams: Box<[Vec<u8>]>,
    again: u8,
    /// When nobody can ask for it any more.
    pub until: Time,
}

impl LastFlight {
    pub(super) fn new(datagrams: Vec<Vec<u8>>, until: Time) -> LastFlight {
        LastFlight {
            datagrams: datagrams.into(),
            again: 0,
            until,
        }
    }

    /// Whether that datagram may be of the last flight of a client that has not heard this one. Such
    /// a flight may take several datagrams, of which one alone asks for an answer.
    pub(super) fn may_come(bytes: &[u8]) -> bool {
        matches!(bytes, [CHANGE_CIPHER | HANDSHAKE, ..])
    }

    /// What is to be sent when that datagram came: all of it if a client's last message is in it,
    /// the one that is encrypted.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> &[Vec<u8>] {
        if self.again >= AGAIN_MAX || !records(bytes).any(is_finished) {
            return &[];
        }
        self.again += 1;
        &self.datagrams
    }
}

fn is_finished(head: &[u8; RECORD_HEAD]) -> bool {
    head[0] == HANDSHAKE && head[EPOCH] == [0, 1]
}

/// The heads of the records of a datagram, up to the first that is not whole.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8; RECORD_HEAD]> {
    std::iter::from_fn(move || {
        let head: &[u8; RECORD_HEAD] = bytes.first_chunk()?;
        let length = u16::from_be_bytes([head[LENGTH.start], head[LENGTH.start + 1]]);
        bytes = bytes.get(RECORD_HEAD + usize::from(length)..)?;
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
        record.resize(RECORD_HEAD + usize::from(length), 7);
        record
    }

    fn last() -> LastFlight {
        LastFlight::new(vec![vec![1], vec![2]], Time::ZERO)
    }

    #[test]
    fn only_who_ends_a_handshake_is_answered() {
        let finished = record(22, 1, 40);
        let ends = [
            finished.clone(),
            // With what comes before it: other messages, and the change of cipher.
            [record(22, 0, 500), record(20, 0, 1), finished].concat(),
        ];
        for datagram in &ends {
            assert_eq!(last().answer(datagram).len(), 2);
        }
        for datagram in [
            record(22, 0, 500),
            record(20, 0, 1),
            record(21, 1, 26),
            record(23, 1, 80),
            [record(23, 1, 1), record(22, 2, 40)].concat(),
        ] {
            assert_eq!(last().answer(&datagram).len(), 0, "{datagram:?}");
        }
    }

    #[test]
    fn a_record_that_is_not_whole_asks_for_nothing() {
        let datagram = [record(20, 0, 1), record(22, 1, 40)].concat();
        for length in 0..datagram.len() {
            assert_eq!(last().answer(&datagram[..length]).len(), 0, "{length}");
        }
    }

    #[test]
    fn it_is_not_sent_again_without_end() {
        let mut last = last();
        let finished = record(22, 1, 40);
        let answered = (0..1000).filter(|_| !last.answer(&finished).is_empty());
        assert_eq!(answered.count(), usize::from(AGAIN_MAX));
    }
}
