//! The receiving side of a live transmission.

use std::time::Duration;

use measure::Time;

use super::gaps::{Gap, Gaps};
use super::playout::Playout;
use super::rtt::Rtt;
use super::statistics::ReceiverStatistics;
use super::tsbpd::{Tsbpd, TsbpdConfig};
use crate::srt::codec::packet::{
    Ack, AckRates, AckReport, Control, ControlHeader, DataHeader, HEADER, LossRange, write_nak,
};
use crate::srt::seq::{SeqNumber, SocketClock};
use acks::Acks;
use history::History;
use rates::Rates;

pub use super::playout::Delivered;

mod acks;
mod history;
mod rates;

/// How often a full acknowledgement is sent while packets come (SRT, 4.8.1).
pub const ACK_EVERY: Duration = Duration::from_millis(10);

/// After so many packets a light one is sent (SRT, 4.8.1).
const LIGHT_ACK_EVERY: u32 = 64;

/// Missing packets are asked for again no more often than this (SRT, 4.8.2).
const NAK_EVERY_MIN: Duration = Duration::from_millis(20);

/// Minimum interval of NAKs without TSBPD, such as in message mode. The value is that of libsrt.
const NAK_EVERY_UNTIMED_MIN: Duration = Duration::from_millis(300);

/// After so many packets in order the patience with reordered ones goes down by one, as in libsrt.
const ORDERED_MAX: u32 = 50;

/// The most gaps of a receiver that only counts, and gives up what is late: 12 KiB.
const GAPS_MAX: usize = 512;

/// The most packets of a window: libsrt's default flow window.
pub const WINDOW_MAX: u32 = 25_600;

/// Whether packets are kept until they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Payloads are used as they come, and only it is counted what would have been delivered. Takes
    /// less than 24 KiB; without TSBPD up to 200 KiB more while packets are missing.
    Counting,
    /// Payloads are kept, and handed out in order when they are due. Takes as much more as waits at
    /// a time: some 1.5 KiB for each packet of the latency, up to twice that while it grows.
    InOrder,
}

/// What a receiver has to know.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// The sequence number of the first packet: the peer's handshake says it.
    pub first_sequence: SeqNumber,
    /// The peer's socket id, which everything is sent to.
    pub peer: u32,
    /// The clock of what is sent.
    pub clock: SocketClock,
    /// When packets are due. Without it they are due at once, and nothing is given up.
    pub tsbpd: Option<TsbpdConfig>,
    /// Whether packets are given up that are too late (`SRTO_TLPKTDROP`).
    pub too_late_drop: bool,
    /// Whether missing packets are asked for again and again (`SRTO_NAKREPORT`).
    pub periodic_nak: bool,
    /// For how many packets reordered ones are waited for at most before they are asked for
    /// (`SRTO_LOSSMAXTTL`).
    pub reorder_tolerance_max: u32,
    /// How many packets a packet may be ahead of the last one, or the ring holds. At most
    /// [`WINDOW_MAX`].
    pub window: u32,
    /// Maximum delay from arrival to [`Receiver::data`]. Missing packets are given up so much after
    /// they were due, unless a later arrival shows earlier that they are too late.
    pub read_behind: Duration,
    /// Whether packets are kept.
    pub delivery: Delivery,
}

impl ReceiverConfig {
    /// As libsrt receives live streams by default, counting.
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
            too_late_drop: true,
            periodic_nak: true,
            reorder_tolerance_max: 0,
            window: 8192,
            read_behind: Duration::ZERO,
            delivery: Delivery::Counting,
        }
    }
}

/// What a data packet was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It came in time, for the first time.
    New {
        /// Whether it was missing, and was sent again.
        recovered: bool,
        /// When it is due; none without TSBPD.
        due: Option<Time>,
    },
    /// It has come before.
    Duplicate,
    /// It came after it was given up, so long after it was due.
    Belated {
        /// How long; zero without TSBPD.
        by: Duration,
    },
    /// It is too far ahead, and refused.
    BeyondWindow,
}

/// The receiving side.
#[derive(Debug)]
pub struct Receiver {
    peer: u32,
    clock: SocketClock,
    tsbpd: Option<Tsbpd>,
    latency: Duration,
    too_late_drop: bool,
    periodic_nak: bool,
    window: u32,
    read_behind: Duration,
    /// One behind the highest that has come.
    next: SeqNumber,
    gaps: Gaps,
    came: History,
    playout: Option<Playout>,
    patience: u32,
    patience_max: u32,
    ordered: u32,
    /// Whether a gap is to be asked for that was not yet.
    nak_wanted: bool,
    nak_at: Time,
    acks: Acks,
    rtt: Rtt,
    rates: Rates,
    /// When something came last.
    last: Time,
    statistics: ReceiverStatistics,
}

impl Receiver {
    /// A receiver that nothing has come to.
    pub fn new(config: ReceiverConfig) -> Receiver {
        let window = config.window.clamp(1, WINDOW_MAX);
        let first = config.first_sequence;
        let (gaps, playout) = match config.delivery {
            // Nothing may be given up: there are as many as the window has room for.
            Delivery::Counting if config.tsbpd.is_none() => (window as usize, None),
            Delivery::Counting => (GAPS_MAX, None),
            Delivery::InOrder => (window as usize, Some(Playout::new(first))),
        };
        let latency = config.tsbpd.map_or(Duration::ZERO, |tsbpd| tsbpd.latency);
        Receiver {
            peer: config.peer,
            clock: config.clock,
            tsbpd: config.tsbpd.as_ref().map(Tsbpd::new),
            latency,
            too_late_drop: config.too_late_drop,
            periodic_nak: config.periodic_nak,
            window,
            read_behind: config.read_behind,
            next: first,
            gaps: Gaps::new(gaps),
            came: History::new(window),
            playout,
            patience: config.reorder_tolerance_max,
            patience_max: config.reorder_tolerance_max,
            ordered: 0,
            nak_wanted: false,
            nak_at: Time::NEVER,
            acks: Acks::new(first),
            rtt: Rtt::default(),
            rates: Rates::default(),
            last: Time::ZERO,
            statistics: ReceiverStatistics {
                ms_rcv_tsb_pd_delay: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
                ..ReceiverStatistics::default()
            },
        }
    }

    /// Takes a data packet in that arrived then. Packets are to be given in the order in which they
    /// arrived: a packet counts as in time by when it arrived, however late it is read.
    pub fn data(&mut self, header: &DataHeader, payload: &[u8], at: Time) -> Verdict {
        let at = at.max(self.last);
        self.last = at;
        let count = &mut self.statistics;
        count.pkt_recv += 1;
        count.byte_recv += (HEADER + payload.len()) as u64;
        count.pkt_rcv_retrans += u64::from(header.retransmitted);
        let is_sent_anew = header.retransmitted || header.sequence.is_before(self.next);
        self.rates
            .packet(header.sequence, payload.len(), at, is_sent_anew);
        self.expire(at);
        if let Some(tsbpd) = &mut self.tsbpd {
            tsbpd.follow(header.timestamp);
        }
        let due = self.due_of(header.timestamp);
        let sequence = header.sequence;
        let verdict = match u32::try_from(sequence.since(self.next)) {
            Ok(ahead) => self.ahead(sequence, ahead, due, at),
            Err(_) => self.behind(header, due, at),
        };
        match verdict {
            Verdict::New { .. } => {
                self.came.insert(sequence);
                self.acks.since += 1;
                self.statistics.pkt_recv_unique += 1;
                self.statistics.byte_recv_unique += payload.len() as u64;
                if let Some(playout) = &mut self.playout {
                    playout.keep(header, due.unwrap_or(at), payload);
                }
            }
            Verdict::Duplicate => self.statistics.pkt_rcv_duplicate += 1,
            Verdict::Belated { by } => {
                self.statistics.pkt_rcv_belated += 1;
                self.statistics.us_rcv_belated += by.as_micros() as u64;
            }
            Verdict::BeyondWindow => self.statistics.pkt_rcv_beyond_window += 1,
        }
        verdict
    }

    /// A packet that is not behind the highest, but so far ahead of the next.
    #[inline]
    fn ahead(&mut self, sequence: SeqNumber, ahead: u32, due: Option<Time>, at: Time) -> Verdict {
        if !self.has_room_for(sequence) {
            return Verdict::BeyondWindow;
        }
        self.came.forget(self.next, ahead + 1);
        let new = Verdict::New {
            recovered: false,
            due,
        };
        if ahead > 0 {
            self.missed(sequence, self.deadline(due, at));
        } else {
            self.in_order();
        }
        self.next = sequence.next();
        if self.patience_max > 0 {
            self.wait_less();
        }
        new
    }

    /// Whether a packet is within the window.
    fn has_room_for(&self, sequence: SeqNumber) -> bool {
        let begin = self.playout.as_ref().map_or(self.next, Playout::next);
        u32::try_from(sequence.since(begin)).is_ok_and(|ahead| ahead < self.window)
    }

    /// When packets before one are given up that is due then and came at `at`.
    fn deadline(&self, due: Option<Time>, at: Time) -> Time {
        let due = due.filter(|_| self.too_late_drop);
        due.map_or(Time::NEVER, |due| due.max(at))
    }

    /// All packets from the next one to before that one are missing.
    #[cold]
    fn missed(&mut self, end: SeqNumber, deadline: Time) {
        let range = LossRange {
            first: self.next,
            last: end.minus(1),
        };
        self.statistics.pkt_rcv_loss += u64::from(range.count());
        let dropped = self.gaps.push(Gap {
            range,
            deadline,
            // One is taken off for the packet that has come.
            patience: self.patience.saturating_add(1),
            asked: false,
        });
        self.statistics.pkt_rcv_drop += u64::from(dropped);
        if self.patience_max == 0 {
            self.nak_wanted = true;
        }
    }

    /// A packet came in order.
    #[inline]
    fn in_order(&mut self) {
        if self.patience > 0 {
            self.ordered += 1;
            if self.ordered >= ORDERED_MAX {
                self.ordered = 0;
                self.patience -= 1;
            }
        }
    }

    /// A packet more has come that gaps waited for.
    fn wait_less(&mut self) {
        // Those that were asked for are before those that were not, but for pieces of them.
        for gap in self.gaps.iter_mut().rev().take_while(|gap| !gap.asked) {
            gap.patience = gap.patience.saturating_sub(1);
            self.nak_wanted |= gap.patience == 0;
        }
    }

    /// A packet before the highest.
    #[cold]
    fn behind(&mut self, header: &DataHeader, due: Option<Time>, at: Time) -> Verdict {
        let sequence = header.sequence;
        let deadline = self.deadline(due, at);
        let Some((_, dropped)) = self.gaps.fill(sequence, deadline) else {
            if self.came.contains(sequence, self.next) {
                return Verdict::Duplicate;
            }
            let by = due.map_or(Duration::ZERO, |due| at.since(due));
            return Verdict::Belated { by };
        };
        self.statistics.pkt_rcv_drop += u64::from(dropped);
        let recovered = header.retransmitted;
        if recovered {
            self.statistics.pkt_rcv_recovered += 1;
        } else {
            self.statistics.pkt_rcv_reordered += 1;
            self.ordered = 0;
            let distance = self.next.since(sequence).unsigned_abs() - 1;
            self.patience = self.patience.max(distance.min(self.patience_max));
        }
        Verdict::New { recovered, due }
    }

    /// Gives up what is too late by then.
    fn expire(&mut self, now: Time) {
        let dropped = self.gaps.expire(now);
        self.statistics.pkt_rcv_drop += u64::from(dropped);
    }

    /// When a packet with that timestamp is due; none without TSBPD.
    #[inline]
    pub fn due_of(&self, timestamp: u32) -> Option<Time> {
        self.tsbpd.as_ref().map(|tsbpd| tsbpd.due(timestamp))
    }

    /// Handles a control packet with its timestamp and arrival time. Control packets other than
    /// ACKACKs and drop requests are ignored. It may have arrived before data packets that were
    /// handled already.
    pub fn control(&mut self, control: &Control<'_>, timestamp: u32, arrived: Time) {
        let at = arrived.max(self.last);
        self.last = at;
        match *control {
            Control::AckAck { number } => {
                self.statistics.pkt_recv_ackack += 1;
                let Some(rtt) = self.acks.answered(number, arrived) else {
                    self.statistics.pkt_recv_foreign_ackack += 1;
                    return;
                };
                self.rtt.measure(rtt);
                if let Some(tsbpd) = &mut self.tsbpd {
                    tsbpd.measure(timestamp, arrived, rtt);
                }
            }
            Control::DropRequest { first, last, .. } => {
                self.statistics.pkt_recv_drop_request += 1;
                self.drop_requested(LossRange { first, last }, at);
            }
            _ => {}
        }
    }

    fn drop_requested(&mut self, range: LossRange, at: Time) {
        self.expire(at);
        let dropped = u64::from(self.gaps.drop_range(range));
        self.statistics.pkt_rcv_drop += dropped;
        let beyond = range.last.since(self.next);
        let (Ok(beyond), false) = (u32::try_from(beyond), self.next.is_before(range.first)) else {
            if self.next.is_before(range.first) {
                // It would leave a gap that nobody knows of.
                self.statistics.pkt_recv_refused_drop_request += 1;
            }
            return;
        };
        if !self.has_room_for(range.last) {
            self.statistics.pkt_recv_refused_drop_request += 1;
            return;
        }
        let count = beyond + 1;
        self.came.forget(self.next, count);
        self.next = range.last.next();
        self.statistics.pkt_rcv_loss += u64::from(count);
        self.statistics.pkt_rcv_drop += u64::from(count);
    }

    /// The packet behind the last one that has come, or was given up, without a gap before it.
    pub fn acknowledged(&self) -> SeqNumber {
        self.gaps.first().map_or(self.next, |gap| gap.range.first)
    }

    /// True if a packet made a NAK or a light acknowledgement due.
    #[inline]
    pub fn feedback_is_due(&self) -> bool {
        self.nak_wanted || self.acks.since >= self.acks.light_at()
    }

    /// Time of the next periodic NAK.
    pub fn asks_again_at(&self) -> Time {
        match self.periodic_nak && self.gaps.first().is_some() {
            true => self.nak_at,
            false => Time::NEVER,
        }
    }

    /// When [`Receiver::write_next`] has something to say, or something is given up.
    pub fn due(&self) -> Time {
        if self.feedback_is_due() {
            return self.last;
        }
        let ack = self.acks.due(self.acknowledged(), self.rtt.patience());
        let Some(gap) = self.gaps.first() else {
            return ack;
        };
        let given_up = gap.deadline + self.read_behind + Duration::from_nanos(1);
        ack.min(self.asks_again_at()).min(given_up)
    }

    /// Appends the next control packet that is due, as one datagram; says whether there was one.
    pub fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let known = now
            .as_nanos()
            .saturating_sub(self.read_behind.as_nanos() as u64);
        self.expire(Time::from_nanos(known));
        self.write_nak(now, out) || self.write_ack(now, out)
    }

    fn header(&self, now: Time) -> ControlHeader {
        ControlHeader {
            timestamp: self.clock.timestamp(now),
            destination: self.peer,
        }
    }

    /// Interval of periodic NAKs (SRT, 4.8.2). Without TSBPD, libsrt waits longer for the
    /// retransmission.
    fn nak_every(&self) -> Duration {
        match self.tsbpd {
            Some(_) => (self.rtt.patience() / 2).max(NAK_EVERY_MIN),
            None => self.rtt.patience().max(NAK_EVERY_UNTIMED_MIN),
        }
    }

    fn write_nak(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let header = self.header(now);
        let named = if std::mem::take(&mut self.nak_wanted) {
            if !self.gaps.iter().any(|gap| gap.asked) {
                self.nak_at = now + self.nak_every();
            }
            let fresh = |gap: &Gap| !gap.asked && (self.patience_max == 0 || gap.patience == 0);
            let ranges = self.gaps.iter().filter(|gap| fresh(gap));
            let named = write_nak(header, ranges.map(|gap| gap.range), out);
            let patient = self.patience_max > 0;
            for gap in self.gaps.iter_mut() {
                gap.asked |= !patient || gap.patience == 0;
            }
            named
        } else if self.periodic_nak && self.gaps.missing() > 0 && now >= self.nak_at {
            self.nak_at = now + self.nak_every();
            let ranges = self.gaps.iter().filter(|gap| gap.asked);
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
        let full = now >= self.acks.due(next, self.rtt.patience());
        if !full && self.acks.since < self.acks.light_at() {
            return false;
        }
        let (number, report) = if full {
            let rates = self.rates.now();
            let report = AckReport {
                rtt: self.rtt.smoothed(),
                rtt_variance: self.rtt.variance(),
                room: self.room(),
                rates: Some(rates),
            };
            (self.acks.sent(next, now), Some(report))
        } else {
            self.acks.light += 1;
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

    /// For how many more packets there is room. Where none are kept, that is as if they were: those
    /// behind the first gap wait.
    fn room(&self) -> u32 {
        let begin = match &self.playout {
            Some(playout) => playout.next(),
            None => self.acknowledged(),
        };
        self.window
            .saturating_sub(self.next.since(begin).unsigned_abs())
            .max(2)
    }

    /// The next packet in order, where it is due and everything before it was delivered or given
    /// up. Nothing where packets are not kept.
    pub fn deliver(&mut self, now: Time) -> Option<Delivered<'_>> {
        self.expire(now);
        let end = self.acknowledged();
        let playout = self.playout.as_mut()?;
        playout.skip(end);
        playout.deliver(now)
    }

    /// When [`Receiver::deliver`] has a packet next, as far as it is known.
    pub fn delivery_due(&self) -> Option<Time> {
        let playout = self.playout.as_ref()?;
        let gap = self.gaps.first();
        match playout.due() {
            Some(due) => Some(due),
            // Given up already, so what is behind it may be due.
            None if playout.next() != self.acknowledged() => Some(self.last),
            None => gap.map(|gap| gap.deadline + Duration::from_nanos(1)),
        }
    }

    /// Gives up what is missing: the connection is over.
    pub fn finish(&mut self, at: Time) {
        self.expire(at);
        self.statistics.pkt_rcv_drop += u64::from(self.gaps.clear());
    }

    /// The latency that was agreed upon; zero without TSBPD.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// What it has counted.
    pub fn statistics_so_far(&self) -> &ReceiverStatistics {
        &self.statistics
    }

    /// What it has counted, and how things stand.
    pub fn statistics(&self) -> ReceiverStatistics {
        ReceiverStatistics {
            pkt_rcv_missing: self.gaps.missing().into(),
            pkt_rcv_buf: self.playout.as_ref().map_or(0, Playout::held).into(),
            us_rtt: self.rtt.smoothed().into(),
            us_rtt_var: self.rtt.variance().into(),
            ..self.statistics
        }
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let playout = self.playout.as_ref().map_or(0, Playout::bytes);
        size_of::<Receiver>() + playout + self.gaps.bytes() + self.came.bytes() + self.acks.bytes()
    }
}
