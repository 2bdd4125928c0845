//! Classification of loads (RFC 9971): lower bound, upper bound, undecided.

/// Trials of one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The load.
    pub load: u64,
    /// Number of trials in which all thresholds held.
    pub held: u32,
    /// Number of trials in which a threshold broke, or the level did not settle.
    pub failed: u32,
    /// Number of trials in which the tester was unfit.
    pub invalid: u32,
}

impl Level {
    pub(crate) fn count(&mut self, failed: bool) {
        self.held += u32::from(!failed);
        self.failed += u32::from(failed);
    }

    /// Returns `true` if at least `decisive` trials held, and more than failed.
    fn is_lower_bound(&self, decisive: u32) -> bool {
        self.held >= decisive && self.held > self.failed
    }

    fn is_upper_bound(&self, decisive: u32) -> bool {
        self.failed >= decisive && self.failed > self.held
    }

    /// Returns `true` if one more trial is needed: the only trial was invalid, or one held and one
    /// failed.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(
            (self.held, self.failed, self.invalid),
            (0, 0, 1) | (1, 1, _)
        )
    }
}

/// Returns the relevant bounds: the smallest upper bound, and the largest lower bound below it. A
/// load that held above a smaller one that failed is a fluke (loss inversion).
pub(crate) fn relevant(levels: &[Level], decisive: u32) -> (Option<Level>, Option<Level>) {
    let upper = levels.iter().find(|level| level.is_upper_bound(decisive));
    let is_below = |level: &&Level| upper.is_none_or(|upper| level.load < upper.load);
    let below = levels.iter().rev().filter(is_below);
    let lower = below.copied().find(|level| level.is_lower_bound(decisive));
    (lower, upper.copied())
}
