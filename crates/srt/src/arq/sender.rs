//! Sending side of a transmission.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;
use thiserror::Error;

use super::pacing::Pacing;
use super::rtt::Rtt;
use super::statistics::SenderStatistics;
use crate::codec::packet::{
    Ack, Control, ControlHeader, DataHeader, HEADER, KeyFlag, LossList, LossRange, MESSAGE_MAX,
    PAYLOAD_MAX, Position,
};
use crate::seq::{SeqNumber, SocketClock};

use message_mode::MessageMode;

pub use super::pacing::Bandwidth;
pub use message_mode::SentMessageCounts;

mod message_mode;

/// Unacknowledged packets are dropped after the peer's latency or `TOO_LATE_MIN`, whichever is
/// longer, plus `TOO_LATE_EXTRA` (SRT, 4.6, and libsrt).
const TOO_LATE_MIN: Duration = Duration::from_secs(1);
const TOO_LATE_EXTRA: Duration = Duration::from_millis(20);

/// Default of the maximum number of kept packets, sent or not.
pub const PACKETS_MAX: u32 = 8192;

/// Maximum number of answers that wait to be sent.
const PENDING_CONTROL_MAX: usize = 64;

/// Memory for encrypted copies is allocated in chunks of this size: small, because each of
/// thousands of senders holds one or two chunks.
const CHUNK: usize = 4 * PAYLOAD_MAX;

/// Maximum number of bytes that a cipher appends to a payload.
const CIPHER_TAG_MAX: usize = 16;

/// Encrypts payloads.
pub trait PayloadCipher: fmt::Debug + Send {
    /// Encrypts a payload in place, and returns the key that was used. May append a tag, as long as
    /// the payload stays within [`PAYLOAD_MAX`]. Called once for each packet, in order: a
    /// retransmission repeats the first transmission.
    fn encrypt(&mut self, header: &DataHeader, payload: &mut BytesMut) -> KeyFlag;

    /// Handles a key message of the peer ([`Control::UserDefined`]).
    fn control(&mut self, _control: &Control<'_>, _at: Time) {}

    /// Time at which [`PayloadCipher::write_next`] has a packet to send.
    fn due(&self) -> Time {
        Time::NEVER
    }

    /// Appends the next control packet about keys, as one datagram. Returns `false` if none is due.
    fn write_next(&mut self, _now: Time, _header: ControlHeader, _out: &mut Vec<u8>) -> bool {
        false
    }
}

/// Configuration of a [`Sender`].
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Sequence number of the first packet, from our handshake.
    pub first_sequence: SeqNumber,
    /// Socket id of the peer.
    pub peer: u32,
    /// Clock of the timestamps in sent packets.
    pub clock: SocketClock,
    /// Latency of the peer's receiver.
    pub latency: Duration,
    /// True in message mode, in which every message must arrive: unacknowledged packets are
    /// retransmitted (libsrt's `SRM_LATEREXMIT`), and the latency drops none.
    pub messages: bool,
    /// Time after which an unacknowledged message is dropped as a whole (`SRT_MSGCTRL::msgttl`).
    /// Default: never.
    pub message_ttl: Option<Duration>,
    pub bandwidth: Bandwidth,
    /// Maximum number of unacknowledged packets, from the peer's handshake (`SRTO_FC`).
    pub flow_window: u32,
    /// Maximum number of kept packets, sent or not (`SRTO_SNDBUF`).
    pub packets_max: u32,
}

impl SenderConfig {
    /// Live mode with libsrt's defaults.
    pub fn live(
        first_sequence: SeqNumber,
        peer: u32,
        clock: SocketClock,
        latency: Duration,
    ) -> SenderConfig {
        SenderConfig {
            first_sequence,
            peer,
            clock,
            latency,
            messages: false,
            message_ttl: None,
            bandwidth: Bandwidth::Unlimited,
            flow_window: 8192,
            packets_max: PACKETS_MAX,
        }
    }

    /// Message mode (`SRTT_FILE` with `SRTO_MESSAGEAPI`). Messages are dropped after `ttl`.
    pub fn messages(
        first_sequence: SeqNumber,
        peer: u32,
        clock: SocketClock,
        ttl: Option<Duration>,
    ) -> SenderConfig {
        SenderConfig {
            messages: true,
            message_ttl: ttl,
            ..SenderConfig::live(first_sequence, peer, clock, Duration::ZERO)
        }
    }
}

/// Reason why a payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PushError {
    /// The buffer is full of packets that are neither acknowledged nor too late.
    #[error("the send buffer is full")]
    Full,
    /// The payload is longer than [`PAYLOAD_MAX`].
    #[error("a payload of {0} bytes does not fit into a packet")]
    TooLong(usize),
}

/// Packet that leaves.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Time at which it was due.
    pub due: Time,
    pub header: [u8; HEADER],
    pub payload: Bytes,
    pub sequence: SeqNumber,
    pub retransmitted: bool,
}

/// Sending side of a connection.
#[derive(Debug)]
pub struct Sender {
    peer: u32,
    clock: SocketClock,
    too_late_after: Option<Duration>,
    flow_window: u32,
    window: u32,
    packets_max: usize,
    cipher: Option<Box<dyn PayloadCipher>>,
    buffer: BytesMut,
    /// Packets from the first unacknowledged one on.
    slots: VecDeque<Slot>,
    first: SeqNumber,
    /// Number of slots that were sent.
    sent: usize,
    /// Number of slots to be retransmitted, the index before which there are none, and the time of
    /// the first request.
    retransmit_count: usize,
    retransmit_from: usize,
    retransmit_requested_at: Time,
    bytes: usize,
    message: u32,
    pacing: Pacing,
    rtt: Rtt,
    pending_control: VecDeque<PendingControl>,
    /// `Some` in message mode.
    message_mode: Option<Box<MessageMode>>,
    statistics: SenderStatistics,
}

#[derive(Debug)]
struct Slot {
    payload: Bytes,
    part: Part,
    /// Time at which the payload was pushed.
    origin: Time,
    /// Time of the last retransmission.
    last_retransmitted_at: Time,
    timestamp: u32,
    key: KeyFlag,
    needs_retransmission: bool,
}

/// Message of a packet, and position within it.
#[derive(Clone, Copy, Debug)]
struct Part {
    message: u32,
    position: Position,
    in_order: bool,
}

/// Control packet that waits to be sent.
#[derive(Clone, Copy, Debug)]
enum PendingControl {
    AckAck(u32),
    /// Drop request with a message number, or 0 if the message is unknown.
    Drop(u32, LossRange),
}

impl Sender {
    pub fn new(config: SenderConfig) -> Sender {
        Sender {
            peer: config.peer,
            clock: config.clock,
            too_late_after: match config.messages {
                true => config.message_ttl,
                false => Some(config.latency.max(TOO_LATE_MIN) + TOO_LATE_EXTRA),
            },
            flow_window: config.flow_window.max(1),
            window: config.flow_window.max(1),
            packets_max: config.packets_max.max(1) as usize,
            cipher: None,
            buffer: BytesMut::new(),
            slots: VecDeque::new(),
            first: config.first_sequence,
            sent: 0,
            retransmit_count: 0,
            retransmit_from: 0,
            retransmit_requested_at: Time::NEVER,
            bytes: 0,
            message: 0,
            pacing: Pacing::new(config.bandwidth),
            rtt: Rtt::default(),
            pending_control: VecDeque::new(),
            message_mode: config.messages.then(Box::default),
            statistics: SenderStatistics::default(),
        }
    }

    /// Encrypts payloads from now on.
    pub fn set_cipher(&mut self, cipher: Box<dyn PayloadCipher>) {
        self.cipher = Some(cipher);
    }

    /// Cipher, if one is set, so that a key can be announced to it.
    pub fn cipher(&mut self) -> Option<&mut dyn PayloadCipher> {
        self.cipher.as_deref_mut().map(|cipher| cipher as _)
    }

    /// Pushes a payload whose time is `at`. The payload is shared, and copied only to encrypt it.
    ///
    /// # Errors
    /// The payload is too long, or the buffer is full.
    pub fn push(&mut self, at: Time, payload: Bytes) -> Result<SeqNumber, PushError> {
        self.check_push(at, payload.len())?;
        let part = self.solo();
        Ok(self.enqueue(at, payload, part))
    }

    /// Message of one packet.
    fn solo(&self) -> Part {
        Part {
            message: next_message(self.message),
            position: Position::Solo,
            in_order: false,
        }
    }

    fn enqueue(&mut self, at: Time, payload: Bytes, part: Part) -> SeqNumber {
        if self.cipher.is_none() {
            return self.keep(at, payload, part, KeyFlag::None);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.capacity() < PAYLOAD_MAX {
            buffer.reserve(CHUNK);
        }
        buffer.extend_from_slice(&payload);
        let (sequence, buffer) = self.encrypt(at, buffer, part);
        self.buffer = buffer;
        sequence
    }

    /// Pushes a payload that is not shared, and encrypts it in place: see [`Sender::push`].
    ///
    /// # Errors
    /// The payload is too long, or the buffer is full.
    pub fn push_owned(&mut self, at: Time, payload: BytesMut) -> Result<SeqNumber, PushError> {
        self.check_push(at, payload.len())?;
        let part = self.solo();
        if self.cipher.is_none() {
            return Ok(self.keep(at, payload.freeze(), part, KeyFlag::None));
        }
        Ok(self.encrypt(at, payload, part).0)
    }

    /// Encrypts and keeps a payload. Returns the remaining space of its buffer.
    fn encrypt(&mut self, at: Time, mut payload: BytesMut, part: Part) -> (SeqNumber, BytesMut) {
        let header = DataHeader {
            sequence: self.first.plus(self.slots.len() as u32),
            position: part.position,
            in_order: part.in_order,
            key: KeyFlag::None,
            retransmitted: false,
            message: part.message,
            timestamp: self.clock.timestamp(at),
            destination: self.peer,
        };
        let cipher = self.cipher.as_mut();
        let key = cipher.map_or(KeyFlag::None, |cipher| {
            cipher.encrypt(&header, &mut payload)
        });
        let whole = payload.split();
        (self.keep(at, whole.freeze(), part, key), payload)
    }

    /// Checks whether a payload of that length can be pushed.
    fn check_push(&mut self, at: Time, length: usize) -> Result<(), PushError> {
        if length > PAYLOAD_MAX {
            return Err(PushError::TooLong(length));
        }
        self.drop_late(at);
        if self.slots.len() >= self.packets_max {
            self.statistics.pkt_snd_refused += 1;
            return Err(PushError::Full);
        }
        Ok(())
    }

    fn keep(&mut self, at: Time, payload: Bytes, part: Part, key: KeyFlag) -> SeqNumber {
        self.pacing.record_input(at, payload.len());
        self.message = part.message;
        self.bytes += payload.len();
        let sequence = self.first.plus(self.slots.len() as u32);
        self.slots.push_back(Slot {
            payload,
            part,
            origin: at,
            last_retransmitted_at: Time::ZERO,
            timestamp: self.clock.timestamp(at),
            key,
            needs_retransmission: false,
        });
        sequence
    }

    /// Removes the first packet. Returns true if the packet was sent.
    fn pop_first(&mut self) -> bool {
        let Some(slot) = self.slots.pop_front() else {
            return false;
        };
        self.bytes -= slot.payload.len();
        self.first = self.first.next();
        self.retransmit_count -= usize::from(slot.needs_retransmission);
        self.retransmit_from = self.retransmit_from.saturating_sub(1);
        let sent = self.sent > 0;
        self.sent = self.sent.saturating_sub(1);
        sent
    }

    /// Drops packets that have been unacknowledged for too long.
    fn drop_late(&mut self, now: Time) {
        let Some(after) = self.too_late_after else {
            return;
        };
        while self
            .slots
            .front()
            .is_some_and(|slot| slot.origin + after < now)
        {
            if self.message_mode.is_some() {
                self.drop_message();
                continue;
            }
            let sent = self.pop_first();
            self.statistics.pkt_snd_drop += 1;
            self.statistics.pkt_snd_drop_unsent += u64::from(!sent);
        }
    }

    /// Handles a control packet that arrived at `at`. Packets other than ACKs, NAKs and key
    /// messages are ignored.
    pub fn control(&mut self, control: &Control<'_>, at: Time) {
        match control {
            Control::Ack(ack) => self.handle_ack(ack, at),
            Control::Nak(list) => self.handle_nak(list, at),
            Control::UserDefined { .. } => {
                if let Some(cipher) = &mut self.cipher {
                    cipher.control(control, at);
                }
            }
            _ => {}
        }
    }

    fn handle_ack(&mut self, ack: &Ack, at: Time) {
        self.statistics.pkt_recv_ack += 1;
        let ahead = ack.next.distance_from(self.first);
        if usize::try_from(ahead).is_ok_and(|ahead| ahead > self.sent) {
            self.statistics.pkt_recv_future_ack += 1;
            return;
        }
        let mut whole = 0;
        for _ in 0..ahead.max(0) {
            let position = self.slots.front().map(|slot| slot.part.position);
            whole += u64::from(matches!(position, Some(Position::Last | Position::Solo)));
            self.pop_first();
        }
        self.record_progress(ack.next, whole, ahead > 0, at);
        if let Some(report) = ack.report {
            self.rtt.adopt(report.rtt, report.rtt_variance);
            self.window = report.free_packets.clamp(1, self.flow_window);
            if ack.number > 0 {
                self.queue_control(PendingControl::AckAck(ack.number));
            }
        }
    }

    fn queue_control(&mut self, answer: PendingControl) {
        if self.pending_control.len() < PENDING_CONTROL_MAX {
            self.pending_control.push_back(answer);
        } else {
            self.statistics.pkt_unanswered += 1;
        }
    }

    fn handle_nak(&mut self, list: &LossList<'_>, at: Time) {
        self.statistics.pkt_recv_nak += 1;
        // A list that names each packet once cannot name more packets than were sent.
        let mut left = self.sent;
        for LossRange { first, last } in list.ranges() {
            let begin = first.distance_from(self.first);
            let end = last.distance_from(self.first);
            let Some(end) = usize::try_from(end).ok().map(|end| end + 1) else {
                // The whole range was acknowledged or dropped.
                self.answer_unavailable(LossRange { first, last });
                continue;
            };
            let begin = match usize::try_from(begin) {
                Ok(begin) => begin,
                Err(_) => {
                    let last = self.first.minus(1);
                    self.answer_unavailable(LossRange { first, last });
                    0
                }
            };
            if end > self.sent || end - begin > left {
                self.statistics.pkt_recv_lying_ranges += 1;
                continue;
            }
            left -= end - begin;
            self.statistics.pkt_snd_loss += (end - begin) as u64;
            if self.retransmit_count == 0 {
                (self.retransmit_from, self.retransmit_requested_at) = (begin, at);
            }
            self.retransmit_from = self.retransmit_from.min(begin);
            for slot in self.slots.range_mut(begin..end) {
                self.retransmit_count +=
                    usize::from(!std::mem::replace(&mut slot.needs_retransmission, true));
            }
        }
    }

    /// Answers a request for packets that are no longer kept.
    fn answer_unavailable(&mut self, range: LossRange) {
        if !self.answer_dropped(range) {
            self.queue_control(PendingControl::Drop(0, range));
        }
    }

    /// True if a packet may be sent for the first time.
    fn may_send_new(&self) -> bool {
        self.sent < self.slots.len() && self.sent < self.window as usize
    }

    /// Time of the next packet; [`Time::NEVER`] if none is due. A packet from the peer may advance
    /// it.
    #[inline]
    pub fn next_due(&self) -> Time {
        let retransmission = (self.retransmit_count > 0).then_some(self.retransmit_requested_at);
        let new = self.slots.get(self.sent).map(|slot| slot.origin);
        let new = new.filter(|_| self.may_send_new());
        let due = retransmission
            .into_iter()
            .chain(new)
            .min()
            .unwrap_or(Time::NEVER);
        match due.min(self.retransmit_all_at()) {
            Time::NEVER => Time::NEVER,
            due => due.max(self.pacing.next_departure_at),
        }
    }

    /// Returns the next packet, if it is due. Retransmissions go first.
    pub fn next_packet(&mut self, now: Time) -> Option<Outgoing> {
        self.drop_late(now);
        if self.next_due() > now {
            return None;
        }
        self.retransmit_all(now);
        let free_at = self.pacing.next_departure_at;
        while let Some(index) = self.next_wanted() {
            let slot = &mut self.slots[index];
            // The retransmission may still be in flight, as in libsrt (`SRTO_RETRANSMITALGO` 1).
            if slot.last_retransmitted_at != Time::ZERO
                && slot.last_retransmitted_at + self.rtt.minimum() >= now
            {
                self.statistics.pkt_snd_loss_repeated += 1;
                continue;
            }
            slot.last_retransmitted_at = now;
            let due = self.retransmit_requested_at.max(free_at);
            return Some(self.outgoing(index, due, true));
        }
        if !self.may_send_new() {
            return None;
        }
        let index = self.sent;
        let due = self.slots[index].origin.max(free_at);
        if due > now {
            return None;
        }
        if self.sent == 0 {
            self.record_first_departure(now);
        }
        self.sent += 1;
        Some(self.outgoing(index, due, false))
    }

    /// Clears the mark of the first packet to be retransmitted, and returns its index.
    fn next_wanted(&mut self) -> Option<usize> {
        if self.retransmit_count == 0 {
            return None;
        }
        let mut slots = self.slots.range_mut(self.retransmit_from..);
        let offset = slots.position(|slot| std::mem::take(&mut slot.needs_retransmission))?;
        let index = self.retransmit_from + offset;
        self.retransmit_count -= 1;
        self.retransmit_from = index + 1;
        Some(index)
    }

    fn outgoing(&mut self, index: usize, due: Time, retransmitted: bool) -> Outgoing {
        let slot = &self.slots[index];
        let sequence = self.first.plus(index as u32);
        let header = DataHeader {
            sequence,
            position: slot.part.position,
            in_order: slot.part.in_order,
            key: slot.key,
            retransmitted,
            message: slot.part.message,
            timestamp: slot.timestamp,
            destination: self.peer,
        };
        let payload = slot.payload.clone();
        let length = payload.len();
        self.pacing.record_departure(due, length);
        let count = &mut self.statistics;
        count.pkt_sent += 1;
        count.byte_sent += (HEADER + length) as u64;
        if retransmitted {
            count.pkt_retrans += 1;
            count.byte_retrans += length as u64;
        } else {
            count.pkt_sent_unique += 1;
            count.byte_sent_unique += length as u64;
        }
        Outgoing {
            due,
            header: header.write(),
            payload,
            sequence,
            retransmitted,
        }
    }

    /// Time at which [`Sender::write_next`] has a packet to send; [`Time::NEVER`] if none is due.
    pub fn control_due(&self) -> Time {
        match &self.cipher {
            _ if !self.pending_control.is_empty() => Time::ZERO,
            Some(cipher) => cipher.due().min(self.repeat_drop_requests_at()),
            None => self.repeat_drop_requests_at(),
        }
    }

    /// Appends the next control packet that is due, as one datagram. Returns `false` if none is
    /// due.
    pub fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let header = ControlHeader::sent_at(now, self.clock, self.peer);
        if self.pending_control.is_empty() {
            self.repeat_drop_requests(now);
        }
        let Some(answer) = self.pending_control.pop_front() else {
            let cipher = self.cipher.as_mut();
            return cipher.is_some_and(|cipher| cipher.write_next(now, header, out));
        };
        let control = match answer {
            PendingControl::AckAck(number) => {
                self.statistics.pkt_sent_ackack += 1;
                Control::AckAck { number }
            }
            PendingControl::Drop(message, LossRange { first, last }) => {
                self.statistics.pkt_sent_drop_request += 1;
                Control::DropRequest {
                    message,
                    first,
                    last,
                }
            }
        };
        control.write(header, out);
        true
    }

    /// Time at which the oldest packet is too late, and is dropped by the next call. `None` if no
    /// packet is kept, or packets are never dropped.
    pub fn drops_at(&self) -> Option<Time> {
        let oldest = self.slots.front()?.origin;
        Some(oldest + self.too_late_after? + Duration::from_nanos(1))
    }

    /// Time at which a packet was pushed, or `None` if the packet is no longer kept.
    #[inline]
    pub fn pushed_at(&self, sequence: SeqNumber) -> Option<Time> {
        let index = usize::try_from(sequence.distance_from(self.first)).ok()?;
        self.slots.get(index).map(|slot| slot.origin)
    }

    /// Number of packets that are not sent, or not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.slots.len()
    }

    /// Sequence number of the next payload that is pushed.
    pub fn next_sequence(&self) -> SeqNumber {
        self.first.plus(self.slots.len() as u32)
    }

    /// Counters and the current state.
    pub fn statistics(&self) -> SenderStatistics {
        let span = self.slots.front().zip(self.slots.back());
        let span = span.map_or(Duration::ZERO, |(first, last)| {
            last.origin.since(first.origin)
        });
        SenderStatistics {
            pkt_snd_buf: self.slots.len() as u64,
            pkt_flight_size: self.sent as u64,
            byte_snd_buf: self.bytes as u64,
            ms_snd_buf: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
            pkt_flow_window: self.window.into(),
            bps_max_bandwidth: self.pacing.bits_per_second(),
            us_rtt: self.rtt.smoothed.into(),
            us_rtt_var: self.rtt.variance.into(),
            ..self.statistics
        }
    }
}

/// Message number that follows `message`. 0 is not a valid number.
fn next_message(message: u32) -> u32 {
    if message >= MESSAGE_MAX {
        1
    } else {
        message + 1
    }
}
