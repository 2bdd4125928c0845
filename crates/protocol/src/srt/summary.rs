//! What the summary of a run shows of SRT.

use measure::SummaryRow;
use measure::summary::{Part, When};

/// What a population sent. One that receives nothing has no more to show.
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
        "sent again",
        &[When::Above("pkt_sent")],
        &[
            Part::Text("{pkt_retrans} of {pkt_sent_unique} packets"),
            Part::If("pkt_snd_loss", "; the server reported {} missing"),
            Part::If("pkt_snd_drop", "; {} dropped, because they were too late"),
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
                "; {} dropped, because they were too late",
            ),
            Part::If("messages_unacked", "; {} not acknowledged at the end"),
            Part::If("messages_not_taken", "; {} found no room to wait"),
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

/// That no media came.
pub(super) const NO_MEDIA: &[SummaryRow] = &[
    SummaryRow::text(
        "media",
        &[When::Zero("pkt_recv")],
        &[Part::Text("none came")],
    ),
    SummaryRow::end(&[When::Zero("pkt_recv")]),
];

/// What came of messages.
pub(super) const MESSAGES: &[SummaryRow] = &[
    SummaryRow::text(
        "messages",
        &[When::Above("messages_expected")],
        &[
            Part::Text("{messages_whole} came whole, {message_bitrate}"),
            Part::If("messages_incomplete", "; {} are incomplete"),
            Part::If(
                "messages_early",
                "; {} came before others that were missing",
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

/// What was lost on the way, and what became of it.
pub(super) const PACKETS: &[SummaryRow] = &[
    SummaryRow::text(
        "in SRT",
        &[],
        &[
            Part::Text(
                "{pkt_rcv_loss} of {pkt_rcv_expected} packets missed: {pkt_rcv_recovered} \
                 recovered, {pkt_rcv_reordered} reordered, {pkt_rcv_drop} lost ({pkt_loss})",
            ),
            Part::If("pkt_rcv_belated", "; {} came too late"),
            Part::If("tail_lost", "; {} lost at the end of streams"),
            Part::If("pkt_rcv_undecrypt", "; {} cannot be decrypted"),
            Part::If("pkt_malformed", "; {} datagrams malformed"),
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
        "recovered before due",
        &[When::HasData("recovery_margin")],
        "recovery_margin",
        "p50",
    ),
];

/// How whole the stream was, when a viewer could begin, and how long media was on its way.
pub(super) const STREAM: &[SummaryRow] = &[
    SummaryRow::text(
        "content",
        &[When::Above("ts_packets")],
        &[Part::List(&[
            ("foreign", "{} datagrams of another source"),
            ("damaged", "{} damaged"),
            ("stray_packets", "{} packets of no datagram"),
        ])],
    ),
    SummaryRow::text(
        "stream",
        &[When::Above("ts_packets")],
        &[Part::ListOr(
            &[
                ("sync_losses", "{} losses of sync"),
                ("continuity_errors", "{} continuity errors"),
                ("transport_errors", "{} packets marked as damaged"),
                ("table_errors", "{} damaged tables"),
                ("pcr_jumps", "{} jumps of the clock"),
                ("malformed", "{} malformed packets"),
            ],
            "in sync, and every packet follows the one before",
        )],
    ),
    SummaryRow::text(
        "to picture",
        &[
            When::Above("ts_packets"),
            When::NoData("random_access_delay"),
            When::Began,
        ],
        &[Part::Text(
            "none: nothing came with which a decoder can begin",
        )],
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
            "{streams_silent:time|times} no video or audio, though the rest of the stream came",
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
            "{stamps_ahead} datagrams came before they were sent: the clocks differ",
        )],
    ),
];
