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
    "times",
    &[RowCondition::MoreThanPercentOf(
        "timed_by_reading",
        "ts_packets",
    )],
    &[Part::Text(
        "for {timed_by_reading/ts_packets} of packets: time of reading instead of arrival",
    )],
)];

/// Integrity of the streams, and time to the first picture, as far as they were checked.
pub(super) const STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "content",
        &[RowCondition::Above("ts_packets")],
        &[Part::List(&[
            ("foreign", "{} datagrams of another group or source"),
            ("old_channel", "{} of them of the previous channel"),
            ("damaged", "{} damaged"),
            ("stray_packets", "{} packets outside of a datagram"),
            ("late", "{} too old to be judged"),
        ])],
    ),
    SummaryRow::text(
        "stream",
        &[RowCondition::Above("ts_packets")],
        &[Part::ListOr(
            &[
                ("sync_losses", "{} sync losses"),
                ("continuity_errors", "{} continuity errors"),
                ("transport_errors", "{} packets marked as damaged"),
                ("table_errors", "{} damaged tables"),
                ("pcr_jumps", "{} clock jumps"),
                ("malformed", "{} malformed packets"),
            ],
            "in sync, without errors",
        )],
    ),
    SummaryRow::text(
        "to picture",
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::NoData("random_access_delay"),
            RowCondition::StartedAfterWarmUp,
        ],
        &[Part::Text("none: no random-access point received")],
    ),
    SummaryRow::distribution(
        "to picture",
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::HasData("random_access_delay"),
        ],
        "random_access_delay",
        "p50",
    ),
    SummaryRow::text(
        "silent",
        &[RowCondition::Above("streams_silent")],
        &[Part::Text(
            "{streams_silent:time|times} no video or audio, while the rest of the stream arrived",
        )],
    ),
    SummaryRow::distribution(
        "relay delay",
        &[
            RowCondition::Above("ts_packets"),
            RowCondition::HasData("datagram_delay"),
        ],
        "datagram_delay",
        "p50",
    ),
    SummaryRow::text(
        "clocks",
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
    "ends",
    &[RowCondition::Above("ended_by_length")],
    &[Part::Text(
        "{ended_by_length:stream|streams} ended by the stated Content-Length",
    )],
)];

/// Channel changes, if there were any.
pub(super) const CHANNEL_CHANGES: &[SummaryRow] = &[
    SummaryRow::text(
        "zapping",
        &[RowCondition::NotZero("zaps")],
        &[
            Part::Text("{zaps:channel change|channel changes}"),
            Part::If("zaps_failed", "; {} FAILED ("),
            Part::List(&[
                ("zaps_failed_503", "{} with status 503"),
                ("zaps_failed_status", "{} with another status"),
                ("zaps_failed_connect", "{} without a connection"),
                ("zaps_failed_silent", "{} silent"),
                ("zaps_failed_broken", "{} with a broken response"),
                ("zaps_failed_not_ts", "{} no transport stream"),
                ("zaps_failed_wrong_channel", "{} another channel"),
                (
                    "zaps_failed_no_picture",
                    "{} video without a random-access point",
                ),
                ("zaps_failed_local", "{} the tester's own limits"),
            ]),
            Part::If("zaps_failed", ")"),
            Part::If("zaps_unfinished", "; {} without a picture"),
        ],
    ),
    SummaryRow::distribution(
        "to new picture",
        &[RowCondition::NotZero("zaps")],
        "zap_delay",
        "p50",
    ),
];
