//! Frames that are left out or sent malformed on purpose.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{FlowFaults, Sent};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rtmp) enum Fate {
    /// It is sent.
    Whole,
    /// Its first byte alone is sent, which does not say what it is.
    Malformed,
    /// It is not sent.
    LeftOut,
}

/// Draws what becomes of each frame of a stream, and counts what a player misses.
#[derive(Debug)]
pub(in crate::rtmp) struct Fates {
    lose: f64,
    malformed: f64,
    rng: Pcg64,
    /// Frames of video that were not sent whole since the last that was.
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

    /// What becomes of the next frame.
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

    /// A whole frame of video has left, and is not counted yet. What was missing before the first
    /// nobody misses.
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
