//! Media of a stream: a looped clip, an encoder, or a voice.

use measure::{CounterId, Time};
use std::time::Duration;

use crate::metrics as m;
use kit::media::rtp::{EncoderFlow, RtpFlow, TalkFlow};
use session::Flow;

/// Counters of a stream that is sent, in the order of [`StreamMedia::counts`].
pub(super) const MEDIA_COUNTERS: [CounterId; 6] = [
    m::SENT_PACKETS,
    m::SENT_BYTES,
    m::NOT_TAKEN,
    m::SENT_FRAMES,
    m::EARLY_KEY_FRAMES,
    m::SENT_VOICE_PACKETS,
];

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

    pub(super) fn counts(&self) -> [u64; 6] {
        let ((packets, bytes), not_taken, [frames, early, voice]) = match self {
            StreamMedia::Clip(flow) => (flow.sent(), flow.rejected(), [flow.current_frame(), 0, 0]),
            StreamMedia::Live(flow) => {
                let frames = [flow.pictures_sent(), flow.early_key_frames(), 0];
                (flow.sent(), flow.rejected(), frames)
            }
            // Each frame is a packet.
            StreamMedia::Talk(flow) => {
                let frames = [flow.sent().0, 0, flow.voiced()];
                (flow.sent(), flow.rejected(), frames)
            }
        };
        [packets, bytes, not_taken, frames, early, voice]
    }

    /// Audio level of the last packet that was handed out. `None` if the media is no voice.
    pub(super) fn audio_level(&self) -> Option<u8> {
        match self {
            StreamMedia::Talk(flow) => Some(flow.level()),
            StreamMedia::Clip(_) | StreamMedia::Live(_) => None,
        }
    }
}
