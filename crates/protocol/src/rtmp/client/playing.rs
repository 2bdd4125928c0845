//! What a client that plays measures of its media.

use std::time::Duration;

use measure::{CounterId, Recorder, Time};
use serde::Serialize;

use crate::media::frames::metrics as frames;
use crate::media::frames::{Frame, FrameConfig, FrameCounts, FrameReceiver};
use crate::media::silence;
use crate::metrics as clients;
use crate::rtmp::codec::chunk::Media;
use crate::rtmp::codec::media::{Codec, Content, Tag, time_code};
use crate::rtmp::metrics as m;
use crate::session::{StreamRow, Times};

/// A viewer to whom video comes has to see a picture within this time: the usual distance of key
/// frames.
const PICTURE_WITHIN: Duration = Duration::from_secs(2);

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
    /// When the first message of it came: a frame, or what says that there are some.
    seen: Option<Time>,
    /// The track that is measured: that of the first frame.
    track: Option<u8>,
    /// Messages of which nobody can say what they hold.
    unknown: u64,
    /// Arrival and timestamp of the last frame.
    latest: Option<(Time, u32)>,
}

impl Received {
    fn new(config: &FrameConfig) -> Received {
        Received {
            receiver: FrameReceiver::new(config),
            codec: None,
            key_frames: 0,
            seen: None,
            track: None,
            unknown: 0,
            latest: None,
        }
    }

    /// Offset of the frame in a message, and whether a decoder can begin with it; or, of what is
    /// no frame of the track that is measured, the counter for it.
    #[inline]
    fn frame(&mut self, tag: &Tag) -> Result<(usize, bool), CounterId> {
        match tag.content {
            Content::Frame { key } if *self.track.get_or_insert(tag.track) == tag.track => {
                self.codec = tag.codec;
                Ok((tag.data, key))
            }
            Content::Frame { .. } => Err(m::OTHER_TRACKS),
            Content::Config | Content::Other => {
                self.codec = self.codec.or(tag.codec);
                Err(m::MEDIA_CONFIGS)
            }
            Content::Unknown => {
                self.codec = self.codec.or(tag.codec);
                Err(m::UNKNOWN_MEDIA)
            }
        }
    }

    /// For how long nothing has come, if that is so long that it has stopped: longer than 4 times
    /// the longest gap before, and 2 s. The other stream plays on, so that the connection works.
    fn silent(&self, now: Time, silence: Duration) -> Option<Duration> {
        let (first, last) = match self.receiver.first_arrival() {
            None => (self.seen?, self.seen?),
            Some(first) => (first, self.receiver.last_arrival()?),
        };
        // One picture alone is no burst after which to wait for longer.
        let came = last.since(first).max(Duration::from_secs(1));
        let bound = silence::bound(came, self.receiver.longest_gap(), silence);
        Some(now.since(last)).filter(|silent| *silent >= bound)
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

    /// Takes in a message of media whose last byte is the one before `end` of what was read. The
    /// hot path. Says when the first frame of all came.
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
        let stream = match media.video {
            true => &mut self.video,
            false => &mut self.audio,
        };
        let (at, exact) = times.of(end);
        // An end, a command or metadata does not say that there are pictures.
        let is_media = tag.is_none_or(|tag| tag.content != Content::Other);
        if is_media && media.length > 0 {
            stream.seen.get_or_insert(at);
        }
        let frame = match tag {
            Some(tag) => stream.frame(&tag),
            // Servers send an empty message now and then: where a stream begins or pauses.
            None if media.length == 0 => Err(m::MEDIA_CONFIGS),
            None if media.length as usize <= media.head.len() => Err(m::MALFORMED),
            // The header is longer than the bytes that are read.
            None => Err(m::UNKNOWN_MEDIA),
        };
        let (data, key) = match frame {
            Ok(frame) => frame,
            Err(counter) => {
                stream.unknown += u64::from(counter == m::UNKNOWN_MEDIA);
                recorder.add(counter, 1);
                recorder.add(frames::WIRE_BYTES, media.wire.into());
                return None;
            }
        };
        if !exact {
            recorder.add(frames::TIMED_BY_READING, 1);
        }
        let code = match media.video && stream.receiver.expects_codes() {
            true => media.head.get(data..).and_then(time_code),
            false => None,
        };
        let frame = Frame {
            at,
            timestamp: media.timestamp,
            payload: (media.length as usize).saturating_sub(data),
            wire: media.wire as usize,
            code,
        };
        stream.receiver.frame(&frame, recorder);
        stream.latest = Some((at, media.timestamp));
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
            if let (Some(audio), Some(video)) = (self.audio.latest, self.video.latest) {
                recorder.record(m::AV_SKEW, skew(audio, video));
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

    /// Counts a stream that has stopped while the other played on, with its stall, and says which.
    pub(super) fn fell_silent(
        &mut self,
        now: Time,
        silence: Duration,
        recorder: &mut Recorder,
    ) -> Option<String> {
        let [video, audio] = [&self.video, &self.audio].map(|own| own.silent(now, silence));
        let (kind, other, stream, silent) = match (video, audio) {
            (Some(silent), None) if self.audio.latest.is_some() => {
                ("video", "audio", &mut self.video, silent)
            }
            (None, Some(silent)) if self.video.latest.is_some() => {
                ("audio", "video", &mut self.audio, silent)
            }
            _ => return None,
        };
        recorder.add(m::STREAMS_SILENT, 1);
        stream.receiver.fell_silent(now, recorder);
        let silent = silent.as_secs_f64();
        Some(format!("no {kind} for {silent:.3} s, while {other} played"))
    }

    /// Description of a missing key frame, if video without one has lasted too long.
    pub(super) fn without_picture(&self, now: Time) -> Option<String> {
        let waited = now.since(self.video.seen?);
        if self.had_key_frame || waited < PICTURE_WITHIN {
            return None;
        }
        let frames = self.video.receiver.counts().frames;
        let waited = waited.as_secs_f64();
        let unknown = self.unknown();
        Some(format!(
            "no key frame within {waited:.3} s of video ({frames} other frames{unknown})"
        ))
    }

    /// Names of unknown codings that arrived; empty if none did.
    pub(super) fn unknown(&self) -> String {
        let mut all = String::new();
        for (kind, stream) in [("video", &self.video), ("audio", &self.audio)] {
            if stream.unknown > 0 {
                let codec = stream
                    .codec
                    .map_or_else(String::new, |codec| format!(": {codec}"));
                let count = stream.unknown;
                all += &format!(", {count} messages of {kind} in an unknown coding{codec}");
            }
        }
        all
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

/// Difference between the arrivals of two frames and their timestamps, in nanoseconds.
///
/// Timestamps wrap after 2^32 ms, so that only their difference says anything, in serial number
/// arithmetic (RTMP, 5.3.1; RFC 1982).
fn skew(one: (Time, u32), other: (Time, u32)) -> u64 {
    let came = one.0.nanos_from(other.0);
    let stated = one.1.wrapping_sub(other.1) as i32;
    came.abs_diff(i64::from(stated) * 1_000_000)
}

fn record(recorder: &mut Recorder, histogram: measure::HistogramId, at: Time, from: Time) {
    recorder.record(histogram, at.since(from).as_nanos() as u64);
}

#[cfg(test)]
mod tests;
