//! Receiver of one RTP stream.

use std::time::Duration;

use measure::{Recorder, Time};
use serde::{Deserialize, Serialize};

use super::RtpMetrics;
use super::frame_assembler::{FrameAssembler, FramePacket};
use super::header::{FIXED_LENGTH, Header};
use super::metrics as m;
use super::outage::{ClockComparison, PacketTime};
use super::sequence::{MAX_DROPOUT, NewNumber, SequenceClass, SequenceTracker};
use crate::media::shared::{Arrivals, Jitter, stream_counts};
use session::{Arrival, MediaEvent, Sink};

mod padding;
mod payload;
mod payload_types;
mod position_change;
mod remote;
mod report;
mod stray;

use payload_types::PayloadTypes;
pub use position_change::PositionStatement;
use report::SenderReports;
use stray::ReceivedPacket;

/// Minimum time without packets in which sequence numbers can wrap around to recent ones.
const WRAP_TIME_MIN: Duration = Duration::from_secs(1);

/// Maximum number of packets before the first one that always count as lost if RTP-Info states
/// them: servers drop a few packets at the start.
const UNSEEN_LOSS_MAX: u16 = 16;

/// Maximum time from the stated `rtptime` to the first packet, if packets before it were lost.
const RTPTIME_AHEAD_MAX: Duration = Duration::from_secs(10);

/// Settings of an [`RtpReceiver`].
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Clock rate of the RTP timestamps in Hz, from the SDP's `rtpmap` or RFC 3551. If it is 0,
    /// nothing is measured that needs a clock.
    pub clock_rate: u32,
    /// Payload types that the SDP announced for the stream. If empty, all are accepted.
    pub payload_types: Vec<u8>,
    /// Playout buffer for which stalls are counted.
    pub playout_buffer: Duration,
}

stream_counts! {
    /// Counters of one stream since its start, across restarts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    #[repr(C)]
    StreamCounts {
        expected: EXPECTED,
        received: RECEIVED,
        payload_bytes: PAYLOAD_BYTES,
        wire_bytes: WIRE_BYTES,
        duplicated: DUPLICATED,
        reordered: REORDERED,
        late: LATE,
        malformed: MALFORMED,
        restarts: RESTARTS,
        sender_reports: SENDER_REPORTS,
        ;
        /// See [`m::LOST_TAIL`]; `None` if it is unknown. Known after
        /// [`RtpReceiver::finish`] at the earliest.
        pub lost_tail: Option<u64>,
    }
}

impl StreamCounts {
    /// Packets that never arrived: expected less received.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.received)
    }
}

/// Receives one RTP stream: counts and measures. Takes at most 1 KiB.
///
/// The first packet counts immediately; there is no probation (RFC 3550, A.1). Further packets
/// belong to the stream if their sequence number is less than 3000 ahead of or less than 2048
/// behind the highest. Other packets are judged in pairs of consecutive ones:
///
/// * An outage of the path: the packets come from the same source, and since the highest packet the
///   RTP timestamp has advanced as much as the arrival time, within one second or a tenth. The
///   stream continues, and all packets in between are lost. The number of wrap-arounds during the
///   outage is unknown: an outage counts less than 65,536 packets, its length modulo that number.
///   If the packets may as well be old ones (32,768 or more ahead), the timestamp must have
///   advanced by more than a second, or a tenth.
/// * A restarted stream, with nothing counted as lost in between: the packets come from one other
///   source, or from the same one at another media time, and their numbers are at most 16 apart.
///
/// A single packet of this kind is a stray and is judged when the next packet arrives: if it is
/// behind in its own stream it is late, otherwise it is malformed. The very last packet after an
/// outage needs no second one.
#[derive(Debug)]
// Fields that every packet needs are adjacent and in order of use: with thousands of streams, the
// cost of a packet is the number of cache lines it touches.
#[repr(C, align(64))]
pub struct RtpReceiver {
    counts: StreamCounts,
    payload_types: PayloadTypes,
    /// Valid once a packet has arrived.
    arrivals: Arrivals,
    jitter: Jitter,
    stray: Option<ReceivedPacket>,
    /// State of changes of position; `None` before the first one: few clients seek.
    position_change: Option<Box<position_change::PositionChange>>,
    clock_rate: u32,
    /// Timestamp of the first packet of the current source.
    first_timestamp: u32,
    finished: bool,
    /// True if the transport loses nothing.
    reliable: bool,
    source: Option<CurrentSource>,
    playout: FrameAssembler,
    first_arrival: Option<Time>,
    report: SenderReports,
    base: BaseStatement,
}

/// The source that is currently received.
#[derive(Debug)]
#[repr(C)]
struct CurrentSource {
    ssrc: u32,
    first: u16,
    /// True until a packet with payload arrives.
    only_padding: bool,
    /// Arrival and timestamp of the media packet with the highest sequence number.
    newest: PacketTime,
    /// First copies, duplicates and late packets, as RFC 3550 counts them for reports.
    arrived: u64,
    sequence: SequenceTracker,
    /// `expected` and `arrived` at the last report.
    reported: (u64, u64),
}

impl CurrentSource {
    /// True if a packet with a recent number is really one cycle ahead, after an outage. Numbers
    /// just ahead are never reinterpreted.
    #[inline]
    fn has_wrapped(&self, packet: &ReceivedPacket, clock_rate: u32) -> bool {
        packet.at.since(self.newest.at) >= WRAP_TIME_MIN
            && !self.sequence.is_just_ahead(packet.sequence)
            && self
                .newest
                .compare_elapsed(packet.packet_time(), clock_rate)
                == ClockComparison::Advance
    }

    /// True if `packet` belongs with `first`, which came after an outage, rather than with the
    /// packets before it.
    #[cold]
    fn belongs_with(&self, first: &ReceivedPacket, packet: &ReceivedPacket) -> bool {
        let from_highest = packet.sequence.wrapping_sub(self.sequence.highest() as u16) as i16;
        let from_first = packet.sequence.wrapping_sub(first.sequence) as i16;
        first.after_outage
            && first.is_near(packet)
            && (from_first.unsigned_abs() < from_highest.unsigned_abs()
                || self.sequence.is_recent(first.sequence))
    }

    /// True if a packet that is not just ahead may be the first one after an outage.
    fn is_after_outage(&self, packet: &ReceivedPacket, clock_rate: u32) -> bool {
        self.ssrc == packet.ssrc
            && match self
                .newest
                .compare_elapsed(packet.packet_time(), clock_rate)
            {
                ClockComparison::Disagree => false,
                // An old packet is more likely than such a loss in no time.
                ClockComparison::Agree => self.sequence.is_ahead(packet.sequence),
                ClockComparison::Advance => true,
            }
    }
}

/// Server's statement about the first sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseStatement {
    /// No statement yet; no packet has arrived.
    Unknown,
    /// No statement yet; the first packet that arrived has this timestamp.
    Started(u32),
    /// A statement; no packet has arrived.
    Stated(u16),
    /// A statement with the timestamp of that packet, which identifies it.
    StatedWithTime(u16, u32),
    /// A statement that yields to the packets if they contradict it.
    Hinted(u16),
    /// A statement that matches the packets.
    Confirmed,
    /// A statement that no longer matters: it was wrong, or the stream restarted.
    Obsolete,
}

impl BaseStatement {
    fn stated(seq: u16, rtptime: Option<u32>) -> BaseStatement {
        rtptime.map_or(BaseStatement::Stated(seq), |time| {
            BaseStatement::StatedWithTime(seq, time)
        })
    }
}

impl Sink for RtpReceiver {
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        RtpReceiver::packet(self, arrival, recorder)
    }
}

impl RtpReceiver {
    pub fn new(config: &ReceiverConfig) -> RtpReceiver {
        RtpReceiver {
            counts: StreamCounts::default(),
            payload_types: PayloadTypes::new(&config.payload_types),
            source: None,
            stray: None,
            position_change: None,
            jitter: Jitter::new(config.clock_rate),
            playout: FrameAssembler::new(config.clock_rate, config.playout_buffer),
            clock_rate: config.clock_rate,
            base: BaseStatement::Unknown,
            first_timestamp: 0,
            first_arrival: None,
            arrivals: Arrivals::default(),
            report: SenderReports::default(),
            finished: false,
            reliable: false,
        }
    }

    /// Enables time codes in the frames, which are H.264 or VP8. `wall_clock` is the wall clock at
    /// the start of the run, since 1970.
    pub fn with_time_codes(mut self, wall_clock: Duration) -> RtpReceiver {
        self.playout.expect_codes(wall_clock);
        self
    }

    /// Treats each packet as a frame, as for audio, until a frame has several packets. A lost
    /// packet then breaks no other frame.
    pub fn with_single_packets(mut self) -> RtpReceiver {
        self.playout.expect_single_packets();
        self
    }

    /// Declares that the packets arrive over TCP, so none can be lost before the first.
    pub fn over_reliable_transport(mut self) -> RtpReceiver {
        self.reliable = true;
        self
    }

    /// Handles one packet.
    #[inline]
    pub fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        if self.try_fast_path(arrival, recorder) {
            return None;
        }
        self.general_path(arrival, recorder)
    }

    /// Fast path: handles the next packet in sequence if it is like most packets, with only the
    /// fixed header before the payload, and no stray, position change or search pending.
    /// Returns `false` if it is not. [`RtpReceiver::general_path`] would give the same results.
    #[inline]
    fn try_fast_path(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> bool {
        let (Some(fixed), Some(payload_length)) = (
            arrival.bytes.first_chunk(),
            arrival.length.checked_sub(FIXED_LENGTH),
        ) else {
            return false;
        };
        if payload_length == 0 {
            return false;
        }
        let Some(header) = Header::plain(fixed, payload_length) else {
            return false;
        };
        let next = match &mut self.source {
            Some(source)
                if source.ssrc == header.ssrc
                    && !source.only_padding
                    && self.payload_types.has(header.payload_type)
                    && self.stray.is_none()
                    && self.position_change.is_none()
                    && !self.playout.reads_payloads() =>
            {
                source.sequence.next_in_order(header.sequence)
            }
            _ => None,
        };
        let Some(number) = next else {
            return false;
        };
        self.wire_bytes(arrival, recorder);
        let packet = ReceivedPacket::new(&header, arrival.at);
        self.count_first_copy::<false>(&packet, number, recorder);
        self.count_copy(&packet, recorder);
        true
    }

    #[inline]
    fn wire_bytes(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) {
        let wire = (arrival.length + arrival.overhead) as u64;
        recorder.count(&mut self.counts.wire_bytes, m::WIRE_BYTES, wire);
    }

    /// Handles a packet of any kind.
    // Not inlined, to keep the fast path short.
    #[inline(never)]
    fn general_path(
        &mut self,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        if self.playout.reads_payloads() {
            self.read_payload(arrival, recorder);
        }
        self.wire_bytes(arrival, recorder);
        let header = match Header::parse(arrival.bytes, arrival.length) {
            Ok(header) if self.payload_types.has(header.payload_type) => header,
            _ => {
                self.count_malformed(recorder);
                return None;
            }
        };
        let packet = ReceivedPacket::new(&header, arrival.at);
        if header.payload_length == 0 {
            self.handle_padding(&packet, recorder);
            return None;
        }
        self.handle_packet(packet, recorder)
    }

    /// Handles a packet that may belong to the stream.
    #[inline]
    fn handle_packet(
        &mut self,
        packet: ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        match self.position_change {
            // Leaves out everything that new positions need.
            None => self.handle_at_position::<false>(packet, recorder),
            Some(_) => self.handle_after_change(packet, recorder),
        }
    }

    /// Handles a packet that may belong to the stream, at the current position. `POSITION_CHANGED`
    /// is false if the position has never changed.
    #[inline]
    fn handle_at_position<const POSITION_CHANGED: bool>(
        &mut self,
        packet: ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        let Some(source) = &mut self.source else {
            self.begin_stream(&packet, recorder);
            return Some(MediaEvent::First { at: packet.at });
        };
        if source.only_padding {
            return self.begin_media(&packet, recorder);
        }
        let elsewhere = source.ssrc != packet.ssrc
            || source.has_wrapped(&packet, self.clock_rate)
            || self
                .stray
                .is_some_and(|first| source.belongs_with(&first, &packet));
        let class = if elsewhere {
            SequenceClass::TooFarAhead
        } else {
            source.sequence.classify(packet.sequence, recorder)
        };
        match class {
            SequenceClass::New(number) => {
                let straggles =
                    POSITION_CHANGED && number.extended < self.first_number_of_position();
                self.count_first_copy::<POSITION_CHANGED>(&packet, number, recorder);
                if straggles {
                    // The media clock has jumped since this packet was sent.
                    self.count_arrival();
                    return None;
                }
            }
            SequenceClass::Duplicate => {
                recorder.count(&mut self.counts.duplicated, m::DUPLICATED, 1);
            }
            SequenceClass::TooFarAhead | SequenceClass::TooFarBehind => {
                let behind = class == SequenceClass::TooFarBehind;
                return self.handle_stray(ReceivedPacket { behind, ..packet }, recorder);
            }
        }
        if self.stray.is_some() {
            self.reject_stray(recorder);
        }
        self.count_copy(&packet, recorder);
        match &mut self.position_change {
            Some(turn) if POSITION_CHANGED => turn.take_clock_jump(),
            _ => None,
        }
    }

    /// Sets the first sequence number of the stream as the server stated it (RTP-Info), before or
    /// after the first packet arrived. Only the first call has an effect.
    ///
    /// The statement is accepted if the number is at most 2999 below the lowest one that arrived;
    /// packets in between were expected. A number more than 16 below is rejected
    ///
    /// * over TCP, which loses nothing before the first packet: see
    ///   [`RtpReceiver::over_reliable_transport`];
    /// * if it is 0, which servers state when they do not know the number;
    /// * if `rtptime` is not within 10 s before the timestamp of the first packet.
    ///
    /// A rejected statement counts as [`super::metrics::RTP_INFO_MISMATCH`], and the base is the
    /// lowest number that arrived.
    ///
    /// `rtptime` is the timestamp that the server stated for that packet, for a stream in which
    /// each packet has its own timestamp, such as audio: if the first packet that arrived has it,
    /// that packet is the first one, whatever number the server stated, and nothing before it was
    /// lost. It must be `None` for other streams: the first of several packets of a frame may be
    /// lost.
    pub fn set_base(&mut self, seq: u16, rtptime: Option<u32>, recorder: &mut Recorder) {
        let base = BaseStatement::stated(seq, rtptime);
        match self.base {
            BaseStatement::Unknown => self.base = base,
            BaseStatement::Started(first) => self.compare_base(base, first, recorder),
            _ => {}
        }
    }

    /// Sets the server's statement about the next sequence number of a stream that other clients
    /// receive already: earlier packets may still be in flight and arrive first. No effect once a
    /// packet has arrived.
    pub fn hint_base(&mut self, seq: u16) {
        if self.base == BaseStatement::Unknown {
            self.base = BaseStatement::Hinted(seq);
        }
    }

    /// Compares a statement with the packet that arrived first, whose timestamp is `first`.
    fn compare_base(&mut self, base: BaseStatement, first: u32, recorder: &mut Recorder) {
        let (seq, rtptime) = match base {
            BaseStatement::Unknown | BaseStatement::Started(_) => {
                self.base = BaseStatement::Started(first);
                return;
            }
            BaseStatement::Stated(seq) | BaseStatement::Hinted(seq) => (seq, None),
            BaseStatement::StatedWithTime(seq, rtptime) => (seq, Some(rtptime)),
            BaseStatement::Confirmed | BaseStatement::Obsolete => return,
        };
        let Some(source) = &mut self.source else {
            return;
        };
        let is_first = seq != source.first
            && source.sequence.base() as u16 == source.first
            && rtptime == Some(first);
        let gap = (source.sequence.base() as u16).wrapping_sub(seq);
        let is_refuted = gap > UNSEEN_LOSS_MAX
            && (self.reliable
                || seq == 0
                || rtptime.is_some_and(|rtptime| {
                    let ahead = u64::from(first.wrapping_sub(rtptime));
                    ahead > u64::from(self.clock_rate) * RTPTIME_AHEAD_MAX.as_secs()
                }));
        let grown = match is_first || is_refuted {
            true => None,
            false => source.sequence.lower_base(seq, recorder),
        };
        if let Some(grown) = grown {
            self.base = BaseStatement::Confirmed;
            recorder.count(&mut self.counts.expected, m::EXPECTED, grown);
        } else {
            let wrong = !matches!(base, BaseStatement::Hinted(_));
            recorder.add(m::RTP_INFO_MISMATCH, u64::from(wrong));
            self.base = BaseStatement::Obsolete;
        }
    }

    /// Begins a source with its first packet. Returns the number of the packet.
    fn begin_source(&mut self, packet: &ReceivedPacket, only_padding: bool) -> NewNumber {
        let sequence = SequenceTracker::new(packet.sequence);
        let number = NewNumber::highest(sequence.highest(), 1);
        self.source = Some(CurrentSource {
            ssrc: packet.ssrc,
            first: packet.sequence,
            only_padding,
            sequence,
            newest: packet.packet_time(),
            arrived: 0,
            reported: (0, 0),
        });
        if self.report.ssrc != packet.ssrc {
            self.report = SenderReports::default();
        }
        number
    }

    /// Begins a stream with its first packet.
    fn begin_stream(&mut self, packet: &ReceivedPacket, recorder: &mut Recorder) {
        let number = self.begin_source(packet, false);
        self.media_begins(packet);
        self.count_first_copy::<true>(packet, number, recorder);
        self.compare_base(self.base, packet.timestamp, recorder);
        self.count_copy(packet, recorder);
    }

    /// Records arrival and timestamp of the first media packet of a source.
    fn media_begins(&mut self, packet: &ReceivedPacket) {
        self.first_timestamp = packet.timestamp;
        if self.first_arrival.is_none() {
            self.first_arrival = Some(packet.at);
            self.arrivals.begin(packet.at);
        }
    }

    /// Ends the current stream, and begins the next with two of its packets.
    fn restart_stream(
        &mut self,
        first: &ReceivedPacket,
        second: &ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        let old = self.end_source(recorder);
        recorder.count(&mut self.counts.restarts, m::RESTARTS, 1);
        self.base = BaseStatement::Obsolete;
        self.report.comparable = false;
        self.report.ended = false;
        self.jitter.restart();
        self.begin_stream(first, recorder);
        if let Some(source) = &mut self.source
            && let SequenceClass::New(number) = source.sequence.classify(second.sequence, recorder)
        {
            self.count_first_copy::<true>(second, number, recorder);
            self.count_copy(second, recorder);
        }
        (old != Some(first.ssrc)).then_some(MediaEvent::SourceChanged { ssrc: first.ssrc })
    }

    /// Settles everything that is undecided about the source, and removes it. Returns its SSRC.
    fn end_source(&mut self, recorder: &mut Recorder) -> Option<u32> {
        let mut source = self.source.take()?;
        source.sequence.finish(recorder);
        let base = source.sequence.base();
        self.finish_frames(base, recorder);
        if let Some(turn) = &mut self.position_change {
            turn.source_ends();
        }
        Some(source.ssrc)
    }

    /// Counts a packet, with payload or without, whose number was not received before.
    #[inline(always)]
    fn count_number(&mut self, number: NewNumber, recorder: &mut Recorder) {
        recorder.count(&mut self.counts.received, m::RECEIVED, 1);
        if number.grown > 0 {
            recorder.count(&mut self.counts.expected, m::EXPECTED, number.grown);
        }
        if number.distance > 0 {
            recorder.count(&mut self.counts.reordered, m::REORDERED, 1);
            recorder.record(m::REORDER_DISTANCE, number.distance);
        }
    }

    /// Counts the first copy of a packet.
    #[inline(always)]
    fn count_first_copy<const POSITION_CHANGED: bool>(
        &mut self,
        packet: &ReceivedPacket,
        number: NewNumber,
        recorder: &mut Recorder,
    ) {
        self.count_number(number, recorder);
        let payload = packet.payload_length as u64;
        recorder.count(&mut self.counts.payload_bytes, m::PAYLOAD_BYTES, payload);
        let NewNumber {
            extended,
            grown,
            distance,
        } = number;
        if distance > 0 && grown > 0 && self.base == BaseStatement::Confirmed {
            // The packet is below the number that the server stated as the first.
            self.base = BaseStatement::Obsolete;
            recorder.add(m::RTP_INFO_MISMATCH, 1);
        }
        let mut base = 0;
        if POSITION_CHANGED && distance == 0 {
            self.detect_clock_jump(packet, extended, recorder);
        }
        if let Some(source) = &mut self.source {
            base = source.sequence.base();
            if distance == 0 {
                source.newest = packet.packet_time();
            }
        }
        if POSITION_CHANGED {
            let begins = self.first_number_of_position();
            if extended < begins {
                // The frames of the previous position are closed.
                return;
            }
            base = base.max(begins);
        }
        let packet = FramePacket {
            extended,
            timestamp: packet.timestamp,
            marker: packet.marker,
            at: packet.at,
        };
        self.playout.packet(packet, base, recorder);
    }

    #[inline]
    fn count_arrival(&mut self) {
        if let Some(source) = &mut self.source {
            source.arrived += 1;
        }
    }

    /// Counts any packet of the source, including duplicates.
    #[inline(always)]
    fn count_copy(&mut self, packet: &ReceivedPacket, recorder: &mut Recorder) {
        self.count_arrival();
        self.arrivals.packet(packet.at);
        self.jitter
            .packet::<RtpMetrics>(packet.at, packet.timestamp, recorder);
    }

    pub fn counts(&self) -> &StreamCounts {
        &self.counts
    }

    /// SSRC of the current source.
    pub fn ssrc(&self) -> Option<u32> {
        self.source.as_ref().map(|source| source.ssrc)
    }

    /// Sequence number of the current source's packet that arrived first.
    pub fn first_sequence(&self) -> Option<u16> {
        self.source.as_ref().map(|source| source.first)
    }

    /// Highest sequence number of the current source, with the number of wrap-arounds in the upper
    /// half.
    pub fn highest_sequence(&self) -> Option<u32> {
        self.source.as_ref().map(|s| s.sequence.reported_highest())
    }

    /// Arrival of the first packet.
    pub fn first_arrival(&self) -> Option<Time> {
        self.first_arrival
    }

    /// Arrival of the first packet of the current position: that of the stream, until
    /// [`RtpReceiver::position_changed`] sets another position.
    pub fn position_arrival(&self) -> Option<Time> {
        match &self.position_change {
            Some(turn) => turn.arrival(self.first_arrival),
            None => self.first_arrival,
        }
    }

    /// Arrival of the last packet.
    pub fn last_arrival(&self) -> Option<Time> {
        self.first_arrival.map(|_| self.arrivals.last())
    }

    /// Current interarrival jitter (RFC 3550, A.8).
    pub fn jitter(&self) -> Duration {
        Duration::from_nanos(self.jitter.estimate.round() as u64)
    }

    /// Mean of the interarrival jitter after each packet.
    pub fn mean_jitter(&self) -> Option<Duration> {
        let nanos = self.jitter.mean_nanos()?;
        Some(Duration::from_nanos(nanos.round() as u64))
    }

    /// Longest time without a packet so far.
    pub fn longest_gap(&self) -> Duration {
        self.arrivals.longest_gap()
    }

    /// Smallest playout delay with which every complete frame so far would have played in time. The
    /// last eight frames are judged by [`RtpReceiver::finish`].
    pub fn playout_buffer(&self) -> Option<Duration> {
        self.playout.playing.required_delay()
    }

    /// Total duration of the stalls so far.
    pub fn stalled(&self) -> Duration {
        self.playout.playing.stalled()
    }

    /// Number of complete frames, broken frames and stalls so far.
    pub fn frames(&self) -> (u64, u64, u64) {
        self.playout.counts()
    }

    /// Records the figures that are known only at the end of the stream (longest gap, playout
    /// buffer, the last bursts of loss, the lost tail). Calls after the first have no effect.
    pub fn finish(&mut self, recorder: &mut Recorder) {
        self.finish_with(None, recorder);
    }

    /// Finishes a stream in which packets were expected up to `until` and did not arrive. The
    /// silence counts as a gap and as an unfinished stall.
    pub fn fell_silent(&mut self, until: Time, recorder: &mut Recorder) {
        self.finish_with(Some(until), recorder);
    }

    fn finish_with(&mut self, silent_until: Option<Time>, recorder: &mut Recorder) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.position_kept(recorder);
        match self.stray {
            Some(last) if last.after_outage => {
                self.stray = None;
                self.continue_after_outage(&last, recorder);
            }
            _ => self.reject_stray(recorder),
        }
        let begins = self.first_number_of_position();
        if let Some(source) = &mut self.source {
            source.sequence.finish(recorder);
            let base = source.sequence.base().max(begins);
            if let Some(until) = silent_until {
                self.playout.silent_until(base, until, recorder);
            }
            self.playout.finish(base, recorder);
            if self.report.comparable && self.report.ended {
                let tail = u64::from(self.report.packets).saturating_sub(source.sequence.span());
                self.counts.lost_tail = Some(tail);
                recorder.add(m::LOST_TAIL, tail);
                recorder.add(m::LOST_TAIL_KNOWN, 1);
            }
        }
        if let Some((until, _)) = silent_until.zip(self.first_arrival) {
            self.arrivals.silent_until(until);
        }
        if self.first_arrival.is_some()
            && (silent_until.is_some() || self.first_arrival != self.last_arrival())
        {
            recorder.record_duration(m::LONGEST_GAP, self.longest_gap());
        }
        self.playout.playing.finish::<RtpMetrics>(recorder);
    }
}

// Thousands of receivers exist at the same time.
const _: () = assert!(size_of::<RtpReceiver>() <= 1024);
const _: () = assert!((MAX_DROPOUT as u64) < 0x8000);

#[cfg(test)]
mod tests;
