//! Sends media over a connection: every message completely and in order, as fast as the connection
//! takes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kit::mediagen::time_code::{CODE_BYTES, TimeCode};
use measure::Time;
use serde::Serialize;

use super::codec::write::MessageHeader;
use super::source::{TrackFrame, Tracks};
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

mod frame_faults;

pub(super) use frame_faults::FrameFault;
use frame_faults::FrameFaults;

/// Maximum number of bytes handed out at a time. Larger messages are sent in parts.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of delays kept until the session takes them: some seconds of frames.
const DELAYS_MAX: usize = 4096;
/// Maximum number of frames per track that count towards the backlog.
const BACKLOG_FRAMES_MAX: u64 = 100_000;

/// Settings of a media flow.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    pub tracks: Arc<Tracks>,
    /// Message stream ID.
    pub stream: u32,
    /// Chunk size in bytes.
    pub chunk_size: u32,
    /// Wall-clock time since 1970 at [`Time::ZERO`], to which time codes refer.
    pub wall_clock: Duration,
    /// Source ID in the time codes.
    pub source: u32,
    /// Delay after which frames that the connection has not taken are dropped, up to the next key
    /// frame. `None`: never.
    pub drop_after: Option<Duration>,
    /// Length of the media. `None`: endless.
    pub length: Option<Duration>,
    /// Injected faults.
    pub faults: FlowFaults,
    /// Seed of random faults.
    pub seed: u64,
}

/// Injected faults. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowFaults {
    /// Share of frames that are not sent, including audio; from 0 to 1.
    pub lose: f64,
    /// Share of frames of which only the first byte is sent; from 0 to 1.
    pub malformed: f64,
    /// Start, relative to the beginning of the stream, and duration of a single pause.
    pub stall: Option<(Duration, Duration)>,
    /// Delay of audio.
    pub skew: Duration,
    /// Time after which nothing more is sent.
    pub stop_after: Option<Duration>,
}

/// Totals of sent media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    pub video_frames: u64,
    /// Video frames at which decoding can start.
    pub key_frames: u64,
    pub audio_frames: u64,
    /// Payload bytes of the frames' messages.
    pub payload_bytes: u64,
    /// Bytes of the frames' messages on the wire, including chunk headers.
    pub wire_bytes: u64,
    /// Frames dropped because the connection did not take earlier frames in time.
    pub not_taken: u64,
    /// Frames dropped on purpose.
    pub left_out: u64,
    /// Frames sent as malformed messages on purpose. No other figure includes them.
    pub malformed: u64,
    /// Dropped and malformed video frames between two that were sent whole: the frames that a
    /// player can miss.
    pub missed: u64,
    /// Number of pauses of video or audio, on purpose.
    pub stalls: u64,
    /// Sum of the pauses in nanoseconds: delay of the first frame after each pause relative to its
    /// timestamp, counted from the first frame of its track.
    pub stalled_nanos: u64,
    /// Sum of the uncertainties of the pauses, in nanoseconds.
    pub stalled_unsure_nanos: u64,
    /// Time when the last byte of the first frame was given to the connection, in nanoseconds since
    /// the server's time began. `None` if no frame was sent.
    pub first_given_nanos: Option<u64>,
    /// Time when the connection had taken that byte.
    pub first_taken_nanos: Option<u64>,
    /// Sum over all video frames, in nanoseconds: from when a frame was due, or received if it is
    /// relayed, until its last byte was given to the connection. Over the loopback interface, the
    /// frame arrives between this time and `taken_after_nanos`.
    pub given_after_nanos: u64,
    /// Sum until the connection had taken the last byte.
    pub taken_after_nanos: u64,
    /// Longest time from when a frame was due until the connection had taken its last byte.
    pub latest_nanos: u64,
}

/// Flow that sends media over a connection.
#[derive(Debug)]
pub struct MediaFlow {
    config: FlowConfig,
    begun: Option<Time>,
    /// Number of the next frame of each track, counted over all loops.
    next_frames: Vec<u64>,
    /// Number of the next time code.
    next_time_code: u32,
    /// True while pictures are dropped up to the next key frame.
    skips_to_key_frame: bool,
    /// Progress of each track.
    progress: Vec<TrackProgress>,
    outlet: Outlet,
    /// Delay of each frame until the connection had taken it, in nanoseconds, since the delays were
    /// last taken.
    delays: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct TrackProgress {
    /// Handover and timestamp of its first frame.
    first: Option<(Handover, u32)>,
    /// True once it has paused.
    stalled: bool,
}

#[derive(Clone, Copy, Debug)]
struct FrameIdentity {
    track: usize,
    timestamp: u32,
    /// True for the first frame of its track after the pause.
    after_stall: bool,
}

/// Category that a message counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageCategory {
    Video,
    /// Video at which decoding can start.
    KeyVideo,
    Audio,
    /// Frame that is malformed on purpose.
    Malformed,
    /// Message that is no frame.
    Other,
}

impl MessageCategory {
    /// Returns the category of a whole frame.
    pub(super) fn of_frame(video: bool, key: bool) -> MessageCategory {
        match (video, key) {
            (true, true) => MessageCategory::KeyVideo,
            (true, false) => MessageCategory::Video,
            (false, _) => MessageCategory::Audio,
        }
    }

    pub(super) fn is_video(self) -> bool {
        matches!(self, MessageCategory::Video | MessageCategory::KeyVideo)
    }
}

/// Hands out one message after another in pieces, and counts what has left.
#[derive(Debug)]
pub(super) struct Outlet {
    /// Message that is being handed out.
    message: Option<OutgoingMessage>,
    /// True if a piece was handed out and not reported back yet.
    piece_pending: bool,
    frame_faults: FrameFaults,
    pub(super) sent: Sent,
}

impl Outlet {
    pub(super) fn new(faults: &FlowFaults, seed: u64) -> Outlet {
        Outlet {
            message: None,
            piece_pending: false,
            frame_faults: FrameFaults::new(faults, seed),
            sent: Sent::default(),
        }
    }

    /// Returns the fault of the next frame.
    pub(super) fn next_fault(&mut self, video: bool) -> FrameFault {
        self.frame_faults.next(video, &mut self.sent)
    }

    /// True if the last message has left.
    pub(super) fn is_empty(&self) -> bool {
        self.message.is_none()
    }

    /// Sets the next message; `None` if there is none yet.
    pub(super) fn put(&mut self, message: Option<OutgoingMessage>) {
        self.message = message;
    }

    /// Returns when the next piece of the message is due, or `None` if there is no message.
    pub(super) fn next_due(&self) -> Option<Time> {
        match self.piece_pending {
            true => Some(Time::NEVER),
            false => self.message.as_ref().map(|message| message.due),
        }
    }

    /// Returns the next piece of the message.
    pub(super) fn next_piece(&mut self) -> Option<FlowPacket> {
        if self.piece_pending {
            return None;
        }
        let packet = self.message.as_mut()?.next_piece();
        self.piece_pending = true;
        Some(packet)
    }

    /// Records that a piece has left. Returns and counts its message if that is complete. A piece
    /// that was not taken is handed out again, because no part of a message may be missing.
    pub(super) fn piece_sent(&mut self, left: Option<Handover>) -> Option<OutgoingMessage> {
        self.piece_pending = false;
        let left = left?;
        let message = self.message.take_if(OutgoingMessage::confirm_piece)?;
        if message.category.is_video() {
            self.frame_faults.record_video_sent(&mut self.sent);
        }
        message.add_to(&mut self.sent, left);
        Some(message)
    }
}

/// Offset of a time code's numbers in a payload, and the numbers.
type PlacedCode = (usize, [u8; CODE_BYTES]);

/// A message that is being sent.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    bytes: Bytes,
    /// Maximum sizes of the first chunk and of each further chunk, including headers.
    chunks: (usize, usize),
    /// Number of bytes that the connection has taken.
    taken: usize,
    /// Size of the piece that was handed out last.
    piece: usize,
    due: Time,
    category: MessageCategory,
    payload: usize,
    /// `Some` for a whole frame of generated media.
    identity: Option<FrameIdentity>,
}

impl OutgoingMessage {
    /// Creates a message of which nothing was handed out. `coded` are the numbers of its time code
    /// and their offset.
    pub(super) fn new(
        head: MessageHeader,
        chunk_size: u32,
        payload: &[u8],
        coded: Option<&PlacedCode>,
        due: Time,
        category: MessageCategory,
    ) -> OutgoingMessage {
        OutgoingMessage {
            chunks: head.chunk_bytes_max(chunk_size),
            bytes: encode_message(head, payload, coded, chunk_size),
            taken: 0,
            piece: 0,
            due,
            category,
            payload: payload.len(),
            identity: None,
        }
    }

    /// Creates a malformed message: only the first byte of `payload`.
    pub(super) fn malformed(
        head: MessageHeader,
        chunk_size: u32,
        payload: &[u8],
        due: Time,
    ) -> OutgoingMessage {
        let cut = &payload[..payload.len().min(1)];
        OutgoingMessage::new(head, chunk_size, cut, None, due, MessageCategory::Malformed)
    }

    /// Returns the next piece. It consists of whole chunks, because the session's messages may come
    /// between two pieces.
    fn next_piece(&mut self) -> FlowPacket {
        let rest = self.bytes.slice(self.taken..);
        let (first, further) = self.chunks;
        let next = if self.taken == 0 { first } else { further };
        let more = PIECE_BYTES_MAX.saturating_sub(next) / further * further;
        let piece = rest.slice(..rest.len().min(next + more));
        self.piece = piece.len();
        FlowPacket {
            due: self.due,
            header: PacketHeader::EMPTY,
            payload: piece,
            tag: Tag(0),
        }
    }

    /// Records that the piece was taken. Returns true if the message is complete.
    fn confirm_piece(&mut self) -> bool {
        self.taken += self.piece;
        self.taken >= self.bytes.len()
    }

    /// Adds the message to the totals. `left` is the handover of its last piece.
    fn add_to(&self, sent: &mut Sent, left: Handover) {
        match self.category {
            MessageCategory::Video | MessageCategory::KeyVideo => {
                sent.video_frames += 1;
                sent.key_frames += u64::from(self.category == MessageCategory::KeyVideo);
                let after = |at: Time| at.since(self.due).as_nanos() as u64;
                sent.given_after_nanos += after(left.began);
                sent.taken_after_nanos += after(left.ended);
            }
            MessageCategory::Audio => sent.audio_frames += 1,
            MessageCategory::Malformed => {
                sent.malformed += 1;
                return;
            }
            MessageCategory::Other => return,
        }
        let after = left.ended.since(self.due).as_nanos() as u64;
        sent.latest_nanos = sent.latest_nanos.max(after);
        sent.payload_bytes += self.payload as u64;
        sent.wire_bytes += self.bytes.len() as u64;
        sent.first_given_nanos.get_or_insert(left.began.as_nanos());
        sent.first_taken_nanos.get_or_insert(left.ended.as_nanos());
    }
}

impl MediaFlow {
    /// Creates a flow that is not started.
    pub fn new(config: FlowConfig) -> MediaFlow {
        MediaFlow {
            outlet: Outlet::new(&config.faults, config.seed),
            next_frames: vec![0; config.tracks.tracks.len()],
            progress: vec![TrackProgress::default(); config.tracks.tracks.len()],
            config,
            begun: None,
            next_time_code: 0,
            skips_to_key_frame: false,
            delays: Vec::new(),
        }
    }

    /// Starts the flow. The first frame is due now.
    pub fn start(&mut self, now: Time) {
        self.begun.get_or_insert(now);
    }

    /// Stops before the next message.
    pub fn stop(&mut self) {
        self.begun = None;
    }

    /// Totals so far.
    pub fn sent(&self) -> Sent {
        self.outlet.sent
    }

    /// Takes the delays of frames until the connection had taken them, in nanoseconds, since the
    /// last call.
    pub fn take_delays(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.delays)
    }

    /// Returns the number of bytes that are due and not taken by the connection.
    pub fn backlog_bytes(&self, now: Time) -> u64 {
        let message = self.outlet.message.as_ref();
        let mut bytes = message.map_or(0, |message| (message.bytes.len() - message.taken) as u64);
        for (track, &next) in self.config.tracks.tracks.iter().zip(&self.next_frames) {
            for number in next..next.saturating_add(BACKLOG_FRAMES_MAX) {
                match (
                    self.frame_due(track.video, &track.clip, number),
                    track.frame(number),
                ) {
                    (Some(due), Some(frame)) if due <= now => bytes += frame.payload.len() as u64,
                    _ => break,
                }
            }
        }
        bytes
    }

    /// Returns when a frame is due, or `None` after the end of the media.
    fn frame_due(
        &self,
        video: bool,
        clip: &kit::mediagen::clip::Clip,
        number: u64,
    ) -> Option<Time> {
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

    /// Returns the track whose next frame is due first, and its due time.
    fn next_due_track(&self) -> Option<(usize, Time)> {
        let tracks = self
            .config
            .tracks
            .tracks
            .iter()
            .zip(&self.next_frames)
            .enumerate();
        let dues = tracks.filter_map(|(index, (track, &number))| {
            let due = self.frame_due(track.video, &track.clip, number)?;
            let stops = self.config.faults.stop_after.zip(self.begun);
            let over = stops.is_some_and(|(after, begun)| due >= begun + after);
            Some((index, if over { Time::NEVER } else { due }))
        });
        dues.min_by_key(|&(_, due)| due)
    }

    /// Returns the next message that is due.
    fn next_message(&mut self, now: Time) -> Option<OutgoingMessage> {
        let tracks = self.config.tracks.clone();
        loop {
            let (index, due) = self.next_due_track().filter(|&(_, due)| due <= now)?;
            let track = tracks.tracks.get(index)?;
            let next = self.next_frames.get_mut(index)?;
            let number = *next;
            *next += 1;
            let frame = track.frame(number)?;
            let video = track.video;
            let code = self.next_time_code;
            // A picture without a time code must not leave a gap in the numbers, which would count
            // as loss.
            self.next_time_code = self
                .next_time_code
                .wrapping_add(u32::from(frame.time_code_offset.is_some()));
            let late = self
                .config
                .drop_after
                .is_some_and(|after| now > due + after);
            if video {
                // Pictures that refer to a dropped one are useless.
                self.skips_to_key_frame = (late || self.skips_to_key_frame) && !frame.key;
            }
            if if video { self.skips_to_key_frame } else { late } {
                self.outlet.sent.not_taken += 1;
                continue;
            }
            let fault = self.outlet.next_fault(video);
            if fault == FrameFault::Dropped {
                continue;
            }
            let (kind, chunk_stream) = track.message_type_and_chunk_stream();
            let head = MessageHeader {
                chunk_stream,
                kind,
                timestamp: track.timestamp(number),
                stream: self.config.stream,
            };
            let (chunk_size, payload) = (self.config.chunk_size, &frame.payload[..]);
            if fault == FrameFault::Malformed {
                return Some(OutgoingMessage::malformed(head, chunk_size, payload, due));
            }
            let coded = self.time_code_bytes(frame, code, due);
            let category = MessageCategory::of_frame(video, frame.key);
            let identity = FrameIdentity {
                track: index,
                timestamp: head.timestamp,
                after_stall: self.ends_stall(index, due),
            };
            return Some(OutgoingMessage {
                identity: Some(identity),
                ..OutgoingMessage::new(head, chunk_size, payload, coded.as_ref(), due, category)
            });
        }
    }

    /// Returns true for the first frame of its track after the pause.
    fn ends_stall(&mut self, track: usize, due: Time) -> bool {
        let stall = self.config.faults.stall.zip(self.begun);
        let ends = stall.map(|((begins, lasts), begun)| begun + begins + lasts);
        let progress = self.progress.get_mut(track);
        let progress = progress.filter(|progress| !progress.stalled && ends == Some(due));
        progress.is_some_and(|progress| {
            progress.stalled = true;
            true
        })
    }

    /// Records a whole frame that has left, and the pause that it ends.
    fn record_frame_sent(&mut self, frame: FrameIdentity, left: Handover) {
        let Some(progress) = self.progress.get_mut(frame.track) else {
            return;
        };
        let (first, stated) = *progress.first.get_or_insert((left, frame.timestamp));
        if !frame.after_stall {
            return;
        }
        let stated = Duration::from_millis(frame.timestamp.wrapping_sub(stated).into());
        let least = left.began.since(first.ended).saturating_sub(stated);
        let most = left.ended.since(first.began).saturating_sub(stated);
        let sent = &mut self.outlet.sent;
        sent.stalls += 1;
        sent.stalled_nanos += (least + most).as_nanos() as u64 / 2;
        sent.stalled_unsure_nanos += (most - least).as_nanos() as u64 / 2;
    }

    /// Returns the numbers of a frame's time code, and their offset.
    fn time_code_bytes(&self, frame: &TrackFrame, number: u32, due: Time) -> Option<PlacedCode> {
        let at = frame.time_code_offset?;
        let since_1970 = self.config.wall_clock + due.since_start();
        let code = TimeCode {
            source: self.config.source,
            number,
            nanos: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX) & (u64::MAX >> 1),
        };
        Some((at, code.to_bytes()))
    }
}

/// Builds a message in chunks, with the numbers of its time code in place.
fn encode_message(
    head: MessageHeader,
    payload: &[u8],
    coded: Option<&PlacedCode>,
    chunk_size: u32,
) -> Bytes {
    let mut out = Vec::with_capacity(head.wire_bytes(payload.len(), chunk_size));
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
        if let Some(due) = self.outlet.next_due() {
            return Some(due);
        }
        // Media of limited length has ended once nothing more is due.
        match (self.next_due_track(), self.config.length) {
            (None, Some(_)) if self.begun.is_some() => None,
            (first, _) => Some(first.map_or(Time::NEVER, |(_, due)| due)),
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.outlet.is_empty() {
            let message = self.next_message(now);
            self.outlet.put(message);
        }
        self.outlet.next_piece()
    }

    fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
        let (Some(message), Some(left)) = (self.outlet.piece_sent(left), left) else {
            return;
        };
        if self.delays.len() < DELAYS_MAX {
            self.delays
                .push(left.ended.since(message.due).as_nanos() as u64);
        }
        if let Some(identity) = message.identity {
            self.record_frame_sent(identity, left);
        }
    }

    fn needs_send_times(&self) -> bool {
        true
    }

    fn is_byte_stream(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
