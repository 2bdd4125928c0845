//! Summary rows that all media protocols share.

use measure::SummaryRow;
use measure::summary::{
    Part::{IfData, ListOr, Text},
    RowCondition::{
        Above, HasData, NoData, NotAbove, NotZero, OnlyStartedInWarmUp, StartedAfterWarmUp, Zero,
    },
    RowContent,
};

/// Packet loss and bit rate.
pub const MEDIA_ROWS: &[SummaryRow] = &[
    SummaryRow::text(
        "loss",
        &[NotZero("expected")],
        &[Text(
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
        &[Above("bitrate")],
        &[Text("{bitrate} of media, {wire_bitrate} on the wire")],
    ),
];

/// Delay of frames from our own publishers, and lost frames.
pub const CODED_PICTURES: &[SummaryRow] = &[
    SummaryRow::distribution(&[Above("frames_published")], "frame_delay", "p50"),
    SummaryRow::text(
        "frame_loss",
        &[Above("frames_published")],
        &[Text(
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} missing or \
             incomplete",
        )],
    ),
];

/// Startup delay. The row is replaced by a note if all clients started in the warm-up.
pub const STARTUP_ROWS: &[SummaryRow] = &[
    SummaryRow::text(
        "startup_delay",
        &[OnlyStartedInWarmUp],
        &[Text("unknown: all clients started in the warm-up")],
    ),
    SummaryRow::distribution(&[StartedAfterWarmUp], "startup_delay", "p50"),
];

/// Rows of a population that publishes. If it receives nothing, no further rows follow.
pub const RTP_PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent_bitrate",
        &[Above("sent_packets")],
        &[Text(
            "{sent_bitrate} of media; {sent_frames} frames in {sent_packets} packets",
        )],
    ),
    SummaryRow::distribution(&[Above("sent_packets")], "publish_delay", "p50"),
    SummaryRow::text(
        "reported_lost",
        &[Above("sent_packets"), Above("receiver_reports")],
        &[Text(
            "{reported_lost:packet|packets}, in receiver reports of the server",
        )],
    ),
    SummaryRow::end(&[Above("sent_packets"), NotAbove("expected")]),
];

/// Row of a population that received no packet.
pub const NO_RTP: &[SummaryRow] = &[
    SummaryRow::text("media", &[Zero("expected")], &[Text("none received")]),
    SummaryRow::end(&[Zero("expected"), NotAbove("bitrate")]),
];

/// Integrity of a transport stream, time to the first picture, and delay of stamped datagrams.
pub const TS_STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "stream",
        &[Above("ts_packets")],
        &[ListOr(
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
            Above("ts_packets"),
            NoData("random_access_delay"),
            StartedAfterWarmUp,
        ],
        &[Text("no data: no random-access point received")],
    ),
    SummaryRow::distribution(
        &[Above("ts_packets"), HasData("random_access_delay")],
        "random_access_delay",
        "p50",
    ),
    SummaryRow::text(
        "streams_silent",
        &[Above("streams_silent")],
        &[Text(
            "{streams_silent:stream|streams} without video or audio, while the rest arrived",
        )],
    ),
    SummaryRow::distribution(
        &[Above("ts_packets"), HasData("datagram_delay")],
        "datagram_delay",
        "p50",
    ),
    SummaryRow::text(
        "stamps_ahead",
        &[Above("ts_packets"), Above("stamps_ahead")],
        &[Text(
            "{stamps_ahead} datagrams arrived before they were sent: the clocks differ",
        )],
    ),
];

/// Frames whose time codes lie in the future.
pub const TIME_CODES_AHEAD: &[SummaryRow] = &[SummaryRow::text(
    "time_codes_ahead",
    &[Above("frames_published"), Above("time_codes_ahead")],
    &[Text(
        "{time_codes_ahead} frames arrived before they were sent: the clocks differ",
    )],
)];

/// Stalls of playback, which matter more than any mean.
pub const STALLS: &[SummaryRow] = &[SummaryRow::text(
    "stalls",
    &[Above("stalls")],
    &[
        Text("{stalls}"),
        IfData("longest_gap", "; longest gap {longest_gap.max}"),
    ],
)];
