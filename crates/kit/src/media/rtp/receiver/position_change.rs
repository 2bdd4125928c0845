//! Change of the position in the same media: a seek, the end of a pause, another scale.
//!
//! Packets of the old position may still be in flight when the client requests the new one, and
//! packets of the new position may arrive before the server's response. The response describes the
//! first packet of the new position, which separates the two.

use std::collections::VecDeque;
use std::time::Duration;

use measure::{Recorder, Time};

use super::super::metrics as m;
use super::super::outage::{ClockComparison, PacketTime};
use super::super::sequence::MAX_DROPOUT;
use super::{BaseStatement, CurrentSource, ReceivedPacket, RtpReceiver};
use session::MediaEvent;

/// Maximum number of packets that are held until the response. If more arrive, the oldest ones
/// count as packets of the old position.
const HELD_MAX: usize = 64;

/// Time after the response in which packets of the old position are expected. A later packet that
/// does not match the server's statement shows that the statement was wrong.
const STRAGGLER_TIME: Duration = Duration::from_secs(1);

/// Maximum time by which a first packet's timestamp is ahead of `rtptime`, if its number is not
/// stated.
const FIRST_AHEAD_MAX: Duration = Duration::from_secs(10);

/// Server's statement about the first packet of a new position (RFC 2326, 12.33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionStatement {
    /// Sequence number of the packet.
    pub seq: Option<u16>,
    /// RTP timestamp that corresponds to the start of the range.
    pub rtptime: Option<u32>,
    /// True if each packet of the stream has its own timestamp, as in audio: `rtptime` then
    /// identifies the first packet better than `seq` does. See [`RtpReceiver::set_base`].
    pub timestamp_per_packet: bool,
    /// Time of the statement.
    pub stated_at: Time,
}

impl PositionStatement {
    /// True if a packet belongs to this position.
    fn contains(&self, packet: &ReceivedPacket, clock_rate: u32) -> bool {
        match (self.seq, self.rtptime) {
            (Some(seq), _) => packet.sequence.wrapping_sub(seq) < MAX_DROPOUT,
            (None, Some(rtptime)) => {
                let ahead = u64::from(packet.timestamp.wrapping_sub(rtptime));
                ahead <= u64::from(clock_rate) * FIRST_AHEAD_MAX.as_secs()
            }
            (None, None) => true,
        }
    }
}

/// Progress of a change of position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeState {
    /// Requested from the server.
    Requested,
    /// Confirmed by the server; no packet of the new position has arrived.
    Confirmed(PositionStatement),
    /// Complete: the position plays.
    Complete,
}

/// A change of position.
#[derive(Debug)]
pub(super) struct PositionChange {
    state: ChangeState,
    /// Packets that arrived before the response.
    held: VecDeque<ReceivedPacket>,
    /// Arrival of the first packet of the current position.
    arrival: Option<Time>,
    /// First packet of the current position, unless the stream began there.
    first: Option<PacketTime>,
    /// First extended number of the position; 0 if the position began with its source.
    first_number: u64,
    /// Time of a jump of the media clock that is not reported yet.
    clock_jump_at: Option<Time>,
}

impl PositionChange {
    /// Takes the jump of the media clock that is not reported yet.
    #[inline]
    pub(super) fn take_clock_jump(&mut self) -> Option<MediaEvent> {
        let at = self.clock_jump_at.take()?;
        Some(MediaEvent::ClockJumped { at })
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.state != ChangeState::Complete
    }

    /// Arrival of the first packet of the position. `first` is the first arrival of the stream.
    pub(super) fn arrival(&self, first: Option<Time>) -> Option<Time> {
        match self.state {
            ChangeState::Confirmed(_) => None,
            _ => self.arrival.or(first),
        }
    }

    /// Resets the first number of the position: the next source has other numbers.
    pub(super) fn source_ends(&mut self) {
        self.first_number = 0;
    }
}

impl CurrentSource {
    /// True if the sequence numbers continue from the old to the new position, as RFC 2326, B
    /// demands: packets missing in between were lost. The numbers continue if the next one follows
    /// directly or, with some missing, if the timestamp has advanced with time.
    fn continues_at(
        &self,
        packet: &ReceivedPacket,
        to: &PositionStatement,
        clock_rate: u32,
    ) -> bool {
        let (Some(seq), true) = (to.seq, self.ssrc == packet.ssrc) else {
            return false;
        };
        let missing = seq
            .wrapping_sub(self.sequence.highest() as u16)
            .wrapping_sub(1);
        if missing == 0 {
            return true;
        }
        let Some(timestamp) = to.rtptime.filter(|_| missing < MAX_DROPOUT) else {
            return false;
        };
        let at = packet.at;
        self.newest
            .compare_elapsed(PacketTime { at, timestamp }, clock_rate)
            != ClockComparison::Disagree
    }
}

impl RtpReceiver {
    /// Records that the server was asked to play from another position. Packets may now belong to
    /// either position, until [`RtpReceiver::position_changed`] or [`RtpReceiver::position_kept`]
    /// is called.
    pub fn request_position(&mut self) {
        let arrival = self.first_arrival;
        let change = self.position_change.get_or_insert_with(|| {
            Box::new(PositionChange {
                state: ChangeState::Complete,
                held: VecDeque::new(),
                arrival,
                first: None,
                first_number: 0,
                clock_jump_at: None,
            })
        });
        change.state = ChangeState::Requested;
        if let Some(codes) = self.playout.codes() {
            codes.expect_gap();
        }
        // Reserved in advance: nothing is allocated per packet.
        change.held.reserve_exact(HELD_MAX);
    }

    /// Records that the server plays from another position, with its statement about the first
    /// packet there. At that packet, everything restarts that depends on the media clock; nothing
    /// counts as lost because of it, nor as a restart of the stream. Returns the event if the
    /// packet has already arrived.
    pub fn position_changed(
        &mut self,
        to: PositionStatement,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        self.report.ended = false;
        self.request_position();
        let change = self.position_change.as_mut()?;
        change.state = ChangeState::Confirmed(to);
        change.arrival = None;
        let held = std::mem::take(&mut change.held);
        let mut event = None;
        for packet in held {
            let next = self.handle_packet(packet, recorder);
            event = event.or(next);
        }
        event
    }

    /// Records that the position stays the same: the server refused, or the client leaves.
    pub fn position_kept(&mut self, recorder: &mut Recorder) {
        let Some(change) = &mut self.position_change else {
            return;
        };
        change.state = ChangeState::Complete;
        for packet in std::mem::take(&mut change.held) {
            self.handle_at_position::<true>(packet, recorder);
        }
    }

    /// Handles a packet of a stream whose position has changed.
    #[inline(never)]
    pub(super) fn handle_after_change(
        &mut self,
        packet: ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        match &self.position_change {
            Some(change) if change.is_pending() => self.handle_during_change(packet, recorder),
            _ => self.handle_at_position::<true>(packet, recorder),
        }
    }

    /// Handles a packet during a change of position.
    #[cold]
    fn handle_during_change(
        &mut self,
        packet: ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        let change = self.position_change.as_mut()?;
        let ChangeState::Confirmed(to) = change.state else {
            let first = match change.held.len() {
                HELD_MAX => change.held.pop_front(),
                _ => None,
            };
            change.held.push_back(packet);
            return first.and_then(|first| self.handle_at_position::<true>(first, recorder));
        };
        if to.contains(&packet, self.clock_rate) {
            self.complete_change(&packet, &to, recorder);
            return Some(MediaEvent::Position { at: packet.at });
        }
        if packet.at.since(to.stated_at) < STRAGGLER_TIME {
            return self.handle_at_position::<true>(packet, recorder);
        }
        // The first packet of the position is then unknown: no delay is measured.
        recorder.add(m::RTP_INFO_MISMATCH, 1);
        self.complete_change(
            &packet,
            &PositionStatement {
                seq: None,
                rtptime: None,
                ..to
            },
            recorder,
        );
        None
    }

    /// Progress since the start of the current position, in seconds: of the media clock by the
    /// timestamps, and of time. `None` at the position where the stream began.
    pub fn progress_at_position(&self) -> Option<(f64, f64)> {
        let (change, source) = (self.position_change.as_ref()?, self.source.as_ref()?);
        let first = change.first.filter(|_| !change.is_pending())?;
        let newest = source.newest;
        let stamped = newest.timestamp.wrapping_sub(first.timestamp) as i32;
        let media = f64::from(stamped) / f64::from(self.clock_rate.max(1));
        Some((media, newest.at.since(first.at).as_secs_f64()))
    }

    /// Duration of the media that arrived from the current source and position, by its timestamps.
    /// `None` if nothing arrived, or if another machine receives the stream.
    pub fn played(&self) -> Option<Duration> {
        let newest = self.source.as_ref()?.newest;
        let position_changed = self
            .position_change
            .as_ref()
            .filter(|change| !change.is_pending());
        let began = position_changed
            .and_then(|change| change.first)
            .map_or(self.first_timestamp, |first| first.timestamp);
        let rate = f64::from(self.clock_rate.max(1));
        // Timestamps wrap around after 2^32 ticks: the arrival time tells how often.
        let took = newest.at.since(self.position_arrival()?).as_secs_f64() * rate;
        let stamped = newest.timestamp.wrapping_sub(began);
        let ahead = stamped.wrapping_sub(took as u64 as u32) as i32;
        let ticks = (took.trunc() + f64::from(ahead)).max(0.0);
        Some(Duration::from_secs_f64(ticks / rate))
    }

    /// First extended number of the position, of which packets with lower numbers are stragglers;
    /// 0 if the position began with its source.
    #[inline]
    pub(super) fn first_number_of_position(&self) -> u64 {
        let change = self.position_change.as_ref();
        change.map_or(0, |change| change.first_number)
    }

    /// Checks whether the media clock has jumped at a packet whose number continues, and then
    /// restarts everything that depends on that clock: some servers first send buffered packets of
    /// the previous position.
    pub(super) fn detect_clock_jump(
        &mut self,
        packet: &ReceivedPacket,
        extended: u64,
        recorder: &mut Recorder,
    ) {
        let (Some(source), Some(change)) = (&self.source, &mut self.position_change) else {
            return;
        };
        // The first packet of a source or a position has no predecessor to jump from.
        let first = source.arrived == 0 || extended == change.first_number || change.is_pending();
        if first
            || source
                .newest
                .compare_elapsed(packet.packet_time(), self.clock_rate)
                != ClockComparison::Disagree
        {
            return;
        }
        change.clock_jump_at = Some(packet.at);
        recorder.add(m::CLOCK_JUMPS, 1);
        let base = source.sequence.base();
        self.finish_frames(base, recorder);
        if let Some(change) = &mut self.position_change {
            change.first_number = extended;
        }
        self.jitter.restart();
    }

    /// Closes all frames of a source whose lowest extended number is `base`.
    pub(super) fn finish_frames(&mut self, base: u64, recorder: &mut Recorder) {
        let begins = self.first_number_of_position();
        self.playout.finish(base.max(begins), recorder);
    }

    /// Handles the first packet of another position.
    fn complete_change(
        &mut self,
        packet: &ReceivedPacket,
        to: &PositionStatement,
        recorder: &mut Recorder,
    ) {
        if let Some(change) = &mut self.position_change {
            change.state = ChangeState::Complete;
            change.arrival = Some(packet.at);
            change.first = Some(packet.packet_time());
        }
        // The time in which nothing was expected is not a gap.
        self.arrivals.begin(packet.at);
        self.reject_stray(recorder);
        self.jitter.restart();
        let clock_rate = self.clock_rate;
        if let (Some(source), Some(seq)) = (&mut self.source, to.seq)
            && source.continues_at(packet, to, clock_rate)
        {
            let missing = seq.wrapping_sub(source.sequence.highest() as u16);
            let begins = source.sequence.highest() + u64::from(missing);
            let base = source.sequence.base();
            self.finish_frames(base, recorder);
            if let Some(change) = &mut self.position_change {
                change.first_number = begins;
            }
            self.handle_at_position::<true>(*packet, recorder);
            return;
        }
        self.end_source(recorder);
        self.report.comparable = false;
        let rtptime = to.rtptime.filter(|_| to.timestamp_per_packet);
        self.base = to.seq.map_or(BaseStatement::Unknown, |seq| {
            BaseStatement::stated(seq, rtptime)
        });
        self.begin_stream(packet, recorder);
    }
}
