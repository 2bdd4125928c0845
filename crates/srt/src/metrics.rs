//! Metrics of SRT in addition to those of the transport stream. Packet counters have the names of
//! libsrt's statistics.

use measure::metric::Statistic;
use measure::{KeyFigure, TableColumn};

use kit::media::ts::metrics::TS;
use kit::summary;

measure::metrics! {
    /// Packets, messages and retransmissions of SRT.
    pub SRT after TS;
    counters {
        /// Data packets expected, according to their numbers: those that arrived in time, and those
        /// that were given up.
        PKT_RCV_EXPECTED = "pkt_rcv_expected", Count, "";
        /// Data packets received, including retransmissions, duplicates and late ones.
        PKT_RECV = "pkt_recv", Count, "libsrt, pktRecvTotal";
        /// Data packets received in time and for the first time: those that a player would have
        /// got.
        PKT_RECV_UNIQUE = "pkt_recv_unique", Count, "libsrt, pktRecvUniqueTotal";
        /// Packets that were missing when a later one arrived.
        PKT_RCV_LOSS = "pkt_rcv_loss", Count, "libsrt, pktRcvLossTotal";
        /// Packets received with the retransmission flag, needed or not.
        PKT_RCV_RETRANS = "pkt_rcv_retrans", Count, "libsrt, pktRcvRetrans";
        /// Missing packets that arrived in time because they were retransmitted.
        PKT_RCV_RECOVERED = "pkt_rcv_recovered", Count, "";
        /// Missing packets that arrived in time without a retransmission: the network reordered
        /// them.
        PKT_RCV_REORDERED = "pkt_rcv_reordered", Count, "";
        /// Missing packets that were given up because the latency had passed: they are lost to the
        /// player.
        PKT_RCV_DROP = "pkt_rcv_drop", Count, "libsrt, pktRcvDropTotal";
        /// Packets that arrived after they had been given up.
        PKT_RCV_BELATED = "pkt_rcv_belated", Count, "libsrt, pktRcvBelated";
        /// Packets that arrived more than once.
        PKT_RCV_DUPLICATE = "pkt_rcv_duplicate", Count, "";
        /// Packets refused because they were too far ahead of the others.
        PKT_RCV_BEYOND_WINDOW = "pkt_rcv_beyond_window", Count, "";
        /// Packets that arrived in time, but cannot be decrypted.
        PKT_RCV_UNDECRYPT = "pkt_rcv_undecrypt", Count, "libsrt, pktRcvUndecryptTotal";
        /// Expected stamped packets that were lost at the very end of a stream. SRT does not reveal
        /// them: they are known for streams that another population of the run published, once it
        /// has left and the server has ended the stream.
        TAIL_LOST = "tail_lost", Count, "";
        /// Messages expected by clients that receive messages, according to message and packet
        /// numbers: those that arrived whole, and those of which packets were given up.
        MESSAGES_EXPECTED = "messages_expected", Count, "SRT, 3.1";
        /// Expected messages that arrived whole.
        MESSAGES_WHOLE = "messages_whole", Count, "SRT, 3.1";
        /// Whole messages that need not be in order, and arrived while packets before them were
        /// missing.
        MESSAGES_EARLY = "messages_early", Count, "SRT, 3.1";
        /// Messages of which some packets arrived, and others were given up.
        MESSAGES_INCOMPLETE = "messages_incomplete", Count, "";
        /// Packets that contradict others of the same message, such as a second first packet.
        MESSAGE_CONTRADICTIONS = "message_contradictions", Count, "SRT, 3.1";
        /// Bytes of whole messages.
        MESSAGE_BYTES = "message_bytes", Bytes, "";
        /// Messages that clients passed to SRT for sending. Each is acknowledged, dropped, or not
        /// acknowledged at the end.
        MESSAGES_SENT = "messages_sent", Count, "SRT, 3.1";
        /// Sent messages that the server acknowledged up to their last packet.
        MESSAGES_ACKNOWLEDGED = "messages_acknowledged", Count, "SRT, 3.2.4";
        /// Sent messages dropped because `message_ttl` passed before the server had acknowledged
        /// all of their packets.
        MESSAGES_DROPPED = "messages_dropped", Count, "SRT, 3.2.9";
        /// Sent messages that were neither acknowledged nor dropped when the client ended.
        MESSAGES_UNACKED = "messages_unacked", Count, "";
        /// Messages that were due, but found no space in the send buffer. Their packets are part of
        /// `not_taken`.
        MESSAGES_NOT_TAKEN = "messages_not_taken", Count, "";
        /// Datagrams that are not SRT packets, or are for another socket.
        PKT_MALFORMED = "pkt_malformed", Count, "SRT, 3";
        /// Acknowledgements sent.
        PKT_SENT_ACK = "pkt_sent_ack", Count, "libsrt, pktSentACKTotal";
        /// Loss reports sent, which request missing packets.
        PKT_SENT_NAK = "pkt_sent_nak", Count, "libsrt, pktSentNAKTotal";
        /// Data packets sent by clients that publish, including retransmissions. Counted once a
        /// second.
        PKT_SENT = "pkt_sent", Count, "libsrt, pktSentTotal";
        /// Data packets sent for the first time.
        PKT_SENT_UNIQUE = "pkt_sent_unique", Count, "libsrt, pktSentUniqueTotal";
        /// Data packets retransmitted because the server requested them, or in message mode did not
        /// acknowledge them.
        PKT_RETRANS = "pkt_retrans", Count, "libsrt, pktRetransTotal";
        /// Packets that the server reported as lost, counted each time.
        PKT_SND_LOSS = "pkt_snd_loss", Count, "libsrt, pktSndLossTotal";
        /// Packets dropped unacknowledged because their latency had passed, or for messages
        /// `message_ttl`.
        PKT_SND_DROP = "pkt_snd_drop", Count, "libsrt, pktSndDropTotal";
        /// Packets that were sent, but not acknowledged when the client ended, the latency and
        /// 0.2 s after the last of them: lost at the very end of the stream, where no later packet
        /// reveals them. Clients that publish messages wait longer, as long as the run allows.
        PKT_SND_UNACKED = "pkt_snd_unacked", Count, "";
        /// Acknowledgements received.
        PKT_RECV_ACK = "pkt_recv_ack", Count, "libsrt, pktRecvACKTotal";
        /// Loss reports received.
        PKT_RECV_NAK = "pkt_recv_nak", Count, "libsrt, pktRecvNAKTotal";
        /// Media packets that were due but never left: the buffer of unacknowledged packets or the
        /// network stack had no space. Messages that were dropped after `message_ttl` are not
        /// included.
        NOT_TAKEN = "not_taken", Count, "";
        /// Media bytes sent for the first time.
        SENT_BYTES = "sent_bytes", Bytes, "libsrt, byteSentUniqueTotal";
        /// Bytes sent, including retransmissions and the headers of SRT, UDP and IP.
        SENT_WIRE_BYTES = "sent_wire_bytes", Bytes, "";
    }
    gauges {}
    distributions {
        /// Smoothed round-trip time of SRT, of each client once a second: from an acknowledgement
        /// to its answer, or for publishers as the server reports it.
        RTT = "rtt", Seconds, "SRT, 4.10; libsrt, msRTT";
        /// Latency that client and server negotiated.
        AGREED_LATENCY = "agreed_latency", Seconds, "SRT, 4.5; libsrt, msRcvTsbPdDelay";
        /// Time from the arrival of a successful retransmission to the due time of the packet: the
        /// rest of the latency.
        RECOVERY_MARGIN = "recovery_margin", Seconds, "";
        /// Time from the first arrival of a packet of a message until the message could be
        /// delivered: it was whole, and if it must be in order, everything before it was whole or
        /// given up.
        MESSAGE_TIME = "message_time", Seconds, "";
        /// Delay after its due time of a packet that arrived after it was given up.
        BELATED_BY = "belated_by", Seconds, "libsrt, pktRcvAvgBelatedTime";
        /// Delay that SRT adds to each published packet: from its due time until it was first sent.
        /// The packet waits in the send buffer while others are retransmitted, the bandwidth is
        /// used up, or the server has no space.
        SEND_QUEUE_DELAY = "send_queue_delay", Seconds, "SRT, 5.1";
        /// Time from the oldest to the youngest packet that waits to be sent or acknowledged, of
        /// each client that publishes, once a second.
        SND_BUFFER = "snd_buffer", Seconds, "libsrt, msSndBuf";
    }
    derived {
        /// Share of the expected packets that did not arrive in time: the loss that remains after
        /// retransmission.
        "pkt_loss", Ratio, "", LossRatio(PKT_RCV_EXPECTED, PKT_RECV_UNIQUE);
        /// Share of the expected messages that did not arrive whole.
        "message_loss", Ratio, "", LossRatio(MESSAGES_EXPECTED, MESSAGES_WHOLE);
        /// Bit rate of whole messages.
        "message_bitrate", BitsPerSecond, "", Rate(MESSAGE_BYTES, 8);
        /// Bit rate of media sent, over all streams that the population publishes.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
        /// Bit rate of media sent, including retransmissions and headers.
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
        summary::MEDIA_ROWS;
        super::summary::PACKETS;
        summary::STARTUP_ROWS;
        super::summary::CONTENT;
        summary::TS_STREAM;
        summary::CODED_PICTURES;
        kit::zapping::SUMMARY;
    }
    starts {
        AGREED_LATENCY;
    }
    key_figures {
        KeyFigure::value("loss");
        KeyFigure::p95("startup_delay");
        KeyFigure::value("pkt_loss");
        KeyFigure::p95("datagram_delay");
        KeyFigure::value("bitrate");
        KeyFigure::value("sent_bitrate");
        KeyFigure::p95("send_queue_delay");
    }
    features {
        &[
            MESSAGES_EXPECTED,
            MESSAGES_WHOLE,
            MESSAGES_EARLY,
            MESSAGES_INCOMPLETE,
            MESSAGE_CONTRADICTIONS,
            MESSAGE_BYTES,
        ];
        &[
            MESSAGES_SENT,
            MESSAGES_ACKNOWLEDGED,
            MESSAGES_DROPPED,
            MESSAGES_UNACKED,
            MESSAGES_NOT_TAKEN,
        ];
        &[
            PKT_SENT,
            PKT_SENT_UNIQUE,
            PKT_RETRANS,
            PKT_SND_LOSS,
            PKT_SND_DROP,
            PKT_SND_UNACKED,
            PKT_RECV_ACK,
            PKT_RECV_NAK,
            NOT_TAKEN,
            SENT_BYTES,
            SENT_WIRE_BYTES,
        ];
    }
}
