//! What a reference server really did to a stream.

use std::collections::VecDeque;

use measure::Time;
use serde::{Serialize, Serializer};

use crate::session::{Handover, Tag};

/// What a reference server did to one stream of one session: what really left.
///
/// Packets are numbered by extended sequence numbers: the first number as it is, 65,536 more after
/// each wrap-around.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedStream {
    /// The session, as the server named it to the client.
    pub session: String,
    /// The media's control URL.
    pub url: String,
    /// `video` or `audio`.
    pub media: String,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Whether the client was told the first sequence number (RTP-Info). If not, it counts from the
    /// first packet it got: from `first_left_extended_seq`.
    pub base_told: bool,
    /// Packets from the first of the stream to the highest that left: what a receiver that was told
    /// the first sequence number expects.
    pub expected: u64,
    /// Packets that left, first copies only.
    pub sent: u64,
    /// Of the expected packets, those that never left: expected less sent.
    pub lost: u64,
    /// Packets after the highest that left, which no receiver can know of.
    pub lost_tail: u64,
    /// Of the lost, the tail included, those that the network stack did not take. The others were
    /// left out on purpose, or still held back at the end.
    pub not_taken: u64,
    /// Second copies that left.
    pub duplicated: u64,
    /// First copies that left after a packet with a higher sequence number (RFC 4737).
    pub reordered: u64,
    /// First sequence number of the stream, whether it left or not.
    pub first_seq: u16,
    /// The first packet that left, as an extended sequence number; `first_seq` if none did.
    pub first_left_extended_seq: u64,
    /// The highest packet that left, as an extended sequence number; `first_seq` if none did.
    pub last_left_extended_seq: u64,
    /// The last packet that was to be sent, as an extended sequence number; `first_seq` if there
    /// was none.
    pub last_extended_seq: u64,
    /// Bytes of payload in first copies.
    pub payload_bytes: u64,
    /// Whether the stream came to its end, and not to that of its session.
    pub ended: bool,
    /// What `CLOCK_MONOTONIC`, which the whole machine shares, showed when the server began, in
    /// nanoseconds: what the times below count from. Set by whoever runs the server.
    pub clock_monotonic_nanos: i64,
    /// When the first packet left, in nanoseconds since the server began; `None` if none did.
    pub first_left_nanos: Option<u64>,
    /// Each packet that left, second copies too, in the order in which they left. Empty where
    /// nobody asked for it; no more than the first 131,072.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<Departure>,
}

/// A packet that left. Written as a list, to keep the report's lines short:
/// `[began, ended, number, timestamp, payload bytes]`, times in nanoseconds since the server began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When.
    pub when: Handover,
    /// Its extended sequence number.
    pub number: u64,
    /// Its RTP timestamp.
    pub timestamp: u32,
    /// Bytes of its payload.
    pub payload: u32,
}

impl Serialize for Departure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Handover { began, ended } = self.when;
        (
            began.as_nanos(),
            ended.as_nanos(),
            self.number,
            self.timestamp,
            self.payload,
        )
            .serialize(serializer)
    }
}

/// Most departures of one stream that are written down: 4 MiB of them.
const DEPARTURES_MAX: usize = 1 << 17;

/// What left, packet by packet. Knows nothing of faults: it sees timestamps as they are handed out,
/// and which of these packets left.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Timestamps of the packets that are on their way to the network stack.
    under_way: VecDeque<u32>,
    departures: Vec<Departure>,
}

impl Log {
    pub(super) fn handed_out(&mut self, timestamp: u32) {
        self.under_way.push_back(timestamp);
    }

    pub(super) fn left(&mut self, number: u64, left: Option<Handover>, payload: usize) {
        let timestamp = self.under_way.pop_front().unwrap_or_default();
        if let Some(when) = left
            && self.departures.len() < DEPARTURES_MAX
        {
            self.departures.push(Departure {
                when,
                number,
                timestamp,
                payload: payload as u32,
            });
        }
    }

    pub(super) fn departures(&self) -> &[Departure] {
        &self.departures
    }
}

/// Counts of a stream.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sent: u64,
    payload_bytes: u64,
    copy_bytes: u64,
    duplicated: u64,
    reordered: u64,
    not_taken: u64,
    /// Numbers of the packet that left first, and of the highest.
    first: Option<u64>,
    highest: u64,
    /// When a packet left first.
    began: Option<Time>,
    /// Packets whose first copy was not taken, and whose second is still to go. The second follows
    /// the first at once, so these are few.
    second_try: Vec<u64>,
}

impl Tally {
    #[inline]
    pub(super) fn left(&mut self, tag: Tag, left: Option<Handover>, payload: u64) {
        if self.began.is_none() {
            self.began = left.map(|handover| handover.ended);
        }
        let (number, left) = (tag.number(), left.is_some());
        match (tag.is_copy(), left) {
            (false, true) => self.first_copy(number, payload),
            (false, false) if tag.has_copy() => self.second_try.push(number),
            (false, false) => self.not_taken += 1,
            (true, left) => {
                let first_was_not_taken = self
                    .second_try
                    .iter()
                    .position(|&waiting| waiting == number)
                    .map(|place| self.second_try.swap_remove(place))
                    .is_some();
                match (first_was_not_taken, left) {
                    (true, true) => self.first_copy(number, payload),
                    (true, false) => self.not_taken += 1,
                    (false, true) => {
                        self.duplicated += 1;
                        self.copy_bytes += payload;
                    }
                    (false, false) => {}
                }
            }
        }
    }

    fn first_copy(&mut self, number: u64, payload: u64) {
        self.sent += 1;
        self.payload_bytes += payload;
        if self.first.is_none() {
            self.first = Some(number);
            self.highest = number;
        } else if number > self.highest {
            self.highest = number;
        } else {
            self.reordered += 1;
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    pub(super) fn not_taken(&self) -> u64 {
        self.not_taken
    }

    pub(super) fn sent_with_copies(&self) -> (u64, u64) {
        (
            self.sent + self.duplicated,
            self.payload_bytes + self.copy_bytes,
        )
    }

    /// The counts, where `planned` packets were to be sent.
    pub(super) fn served(&self, ssrc: u32, first_seq: u16, planned: u64) -> ServedStream {
        let base = u64::from(first_seq);
        let expected = self.first.map_or(0, |_| self.highest + 1);
        ServedStream {
            ssrc,
            expected,
            sent: self.sent,
            lost: expected - self.sent,
            lost_tail: planned - expected,
            not_taken: self.not_taken + self.second_try.len() as u64,
            duplicated: self.duplicated,
            reordered: self.reordered,
            first_seq,
            first_left_extended_seq: base + self.first.unwrap_or(0),
            last_left_extended_seq: base + self.highest,
            last_extended_seq: base + planned.saturating_sub(1),
            payload_bytes: self.payload_bytes,
            first_left_nanos: self.began.map(Time::as_nanos),
            ..ServedStream::default()
        }
    }
}
