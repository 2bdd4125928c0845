//! RTSP metrics other than those of the media.

use measure::KeyFigure;

use kit::media::rtp::metrics::RTP;
use kit::summary;

measure::metrics! {
    /// RTSP requests, from the time each was due to be sent to its final answer.
    pub RTSP after RTP;
    counters {
        /// Requests sent.
        REQUESTS = "requests", Count, "RFC 2326, 6";
        /// Answers received, except provisional ones.
        RESPONSES = "responses", Count, "RFC 2326, 7";
        /// Answers with status 300 or higher, including challenges and redirects.
        REFUSALS = "refusals", Count, "RFC 2326, 7.1.1";
        /// Bytes in the control connection that are neither a message nor a frame.
        GARBAGE_BYTES = "garbage_bytes", Bytes, "";
        /// Actions started by clients: each `play` after the first, `pause`, `seek`, `scale` and
        /// `speed` of their `actions`. Resuming is part of a pause.
        ACTIONS = "actions", Count, "";
        /// Actions that the server refused. The client continues as before, and the next action
        /// follows.
        ACTIONS_REFUSED = "actions_refused", Count, "RFC 2326, 7.1.1";
        /// Refused actions with status 455: not valid in the state of the session.
        ACTIONS_REFUSED_455 = "actions_refused_455", Count, "RFC 2326, 11.3.6";
        /// Refused actions with status 457: no such range in the media.
        ACTIONS_REFUSED_457 = "actions_refused_457", Count, "RFC 2326, 11.3.8";
        /// Refused actions with status 501: not supported by the server.
        ACTIONS_REFUSED_501 = "actions_refused_501", Count, "RFC 2326, 7.1.1";
        /// Refused actions with status 551: option not supported by the server.
        ACTIONS_REFUSED_551 = "actions_refused_551", Count, "RFC 2326, 11.3.14";
        /// Actions skipped because the media ended before them.
        ACTIONS_LEFT_OUT = "actions_left_out", Count, "";
        /// Requested positions for which the answer to PLAY states no `Range`, or one that begins
        /// more than 10 s away. Servers start at a key frame, so the exact position is not
        /// required.
        RANGE_MISMATCH = "range_mismatch", Count, "RFC 2326, 12.29";
        /// Answers to PLAY that state a `Scale` other than the requested one, or none although it
        /// was not 1. If none is stated, the server plays at normal scale.
        SCALE_MISMATCH = "scale_mismatch", Count, "RFC 2326, 12.34";
        /// Answers to PLAY that state a `Speed` other than the requested one, or none although it
        /// was not 1. If none is stated, the server sends at normal speed.
        SPEED_MISMATCH = "speed_mismatch", Count, "RFC 2326, 12.35";
        /// Answers to PLAY that state a `Speed` other than 1 and after which the RTP timestamps of
        /// a stream deviated from that speed by more than a quarter until the next action. The
        /// server sends at normal speed, or gives faster media new timestamps, as for `Scale`.
        /// Judged only if it lasted at least 2 s.
        SPEED_CLOCK_MISMATCH = "speed_clock_mismatch", Count, "RFC 2326, 12.35 and B";
        /// Answers to PLAY that continue from the current position, after a pause, `scale` or
        /// `speed`, with a `Range` that begins elsewhere: more than 2 s, and more than a quarter of
        /// the played time, from the position that follows from the positions, `Scale` and `Speed`
        /// stated by the server before. The server did not do what it stated.
        POSITION_MISMATCH = "position_mismatch", Count, "RFC 2326, 12.29 and 12.34";
        /// Answers to PLAY of actions whose `RTP-Info` states neither sequence number nor timestamp
        /// of any stream's first packet. The delay to the first packet of the new position is then
        /// unknown and not recorded.
        POSITION_UNTOLD = "position_untold", Count, "RFC 2326, 12.33";
        /// Media packets sent by clients that publish. Counted once a second.
        SENT_PACKETS = "sent_packets", Count, "";
        /// Payload bytes of these packets.
        SENT_BYTES = "sent_bytes", Bytes, "";
        /// Frames whose last packet was sent, by clients that publish.
        SENT_FRAMES = "sent_frames", Count, "";
        /// Packets that were due but left out, because the server had not read earlier data on the
        /// same connection. Only of clients that publish over TCP.
        NOT_TAKEN = "not_taken", Count, "";
        /// Receiver reports of the server about published streams.
        RECEIVER_REPORTS = "receiver_reports", Count, "RFC 3550, 6.4.2";
        /// Packets of published streams that never reached the server, by its last reports.
        REPORTED_LOST = "reported_lost", Count, "RFC 3550, 6.4.1";
    }
    gauges {}
    distributions {
        /// Delay of OPTIONS, including keep-alives.
        OPTIONS_DELAY = "options_delay", Seconds, "RFC 2326, 10.1";
        /// Delay of DESCRIBE.
        DESCRIBE_DELAY = "describe_delay", Seconds, "RFC 2326, 10.2";
        /// Delay of SETUP, one value per stream.
        SETUP_DELAY = "setup_delay", Seconds, "RFC 2326, 10.4";
        /// Delay of PLAY.
        PLAY_DELAY = "play_delay", Seconds, "RFC 2326, 10.5";
        /// Delay of GET_PARAMETER, used as a keep-alive.
        GET_PARAMETER_DELAY = "get_parameter_delay", Seconds, "RFC 2326, 10.8";
        /// Delay of TEARDOWN.
        TEARDOWN_DELAY = "teardown_delay", Seconds, "RFC 2326, 10.7";
        /// Delay of PAUSE, including those that begin a seek or a change of scale or speed.
        PAUSE_DELAY = "pause_delay", Seconds, "RFC 2326, 10.6";
        /// Delay of ANNOUNCE.
        ANNOUNCE_DELAY = "announce_delay", Seconds, "RFC 2326, 10.3";
        /// Delay of RECORD.
        RECORD_DELAY = "record_delay", Seconds, "RFC 2326, 10.11";
        /// Time from sending the first ANNOUNCE to the answer to RECORD, including each SETUP: the
        /// time until a stream can be published.
        PUBLISH_DELAY = "publish_delay", Seconds, "RFC 2326, 10.3 and 10.11";
        /// Interarrival jitter of published streams, as reported by the server.
        REPORTED_JITTER = "reported_jitter", Seconds, "RFC 3550, 6.4.1";
        /// Round-trip time to the machine that receives the media (`media.receiver`), including
        /// opening ports; the minimum of each client. Times reported by that machine, such as that
        /// of the first packet, are wrong by at most half of it.
        RECEIVER_ROUND_TRIP = "receiver_round_trip", Seconds, "";
        /// Time from sending the first PLAY to the first media packet.
        PLAY_TO_MEDIA = "play_to_media", Seconds, "";
        /// Time from when a change of position (`seek`, or `play` with `from`) was due to the
        /// answer to its PLAY. Includes the PAUSE before it.
        SEEK_DELAY = "seek_delay", Seconds, "";
        /// Time from when a change of position was due to the first packet of the new position, of
        /// any stream, as identified by RTP-Info.
        SEEK_TO_MEDIA = "seek_to_media", Seconds, "RFC 2326, 12.33";
        /// Time from when a change of position was due to a jump of the media clock in some stream,
        /// if that jump came after the first packet identified by RTP-Info. Packets before the jump
        /// still belong to the previous position, so this is the delay that a viewer sees, and
        /// `seek_to_media` is too short.
        SEEK_TO_JUMP = "seek_to_jump", Seconds, "RFC 2326, B";
        /// Distance between the requested position and the one where the server begins, as stated
        /// in its `Range`, in either direction.
        SEEK_DISTANCE = "seek_distance", Seconds, "RFC 2326, 12.29";
        /// Time from when resuming after a pause was due to the answer to PLAY.
        RESUME_DELAY = "resume_delay", Seconds, "";
        /// Time from when resuming after a pause was due to the first packet after it, as
        /// identified by RTP-Info.
        RESUME_TO_MEDIA = "resume_to_media", Seconds, "RFC 2326, 12.33";
        /// Time from when a change of `Scale` was due to the answer to its PLAY. Includes the PAUSE
        /// before it.
        SCALE_DELAY = "scale_delay", Seconds, "RFC 2326, 12.34";
        /// Time from when a change of `Scale` was due to the first packet sent at that scale, as
        /// identified by RTP-Info.
        SCALE_TO_MEDIA = "scale_to_media", Seconds, "RFC 2326, 12.34";
        /// Time from when a change of `Speed` was due to the answer to its PLAY. Includes the PAUSE
        /// before it.
        SPEED_DELAY = "speed_delay", Seconds, "RFC 2326, 12.35";
        /// Time from when a change of `Speed` was due to the first packet sent at that speed, as
        /// identified by RTP-Info.
        SPEED_TO_MEDIA = "speed_to_media", Seconds, "RFC 2326, 12.35";
    }
    derived {
        /// Bit rate of the media payload sent, over all streams that the population publishes.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
    }    summary {
        summary::RTP_PUBLISHED;
        summary::NO_RTP;
        summary::MEDIA_ROWS;
        super::summary::ARRIVAL_TIMES;
        summary::STARTUP_ROWS;
        summary::CODED_PICTURES;
        summary::TIME_CODES_AHEAD;
        summary::STALLS;
        kit::zapping::SUMMARY;
    }
    starts {
        OPTIONS_DELAY;
        DESCRIBE_DELAY;
        SETUP_DELAY;
        PLAY_DELAY;
        ANNOUNCE_DELAY;
        RECORD_DELAY;
        PUBLISH_DELAY;
        PLAY_TO_MEDIA;
    }
    key_figures {
        KeyFigure::value("loss");
        KeyFigure::p95("startup_delay");
        KeyFigure::value("bitrate");
        KeyFigure::value("sent_bitrate");
        KeyFigure::p95("publish_delay");
    }
    features {
        &[
            ACTIONS,
            ACTIONS_REFUSED,
            ACTIONS_REFUSED_455,
            ACTIONS_REFUSED_457,
            ACTIONS_REFUSED_501,
            ACTIONS_REFUSED_551,
            ACTIONS_LEFT_OUT,
            RANGE_MISMATCH,
            SCALE_MISMATCH,
            SPEED_MISMATCH,
            SPEED_CLOCK_MISMATCH,
            POSITION_MISMATCH,
            POSITION_UNTOLD,
        ];
        &[
            SENT_PACKETS,
            SENT_BYTES,
            SENT_FRAMES,
            NOT_TAKEN,
            RECEIVER_REPORTS,
            REPORTED_LOST,
        ];
    }
}
