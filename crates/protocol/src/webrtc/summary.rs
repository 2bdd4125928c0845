//! WebRTC rows in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// Number of PeerConnections, and the delays of ICE and DTLS.
pub(super) const PEERS: &[SummaryRow] = &[
    SummaryRow::text(
        "connections",
        &[When::Above("peers")],
        &[
            Part::Text("{peers_connected} of {peers} connected"),
            Part::If("refusals", "; {} requests refused"),
            Part::If("unauthentic", "; {} datagrams unauthentic"),
            Part::If("replayed", "; {} replayed"),
        ],
    ),
    SummaryRow::distribution("ICE", &[When::HasData("ice_delay")], "ice_delay", "p50"),
    SummaryRow::distribution("DTLS", &[When::HasData("dtls_delay")], "dtls_delay", "p50"),
];

/// Discarded media.
pub(super) const UNKNOWN: &[SummaryRow] = &[SummaryRow::text(
    "unknown",
    &[When::Above("unknown_media")],
    &[Part::Text(
        "{unknown_media:packet|packets} of no negotiated media, discarded",
    )],
)];

/// Rows of a population that publishes.
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
        &[Part::Text(
            "{reported_lost} packets lost on the way to the server",
        )],
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

/// Jitter, retransmissions, speaker switches and slow links.
pub(super) const TIMES: &[SummaryRow] = &[
    SummaryRow::distribution("jitter", &[When::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "recovered",
        &[When::Above("asked_packets")],
        &[Part::Text(
            "{recovered_packets} packets, after {asked_packets} requests to the server",
        )],
    ),
    SummaryRow::text(
        "RTX",
        &[When::Above("rtx_packets")],
        &[Part::Text("{rtx_packets} packets of retransmission")],
    ),
    SummaryRow::text(
        "speakers",
        &[When::Above("video_switches")],
        &[
            Part::Text("{video_switches:video|videos} replaced another"),
            Part::IfData("switch_delay", "; delay {switch_delay.p50} (p50)"),
        ],
    ),
    SummaryRow::text(
        "server reports",
        &[When::Above("slow_link_lost")],
        &[Part::Text(
            "{slow_link_lost} packets lost: {slow_downlinks} slow links to clients, \
             {slow_uplinks} from clients",
        )],
    ),
];

/// Delay of frames from our own publishers, lost frames, and stalls of playback.
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
            "{frame_loss}   {frames_published-frames_delivered} of {frames_published} missing or \
             incomplete",
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
