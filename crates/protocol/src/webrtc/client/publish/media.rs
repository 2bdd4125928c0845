//! Media of a stream: a looped clip, an encoder, or a voice.

use measure::Time;
use std::time::Duration;

use crate::media::rtp::{LiveFlow, RtpFlow, TalkFlow};
use crate::session::Flow;

/// Counts of a stream that is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    /// Bytes of payload.
    pub(super) bytes: u64,
    pub(super) frames: u64,
    pub(super) not_taken: u64,
    pub(super) early_key_frames: u64,
    /// Packets with voice.
    pub(super) voiced: u64,
}

/// Media of a stream.
#[derive(Debug)]
pub(super) enum Media {
    /// Looped clip.
    Clip(RtpFlow),
    /// Live encoder.
    Live(LiveFlow),
    /// Voice that speaks and pauses.
    Talk(Box<TalkFlow>),
}

impl Media {
    pub(super) fn flow(&self) -> &dyn Flow {
        match self {
            Media::Clip(flow) => flow,
            Media::Live(flow) => flow,
            Media::Talk(flow) => &**flow,
        }
    }

    pub(super) fn flow_mut(&mut self) -> &mut dyn Flow {
        match self {
            Media::Clip(flow) => flow,
            Media::Live(flow) => flow,
            Media::Talk(flow) => &mut **flow,
        }
    }

    pub(super) fn stop(&mut self) {
        match self {
            Media::Clip(flow) => flow.pause(),
            Media::Live(flow) => flow.stop(),
            Media::Talk(flow) => flow.stop(),
        }
    }

    /// Requests a key frame. A clip ignores the request: it has its key frames where the file has
    /// them.
    pub(super) fn key_frame(&mut self) {
        if let Media::Live(flow) = self {
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
            Media::Clip(flow) => flow.report(now, wall_clock, name, goodbye),
            Media::Live(flow) => flow.report(now, wall_clock, name, goodbye),
            Media::Talk(flow) => flow.report(now, wall_clock, name, goodbye),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let counts = |(packets, bytes), not_taken| Counts {
            packets,
            bytes,
            not_taken,
            ..Counts::default()
        };
        match self {
            Media::Clip(flow) => Counts {
                frames: flow.frames(),
                ..counts(flow.sent(), flow.not_taken())
            },
            Media::Live(flow) => Counts {
                frames: flow.frames(),
                early_key_frames: flow.early_key_frames(),
                ..counts(flow.sent(), flow.not_taken())
            },
            // Each frame is a packet.
            Media::Talk(flow) => Counts {
                frames: flow.sent().0,
                voiced: flow.voiced(),
                ..counts(flow.sent(), flow.not_taken())
            },
        }
    }

    /// Audio level of the last packet that was handed out. `None` if the media is no voice.
    pub(super) fn level(&self) -> Option<u8> {
        match self {
            Media::Talk(flow) => Some(flow.level()),
            Media::Clip(_) | Media::Live(_) => None,
        }
    }
}
