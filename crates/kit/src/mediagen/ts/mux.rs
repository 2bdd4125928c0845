//! Multiplexer at a constant bit rate: packets of the loop, tables, clock references, null packets.

use std::sync::Arc;

use super::looped_stream::{
    CLOCK_EVERY, ClockMark, LoopedStream, NULL, PACKETS_PER_DATAGRAM, PacketMeta, TABLES_EVERY,
    TIME_WRAP, read_time, write_time,
};
use super::packet::{Header, PACKET_LEN, PCR_HZ, PCR_WRAP, SYNC, write_pcr};
use crate::mediagen::time_code::{CODE_BYTES, TimeCode};

/// Counts time in even fractional steps without accumulating an error.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Time of the current step, rounded down.
    pub now: u64,
    rest: u64,
    whole: u64,
    part: u64,
    of: u64,
}

impl Steps {
    /// Creates steps of `dividend / divisor`.
    pub fn new(dividend: u64, divisor: u64) -> Steps {
        Steps {
            now: 0,
            rest: 0,
            whole: dividend / divisor,
            part: dividend % divisor,
            of: divisor,
        }
    }

    #[inline]
    /// Advances to the next step.
    pub fn advance(&mut self) {
        self.now += self.whole;
        self.rest += self.part;
        if self.rest >= self.of {
            self.rest -= self.of;
            self.now += 1;
        }
    }
}

/// Produces the packets of a stream in order.
#[derive(Debug)]
pub struct Mux {
    looped: Arc<LoopedStream>,
    /// Send time of the next packet, in ticks of 27 MHz from the first.
    slot: Steps,
    /// Number of packets of the current datagram that have been sent.
    in_datagram: usize,
    /// Index of the loop's next packet, and start time of its loop.
    next: usize,
    begins: u64,
    /// Next continuity counter of each PID.
    continuity: Vec<u8>,
    tables_due: u64,
    /// Index of the next packet of the tables; their number if none is due.
    table: usize,
    /// Number of times the tables have been sent.
    rounds: u64,
    clock_due: u64,
    /// Time code of the next picture.
    code: TimeCode,
}

impl Mux {
    /// Creates a multiplexer at the beginning of the stream. `source` identifies it in the time
    /// codes of generated pictures.
    pub fn new(looped: Arc<LoopedStream>, source: u32) -> Mux {
        Mux {
            slot: Steps::new(8 * PACKET_LEN as u64 * PCR_HZ, looped.rate),
            in_datagram: 0,
            next: 0,
            begins: 0,
            continuity: vec![0; looped.pids],
            tables_due: 0,
            table: looped.tables.len(),
            rounds: 0,
            clock_due: 0,
            code: TimeCode {
                source,
                ..TimeCode::default()
            },
            looped,
        }
    }

    /// Sets the due time of the packets that follow, in nanoseconds since 1970: that of the
    /// pictures that they begin.
    #[inline]
    pub fn set_due(&mut self, nanos: u64) {
        self.code.nanos = nanos;
    }

    /// Produces the next packet of the current datagram. The first packet of each datagram is the
    /// stamp, which is not produced here.
    #[inline]
    pub fn next(&mut self, put: impl FnOnce(&[u8; PACKET_LEN])) {
        if self.in_datagram == 0 {
            self.advance_slot();
        }
        let now = self.slot.now;
        self.advance_slot();
        let looped = &*self.looped;
        let (next, begins) = (self.next, self.begins);
        // Next packet of the loop, if due. If it has a clock reference, no separate packet is
        // needed for one.
        let mark = looped
            .marks
            .get(next)
            .filter(|mark| begins + mark.at <= now);
        let brings_clock = mark.is_some_and(|mark| mark.clock == ClockMark::Own);
        if now >= self.clock_due && !brings_clock {
            self.clock_due = now + CLOCK_EVERY;
            return put(&self.clock(now));
        }
        if now >= self.tables_due && self.table >= looped.tables.len() {
            self.tables_due = now + TABLES_EVERY;
            self.table = 0;
        }
        if let Some(table) = looped.tables.get(self.table) {
            let mut packet = *table;
            self.number_table(&mut packet);
            return put(&packet);
        }
        let Some(&mark) = mark else {
            return put(&NULL);
        };
        let mut packet = looped.packets[next];
        self.next += 1;
        if self.next == looped.packets.len() {
            self.next = 0;
            self.begins += looped.length;
        }
        if brings_clock {
            self.clock_due = now + CLOCK_EVERY;
        }
        self.rewrite(&mut packet, mark, now, begins);
        put(&packet);
    }

    /// Advances to the next packet's time.
    #[inline]
    fn advance_slot(&mut self) {
        self.slot.advance();
        self.in_datagram += 1;
        if self.in_datagram == PACKETS_PER_DATAGRAM {
            self.in_datagram = 0;
        }
    }

    /// Value of the clock at a time.
    fn clock_at(&self, now: u64) -> u64 {
        (self.looped.clock + now) % PCR_WRAP
    }

    /// Returns a packet with only a clock reference. It does not increment the continuity counter
    /// (ISO/IEC 13818-1, 2.4.3.3).
    fn clock(&self, now: u64) -> [u8; PACKET_LEN] {
        let (pid, number) = self.looped.clock_pid;
        let [high, low] = pid.to_be_bytes();
        let last = self.continuity[usize::from(number)].wrapping_sub(1) & 0x0f;
        let mut packet = [0xff; PACKET_LEN];
        packet[..6].copy_from_slice(&[SYNC, high, low, 0x20 | last, (PACKET_LEN - 5) as u8, 0x10]);
        packet[6..12].copy_from_slice(&write_pcr(self.clock_at(now)));
        packet
    }

    /// Sets the continuity counter of the next packet of the tables. Each packet is sent once per
    /// round, and those of a PID are consecutive.
    fn number_table(&mut self, packet: &mut [u8; PACKET_LEN]) {
        let tables = &self.looped.tables;
        let same = |other: &&[u8; PACKET_LEN]| {
            other[1] & 0x1f == packet[1] & 0x1f && other[2] == packet[2]
        };
        let before = tables[..self.table].iter().filter(same).count() as u64;
        let in_round = tables.iter().filter(same).count() as u64;
        packet[3] = 0x10 | ((self.rounds * in_round + before) & 0x0f) as u8;
        self.table += 1;
        if self.table == tables.len() {
            self.rounds += 1;
        }
    }

    /// Rewrites counter, clock and times of a packet for the current repetition of the loop.
    fn rewrite(&mut self, packet: &mut [u8; PACKET_LEN], mark: PacketMeta, now: u64, begins: u64) {
        let counter = &mut self.continuity[usize::from(mark.pid)];
        if mark.counts {
            packet[3] = packet[3] & 0xf0 | *counter;
            *counter = (*counter + 1) & 0x0f;
        } else {
            packet[3] = packet[3] & 0xf0 | counter.wrapping_sub(1) & 0x0f;
        }
        if mark.clock != ClockMark::None {
            let shows = match mark.clock {
                // Shifted by the delay of the packet.
                ClockMark::Other => (read_pcr(packet) + now - mark.at) % PCR_WRAP,
                _ => self.clock_at(now),
            };
            packet[6..12].copy_from_slice(&write_pcr(shows));
        }
        if let Some(at) = mark.code {
            let at = usize::from(at);
            packet[at..at + CODE_BYTES].copy_from_slice(&self.code.to_bytes());
            self.code.number = self.code.number.wrapping_add(1);
        }
        if let Some((at, decoding)) = mark.times {
            let later = (begins + self.looped.delay) / 300;
            for index in 0..1 + usize::from(decoding) {
                let at = usize::from(at) + 5 * index;
                if let Some(bytes) = packet.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                    let time = (read_time(*bytes) + later) % TIME_WRAP;
                    *bytes = write_time(bytes[0] >> 4, time);
                }
            }
        }
    }
}

/// Reads the clock reference of a packet that has one.
fn read_pcr(packet: &[u8; PACKET_LEN]) -> u64 {
    Header::parse(packet)
        .ok()
        .and_then(|header| header.pcr)
        .expect("only packets with a clock reference are marked")
}
