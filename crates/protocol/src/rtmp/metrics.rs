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
    derived {}
    summary {
        super::summary::NO_MEDIA;
        super::summary::STREAM;
        crate::summary::STARTUP;
        super::summary::FRAMES;
    }
}
