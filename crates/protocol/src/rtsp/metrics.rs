//! What is measured of RTSP beside its media.

use crate::media::rtp::metrics::RTP;

measure::metrics! {
    /// Requests of RTSP, from the moment each was due to be sent to its final answer.
    pub RTSP after RTP;
    counters {
        /// Requests sent.
        REQUESTS = "requests", Count, "RFC 2326, 6";
        /// Answers that came, provisional ones not counted.
        RESPONSES = "responses", Count, "RFC 2326, 7";
        /// Answers whose status is 300 or more, challenges and redirects included.
        REFUSALS = "refusals", Count, "RFC 2326, 7.1.1";
        /// Bytes in the control connection that are neither a message nor a frame.
        GARBAGE_BYTES = "garbage_bytes", Bytes, "";
    }
    gauges {}
    distributions {
        /// Delay of OPTIONS, keep-alives included.
        OPTIONS_DELAY = "options_delay", Seconds, "RFC 2326, 10.1";
        /// Delay of DESCRIBE.
        DESCRIBE_DELAY = "describe_delay", Seconds, "RFC 2326, 10.2";
        /// Delay of SETUP, each media of its own.
        SETUP_DELAY = "setup_delay", Seconds, "RFC 2326, 10.4";
        /// Delay of PLAY.
        PLAY_DELAY = "play_delay", Seconds, "RFC 2326, 10.5";
        /// Delay of GET_PARAMETER, as keep-alive.
        GET_PARAMETER_DELAY = "get_parameter_delay", Seconds, "RFC 2326, 10.8";
        /// Delay of TEARDOWN.
        TEARDOWN_DELAY = "teardown_delay", Seconds, "RFC 2326, 10.7";
        /// From PLAY as sent to the first media packet.
        PLAY_TO_MEDIA = "play_to_media", Seconds, "";
    }
    derived {}
}
