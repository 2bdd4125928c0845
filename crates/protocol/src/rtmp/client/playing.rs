//! What a client that plays measures of its media.

use std::time::Duration;

use measure::{Recorder, Time};
use serde::Serialize;

use crate::media::frames::metrics as frames;
use crate::media::frames::{Frame, FrameConfig, FrameCounts, FrameReceiver};
use crate::metrics as clients;
use crate::rtmp::codec::chunk::Media;
use crate::rtmp::codec::media::{Codec, Content, Tag, time_code};
use crate::rtmp::metrics as m;
use crate::session::{StreamRow, Times};

/// The clock of RTMP in Hz (RTMP, 4).
const CLOCK_RATE: u32 = 1000;

/// What the row of a stream tells, as JSON pointers: beside its kind, URL and codec the metrics of
/// these names, of the stream alone.
pub(in crate::rtmp) const COLUMNS: &[&str] = &[
    "/kind",
    "/url",
    "/codec",
    "/frames",
    "/payload_bytes",
    "/wire_bytes",
    "/stalls",
    "/clock_jumps",
    "/key_frames",
    "/width",
    "/height",
];

/// One stream of a client, as it is written to the client's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// `video` or `audio`.
    pub kind: &'static str,
    /// Where it was played.
    pub url: String,
    /// How it is coded; none where no message said so.
    pub codec: Option<Codec>,
    /// Frames that came.
    pub frames: u64,
    /// Bytes of their payload.
    pub payload_bytes: u64,
    /// Bytes that they took on the wire.
    pub wire_bytes: u64,
    /// Times that playing would have stood still.
    pub stalls: u64,
    /// Times that the clock jumped.
    pub clock_jumps: u64,
    /// Frames with which a decoder can begin.
    pub key_frames: u64,
    /// The size of the picture, as metadata has it.
    pub width: Option<u32>,
    /// The same.
    pub height: Option<u32>,
}

/// What the client was to do when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dues {
    /// When its first request was due.
    pub(super) due: Time,
    /// When it set to work.
    pub(super) started: Time,
    /// When `play` was sent.
    pub(super) asked: Time,
}

/// Audio and video of one stream.
#[derive(Debug)]
pub(super) struct Playing {
    dues: Dues,
    video: Received,
    audio: Received,
    /// When the first frame came, and the last.
    first: Option<Time>,
    last: Time,
    longest_gap: Duration,
    had_key_frame: bool,
    /// The size of the picture, as metadata has it.
    pub(super) size: Option<(u32, u32)>,
}

/// One of the two.
#[derive(Debug)]
struct Received {
    receiver: FrameReceiver,
    codec: Option<Codec>,
    key_frames: u64,
    /// When the last frame came, in nanoseconds, less its timestamp.
    transit: Option<i64>,
}

impl Received {
    fn new(config: &FrameConfig) -> Received {
        Received {
            receiver: FrameReceiver::new(config),
            codec: None,
            key_frames: 0,
            transit: None,
        }
    }
}

impl Playing {
    /// A client that has just asked. `wall_clock` is what the wall clock showed when time began,
    /// where frames may bear time codes.
    pub(super) fn new(
        dues: Dues,
        playout_buffer: Duration,
        wall_clock: Option<Duration>,
    ) -> Playing {
        let config = FrameConfig {
            clock_rate: CLOCK_RATE,
            playout_buffer,
            wall_clock,
        };
        // Sound bears no codes.
        let of_audio = FrameConfig {
            wall_clock: None,
            ..config
        };
        Playing {
            dues,
            video: Received::new(&config),
            audio: Received::new(&of_audio),
            first: None,
            last: Time::ZERO,
            longest_gap: Duration::ZERO,
            had_key_frame: false,
            size: None,
        }
    }

    /// When the first frame came.
    pub(super) fn first_arrival(&self) -> Option<Time> {
        self.first
    }

    /// When the last frame came.
    pub(super) fn last_arrival(&self) -> Option<Time> {
        self.first.map(|_| self.last)
    }

    /// The longest time without a frame of either.
    pub(super) fn longest_gap(&self) -> Duration {
        self.longest_gap
    }

    /// Takes in a message of media whose last byte is the one before `end` of what was read. The hot
    /// path. Says when the first frame of all came.
    #[inline]
    pub(super) fn media(
        &mut self,
        media: &Media<'_>,
        end: usize,
        times: &mut Times<'_>,
        recorder: &mut Recorder,
    ) -> Option<Time> {
        let tag = match media.video {
            true => Tag::of_video(media.head),
            false => Tag::of_audio(media.head),
        };
        let Some(tag) = tag else {
            // Servers send an empty message now and then: where a stream begins or pauses.
            match media.length {
                0 => recorder.add(m::MEDIA_CONFIGS, 1),
                _ => recorder.add(m::MALFORMED, 1),
            }
            recorder.add(frames::WIRE_BYTES, media.wire.into());
            return None;
        };
        let stream = match media.video {
            true => &mut self.video,
            false => &mut self.audio,
        };
        stream.codec = Some(tag.codec);
        let Content::Frame { key } = tag.content else {
            recorder.add(m::MEDIA_CONFIGS, 1);
            recorder.add(frames::WIRE_BYTES, media.wire.into());
            return None;
        };
        let (at, exact) = times.of(end);
        if !exact {
            recorder.add(frames::TIMED_BY_READING, 1);
        }
        let code = match media.video && stream.receiver.expects_codes() {
            true => media.head.get(tag.data..).and_then(time_code),
            false => None,
        };
        let frame = Frame {
            at,
            timestamp: media.timestamp,
            payload: (media.length as usize).saturating_sub(tag.data),
            wire: media.wire as usize,
            code,
        };
        stream.receiver.frame(&frame, recorder);
        stream.transit = Some(transit(at, media.timestamp));
        if media.video {
            recorder.add(m::VIDEO_FRAMES, 1);
            if key {
                stream.key_frames += 1;
                recorder.add(m::KEY_FRAMES, 1);
                if !std::mem::replace(&mut self.had_key_frame, true) {
                    record(recorder, m::KEY_FRAME_DELAY, at, self.dues.due);
                }
            }
        } else {
            recorder.add(m::AUDIO_FRAMES, 1);
            if let (Some(audio), Some(video)) = (self.audio.transit, self.video.transit) {
                recorder.record(m::AV_SKEW, audio.abs_diff(video));
            }
        }
        if self.first.is_some() {
            self.longest_gap = self.longest_gap.max(at.since(self.last));
            self.last = self.last.max(at);
            return None;
        }
        self.first = Some(at);
        self.last = at;
        record(recorder, clients::STARTUP_DELAY, at, self.dues.due);
        record(
            recorder,
            clients::STARTUP_DELAY_FROM_SENT,
            at,
            self.dues.started,
        );
        record(recorder, m::PLAY_TO_MEDIA, at, self.dues.asked);
        Some(at)
    }

    /// Nothing more comes. `silent` says until when something was to, where the media had stopped.
    pub(super) fn finish(&mut self, silent: Option<Time>, recorder: &mut Recorder) {
        for stream in [&mut self.video, &mut self.audio] {
            match silent {
                Some(until) => stream.receiver.fell_silent(until, recorder),
                None => stream.receiver.finish(recorder),
            }
        }
    }

    /// A row for each that brought a frame.
    pub(super) fn rows(&self, url: &str) -> Vec<StreamRow> {
        self.summaries(url)
            .into_iter()
            .map(StreamRow::new)
            .collect()
    }

    fn summaries(&self, url: &str) -> Vec<StreamSummary> {
        let size = self.size.unzip();
        [
            ("video", &self.video, size),
            ("audio", &self.audio, (None, None)),
        ]
        .into_iter()
        .filter(|(_, stream, _)| stream.receiver.first_arrival().is_some())
        .map(|(kind, stream, (width, height))| {
            let FrameCounts {
                frames,
                payload_bytes,
                wire_bytes,
                stalls,
                clock_jumps,
            } = stream.receiver.counts();
            StreamSummary {
                kind,
                url: url.to_owned(),
                codec: stream.codec,
                frames,
                payload_bytes,
                wire_bytes,
                stalls,
                clock_jumps,
                key_frames: stream.key_frames,
                width,
                height,
            }
        })
        .collect()
    }
}

/// When a frame came, less when its timestamp says, in nanoseconds.
fn transit(at: Time, timestamp: u32) -> i64 {
    let at = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
    at.saturating_sub(i64::from(timestamp) * 1_000_000)
}

fn record(recorder: &mut Recorder, histogram: measure::HistogramId, at: Time, from: Time) {
    recorder.record(histogram, at.since(from).as_nanos() as u64);
}
