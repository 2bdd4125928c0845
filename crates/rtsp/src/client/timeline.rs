//! Actions of a client while it plays, one after the other.
//!
//! Every change of the playback begins with PAUSE, followed by PLAY, as in players: a server may
//! queue a PLAY that arrives while it plays (RFC 2326, 10.5). An action that the server refuses is
//! counted, and the client continues as before.

use std::time::Duration;

use measure::{CounterId, HistogramId, Recorder, Time};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::request::Pending;
use super::{Client, Phase};
use crate::actions::{Action, LeaveEarly, Play, Scale, Speed};
use crate::codec::{Method, Response};
use crate::failure::Failure;
use crate::headers::{NptStart, Range, format_number};
use crate::metrics as m;
use kit::media::rtp::{PositionStatement, RtpReceiver};
use session::{Context, Outcome};

/// Maximum distance between the requested position and the start of `Range` in the answer. Longer
/// than the distance between two key frames.
const RANGE_DISTANCE_MAX: Duration = Duration::from_secs(10);

/// Tolerance for the position at which media continues. Covers what the server has buffered, and
/// the distance between two key frames.
const POSITION_TOLERANCE: Duration = Duration::from_secs(2);

/// Minimum duration, in seconds, for which a speed is judged.
const SPEED_SECONDS_MIN: f64 = 2.0;

/// Kind of a change. Each kind has delays of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Seek,
    Scale,
    Speed,
    Resume,
}

impl ChangeKind {
    /// Returns the metrics of the delay to the answer and of the delay to the first packet.
    fn delays(self) -> (HistogramId, HistogramId) {
        match self {
            ChangeKind::Seek => (m::SEEK_DELAY, m::SEEK_TO_MEDIA),
            ChangeKind::Scale => (m::SCALE_DELAY, m::SCALE_TO_MEDIA),
            ChangeKind::Speed => (m::SPEED_DELAY, m::SPEED_TO_MEDIA),
            ChangeKind::Resume => (m::RESUME_DELAY, m::RESUME_TO_MEDIA),
        }
    }
}

/// Parameters of a PLAY request.
#[derive(Clone, Copy, Debug)]
struct PlayRequest {
    kind: ChangeKind,
    /// Time when the change was due.
    due: Time,
    from: Option<Duration>,
    to: Option<Duration>,
    scale: f64,
    speed: f64,
}

/// The request in progress.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// No request: the media plays, is paused or has ended.
    Idle,
    /// PAUSE is outstanding. The pause lasts for `length` after its answer.
    Pause { length: Duration },
    /// PAUSE is outstanding. This PLAY follows its answer.
    PauseThenPlay(PlayRequest),
    /// PLAY is outstanding.
    Play(PlayRequest),
}

/// State of the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaybackState {
    Playing,
    /// Paused, until the client's next action.
    Paused,
    /// The requested range has ended; the media may be longer.
    RangeEnded,
}

/// Progress of a client's actions.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Index of the next action.
    next: usize,
    random: Pcg64Mcg,
    /// Due time of the next action. `None` while a request is in progress.
    due: Option<Time>,
    /// True if a pause ends at `due`.
    resumes_at_due: bool,
    progress: Progress,
    playback: PlaybackState,
    /// Kind and due time of the change whose delay the first packet of the new position will show.
    awaited_change: Option<(ChangeKind, Time)>,
    /// Due time of the last change of position, to which a jump of the media clock would belong.
    seek_due: Option<Time>,
    /// Start and end position of the last PLAY, if known.
    from: Option<Duration>,
    until: Option<Duration>,
    /// True if an end position was requested. The next action begins there.
    until_requested: bool,
    /// Requested scale and speed.
    scale: f64,
    speed: f64,
    /// Media time per second that the server states to send; negative if it plays backwards.
    rate: f64,
    /// `Speed` last stated by the server.
    stated_speed: f64,
    /// After a pause: the position that follows from the server's statements, and the amount of
    /// media played up to it.
    paused_at: Option<(Duration, Duration)>,
    /// Length of the whole media.
    media_length: Option<Duration>,
}

impl Timeline {
    /// Returns the timeline before its first action, or `None` if there are no actions. All random
    /// choices follow from the seed.
    pub(super) fn new(actions: &[Action], seed: u64) -> Option<Box<Timeline>> {
        if actions.is_empty() {
            return None;
        }
        Some(Box::new(Timeline {
            next: 0,
            // A generator of its own, so that the same seed makes the same choices whatever else
            // happens.
            random: Pcg64Mcg::seed_from_u64(seed ^ 0x6163_7469_6f6e_7321),
            due: None,
            resumes_at_due: false,
            progress: Progress::Idle,
            playback: PlaybackState::Playing,
            awaited_change: None,
            seek_due: None,
            from: None,
            until: None,
            until_requested: false,
            scale: 1.0,
            speed: 1.0,
            rate: 1.0,
            stated_speed: 1.0,
            paused_at: None,
            media_length: None,
        }))
    }

    /// Returns the due time of the next action.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns the playing time of the last request, if known.
    fn playing_time(&self) -> Option<Duration> {
        let media = match (self.rate < 0.0, self.until) {
            // Backwards, it ends at the beginning, unless the end position lies before the start.
            (true, Some(until)) => self.from?.checked_sub(until).or(self.from),
            (true, None) => self.from,
            (false, until) => until?.checked_sub(self.from?),
        };
        let seconds = media.filter(|media| !media.is_zero())?.as_secs_f64() / self.rate.abs();
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Returns the position after the last request has played for this time.
    fn position_after(&self, played: Duration) -> Option<Duration> {
        let moved = played.as_secs_f64() * self.rate.abs();
        let moved = Duration::try_from_secs_f64(moved).ok()?;
        match self.rate < 0.0 {
            true => Some(self.from?.saturating_sub(moved)),
            false => self.from?.checked_add(moved),
        }
    }

    /// Returns the request of an action. Values that it does not name stay unchanged.
    fn play_request(&mut self, play: &Play, kind: ChangeKind, due: Time) -> PlayRequest {
        let from = play.from.map(|from| from.draw(&mut self.random));
        let to = play.to.map(|to| to.draw(&mut self.random));
        PlayRequest {
            kind,
            due,
            from,
            to,
            scale: play.scale.map_or(self.scale, |scale| scale.0),
            speed: play.speed.map_or(self.speed, |speed| speed.0),
        }
    }
}

/// Returns the kind of the main change of a `play`.
fn change_kind(play: &Play) -> ChangeKind {
    match (play.from.or(play.to), play.scale, play.speed) {
        (Some(_), ..) => ChangeKind::Seek,
        (None, Some(_), _) => ChangeKind::Scale,
        (None, None, Some(_)) => ChangeKind::Speed,
        (None, None, None) => ChangeKind::Resume,
    }
}

/// Counts a refusal by its status.
fn count_refusal(status: u16, recorder: &mut Recorder) {
    let of_status: Option<CounterId> = match status {
        455 => Some(m::ACTIONS_REFUSED_455),
        457 => Some(m::ACTIONS_REFUSED_457),
        501 => Some(m::ACTIONS_REFUSED_501),
        551 => Some(m::ACTIONS_REFUSED_551),
        _ => None,
    };
    recorder.add(m::ACTIONS_REFUSED, 1);
    if let Some(counter) = of_status {
        recorder.add(counter, 1);
    }
}

/// Returns whether a header states this number. A missing header means 1.
fn header_states(response: &Response, name: &str, wanted: f64) -> bool {
    match response.headers.get(name).map(|text| text.trim().parse()) {
        None => wanted == 1.0,
        Some(stated) => stated.is_ok_and(|stated: f64| (stated - wanted).abs() < 0.001),
    }
}

/// Returns the number that a header states, or 1 if it is missing or invalid.
fn stated_number(response: &Response, name: &str) -> f64 {
    let stated = response.headers.get(name);
    let stated = stated.and_then(|text| text.trim().parse().ok());
    stated
        .filter(|stated: &f64| stated.is_finite() && *stated != 0.0)
        .unwrap_or(1.0)
}

impl Client {
    /// Returns whether media is expected: not while an action has paused it or is in progress.
    pub(super) fn expects_media(&self) -> bool {
        self.timeline.as_ref().is_none_or(|timeline| {
            timeline.playback == PlaybackState::Playing
                && matches!(timeline.progress, Progress::Idle)
        })
    }

    pub(super) fn first_play_headers(&mut self) -> Vec<(&'static str, String)> {
        if let Some(timeline) = &mut self.timeline
            && let Some(Action::Play(play)) = self.config.actions.first()
        {
            timeline.next = 1;
            let mut request = timeline.play_request(play, ChangeKind::Seek, self.starts.due);
            request.from.get_or_insert_default();
            timeline.progress = Progress::Play(request);
            return request.headers(1.0, 1.0);
        }
        vec![("Range", Range::FROM_START.to_string())]
    }

    /// Starts the actions after the answer to the first PLAY.
    pub(super) fn begin_timeline(&mut self, cx: &mut Context<'_>, response: &Response, at: Time) {
        let end = self.playing_time;
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        timeline.media_length = end;
        let request = match std::mem::replace(&mut timeline.progress, Progress::Idle) {
            Progress::Play(request) => request,
            _ => timeline.play_request(&Play::default(), ChangeKind::Seek, at),
        };
        timeline.due = request.to.is_none().then_some(at);
        self.apply_play_answer(cx, &request, response);
    }

    /// Performs the actions that are due.
    pub(super) fn due_actions(&mut self, cx: &mut Context<'_>) {
        while self.phase == Phase::Playing
            && let Some(timeline) = &mut self.timeline
            && let Some(due) = timeline.due.filter(|&due| cx.now >= due)
        {
            timeline.due = None;
            if std::mem::take(&mut timeline.resumes_at_due) {
                let request = timeline.play_request(&Play::default(), ChangeKind::Resume, due);
                self.send_play(cx, request);
                continue;
            }
            let Some(action) = self.config.actions.get(timeline.next).cloned() else {
                if timeline.playback == PlaybackState::RangeEnded {
                    self.tear_down(cx, Outcome::Completed, None);
                }
                return;
            };
            timeline.next += 1;
            self.run_action(cx, &action, due);
        }
    }

    fn run_action(&mut self, cx: &mut Context<'_>, action: &Action, due: Time) {
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        let play = match action {
            Action::Wait(span) => {
                timeline.due = Some(due + span.draw(&mut timeline.random));
                return;
            }
            Action::Leave(LeaveEarly { chance }) => {
                let drawn = (timeline.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                timeline.due = Some(due);
                if drawn < chance.0 {
                    self.tear_down(cx, Outcome::Stopped, None);
                }
                return;
            }
            Action::Pause(span) => {
                let length = span.draw(&mut timeline.random);
                cx.recorder.add(m::ACTIONS, 1);
                if timeline.playback != PlaybackState::Playing {
                    timeline.due = Some(due + length);
                    return;
                }
                timeline.progress = Progress::Pause { length };
                return self.ask_pause(cx, due);
            }
            Action::Play(play) => play.clone(),
            Action::Seek(to) => Play {
                from: Some(*to),
                ..Play::default()
            },
            Action::Scale(Scale(scale)) => Play {
                scale: Some(Scale(*scale)),
                ..Play::default()
            },
            Action::Speed(Speed(speed)) => Play {
                speed: Some(Speed(*speed)),
                ..Play::default()
            },
        };
        cx.recorder.add(m::ACTIONS, 1);
        let request = timeline.play_request(&play, change_kind(&play), due);
        if timeline.playback == PlaybackState::Playing {
            timeline.progress = Progress::PauseThenPlay(request);
            return self.ask_pause(cx, due);
        }
        self.send_play(cx, request);
    }

    fn ask_pause(&mut self, cx: &mut Context<'_>, due: Time) {
        let url = self.aggregate.clone();
        self.send(cx, Pending::new(Method::Pause, url, Vec::new(), due));
    }

    fn send_play(&mut self, cx: &mut Context<'_>, mut request: PlayRequest) {
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        if request.to.is_some() {
            // A start of `now` is only for live media (RFC 2326, 3.6).
            request.from = request.from.or(timeline.from);
        }
        timeline.progress = Progress::Play(request);
        let headers = request.headers(timeline.scale, timeline.speed);
        for stream in &self.streams {
            stream.receiver(cx.sinks).request_position();
        }
        let url = self.aggregate.clone();
        let due = match request.kind {
            // For other kinds, the time of the PAUSE before is not part of this request's delay.
            ChangeKind::Resume => request.due,
            _ => cx.now,
        };
        self.send(cx, Pending::new(Method::Play, url, headers, due));
    }

    /// Handles the answer to a request of an action.
    pub(super) fn action_answered(
        &mut self,
        cx: &mut Context<'_>,
        pending: &Pending,
        response: &Response,
        at: Time,
        refused: &str,
    ) {
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        let granted = response.status < 300;
        match std::mem::replace(&mut timeline.progress, Progress::Idle) {
            Progress::Idle => {}
            Progress::Pause { length } => {
                timeline.due = Some(at + length);
                if granted {
                    self.paused(cx);
                } else {
                    count_refusal(response.status, cx.recorder);
                }
                if let Some(timeline) = &mut self.timeline {
                    timeline.resumes_at_due = granted;
                }
            }
            Progress::PauseThenPlay(request) => {
                if granted {
                    self.paused(cx);
                } else {
                    // Playback has continued, to an unknown position.
                    timeline.from = None;
                }
                // A server without PAUSE may still support the rest.
                self.send_play(cx, request);
            }
            Progress::Play(request) if granted => {
                // If an end position was requested, playback continues to that position.
                timeline.due = request.to.is_none().then_some(at);
                timeline.playback = PlaybackState::Playing;
                let (histogram, _) = request.kind.delays();
                cx.recorder
                    .record_duration(histogram, at.since(request.due));
                self.starts.play_answered = Some(at);
                self.announce_position(cx, &request, response, at);
                self.apply_play_answer(cx, &request, response);
                self.next_check = Some(cx.now);
            }
            Progress::Play(request) => {
                for stream in &self.streams {
                    stream.receiver(cx.sinks).position_kept(cx.recorder);
                }
                let stood = timeline.playback;
                timeline.due = Some(at);
                if request.kind != ChangeKind::Resume || stood == PlaybackState::Playing {
                    count_refusal(response.status, cx.recorder);
                }
                match (stood, request.kind) {
                    (PlaybackState::Playing, _) => self.next_check = Some(cx.now),
                    (PlaybackState::RangeEnded, _) => {}
                    (PlaybackState::Paused, ChangeKind::Resume) => {
                        let detail =
                            format!("{}{refused}", self.describe_answer(pending, response));
                        self.fail(cx, Failure::from_status(response.status), detail);
                    }
                    // Resumes, as before the pause that this request began with.
                    (PlaybackState::Paused, _) => {
                        timeline.due = None;
                        let request =
                            timeline.play_request(&Play::default(), ChangeKind::Resume, at);
                        self.send_play(cx, request);
                    }
                }
            }
        }
    }

    /// Updates the state after PAUSE was granted.
    fn paused(&mut self, cx: &mut Context<'_>) {
        let played = self
            .arrivals(cx)
            .map_or(Duration::ZERO, |(first, last)| last.since(first));
        if let Some(timeline) = &mut self.timeline {
            timeline.playback = PlaybackState::Paused;
            let began = timeline.from;
            timeline.from = timeline.position_after(played);
            timeline.paused_at = began
                .zip(timeline.from)
                .map(|(began, at)| (at, at.abs_diff(began)));
        }
        self.judge_speed(cx);
    }

    /// Compares the last `Speed` that the server stated with that of the timestamps.
    fn judge_speed(&mut self, cx: &mut Context<'_>) {
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        let stated = std::mem::replace(&mut timeline.stated_speed, 1.0);
        if stated == 1.0 {
            return;
        }
        let untrue = self.streams.iter().any(|stream| {
            let clock = stream.receiver(cx.sinks).progress_at_position();
            clock.is_some_and(|(media, took)| {
                took >= SPEED_SECONDS_MIN && (media / took / stated - 1.0).abs() > 0.25
            })
        });
        cx.recorder.add(m::SPEED_CLOCK_MISMATCH, u64::from(untrue));
    }

    /// Compares the answer to PLAY with the request, and updates position, rate and playing time.
    fn apply_play_answer(
        &mut self,
        cx: &mut Context<'_>,
        request: &PlayRequest,
        response: &Response,
    ) {
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        let (start, end) = match response.headers.get("Range").and_then(Range::parse) {
            Some(Range::Npt { start, end }) => (start.and_then(NptStart::at), end),
            _ => (None, None),
        };
        if let Some(from) = request.from {
            let distance = start.map(|start| start.abs_diff(from));
            if let Some(distance) = distance {
                cx.recorder.record_duration(m::SEEK_DISTANCE, distance);
            }
            if distance.is_none_or(|distance| distance > RANGE_DISTANCE_MAX) {
                cx.recorder.add(m::RANGE_MISMATCH, 1);
            }
        }
        if let (None, Some((at, played)), Some(start)) =
            (request.from, timeline.paused_at.take(), start)
            && at.abs_diff(start) > POSITION_TOLERANCE.max(played / 4)
        {
            cx.recorder.add(m::POSITION_MISMATCH, 1);
        }
        if !header_states(response, "Scale", request.scale) {
            cx.recorder.add(m::SCALE_MISMATCH, 1);
        }
        if !header_states(response, "Speed", request.speed) {
            cx.recorder.add(m::SPEED_MISMATCH, 1);
        }
        (timeline.scale, timeline.speed) = (request.scale, request.speed);
        timeline.stated_speed = stated_number(response, "Speed").abs();
        timeline.rate = stated_number(response, "Scale") * timeline.stated_speed;
        timeline.from = start.or(request.from).or(timeline.from);
        timeline.until = end.or(request.to).or(timeline.media_length);
        timeline.until_requested = request.to.is_some();
        self.playing_time = timeline.playing_time();
    }

    /// Passes the new position to the receivers.
    fn announce_position(
        &mut self,
        cx: &mut Context<'_>,
        request: &PlayRequest,
        response: &Response,
        at: Time,
    ) {
        let mut to = vec![(None, None); self.streams.len()];
        for (index, seq, rtptime) in self.match_rtp_infos(response) {
            to[index] = (seq, rtptime);
        }
        let tells = to
            .iter()
            .any(|(seq, rtptime)| seq.is_some() || rtptime.is_some());
        if let Some(timeline) = &mut self.timeline {
            timeline.awaited_change = tells.then_some((request.kind, request.due));
            timeline.seek_due = (request.kind == ChangeKind::Seek).then_some(request.due);
        }
        if !tells {
            cx.recorder.add(m::POSITION_UNTOLD, 1);
        }
        for (index, (seq, rtptime)) in to.into_iter().enumerate() {
            let stream = &mut self.streams[index];
            stream.bye_at = None;
            let position = PositionStatement {
                seq,
                rtptime,
                timestamp_per_packet: stream.has_packet_timestamps(),
                stated_at: at,
            };
            let event = cx
                .sinks
                .get::<RtpReceiver>(stream.sink)
                .position_changed(position, cx.recorder);
            if let Some(event) = event {
                self.media_event(cx, index, event);
            }
        }
    }

    /// Records the delay to the first packet of the new position.
    pub(super) fn arrived_at_position(&mut self, cx: &mut Context<'_>, at: Time) {
        if let Some(timeline) = &mut self.timeline
            && let Some((kind, due)) = timeline.awaited_change.take()
        {
            let (_, histogram) = kind.delays();
            cx.recorder.record_duration(histogram, at.since(due));
        }
        self.next_check = Some(cx.now);
    }

    /// Records the delay to a jump of the media clock.
    pub(super) fn clock_jumped(&mut self, cx: &mut Context<'_>, at: Time) {
        if let Some(timeline) = &mut self.timeline
            && let Some(due) = timeline.seek_due.take()
        {
            cx.recorder.record_duration(m::SEEK_TO_JUMP, at.since(due));
        }
    }

    /// Handles the end of the playback. Returns whether the client continues with its actions.
    pub(super) fn continue_actions(&mut self, cx: &mut Context<'_>) -> bool {
        self.judge_speed(cx);
        let Some(timeline) = &mut self.timeline else {
            return false;
        };
        let left = &self.config.actions[timeline.next.min(self.config.actions.len())..];
        if timeline.until_requested && !left.is_empty() {
            timeline.playback = PlaybackState::RangeEnded;
            timeline.from = timeline.until;
            timeline.due = Some(cx.now);
            return true;
        }
        let left = left
            .iter()
            .filter(|action| !matches!(action, Action::Wait(_) | Action::Leave(_)));
        cx.recorder.add(m::ACTIONS_LEFT_OUT, left.count() as u64);
        false
    }
}

impl PlayRequest {
    /// Returns the headers: the range, if a part of it is requested, and scale and speed if they
    /// are not 1, or return to 1.
    fn headers(&self, scale: f64, speed: f64) -> Vec<(&'static str, String)> {
        let range = (self.from.is_some() || self.to.is_some()).then(|| Range::Npt {
            start: Some(self.from.map_or(NptStart::Now, NptStart::At)),
            end: self.to,
        });
        let range = range.map(|range| ("Range", range.to_string()));
        let wanted = [("Scale", self.scale, scale), ("Speed", self.speed, speed)];
        let wanted = wanted
            .into_iter()
            .filter(|(_, wanted, now)| *wanted != 1.0 || wanted != now)
            .map(|(name, wanted, _)| (name, format_number(wanted, 3)));
        range.into_iter().chain(wanted).collect()
    }
}
