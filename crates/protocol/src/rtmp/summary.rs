//! Summary rows of RTMP.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Sent media. A population that receives nothing has no further rows.
pub(super) const PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent",
        &[RowCondition::Above("sent_frames")],
        &[
            Part::Text("{sent_bitrate} of media; {sent_frames} frames"),
            Part::If(
                "not_taken",
                "; {} dropped, because the server did not take them",
            ),
        ],
    ),
    SummaryRow::distribution(
        "publish delay",
        &[RowCondition::Above("sent_frames")],
        "publish_delay",
        "p50",
    ),
    SummaryRow::distribution(
        "held by TCP",
        &[RowCondition::Above("sent_frames")],
        "send_queue_delay",
        "p50",
    ),
    SummaryRow::end(&[
        RowCondition::Above("sent_frames"),
        RowCondition::Zero("frames"),
    ]),
];

/// Server faults that players tolerate.
pub(super) const ODDITIES: &[SummaryRow] = &[
    SummaryRow::text(
        "handshake",
        &[RowCondition::Above("handshakes_without_echo")],
        &[Part::Text(
            "S2 did not echo C1 in {handshakes_without_echo}; players ignore that",
        )],
    ),
    SummaryRow::text(
        "commands",
        &[RowCondition::Above("unreadable_commands")],
        &[Part::Text(
            "{unreadable_commands} from the server could not be parsed",
        )],
    ),
    SummaryRow::text(
        "other stream",
        &[RowCondition::Above("other_stream_media")],
        &[Part::Text(
            "{other_stream_media} media messages in a message stream that was not created",
        )],
    ),
];

/// Shown if no frame was received.
pub(super) const NO_MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[RowCondition::Zero("frames")],
        &[Part::Text("none received")],
    ),
    SummaryRow::end(&[RowCondition::Zero("frames")]),
];

/// Received media.
pub(super) const STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "frames",
        &[],
        &[
            Part::Text("{video_frames} of video, {audio_frames} of audio"),
            Part::If("malformed", "; {} media messages malformed"),
            Part::If("unknown_media", "; {} of an unknown format"),
            Part::If("other_tracks", "; {} of other tracks"),
        ],
    ),
    SummaryRow::text(
        "bit rate",
        &[RowCondition::Above("bitrate")],
        &[Part::Text("{bitrate} of media, {wire_bitrate} on the wire")],
    ),
    SummaryRow::distribution(
        "jitter",
        &[RowCondition::HasData("jitter")],
        "jitter",
        "mean",
    ),
    SummaryRow::text(
        "times",
        &[RowCondition::MoreThanPercentOf(
            "timed_by_reading",
            "frames",
        )],
        &[Part::Text(
            "for {timed_by_reading/frames} of frames: time of reading instead of arrival",
        )],
    ),
];

/// Time to the first picture, delay of frames that a client of the run published, and interruptions
/// of playback.
pub(super) const FRAMES: &[SummaryRow] = &[
    SummaryRow::distribution(
        "to picture",
        &[
            RowCondition::StartedAfterWarmUp,
            RowCondition::HasData("key_frame_delay"),
        ],
        "key_frame_delay",
        "p50",
    ),
    SummaryRow::distribution(
        "frame delay",
        &[RowCondition::Above("frames_published")],
        "frame_delay",
        "p50",
    ),
    SummaryRow::text(
        "frames lost",
        &[RowCondition::Above("frames_published")],
        &[Part::Text(
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} missing",
        )],
    ),
    SummaryRow::text(
        "clocks",
        &[
            RowCondition::Above("frames_published"),
            RowCondition::Above("time_codes_ahead"),
        ],
        &[Part::Text(
            "{time_codes_ahead} frames arrived before they were sent: the clocks differ",
        )],
    ),
    SummaryRow::text(
        "playing",
        &[RowCondition::Above("frames")],
        &[
            Part::Text("{stalls:stall|stalls}"),
            Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
            Part::IfData(
                "playout_buffer",
                "; clean with a buffer of {playout_buffer.max}",
            ),
        ],
    ),
];
