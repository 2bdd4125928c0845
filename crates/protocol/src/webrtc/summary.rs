//! What the summary of a run shows of WebRTC.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// How many PeerConnections there were, and how they came about.
pub(super) const PEERS: &[SummaryRow] = &[
    SummaryRow::text(
        "connections",
        &[When::Above("peers")],
        &[
            Part::Text("{peers_connected} of {peers} stood"),
            Part::If("refusals", "; {} requests refused"),
            Part::If("unauthentic", "; {} datagrams unauthentic"),
            Part::If("replayed", "; {} replayed"),
        ],
    ),
    SummaryRow::distribution("ICE", &[When::HasData("ice_delay")], "ice_delay", "p50"),
    SummaryRow::distribution("DTLS", &[When::HasData("dtls_delay")], "dtls_delay", "p50"),
];

/// Media that was discarded.
pub(super) const UNKNOWN: &[SummaryRow] = &[SummaryRow::text(
    "unknown",
    &[When::Above("unknown_media")],
    &[Part::Text(
        "{unknown_media:packet|packets} of no agreed media, thrown away",
    )],
)];

/// What a population sent.
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

/// How evenly packets came, and what came besides.
pub(super) const TIMES: &[SummaryRow] = &[
    SummaryRow::distribution("jitter", &[When::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "recovered",
        &[When::Above("asked_packets")],
        &[Part::Text(
            "{recovered_packets} packets came because the server was asked, {asked_packets} times",
        )],
    ),
    SummaryRow::text(
        "besides",
        &[When::Above("rtx_packets")],
        &[Part::Text("{rtx_packets} packets of retransmission")],
    ),
    SummaryRow::text(
        "speakers",
        &[When::Above("video_switches")],
        &[
            Part::Text("{video_switches:video|videos} took the place of another"),
            Part::IfData("switch_delay", "; agreed after {switch_delay.p50} (p50)"),
        ],
    ),
    SummaryRow::text(
        "server says",
        &[When::Above("slow_link_lost")],
        &[Part::Text(
            "{slow_link_lost} packets lost in {slow_downlinks} slow links to clients and \
             {slow_uplinks} from them",
        )],
    ),
];

/// How long frames of a publisher of ours were on their way, how many did not come, and where
/// playing would have stood still.
pub(super) const PLAYING: &[SummaryRow] = &[
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
        "playing",
        &[When::Above("stalls")],
        &[
            Part::Text("{stalls:stall|stalls}"),
            Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
        ],
    ),
];
