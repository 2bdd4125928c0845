//! Sends media over a connection: message by message, all of it and in order, as fast as the
//! connection takes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use mediagen::time_code::TimeCode;
use serde::Serialize;

use super::codec::write::Head;
use super::source::{TrackFrame, Tracks};
use crate::session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

mod fate;

pub(super) use fate::{Fate, Fates};

/// The most bytes that are handed out at a time: of a large message, a part.
const PIECE: usize = 64 * 1024;
/// How many delays are kept until the session takes them: some seconds of frames.
const DELAYS_MAX: usize = 4096;
/// How many frames are looked at to see how much waits.
const WAITING_MAX: u64 = 100_000;

/// How media is sent.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// What.
    pub tracks: Arc<Tracks>,
    /// In which message stream.
    pub stream: u32,
    /// In chunks of which size.
    pub chunk_size: u32,
    /// What the wall clock showed, since 1970, when time began; time codes count from it.
    pub wall_clock: Duration,
    /// The source that time codes name.
    pub source: u32,
    /// After how long a time frames that were not taken are left out, up to the next with which a
    /// decoder can begin. None: never.
    pub drop_after: Option<Duration>,
    /// How long the media is. None: it has no end.
    pub length: Option<Duration>,
    /// What is done wrong on purpose.
    pub faults: FlowFaults,
    /// Seed of what faults draw.
    pub seed: u64,
}

/// What is done wrong on purpose. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowFaults {
    /// The share of frames that are left out, sound included; from 0 to 1.
    pub lose: f64,
    /// The share of frames of whose message the first byte alone is sent; from 0 to 1.
    pub malformed: f64,
    /// When nothing is sent, and for how long: once, from the beginning of the stream.
    pub stall: Option<(Duration, Duration)>,
    /// By how much sound comes late.
    pub skew: Duration,
    /// After how long nothing more comes.
    pub stop_after: Option<Duration>,
}

/// What was sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Frames of video.
    pub video_frames: u64,
    /// Of these, those with which a decoder can begin.
    pub key_frames: u64,
    /// Frames of audio.
    pub audio_frames: u64,
    /// Bytes of their messages' payload.
    pub payload_bytes: u64,
    /// Bytes of their messages, with the headers of chunks.
    pub wire_bytes: u64,
    /// Frames left out because the connection did not take those before in time.
    pub not_taken: u64,
    /// Frames left out on purpose.
    pub left_out: u64,
    /// Frames sent as malformed messages, on purpose. In no other figure.
    pub malformed: u64,
    /// Of both, the frames of video between two that were sent whole: a player can miss no others.
    pub missed: u64,
    /// How often video or audio stood still, on purpose.
    pub stalls: u64,
    /// How much later the first frame after each left than its timestamp says, counted from the
    /// first frame of all, in nanoseconds, added up; and how far from that it may have left.
    pub stalled_nanos: u64,
    /// The same.
    pub stalled_unsure_nanos: u64,
    /// When the connection was given the last byte of the first frame, and had taken it, in
    /// nanoseconds since the server's time began; none where none was sent.
    pub first_given_nanos: Option<u64>,
    /// The same.
    pub first_taken_nanos: Option<u64>,
    /// Of the frames of video: how long after each was due, or had come where it is passed on, the
    /// connection was given its last byte, and had taken it, in nanoseconds, added up. Over the
    /// loopback interface it came in between.
    pub given_after_nanos: u64,
    /// The same.
    pub taken_after_nanos: u64,
}

/// Media that is sent over a connection.
#[derive(Debug)]
pub struct MediaFlow {
    config: FlowConfig,
    fates: Fates,
    begun: Option<Time>,
    /// The next frame of each track, counted over all loops.
    next: Vec<u64>,
    /// The number of the next time code.
    code: u32,
    /// Whether pictures are left out up to the next with which a decoder can begin.
    skips: bool,
    /// What each track has sent.
    under_way: Vec<UnderWay>,
    /// The message that is being handed out.
    message: Option<Outgoing>,
    /// Whether a piece was handed out, of which nothing is known yet.
    handed_out: bool,
    sent: Sent,
    /// How long each frame waited until the connection had taken it, in nanoseconds, since they
    /// were taken up last.
    delays: Vec<u64>,
}

/// What a track has sent.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    /// When its first frame left, and its timestamp.
    first: Option<(Handover, u32)>,
    /// Whether it has stood still.
    stalled: bool,
}

/// Which frame a message is.
#[derive(Clone, Copy, Debug)]
struct Place {
    track: usize,
    timestamp: u32,
    /// Whether it is the first of its track after that stood still.
    after_stall: bool,
}

/// What a message is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Video,
    /// Video with which a decoder can begin.
    KeyVideo,
    Audio,
    /// A frame that is malformed on purpose.
    Malformed,
    /// No frame.
    Other,
}

impl What {
    /// What a whole frame is.
    pub(super) fn of_frame(video: bool, key: bool) -> What {
        match (video, key) {
            (true, true) => What::KeyVideo,
            (true, false) => What::Video,
            (false, _) => What::Audio,
        }
    }

    pub(super) fn is_video(self) -> bool {
        matches!(self, What::Video | What::KeyVideo)
    }
}

/// A message on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Bytes,
    /// How many bytes its first chunk has at most with its header, and each further one.
    chunks: (usize, usize),
    /// How much of it the connection has taken.
    taken: usize,
    /// How much of it was handed out last.
    piece: usize,
    due: Time,
    what: What,
    payload: usize,
    /// Of a whole frame of made media: which it is.
    place: Option<Place>,
}

impl Outgoing {
    /// A message with so long a payload, in chunks, of which nothing was handed out.
    pub(super) fn new(
        (head, chunk_size): (Head, u32),
        bytes: Bytes,
        due: Time,
        what: What,
        payload: usize,
    ) -> Outgoing {
        Outgoing {
            chunks: head.chunks(chunk_size),
            bytes,
            taken: 0,
            piece: 0,
            due,
            what,
            payload,
            place: None,
        }
    }

    /// Of a message with that payload the first byte alone.
    pub(super) fn malformed(
        (head, chunk_size): (Head, u32),
        payload: &[u8],
        due: Time,
    ) -> Outgoing {
        let cut = &payload[..payload.len().min(1)];
        let bytes = message(head, cut, None, chunk_size);
        Outgoing::new((head, chunk_size), bytes, due, What::Malformed, cut.len())
    }

    /// Whether it is a frame of video, and whole.
    pub(super) fn is_video(&self) -> bool {
        self.what.is_video()
    }

    /// The next piece of it: whole chunks, because what the session says may come between two
    /// pieces.
    pub(super) fn hand_out(&mut self) -> FlowPacket {
        let rest = self.bytes.slice(self.taken..);
        let (first, further) = self.chunks;
        let next = if self.taken == 0 { first } else { further };
        let more = PIECE.saturating_sub(next) / further * further;
        let piece = rest.slice(..rest.len().min(next + more));
        self.piece = piece.len();
        FlowPacket {
            due: self.due,
            header: PacketHeader::EMPTY,
            payload: piece,
            tag: Tag(0),
        }
    }

    /// The piece was taken; says whether all of the message was.
    pub(super) fn took(&mut self) -> bool {
        self.taken += self.piece;
        self.taken >= self.bytes.len()
    }

    /// Adds it to what was sent, of which the last piece left then.
    pub(super) fn count(&self, sent: &mut Sent, left: Handover) {
        match self.what {
            What::Video | What::KeyVideo => {
                sent.video_frames += 1;
                sent.key_frames += u64::from(self.what == What::KeyVideo);
                let after = |at: Time| at.since(self.due).as_nanos() as u64;
                sent.given_after_nanos += after(left.began);
                sent.taken_after_nanos += after(left.ended);
            }
            What::Audio => sent.audio_frames += 1,
            What::Malformed => {
                sent.malformed += 1;
                return;
            }
            What::Other => return,
        }
        sent.payload_bytes += self.payload as u64;
        sent.wire_bytes += self.bytes.len() as u64;
        sent.first_given_nanos.get_or_insert(left.began.as_nanos());
        sent.first_taken_nanos.get_or_insert(left.ended.as_nanos());
    }

    pub(super) fn due(&self) -> Time {
        self.due
    }
}

impl MediaFlow {
    /// Media that is not sent yet.
    pub fn new(config: FlowConfig) -> MediaFlow {
        MediaFlow {
            fates: Fates::new(&config.faults, config.seed),
            next: vec![0; config.tracks.tracks.len()],
            under_way: vec![UnderWay::default(); config.tracks.tracks.len()],
            config,
            begun: None,
            code: 0,
            skips: false,
            message: None,
            handed_out: false,
            sent: Sent::default(),
            delays: Vec::new(),
        }
    }

    /// Begins: the first frame is due now.
    pub fn start(&mut self, now: Time) {
        self.begun.get_or_insert(now);
    }

    /// Lets no further message begin.
    pub fn stop(&mut self) {
        self.begun = None;
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// How long frames waited until the connection had taken them, in nanoseconds; those since the
    /// last time.
    pub fn take_delays(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.delays)
    }

    /// How many bytes of messages are due and not taken by the connection.
    pub fn waiting(&self, now: Time) -> u64 {
        let under_way = self.message.as_ref();
        let mut bytes = under_way.map_or(0, |message| (message.bytes.len() - message.taken) as u64);
        for (track, &next) in self.config.tracks.tracks.iter().zip(&self.next) {
            for number in next..next.saturating_add(WAITING_MAX) {
                match (
                    self.due(track.video, &track.clip, number),
                    track.frame(number),
                ) {
                    (Some(due), Some(frame)) if due <= now => bytes += frame.payload.len() as u64,
                    _ => break,
                }
            }
        }
        bytes
    }

    /// When a frame of a track is due; none behind the end of the media.
    fn due(&self, video: bool, clip: &mediagen::clip::Clip, number: u64) -> Option<Time> {
        let mut at = Duration::from_nanos(clip.nanos(number));
        if self.config.length.is_some_and(|length| at >= length) {
            return None;
        }
        if !video {
            at += self.config.faults.skew;
        }
        if let Some((begins, lasts)) = self.config.faults.stall
            && (begins..begins + lasts).contains(&at)
        {
            at = begins + lasts;
        }
        Some(self.begun? + at)
    }

    /// The track whose next frame is due first, and when.
    fn first(&self) -> Option<(usize, Time)> {
        let tracks = self.config.tracks.tracks.iter().zip(&self.next).enumerate();
        let dues = tracks.filter_map(|(place, (track, &number))| {
            let due = self.due(track.video, &track.clip, number)?;
            let stops = self.config.faults.stop_after.zip(self.begun);
            let over = stops.is_some_and(|(after, begun)| due >= begun + after);
            Some((place, if over { Time::NEVER } else { due }))
        });
        dues.min_by_key(|&(_, due)| due)
    }

    /// Makes the next message that is due.
    fn make(&mut self, now: Time) -> Option<Outgoing> {
        let tracks = self.config.tracks.clone();
        loop {
            let (place, due) = self.first().filter(|&(_, due)| due <= now)?;
            let track = tracks.tracks.get(place)?;
            let next = self.next.get_mut(place)?;
            let number = *next;
            *next += 1;
            let frame = track.frame(number)?;
            let video = track.video;
            let code = self.code;
            // A picture without a code must leave no hole in the numbers: it would count as lost.
            self.code = self.code.wrapping_add(u32::from(frame.code_at.is_some()));
            let late = self
                .config
                .drop_after
                .is_some_and(|after| now > due + after);
            if video {
                // What refers to a picture that was left out is of no use.
                self.skips = (late || self.skips) && !frame.key;
            }
            if if video { self.skips } else { late } {
                self.sent.not_taken += 1;
                continue;
            }
            let fate = self.fates.next(video, &mut self.sent);
            if fate == Fate::LeftOut {
                continue;
            }
            let (kind, chunk_stream) = track.way();
            let head = Head {
                chunk_stream,
                kind,
                timestamp: track.timestamp(number),
                stream: self.config.stream,
            };
            let way = (head, self.config.chunk_size);
            if fate == Fate::Malformed {
                return Some(Outgoing::malformed(way, &frame.payload, due));
            }
            let coded = self.coded(frame, code, due);
            let payload = &frame.payload[..];
            let bytes = message(head, payload, coded.as_ref(), self.config.chunk_size);
            let what = What::of_frame(video, frame.key);
            let place = Place {
                track: place,
                timestamp: head.timestamp,
                after_stall: self.ends_stall(place, due),
            };
            return Some(Outgoing {
                place: Some(place),
                ..Outgoing::new(way, bytes, due, what, payload.len())
            });
        }
    }

    /// Whether a frame is the first of its track after that stood still.
    fn ends_stall(&mut self, track: usize, due: Time) -> bool {
        let stall = self.config.faults.stall.zip(self.begun);
        let ends = stall.map(|((begins, lasts), begun)| begun + begins + lasts);
        let under_way = self.under_way.get_mut(track);
        let under_way = under_way.filter(|own| !own.stalled && ends == Some(due));
        under_way.is_some_and(|own| {
            own.stalled = true;
            true
        })
    }

    /// A whole frame of a track has left.
    fn frame_left(&mut self, place: Place, left: Handover) {
        let Some(under_way) = self.under_way.get_mut(place.track) else {
            return;
        };
        let (first, stated) = *under_way.first.get_or_insert((left, place.timestamp));
        if !place.after_stall {
            return;
        }
        let stated = Duration::from_millis(place.timestamp.wrapping_sub(stated).into());
        let least = left.began.since(first.ended).saturating_sub(stated);
        let most = left.ended.since(first.began).saturating_sub(stated);
        self.sent.stalls += 1;
        self.sent.stalled_nanos += (least + most).as_nanos() as u64 / 2;
        self.sent.stalled_unsure_nanos += (most - least).as_nanos() as u64 / 2;
    }

    /// The numbers of a frame's time code, and where they stand.
    fn coded(
        &self,
        frame: &TrackFrame,
        number: u32,
        due: Time,
    ) -> Option<(usize, [u8; mediagen::time_code::CODE_BYTES])> {
        let at = frame.code_at?;
        let since_1970 = self.config.wall_clock + due.since_start();
        let code = TimeCode {
            source: self.config.source,
            number,
            nanos: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX) & (u64::MAX >> 1),
        };
        Some((at, code.to_bytes()))
    }
}

/// A message of that payload in chunks, with the numbers of its time code at their place.
fn message(
    head: Head,
    payload: &[u8],
    coded: Option<&(usize, [u8; mediagen::time_code::CODE_BYTES])>,
    chunk_size: u32,
) -> Bytes {
    let mut out = Vec::with_capacity(head.written(payload.len(), chunk_size));
    let parts = coded.and_then(|(at, code)| {
        let (before, rest) = payload.split_at_checked(*at)?;
        Some([before, &code[..], rest.get(code.len()..)?])
    });
    match parts {
        Some(parts) => head.write(&parts, chunk_size, &mut out),
        None => head.write(&[payload], chunk_size, &mut out),
    }
    out.into()
}

impl Flow for MediaFlow {
    fn next_due(&self) -> Option<Time> {
        match (&self.message, self.handed_out) {
            (_, true) => Some(Time::NEVER),
            (Some(message), false) => Some(message.due()),
            // Nothing more is due: at the end of its media it has ended.
            (None, false) => match (self.first(), self.config.length) {
                (None, Some(_)) if self.begun.is_some() => None,
                (first, _) => Some(first.map_or(Time::NEVER, |(_, due)| due)),
            },
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.handed_out {
            return None;
        }
        if self.message.is_none() {
            self.message = self.make(now);
        }
        let packet = self.message.as_mut()?.hand_out();
        self.handed_out = true;
        Some(packet)
    }

    fn left(&mut self, _: Tag, left: Option<Handover>) {
        self.handed_out = false;
        // What was not taken is handed out again: nothing of a message may be missing.
        let (Some(message), Some(left)) = (&mut self.message, left) else {
            return;
        };
        if !message.took() {
            return;
        }
        if message.is_video() {
            self.fates.video_left(&mut self.sent);
        }
        if self.delays.len() < DELAYS_MAX {
            self.delays
                .push(left.ended.since(message.due).as_nanos() as u64);
        }
        message.count(&mut self.sent, left);
        let place = message.place;
        self.message = None;
        if let Some(place) = place {
            self.frame_left(place, left);
        }
    }

    fn wants_times(&self) -> bool {
        true
    }

    fn waits_for_room(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
