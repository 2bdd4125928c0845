//! Metrics of WebRTC that are not about its media.

use measure::metric::Statistic;
use measure::{CounterId, KeyFigure, Recorder, TableColumn};

use kit::media::rtp::metrics::RTP;
use kit::summary;

measure::metrics! {
    /// PeerConnections and how they are established.
    pub WEBRTC after RTP;
    counters {
        /// Signalling requests sent: HTTP requests of WHIP and WHEP, messages of Janus and LiveKit
        /// that require an answer, and the request to join a LiveKit room.
        REQUESTS = "requests", Count, "";
        /// Janus requests over HTTP that were sent again on another connection, because theirs
        /// ended before any byte of the answer arrived. Long polls are included.
        REQUESTS_AGAIN = "requests_again", Count, "RFC 9112, 9.3.1";
        /// Videos that replaced another because the speaker changed (`last_n`). Counted when the
        /// change is negotiated with the server.
        VIDEO_SWITCHES = "video_switches", Count, "Janus, VideoRoom";
        /// Answers to signalling requests, except acknowledgements.
        RESPONSES = "responses", Count, "";
        /// Answers that refused the request or redirected the client.
        REFUSALS = "refusals", Count, "";
        /// HTTP responses that redirected the client.
        REDIRECTS = "redirects", Count, "RFC 9725, 4.5";
        /// PeerConnections started: the session descriptions of both sides were known.
        PEERS = "peers", Count, "";
        /// PeerConnections established: ICE found a path, and DTLS negotiated keys.
        PEERS_CONNECTED = "peers_connected", Count, "";
        /// ICE restarts by the server: offers with other ICE credentials.
        ICE_RESTARTS = "ice_restarts", Count, "RFC 8445, 9";
        /// Media and RTCP datagrams whose authentication failed. All media is authenticated with
        /// `receive: decrypted`, otherwise only the first packets of each stream.
        UNAUTHENTIC = "unauthentic", Count, "RFC 3711, 3.3";
        /// Authentic media and RTCP datagrams that had been received before. Media only with
        /// `receive: decrypted`.
        REPLAYED = "replayed", Count, "RFC 3711, 3.3.2";
        /// STUN messages that were malformed, not authentic, of another session, or from more
        /// addresses than are remembered. Binding indications, which keep a path open, are not
        /// counted.
        STUN_REFUSED = "stun_refused", Count, "RFC 8489, 6.3 and 9.1.3";
        /// Datagrams on the socket of a PeerConnection that belong to nothing: of an unknown
        /// protocol, DTLS when none is expected, and RTCP before keys are available.
        FOREIGN = "foreign", Count, "RFC 7983, 7";
        /// Packets of retransmission streams, including padding. The packet that a retransmission
        /// carries counts in the stream that it repairs: as received and reordered, or as
        /// duplicated if it was received before. A retransmission that belongs to no stream counts
        /// only here.
        RTX_PACKETS = "rtx_packets", Count, "RFC 4588";
        /// Media packets that belong to no negotiated media, and are discarded. If they are more
        /// than a tenth of the packets of a PeerConnection, the client fails (`unknown_media`).
        UNKNOWN_MEDIA = "unknown_media", Count, "";
        /// Audio packets that contain voice, according to a header extension by the sender, which
        /// is not encrypted.
        VOICE_PACKETS = "voice_packets", Count, "RFC 6464, 3";
        /// Missing packets requested from the server (NACK), counting every request.
        ASKED_PACKETS = "asked_packets", Count, "RFC 4585, 6.2.1";
        /// Packets that arrived after they had been requested. They are also counted as received
        /// and as reordered.
        RECOVERED_PACKETS = "recovered_packets", Count, "";
        /// Key frame requests sent because too many packets were missing: PLI, or FIR if the server
        /// supports only FIR.
        PLIS_SENT = "plis_sent", Count, "RFC 4585, 6.3.1; RFC 5104, 4.3.1";
        /// Messages that reported the arrival times of packets to the server (transport-wide
        /// congestion control).
        TRANSPORT_FEEDBACK_SENT = "transport_feedback_sent", Count,
            "draft-holmer-rmcat-transport-wide-cc-extensions-01";
        /// Packets whose arrival was reported to the server.
        ARRIVALS_TOLD = "arrivals_told", Count,
            "draft-holmer-rmcat-transport-wide-cc-extensions-01";
        /// Bandwidth estimates sent to the server (REMB).
        REMBS_SENT = "rembs_sent", Count, "draft-alvestrand-rmcat-remb-03";
        /// Receiver reports sent, one for each stream.
        REPORTS_SENT = "reports_sent", Count, "RFC 3550, 6.4.2";
        /// Reports by Janus of high loss on the way to the client.
        SLOW_DOWNLINKS = "slow_downlinks", Count, "Janus, slowlink";
        /// Reports by Janus of high loss on the way from the client.
        SLOW_UPLINKS = "slow_uplinks", Count, "Janus, slowlink";
        /// Lost packets in these reports by Janus.
        SLOW_LINK_LOST = "slow_link_lost", Count, "Janus, slowlink";
        /// Media packets sent by publishing clients. Counted once a second.
        SENT_PACKETS = "sent_packets", Count, "";
        /// Payload bytes of the media packets sent.
        SENT_BYTES = "sent_bytes", Bytes, "";
        /// Packets with voice sent by clients with `talk`. They are included in `sent_packets`.
        SENT_VOICE_PACKETS = "sent_voice_packets", Count, "RFC 6464, 3";
        /// Frames published: those whose last packet was sent.
        SENT_FRAMES = "sent_frames", Count, "";
        /// Packets that were due but not accepted by the network stack.
        NOT_TAKEN = "not_taken", Count, "";
        /// Receiver reports from the server on published streams.
        RECEIVER_REPORTS = "receiver_reports", Count, "RFC 3550, 6.4.2";
        /// Packets of published streams that never reached the server, according to its last
        /// reports.
        REPORTED_LOST = "reported_lost", Count, "RFC 3550, 6.4.1";
        /// Messages in which the server reported the arrival times of sent packets (transport-wide
        /// congestion control).
        TRANSPORT_FEEDBACK_RECEIVED = "transport_feedback_received", Count,
            "draft-holmer-rmcat-transport-wide-cc-extensions-01";
        /// Bandwidth estimates received from the server (REMB).
        REMBS_RECEIVED = "rembs_received", Count, "draft-alvestrand-rmcat-remb-03";
        /// Packets of published streams requested by the server (NACK), counting every request.
        NACKED_PACKETS = "nacked_packets", Count, "RFC 4585, 6.2.1";
        /// Requested packets of published streams that were retransmitted.
        RETRANSMITTED_PACKETS = "retransmitted_packets", Count, "RFC 4588";
        /// Requested packets of published streams that were no longer kept: each stream keeps its
        /// last 512 packets.
        NACKED_TOO_LATE = "nacked_too_late", Count, "RFC 4585, 6.2.1";
        /// Key frames of published streams requested by the server.
        KEY_FRAME_REQUESTS = "key_frame_requests", Count, "RFC 4585, 6.3.1; RFC 5104, 4.3.1";
        /// Key frames sent ahead of schedule because the server requested them. In generated media,
        /// the next picture becomes a key frame, at most four times a second. A file keeps its own
        /// key frames.
        EARLY_KEY_FRAMES = "early_key_frames", Count, "RFC 4585, 6.3.1; RFC 5104, 4.3.1";
        /// Key frames whose first packet arrived, with `receive: decrypted`: of H.264, H.265, VP8,
        /// VP9 and AV1.
        KEY_FRAMES = "key_frames", Count, "RFC 6184, 7798, 7741, 9628";
    }
    gauges {}
    distributions {
        /// Estimated bandwidth of a PeerConnection, including all headers, for clients with
        /// `congestion: follow`. Recorded once a second.
        ESTIMATED_BITRATE = "estimated_bitrate", BitsPerSecond, "draft-ietf-rmcat-gcc-02";
        /// Bit rate of the video sent by clients with `congestion: follow`. Recorded once a second.
        TARGET_BITRATE = "target_bitrate", BitsPerSecond, "";
        /// Audio level of a packet in decibels below the maximum, according to a header extension
        /// by the sender, which is not encrypted: 0 to 127, where 127 is silence.
        AUDIO_LEVEL = "audio_level", Count, "RFC 6464, 3";
        /// Time from the request for a WebSocket to the answer.
        WEBSOCKET_DELAY = "websocket_delay", Seconds, "RFC 6455, 4";
        /// Time from the request to join a room until the client is in it. In LiveKit, the request
        /// for the WebSocket is the request to join.
        JOIN_DELAY = "join_delay", Seconds, "Janus, VideoRoom; LiveKit";
        /// Time from the report that a participant speaks whose video is not received until that
        /// video is negotiated (`last_n`): until the server accepted the answer to its offer.
        SWITCH_DELAY = "switch_delay", Seconds, "Janus, VideoRoom";
        /// Time from the request for media to the server's offer.
        OFFER_DELAY = "offer_delay", Seconds, "";
        /// Time from the client's offer to the server's answer.
        ANSWER_DELAY = "answer_delay", Seconds, "RFC 9725, 4.2";
        /// Time from the start of the connection to the TURN server until a relayed address is
        /// allocated, for each PeerConnection.
        TURN_DELAY = "turn_delay", Seconds, "RFC 8656, 7";
        /// Time from the moment the session descriptions of both sides are known until ICE finds a
        /// path.
        ICE_DELAY = "ice_delay", Seconds, "RFC 8445";
        /// Time from the end of ICE to the end of the DTLS handshake.
        DTLS_DELAY = "dtls_delay", Seconds, "RFC 5764";
        /// Time from the end of the DTLS handshake to the first media packet, for PeerConnections
        /// that receive.
        FIRST_MEDIA_DELAY = "first_media_delay", Seconds, "";
        /// Time from the end of the DTLS handshake to the first packet of the first key frame, with
        /// `receive: decrypted`. No video can be shown before.
        FIRST_KEY_FRAME_DELAY = "first_key_frame_delay", Seconds, "";
        /// Time from the planned start of a publishing client until media can be sent.
        PUBLISH_DELAY = "publish_delay", Seconds, "";
    }
    derived {
        /// Bit rate of the media sent, over all streams of the population.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
    }
    table {
        TableColumn::larger("sent_bitrate", "sent_bitrate", Statistic::Value, ["sent", "Mb/s"]);
        TableColumn::smaller(
            "ice_delay", "ice_delay", Statistic::Quantile(0.95), ["ICE", "p95 ms"]
        );
        TableColumn::smaller(
            "dtls_delay", "dtls_delay", Statistic::Quantile(0.95), ["DTLS", "p95 ms"]
        );
    }
    summary {
        super::summary::PEERS;
        super::summary::UNKNOWN;
        summary::RTP_PUBLISHED;
        summary::NO_RTP;
        summary::MEDIA_ROWS;
        super::summary::RECEIVED;
        summary::STARTUP_ROWS;
        summary::CODED_PICTURES;
        summary::STALLS;
        kit::zapping::SUMMARY;
    }
    starts {
        WEBSOCKET_DELAY;
        JOIN_DELAY;
        OFFER_DELAY;
        ANSWER_DELAY;
        TURN_DELAY;
        ICE_DELAY;
        DTLS_DELAY;
        FIRST_MEDIA_DELAY;
        FIRST_KEY_FRAME_DELAY;
        PUBLISH_DELAY;
    }
    key_figures {
        KeyFigure::value("loss");
        KeyFigure::p95("startup_delay");
        KeyFigure::p95("frame_delay");
        KeyFigure::value("bitrate");
        KeyFigure::value("sent_bitrate");
        KeyFigure::p95("publish_delay");
    }
    features {
        &[
            SLOW_DOWNLINKS,
            SLOW_UPLINKS,
            SLOW_LINK_LOST,
        ];
        &[
            SENT_PACKETS,
            SENT_BYTES,
            SENT_VOICE_PACKETS,
            SENT_FRAMES,
            NOT_TAKEN,
            RECEIVER_REPORTS,
            REPORTED_LOST,
            TRANSPORT_FEEDBACK_RECEIVED,
            REMBS_RECEIVED,
            NACKED_PACKETS,
            RETRANSMITTED_PACKETS,
            NACKED_TOO_LATE,
            KEY_FRAME_REQUESTS,
            EARLY_KEY_FRAMES,
        ];
    }
}

/// Adds to counters what was counted since the last call: `now` is counted so far, and `before` was
/// at the last call.
pub(super) fn add_new<const N: usize>(
    recorder: &mut Recorder,
    counters: [CounterId; N],
    before: &mut [u64; N],
    now: [u64; N],
) {
    let before = std::mem::replace(before, now);
    for (index, counter) in counters.into_iter().enumerate() {
        recorder.add(counter, now[index] - before[index]);
    }
}
