//! Counters of both sides of a transmission, under the names of libsrt's statistics
//! (`SRT_TRACEBSTATS`, the totals). Counters that libsrt lacks have a name in the same style.

use serde::Serialize;

/// Counters of a receiver since the connection was established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatistics {
    /// Data packets received, including retransmissions, duplicates and belated ones.
    pub pkt_recv: u64,
    /// Useful data packets: neither duplicates nor belated, nor beyond the window.
    pub pkt_recv_unique: u64,
    /// Packets that were missing when a later one arrived, or that the sender announced as dropped.
    pub pkt_rcv_loss: u64,
    /// Data packets received with the retransmission flag.
    pub pkt_rcv_retrans: u64,
    /// Missing packets that arrived in time as a retransmission.
    pub pkt_rcv_recovered: u64,
    /// Missing packets that arrived in time without a retransmission: the network reordered them.
    pub pkt_rcv_reordered: u64,
    /// Missing packets that were given up: the packet behind them was due, the sender dropped them,
    /// or there were too many gaps.
    pub pkt_rcv_drop: u64,
    /// Packets that arrived after they were given up, or that are too old to be remembered.
    pub pkt_rcv_belated: u64,
    /// Total delay of belated packets after their due time, in microseconds.
    pub us_rcv_belated: u64,
    /// Packets that arrived more than once.
    pub pkt_rcv_duplicate: u64,
    /// Packets refused because they were too far ahead of the others.
    pub pkt_rcv_beyond_window: u64,
    /// Bytes of received data packets, including SRT headers.
    pub byte_recv: u64,
    /// Payload bytes of the packets in `pktRecvUnique`.
    pub byte_recv_unique: u64,
    /// Full and light acknowledgements sent.
    #[serde(rename = "pktSentACK")]
    pub pkt_sent_ack: u64,
    /// Light acknowledgements sent.
    pub pkt_sent_light_ack: u64,
    /// Loss reports sent, including periodic ones.
    #[serde(rename = "pktSentNAK")]
    pub pkt_sent_nak: u64,
    /// Packets named by loss reports, counted each time.
    pub pkt_asked: u64,
    /// ACKACKs received.
    #[serde(rename = "pktRecvACKACK")]
    pub pkt_recv_ackack: u64,
    /// ACKACKs for acknowledgements that were never sent, or too long ago.
    pub pkt_recv_foreign_ackack: u64,
    /// Drop requests received.
    pub pkt_recv_drop_request: u64,
    /// Drop requests refused because they name packets too far ahead.
    pub pkt_recv_refused_drop_request: u64,
    /// Packets that are missing now.
    pub pkt_rcv_missing: u64,
    /// Packets that are kept until they are due: always 0, because none is kept.
    pub pkt_rcv_buf: u64,
    /// Latency in milliseconds; 0 without TSBPD.
    pub ms_rcv_tsb_pd_delay: u64,
    /// Smoothed RTT in microseconds (milliseconds in libsrt).
    #[serde(rename = "usRTT")]
    pub us_rtt: u64,
    /// RTT variance in microseconds.
    #[serde(rename = "usRTTVar")]
    pub us_rtt_var: u64,
}

/// Counters of a sender since the connection was established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SenderStatistics {
    /// Data packets sent, including retransmissions.
    pub pkt_sent: u64,
    /// Data packets sent for the first time.
    pub pkt_sent_unique: u64,
    /// Data packets retransmitted.
    pub pkt_retrans: u64,
    /// Packets that the receiver reported as lost, counted each time.
    pub pkt_snd_loss: u64,
    /// Reported packets that were not retransmitted, because they had been within the last RTT.
    pub pkt_snd_loss_repeated: u64,
    /// Packets dropped unacknowledged because they were too late.
    pub pkt_snd_drop: u64,
    /// Dropped packets that were never sent.
    pub pkt_snd_drop_unsent: u64,
    /// Payloads refused because the buffer was full.
    pub pkt_snd_refused: u64,
    /// Bytes sent, including SRT headers.
    pub byte_sent: u64,
    /// Payload bytes sent for the first time.
    pub byte_sent_unique: u64,
    /// Payload bytes retransmitted.
    pub byte_retrans: u64,
    /// Acknowledgements received, including light ones.
    #[serde(rename = "pktRecvACK")]
    pub pkt_recv_ack: u64,
    /// Acknowledgements of packets that were never sent. They are ignored.
    #[serde(rename = "pktRecvFutureACK")]
    pub pkt_recv_future_ack: u64,
    /// Loss reports received.
    #[serde(rename = "pktRecvNAK")]
    pub pkt_recv_nak: u64,
    /// Ranges in loss reports with packets that were never sent, or with repeated packets. They are
    /// ignored.
    pub pkt_recv_lying_ranges: u64,
    /// ACKACKs sent.
    #[serde(rename = "pktSentACKACK")]
    pub pkt_sent_ackack: u64,
    /// Drop requests sent.
    pub pkt_sent_drop_request: u64,
    /// Answers discarded because too many were waiting.
    pub pkt_unanswered: u64,
    /// Packets in the buffer now: not sent, or not acknowledged.
    pub pkt_snd_buf: u64,
    /// Packets in the buffer that were sent.
    pub pkt_flight_size: u64,
    /// Payload bytes in the buffer now.
    pub byte_snd_buf: u64,
    /// Time from the oldest to the youngest packet in the buffer, in milliseconds.
    pub ms_snd_buf: u64,
    /// Free space of the receiver, in packets.
    pub pkt_flow_window: u64,
    /// Bandwidth limit in bit/s; 0 if unlimited.
    pub bps_max_bandwidth: u64,
    /// Smoothed RTT in microseconds (milliseconds in libsrt).
    #[serde(rename = "usRTT")]
    pub us_rtt: u64,
    /// RTT variance in microseconds.
    #[serde(rename = "usRTTVar")]
    pub us_rtt_var: u64,
}
