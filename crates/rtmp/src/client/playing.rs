//! Measurements of a playing client's media.

use std::time::Duration;

use measure::{CounterId, Recorder, Time};
use serde::Serialize;

use crate::codec::chunk::MediaMessage;
use crate::codec::media::{Codec, MediaHeader, PacketContent, find_time_code};
use crate::metrics as m;
use kit::lifecycle::{self, MediaTimes};
use kit::media::frames::metrics as frames;
use kit::media::frames::{Frame, FrameConfig, FrameCounts, FrameReceiver};
use kit::media::silence;
use kit::viewer::Delivery;
use session::{ArrivalTimes, StreamRow};

/// A viewer that receives video must see a picture within this time: the usual interval of key
/// frames.
const PICTURE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that audio plays alone before a stream counts as one without video.
const AUDIO_ALONE: Duration = Duration::from_secs(1);

/// Clock rate of RTMP in Hz (RTMP, 4).
const CLOCK_RATE: u32 = 1000;

/// Columns of a stream's row, as JSON pointers: kind, URL, codec, and metrics with these names, of
/// this stream alone.
pub(crate) const COLUMNS: &[&str] = &[
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

/// Summary of one stream, for the client's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// `video`, `audio`, or `all` for a sum of several streams.
    pub kind: &'static str,
    pub url: String,
    /// Codec; `None` if no message stated it.
    pub codec: Option<Codec>,
    pub frames: u64,
    pub payload_bytes: u64,
    /// Bytes on the wire, including chunk headers.
    pub wire_bytes: u64,
    /// Interruptions of playback.
    pub stalls: u64,
    pub clock_jumps: u64,
    pub key_frames: u64,
    /// Width of the picture according to the metadata.
    pub width: Option<u32>,
    /// Height of the picture according to the metadata.
    pub height: Option<u32>,
}

impl StreamSummary {
    /// Sums the rows of several streams, with a title instead of a URL. `None` if there are none.
    pub(crate) fn sum_rows(rows: &[StreamRow], title: &str) -> Option<StreamRow> {
        let all = rows.iter();
        let mut all = all.filter_map(|row| row.downcast_ref::<StreamSummary>());
        let mut sum = StreamSummary {
            kind: "all",
            url: title.to_owned(),
            codec: None,
            width: None,
            height: None,
            ..all.next()?.clone()
        };
        for row in all {
            sum.frames += row.frames;
            sum.payload_bytes += row.payload_bytes;
            sum.wire_bytes += row.wire_bytes;
            sum.stalls += row.stalls;
            sum.clock_jumps += row.clock_jumps;
            sum.key_frames += row.key_frames;
        }
        Some(StreamRow::new(sum))
    }
}

/// Start times from which delays are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartTimes {
    /// Planned time of the client's first request.
    pub(super) due: Time,
    /// Actual start of the client.
    pub(super) started: Time,
    /// Time of sending `play`.
    pub(super) asked: Time,
    /// True after a channel change: only the delay from `asked` is measured.
    pub(super) is_later_channel: bool,
}

/// Audio and video of one stream.
#[derive(Debug)]
pub(super) struct Playing {
    start_times: StartTimes,
    video: ReceivedMedia,
    audio: ReceivedMedia,
    /// Arrival times of all frames. `None` before the first one.
    pub(super) media_times: Option<MediaTimes>,
    first_key_frame: Option<Time>,
    /// Size of the picture according to the metadata.
    pub(super) size: Option<(u32, u32)>,
}

/// Received audio or video.
#[derive(Debug)]
struct ReceivedMedia {
    receiver: FrameReceiver,
    codec: Option<Codec>,
    key_frames: u64,
    /// Arrival of the first message that shows that there is such media: a frame or a decoder
    /// configuration.
    first_message_at: Option<Time>,
    /// Track that is measured: that of the first frame.
    track: Option<u8>,
    /// Number of messages with unknown content.
    unknown_messages: u64,
    /// Arrival and timestamp of the last frame.
    last_frame: Option<(Time, u32)>,
}

impl ReceivedMedia {
    fn new(config: &FrameConfig) -> ReceivedMedia {
        ReceivedMedia {
            receiver: FrameReceiver::new(config),
            codec: None,
            key_frames: 0,
            first_message_at: None,
            track: None,
            unknown_messages: 0,
            last_frame: None,
        }
    }

    /// Returns the offset of the frame in a message, and whether decoding can start at it.
    /// Otherwise returns the counter for a message that is no frame of the measured track.
    #[inline]
    fn classify(&mut self, tag: &MediaHeader) -> Result<(usize, bool), CounterId> {
        match tag.content {
            PacketContent::Frame { key } if *self.track.get_or_insert(tag.track) == tag.track => {
                self.codec = tag.codec;
                Ok((tag.data, key))
            }
            PacketContent::Frame { .. } => Err(m::OTHER_TRACKS),
            PacketContent::Config | PacketContent::Other => {
                self.codec = self.codec.or(tag.codec);
                Err(m::MEDIA_CONFIGS)
            }
            PacketContent::Unknown => {
                self.codec = self.codec.or(tag.codec);
                Err(m::UNKNOWN_MEDIA)
            }
        }
    }

    /// Returns the duration of the silence if it is long enough to mean that the media has stopped:
    /// 2 s, and 4 times the longest gap before. The connection works, because the other stream
    /// plays on.
    fn silence_if_stopped(&self, now: Time, silence: Duration) -> Option<Duration> {
        let (first, last) = match self.receiver.first_arrival() {
            None => (self.first_message_at?, self.first_message_at?),
            Some(first) => (first, self.receiver.last_arrival()?),
        };
        // A single picture is not a burst, after which the bound would be higher.
        let span = last.since(first).max(Duration::from_secs(1));
        let bound = silence::bound(span, self.receiver.longest_gap(), silence);
        Some(now.since(last)).filter(|silent| *silent >= bound)
    }
}

impl Playing {
    /// Creates the state of a client that has just sent `play`. `wall_clock` is the wall-clock time
    /// at [`Time::ZERO`], if frames may carry time codes.
    pub(super) fn new(
        start_times: StartTimes,
        playout_buffer: Duration,
        wall_clock: Option<Duration>,
    ) -> Playing {
        let config = FrameConfig {
            clock_rate: CLOCK_RATE,
            playout_buffer,
            wall_clock,
        };
        // Audio carries no time codes.
        let of_audio = FrameConfig {
            wall_clock: None,
            ..config
        };
        Playing {
            start_times,
            video: ReceivedMedia::new(&config),
            audio: ReceivedMedia::new(&of_audio),
            media_times: None,
            first_key_frame: None,
            size: None,
        }
    }

    /// Arrival of the first key frame; of the first frame if audio has played alone for a while.
    pub(super) fn first_picture(&self) -> Option<Time> {
        if self.video.first_message_at.is_some() {
            return self.first_key_frame;
        }
        let times = self.media_times?;
        (times.last.since(times.first) >= AUDIO_ALONE).then_some(times.first)
    }

    /// Arrival of the first frame.
    pub(super) fn first_arrival(&self) -> Option<Time> {
        self.media_times.map(|times| times.first)
    }

    /// Arrival of the last frame.
    pub(super) fn last_arrival(&self) -> Option<Time> {
        self.media_times.map(|times| times.last)
    }

    /// Processes a media message that ends at offset `end` of the bytes read (hot path). Returns
    /// the arrival of the very first frame.
    #[inline]
    pub(super) fn handle_media(
        &mut self,
        media: &MediaMessage<'_>,
        end: usize,
        times: &mut ArrivalTimes<'_>,
        recorder: &mut Recorder,
    ) -> Option<Time> {
        let tag = MediaHeader::parse(media.video, media.head);
        let stream = match media.video {
            true => &mut self.video,
            false => &mut self.audio,
        };
        let (at, exact) = times.arrival_of(end);
        // A sequence end, a command or metadata does not show that there is video.
        let is_media = tag.is_none_or(|tag| tag.content != PacketContent::Other);
        if is_media && media.length > 0 {
            stream.first_message_at.get_or_insert(at);
        }
        let frame = match tag {
            Some(tag) => stream.classify(&tag),
            // Servers send empty messages when a stream begins or pauses.
            None if media.length == 0 => Err(m::MEDIA_CONFIGS),
            None if media.length as usize <= media.head.len() => Err(m::MALFORMED),
            // The header is longer than the bytes that are kept.
            None => Err(m::UNKNOWN_MEDIA),
        };
        let (data, key) = match frame {
            Ok(frame) => frame,
            Err(counter) => {
                stream.unknown_messages += u64::from(counter == m::UNKNOWN_MEDIA);
                recorder.add(counter, 1);
                recorder.add(frames::WIRE_BYTES, media.wire.into());
                return None;
            }
        };
        if !exact {
            recorder.add(frames::TIMED_BY_READING, 1);
        }
        let code = match media.video && stream.receiver.uses_time_codes() {
            true => media.head.get(data..).and_then(find_time_code),
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
        stream.last_frame = Some((at, media.timestamp));
        if media.video {
            recorder.add(m::VIDEO_FRAMES, 1);
            if key {
                stream.key_frames += 1;
                recorder.add(m::KEY_FRAMES, 1);
                if self.first_key_frame.is_none() {
                    self.first_key_frame = Some(at);
                    if !self.start_times.is_later_channel {
                        recorder
                            .record_duration(m::KEY_FRAME_DELAY, at.since(self.start_times.due));
                    }
                }
            }
        } else {
            recorder.add(m::AUDIO_FRAMES, 1);
            if let (Some(audio), Some(video)) = (self.audio.last_frame, self.video.last_frame) {
                recorder.record(m::AV_SKEW, skew(audio, video));
            }
        }
        if let Some(times) = &mut self.media_times {
            times.longest_gap = times.longest_gap.max(at.since(times.last));
            times.last = times.last.max(at);
            return None;
        }
        self.media_times = Some(MediaTimes {
            first: at,
            last: at,
            longest_gap: Duration::ZERO,
        });
        if !self.start_times.is_later_channel {
            let StartTimes { due, started, .. } = self.start_times;
            lifecycle::record_startup(recorder, at, due, started);
        }
        recorder.record_duration(m::PLAY_TO_MEDIA, at.since(self.start_times.asked));
        Some(at)
    }

    /// Counts a stream that stopped while the other played on, including its stall. Returns a
    /// description.
    pub(super) fn count_silent_stream(
        &mut self,
        now: Time,
        silence: Duration,
        recorder: &mut Recorder,
    ) -> Option<String> {
        let [video, audio] =
            [&self.video, &self.audio].map(|own| own.silence_if_stopped(now, silence));
        let (kind, other, stream, silent) = match (video, audio) {
            (Some(silent), None) if self.audio.last_frame.is_some() => {
                ("video", "audio", &mut self.video, silent)
            }
            (None, Some(silent)) if self.video.last_frame.is_some() => {
                ("audio", "video", &mut self.audio, silent)
            }
            _ => return None,
        };
        recorder.add(m::STREAMS_SILENT, 1);
        stream.receiver.finish_silent(now, recorder);
        let silent = silent.as_secs_f64();
        Some(format!("no {kind} for {silent:.3} s, while {other} played"))
    }

    /// Describes the missing key frame, if video has lasted too long without one.
    pub(super) fn describe_missing_key_frame(&self, now: Time) -> Option<String> {
        let waited = now.since(self.video.first_message_at?);
        if self.first_key_frame.is_some() || waited < PICTURE_TIMEOUT {
            return None;
        }
        let frames = self.video.receiver.counts().frames;
        let waited = waited.as_secs_f64();
        let unknown = self.describe_unknown_media();
        Some(format!(
            "no key frame within {waited:.3} s of video ({frames} other frames{unknown})"
        ))
    }

    /// Describes the received media of unknown format; empty if there was none.
    pub(super) fn describe_unknown_media(&self) -> String {
        let mut all = String::new();
        for (kind, stream) in [("video", &self.video), ("audio", &self.audio)] {
            if stream.unknown_messages > 0 {
                let codec = stream
                    .codec
                    .map_or_else(String::new, |codec| format!(": {codec}"));
                let count = stream.unknown_messages;
                all += &format!(", {count} {kind} messages of an unknown format{codec}");
            }
        }
        all
    }

    /// Ends the measurement. If media had stopped, `silent` is the time until which it was
    /// expected.
    pub(super) fn finish(&mut self, silent: Option<Time>, recorder: &mut Recorder) {
        for stream in [&mut self.video, &mut self.audio] {
            match silent {
                Some(until) => stream.receiver.finish_silent(until, recorder),
                None => stream.receiver.finish(recorder),
            }
        }
    }

    /// Media that reached the viewer. Lost frames are known if they have time codes.
    pub(super) fn delivery(&self) -> Delivery {
        let mut all = self.video.receiver.delivery();
        all.add(self.audio.receiver.delivery());
        all
    }

    /// Returns one row for audio and one for video, if there were frames.
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

/// Returns the difference between two frames' arrivals, less that of their timestamps, as an
/// absolute value in nanoseconds.
///
/// Timestamps wrap around after 2^32 ms. Their difference is computed in serial number arithmetic
/// (RTMP, 5.3.1; RFC 1982).
fn skew(one: (Time, u32), other: (Time, u32)) -> u64 {
    let arrived = one.0.nanos_from(other.0);
    let stated = one.1.wrapping_sub(other.1) as i32;
    arrived.abs_diff(i64::from(stated) * 1_000_000)
}

#[cfg(test)]
mod tests;
