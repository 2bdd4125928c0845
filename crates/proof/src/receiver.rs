//! Loss detection of a client: missing packets, requests and packets given up.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::{Recorder, Time};
use serde::Serialize;

use super::config::ClientConfig;
use super::metrics as m;

/// Maximum number of missing packets that are tracked. Others are given up at once, because a
/// server may skip any number of them.
const MISSING_MAX: usize = 4096;

/// Length of the IPv4 and UDP headers in bytes.
const OVERHEAD: usize = 28;

/// Results of the stream: its row in the run file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) expected: u64,
    pub(super) received: u64,
    pub(super) recovered: u64,
    pub(super) given_up: u64,
}

/// Columns of that row.
pub(super) const COLUMNS: &[&str] = &["/expected", "/received", "/recovered", "/given_up"];

/// The packets of one stream, numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    asks: bool,
    ask_again: Duration,
    give_up_after: Duration,
    /// Highest known number plus 1.
    next: u32,
    missing: BTreeMap<u32, Missing>,
    /// Time at which [`Receiver::run_due`] has something to do.
    pub(super) due: Option<Time>,
    pub(super) counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    since: Time,
    ask_at: Time,
}

impl Receiver {
    pub(super) fn new(config: &ClientConfig) -> Receiver {
        Receiver {
            asks: config.recovery,
            ask_again: config.ask_again.0,
            give_up_after: config.give_up.0,
            ..Receiver::default()
        }
    }

    /// Returns `true` if every packet so far has arrived or was given up.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Handles a packet with `bytes` bytes of payload.
    pub(super) fn media(
        &mut self,
        number: u32,
        again: bool,
        bytes: usize,
        at: Time,
        recorder: &mut Recorder,
    ) {
        let headers = super::codec::media_header(number, again).len();
        recorder.add(m::WIRE_BYTES, (bytes + headers + OVERHEAD) as u64);
        recorder.add(m::RETRANSMITTED, u64::from(again));
        if number >= self.next {
            self.mark_missing(number, at, recorder);
            self.next = number.saturating_add(1);
            recorder.count(&mut self.counts.expected, m::EXPECTED, 1);
        } else {
            let Some(missing) = self.missing.remove(&number) else {
                return recorder.add(m::DUPLICATED, 1);
            };
            if again {
                recorder.count(&mut self.counts.recovered, m::RECOVERED, 1);
                recorder.record_duration(m::RECOVERY_DELAY, at.since(missing.since));
            } else {
                recorder.add(m::REORDERED, 1);
            }
        }
        recorder.count(&mut self.counts.received, m::RECEIVED, 1);
        recorder.add(m::PAYLOAD_BYTES, bytes as u64);
    }

    fn give_up(&mut self, count: u64, recorder: &mut Recorder) {
        recorder.count(&mut self.counts.given_up, m::GIVEN_UP, count);
    }

    /// Gives up the packets that are still missing when the client leaves.
    pub(super) fn finish(&mut self, recorder: &mut Recorder) {
        self.give_up(self.missing.len() as u64, recorder);
        self.missing.clear();
    }

    /// Handles the announced number of packets.
    pub(super) fn end(&mut self, count: u32, at: Time, recorder: &mut Recorder) {
        self.mark_missing(count, at, recorder);
    }

    /// Marks all packets from the next one up to `end`, exclusive, as missing.
    fn mark_missing(&mut self, end: u32, at: Time, recorder: &mut Recorder) {
        let count = end.saturating_sub(self.next);
        let room = u32::try_from(MISSING_MAX - self.missing.len()).unwrap_or(0);
        let kept = count.min(room);
        recorder.count(&mut self.counts.expected, m::EXPECTED, count.into());
        recorder.add(m::MISSED, count.into());
        self.give_up((count - kept).into(), recorder);
        let missing = Missing {
            since: at,
            ask_at: at,
        };
        let numbers = end - kept..end;
        self.missing.extend(numbers.map(|number| (number, missing)));
        self.next = self.next.max(end);
        if kept > 0 {
            self.due = Some(at);
        }
    }

    /// Gives up packets that have been missing for too long, and returns those to request now.
    pub(super) fn run_due(&mut self, now: Time, recorder: &mut Recorder) -> Vec<u32> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let (mut wanted, mut given_up) = (Vec::new(), 0);
        let mut due = Time::NEVER;
        self.missing.retain(|&number, missing| {
            let end = missing.since + self.give_up_after;
            if end <= now {
                given_up += 1;
                return false;
            }
            if self.asks && missing.ask_at <= now {
                wanted.push(number);
                missing.ask_at = now + self.ask_again;
            }
            let ask_at = if self.asks { missing.ask_at } else { end };
            due = due.min(end).min(ask_at);
            true
        });
        self.give_up(given_up, recorder);
        recorder.add(m::ASKED, wanted.len() as u64);
        self.due = (due != Time::NEVER).then_some(due);
        wanted
    }
}
