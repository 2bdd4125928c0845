//! A client that plays: what comes is acknowledged, asked for again, decrypted, put in order and
//! checked.

use std::time::Duration;

use measure::{Recorder, Run, Time};

use super::counting::Counting;
use super::sweeps::Sweeps;
use crate::media::rtp::StreamSummary;
use crate::media::ts::checker::{Checker, CheckerConfig};
use crate::media::ts::metrics as ts;
use crate::session::Times;
use crate::srt::arq::TsbpdConfig;
use crate::srt::arq::receiver::{Receiver, ReceiverConfig, Verdict};
use crate::srt::arq::statistics::ReceiverStatistics;
use crate::srt::codec::handshake::Extension;
use crate::srt::codec::packet::{Control, DataHeader, HEADER};
use crate::srt::crypto::Decryptor;
use crate::srt::handshake::Negotiated;
use crate::srt::in_order::InOrder;
use crate::srt::metrics as m;
use crate::srt::seq::SocketClock;

/// So many bytes without three packets in a row are no transport stream.
const SYNC_WITHIN: usize = 32 * 1024;

/// So many packets that cannot be decrypted, and none that can, are enough.
const UNDECRYPTABLE_MAX: u64 = 100;

/// Maximum delay from arrival to counting: blocks of the packet ring are handed over after 1 ms.
const READ_BEHIND: Duration = Duration::from_millis(3);

/// What is received of a stream.
#[derive(Debug)]
pub(super) struct Playing {
    receiver: Receiver,
    decryptor: Option<Decryptor>,
    order: InOrder,
    checker: Box<Checker>,
    /// Of messages: then nothing is checked.
    counting: Option<Box<Counting>>,
    /// What goes before each packet on the wire.
    overhead: usize,
    wire_bytes: u64,
    undecryptable: u64,
    decrypted: u64,
    /// What has been added to the recorder.
    counted: ReceiverStatistics,
    reply: Vec<u8>,
}

/// What had come of media by a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// When media came first, where it did, and when last.
    pub(super) first: Option<Time>,
    pub(super) last: Option<Time>,
    /// The longest time without media.
    pub(super) longest_gap: Duration,
}

impl Playing {
    /// Of a connection that stands. Delays count from `due`, the delay of media from the wall
    /// clock.
    pub(super) fn new(
        negotiated: Negotiated,
        clock: SocketClock,
        (due, wall_clock): (Time, Option<Duration>),
        over_ipv6: bool,
    ) -> Playing {
        let first = negotiated.peer_initial_sequence;
        let tsbpd = TsbpdConfig {
            reference: negotiated.reference,
            timestamp: negotiated.timestamp,
            latency: negotiated.receive_latency,
        };
        let config = ReceiverConfig::live(first, negotiated.peer_socket_id, clock, tsbpd);
        Playing {
            receiver: Receiver::new(ReceiverConfig {
                tsbpd: negotiated.tsbpd_receiving.then_some(tsbpd),
                read_behind: READ_BEHIND,
                ..config
            }),
            decryptor: negotiated.decryptor,
            order: InOrder::new(first),
            checker: Box::new(Checker::new(&CheckerConfig {
                due,
                group: None,
                before: None,
                wall_clock,
            })),
            counting: None,
            // RFC 791, 3.1, or RFC 8200, 3; RFC 768.
            overhead: HEADER + 8 + if over_ipv6 { 40 } else { 20 },
            wire_bytes: 0,
            undecryptable: 0,
            decrypted: 0,
            counted: ReceiverStatistics::default(),
            reply: Vec::new(),
        }
    }

    /// Takes what comes for messages, and counts these.
    pub(super) fn counting_messages(mut self) -> Playing {
        self.counting = Some(Box::default());
        self
    }

    /// Takes a data packet in. The hot path.
    pub(super) fn data(
        &mut self,
        header: &DataHeader,
        payload: &[u8],
        at: Time,
        recorder: &mut Recorder,
    ) {
        let wire = (payload.len() + self.overhead) as u64;
        self.wire_bytes += wire;
        recorder.add(ts::WIRE_BYTES, wire);
        match self.receiver.data(header, payload, at) {
            Verdict::New { recovered, due } => {
                if let (true, Some(due)) = (recovered, due) {
                    let margin = due.since(at).as_nanos() as u64;
                    recorder.record(m::RECOVERY_MARGIN, margin);
                }
            }
            Verdict::Belated { by } => {
                return recorder.record(m::BELATED_BY, by.as_nanos() as u64);
            }
            Verdict::Duplicate | Verdict::BeyondWindow => return,
        }
        let payload = match &mut self.decryptor {
            None => payload,
            Some(decryptor) => match decryptor.open(header, payload) {
                Ok(payload) => {
                    self.decrypted += 1;
                    payload
                }
                Err(_) => {
                    self.undecryptable += 1;
                    return recorder.add(m::PKT_RCV_UNDECRYPT, 1);
                }
            },
        };
        if let Some(counting) = &mut self.counting {
            let given_up = self.receiver.acknowledged();
            return counting.packet(header, payload.len(), at, given_up, recorder);
        }
        let checker = &mut self.checker;
        let mut check = |payload: &[u8], at| feed(checker, payload, at, recorder);
        self.order.put(header.sequence, at, payload, &mut check);
        let given_up = self.receiver.acknowledged();
        self.order.give_up(given_up, at, &mut check);
    }

    /// True if a packet made feedback due.
    #[inline]
    pub(super) fn feedback_is_due(&self) -> bool {
        self.receiver.feedback_is_due()
    }

    /// Time of the next periodic NAK.
    pub(super) fn asks_again_at(&self) -> Time {
        self.receiver.asks_again_at()
    }

    /// Takes a control packet in. Gives what is to be said to it.
    pub(super) fn control(
        &mut self,
        control: &Control<'_>,
        timestamp: u32,
        at: Time,
        recorder: &mut Recorder,
    ) -> Option<Control<'_>> {
        if let Control::UserDefined {
            subtype: Extension::KM_REQUEST,
            cif,
            ..
        } = *control
        {
            let decryptor = self.decryptor.as_mut()?;
            self.reply.clear();
            decryptor.key_request(cif, &mut self.reply);
            return Some(Control::UserDefined {
                subtype: Extension::KM_RESPONSE,
                info: 0,
                cif: &self.reply,
            });
        }
        self.receiver.control(control, timestamp, at);
        if matches!(control, Control::DropRequest { .. }) {
            self.settle(at, recorder);
        }
        None
    }

    /// Hands on what waits no more, and counts.
    pub(super) fn settle(&mut self, now: Time, recorder: &mut Recorder) {
        let given_up = self.receiver.acknowledged();
        if let Some(counting) = &mut self.counting {
            counting.settle(now, given_up, recorder);
        } else {
            let checker = &mut self.checker;
            let mut check = |payload: &[u8], at| feed(checker, payload, at, recorder);
            self.order.give_up(given_up, now, &mut check);
        }
        self.count(recorder);
    }

    /// What has come was looked at: plans when that is next.
    pub(super) fn plan(&self, sweeps: &mut Sweeps, now: Time) {
        let receiver = &self.receiver;
        let counted = receiver.statistics_so_far();
        sweeps.plan(now, receiver.latency(), counted);
    }

    /// Adds what was counted since the last time.
    fn count(&mut self, recorder: &mut Recorder) {
        type Part = fn(&ReceiverStatistics) -> u64;
        const PARTS: [(measure::CounterId, Part); 12] = [
            (m::PKT_RCV_EXPECTED, |own| {
                own.pkt_recv_unique + own.pkt_rcv_drop
            }),
            (m::PKT_RECV, |own| own.pkt_recv),
            (m::PKT_RECV_UNIQUE, |own| own.pkt_recv_unique),
            (m::PKT_RCV_LOSS, |own| own.pkt_rcv_loss),
            (m::PKT_RCV_RETRANS, |own| own.pkt_rcv_retrans),
            (m::PKT_RCV_RECOVERED, |own| own.pkt_rcv_recovered),
            (m::PKT_RCV_REORDERED, |own| own.pkt_rcv_reordered),
            (m::PKT_RCV_DROP, |own| own.pkt_rcv_drop),
            (m::PKT_RCV_BELATED, |own| own.pkt_rcv_belated),
            (m::PKT_RCV_DUPLICATE, |own| own.pkt_rcv_duplicate),
            (m::PKT_SENT_ACK, |own| own.pkt_sent_ack),
            (m::PKT_SENT_NAK, |own| own.pkt_sent_nak),
        ];
        let now = self.receiver.statistics();
        if now == self.counted {
            return;
        }
        for (counter, part) in PARTS {
            let more = part(&now) - part(&self.counted);
            if more > 0 {
                recorder.add(counter, more);
            }
        }
        let beyond = now.pkt_rcv_beyond_window - self.counted.pkt_rcv_beyond_window;
        recorder.add(m::PKT_RCV_BEYOND_WINDOW, beyond);
        self.counted = now;
    }

    /// Looks at levels.
    pub(super) fn sample(&mut self, recorder: &mut Recorder) {
        let now = self.receiver.statistics();
        if now.pkt_recv_ackack > 0 {
            recorder.record(m::RTT, now.us_rtt * 1000);
        }
    }

    /// Has what is due written, a datagram at a time; says whether there was anything.
    pub(super) fn write(
        &mut self,
        now: Time,
        mut datagram: impl FnMut(&mut dyn FnMut(&mut Vec<u8>)),
    ) -> bool {
        let receiver = &mut self.receiver;
        let mut any = false;
        loop {
            let mut more = false;
            datagram(&mut |out| more = receiver.write_next(now, out));
            if !more {
                break;
            }
            any = true;
        }
        any
    }

    /// What has come of media so far.
    pub(super) fn seen(&self) -> Seen {
        match &self.counting {
            Some(counting) => Seen {
                first: counting.first_arrival(),
                last: counting.last_arrival(),
                longest_gap: counting.longest_gap(),
            },
            None => Seen {
                first: self.checker.first_arrival(),
                last: self.checker.last_arrival(),
                longest_gap: self.checker.longest_gap(),
            },
        }
    }

    /// What is said where what came is no transport stream.
    pub(super) fn is_no_stream(&self) -> Option<String> {
        let unsynced = self.checker.unsynced();
        (unsynced > SYNC_WITHIN).then(|| format!("no transport packet in {unsynced} bytes"))
    }

    /// Whether nothing of what came can be decrypted.
    pub(super) fn is_undecryptable(&self) -> bool {
        self.decrypted == 0 && self.undecryptable >= UNDECRYPTABLE_MAX
    }

    /// Checker of the transport stream; `None` for messages.
    pub(super) fn checker(&self) -> Option<&Checker> {
        self.counting.is_none().then_some(&*self.checker)
    }

    /// Nothing came any more up to `until`, though it was to.
    pub(super) fn fell_silent(&mut self, until: Time) {
        self.checker.fell_silent(until);
    }

    /// Nothing more comes. What is missing and could still have come in time is neither lost nor
    /// expected, and what waits behind it is not looked at; unless it is known which source the
    /// stream `had`, and how many packets in all.
    pub(super) fn finish(&mut self, now: Time, had: Option<(u64, u64)>, recorder: &mut Recorder) {
        // Gives up what is too late by now.
        let mut unsaid = Vec::new();
        self.receiver.write_next(now, &mut unsaid);
        self.settle(now, recorder);
        // Messages bear no stamps.
        if let Some((source, packets)) = had.filter(|_| self.counting.is_none()) {
            let lost = self.checker.sent_in_all(source, packets);
            recorder.add(m::TAIL_LOST, lost);
        }
        self.checker.finish(recorder);
    }

    /// The row of its stream; messages are none.
    pub(super) fn row(&self, url: String) -> Option<StreamSummary> {
        let is_stream = self.counting.is_none();
        is_stream.then(|| StreamSummary::of_transport_stream(url, self.wire_bytes, &self.checker))
    }
}

/// Hands a payload on that came whole, and could be handed on from `at`.
#[inline]
fn feed(checker: &mut Checker, payload: &[u8], at: Time, recorder: &mut Recorder) {
    let run = Run {
        end: payload.len(),
        at,
        exact: true,
    };
    let runs = [run];
    checker.feed(payload, 0, &mut Times::new(&runs, at), recorder);
}
