//! Another position in the same media: a seek, the end of a pause, another scale.
//!
//! Packets of the old position may still be on their way when the server is asked for the new one,
//! and those of the new one may come before its answer does. What the server says of the first
//! packet tells them apart.

use std::collections::VecDeque;
use std::time::Duration;

use measure::{Recorder, Time};

use super::super::metrics as m;
use super::super::outage::{Clocks, Moment};
use super::super::sequence::MAX_DROPOUT;
use super::{Base, CurrentSource, RtpReceiver, Stray};
use crate::session::MediaEvent;

/// Most packets that wait to be told apart. Where more come before the answer, the first of them
/// are taken to be of the old position.
const HELD_MAX: usize = 64;

/// How long after the answer packets of the old position are still to be expected. What comes later
/// and does not go with what the server said shows that it was wrong.
const STRAGGLING: Duration = Duration::from_secs(1);

/// Of a first packet whose number is not known, how far ahead its timestamp may be.
const AHEAD: Duration = Duration::from_secs(10);

/// What a server says of the first packet of a new position (RFC 2326, 12.33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its sequence number.
    pub seq: Option<u16>,
    /// The RTP timestamp that stands for the beginning of the range.
    pub rtptime: Option<u32>,
    /// Whether each packet of the stream has a timestamp of its own, as sound has: then `rtptime`
    /// tells the first packet better than `seq` does. See [`RtpReceiver::set_base`].
    pub own_times: bool,
    /// When the server said so.
    pub said: Time,
}

impl Position {
    /// Whether anything is said by which its packets can be told from those before.
    pub fn tells(&self) -> bool {
        self.seq.is_some() || self.rtptime.is_some()
    }

    /// Whether a packet is of this position.
    fn has(&self, packet: &Stray, clock_rate: u32) -> bool {
        match (self.seq, self.rtptime) {
            (Some(seq), _) => packet.sequence.wrapping_sub(seq) < MAX_DROPOUT,
            (None, Some(rtptime)) => {
                let ahead = u64::from(packet.timestamp.wrapping_sub(rtptime));
                ahead <= u64::from(clock_rate) * AHEAD.as_secs()
            }
            (None, None) => true,
        }
    }
}

/// How far a change of position has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The server is asked for it.
    Asked,
    /// The server told of it, and none of its packets came.
    Told(Position),
    /// It plays.
    There,
}

/// A change of position.
#[derive(Debug)]
pub(super) struct PositionChange {
    way: Way,
    /// What came before the answer.
    held: VecDeque<Stray>,
    /// When the first packet came of the position that plays.
    arrival: Option<Time>,
    /// The first packet of that position, where that is not the stream's first.
    first: Option<Moment>,
    /// The extended number with which it begins; 0 where it began with its source.
    begins: u64,
    /// When the media's clock jumped, until it is told.
    jumped: Option<Time>,
}

impl PositionChange {
    /// A jump of the media's clock that was not told yet.
    #[inline]
    pub(super) fn take_jump(&mut self) -> Option<MediaEvent> {
        let at = self.jumped.take()?;
        Some(MediaEvent::ClockJumped { at })
    }

    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.way != Way::There
    }

    /// When the first packet of the position came, where that of the stream came then.
    pub(super) fn arrival(&self, first: Option<Time>) -> Option<Time> {
        match self.way {
            Way::Told(_) => None,
            _ => self.arrival.or(first),
        }
    }

    #[inline]
    pub(super) fn begins(&self) -> u64 {
        self.begins
    }

    /// The numbers begin anew.
    pub(super) fn source_ends(&mut self) {
        self.begins = 0;
    }
}

impl CurrentSource {
    /// Whether the numbers go on from what came before to a new position, as RFC 2326, B demands:
    /// then what is missing between was lost. That the next number is the very next shows it, and
    /// where some are missing, that the timestamp has not advanced by more than time has.
    fn goes_on(&self, packet: &Stray, to: &Position, clock_rate: u32) -> bool {
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
        self.newest.until(Moment { at, timestamp }, clock_rate) != Clocks::Disagree
    }
}

impl RtpReceiver {
    /// Says that the server is asked to play from another position: what comes from now on may be
    /// of either, until [`RtpReceiver::position_changed`] or [`RtpReceiver::stayed`] tells.
    pub fn turn(&mut self) {
        let arrival = self.first_arrival;
        let turn = self.turn.get_or_insert_with(|| {
            Box::new(PositionChange {
                way: Way::There,
                held: VecDeque::new(),
                arrival,
                first: None,
                begins: 0,
                jumped: None,
            })
        });
        turn.way = Way::Asked;
        if let Some(codes) = self.playout.codes() {
            codes.break_off();
        }
        // All at once: nothing is allocated for a packet.
        turn.held.reserve_exact(HELD_MAX);
    }

    /// Says that the server plays from another position, and what it said of the first packet
    /// there. With that packet all begins anew that reckons with the media's clock; nothing is
    /// counted as lost for it, nor as a restart. Gives the event where the packet has come already.
    pub fn position_changed(
        &mut self,
        to: Position,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        self.report.ended = false;
        self.turn();
        let turn = self.turn.as_mut()?;
        turn.way = Way::Told(to);
        turn.arrival = None;
        let held = std::mem::take(&mut turn.held);
        let mut event = None;
        for packet in held {
            let next = self.take(packet, recorder);
            event = event.or(next);
        }
        event
    }

    /// Says that the server plays on as before: it refused, or the client leaves.
    pub fn stayed(&mut self, recorder: &mut Recorder) {
        let Some(turn) = &mut self.turn else { return };
        turn.way = Way::There;
        for packet in std::mem::take(&mut turn.held) {
            self.take_here::<true>(packet, recorder);
        }
    }

    /// Takes in a packet of a stream that has changed its position.
    #[inline(never)]
    pub(super) fn take_turned(
        &mut self,
        packet: Stray,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        match &self.turn {
            Some(turn) if turn.is_under_way() => self.take_turning(packet, recorder),
            _ => self.take_here::<true>(packet, recorder),
        }
    }

    /// Takes in a packet while the position changes.
    #[cold]
    fn take_turning(&mut self, packet: Stray, recorder: &mut Recorder) -> Option<MediaEvent> {
        let turn = self.turn.as_mut()?;
        let Way::Told(to) = turn.way else {
            let first = match turn.held.len() {
                HELD_MAX => turn.held.pop_front(),
                _ => None,
            };
            turn.held.push_back(packet);
            return first.and_then(|first| self.take_here::<true>(first, recorder));
        };
        if to.has(&packet, self.clock_rate) {
            self.arrive(&packet, &to, recorder);
            return Some(MediaEvent::Position { at: packet.at });
        }
        if packet.at.since(to.said) < STRAGGLING {
            return self.take_here::<true>(packet, recorder);
        }
        // Which was the first is not known then, and no delay is measured by it.
        recorder.add(m::RTP_INFO_MISMATCH, 1);
        self.arrive(
            &packet,
            &Position {
                seq: None,
                rtptime: None,
                ..to
            },
            recorder,
        );
        None
    }

    /// Of the position that plays, where it is not the stream's first: how far the media's clock
    /// has gone by the timestamps, and how long that took, in seconds.
    pub fn clock_at_position(&self) -> Option<(f64, f64)> {
        let (turn, source) = (self.turn.as_ref()?, self.source.as_ref()?);
        let first = turn.first.filter(|_| !turn.is_under_way())?;
        let newest = source.newest;
        let stamped = newest.timestamp.wrapping_sub(first.timestamp) as i32;
        let media = f64::from(stamped) / f64::from(self.clock_rate.max(1));
        Some((media, newest.at.since(first.at).as_secs_f64()))
    }

    /// How much media has come of the source and the position that play, by its timestamps. `None`
    /// where nothing came, and where another machine receives.
    pub fn played(&self) -> Option<Duration> {
        let newest = self.source.as_ref()?.newest;
        let position_changed = self.turn.as_ref().filter(|turn| !turn.is_under_way());
        let began = position_changed
            .and_then(|turn| turn.first)
            .map_or(self.began, |first| first.timestamp);
        let rate = f64::from(self.clock_rate.max(1));
        // Timestamps begin again every 2^32 ticks: how often they have, the arrival tells.
        let took = newest.at.since(self.position_arrival()?).as_secs_f64() * rate;
        let stamped = newest.timestamp.wrapping_sub(began);
        let ahead = stamped.wrapping_sub(took as u64 as u32) as i32;
        let ticks = (took.trunc() + f64::from(ahead)).max(0.0);
        Some(Duration::from_secs_f64(ticks / rate))
    }

    /// Whether a packet is of the position before that which plays.
    #[inline]
    pub(super) fn straggles(&self, extended: u64) -> bool {
        self.turn
            .as_ref()
            .is_some_and(|turn| extended < turn.begins)
    }

    /// Looks whether the media's clock has jumped with a packet whose number goes on, and begins
    /// anew with it then what reckons with that clock: some servers first send what they have still
    /// in store of the position before.
    pub(super) fn look_for_jump(&mut self, packet: &Stray, extended: u64, recorder: &mut Recorder) {
        let (Some(source), Some(turn)) = (&self.source, &mut self.turn) else {
            return;
        };
        // What begins a source or a position has nothing before it to jump from.
        let first = source.arrived == 0 || extended == turn.begins || turn.is_under_way();
        if first || source.newest.until(packet.moment(), self.clock_rate) != Clocks::Disagree {
            return;
        }
        turn.jumped = Some(packet.at);
        recorder.add(m::CLOCK_JUMPS, 1);
        let base = source.sequence.base();
        self.finish_frames(base, recorder);
        if let Some(turn) = &mut self.turn {
            turn.begins = extended;
        }
        self.jitter.restart();
    }

    /// Closes all frames of a source whose lowest extended number is `base`.
    pub(super) fn finish_frames(&mut self, base: u64, recorder: &mut Recorder) {
        let begins = self.turn.as_ref().map_or(0, |turn| turn.begins);
        self.playout.finish(base.max(begins), recorder);
    }

    /// Takes the first packet of another position in.
    fn arrive(&mut self, packet: &Stray, to: &Position, recorder: &mut Recorder) {
        if let Some(turn) = &mut self.turn {
            turn.way = Way::There;
            turn.arrival = Some(packet.at);
            turn.first = Some(packet.moment());
        }
        // The time that nothing was to come is no gap.
        self.arrivals.begin(packet.at);
        self.judge_stray(recorder);
        self.jitter.restart();
        let clock_rate = self.clock_rate;
        if let (Some(source), Some(seq)) = (&mut self.source, to.seq)
            && source.goes_on(packet, to, clock_rate)
        {
            let missing = seq.wrapping_sub(source.sequence.highest() as u16);
            let begins = source.sequence.highest() + u64::from(missing);
            let base = source.sequence.base();
            self.finish_frames(base, recorder);
            if let Some(turn) = &mut self.turn {
                turn.begins = begins;
            }
            self.take_here::<true>(*packet, recorder);
            return;
        }
        self.end_source(recorder);
        self.report.comparable = false;
        let rtptime = to.rtptime.filter(|_| to.own_times);
        self.base = to.seq.map_or(Base::Unsaid, |seq| Base::said(seq, rtptime));
        self.begin(packet, recorder);
    }
}
