//! Datagrams of our own source, each tracked by its stamp.

use std::net::SocketAddr;
use std::time::Duration;

use libdeflater::Crc;
use measure::{Recorder, Time};

use super::DatagramCounts;
use crate::media::ts::metrics as m;
use crate::mediagen::steps;
use crate::mediagen::ts::packet::PACKET_LEN;
use crate::mediagen::ts::stamp::Stamp;

/// Number of recent datagrams that are remembered to detect duplicates.
const WINDOW: u64 = 4096;

/// A number that is further ahead belongs to a restarted stream: this is minutes at any bit rate.
const AHEAD_MAX: u64 = 10_000_000;

/// Number of consecutive datagrams from another source after which the stream belongs to it.
const NEW_SOURCE_AFTER: u32 = 100;

/// Owner of a packet, according to the stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This stream, or unknown.
    ThisStream,
    /// Another group.
    OtherGroup,
}

/// Datagrams of a stream.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// Group that the stamps must name, if known.
    pub(super) group: Option<SocketAddr>,
    /// Group of the previous channel.
    previous_group: Option<SocketAddr>,
    /// Wall clock at the start of the run, in nanoseconds since 1970.
    wall_clock_origin: Option<u64>,
    /// The datagram that is arriving.
    current: Option<OpenDatagram>,
    source: Option<StampSource>,
    /// Another source, and the number of its consecutive datagrams.
    other: (u64, u32),
    pub(super) counts: DatagramCounts,
    /// Expected and received datagrams that have been added to the recorder.
    added: (u64, u64),
}

#[derive(Debug)]
struct OpenDatagram {
    stamp: Stamp,
    whose: Owner,
    /// Number of packets that have not arrived.
    remaining: u8,
    /// CRC-32 of the packets that have arrived.
    check: u32,
}

/// The source that is currently received.
#[derive(Debug)]
struct StampSource {
    id: u64,
    lowest: u64,
    highest: u64,
    /// Bit set of the last [`WINDOW`] numbers that arrived.
    seen: [u64; (WINDOW / 64) as usize],
}

impl Datagrams {
    pub(super) fn new(
        group: Option<SocketAddr>,
        before: Option<SocketAddr>,
        wall_clock: Option<Duration>,
    ) -> Datagrams {
        Datagrams {
            group,
            // Two URLs may lead to the same group.
            previous_group: before.filter(|_| before != group),
            wall_clock_origin: wall_clock
                .map(|clock| u64::try_from(clock.as_nanos()).unwrap_or(u64::MAX)),
            ..Datagrams::default()
        }
    }

    /// Handles a loss of sync: the following packets do not belong to the datagram that was
    /// arriving.
    pub(super) fn sync_lost(&mut self) {
        if let Some(current) = &mut self.current {
            // The datagram ends, as damaged, with the next stamp.
            current.remaining = 0;
        }
    }

    /// Returns the owner of a datagram with this stamp.
    #[inline]
    fn owner(&self, stamp: &Stamp) -> Owner {
        let others = self.group.is_some_and(|group| group != stamp.group)
            || self.previous_group == Some(stamp.group);
        match others {
            true => Owner::OtherGroup,
            false => Owner::ThisStream,
        }
    }

    /// True if a datagram with this stamp belongs to the stream and no other one is arriving: if
    /// all of it is present, no state has to be kept.
    #[inline]
    pub(super) fn can_take_whole(&self, stamp: &Stamp) -> bool {
        self.current.is_none() && stamp.packets > 1 && self.owner(stamp) == Owner::ThisStream
    }

    /// Adds the counts that every datagram changes to the recorder: once per piece.
    #[inline]
    pub(super) fn add(&mut self, recorder: &mut Recorder) {
        let (expected, received) = (self.counts.expected, self.counts.received);
        let before = std::mem::replace(&mut self.added, (expected, received));
        recorder.add(m::EXPECTED, expected - before.0);
        recorder.add(m::RECEIVED, received - before.1);
    }

    /// Declares that the source sent `count` datagrams in all, and that no more arrive: those after
    /// the last received one are expected and lost. Returns their number.
    pub(super) fn set_total_sent(&mut self, source: u64, count: u64) -> u64 {
        let own = self.source.as_ref().filter(|own| own.id == source);
        let last = own.zip(count.checked_sub(1));
        let lost = last.map_or(0, |(own, last)| last.saturating_sub(own.highest));
        // Minutes of loss at the end are not plausible.
        let lost = if lost > AHEAD_MAX { 0 } else { lost };
        self.counts.expected += lost;
        lost
    }

    /// Handles a stamp: a datagram begins.
    #[inline]
    pub(super) fn stamp(&mut self, stamp: Stamp, at: Time, recorder: &mut Recorder) {
        if let Some(cut) = self.current.take() {
            self.finish_datagram(&cut.stamp, false, at, recorder);
        }
        let left = stamp.packets.saturating_sub(1);
        let check = libdeflater::crc32(&[]);
        if left == 0 {
            let whole = stamp.packets == 1 && check == stamp.check;
            self.finish_datagram(&stamp, whole, at, recorder);
            return;
        }
        self.current = Some(OpenDatagram {
            whose: self.owner(&stamp),
            stamp,
            remaining: left,
            check,
        });
    }

    /// Handles a packet without a stamp.
    #[inline]
    pub(super) fn packet(
        &mut self,
        packet: &[u8; PACKET_LEN],
        at: Time,
        recorder: &mut Recorder,
    ) -> Owner {
        match &mut self.current {
            Some(current) if current.remaining > 0 => {
                let mut check = Crc::with_initial(current.check);
                check.update(packet);
                current.check = check.sum();
                current.remaining -= 1;
                let whose = current.whose;
                if current.remaining > 0 {
                    return whose;
                }
                if let Some(OpenDatagram { stamp, check, .. }) = self.current.take() {
                    self.finish_datagram(&stamp, check == stamp.check, at, recorder);
                }
                whose
            }
            _ => {
                recorder.count(&mut self.counts.stray_packets, m::STRAY_PACKETS, 1);
                Owner::ThisStream
            }
        }
    }

    /// Handles the end of a datagram, complete or not.
    #[inline]
    pub(super) fn finish_datagram(
        &mut self,
        stamp: &Stamp,
        whole: bool,
        at: Time,
        recorder: &mut Recorder,
    ) {
        if self.previous_group == Some(stamp.group) {
            recorder.count(&mut self.counts.old_channel, m::OLD_CHANNEL, 1);
            return self.count_foreign(recorder);
        }
        if *self.group.get_or_insert(stamp.group) != stamp.group {
            return self.count_foreign(recorder);
        }
        match &self.source {
            Some(source) if source.id == stamp.source => self.other.1 = 0,
            None => self.begin(stamp),
            Some(_) => {
                if self.other.0 != stamp.source {
                    self.other = (stamp.source, 0);
                }
                self.other.1 += 1;
                if self.other.1 < NEW_SOURCE_AFTER {
                    return self.count_foreign(recorder);
                }
                self.restart(stamp, recorder);
            }
        }
        let Some(source) = &mut self.source else {
            return;
        };
        let ahead = stamp.number.wrapping_sub(source.highest);
        if stamp.number > source.highest && ahead > if whole { AHEAD_MAX } else { WINDOW } {
            if whole {
                self.restart(stamp, recorder);
            } else {
                // The stamp itself may be damaged.
                recorder.count(&mut self.counts.damaged, m::DAMAGED, 1);
                return;
            }
        }
        let Some(source) = &mut self.source else {
            return;
        };
        match source.classify(stamp.number) {
            DatagramClass::Late => {
                return recorder.count(&mut self.counts.late, m::LATE, 1);
            }
            DatagramClass::Duplicate => {
                return recorder.count(&mut self.counts.duplicated, m::DUPLICATED, 1);
            }
            DatagramClass::New { grown, behind } => {
                self.counts.expected += grown;
                if behind > 0 {
                    recorder.count(&mut self.counts.reordered, m::REORDERED, 1);
                    recorder.record(m::REORDER_DISTANCE, behind);
                }
            }
        }
        self.counts.received += 1;
        if !whole {
            recorder.count(&mut self.counts.damaged, m::DAMAGED, 1);
        } else if let Some(began) = self.wall_clock_origin {
            match began.saturating_add(at.as_nanos()).checked_sub(stamp.due) {
                Some(delay) => recorder.record_batched(m::DATAGRAM_DELAY, delay),
                None => recorder.add(m::STAMPS_AHEAD, 1),
            }
        }
    }

    #[cold]
    fn count_foreign(&mut self, recorder: &mut Recorder) {
        recorder.count(&mut self.counts.foreign, m::FOREIGN, 1);
    }

    #[cold]
    fn restart(&mut self, stamp: &Stamp, recorder: &mut Recorder) {
        recorder.count(&mut self.counts.restarts, m::RESTARTS, 1);
        self.begin(stamp);
    }

    #[cold]
    fn begin(&mut self, stamp: &Stamp) {
        self.other = (0, 0);
        self.counts.expected += 1;
        self.source = Some(StampSource {
            id: stamp.source,
            lowest: stamp.number,
            highest: stamp.number,
            seen: [0; (WINDOW / 64) as usize],
        });
    }
}

/// Classification of a datagram.
enum DatagramClass {
    /// First copy: growth of the expected range, and distance behind the highest number.
    New {
        grown: u64,
        behind: u64,
    },
    Duplicate,
    /// Too old to tell whether it is a first copy.
    Late,
}

impl StampSource {
    #[inline]
    fn classify(&mut self, number: u64) -> DatagramClass {
        let bit = |number: u64| ((number % WINDOW / 64) as usize, 1u64 << (number % 64));
        let (word, mask) = bit(number);
        if number > self.highest {
            let grown = number - self.highest;
            if grown >= WINDOW {
                self.seen.fill(0);
            } else {
                let mut missed = self.highest + 1;
                while missed < number {
                    steps::count_bytes(1);
                    let (word, mask) = bit(missed);
                    if mask == 1 && missed + 64 <= number {
                        self.seen[word] = 0;
                        missed += 64;
                    } else {
                        self.seen[word] &= !mask;
                        missed += 1;
                    }
                }
            }
            self.highest = number;
            self.seen[word] |= mask;
            return DatagramClass::New { grown, behind: 0 };
        }
        let behind = self.highest - number;
        if behind >= WINDOW {
            return DatagramClass::Late;
        }
        if self.seen[word] & mask != 0 {
            return DatagramClass::Duplicate;
        }
        self.seen[word] |= mask;
        let grown = self.lowest.saturating_sub(number);
        self.lowest = self.lowest.min(number);
        DatagramClass::New { grown, behind }
    }
}
