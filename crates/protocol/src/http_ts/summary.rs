//! What the summary of a run shows of transport streams.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// That nothing tells what was lost, or that no packet came.
pub(super) const NO_STAMPS: &[SummaryRow] = &[
    SummaryRow::text(
        "loss",
        &[When::Zero("expected"), When::Above("bitrate")],
        &[Part::Text("unknown: nothing in it says what was sent")],
    ),
    SummaryRow::text(
        "media",
        &[When::Zero("expected"), When::NotAbove("bitrate")],
        &[Part::Text("none came")],
    ),
    SummaryRow::end(&[When::Zero("expected"), When::NotAbove("bitrate")]),
];

/// Of which packets the time is known. A few at the beginning of each connection are not worth a
/// line.
pub(super) const TIMES: &[SummaryRow] = &[SummaryRow::text(
    "times",
    &[When::MoreThanPercentOf("timed_by_reading", "ts_packets")],
    &[Part::Text(
        "of {timed_by_reading/ts_packets} of packets: when they were read, not when they came",
    )],
)];

/// How whole the streams were, and when a viewer could begin, where that was looked at.
pub(super) const STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "content",
        &[When::Above("ts_packets")],
        &[Part::List(&[
            ("foreign", "{} datagrams of another group or source"),
            ("old_channel", "{} of them of the channel before"),
            ("damaged", "{} damaged"),
            ("stray_packets", "{} packets of no datagram"),
            ("late", "{} too old to tell"),
        ])],
    ),
    SummaryRow::text(
        "stream",
        &[When::Above("ts_packets")],
        &[Part::ListOr(
            &[
                ("sync_losses", "{} losses of sync"),
                ("continuity_errors", "{} continuity errors"),
                ("transport_errors", "{} packets marked as damaged"),
                ("table_errors", "{} damaged tables"),
                ("pcr_jumps", "{} jumps of the clock"),
                ("malformed", "{} malformed packets"),
            ],
            "in sync, and every packet follows the one before",
        )],
    ),
    SummaryRow::text(
        "to picture",
        &[
            When::Above("ts_packets"),
            When::NoData("random_access_delay"),
            When::Began,
        ],
        &[Part::Text(
            "none: nothing came with which a decoder can begin",
        )],
    ),
    SummaryRow::distribution(
        "to picture",
        &[
            When::Above("ts_packets"),
            When::HasData("random_access_delay"),
        ],
        "random_access_delay",
        "p50",
    ),
    SummaryRow::text(
        "silent",
        &[When::Above("streams_silent")],
        &[Part::Text(
            "{streams_silent:time|times} no video or audio, though the rest of the stream came",
        )],
    ),
    SummaryRow::distribution(
        "relay delay",
        &[When::Above("ts_packets"), When::HasData("datagram_delay")],
        "datagram_delay",
        "p50",
    ),
    SummaryRow::text(
        "clocks",
        &[When::Above("ts_packets"), When::Above("stamps_ahead")],
        &[Part::Text(
            "{stamps_ahead} datagrams came before they were sent: the clocks differ",
        )],
    ),
];

/// Streams that ended at the server's word.
pub(super) const ENDS: &[SummaryRow] = &[SummaryRow::text(
    "ends",
    &[When::Above("ended_by_length")],
    &[Part::Text(
        "{ended_by_length:stream|streams} ended by the stated Content-Length",
    )],
)];

/// How changes of channel went, where there were any.
pub(super) const CHANGES: &[SummaryRow] = &[
    SummaryRow::text(
        "zapping",
        &[When::NotZero("zaps")],
        &[
            Part::Text("{zaps:change of channel|changes of channel}"),
            Part::If("zaps_failed", "; {} FAILED ("),
            Part::List(&[
                ("zaps_failed_503", "{} with status 503"),
                ("zaps_failed_status", "{} with another status"),
                ("zaps_failed_connect", "{} without a connection"),
                ("zaps_failed_silent", "{} silent"),
                ("zaps_failed_broken", "{} broken off"),
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
        &[When::NotZero("zaps")],
        "zap_delay",
        "p50",
    ),
];
