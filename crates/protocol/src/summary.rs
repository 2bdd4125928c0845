//! Summary rows that all media protocols share.

use measure::SummaryRow;
use measure::summary::{Part, Shows, When};

/// Packet loss and bit rate.
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

/// Startup delay. The row is replaced by a note if all clients started in the warm-up.
pub(crate) const STARTUP: &[SummaryRow] = &[
    SummaryRow::text(
        "startup delay",
        &[When::NotBegan],
        &[Part::Text("unknown: all clients started in the warm-up")],
    ),
    SummaryRow::distribution("startup delay", &[When::Began], "startup_delay", "p50"),
];
