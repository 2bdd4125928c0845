//! Frames that are dropped or sent malformed on purpose.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{FlowFaults, Sent};

/// Treatment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFault {
    /// Sent completely.
    Whole,
    /// Only the first byte is sent, so that the header is truncated.
    Malformed,
    /// Not sent.
    Dropped,
}

/// Draws the treatment of each frame of a stream, and counts the frames that a player misses.
#[derive(Debug)]
pub(crate) struct FrameFaults {
    lose: f64,
    malformed: f64,
    rng: Pcg64,
    /// Video frames not sent whole since the last whole one.
    video_frames_missing: u64,
}

impl FrameFaults {
    pub(crate) fn new(faults: &FlowFaults, seed: u64) -> FrameFaults {
        FrameFaults {
            lose: faults.lose,
            malformed: faults.malformed,
            rng: Pcg64::seed_from_u64(seed),
            video_frames_missing: 0,
        }
    }

    /// Draws the treatment of the next frame.
    pub(crate) fn next(&mut self, video: bool, sent: &mut Sent) -> FrameFault {
        let fault = if self.draws(self.lose) {
            sent.left_out += 1;
            FrameFault::Dropped
        } else if self.draws(self.malformed) {
            FrameFault::Malformed
        } else {
            FrameFault::Whole
        };
        self.video_frames_missing += u64::from(video && fault != FrameFault::Whole);
        fault
    }

    /// Records that a whole video frame has left. Call it before the frame is counted. A player
    /// does not miss frames before the first one.
    pub(crate) fn record_video_sent(&mut self, sent: &mut Sent) {
        let gap = std::mem::take(&mut self.video_frames_missing);
        if sent.video_frames > 0 {
            sent.missed += gap;
        }
    }

    fn draws(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random::<f64>() < share
    }
}
