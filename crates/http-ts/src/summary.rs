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

/// Integrity of the streams, and time to the first picture, as far as they were checked.
pub(super) const STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "content",
        &[RowCondition::Above("ts_packets")],
        &[Part::List(&[
            ("foreign", "{:foreign datagram|foreign datagrams}"),
            ("old_channel", "{} of them of the previous channel"),
            ("damaged", "{} damaged"),
            ("stray_packets", "{:stray packet|stray packets}"),
            ("late", "{} too late to be judged"),
        ])],
    ),
    SummaryRow::text(
        "stream",
        &[RowCondition::Above("ts_packets")],
        &[Part::ListOr(
            &[
                ("sync_losses", "{:sync loss|sync losses}"),
                ("continuity_errors", "{:continuity error|continuity errors}"),
                ("transport_errors", "{:transport error|transport errors}"),
                ("table_errors", "{:table error|table errors}"),
                ("pcr_jumps", "{:PCR jump|PCR jumps}"),
                ("malformed", "{:malformed packet|malformed packets}"),
            ],
            "in sync, without errors",
        )],
    ),
    SummaryRow::text(
        "random_access_delay",
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::NoData("random_access_delay"),
            RowCondition::StartedAfterWarmUp,
        ],
        &[Part::Text("no data: no random-access point received")],
    ),
    SummaryRow::distribution(
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::HasData("random_access_delay"),
        ],
        "random_access_delay",
        "p50",
    ),
    SummaryRow::text(
        "streams_silent",
        &[RowCondition::Above("streams_silent")],
        &[Part::Text(
            "{streams_silent:stream|streams} without video or audio, while the rest arrived",
        )],
    ),
    SummaryRow::distribution(
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::HasData("datagram_delay"),
        ],
        "datagram_delay",
        "p50",
    ),
    SummaryRow::text(
        "stamps_ahead",
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::Above("stamps_ahead"),
        ],
        &[Part::Text(
            "{stamps_ahead} datagrams arrived before they were sent: the clocks differ",
        )],
    ),
];

/// Streams that the server ended by their stated length.
pub(super) const ENDS: &[SummaryRow] = &[SummaryRow::text(
    "ended_by_length",
    &[RowCondition::Above("ended_by_length")],
    &[Part::Text(
        "{ended_by_length:stream|streams} ended by the stated Content-Length",
    )],
)];
