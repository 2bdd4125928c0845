//! Rows of a run's summary that protocols with media share.

use measure::SummaryRow;
use measure::summary::{Part, Shows, When};

/// What came, and what did not.
pub(crate) const MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "loss",
        &[When::NotZero("expected")],
        &[Part::Text(
            "{loss}   {lost} of {expected} packets; {duplicated} duplicated, {reordered} reordered",
        )],
    ),
    SummaryRow {
        label: "lost by",
        when: &[],
        shows: Shows::WhereLost,
    },
    SummaryRow::text(
        "bit rate",
        &[When::Above("bitrate")],
        &[Part::Text("{bitrate} of media, {wire_bitrate} on the wire")],
    ),
];

/// How long clients waited for their first packet. What none had who began in the time that counts,
/// nobody misses.
pub(crate) const STARTUP: &[SummaryRow] = &[
    SummaryRow::text(
        "startup delay",
        &[When::NotBegan],
        &[Part::Text("unknown: all clients began in the warm-up")],
    ),
    SummaryRow::distribution("startup delay", &[When::Began], "startup_delay", "p50"),
];
