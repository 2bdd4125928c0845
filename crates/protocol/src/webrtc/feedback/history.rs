//! What a source has sent, for those who ask for it again.

use std::time::Duration;

use bytes::Bytes;
use measure::Time;

use crate::session::PacketHeader;

/// A packet that was sent, before it was sealed.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its header of RTP.
    pub header: PacketHeader,
    /// Its payload, which other receivers of the same media may share.
    pub payload: Bytes,
    sequence: u16,
    /// When it was last sent again.
    again: Option<Time>,
}

/// What became of questions for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryCounts {
    /// Packets that were asked for, each time.
    pub asked: u64,
    /// Packets that were sent again.
    pub sent_again: u64,
    /// Packets that were asked for again before an answer could have come.
    pub too_soon: u64,
    /// Packets that are not kept any more, or never were.
    pub unknown: u64,
}

/// The last packets of a source: as many as it was made for, and no more.
#[derive(Debug)]
pub struct History {
    /// At their sequence numbers' remainders.
    kept: Vec<Option<Sent>>,
    length: usize,
    pause: Duration,
    counts: HistoryCounts,
}

impl History {
    /// The last packets, as many as the next power of two of `length`, at most 4,096.
    pub fn new(length: usize) -> History {
        History {
            kept: Vec::new(),
            // A divisor of all sequence numbers, so that each has one place.
            length: length.clamp(1, 4096).next_power_of_two(),
            pause: Duration::from_millis(5),
            counts: HistoryCounts::default(),
        }
    }

    /// How long an answer takes: what is asked for again before is left out. At least 5 ms.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.pause = round_trip.max(Duration::from_millis(5));
    }

    /// What became of questions so far.
    pub fn counts(&self) -> HistoryCounts {
        self.counts
    }

    /// A packet leaves for the first time.
    pub fn sent(&mut self, sequence: u16, header: PacketHeader, payload: Bytes) {
        let place = usize::from(sequence) % self.length;
        if self.kept.len() <= place {
            // Room for all at once: it is taken once in the life of a source that is long enough.
            self.kept.resize_with(self.length, || None);
        }
        self.kept[place] = Some(Sent {
            header,
            payload,
            sequence,
            again: None,
        });
    }

    /// The packet that is asked for, if it is to be sent again. It then counts as sent.
    pub fn again(&mut self, sequence: u16, now: Time) -> Option<&Sent> {
        self.counts.asked += 1;
        let place = usize::from(sequence) % self.length;
        let kept = self.kept.get_mut(place).and_then(Option::as_mut);
        let Some(sent) = kept.filter(|sent| sent.sequence == sequence) else {
            self.counts.unknown += 1;
            return None;
        };
        // What is asked for the first time was not there in time, however soon that is.
        if sent.again.is_some_and(|at| now.since(at) < self.pause) {
            self.counts.too_soon += 1;
            return None;
        }
        sent.again = Some(now);
        self.counts.sent_again += 1;
        Some(sent)
    }
}
