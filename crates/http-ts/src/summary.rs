//! Summary rows of transport streams over HTTP.

use measure::SummaryRow;
use measure::summary::{
    Part::{List, Text},
    RowCondition::{Above, MoreThanPercentOf, NotAbove, Zero},
};

/// Shown if losses are unknown, or if no packet was received.
pub(super) const NO_STAMPS: &[SummaryRow] = &[
    SummaryRow::text(
        "loss",
        &[Zero("expected"), Above("bitrate")],
        &[Text("unknown: the stream does not tell what was sent")],
    ),
    SummaryRow::text(
        "media",
        &[Zero("expected"), NotAbove("bitrate")],
        &[Text("none received")],
    ),
    SummaryRow::end(&[Zero("expected"), NotAbove("bitrate")]),
];

/// Share of packets whose arrival time is unknown. A few at the beginning of each connection are
/// not worth a row.
pub(super) const TIMES: &[SummaryRow] = &[SummaryRow::text(
    "timed_by_reading",
    &[MoreThanPercentOf("timed_by_reading", "ts_packets")],
    &[Text(
        "{timed_by_reading/ts_packets} of packets have the time of reading, not of arrival",
    )],
)];

/// Content of the streams, as far as it was checked.
pub(super) const CONTENT: &[SummaryRow] = &[SummaryRow::text(
    "content",
    &[Above("ts_packets")],
    &[List(&[
        ("foreign", "{:foreign datagram|foreign datagrams}"),
        ("old_channel", "{} of them of the previous channel"),
        ("damaged", "{} damaged"),
        ("stray_packets", "{:stray packet|stray packets}"),
        ("late", "{} too late to be judged"),
    ])],
)];

/// Streams that the server ended by their stated length.
pub(super) const ENDS: &[SummaryRow] = &[SummaryRow::text(
    "ended_by_length",
    &[Above("ended_by_length")],
    &[Text(
        "{ended_by_length:stream|streams} ended by the stated Content-Length",
    )],
)];
