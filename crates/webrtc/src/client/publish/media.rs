//! Media of a stream: a looped clip, an encoder, or a voice.

use measure::Time;
use std::time::Duration;

use kit::media::rtp::{EncoderFlow, RtpFlow, TalkFlow};
use session::Flow;

/// Counts of a stream that is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MediaCounts {
    pub(super) packets: u64,
    /// Bytes of payload.
    pub(super) bytes: u64,
    pub(super) frames: u64,
    pub(super) not_taken: u64,
    pub(super) early_key_frames: u64,
    /// Packets with voice.
    pub(super) voice_packets: u64,
}

/// Media of a stream.
#[derive(Debug)]
pub(super) enum StreamMedia {
    /// Looped clip.
    Clip(RtpFlow),
    /// Live encoder.
    Live(EncoderFlow),
    /// Voice that speaks and pauses.
    Talk(Box<TalkFlow>),
}

impl StreamMedia {
    pub(super) fn flow(&self) -> &dyn Flow {
        match self {
            StreamMedia::Clip(flow) => flow,
            StreamMedia::Live(flow) => flow,
            StreamMedia::Talk(flow) => &**flow,
        }
    }

    pub(super) fn flow_mut(&mut self) -> &mut dyn Flow {
        match self {
            StreamMedia::Clip(flow) => flow,
            StreamMedia::Live(flow) => flow,
            StreamMedia::Talk(flow) => &mut **flow,
        }
    }

    pub(super) fn stop(&mut self) {
        match self {
            StreamMedia::Clip(flow) => flow.pause(),
            StreamMedia::Live(flow) => flow.stop(),
            StreamMedia::Talk(flow) => flow.stop(),
        }
    }

    /// Requests a key frame. A clip ignores the request: it has its key frames where the file has
    /// them.
    pub(super) fn request_key_frame(&mut self) {
        if let StreamMedia::Live(flow) = self {
            flow.key_frame();
        }
    }

    pub(super) fn report(
        &self,
        now: Time,
        wall_clock: Duration,
        name: &str,
        goodbye: bool,
    ) -> Vec<u8> {
        match self {
            StreamMedia::Clip(flow) => flow.report(now, wall_clock, name, goodbye),
            StreamMedia::Live(flow) => flow.report(now, wall_clock, name, goodbye),
            StreamMedia::Talk(flow) => flow.report(now, wall_clock, name, goodbye),
        }
    }

    pub(super) fn counts(&self) -> MediaCounts {
        let counts = |(packets, bytes), not_taken| MediaCounts {
            packets,
            bytes,
            not_taken,
            ..MediaCounts::default()
        };
        match self {
            StreamMedia::Clip(flow) => MediaCounts {
                frames: flow.current_frame(),
                ..counts(flow.sent(), flow.rejected())
            },
            StreamMedia::Live(flow) => MediaCounts {
                frames: flow.pictures_sent(),
                early_key_frames: flow.early_key_frames(),
                ..counts(flow.sent(), flow.rejected())
            },
            // Each frame is a packet.
            StreamMedia::Talk(flow) => MediaCounts {
                frames: flow.sent().0,
                voice_packets: flow.voiced(),
                ..counts(flow.sent(), flow.rejected())
            },
        }
    }

    /// Audio level of the last packet that was handed out. `None` if the media is no voice.
    pub(super) fn audio_level(&self) -> Option<u8> {
        match self {
            StreamMedia::Talk(flow) => Some(flow.level()),
            StreamMedia::Clip(_) | StreamMedia::Live(_) => None,
        }
    }
}
