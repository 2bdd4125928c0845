//! Rows of SRT in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Media sent by a population. Ends the summary of a population that receives nothing.
pub(super) const PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent_bitrate",
        &[RowCondition::Above("pkt_sent")],
        &[
            Part::Text("{sent_bitrate} of media, {sent_wire_bitrate} on the wire"),
            Part::If("not_taken", "; {} packets could not be sent"),
        ],
    ),
    SummaryRow::text(
        "pkt_retrans",
        &[RowCondition::Above("pkt_sent")],
        &[
            Part::Text("{pkt_retrans} of {pkt_sent_unique} packets retransmitted"),
            Part::If("pkt_snd_loss", "; {} reported missing by the server"),
            Part::If("pkt_snd_drop", "; {} dropped because they were too late"),
            Part::If("pkt_snd_unacked", "; {} not acknowledged at the end"),
        ],
    ),
    SummaryRow::text(
        "messages_acknowledged",
        &[RowCondition::Above("messages_sent")],
        &[
            Part::Text("{messages_acknowledged} of {messages_sent} sent"),
            Part::If(
                "messages_dropped",
                "; {} dropped because they were too late",
            ),
            Part::If("messages_unacked", "; {} not acknowledged at the end"),
            Part::If("messages_not_taken", "; {} refused by the full send buffer"),
        ],
    ),
    SummaryRow::distribution(
        &[
            RowCondition::Above("pkt_sent"),
            RowCondition::HasData("rtt"),
        ],
        "rtt",
        "p50",
    ),
    SummaryRow::distribution(
        &[
            RowCondition::Above("pkt_sent"),
            RowCondition::HasData("send_queue_delay"),
        ],
        "send_queue_delay",
        "p50",
    ),
    SummaryRow::distribution(
        &[
            RowCondition::Above("pkt_sent"),
            RowCondition::HasData("snd_buffer"),
        ],
        "snd_buffer",
        "p50",
    ),
    SummaryRow::end(&[
        RowCondition::Above("pkt_sent"),
        RowCondition::Zero("pkt_recv"),
    ]),
];

/// Row for a population that received no media.
pub(super) const NO_MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[RowCondition::Zero("pkt_recv")],
        &[Part::Text("none received")],
    ),
    SummaryRow::end(&[RowCondition::Zero("pkt_recv")]),
];

/// Messages received.
pub(super) const MESSAGES: &[SummaryRow] = &[
    SummaryRow::text(
        "messages_whole",
        &[RowCondition::Above("messages_expected")],
        &[
            Part::Text("{messages_whole} of {messages_expected} received whole, {message_bitrate}"),
            Part::If("messages_incomplete", "; {} incomplete"),
            Part::If(
                "messages_early",
                "; {} received before others that were missing",
            ),
            Part::If("message_contradictions", "; {} packets contradict others"),
        ],
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("message_time")],
        "message_time",
        "p50",
    ),
];

/// Losses in the network, and their recovery.
pub(super) const PACKETS: &[SummaryRow] = &[
    SummaryRow::text(
        "pkt_loss",
        &[],
        &[
            Part::Text(
                "{pkt_loss}   {pkt_rcv_drop} of {pkt_rcv_expected} packets; {pkt_rcv_loss} reported \
                 lost, {pkt_rcv_recovered} recovered, {pkt_rcv_reordered} reordered",
            ),
            Part::If("pkt_rcv_belated", "; {} arrived too late"),
            Part::If("tail_lost", "; {} lost at the end of streams"),
            Part::If("pkt_rcv_undecrypt", "; {} cannot be decrypted"),
            Part::If("pkt_malformed", "; {} malformed datagrams"),
        ],
    ),
    SummaryRow::distribution(&[RowCondition::HasData("rtt")], "rtt", "p50"),
    SummaryRow::distribution(
        &[RowCondition::HasData("agreed_latency")],
        "agreed_latency",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("recovery_margin")],
        "recovery_margin",
        "p50",
    ),
];

/// Content of the streams, as far as it was checked.
pub(super) const CONTENT: &[SummaryRow] = &[SummaryRow::text(
    "content",
    &[RowCondition::Above("ts_packets")],
    &[Part::List(&[
        ("foreign", "{:foreign datagram|foreign datagrams}"),
        ("damaged", "{} damaged"),
        ("stray_packets", "{:stray packet|stray packets}"),
    ])],
)];
