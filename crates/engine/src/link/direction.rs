//! One direction of an emulated link: packets are read from one interface, pass the model, and are
//! written to the other.

use std::io;
use std::time::Duration;

use measure::link::{
    BYTES, CORRUPTED, DELAY, DELIVERED, DELIVERED_BYTES, DUPLICATED, LATENESS, LINK_CATALOGUE,
    LOST, LOST_BY_CHANCE, LOST_BY_CODEL, LOST_IN_OUTAGES, LOST_QUEUE_FULL, LOST_TOO_LONG, OVERLOAD,
    PACKETS, PLANNED_DELAY, QUEUE_BYTES, REORDERED,
};
use measure::{CounterId, Recorder, Time, Window};
use net::{Clock, Tun};
use session::link::{Counts, Delivery, Link, Lost, SettingsTimeline};

/// Packets that are written or read before the other direction has its turn: some 50 µs.
pub(super) const BURST: usize = 16;

/// Maximum length of a packet on an interface.
const LONGEST: usize = 65_535;

/// Maximum number of spare buffers.
const SPARE: usize = 4096;

/// Maximum number of packets in the model. A link that holds more has a delay that its rate does
/// not allow; further packets are dropped as overload. 200,000 packets of 1,500 bytes take 300 MB.
const HELD_PACKETS_MAX: usize = 200_000;

/// Arrival of packets that are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// `None` if they count as arrived when they are read.
    pub(super) at: Option<Time>,
    /// Time before that they may have waited, which counts as delay.
    pub(super) waited: Duration,
    /// Largest error of `at`, which counts as lateness only.
    pub(super) unsure: Duration,
}

impl Arrival {
    pub(super) const NOW: Arrival = Arrival {
        at: None,
        waited: Duration::ZERO,
        unsure: Duration::ZERO,
    };
}

/// A packet under way.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    arrival: Arrival,
}

#[derive(Debug)]
pub(super) struct Direction {
    model: Link<Packet>,
    /// Model with the packets sent before the record began. They are delivered but not recorded.
    before: Option<Link<Packet>>,
    recorder: Recorder,
    /// Counts of the model that the recorder has.
    recorded: Counts,
    /// Maximum number of queued bytes in this window.
    queue_bytes: u64,
    /// Kernel counter of packets dropped at the near interface.
    dropped: u64,
    /// Windows that have not been taken, merged.
    kept: Option<Window>,
    spare: Vec<Vec<u8>>,
    buffer: Box<[u8]>,
}

impl Direction {
    pub(super) fn new(timeline: SettingsTimeline, seed: u64) -> Direction {
        Direction {
            model: Link::new(timeline.settings, timeline.changes, seed),
            before: None,
            recorder: Recorder::new(LINK_CATALOGUE),
            recorded: Counts::default(),
            queue_bytes: 0,
            dropped: 0,
            kept: None,
            spare: Vec::new(),
            buffer: vec![0; LONGEST].into_boxed_slice(),
        }
    }

    /// Begins the record as `new`, whose packets are numbered from 0.
    pub(super) fn begin(&mut self, new: Direction, near: &Tun) {
        let before = std::mem::replace(self, new);
        self.before = Some(before.model);
        self.spare = before.spare;
        self.dropped = near.dropped().unwrap_or(before.dropped);
    }

    /// Delivers up to [`BURST`] packets that are due within `early`, and returns their number.
    pub(super) fn deliver(&mut self, clock: &Clock, far: &Tun, early: Duration) -> usize {
        let old = usize::from(self.deliver_old(clock, far));
        for number in old..BURST {
            let now = clock.now();
            let Some(delivery) = self.model.take_early(now, early) else {
                return number;
            };
            let (came, due, copy) = (delivery.sent_at, delivery.due, delivery.copy);
            let Arrival { waited, unsure, .. } = delivery.packet.arrival;
            if self.write(delivery, far).is_err() {
                self.recorder.add(OVERLOAD, 1);
            }
            if !copy {
                let recorder = &mut self.recorder;
                recorder.record_batched(PLANNED_DELAY, nanos(due.since(came)));
                recorder.record_batched(DELAY, nanos(now.since(came) + waited));
            }
            let late = nanos(now.since(due) + waited + unsure);
            self.recorder.record_batched(LATENESS, late);
        }
        BURST
    }

    fn deliver_old(&mut self, clock: &Clock, far: &Tun) -> bool {
        let Some(before) = &mut self.before else {
            return false;
        };
        if let Some(delivery) = before.take(clock.now()) {
            // Packets sent before the record are not counted.
            let _ = self.write(delivery, far);
            return true;
        }
        if before.held() == 0 {
            self.before = None;
        }
        false
    }

    fn write(&mut self, delivery: Delivery<Packet>, far: &Tun) -> io::Result<()> {
        let mut packet = delivery.packet.bytes;
        if let Some(draw) = delivery.wrong_bit
            && !packet.is_empty()
        {
            let bit = draw % (packet.len() as u64 * 8);
            packet[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let written = match far.write(&packet) {
            // The receiving kernel refuses a packet whose wrong bit made it an invalid IP packet.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput && delivery.wrong_bit.is_some() =>
            {
                Ok(())
            }
            written => written,
        };
        if self.spare.len() < SPARE {
            packet.clear();
            self.spare.push(packet);
        }
        written
    }

    /// Reads up to [`BURST`] packets, and returns their number.
    pub(super) fn take_in(
        &mut self,
        clock: &Clock,
        near: &Tun,
        arrival: Arrival,
    ) -> io::Result<usize> {
        for number in 0..BURST {
            let length = match near.read(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(number),
                Err(error) => return Err(error),
            };
            if self.model.held() >= HELD_PACKETS_MAX {
                self.recorder.add(OVERLOAD, 1);
                continue;
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.extend_from_slice(&self.buffer[..length]);
            let at = arrival.at.unwrap_or_else(|| clock.now());
            // The model counts losses.
            let _: Result<(), Lost> = self.model.send(at, length, Packet { bytes, arrival });
            self.queue_bytes = self.queue_bytes.max(self.model.queued_bytes());
        }
        Ok(BURST)
    }

    /// Time at which the next packet leaves.
    pub(super) fn next(&self) -> Option<Time> {
        let before = self.before.as_ref().and_then(Link::next_departure);
        self.model.next_departure().into_iter().chain(before).min()
    }

    /// Takes the window since the last call.
    pub(super) fn window(&mut self, near: &Tun) -> Window {
        let (before, now) = (self.recorded, self.model.counts());
        let lost = Counts::lost;
        let counted: [(CounterId, u64, u64); 13] = [
            (PACKETS, before.packets, now.packets),
            (BYTES, before.bytes, now.bytes),
            (LOST, lost(&before), lost(&now)),
            (LOST_BY_CHANCE, before.lost_by_chance, now.lost_by_chance),
            (LOST_IN_OUTAGES, before.lost_in_outages, now.lost_in_outages),
            (LOST_TOO_LONG, before.lost_too_long, now.lost_too_long),
            (LOST_QUEUE_FULL, before.lost_queue_full, now.lost_queue_full),
            (LOST_BY_CODEL, before.lost_by_codel, now.lost_by_codel),
            (DELIVERED, before.delivered, now.delivered),
            (DELIVERED_BYTES, before.delivered_bytes, now.delivered_bytes),
            (DUPLICATED, before.duplicated, now.duplicated),
            (REORDERED, before.reordered, now.reordered),
            (CORRUPTED, before.corrupted, now.corrupted),
        ];
        for (counter, before, now) in counted {
            self.recorder.add(counter, now - before);
        }
        self.recorded = now;
        let dropped = near.dropped().unwrap_or(self.dropped);
        self.recorder
            .add(OVERLOAD, dropped.saturating_sub(self.dropped));
        self.dropped = dropped;
        self.recorder.set(QUEUE_BYTES, self.queue_bytes as f64);
        self.queue_bytes = self.model.queued_bytes();
        let mut window = self.recorder.take_window();
        if let Some(kept) = self.kept.take() {
            window.merge(&kept, LINK_CATALOGUE);
        }
        window
    }

    /// Keeps a window that was not taken, for merging with the next one.
    pub(super) fn keep(&mut self, window: Window) {
        self.kept = Some(window);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
