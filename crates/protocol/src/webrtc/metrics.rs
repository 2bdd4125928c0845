//! What is measured of WebRTC beside its media.

use measure::TableColumn;
use measure::metric::Statistic;

use crate::media::rtp::metrics::RTP;
use crate::summary;

measure::metrics! {
    /// PeerConnections, and how they came about.
    pub WEBRTC after RTP;
    counters {
        /// Requests of the signalling that were sent: of WHIP and WHEP requests of HTTP, of Janus
        /// and LiveKit messages that are answered, and of LiveKit the request to join.
        REQUESTS = "requests", Count, "";
        /// Requests of Janus over HTTP that were sent a second time, on another connection: theirs
        /// ended before anything of the answer came. Those that wait for events are among them.
        REQUESTS_AGAIN = "requests_again", Count, "RFC 9112, 9.3.1";
        /// Videos that took the place of another, because somebody else talks (`last_n`): once it
        /// was agreed upon with the server.
        VIDEO_SWITCHES = "video_switches", Count, "Janus, VideoRoom";
        /// Answers to them that came, acknowledgements not counted.
        RESPONSES = "responses", Count, "";
        /// Of these, the ones that refused.
        REFUSALS = "refusals", Count, "";
        /// Answers of HTTP that sent the client elsewhere.
        REDIRECTS = "redirects", Count, "RFC 9725, 4.5";
        /// PeerConnections that were begun: both sides' descriptions were known.
        PEERS = "peers", Count, "";
        /// Of these, the ones that stood: ICE had found a way, and DTLS had agreed on keys.
        PEERS_CONNECTED = "peers_connected", Count, "";
        /// Offers in which the server let ICE begin anew, by other credentials.
        ICE_RESTARTS = "ice_restarts", Count, "RFC 8445, 9";
        /// Datagrams of media or of reports whose authentication failed. With `receive: headers`
        /// only the first packets of each stream are authenticated.
        UNAUTHENTIC = "unauthentic", Count, "RFC 3711, 3.3";
        /// The same, that had come before.
        REPLAYED = "replayed", Count, "RFC 3711, 3.3.2";
        /// Messages of STUN that were malformed, not authentic or of another session, and those
        /// from more addresses than are remembered. Indications, which keep a path open, are none
        /// of them.
        STUN_REFUSED = "stun_refused", Count, "RFC 8489, 6.3 and 9.1.3";
        /// Datagrams of a PeerConnection's socket that belong to nothing: of no protocol that is
        /// known, of DTLS when none is expected, of RTCP before there are keys.
        FOREIGN = "foreign", Count, "RFC 7983, 7";
        /// Packets that are retransmissions in a stream of their own, and padding in such a stream.
        /// What they carry counts in the stream that it belongs to: as received and reordered, or
        /// as duplicated if it had come before. One that belongs to no stream counts here alone.
        RTX_PACKETS = "rtx_packets", Count, "RFC 4588";
        /// Packets of media that belong to none of the media agreed upon, and are thrown away. If
        /// they are more than a tenth of the packets of a PeerConnection, the client fails
        /// (`unknown_media`).
        UNKNOWN_MEDIA = "unknown_media", Count, "";
        /// Packets of sound whose sender says in a header extension, which is not encrypted, that
        /// they have voice.
        VOICE_PACKETS = "voice_packets", Count, "RFC 6464, 3";
        /// Packets that were missing and that the server was asked for, each time.
        ASKED_PACKETS = "asked_packets", Count, "RFC 4585, 6.2.1";
        /// Packets that came after the server had been asked for them. They are among the received
        /// ones, and among the reordered ones.
        RECOVERED_PACKETS = "recovered_packets", Count, "";
        /// Times that the server was asked for a key frame, because too much was missing: by PLI,
        /// or by FIR where it agreed to that alone.
        PLIS_SENT = "plis_sent", Count, "RFC 4585, 6.3.1; RFC 5104, 4.3.1";
        /// Messages that told the server which packets arrived, and when.
        TRANSPORT_FEEDBACK_SENT = "transport_feedback_sent", Count,
            "draft-holmer-rmcat-transport-wide-cc-extensions-01";
        /// Packets of which the arrival was told so.
        ARRIVALS_TOLD = "arrivals_told", Count,
            "draft-holmer-rmcat-transport-wide-cc-extensions-01";
        /// Messages that told the server how much can be taken.
        REMBS_SENT = "rembs_sent", Count, "draft-alvestrand-rmcat-remb-03";
        /// Receiver reports that were sent, one for each stream.
        REPORTS_SENT = "reports_sent", Count, "RFC 3550, 6.4.2";
        /// Times that Janus said much was lost on its way to the client.
        SLOW_DOWNLINKS = "slow_downlinks", Count, "Janus, slowlink";
        /// Times that Janus said much was lost on its way from the client.
        SLOW_UPLINKS = "slow_uplinks", Count, "Janus, slowlink";
        /// Packets that Janus said were lost then.
        SLOW_LINK_LOST = "slow_link_lost", Count, "Janus, slowlink";
        /// Packets of media that left, of clients that publish. Counted once a second.
        SENT_PACKETS = "sent_packets", Count, "";
        /// Bytes of payload in them.
        SENT_BYTES = "sent_bytes", Bytes, "";
        /// Packets with voice that left, of clients that send as people talk. They are among the
        /// ones above.
        SENT_VOICE_PACKETS = "sent_voice_packets", Count, "RFC 6464, 3";
        /// Frames of which the last packet was sent, of clients that publish.
        SENT_FRAMES = "sent_frames", Count, "";
        /// Packets that were due and that the network stack did not take.
        NOT_TAKEN = "not_taken", Count, "";
        /// Reports in which the server says what it received of a stream that is published.
        RECEIVER_REPORTS = "receiver_reports", Count, "RFC 3550, 6.4.2";
        /// Packets that never reached the server, as its last reports say, of streams that are
        /// published.
        REPORTED_LOST = "reported_lost", Count, "RFC 3550, 6.4.1";
        /// Messages in which the server told when packets of ours arrived.
        TRANSPORT_FEEDBACK_RECEIVED = "transport_feedback_received", Count,
            "draft-holmer-rmcat-transport-wide-cc-extensions-01";
        /// Messages in which the server said how much it can take.
        REMBS_RECEIVED = "rembs_received", Count, "draft-alvestrand-rmcat-remb-03";
        /// Packets that the server asked for again, each time, of streams that are published.
        NACKED_PACKETS = "nacked_packets", Count, "RFC 4585, 6.2.1";
        /// Of these, the ones that were sent again.
        RETRANSMITTED_PACKETS = "retransmitted_packets", Count, "RFC 4588";
        /// Of these, the ones that were not kept any more: each stream keeps its last 512 packets.
        NACKED_TOO_LATE = "nacked_too_late", Count, "RFC 4585, 6.2.1";
        /// Key frames that the server asked for, of streams that are published.
        KEY_FRAME_REQUESTS = "key_frame_requests", Count, "RFC 4585, 6.3.1; RFC 5104, 4.3.1";
        /// Key frames that were sent before their turn because the server asked for them. Of media
        /// that is made they come with the next picture, at most four a second; of files they come
        /// when the file has one.
        EARLY_KEY_FRAMES = "early_key_frames", Count, "RFC 4585, 6.3.1; RFC 5104, 4.3.1";
        /// Key frames of which the first packet came, with `receive: decrypted`: of H.264, H.265,
        /// VP8, VP9 and AV1.
        KEY_FRAMES = "key_frames", Count, "RFC 6184, 7798, 7741, 9628";
    }
    gauges {}
    distributions {
        /// How much may be sent over a PeerConnection with all headers, as it is estimated by
        /// clients that follow what can be taken. Once a second.
        ESTIMATED_BITRATE = "estimated_bitrate", BitsPerSecond, "draft-ietf-rmcat-gcc-02";
        /// The bit rate of the video that they send for that, once a second.
        TARGET_BITRATE = "target_bitrate", BitsPerSecond, "";
        /// How many decibels below the loudest the sound of a packet is, as its sender says in a
        /// header extension, which is not encrypted: 0 to 127, which is silence.
        AUDIO_LEVEL = "audio_level", Count, "RFC 6464, 3";
        /// From the request for a WebSocket to the answer.
        WEBSOCKET_DELAY = "websocket_delay", Seconds, "RFC 6455, 4";
        /// From asking to join a room to being in it. LiveKit is asked with the request for the
        /// WebSocket.
        JOIN_DELAY = "join_delay", Seconds, "Janus, VideoRoom; LiveKit";
        /// From hearing that somebody talks whose video is not received to having agreed with the
        /// server that it is (`last_n`): when the server has taken the answer to its offer of it.
        SWITCH_DELAY = "switch_delay", Seconds, "Janus, VideoRoom";
        /// From asking for media to the server's offer.
        OFFER_DELAY = "offer_delay", Seconds, "";
        /// From our offer to the server's answer.
        ANSWER_DELAY = "answer_delay", Seconds, "RFC 9725, 4.2";
        /// From asking for a way to the TURN server to having a relayed address, of each
        /// PeerConnection.
        TURN_DELAY = "turn_delay", Seconds, "RFC 8656, 7";
        /// From the moment both sides' descriptions were known to the moment ICE had found a way.
        ICE_DELAY = "ice_delay", Seconds, "RFC 8445";
        /// From then on to the end of the handshake of DTLS.
        DTLS_DELAY = "dtls_delay", Seconds, "RFC 5764";
        /// From the end of the handshake of DTLS to the first packet of media, of PeerConnections
        /// that receive.
        FIRST_MEDIA_DELAY = "first_media_delay", Seconds, "";
        /// From the end of the handshake of DTLS to the first packet of the first key frame, with
        /// `receive: decrypted`: before it nothing can be shown.
        FIRST_KEY_FRAME_DELAY = "first_key_frame_delay", Seconds, "";
        /// From the moment a client that publishes was due to the moment media could leave.
        PUBLISH_DELAY = "publish_delay", Seconds, "";
    }
    derived {
        /// Media that left, over all streams of the population.
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
        super::summary::PUBLISHED;
        super::summary::NO_MEDIA;
        summary::MEDIA;
        super::summary::TIMES;
        summary::STARTUP;
        super::summary::PLAYING;
    }
}
