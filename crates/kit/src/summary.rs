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

/// Delay of frames from our own publishers, and lost frames.
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

/// Rows of a population that publishes. If it receives nothing, no further rows follow.
pub const RTP_PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent_bitrate",
        &[RowCondition::Above("sent_packets")],
        &[Part::Text(
            "{sent_bitrate} of media; {sent_frames} frames in {sent_packets} packets",
        )],
    ),
    SummaryRow::distribution(
        &[RowCondition::Above("sent_packets")],
        "publish_delay",
        "p50",
    ),
    SummaryRow::text(
        "reported_lost",
        &[
            RowCondition::Above("sent_packets"),
            RowCondition::Above("receiver_reports"),
        ],
        &[Part::Text(
            "{reported_lost:packet|packets}, in receiver reports of the server",
        )],
    ),
    SummaryRow::end(&[
        RowCondition::Above("sent_packets"),
        RowCondition::NotAbove("expected"),
    ]),
];

/// Row of a population that received no packet.
pub const NO_RTP: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[RowCondition::Zero("expected")],
        &[Part::Text("none received")],
    ),
    SummaryRow::end(&[
        RowCondition::Zero("expected"),
        RowCondition::NotAbove("bitrate"),
    ]),
];

/// Integrity of a transport stream, time to the first picture, and delay of stamped datagrams.
pub const TS_STREAM: &[SummaryRow] = &[
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

/// Frames whose time codes lie in the future.
pub const TIME_CODES_AHEAD: &[SummaryRow] = &[SummaryRow::text(
    "time_codes_ahead",
    &[
        RowCondition::Above("frames_published"),
        RowCondition::Above("time_codes_ahead"),
    ],
    &[Part::Text(
        "{time_codes_ahead} frames arrived before they were sent: the clocks differ",
    )],
)];

/// Stalls of playback, which matter more than any mean.
pub const STALLS: &[SummaryRow] = &[SummaryRow::text(
    "stalls",
    &[RowCondition::Above("stalls")],
    &[
        Part::Text("{stalls}"),
        Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
    ],
)];
