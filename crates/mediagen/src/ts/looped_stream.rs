//! One loop of a transport stream, ready to be sent over and over at a constant bit rate.

use super::packet::{NULL_PID, PACKET, PCR_HZ, PCR_WRAP};

/// How many transport packets a datagram has: as many as an Ethernet frame takes, the stamp among
/// them.
pub const PACKETS: usize = 7;

/// Bytes of transport packets of a datagram.
pub const DATAGRAM: usize = PACKETS * PACKET;

/// Bits of transport packets of a datagram.
pub const DATAGRAM_BITS: u64 = 8 * DATAGRAM as u64;

/// The lowest bit rate of a stream: below it, the clock references would come less often than every
/// 40 ms.
pub const RATE_MIN: u64 = 500_000;

/// The highest bit rate of a stream.
pub const RATE_MAX: u64 = 10_000_000_000;

/// How often the tables are sent at least: ISO/IEC 13818-1 leaves it open; ETSI TR 101 290 (1.3,
/// 1.5) and decoders want every 100 ms.
pub(super) const TABLES_EVERY: u64 = PCR_HZ * 80 / 1000;

/// How often a clock reference is sent at least, so that none comes more than 40 ms after the one
/// before (ETSI TR 101 290, 2.3; ISO/IEC 13818-1, 2.7.2, asks for 100 ms).
pub(super) const CLOCK_EVERY: u64 = PCR_HZ * 30 / 1000;

/// The longest that packets may wait for room.
const WAIT_MAX: u64 = 2 * PCR_HZ;

/// One loop of a transport stream without null packets, to be sent over and over:
/// `TsFlow` of the `protocol` crate. All times are in ticks of 27 MHz.
#[derive(Debug)]
pub struct LoopedStream {
    /// The packets of the loop.
    pub(super) packets: Vec<[u8; PACKET]>,
    /// About each.
    pub(super) marks: Vec<Mark>,
    /// How many PIDs there are.
    pub(super) pids: usize,
    /// How long the loop is.
    pub(super) length: u64,
    /// The packets of the tables, which are sent on their own schedule; none where the tables are
    /// among the packets.
    pub(super) tables: Vec<[u8; PACKET]>,
    /// What the clock shows when the loop begins for the first time.
    pub(super) clock: u64,
    /// The PID of the clock, and its number among the PIDs.
    pub(super) clock_pid: (u16, u16),
    /// By how much the times of pictures and sound are put off, so that packets which wait for room
    /// are not late.
    pub(super) delay: u64,
    /// At which bit rate it is sent, in bit/s, stamps included.
    pub(super) rate: u64,
    /// Whether the programme map lists the stamps.
    pub(super) listed: bool,
    /// What it is, in words.
    pub(super) description: String,
}

/// What has to be known of a packet to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// When it is to be sent, from the beginning of the loop. Never before the packet before it.
    pub(super) at: u64,
    /// The number of its PID.
    pub(super) pid: u16,
    /// Whether it has payload, and so counts.
    pub(super) counts: bool,
    /// Whether it has a clock reference.
    pub(super) clock: ClockMark,
    /// Where a time of presentation stands in it, if it has one; there is a time of decoding right
    /// behind it, if so said.
    pub(super) times: Option<(u8, bool)>,
}

/// Which clock a packet refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockMark {
    /// None.
    None,
    /// That of the programme.
    Own,
    /// That of another programme.
    Other,
}

impl LoopedStream {
    /// The packets that are sent over and over, without stamps, tables and clocks.
    pub fn packets(&self) -> &[[u8; PACKET]] {
        &self.packets
    }

    /// The bit rate at which it is sent, in bit/s: of transport packets, stamps included.
    pub fn bits_per_second(&self) -> u64 {
        self.rate
    }

    /// Whether the programme map lists the stamps. Where it does not, a remultiplexer is sure to
    /// leave them out.
    pub fn lists_stamps(&self) -> bool {
        self.listed
    }

    /// What it is, in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Sends it at that bit rate from now on: works out how long packets wait for room.
    pub(super) fn set_rate(&mut self, rate: u64) -> Result<(), NoRoom> {
        // A packet may wait for a stamp, the tables and a clock reference, whatever the bit rate.
        let around = slots(rate, (self.tables.len() + 3) as u64);
        let step = PCR_HZ as f64 / room(rate, self.tables.len());
        let wait = |begin: f64, wait_before: f64| {
            let (mut free, mut longest) = (begin + wait_before, 0f64);
            for mark in &self.marks {
                free = free.max(begin + mark.at as f64) + step;
                longest = longest.max(free - begin - mark.at as f64);
            }
            (longest, free - begin - self.length as f64)
        };
        let (_, left) = wait(0.0, 0.0);
        let (longest, left_again) = wait(0.0, left.max(0.0));
        let delay = longest as u64 + around;
        if left_again > left.max(0.0) + step || delay > WAIT_MAX {
            return Err(NoRoom {
                needs: self.needs(),
                waits: (left_again <= left.max(0.0) + step).then_some(delay),
            });
        }
        self.rate = rate;
        self.delay = delay.next_multiple_of(300);
        Ok(())
    }

    /// The bit rate that it takes in the mean at least.
    pub(super) fn needs(&self) -> u64 {
        let per_second = self.packets.len() as f64 / (self.length as f64 / PCR_HZ as f64);
        rate_for(per_second, self.tables.len())
    }
}

/// Packets find no room at a bit rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// The bit rate that would do in the mean.
    pub(super) needs: u64,
    /// How long they would wait, where the mean would do.
    pub(super) waits: Option<u64>,
}

/// How many packets of a loop find room in a second, beside stamps, tables and clock references.
pub(super) fn room(rate: u64, tables: usize) -> f64 {
    let packets = rate as f64 / (8 * PACKET) as f64;
    packets * (PACKETS - 1) as f64 / PACKETS as f64 - others(tables)
}

/// The bit rate at which so many packets of a loop find room in a second.
pub(super) fn rate_for(packets: f64, tables: usize) -> u64 {
    let all = (packets + others(tables)) * PACKETS as f64 / (PACKETS - 1) as f64;
    (all * (8 * PACKET) as f64).ceil() as u64
}

/// How many packets of tables and clock references there are in a second.
fn others(tables: usize) -> f64 {
    let hz = PCR_HZ as f64;
    tables as f64 * hz / TABLES_EVERY as f64 + hz / CLOCK_EVERY as f64
}

/// How long so many packets take.
fn slots(rate: u64, count: u64) -> u64 {
    count * 8 * PACKET as u64 * PCR_HZ / rate.max(1)
}

/// A packet that fills a stream up.
pub const NULL: [u8; PACKET] = {
    let mut packet = [0xff; PACKET];
    let [high, low] = NULL_PID.to_be_bytes();
    (packet[0], packet[1], packet[2], packet[3]) = (super::packet::SYNC, high, low, 0x10);
    packet
};

/// A time of presentation or decoding, in ticks of 90 kHz (ISO/IEC 13818-1, 2.4.3.7).
pub fn read_time(bytes: [u8; 5]) -> u64 {
    let [a, b, c, d, e] = bytes.map(u64::from);
    (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1
}

/// The same, written, with the four bits that it begins with.
pub(super) fn write_time(prefix: u8, time: u64) -> [u8; 5] {
    let byte = |shift: u32| (time >> shift) as u8;
    [
        prefix << 4 | (byte(30) & 7) << 1 | 1,
        byte(22),
        byte(14) & 0xfe | 1,
        byte(7),
        byte(0) << 1 | 1,
    ]
}

/// Times of presentation are counted modulo this.
pub const TIME_WRAP: u64 = PCR_WRAP / 300;
