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
