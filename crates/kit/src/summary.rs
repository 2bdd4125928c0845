//! Summary rows that all media protocols share.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition, RowContent};

/// Packet loss and bit rate.
pub const MEDIA_ROWS: &[SummaryRow] = &[
    SummaryRow::text(
        "loss",
        &[RowCondition::NotZero("expected")],
        &[Part::Text(
            "{loss}   {lost} of {expected} packets; {duplicated} duplicated, {reordered} reordered",
        )],
    ),
    SummaryRow {
        label: "lost by",
        when: &[],
        shows: RowContent::WhereLost,
    },
    SummaryRow::text(
        "bitrate",
        &[RowCondition::Above("bitrate")],
        &[Part::Text("{bitrate} of media, {wire_bitrate} on the wire")],
    ),
];

/// Delay of pictures with time codes, in transport streams.
pub const CODED_PICTURES: &[SummaryRow] = &[
    SummaryRow::distribution(
        &[RowCondition::Above("frames_published")],
        "frame_delay",
        "p50",
    ),
    SummaryRow::text(
        "frame_loss",
        &[RowCondition::Above("frames_published")],
        &[Part::Text(
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} missing or \
             incomplete",
        )],
    ),
];

/// Startup delay. The row is replaced by a note if all clients started in the warm-up.
pub const STARTUP_ROWS: &[SummaryRow] = &[
    SummaryRow::text(
        "startup_delay",
        &[RowCondition::OnlyStartedInWarmUp],
        &[Part::Text("unknown: all clients started in the warm-up")],
    ),
    SummaryRow::distribution(&[RowCondition::StartedAfterWarmUp], "startup_delay", "p50"),
];
