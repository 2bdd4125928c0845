//! A loop of a transport stream, to be sent repeatedly at a constant bit rate.

use super::packet::{NULL_PID, PACKET_LEN, PCR_HZ, PCR_WRAP};

/// Number of transport packets per datagram, including the stamp: as many as fit into an Ethernet
/// frame.
pub const PACKETS_PER_DATAGRAM: usize = 7;

/// Bytes of the transport packets of a datagram.
pub const DATAGRAM: usize = PACKETS_PER_DATAGRAM * PACKET_LEN;

/// Bits of the transport packets of a datagram.
pub const DATAGRAM_BITS: u64 = 8 * DATAGRAM as u64;

/// Minimum bit rate of a stream: below it, clock references would be more than 40 ms apart.
pub const RATE_MIN: u64 = 500_000;

/// Maximum bit rate of a stream.
pub const RATE_MAX: u64 = 10_000_000_000;

/// Maximum interval between tables. ISO/IEC 13818-1 leaves it open; ETSI TR 101 290 (1.3, 1.5) and
/// decoders require 100 ms.
pub(super) const TABLES_EVERY: u64 = PCR_HZ * 80 / 1000;

/// Maximum interval between clock references, chosen so that none comes more than 40 ms after the
/// previous one (ETSI TR 101 290, 2.3; ISO/IEC 13818-1, 2.7.2, requires 100 ms).
pub(super) const CLOCK_EVERY: u64 = PCR_HZ * 30 / 1000;

/// Maximum time that packets may be delayed by the multiplexer.
const WAIT_MAX: u64 = 2 * PCR_HZ;

/// A loop of a transport stream without null packets, to be sent repeatedly by the `protocol`
/// crate's `TsFlow`. All times are in ticks of 27 MHz.
#[derive(Debug)]
pub struct LoopedStream {
    /// Packets of the loop.
    pub(super) packets: Vec<[u8; PACKET_LEN]>,
    /// Metadata of each packet.
    pub(super) marks: Vec<PacketMeta>,
    /// Number of PIDs.
    pub(super) pids: usize,
    /// Length of the loop.
    pub(super) length: u64,
    /// Packets of the tables, which are sent on their own schedule. Empty if the tables are among
    /// the packets.
    pub(super) tables: Vec<[u8; PACKET_LEN]>,
    /// Clock value at the first start of the loop.
    pub(super) clock: u64,
    /// PID of the clock, and its index among the PIDs.
    pub(super) clock_pid: (u16, u16),
    /// Delay added to presentation and decoding times, so that packets delayed by the multiplexer
    /// are not late.
    pub(super) delay: u64,
    /// Bit rate including stamps, in bit/s.
    pub(super) rate: u64,
    /// True if the programme map lists the stamps.
    pub(super) listed: bool,
    /// Description for people.
    pub(super) description: String,
}

/// Metadata that is needed to send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketMeta {
    /// Send time from the beginning of the loop. Never decreases from packet to packet.
    pub(super) at: u64,
    /// Index of its PID.
    pub(super) pid: u16,
    /// True if the packet has payload and therefore increments the continuity counter.
    pub(super) counts: bool,
    /// Clock reference of the packet.
    pub(super) clock: ClockMark,
    /// Position of the presentation time, if there is one, and whether a decoding time follows it.
    pub(super) times: Option<(u8, bool)>,
    /// Position of the numbers of a time code; `None` if the packet has none.
    pub(super) code: Option<u8>,
}

/// Clock that a packet's clock reference belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockMark {
    /// The packet has no clock reference.
    None,
    /// Clock of the programme.
    Own,
    /// Clock of another programme.
    Other,
}

impl LoopedStream {
    /// Packets of the loop, without stamps, tables and added clock references.
    pub fn packets(&self) -> &[[u8; PACKET_LEN]] {
        &self.packets
    }

    /// Bit rate of the transport packets including stamps, in bit/s.
    pub fn bits_per_second(&self) -> u64 {
        self.rate
    }

    /// True if the programme map lists the stamps. If it does not, a remultiplexer is certain to
    /// drop them.
    pub fn lists_stamps(&self) -> bool {
        self.listed
    }

    /// Description for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Sets the bit rate and computes how long packets are delayed by the multiplexer.
    pub(super) fn set_rate(&mut self, rate: u64) -> Result<(), RateTooLow> {
        // At any bit rate, a packet may wait for a stamp, the tables and a clock reference.
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
            return Err(RateTooLow {
                needs: self.needs(),
                waits: (left_again <= left.max(0.0) + step).then_some(delay),
            });
        }
        self.rate = rate;
        self.delay = delay.next_multiple_of(300);
        Ok(())
    }

    /// Minimum mean bit rate.
    pub(super) fn needs(&self) -> u64 {
        let per_second = self.packets.len() as f64 / (self.length as f64 / PCR_HZ as f64);
        rate_for(per_second, self.tables.len())
    }
}

/// Error: the packets do not fit into the bit rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateTooLow {
    /// Bit rate that is sufficient on average.
    pub(super) needs: u64,
    /// Delay of the packets, if the bit rate is sufficient on average.
    pub(super) waits: Option<u64>,
}

/// Number of the loop's packets that fit into a second, in addition to stamps, tables and clock
/// references.
pub(super) fn room(rate: u64, tables: usize) -> f64 {
    let packets = rate as f64 / (8 * PACKET_LEN) as f64;
    packets * (PACKETS_PER_DATAGRAM - 1) as f64 / PACKETS_PER_DATAGRAM as f64
        - overhead_packets(tables)
}

/// Returns the bit rate at which `packets` packets of the loop per second fit.
pub(super) fn rate_for(packets: f64, tables: usize) -> u64 {
    let all = (packets + overhead_packets(tables)) * PACKETS_PER_DATAGRAM as f64
        / (PACKETS_PER_DATAGRAM - 1) as f64;
    (all * (8 * PACKET_LEN) as f64).ceil() as u64
}

/// Number of packets per second with tables and clock references.
fn overhead_packets(tables: usize) -> f64 {
    let hz = PCR_HZ as f64;
    tables as f64 * hz / TABLES_EVERY as f64 + hz / CLOCK_EVERY as f64
}

/// Duration of `count` packets.
fn slots(rate: u64, count: u64) -> u64 {
    count * 8 * PACKET_LEN as u64 * PCR_HZ / rate.max(1)
}

/// A null packet, which fills a stream up to its bit rate.
pub const NULL: [u8; PACKET_LEN] = {
    let mut packet = [0xff; PACKET_LEN];
    let [high, low] = NULL_PID.to_be_bytes();
    (packet[0], packet[1], packet[2], packet[3]) = (super::packet::SYNC, high, low, 0x10);
    packet
};

/// Decodes a presentation or decoding time, in ticks of 90 kHz (ISO/IEC 13818-1, 2.4.3.7).
pub fn read_time(bytes: [u8; 5]) -> u64 {
    let [a, b, c, d, e] = bytes.map(u64::from);
    (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1
}

/// Encodes a presentation or decoding time after the four bits of `prefix`.
pub(crate) fn write_time(prefix: u8, time: u64) -> [u8; 5] {
    let byte = |shift: u32| (time >> shift) as u8;
    [
        prefix << 4 | (byte(30) & 7) << 1 | 1,
        byte(22),
        byte(14) & 0xfe | 1,
        byte(7),
        byte(0) << 1 | 1,
    ]
}

/// Modulus of presentation and decoding times.
pub const TIME_WRAP: u64 = PCR_WRAP / 300;
