//! RTMP metrics, in addition to those of frames.

use measure::KeyFigure;

use kit::media::frames::metrics::FRAMES_GROUP;

measure::metrics! {
    /// Commands and streams of RTMP.
    pub RTMP after FRAMES_GROUP;
    counters {
        /// Commands sent.
        COMMANDS = "commands", Count, "RTMP, 7.2";
        /// Responses to commands, and status messages, received.
        ANSWERS = "answers", Count, "RTMP, 7.2";
        /// Responses and statuses that report an error: `_error`, or level `error`.
        REFUSALS = "refusals", Count, "RTMP, 7.2";
        /// Handshakes in which S2 did not echo C1. Clients continue, as players do.
        HANDSHAKES_WITHOUT_ECHO = "handshakes_without_echo", Count, "RTMP, 5.2.4";
        /// Server commands without a name, or that cannot be parsed otherwise. They are ignored.
        UNREADABLE_COMMANDS = "unreadable_commands", Count, "RTMP, 7.1.1";
        /// Media messages in another message stream than the one that `createStream` returned, such
        /// as 0. They count as media of the stream, as in players.
        OTHER_STREAM_MEDIA = "other_stream_media", Count, "RTMP, 7.2.1.3";
        /// Video frames received.
        VIDEO_FRAMES = "video_frames", Count, "";
        /// Audio frames received.
        AUDIO_FRAMES = "audio_frames", Count, "";
        /// Video frames received at which decoding can start.
        KEY_FRAMES = "key_frames", Count, "";
        /// Media messages that are no frames: decoder configurations, sequence ends, metadata.
        MEDIA_CONFIGS = "media_configs", Count, "";
        /// Metadata messages received.
        METADATA = "metadata", Count, "RTMP, 7.1.2";
        /// Acknowledgements sent. The server expects one per window of bytes.
        ACKNOWLEDGEMENTS = "acknowledgements", Count, "RTMP, 5.4.3";
        /// Media messages that are truncated, or whose codec cannot be determined.
        MALFORMED = "malformed", Count, "";
        /// Media messages of an unknown codec or packet type, which may or may not be frames. They
        /// count in no other metric except the bytes on the wire.
        UNKNOWN_MEDIA = "unknown_media", Count, "";
        /// Messages with frames of additional tracks of a stream. Only one video track and one
        /// audio track are measured: those whose frames came first. If a message holds several
        /// tracks, the first counts for all.
        OTHER_TRACKS = "other_tracks", Count, "Enhanced RTMP v2, Multitrack";
        /// Audio or video streams that had stopped while the other one played on, at the time their
        /// client left or the server unpublished the stream: nothing had arrived for 2 s, and for 4
        /// times the longest gap before. The silence counts as a stall, too.
        STREAMS_SILENT = "streams_silent", Count, "";
        /// Frames sent by publishing clients: the connection took them completely. Updated once a
        /// second.
        SENT_FRAMES = "sent_frames", Count, "";
        /// Payload bytes of these frames.
        SENT_BYTES = "sent_bytes", Bytes, "";
        /// Bytes of these frames on the wire, including chunk headers.
        SENT_WIRE_BYTES = "sent_wire_bytes", Bytes, "";
        /// Frames that publishing clients dropped when due, because the connection had not taken
        /// earlier frames within `drop_after`.
        NOT_TAKEN = "not_taken", Count, "";
    }
    gauges {}
    distributions {
        /// Time from the established connection, including TLS if used, to the end of the RTMP
        /// handshake.
        HANDSHAKE_DELAY = "handshake_delay", Seconds, "RTMP, 5.2";
        /// Time from sending `connect` to its answer.
        CONNECT_COMMAND_DELAY = "connect_command_delay", Seconds, "RTMP, 7.2.1.1";
        /// Time from sending `createStream` to its answer.
        CREATE_STREAM_DELAY = "create_stream_delay", Seconds, "RTMP, 7.2.1.3";
        /// Time from sending `play` to `NetStream.Play.Start`, or to the first media if that
        /// arrives earlier.
        PLAY_DELAY = "play_delay", Seconds, "RTMP, 7.2.2.1";
        /// Time from sending `publish` to `NetStream.Publish.Start`.
        PUBLISH_DELAY = "publish_delay", Seconds, "RTMP, 7.2.2.6";
        /// Backpressure of TCP: time from when a published frame was due until the connection had
        /// taken it completely. The kernel holds at most 16 KiB of unsent data.
        SEND_QUEUE_DELAY = "send_queue_delay", Seconds, "tcp(7), TCP_NOTSENT_LOWAT";
        /// Backlog of each publishing client, sampled once a second: bytes that are due but not
        /// taken by the connection.
        SEND_QUEUE = "send_queue", Bytes, "";
        /// Time from sending `play` to the first frame.
        PLAY_TO_MEDIA = "play_to_media", Seconds, "";
        /// Time from when a client's first request was due to the first video frame at which
        /// decoding can start. Until then a viewer sees nothing.
        KEY_FRAME_DELAY = "key_frame_delay", Seconds, "";
        /// Skew between audio and video: for each audio frame, the time between its arrival and
        /// that of the latest video frame, less the difference of their timestamps, as an absolute
        /// value.
        AV_SKEW = "av_skew", Seconds, "";
    }
    derived {
        /// Bit rate of media payload sent, over all streams that the population publishes.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
    }
    summary {
        super::summary::ODDITIES;
        super::summary::PUBLISHED;
        super::summary::NO_MEDIA;
        super::summary::STREAM;
        kit::summary::STARTUP_ROWS;
        super::summary::FRAMES;
        kit::summary::TIME_CODES_AHEAD;
        super::summary::STALLS;
        kit::zapping::SUMMARY;
    }
    starts {
        HANDSHAKE_DELAY;
        CONNECT_COMMAND_DELAY;
        CREATE_STREAM_DELAY;
        PLAY_DELAY;
        PUBLISH_DELAY;
        PLAY_TO_MEDIA;
        KEY_FRAME_DELAY;
    }
    key_figures {
        KeyFigure::value("frame_loss");
        KeyFigure::p95("startup_delay");
        KeyFigure::p95("frame_delay");
        KeyFigure::value("bitrate");
        KeyFigure::value("sent_bitrate");
        KeyFigure::p95("send_queue_delay");
    }
    features {
        &[
            SENT_FRAMES,
            SENT_BYTES,
            SENT_WIRE_BYTES,
            NOT_TAKEN,
        ];
    }
}
