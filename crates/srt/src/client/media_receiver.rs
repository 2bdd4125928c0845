//! Receiving side of a client that plays: packets are acknowledged, requested again, decrypted, put
//! in order and checked.

use std::time::Duration;

use measure::{ArrivalRun, Recorder, Time};

use super::ack_schedule::AckSchedule;
use super::message_counter::MessageCounter;
use crate::arq::receiver::{PacketStatus, Receiver, ReceiverConfig};
use crate::arq::statistics::ReceiverStatistics;
use crate::codec::handshake::Extension;
use crate::codec::packet::{Control, DataHeader, wire_overhead};
use crate::crypto::Decryptor;
use crate::handshake::Negotiated;
use crate::metrics as m;
use crate::reorder_buffer::ReorderBuffer;
use crate::seq::SocketClock;
use kit::lifecycle::MediaTimes;
use kit::media::rtp::StreamSummary;
use kit::media::ts::checker::{TsChecker, TsCheckerConfig};
use kit::media::ts::metrics as ts;
use kit::viewer::Delivery;
use session::ArrivalTimes;

/// Number of bytes without three consecutive packets in sync after which the client gives up: the
/// input is not a transport stream.
const UNSYNCED_BYTES_MAX: usize = 32 * 1024;

/// Number of undecryptable packets after which the client gives up, if none was decrypted.
const UNDECRYPTABLE_MAX: u64 = 100;

/// Maximum delay from arrival to counting: blocks of the packet ring are handed over after 1 ms.
const READ_DELAY_MAX: Duration = Duration::from_millis(3);

/// Stream that is received.
#[derive(Debug)]
pub(super) struct MediaReceiver {
    receiver: Receiver,
    decryptor: Option<Decryptor>,
    reorder_buffer: ReorderBuffer,
    checker: Box<TsChecker>,
    /// Message counts. If `Some`, the content is not checked.
    message_counter: Option<Box<MessageCounter>>,
    /// Bytes of headers of each packet on the wire.
    overhead: usize,
    wire_bytes: u64,
    undecryptable: u64,
    decrypted: u64,
    /// Counters that were already added to the recorder.
    counted: ReceiverStatistics,
    reply: Vec<u8>,
}

impl MediaReceiver {
    /// Creates the receiving side of an established connection. Delays count from `due`, and media
    /// delays from the wall clock.
    pub(super) fn new(
        negotiated: Negotiated,
        clock: SocketClock,
        due: Time,
        wall_clock: Option<Duration>,
        playout_buffer: Duration,
        over_ipv6: bool,
    ) -> MediaReceiver {
        let config = negotiated.receiver(clock);
        MediaReceiver {
            receiver: Receiver::new(ReceiverConfig {
                tsbpd: config.tsbpd.filter(|_| negotiated.tsbpd_receiving),
                read_delay_max: READ_DELAY_MAX,
                ..config
            }),
            decryptor: negotiated.decryptor,
            reorder_buffer: ReorderBuffer::new(config.first_sequence),
            checker: Box::new(TsChecker::new(&TsCheckerConfig {
                due,
                group: None,
                previous_channel: None,
                wall_clock,
                playout_buffer,
            })),
            message_counter: None,
            overhead: wire_overhead(over_ipv6),
            wire_bytes: 0,
            undecryptable: 0,
            decrypted: 0,
            counted: ReceiverStatistics::default(),
            reply: Vec::new(),
        }
    }

    /// Treats the input as messages, and counts them.
    pub(super) fn counting_messages(mut self) -> MediaReceiver {
        self.message_counter = Some(Box::default());
        self
    }

    /// Handles a data packet. Hot path.
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
            PacketStatus::New { recovered, due } => {
                if let (true, Some(due)) = (recovered, due) {
                    recorder.record_duration(m::RECOVERY_MARGIN, due.since(at));
                }
            }
            PacketStatus::Belated { by } => return recorder.record_duration(m::BELATED_BY, by),
            PacketStatus::Duplicate | PacketStatus::BeyondWindow => return,
        }
        let payload = match &mut self.decryptor {
            None => payload,
            Some(decryptor) => match decryptor.decrypt_copy(header, payload) {
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
        if let Some(counter) = &mut self.message_counter {
            let given_up = self.receiver.acknowledged();
            return counter.packet(header, payload.len(), at, given_up, recorder);
        }
        let checker = &mut self.checker;
        let mut check = |payload: &[u8], at| check_payload(checker, payload, at, recorder);
        self.reorder_buffer
            .insert(header.sequence, at, payload, &mut check);
        let given_up = self.receiver.acknowledged();
        self.reorder_buffer.give_up_before(given_up, at, &mut check);
    }

    /// True if a packet made feedback due.
    #[inline]
    pub(super) fn feedback_is_due(&self) -> bool {
        self.receiver.feedback_is_due()
    }

    /// Time of the next periodic NAK.
    pub(super) fn periodic_nak_at(&self) -> Time {
        self.receiver.periodic_nak_at()
    }

    /// Handles a control packet. Returns the reply to be sent, if any.
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

    /// Releases payloads that need not wait any more, and updates the recorder.
    pub(super) fn settle(&mut self, now: Time, recorder: &mut Recorder) {
        let given_up = self.receiver.acknowledged();
        if let Some(counter) = &mut self.message_counter {
            counter.settle(now, given_up, recorder);
        } else {
            let checker = &mut self.checker;
            let mut check = |payload: &[u8], at| check_payload(checker, payload, at, recorder);
            self.reorder_buffer
                .give_up_before(given_up, now, &mut check);
        }
        self.count(recorder);
    }

    /// Plans the next sweep, after the input has been processed.
    pub(super) fn plan(&self, sweeps: &mut AckSchedule, now: Time) {
        let receiver = &self.receiver;
        let counted = receiver.counters();
        sweeps.plan(now, receiver.latency(), counted);
    }

    /// Adds the counts since the last call to the recorder.
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

    /// Records the smoothed RTT.
    pub(super) fn sample(&mut self, recorder: &mut Recorder) {
        let now = self.receiver.statistics();
        if now.pkt_recv_ackack > 0 {
            recorder.record(m::RTT, now.us_rtt * 1000);
        }
    }

    /// Writes the control packets that are due, one datagram at a time. Returns `false` if none is
    /// due.
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

    /// Arrival times of all media. `None` before the first.
    pub(super) fn media_times(&self) -> Option<MediaTimes> {
        if let Some(counter) = &self.message_counter {
            return counter.media_times();
        }
        Some(MediaTimes {
            first: self.checker.first_arrival()?,
            last: self.checker.last_arrival()?,
            longest_gap: self.checker.longest_gap(),
        })
    }

    /// Detail of the failure if the input is not a transport stream.
    pub(super) fn no_stream_detail(&self) -> Option<String> {
        let unsynced = self.checker.bytes_without_packet();
        (unsynced > UNSYNCED_BYTES_MAX).then(|| format!("no transport packet in {unsynced} bytes"))
    }

    /// True if none of the packets could be decrypted.
    pub(super) fn is_undecryptable(&self) -> bool {
        self.decrypted == 0 && self.undecryptable >= UNDECRYPTABLE_MAX
    }

    /// Checker of the transport stream; `None` for messages.
    pub(super) fn checker(&self) -> Option<&TsChecker> {
        self.message_counter.is_none().then_some(&*self.checker)
    }

    /// Records that expected media did not arrive up to `until`.
    pub(super) fn fell_silent(&mut self, until: Time, recorder: &mut Recorder) {
        self.checker.count_silence_until(until, recorder);
    }

    /// Ends the stream. Missing packets that could still arrive in time count neither as lost nor
    /// as expected, and packets behind them are not checked. If `total_sent` gives the source
    /// of the stream and its number of packets, those lost at the end are counted.
    pub(super) fn finish(
        &mut self,
        now: Time,
        total_sent: Option<(u64, u64)>,
        recorder: &mut Recorder,
    ) {
        // Gives up packets that are too late by now.
        let mut unsent = Vec::new();
        self.receiver.write_next(now, &mut unsent);
        self.settle(now, recorder);
        // Messages have no stamps.
        if let Some((source, packets)) = total_sent.filter(|_| self.message_counter.is_none()) {
            let lost = self.checker.set_total_sent(source, packets);
            recorder.add(m::TAIL_LOST, lost);
        }
        self.checker.finish(recorder);
    }

    /// Media that reached the viewer. Without stamps, packets that were given up are lost.
    pub(super) fn delivery(&self) -> Delivery {
        let stalled = self.checker.stalled();
        match self.checker.datagrams() {
            Some(counts) => Delivery {
                stalled,
                expected: counts.expected,
                missing: counts.expected.saturating_sub(counts.received),
            },
            None => Delivery {
                stalled,
                expected: self.counted.pkt_recv_unique + self.counted.pkt_rcv_drop,
                missing: self.counted.pkt_rcv_drop,
            },
        }
    }

    /// Row of the stream in the report; `None` for messages.
    pub(super) fn row(&self, url: String) -> Option<StreamSummary> {
        let is_stream = self.message_counter.is_none();
        is_stream.then(|| StreamSummary::from_checker(url, self.wire_bytes, &self.checker))
    }
}

/// Passes on a payload that arrived whole, and could be delivered from `at` on.
#[inline]
fn check_payload(checker: &mut TsChecker, payload: &[u8], at: Time, recorder: &mut Recorder) {
    let run = ArrivalRun {
        end: payload.len(),
        at,
        exact: true,
    };
    let runs = [run];
    checker.feed(payload, 0, &mut ArrivalTimes::new(&runs, at), recorder);
}
