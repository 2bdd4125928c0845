//! RTSP rows in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Jitter, and the share of packets without an exact arrival time. The few at the beginning of each
/// connection are not worth a line.
pub(super) const ARRIVAL_TIMES: &[SummaryRow] = &[
    SummaryRow::distribution(&[RowCondition::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "timed_by_reading",
        &[RowCondition::MoreThanPercentOf(
            "timed_by_reading",
            "received",
        )],
        &[Part::Text(
            "{timed_by_reading/received} of packets have the time of reading, not of arrival",
        )],
    ),
];
