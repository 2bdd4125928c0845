//! Sequence numbers that belong to no frame, because their packets have no payload.

use std::collections::VecDeque;

use super::is_after;

/// Maximum number of runs that are kept. Senders that probe send padding in bursts.
const RUNS_MAX: usize = 64;

/// Numbers of packets without payload, around the open frames.
#[derive(Debug, Default)]
pub(super) struct PaddingNumbers {
    /// First and last number of each run, in order of arrival.
    runs: VecDeque<(u32, u32)>,
}

impl PaddingNumbers {
    pub(super) fn add(&mut self, number: u32) {
        if let Some((_, last)) = self.runs.back_mut()
            && last.wrapping_add(1) == number
        {
            *last = number;
            return;
        }
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back((number, number));
    }

    /// Number of padding packets from `low` to `high`, both included.
    pub(super) fn within(&self, low: u32, high: u32) -> u32 {
        let from_low = |number: u32| i64::from(number.wrapping_sub(low) as i32);
        let inside = |&(first, last): &(u32, u32)| {
            let (first, last) = (from_low(first).max(0), from_low(last).min(from_low(high)));
            (last - first + 1).max(0) as u32
        };
        self.runs.iter().map(inside).sum()
    }

    /// Removes the runs that end at or below a number.
    pub(super) fn forget_up_to(&mut self, number: u32) {
        self.runs.retain(|&(_, last)| is_after(last, number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_across_wrap_arounds_and_stays_bounded() {
        let mut padding = PaddingNumbers::default();
        for number in [u32::MAX - 1, u32::MAX, 0, 1, 5] {
            padding.add(number);
        }
        assert_eq!(padding.within(u32::MAX, 5), 4);
        assert_eq!(padding.within(2, 4), 0);
        // An empty range contains no padding.
        assert_eq!(padding.within(3, 2), 0);
        padding.forget_up_to(1);
        assert_eq!(padding.within(u32::MAX - 9, 9), 1);
        for number in (0..10_000).map(|number| number * 2) {
            padding.add(number);
        }
        assert_eq!(padding.runs.len(), RUNS_MAX);
    }
}
