//! What the summary of a run shows of RTSP.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// What a population sent. One that receives nothing has no more to show.
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
        "server says",
        &[When::Above("sent_packets"), When::Above("receiver_reports")],
        &[Part::Text("{reported_lost} packets lost on the way to it")],
    ),
    SummaryRow::end(&[When::Above("sent_packets"), When::NotAbove("expected")]),
];

/// That no packet came.
pub(super) const NO_MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[When::Zero("expected")],
        &[Part::Text("none came")],
    ),
    SummaryRow::end(&[When::Zero("expected"), When::NotAbove("bitrate")]),
];

/// How evenly packets came, and of which that is known. A few at the beginning of each connection
/// are not worth a line.
pub(super) const TIMES: &[SummaryRow] = &[
    SummaryRow::distribution("jitter", &[When::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "times",
        &[When::MoreThanPercentOf("timed_by_reading", "received")],
        &[Part::Text(
            "of {timed_by_reading/received} of packets: when they were read, not when they came",
        )],
    ),
];

/// How long frames of a publisher of ours were on their way, how many did not come, and where
/// playing would have stood still: that matters more than any mean.
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
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} did not come \
             whole",
        )],
    ),
    SummaryRow::text(
        "clocks",
        &[
            When::Above("frames_published"),
            When::Above("time_codes_ahead"),
        ],
        &[Part::Text(
            "{time_codes_ahead} frames came before they were sent: the clocks differ",
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
