//! Detects missing packets of a source and schedules NACKs for them.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

/// Maximum number of missing packets that are tracked. If more are missing, only a key frame helps.
const MISSING_MAX: usize = 1000;

/// Maximum distance of a tracked packet from the highest sequence number.
const AGE_MAX: u16 = 10_000;

/// Maximum number of NACKs for one packet, as in browsers.
const REQUESTS_MAX: u8 = 10;

/// Round-trip time assumed while it is unknown, and minimum interval between two NACKs for a
/// packet.
const ROUND_TRIP: Duration = Duration::from_millis(100);
const REQUEST_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Counts of missing packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NackCounts {
    /// Packets that were missing when a later one arrived.
    pub missing: u64,
    /// Packets requested, counting every request.
    pub requested: u64,
    /// Packets that arrived after they had been requested.
    pub recovered: u64,
    /// Packets that arrived out of order, before they were requested.
    pub reordered: u64,
    /// Packets given up: requested without success, too old, too many at once, or missing when the
    /// source restarted.
    pub given_up: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sequence: u16,
    requests: u8,
    next_request: Time,
}

/// Missing packets of one source. A packet in order costs one comparison.
#[derive(Debug, Default)]
pub struct NackTracker {
    highest: Option<u16>,
    /// In sequence order.
    entries: VecDeque<Entry>,
    round_trip: Option<Duration>,
    /// Time a packet may be late before it is requested.
    tolerance: Duration,
    /// Expected next number and current highest number, set by a packet far behind the highest. Two
    /// consecutive such packets, without a newer one in between, mean that the source restarted
    /// (RFC 3550, A.1).
    restart_candidate: Option<(u16, u16)>,
    key_frame_needed: bool,
    counts: NackCounts,
}

impl NackTracker {
    /// Requests a missing packet once `tolerance` has passed since a later one arrived. Browsers
    /// use zero.
    pub fn new(tolerance: Duration) -> NackTracker {
        NackTracker {
            tolerance,
            ..NackTracker::default()
        }
    }

    /// Sets the round-trip time, after which a packet is requested again.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    pub fn counts(&self) -> NackCounts {
        self.counts
    }

    /// Records an arrival. Returns `true` if the packet had been requested.
    #[inline]
    pub fn record_arrival(&mut self, sequence: u16, at: Time) -> bool {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            return false;
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead == 1 {
            self.highest = Some(sequence);
            return false;
        }
        self.out_of_order(sequence, ahead, at)
    }

    fn out_of_order(&mut self, sequence: u16, ahead: u16, at: Time) -> bool {
        if ahead == 0 {
            return false;
        }
        if ahead >= 1 << 15 {
            return self.late_packet(sequence);
        }
        let highest = sequence.wrapping_sub(ahead);
        self.highest = Some(sequence);
        let gap = u64::from(ahead) - 1;
        self.counts.missing += gap;
        if gap as usize > MISSING_MAX {
            // The source restarted, or too much is lost for retransmissions to help.
            self.counts.given_up += gap + self.entries.len() as u64;
            self.entries.clear();
            self.key_frame_needed = true;
            return false;
        }
        for step in 1..ahead {
            self.entries.push_back(Entry {
                sequence: highest.wrapping_add(step),
                requests: 0,
                next_request: at + self.tolerance,
            });
        }
        while self.entries.len() > MISSING_MAX {
            self.entries.pop_front();
            self.counts.given_up += 1;
            self.key_frame_needed = true;
        }
        while let Some(first) = self.entries.front()
            && sequence.wrapping_sub(first.sequence) > AGE_MAX
        {
            self.entries.pop_front();
            self.counts.given_up += 1;
        }
        false
    }

    fn late_packet(&mut self, sequence: u16) -> bool {
        let mut entries = self.entries.iter();
        let Some(index) = entries.position(|entry| entry.sequence == sequence) else {
            self.packet_far_behind(sequence);
            return false;
        };
        let was_requested = self
            .entries
            .remove(index)
            .is_some_and(|entry| entry.requests > 0);
        match was_requested {
            true => self.counts.recovered += 1,
            false => self.counts.reordered += 1,
        }
        was_requested
    }

    /// Handles a packet behind the highest that is not missing, and detects a restart of the
    /// source.
    fn packet_far_behind(&mut self, sequence: u16) {
        let Some(highest) = self.highest else {
            return;
        };
        if usize::from(highest.wrapping_sub(sequence)) <= MISSING_MAX {
            return;
        }
        let next = (sequence.wrapping_add(1), highest);
        if self.restart_candidate.replace(next) == Some((sequence, highest)) {
            self.counts.given_up += self.entries.len() as u64;
            self.entries.clear();
            self.highest = Some(sequence);
            self.restart_candidate = None;
        }
    }

    /// Returns `true` if packets or a key frame must be requested, now or later.
    #[inline]
    pub fn has_requests(&self) -> bool {
        !self.entries.is_empty() || self.key_frame_needed
    }

    /// Returns the oldest requested packet that has not arrived. It is taken for the original of a
    /// retransmission that does not name its original.
    pub fn oldest_requested(&self) -> Option<u16> {
        let mut entries = self.entries.iter();
        entries
            .find(|entry| entry.requests > 0)
            .map(|entry| entry.sequence)
    }

    /// Returns the time of the next request.
    pub fn next_due(&self) -> Option<Time> {
        self.entries.iter().map(|entry| entry.next_request).min()
    }

    /// Appends to `out` the packets to request now, in order, and counts them as requested.
    pub fn take_requests(&mut self, now: Time, out: &mut Vec<u16>) {
        let interval = self
            .round_trip
            .unwrap_or(ROUND_TRIP)
            .max(REQUEST_INTERVAL_MIN);
        let counts = &mut self.counts;
        self.entries.retain_mut(|entry| {
            if entry.next_request > now {
                return true;
            }
            if entry.requests >= REQUESTS_MAX {
                counts.given_up += 1;
                return false;
            }
            entry.requests += 1;
            entry.next_request = now + interval;
            counts.requested += 1;
            out.push(entry.sequence);
            true
        });
    }

    /// Returns `true` once after so many packets were missing that a key frame should be requested.
    pub fn take_key_frame_needed(&mut self) -> bool {
        std::mem::take(&mut self.key_frame_needed)
    }
}
