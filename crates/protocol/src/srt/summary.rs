//! Rows of SRT in the summary of a run.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// Media sent by a population. Ends the summary of a population that receives nothing.
pub(super) const PUBLISHED: &[SummaryRow] = &[
    SummaryRow::text(
        "sent",
        &[When::Above("pkt_sent")],
        &[
            Part::Text("{sent_bitrate} of media, {sent_wire_bitrate} on the wire"),
            Part::If("not_taken", "; {} packets could not be sent"),
        ],
    ),
    SummaryRow::text(
        "retransmitted",
        &[When::Above("pkt_sent")],
        &[
            Part::Text("{pkt_retrans} of {pkt_sent_unique} packets"),
            Part::If("pkt_snd_loss", "; {} reported missing by the server"),
            Part::If("pkt_snd_drop", "; {} dropped because they were too late"),
            Part::If("pkt_snd_unacked", "; {} not acknowledged at the end"),
        ],
    ),
    SummaryRow::text(
        "messages",
        &[When::Above("messages_sent")],
        &[
            Part::Text("{messages_acknowledged} of {messages_sent} acknowledged"),
            Part::If(
                "messages_dropped",
                "; {} dropped because they were too late",
            ),
            Part::If("messages_unacked", "; {} not acknowledged at the end"),
            Part::If("messages_not_taken", "; {} refused by the full send buffer"),
        ],
    ),
    SummaryRow::distribution(
        "round trip",
        &[When::Above("pkt_sent"), When::HasData("rtt")],
        "rtt",
        "p50",
    ),
    SummaryRow::distribution(
        "send queue",
        &[When::Above("pkt_sent"), When::HasData("send_queue_delay")],
        "send_queue_delay",
        "p50",
    ),
    SummaryRow::distribution(
        "send buffer",
        &[When::Above("pkt_sent"), When::HasData("snd_buffer")],
        "snd_buffer",
        "p50",
    ),
    SummaryRow::end(&[When::Above("pkt_sent"), When::Zero("pkt_recv")]),
];

/// Row for a population that received no media.
pub(super) const NO_MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[When::Zero("pkt_recv")],
        &[Part::Text("none received")],
    ),
    SummaryRow::end(&[When::Zero("pkt_recv")]),
];

/// Messages received.
pub(super) const MESSAGES: &[SummaryRow] = &[
    SummaryRow::text(
        "messages",
        &[When::Above("messages_expected")],
        &[
            Part::Text("{messages_whole} received whole, {message_bitrate}"),
            Part::If("messages_incomplete", "; {} incomplete"),
            Part::If(
                "messages_early",
                "; {} received before others that were missing",
            ),
            Part::If("message_contradictions", "; {} packets contradict others"),
        ],
    ),
    SummaryRow::distribution(
        "message time",
        &[When::HasData("message_time")],
        "message_time",
        "p50",
    ),
];

/// Losses in the network, and their recovery.
pub(super) const PACKETS: &[SummaryRow] = &[
    SummaryRow::text(
        "in SRT",
        &[],
        &[
            Part::Text(
                "{pkt_rcv_loss} of {pkt_rcv_expected} packets missing: {pkt_rcv_recovered} \
                 recovered, {pkt_rcv_reordered} reordered, {pkt_rcv_drop} lost ({pkt_loss})",
            ),
            Part::If("pkt_rcv_belated", "; {} arrived too late"),
            Part::If("tail_lost", "; {} lost at the end of streams"),
            Part::If("pkt_rcv_undecrypt", "; {} cannot be decrypted"),
            Part::If("pkt_malformed", "; {} malformed datagrams"),
        ],
    ),
    SummaryRow::distribution("round trip", &[When::HasData("rtt")], "rtt", "p50"),
    SummaryRow::distribution(
        "latency",
        &[When::HasData("agreed_latency")],
        "agreed_latency",
        "p50",
    ),
    SummaryRow::distribution(
        "recovery margin",
        &[When::HasData("recovery_margin")],
        "recovery_margin",
        "p50",
    ),
];

/// Integrity of the stream, time to the first picture, and delay of media.
pub(super) const STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "content",
        &[When::Above("ts_packets")],
        &[Part::List(&[
            ("foreign", "{} datagrams of another source"),
            ("damaged", "{} damaged"),
            ("stray_packets", "{} packets outside of a datagram"),
        ])],
    ),
    SummaryRow::text(
        "stream",
        &[When::Above("ts_packets")],
        &[Part::ListOr(
            &[
                ("sync_losses", "{} sync losses"),
                ("continuity_errors", "{} continuity errors"),
                ("transport_errors", "{} packets marked as damaged"),
                ("table_errors", "{} damaged tables"),
                ("pcr_jumps", "{} clock jumps"),
                ("malformed", "{} malformed packets"),
            ],
            "in sync, without errors",
        )],
    ),
    SummaryRow::text(
        "to picture",
        &[
            When::Above("ts_packets"),
            When::NoData("random_access_delay"),
            When::Began,
        ],
        &[Part::Text("none: no random-access point received")],
    ),
    SummaryRow::distribution(
        "to picture",
        &[
            When::Above("ts_packets"),
            When::HasData("random_access_delay"),
        ],
        "random_access_delay",
        "p50",
    ),
    SummaryRow::text(
        "silent",
        &[When::Above("streams_silent")],
        &[Part::Text(
            "{streams_silent:time|times} no video or audio, while the rest of the stream arrived",
        )],
    ),
    SummaryRow::distribution(
        "media delay",
        &[When::Above("ts_packets"), When::HasData("datagram_delay")],
        "datagram_delay",
        "p50",
    ),
    SummaryRow::text(
        "clocks",
        &[When::Above("ts_packets"), When::Above("stamps_ahead")],
        &[Part::Text(
            "{stamps_ahead} datagrams arrived before they were sent: the clocks differ",
        )],
    ),
];
