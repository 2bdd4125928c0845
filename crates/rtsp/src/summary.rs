//! RTSP rows in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Rows of a population that publishes. If it receives nothing, no further rows follow.
pub(super) const PUBLISHED: &[SummaryRow] = &[
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
pub(super) const NO_MEDIA: &[SummaryRow] = &[
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

/// Jitter, and the share of packets without an exact arrival time. The few at the beginning of each
/// connection are not worth a line.
pub(super) const ARRIVAL_TIMES: &[SummaryRow] = &[
    SummaryRow::distribution(&[RowCondition::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "timed_by_reading",
        &[RowCondition::MoreThanPercentOf(
            "timed_by_reading",
            "received",
        )],
        &[Part::Text(
            "{timed_by_reading/received} of packets have the time of reading, not of arrival",
        )],
    ),
];

/// Delay of frames from our own publishers, lost frames, and stalls of playback, which matter more
/// than any mean.
pub(super) const FRAMES: &[SummaryRow] = &[
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
    SummaryRow::text(
        "time_codes_ahead",
        &[
            RowCondition::Above("frames_published"),
            RowCondition::Above("time_codes_ahead"),
        ],
        &[Part::Text(
            "{time_codes_ahead} frames arrived before they were sent: the clocks differ",
        )],
    ),
    SummaryRow::text(
        "stalls",
        &[RowCondition::Above("stalls")],
        &[
            Part::Text("{stalls}"),
            Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
        ],
    ),
];
