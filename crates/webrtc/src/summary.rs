//! WebRTC rows in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Number of PeerConnections, and the delays of ICE and DTLS.
pub(super) const PEERS: &[SummaryRow] = &[
    SummaryRow::text(
        "peers_connected",
        &[RowCondition::Above("peers")],
        &[
            Part::Text("{peers_connected} of {peers:peer connection|peer connections}"),
            Part::If("refusals", "; {} requests refused"),
            Part::If("unauthentic", "; {} datagrams unauthentic"),
            Part::If("replayed", "; {} replayed"),
        ],
    ),
    SummaryRow::distribution(&[RowCondition::HasData("ice_delay")], "ice_delay", "p50"),
    SummaryRow::distribution(&[RowCondition::HasData("dtls_delay")], "dtls_delay", "p50"),
];

/// Discarded media.
pub(super) const UNKNOWN: &[SummaryRow] = &[SummaryRow::text(
    "unknown_media",
    &[RowCondition::Above("unknown_media")],
    &[Part::Text(
        "{unknown_media:packet|packets} of no negotiated media, discarded",
    )],
)];

/// Rows of a population that publishes.
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

/// Jitter, retransmissions, speaker switches and slow links.
pub(super) const RECEIVED: &[SummaryRow] = &[
    SummaryRow::distribution(&[RowCondition::HasData("jitter")], "jitter", "mean"),
    SummaryRow::text(
        "recovered_packets",
        &[RowCondition::Above("asked_packets")],
        &[Part::Text(
            "{recovered_packets} of {asked_packets} packets that were requested again",
        )],
    ),
    SummaryRow::text(
        "rtx_packets",
        &[RowCondition::Above("rtx_packets")],
        &[Part::Text("{rtx_packets} packets of retransmission")],
    ),
    SummaryRow::text(
        "video_switches",
        &[RowCondition::Above("video_switches")],
        &[
            Part::Text("{video_switches:time|times} another video took its place"),
            Part::IfData("switch_delay", "; delay {switch_delay.p50} (p50)"),
        ],
    ),
    SummaryRow::text(
        "slow_link_lost",
        &[RowCondition::Above("slow_link_lost")],
        &[Part::Text(
            "{slow_link_lost} packets lost: {slow_downlinks} slow links to clients, \
             {slow_uplinks} from clients",
        )],
    ),
];

/// Delay of frames from our own publishers, lost frames, and stalls of playback.
pub(super) const PLAYING: &[SummaryRow] = &[
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
        "stalls",
        &[RowCondition::Above("stalls")],
        &[
            Part::Text("{stalls}"),
            Part::IfData("longest_gap", "; longest gap {longest_gap.max}"),
        ],
    ),
];
