//! Frames that are dropped or sent malformed on purpose.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{FlowFaults, Sent};

/// Treatment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rtmp) enum Fate {
    /// Sent completely.
    Whole,
    /// Only the first byte is sent, so that the header is truncated.
    Malformed,
    /// Not sent.
    LeftOut,
}

/// Draws the treatment of each frame of a stream, and counts the frames that a player misses.
#[derive(Debug)]
pub(in crate::rtmp) struct Fates {
    lose: f64,
    malformed: f64,
    rng: Pcg64,
    /// Video frames not sent whole since the last whole one.
    gap: u64,
}

impl Fates {
    pub(in crate::rtmp) fn new(faults: &FlowFaults, seed: u64) -> Fates {
        Fates {
            lose: faults.lose,
            malformed: faults.malformed,
            rng: Pcg64::seed_from_u64(seed),
            gap: 0,
        }
    }

    /// Draws the treatment of the next frame.
    pub(in crate::rtmp) fn next(&mut self, video: bool, sent: &mut Sent) -> Fate {
        let fate = if self.draws(self.lose) {
            sent.left_out += 1;
            Fate::LeftOut
        } else if self.draws(self.malformed) {
            Fate::Malformed
        } else {
            Fate::Whole
        };
        self.gap += u64::from(video && fate != Fate::Whole);
        fate
    }

    /// Records that a whole video frame has left. Call it before the frame is counted. A player
    /// does not miss frames before the first one.
    pub(in crate::rtmp) fn video_left(&mut self, sent: &mut Sent) {
        let gap = std::mem::take(&mut self.gap);
        if sent.video_frames > 0 {
            sent.missed += gap;
        }
    }

    fn draws(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random::<f64>() < share
    }
}
