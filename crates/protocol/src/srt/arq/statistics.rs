//! What the two sides of a transmission counted, under the names of libsrt's statistics
//! (`SRT_TRACEBSTATS`, the totals). What libsrt does not count has a name in the same style.

use serde::Serialize;

/// What a receiver counted since the connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatistics {
    /// Data packets that arrived, retransmissions, duplicates and belated ones included.
    pub pkt_recv: u64,
    /// Of these, the ones that were of use: neither duplicates nor belated, nor beyond the window.
    pub pkt_recv_unique: u64,
    /// Packets that were missing when a later one arrived, or that the sender said it drops.
    pub pkt_rcv_loss: u64,
    /// Data packets that arrived marked as retransmitted.
    pub pkt_rcv_retrans: u64,
    /// Of the packets that were missing, those that came as a retransmission in time.
    pub pkt_rcv_recovered: u64,
    /// Of the packets that were missing, those that came in time without being retransmitted: the
    /// network had reordered them.
    pub pkt_rcv_reordered: u64,
    /// Missing packets that were given up: the packet behind them was due, or the sender drops
    /// them, or there were too many gaps.
    pub pkt_rcv_drop: u64,
    /// Packets that came after they were given up, or so old that it is not known any more.
    pub pkt_rcv_belated: u64,
    /// How long after they were due the belated ones came, in microseconds, all together.
    pub us_rcv_belated: u64,
    /// Packets that came more than once.
    pub pkt_rcv_duplicate: u64,
    /// Packets that were refused because they were too far ahead of the others.
    pub pkt_rcv_beyond_window: u64,
    /// Bytes of data packets that arrived, with the headers of SRT.
    pub byte_recv: u64,
    /// Bytes of payload of those counted in `pktRecvUnique`.
    pub byte_recv_unique: u64,
    /// Full and light acknowledgements sent.
    #[serde(rename = "pktSentACK")]
    pub pkt_sent_ack: u64,
    /// Of these, light ones.
    pub pkt_sent_light_ack: u64,
    /// Loss reports sent, periodic ones included.
    #[serde(rename = "pktSentNAK")]
    pub pkt_sent_nak: u64,
    /// Packets that these named, as often as they did.
    pub pkt_asked: u64,
    /// ACKACKs that arrived.
    #[serde(rename = "pktRecvACKACK")]
    pub pkt_recv_ackack: u64,
    /// ACKACKs of acknowledgements that were never sent, or too long ago.
    pub pkt_recv_foreign_ackack: u64,
    /// Drop requests that arrived.
    pub pkt_recv_drop_request: u64,
    /// Drop requests that were refused, because they name packets too far ahead.
    pub pkt_recv_refused_drop_request: u64,
    /// Packets that are missing now.
    pub pkt_rcv_missing: u64,
    /// Packets that wait to be due now. 0 where they are not kept.
    pub pkt_rcv_buf: u64,
    /// The latency in milliseconds, 0 without TSBPD.
    pub ms_rcv_tsb_pd_delay: u64,
    /// The smoothed RTT, in microseconds (libsrt says milliseconds).
    #[serde(rename = "usRTT")]
    pub us_rtt: u64,
    /// Its variance, in microseconds.
    #[serde(rename = "usRTTVar")]
    pub us_rtt_var: u64,
}

/// What a sender counted since the connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SenderStatistics {
    /// Data packets sent, retransmissions included.
    pub pkt_sent: u64,
    /// Data packets sent for the first time.
    pub pkt_sent_unique: u64,
    /// Data packets sent again.
    pub pkt_retrans: u64,
    /// Packets that the receiver reported as lost, as often as it did.
    pub pkt_snd_loss: u64,
    /// Reported packets that were not sent again because they had been within the last RTT.
    pub pkt_snd_loss_repeated: u64,
    /// Packets that were dropped unacknowledged because they were too late.
    pub pkt_snd_drop: u64,
    /// Of these, the ones that never were sent.
    pub pkt_snd_drop_unsent: u64,
    /// Payloads that were not taken because the buffer was full.
    pub pkt_snd_refused: u64,
    /// Bytes sent, with the headers of SRT.
    pub byte_sent: u64,
    /// Bytes of payload sent for the first time.
    pub byte_sent_unique: u64,
    /// Bytes of payload sent again.
    pub byte_retrans: u64,
    /// Acknowledgements that arrived, light ones included.
    #[serde(rename = "pktRecvACK")]
    pub pkt_recv_ack: u64,
    /// Of these, those of packets that were never sent. They are passed over.
    #[serde(rename = "pktRecvFutureACK")]
    pub pkt_recv_future_ack: u64,
    /// Loss reports that arrived.
    #[serde(rename = "pktRecvNAK")]
    pub pkt_recv_nak: u64,
    /// Ranges in these of packets that were never sent, or that name packets twice. They are
    /// passed over.
    pub pkt_recv_lying_ranges: u64,
    /// ACKACKs sent.
    #[serde(rename = "pktSentACKACK")]
    pub pkt_sent_ackack: u64,
    /// Drop requests sent.
    pub pkt_sent_drop_request: u64,
    /// Answers that were not sent because too many waited.
    pub pkt_unanswered: u64,
    /// Packets in the buffer now: not sent, or not acknowledged.
    pub pkt_snd_buf: u64,
    /// Of these, the ones that were sent.
    pub pkt_flight_size: u64,
    /// Bytes of payload in the buffer now.
    pub byte_snd_buf: u64,
    /// From the oldest to the youngest packet in the buffer, in milliseconds.
    pub ms_snd_buf: u64,
    /// For how many packets the receiver has room.
    pub pkt_flow_window: u64,
    /// The bandwidth that it may take, in bit/s; 0 where it is not bounded.
    pub bps_max_bandwidth: u64,
    /// The smoothed RTT, in microseconds (libsrt says milliseconds).
    #[serde(rename = "usRTT")]
    pub us_rtt: u64,
    /// Its variance, in microseconds.
    #[serde(rename = "usRTTVar")]
    pub us_rtt_var: u64,
}
