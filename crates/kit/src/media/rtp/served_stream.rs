//! Statistics of what a reference server really sent.

use std::collections::VecDeque;

use measure::Time;
use serde::{Serialize, Serializer};

use session::{Handover, Tag};

use super::tag;

/// Packets of one stream of one session that really left a reference server.
///
/// Packets are numbered by extended sequence numbers: the first number as it is, plus 65,536 after
/// each wrap-around.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedStream {
    /// Identifier of the session, as the client knows it.
    pub session: String,
    /// Control URL of the media.
    pub url: String,
    /// `video` or `audio`.
    pub media: String,
    /// Synchronisation source.
    pub ssrc: u32,
    /// True if the client was told the first sequence number (RTP-Info). Otherwise it counts from
    /// the first packet that it received: from `first_left_extended_seq`.
    pub base_told: bool,
    /// Packets from the first of the stream to the highest that left. A receiver that knows the
    /// first sequence number expects as many.
    pub expected: u64,
    /// Packets that left, first copies only.
    pub sent: u64,
    /// Expected packets that never left: `expected` less `sent`.
    pub lost: u64,
    /// Packets after the highest that left, which no receiver can know about.
    pub lost_tail: u64,
    /// Lost packets, the tail included, that the network stack did not accept. The others were
    /// dropped on purpose, or were still held back at the end.
    pub not_taken: u64,
    /// Second copies that left.
    pub duplicated: u64,
    /// First copies that left after a packet with a higher sequence number (RFC 4737).
    pub reordered: u64,
    /// First sequence number of the stream, even if that packet did not leave.
    pub first_seq: u16,
    /// Extended sequence number of the packet that left first; `first_seq` if none did.
    pub first_left_extended_seq: u64,
    /// Highest extended sequence number that left; `first_seq` if none did.
    pub last_left_extended_seq: u64,
    /// Extended sequence number of the last planned packet; `first_seq` if there was none.
    pub last_extended_seq: u64,
    /// Bytes of payload in first copies.
    pub payload_bytes: u64,
    /// True if the stream ended before its session did.
    pub ended: bool,
    /// `CLOCK_MONOTONIC`, which the whole machine shares, when the server began, in nanoseconds:
    /// the origin of the times below. Set by the program that runs the server.
    pub clock_monotonic_nanos: i64,
    /// Departure of the first packet, in nanoseconds since the server began; `None` if none left.
    pub first_left_nanos: Option<u64>,
    /// All packets that left, second copies included, in the order in which they left. Empty unless
    /// requested; at most the first 131,072.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<Departure>,
}

/// A packet that left. Serialized as a list, to keep the report's lines short: `[began, ended,
/// number, timestamp, payload bytes]`, times in nanoseconds since the server began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    pub when: Handover,
    /// Extended sequence number.
    pub number: u64,
    pub timestamp: u32,
    /// Payload size in bytes.
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

/// Maximum number of logged departures per stream: 4 MiB.
const DEPARTURES_MAX: usize = 1 << 17;

/// Log of the packets that left. It knows nothing about faults: it sees the timestamps of packets
/// that are handed out, and which of these packets left.
#[derive(Debug, Default)]
pub(super) struct DepartureLog {
    /// Timestamps of the packets that were handed out to the network stack.
    handed_out: VecDeque<u32>,
    pub(super) departures: Vec<Departure>,
}

impl DepartureLog {
    pub(super) fn handed_out(&mut self, timestamp: u32) {
        self.handed_out.push_back(timestamp);
    }

    pub(super) fn record_departure(&mut self, number: u64, left: Option<Handover>, payload: usize) {
        let timestamp = self.handed_out.pop_front().unwrap_or_default();
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
}

/// Counters of a stream.
#[derive(Debug, Default)]
pub(super) struct DepartureCounter {
    sent: u64,
    payload_bytes: u64,
    copy_bytes: u64,
    duplicated: u64,
    reordered: u64,
    pub(super) not_taken: u64,
    /// Number of the packet that left first, and highest number.
    first: Option<u64>,
    highest: u64,
    /// Departure of the first packet.
    began: Option<Time>,
    /// Packets whose first copy was not accepted and whose second copy is still to be sent. The
    /// second copy follows directly, so these are few.
    awaiting_copy: Vec<u64>,
}

impl DepartureCounter {
    #[inline]
    pub(super) fn count_departure(&mut self, tag: Tag, left: Option<Handover>, payload: u64) {
        if self.began.is_none() {
            self.began = left.map(|handover| handover.ended);
        }
        let (number, left) = (tag::number(tag), left.is_some());
        match (tag::is_copy(tag), left) {
            (false, true) => self.first_copy(number, payload),
            (false, false) if tag::has_copy(tag) => self.awaiting_copy.push(number),
            (false, false) => self.not_taken += 1,
            (true, left) => {
                let first_was_not_taken = self
                    .awaiting_copy
                    .iter()
                    .position(|&waiting| waiting == number)
                    .map(|index| self.awaiting_copy.swap_remove(index))
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

    pub(super) fn has_sent(&self) -> bool {
        self.began.is_some()
    }

    pub(super) fn sent_with_copies(&self) -> (u64, u64) {
        (
            self.sent + self.duplicated,
            self.payload_bytes + self.copy_bytes,
        )
    }

    /// Returns the statistics of a stream with `planned` packets.
    pub(super) fn served(&self, ssrc: u32, first_seq: u16, planned: u64) -> ServedStream {
        let base = u64::from(first_seq);
        let expected = self.first.map_or(0, |_| self.highest + 1);
        ServedStream {
            ssrc,
            expected,
            sent: self.sent,
            lost: expected - self.sent,
            lost_tail: planned - expected,
            not_taken: self.not_taken + self.awaiting_copy.len() as u64,
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
