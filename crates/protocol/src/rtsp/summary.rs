//! RTSP rows in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// Rows of a population that publishes. If it receives nothing, no further rows follow.
pub(super) const PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent",
        &[When::Above("sent_packets")],
        &[Part::Text(
            "{sent_bitrate} of media; {sent_frames} frames in {sent_packets} packets",
        )],
    ),
    SummaryRow::distribution(
        "publish delay",
        &[When::Above("sent_packets")],
        "publish_delay",
        "p50",
    ),
    SummaryRow::text(
        "server reports",
        &[When::Above("sent_packets"), When::Above("receiver_reports")],
        &[Part::Text("{reported_lost} packets lost")],
    ),
    SummaryRow::end(&[When::Above("sent_packets"), When::NotAbove("expected")]),
];

/// Row of a population that received no packet.
pub(super) const NO_MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[When::Zero("expected")],
        &[Part::Text("none received")],
    ),
    SummaryRow::end(&[When::Zero("expected"), When::NotAbove("bitrate")]),
];

/// Jitter, and the share of packets without an exact arrival time. The few at the beginning of each
/// connection are not worth a line.
pub(super) const TIMES: &[SummaryRow] = &[
    SummaryRow::distribution("jitter", &[When::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "times",
        &[When::MoreThanPercentOf("timed_by_reading", "received")],
        &[Part::Text(
            "for {timed_by_reading/received} of packets: time of reading instead of arrival",
        )],
    ),
];

/// Delay of frames from our own publishers, lost frames, and stalls of playback, which matter more
/// than any mean.
pub(super) const FRAMES: &[SummaryRow] = &[
    SummaryRow::distribution(
        "frame delay",
        &[When::Above("frames_published")],
        "frame_delay",
        "p50",
    ),
    SummaryRow::text(
        "frames lost",
        &[When::Above("frames_published")],
        &[Part::Text(
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} missing or \
             incomplete",
        )],
    ),
    SummaryRow::text(
        "clocks",
        &[
            When::Above("frames_published"),
            When::Above("time_codes_ahead"),
        ],
        &[Part::Text(
            "{time_codes_ahead} frames arrived before they were sent: the clocks differ",
        )],
    ),
    SummaryRow::text(
        "playing",
        &[When::Above("stalls")],
        &[
            Part::Text("{stalls:stall|stalls}"),
            Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
        ],
    ),
];
