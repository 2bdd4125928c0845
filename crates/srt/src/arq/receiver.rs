//! Receiving side of a transmission.

use std::time::Duration;

use measure::Time;

use super::gaps::{Gap, Gaps};
use super::rtt::Rtt;
use super::statistics::ReceiverStatistics;
use super::tsbpd::{Tsbpd, TsbpdConfig};
use crate::codec::packet::{
    Ack, AckRates, AckReport, Control, ControlHeader, DataHeader, HEADER, LossRange, write_nak,
};
use crate::seq::{SeqNumber, SocketClock};
use acks::Acks;
use history::History;
use rates::RateEstimator;

mod acks;
mod history;
mod rates;

/// Interval of full acknowledgements while packets arrive (SRT, 4.8.1).
pub const FULL_ACK_INTERVAL: Duration = Duration::from_millis(10);

/// Number of packets after which a light acknowledgement is sent (SRT, 4.8.1).
const LIGHT_ACK_PACKETS: u32 = 64;

/// Minimum interval of periodic NAKs (SRT, 4.8.2).
const NAK_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Minimum interval of NAKs without TSBPD, such as in message mode. The value is that of libsrt.
const NAK_INTERVAL_UNTIMED_MIN: Duration = Duration::from_millis(300);

/// Maximum number of gaps of a receiver that only counts, and gives up late packets: 12 KiB.
const GAPS_MAX: usize = 512;

/// Maximum window in packets: libsrt's default flow window.
pub const WINDOW_MAX: u32 = 25_600;

/// Configuration of a [`Receiver`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Sequence number of the first packet, from the peer's handshake.
    pub first_sequence: SeqNumber,
    /// Socket id of the peer: the destination of control packets.
    pub peer: u32,
    /// Clock of the timestamps in sent packets.
    pub clock: SocketClock,
    /// Basis of due times. Without it packets are due at once, and none is given up.
    pub tsbpd: Option<TsbpdConfig>,
    /// Maximum distance of a packet from the next expected one. At most [`WINDOW_MAX`].
    pub window: u32,
    /// Maximum delay from arrival to [`Receiver::data`]. Missing packets are given up this long
    /// after they were due, unless a later arrival shows earlier that they are too late.
    pub read_delay_max: Duration,
}

impl ReceiverConfig {
    /// Live mode with libsrt's defaults.
    pub fn live(
        first_sequence: SeqNumber,
        peer: u32,
        clock: SocketClock,
        tsbpd: TsbpdConfig,
    ) -> ReceiverConfig {
        ReceiverConfig {
            first_sequence,
            peer,
            clock,
            tsbpd: Some(tsbpd),
            window: 8192,
            read_delay_max: Duration::ZERO,
        }
    }
}

/// Result of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStatus {
    /// The packet arrived in time, for the first time.
    New {
        /// True if the packet was missing, and this is a retransmission.
        recovered: bool,
        /// Due time; `None` without TSBPD.
        due: Option<Time>,
    },
    /// The packet has arrived before.
    Duplicate,
    /// The packet arrived after it was given up.
    Belated {
        /// Delay after its due time; zero without TSBPD.
        by: Duration,
    },
    /// The packet is too far ahead, and is refused.
    BeyondWindow,
}

/// Receiving side of a connection. Payloads are used on arrival, and the receiver only counts what
/// would have been delivered. It takes less than 24 KiB; without TSBPD up to 200 KiB more while
/// packets are missing.
#[derive(Debug)]
pub struct Receiver {
    peer: u32,
    clock: SocketClock,
    tsbpd: Option<Tsbpd>,
    latency: Duration,
    window: u32,
    read_delay_max: Duration,
    /// Number after the highest that has arrived.
    next: SeqNumber,
    gaps: Gaps,
    history: History,
    /// True if a gap is due for its first NAK.
    nak_pending: bool,
    nak_at: Time,
    acks: Acks,
    rtt: Rtt,
    rates: RateEstimator,
    last_arrival_at: Time,
    statistics: ReceiverStatistics,
}

impl Receiver {
    pub fn new(config: ReceiverConfig) -> Receiver {
        let window = config.window.clamp(1, WINDOW_MAX);
        let first = config.first_sequence;
        let gaps_max = match config.tsbpd {
            Some(_) => GAPS_MAX,
            // No gap may be given up, so only the window limits their number.
            None => window as usize,
        };
        let latency = config.tsbpd.map_or(Duration::ZERO, |tsbpd| tsbpd.latency);
        Receiver {
            peer: config.peer,
            clock: config.clock,
            tsbpd: config.tsbpd.as_ref().map(Tsbpd::new),
            latency,
            window,
            read_delay_max: config.read_delay_max,
            next: first,
            gaps: Gaps::new(gaps_max),
            history: History::new(window),
            nak_pending: false,
            nak_at: Time::NEVER,
            acks: Acks::new(first),
            rtt: Rtt::default(),
            rates: RateEstimator::default(),
            last_arrival_at: Time::ZERO,
            statistics: ReceiverStatistics {
                ms_rcv_tsb_pd_delay: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
                ..ReceiverStatistics::default()
            },
        }
    }

    /// Handles a data packet that arrived at `at`. Packets must be passed in order of arrival:
    /// whether a packet is in time depends on its arrival, however late it is read.
    pub fn data(&mut self, header: &DataHeader, payload: &[u8], at: Time) -> PacketStatus {
        let at = at.max(self.last_arrival_at);
        self.last_arrival_at = at;
        let count = &mut self.statistics;
        count.pkt_recv += 1;
        count.byte_recv += (HEADER + payload.len()) as u64;
        count.pkt_rcv_retrans += u64::from(header.retransmitted);
        let is_out_of_order = header.retransmitted || header.sequence.is_before(self.next);
        self.rates
            .packet(header.sequence, payload.len(), at, is_out_of_order);
        self.expire(at);
        if let Some(tsbpd) = &mut self.tsbpd {
            tsbpd.detect_wrap(header.timestamp);
        }
        let due = self.due_of(header.timestamp);
        let sequence = header.sequence;
        let status = match u32::try_from(sequence.distance_from(self.next)) {
            Ok(ahead) => self.receive_ahead(sequence, ahead, due, at),
            Err(_) => self.receive_behind(header, due, at),
        };
        match status {
            PacketStatus::New { .. } => {
                self.history.insert(sequence);
                self.acks.packets_since_full += 1;
                self.statistics.pkt_recv_unique += 1;
                self.statistics.byte_recv_unique += payload.len() as u64;
            }
            PacketStatus::Duplicate => self.statistics.pkt_rcv_duplicate += 1,
            PacketStatus::Belated { by } => {
                self.statistics.pkt_rcv_belated += 1;
                self.statistics.us_rcv_belated += by.as_micros() as u64;
            }
            PacketStatus::BeyondWindow => self.statistics.pkt_rcv_beyond_window += 1,
        }
        status
    }

    /// Handles a packet that is `ahead` packets after the expected one.
    #[inline]
    fn receive_ahead(
        &mut self,
        sequence: SeqNumber,
        ahead: u32,
        due: Option<Time>,
        at: Time,
    ) -> PacketStatus {
        if ahead >= self.window {
            return PacketStatus::BeyondWindow;
        }
        self.history.forget(self.next, ahead + 1);
        if ahead > 0 {
            self.add_gap(sequence, deadline(due, at));
        }
        self.next = sequence.next();
        PacketStatus::New {
            recovered: false,
            due,
        }
    }

    /// Adds a gap from the expected packet up to the one before `end`.
    #[cold]
    fn add_gap(&mut self, end: SeqNumber, deadline: Time) {
        let range = LossRange {
            first: self.next,
            last: end.minus(1),
        };
        self.statistics.pkt_rcv_loss += u64::from(range.count());
        let dropped = self.gaps.push(Gap {
            range,
            deadline,
            requested: false,
        });
        self.statistics.pkt_rcv_drop += u64::from(dropped);
        self.nak_pending = true;
    }

    /// Handles a packet before the highest that has arrived.
    #[cold]
    fn receive_behind(&mut self, header: &DataHeader, due: Option<Time>, at: Time) -> PacketStatus {
        let sequence = header.sequence;
        let Some(dropped) = self.gaps.fill(sequence, deadline(due, at)) else {
            if self.history.contains(sequence, self.next) {
                return PacketStatus::Duplicate;
            }
            let by = due.map_or(Duration::ZERO, |due| at.since(due));
            return PacketStatus::Belated { by };
        };
        self.statistics.pkt_rcv_drop += u64::from(dropped);
        let recovered = header.retransmitted;
        if recovered {
            self.statistics.pkt_rcv_recovered += 1;
        } else {
            self.statistics.pkt_rcv_reordered += 1;
        }
        PacketStatus::New { recovered, due }
    }

    /// Gives up packets that are too late at `now`.
    fn expire(&mut self, now: Time) {
        let dropped = self.gaps.expire(now);
        self.statistics.pkt_rcv_drop += u64::from(dropped);
    }

    /// Due time of a packet with that timestamp; `None` without TSBPD.
    #[inline]
    pub fn due_of(&self, timestamp: u32) -> Option<Time> {
        self.tsbpd.as_ref().map(|tsbpd| tsbpd.due(timestamp))
    }

    /// Handles a control packet with its timestamp and arrival time. Packets other than ACKACKs and
    /// drop requests are ignored. The packet may have arrived before data packets that were already
    /// handled.
    pub fn control(&mut self, control: &Control<'_>, timestamp: u32, arrived: Time) {
        let at = arrived.max(self.last_arrival_at);
        self.last_arrival_at = at;
        match *control {
            Control::AckAck { number } => {
                self.statistics.pkt_recv_ackack += 1;
                let Some(rtt) = self.acks.handle_ackack(number, arrived) else {
                    self.statistics.pkt_recv_foreign_ackack += 1;
                    return;
                };
                self.rtt.measure(rtt);
                if let Some(tsbpd) = &mut self.tsbpd {
                    tsbpd.add_drift_sample(timestamp, arrived, rtt);
                }
            }
            Control::DropRequest { first, last, .. } => {
                self.statistics.pkt_recv_drop_request += 1;
                self.handle_drop_request(LossRange { first, last }, at);
            }
            _ => {}
        }
    }

    fn handle_drop_request(&mut self, range: LossRange, at: Time) {
        self.expire(at);
        let dropped = u64::from(self.gaps.drop_range(range));
        self.statistics.pkt_rcv_drop += dropped;
        let beyond = range.last.distance_from(self.next);
        let (Ok(beyond), false) = (u32::try_from(beyond), self.next.is_before(range.first)) else {
            if self.next.is_before(range.first) {
                // The packets before the range would become an unknown gap.
                self.statistics.pkt_recv_refused_drop_request += 1;
            }
            return;
        };
        if beyond >= self.window {
            self.statistics.pkt_recv_refused_drop_request += 1;
            return;
        }
        let count = beyond + 1;
        self.history.forget(self.next, count);
        self.next = range.last.next();
        self.statistics.pkt_rcv_loss += u64::from(count);
        self.statistics.pkt_rcv_drop += u64::from(count);
    }

    /// Sequence number before which all packets have arrived or were given up.
    pub fn acknowledged(&self) -> SeqNumber {
        self.gaps.first().map_or(self.next, |gap| gap.range.first)
    }

    /// True if a packet made a NAK or a light acknowledgement due.
    #[inline]
    pub fn feedback_is_due(&self) -> bool {
        self.nak_pending || self.acks.packets_since_full >= self.acks.next_light_at_packets()
    }

    /// Time of the next periodic NAK.
    pub fn periodic_nak_at(&self) -> Time {
        self.gaps.first().map_or(Time::NEVER, |_| self.nak_at)
    }

    /// Time at which [`Receiver::write_next`] has a packet to send, or a packet is given up.
    pub fn due(&self) -> Time {
        if self.feedback_is_due() {
            return self.last_arrival_at;
        }
        let ack = self.acks.due(self.acknowledged(), self.rtt.timeout());
        let Some(gap) = self.gaps.first() else {
            return ack;
        };
        let given_up = gap.deadline + self.read_delay_max + Duration::from_nanos(1);
        ack.min(self.periodic_nak_at()).min(given_up)
    }

    /// Appends the next control packet that is due, as one datagram. Returns `false` if none is
    /// due.
    pub fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let known = now
            .as_nanos()
            .saturating_sub(self.read_delay_max.as_nanos() as u64);
        self.expire(Time::from_nanos(known));
        self.write_nak(now, out) || self.write_ack(now, out)
    }

    fn header(&self, now: Time) -> ControlHeader {
        ControlHeader::sent_at(now, self.clock, self.peer)
    }

    /// Interval of periodic NAKs (SRT, 4.8.2). Without TSBPD, libsrt waits longer for the
    /// retransmission.
    fn nak_interval(&self) -> Duration {
        match self.tsbpd {
            Some(_) => (self.rtt.timeout() / 2).max(NAK_INTERVAL_MIN),
            None => self.rtt.timeout().max(NAK_INTERVAL_UNTIMED_MIN),
        }
    }

    fn write_nak(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let header = self.header(now);
        let named = if std::mem::take(&mut self.nak_pending) {
            if !self.gaps.iter().any(|gap| gap.requested) {
                self.nak_at = now + self.nak_interval();
            }
            let ranges = self.gaps.iter().filter(|gap| !gap.requested);
            let named = write_nak(header, ranges.map(|gap| gap.range), out);
            let mut marked = 0;
            for gap in self.gaps.iter_mut().filter(|gap| !gap.requested) {
                marked += u64::from(gap.range.count());
                // The next NAK has the ranges that did not fit into this one.
                if marked > named {
                    self.nak_pending = true;
                    break;
                }
                gap.requested = true;
            }
            named
        } else if self.gaps.missing > 0 && now >= self.nak_at {
            self.nak_at = now + self.nak_interval();
            let ranges = self.gaps.iter().filter(|gap| gap.requested);
            write_nak(header, ranges.map(|gap| gap.range), out)
        } else {
            0
        };
        self.statistics.pkt_sent_nak += u64::from(named > 0);
        self.statistics.pkt_asked += named;
        named > 0
    }

    fn write_ack(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let next = self.acknowledged();
        let full = now >= self.acks.due(next, self.rtt.timeout());
        if !full && self.acks.packets_since_full < self.acks.next_light_at_packets() {
            return false;
        }
        let (number, report) = if full {
            let rates = self.rates.now();
            let report = AckReport {
                rtt: self.rtt.smoothed,
                rtt_variance: self.rtt.variance,
                free_packets: self.free_packets(),
                rates: Some(rates),
            };
            (self.acks.record_full(next, now), Some(report))
        } else {
            self.acks.light_since_full += 1;
            self.statistics.pkt_sent_light_ack += 1;
            (0, None)
        };
        self.statistics.pkt_sent_ack += 1;
        let ack = Ack {
            number,
            next,
            report,
        };
        Control::Ack(ack).write(self.header(now), out);
        true
    }

    /// Free space of the receive buffer, in packets, as if packets behind the first gap waited.
    fn free_packets(&self) -> u32 {
        let waiting = self.next.distance_from(self.acknowledged()).unsigned_abs();
        self.window.saturating_sub(waiting).max(2)
    }

    /// Gives up missing packets at the end of the connection.
    pub fn finish(&mut self, at: Time) {
        self.expire(at);
        self.statistics.pkt_rcv_drop += u64::from(self.gaps.clear());
    }

    /// Negotiated latency; zero without TSBPD.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Counters without the current state.
    pub fn counters(&self) -> &ReceiverStatistics {
        &self.statistics
    }

    /// Counters and the current state.
    pub fn statistics(&self) -> ReceiverStatistics {
        ReceiverStatistics {
            pkt_rcv_missing: self.gaps.missing.into(),
            us_rtt: self.rtt.smoothed.into(),
            us_rtt_var: self.rtt.variance.into(),
            ..self.statistics
        }
    }

    /// Memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of::<Receiver>() + self.gaps.bytes() + self.history.bytes() + self.acks.bytes()
    }
}

/// Deadline of packets that are missing before one that arrived at `at` and is due at `due`.
fn deadline(due: Option<Time>, at: Time) -> Time {
    due.map_or(Time::NEVER, |due| due.max(at))
}
