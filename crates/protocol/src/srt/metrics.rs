//! What is measured of SRT beside the transport stream. Counters of packets are called as libsrt's
//! statistics call them.

use measure::TableColumn;
use measure::metric::Statistic;

use crate::media::ts::metrics::TS;
use crate::summary;

measure::metrics! {
    /// Packets of SRT, and what was sent again.
    pub SRT after TS;
    counters {
        /// Data packets that were due to come, as far as their numbers tell: those that came in
        /// time, and those that were given up.
        PKT_RCV_EXPECTED = "pkt_rcv_expected", Count, "";
        /// Data packets that came, whatever they were.
        PKT_RECV = "pkt_recv", Count, "libsrt, pktRecvTotal";
        /// Of these, the ones that came in time and for the first time: what a player would have
        /// got.
        PKT_RECV_UNIQUE = "pkt_recv_unique", Count, "libsrt, pktRecvUniqueTotal";
        /// Packets that were missing when a later one came.
        PKT_RCV_LOSS = "pkt_rcv_loss", Count, "libsrt, pktRcvLossTotal";
        /// Packets that came marked as sent again, needed or not.
        PKT_RCV_RETRANS = "pkt_rcv_retrans", Count, "libsrt, pktRcvRetrans";
        /// Of the missing packets, those that came in time because they were sent again.
        PKT_RCV_RECOVERED = "pkt_rcv_recovered", Count, "";
        /// Of the missing packets, those that came in time by themselves: the network had reordered
        /// them.
        PKT_RCV_REORDERED = "pkt_rcv_reordered", Count, "";
        /// Of the missing packets, those that were given up, because the latency was over: they
        /// are lost to the player.
        PKT_RCV_DROP = "pkt_rcv_drop", Count, "libsrt, pktRcvDropTotal";
        /// Packets that came after they had been given up.
        PKT_RCV_BELATED = "pkt_rcv_belated", Count, "libsrt, pktRcvBelated";
        /// Packets that came more than once.
        PKT_RCV_DUPLICATE = "pkt_rcv_duplicate", Count, "";
        /// Packets that were refused, because they were too far ahead of the others.
        PKT_RCV_BEYOND_WINDOW = "pkt_rcv_beyond_window", Count, "";
        /// Packets that came in time and cannot be decrypted.
        PKT_RCV_UNDECRYPT = "pkt_rcv_undecrypt", Count, "libsrt, pktRcvUndecryptTotal";
        /// Of the stamped packets that are expected, those at the very end of a stream that did not
        /// come. Nothing in SRT tells of them: they are known of streams that another population of
        /// the run published, once that has left and the server has ended the stream.
        TAIL_LOST = "tail_lost", Count, "";
        /// Messages that were due to come, of clients that receive messages, as far as their
        /// numbers and packets tell: those that came whole, and those of which packets were given
        /// up.
        MESSAGES_EXPECTED = "messages_expected", Count, "SRT, 3.1";
        /// Of these, the ones that came whole.
        MESSAGES_WHOLE = "messages_whole", Count, "SRT, 3.1";
        /// Of these, the ones that need not be in order, and were whole while packets before them
        /// were missing.
        MESSAGES_EARLY = "messages_early", Count, "SRT, 3.1";
        /// Messages of which some packets came, and others were given up.
        MESSAGES_INCOMPLETE = "messages_incomplete", Count, "";
        /// Packets that contradict others of the same message, such as a second first one.
        MESSAGE_CONTRADICTIONS = "message_contradictions", Count, "SRT, 3.1";
        /// Bytes of whole messages.
        MESSAGE_BYTES = "message_bytes", Bytes, "";
        /// Messages that clients gave to SRT to be sent. Each is acknowledged, dropped, or not
        /// acknowledged at the end.
        MESSAGES_SENT = "messages_sent", Count, "SRT, 3.1";
        /// Of these, the ones that the server acknowledged to their last packet.
        MESSAGES_ACKNOWLEDGED = "messages_acknowledged", Count, "SRT, 3.2.4";
        /// Of these, the ones that were dropped, because `message_ttl` was over before the server
        /// had acknowledged all of them.
        MESSAGES_DROPPED = "messages_dropped", Count, "SRT, 3.2.9";
        /// Of these, the ones that were neither when the client ended.
        MESSAGES_UNACKED = "messages_unacked", Count, "";
        /// Messages that were due and found no room in the send buffer. Their packets are part of
        /// `not_taken`.
        MESSAGES_NOT_TAKEN = "messages_not_taken", Count, "";
        /// Datagrams that are no packets of SRT, or are for another socket.
        PKT_MALFORMED = "pkt_malformed", Count, "SRT, 3";
        /// Acknowledgements sent.
        PKT_SENT_ACK = "pkt_sent_ack", Count, "libsrt, pktSentACKTotal";
        /// Loss reports sent, by which missing packets are asked for.
        PKT_SENT_NAK = "pkt_sent_nak", Count, "libsrt, pktSentNAKTotal";
        /// Data packets that left, retransmissions included, of clients that publish. What is sent
        /// is counted once a second.
        PKT_SENT = "pkt_sent", Count, "libsrt, pktSentTotal";
        /// Of these, the ones that left for the first time.
        PKT_SENT_UNIQUE = "pkt_sent_unique", Count, "libsrt, pktSentUniqueTotal";
        /// Data packets that were sent again because the server asked for them.
        PKT_RETRANS = "pkt_retrans", Count, "libsrt, pktRetransTotal";
        /// Packets that the server reported as lost, as often as it did.
        PKT_SND_LOSS = "pkt_snd_loss", Count, "libsrt, pktSndLossTotal";
        /// Packets that were dropped unacknowledged, because their latency was over, or of messages
        /// `message_ttl`.
        PKT_SND_DROP = "pkt_snd_drop", Count, "libsrt, pktSndDropTotal";
        /// Packets that had left and were not acknowledged when the client ended, the latency and
        /// 0.2 s after the last of them: lost at the very end of the stream, where nothing behind
        /// them shows it. Clients that publish messages wait longer, as long as the run lets them.
        PKT_SND_UNACKED = "pkt_snd_unacked", Count, "";
        /// Acknowledgements that came.
        PKT_RECV_ACK = "pkt_recv_ack", Count, "libsrt, pktRecvACKTotal";
        /// Loss reports that came.
        PKT_RECV_NAK = "pkt_recv_nak", Count, "libsrt, pktRecvNAKTotal";
        /// Packets of media that were due and never left: no room in the buffer of what is not
        /// acknowledged, or in the network stack. Of messages those are not in it that were dropped
        /// when `message_ttl` was over.
        NOT_TAKEN = "not_taken", Count, "";
        /// Bytes of media that left for the first time.
        SENT_BYTES = "sent_bytes", Bytes, "libsrt, byteSentUniqueTotal";
        /// Bytes that left, with the headers of SRT, UDP and IP, retransmissions included.
        SENT_WIRE_BYTES = "sent_wire_bytes", Bytes, "";
    }
    gauges {}
    distributions {
        /// The round-trip time as SRT measures it, smoothed, of each client once a second: from an
        /// acknowledgement to its answer, or as the server states it to who publishes.
        RTT = "rtt", Seconds, "SRT, 4.10; libsrt, msRTT";
        /// The latency that client and server agreed upon.
        AGREED_LATENCY = "agreed_latency", Seconds, "SRT, 4.5; libsrt, msRcvTsbPdDelay";
        /// How long before it was due a packet came that was sent again in time: what is left of
        /// the latency.
        RECOVERY_MARGIN = "recovery_margin", Seconds, "";
        /// From the first packet of a message that came to when the message could be handed on: it
        /// was whole, and where it is to be in order, so was all before it, or given up.
        MESSAGE_TIME = "message_time", Seconds, "";
        /// How long after it was due a packet came that was given up.
        BELATED_BY = "belated_by", Seconds, "libsrt, pktRcvAvgBelatedTime";
        /// What SRT holds back: of each packet that is published, from when it was due to when it
        /// left for the first time. It waits in the send buffer while others are sent again, the
        /// bandwidth is used up, or the server has no room.
        SEND_QUEUE_DELAY = "send_queue_delay", Seconds, "SRT, 5.1";
        /// What waits to be sent or acknowledged, from its oldest to its youngest packet, of each
        /// client that publishes, once a second.
        SND_BUFFER = "snd_buffer", Seconds, "libsrt, msSndBuf";
    }
    derived {
        /// Share of the expected packets that did not come in time: the loss that is left after
        /// retransmission.
        "pkt_loss", Ratio, "", LossRatio(PKT_RCV_EXPECTED, PKT_RECV_UNIQUE);
        /// Share of the expected messages that did not come whole.
        "message_loss", Ratio, "", LossRatio(MESSAGES_EXPECTED, MESSAGES_WHOLE);
        /// Bytes of whole messages a second.
        "message_bitrate", BitsPerSecond, "", Rate(MESSAGE_BYTES, 8);
        /// Media sent, over all streams that the population publishes.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
        /// The same with retransmissions and headers.
        "sent_wire_bitrate", BitsPerSecond, "", Rate(SENT_WIRE_BYTES, 8);
    }
    table {
        TableColumn::smaller("pkt_loss", "pkt_loss", Statistic::Value, ["lost", "in SRT"]);
        TableColumn::smaller("pkt_rcv_retrans", "pkt_rcv_retrans", Statistic::Value, ["sent", "again"]);
        TableColumn::larger("recovery_margin_min", "recovery_margin", Statistic::Min, ["spare", "ms"]);
    }
    summary {
        super::summary::PUBLISHED;
        super::summary::NO_MEDIA;
        super::summary::MESSAGES;
        summary::MEDIA;
        super::summary::PACKETS;
        summary::STARTUP;
        super::summary::STREAM;
    }
}
