//! Keys of a series.

/// Keys of a series.
pub(crate) const SERIES_KEYS: [&str; 8] = [
    "vary",
    "find",
    "settle",
    "stop_at",
    "capacity",
    "compare",
    "repeat",
    "min_effect",
];

/// Keys that turn a scenario into a series.
pub(crate) const MAKE_SERIES: [&str; 4] = ["vary", "capacity", "compare", "repeat"];

/// Maximum number of runs of one combination.
pub(crate) const MAX_REPEAT: u64 = 100;

/// Key of the two variants of a comparison, and the name of their axis.
pub(crate) const COMPARE: &str = "compare";
