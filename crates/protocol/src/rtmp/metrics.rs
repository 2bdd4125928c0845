//! What is measured of RTMP beside its frames.

use crate::media::frames::metrics::FRAMES_GROUP;

measure::metrics! {
    /// Commands and streams of RTMP.
    pub RTMP after FRAMES_GROUP;
    counters {
        /// Commands sent.
        COMMANDS = "commands", Count, "RTMP, 7.2";
        /// Answers to commands, and statuses, that came.
        ANSWERS = "answers", Count, "RTMP, 7.2";
        /// Answers and statuses that say no: `_error`, or the level `error`.
        REFUSALS = "refusals", Count, "RTMP, 7.2";
        /// Handshakes in which S2 did not repeat C1. Players go on, and so do clients.
        HANDSHAKES_WITHOUT_ECHO = "handshakes_without_echo", Count, "RTMP, 5.2.4";
        /// Commands of the server without a name, or that cannot be read otherwise. They are passed
        /// over.
        UNREADABLE_COMMANDS = "unreadable_commands", Count, "RTMP, 7.1.1";
        /// Messages of media in another message stream than the one that `createStream` named, such
        /// as 0. They count as those of the stream, as for players.
        OTHER_STREAM_MEDIA = "other_stream_media", Count, "RTMP, 7.2.1.3";
        /// Frames of video that came.
        VIDEO_FRAMES = "video_frames", Count, "";
        /// Frames of audio that came.
        AUDIO_FRAMES = "audio_frames", Count, "";
        /// Frames of video with which a decoder can begin.
        KEY_FRAMES = "key_frames", Count, "";
        /// Messages of media that are no frames: what decoders need beforehand, ends, metadata.
        MEDIA_CONFIGS = "media_configs", Count, "";
        /// Messages of metadata.
        METADATA = "metadata", Count, "RTMP, 7.1.2";
        /// Acknowledgements sent: the server wants one for each window of bytes.
        ACKNOWLEDGEMENTS = "acknowledgements", Count, "RTMP, 5.4.3";
        /// Messages of media that are cut off, or whose coding cannot be told.
        MALFORMED = "malformed", Count, "";
        /// Messages of media in a coding or packing that is not known, so that nobody can say
        /// whether they are frames. They are in no other figure but the bytes on the wire.
        UNKNOWN_MEDIA = "unknown_media", Count, "";
        /// Messages with frames of further tracks of a stream. Only one track of video and one of
        /// audio are measured, those whose frames came first. Of several tracks in one message, the
        /// first counts for all.
        OTHER_TRACKS = "other_tracks", Count, "Enhanced RTMP v2, Multitrack";
        /// Streams of sound or pictures that had stopped when their client was told to leave, or
        /// when the server unpublished the stream, while the other one played on: of which nothing
        /// had come for 2 s, and for 4 times the longest gap before. The silence is a stall, too.
        STREAMS_SILENT = "streams_silent", Count, "";
        /// Frames that left, of clients that publish: the connection took all of them. Counted once
        /// a second.
        SENT_FRAMES = "sent_frames", Count, "";
        /// Bytes of payload in them.
        SENT_BYTES = "sent_bytes", Bytes, "";
        /// The same with the headers of chunks.
        SENT_WIRE_BYTES = "sent_wire_bytes", Bytes, "";
        /// Frames that were due and were left out, because the connection had not taken those
        /// before within `drop_after`. Of clients that publish.
        NOT_TAKEN = "not_taken", Count, "";
    }
    gauges {}
    distributions {
        /// From the moment a connection stood, with TLS where it is over TLS, to the end of the
        /// handshake of RTMP.
        HANDSHAKE_DELAY = "handshake_delay", Seconds, "RTMP, 5.2";
        /// From `connect` as sent to its answer.
        CONNECT_COMMAND_DELAY = "connect_command_delay", Seconds, "RTMP, 7.2.1.1";
        /// From `createStream` as sent to its answer.
        CREATE_STREAM_DELAY = "create_stream_delay", Seconds, "RTMP, 7.2.1.3";
        /// From `play` as sent to `NetStream.Play.Start`, or to the first media where that came
        /// before it.
        PLAY_DELAY = "play_delay", Seconds, "RTMP, 7.2.2.1";
        /// From `publish` as sent to `NetStream.Publish.Start`.
        PUBLISH_DELAY = "publish_delay", Seconds, "RTMP, 7.2.2.6";
        /// What TCP holds back: of each frame that is published, from when it was due to when the
        /// connection had taken all of it. The kernel keeps at most 16 KiB that it has not sent.
        SEND_QUEUE_DELAY = "send_queue_delay", Seconds, "tcp(7), TCP_NOTSENT_LOWAT";
        /// The same in bytes: what is due and not taken by the connection, of each client that
        /// publishes, looked at once a second.
        SEND_QUEUE = "send_queue", Bytes, "";
        /// From `play` as sent to the first frame.
        PLAY_TO_MEDIA = "play_to_media", Seconds, "";
        /// From the moment a client's first request was due to the first frame of video with which
        /// a decoder can begin: before it a viewer sees nothing.
        KEY_FRAME_DELAY = "key_frame_delay", Seconds, "";
        /// How far audio and video come apart: of each frame of audio, how much later or earlier it
        /// came than the latest frame of video, either way, once the difference of their timestamps
        /// is taken off.
        AV_SKEW = "av_skew", Seconds, "";
    }
    derived {
        /// Media payload sent, over all streams that the population publishes.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
    }
    summary {
        super::summary::ODDITIES;
        super::summary::PUBLISHED;
        super::summary::NO_MEDIA;
        super::summary::STREAM;
        crate::summary::STARTUP;
        super::summary::FRAMES;
    }
}
