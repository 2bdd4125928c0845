//! Summary rows of RTMP.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Sent media. A population that receives nothing has no further rows.
pub(super) const PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent_bitrate",
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
        &[RowCondition::Above("sent_frames")],
        "publish_delay",
        "p50",
    ),
    SummaryRow::distribution(
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
        "handshakes_without_echo",
        &[RowCondition::Above("handshakes_without_echo")],
        &[Part::Text(
            "S2 did not echo C1 in {handshakes_without_echo:handshake|handshakes}; players ignore that",
        )],
    ),
    SummaryRow::text(
        "unreadable_commands",
        &[RowCondition::Above("unreadable_commands")],
        &[Part::Text(
            "{unreadable_commands:command|commands} of the server could not be parsed",
        )],
    ),
    SummaryRow::text(
        "other_stream_media",
        &[RowCondition::Above("other_stream_media")],
        &[Part::Text(
            "{other_stream_media:media message|media messages} in a message stream that was not created",
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
            Part::Text("{frames}: {video_frames} of video, {audio_frames} of audio"),
            Part::If("malformed", "; {} media messages malformed"),
            Part::If("unknown_media", "; {} of an unknown format"),
            Part::If("other_tracks", "; {} of other tracks"),
        ],
    ),
    SummaryRow::text(
        "bitrate",
        &[RowCondition::Above("bitrate")],
        &[Part::Text("{bitrate} of media, {wire_bitrate} on the wire")],
    ),
    SummaryRow::distribution(&[RowCondition::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "timed_by_reading",
        &[RowCondition::MoreThanPercentOf(
            "timed_by_reading",
            "frames",
        )],
        &[Part::Text(
            "{timed_by_reading/frames} of frames have the time of reading, not of arrival",
        )],
    ),
];

/// Time to the first picture, and delay of frames that a client of the run published.
pub(super) const FRAMES: &[SummaryRow] = &[
    SummaryRow::distribution(
        &[
            RowCondition::StartedAfterWarmUp,
            RowCondition::HasData("key_frame_delay"),
        ],
        "key_frame_delay",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::Above("frames_published")],
        "frame_delay",
        "p50",
    ),
    SummaryRow::text(
        "frame_loss",
        &[RowCondition::Above("frames_published")],
        &[Part::Text(
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} missing",
        )],
    ),
];

/// Stalls of playback.
pub(super) const STALLS: &[SummaryRow] = &[SummaryRow::text(
    "stalls",
    &[RowCondition::Above("frames")],
    &[
        Part::Text("{stalls}"),
        Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
        Part::IfData(
            "playout_buffer",
            "; no stall with a playout buffer of {playout_buffer.max}",
        ),
    ],
)];
