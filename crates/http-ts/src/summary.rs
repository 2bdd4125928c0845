//! Summary rows of transport streams over HTTP.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Shown if losses are unknown, or if no packet was received.
pub(super) const NO_STAMPS: &[SummaryRow] = &[
    SummaryRow::text(
        "loss",
        &[
            RowCondition::Zero("expected"),
            RowCondition::Above("bitrate"),
        ],
        &[Part::Text(
            "unknown: the stream does not tell what was sent",
        )],
    ),
    SummaryRow::text(
        "media",
        &[
            RowCondition::Zero("expected"),
            RowCondition::NotAbove("bitrate"),
        ],
        &[Part::Text("none received")],
    ),
    SummaryRow::end(&[
        RowCondition::Zero("expected"),
        RowCondition::NotAbove("bitrate"),
    ]),
];

/// Share of packets whose arrival time is unknown. A few at the beginning of each connection are
/// not worth a row.
pub(super) const TIMES: &[SummaryRow] = &[SummaryRow::text(
    "timed_by_reading",
    &[RowCondition::MoreThanPercentOf(
        "timed_by_reading",
        "ts_packets",
    )],
    &[Part::Text(
        "{timed_by_reading/ts_packets} of packets have the time of reading, not of arrival",
    )],
)];

/// Content of the streams, as far as it was checked.
pub(super) const CONTENT: &[SummaryRow] = &[SummaryRow::text(
    "content",
    &[RowCondition::Above("ts_packets")],
    &[Part::List(&[
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
    &[RowCondition::Above("ended_by_length")],
    &[Part::Text(
        "{ended_by_length:stream|streams} ended by the stated Content-Length",
    )],
)];
