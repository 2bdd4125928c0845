//! What is measured of HTTP beside the transport stream.

use crate::media::ts::metrics::TS;

measure::metrics! {
    /// Requests of HTTP.
    pub HTTP_TS after TS;
    counters {
        /// Requests sent.
        REQUESTS = "requests", Count, "RFC 9110, 9.3.1";
        /// Answers whose head came.
        RESPONSES = "responses", Count, "RFC 9110, 15";
        /// Answers whose status is 300 or more, redirects included.
        REFUSALS = "refusals", Count, "RFC 9110, 15";
        /// Answers that sent the client on to another URL.
        REDIRECTS = "redirects", Count, "RFC 9110, 15.4";
        /// Answers that come in chunks.
        CHUNKED = "chunked", Count, "RFC 9112, 7.1";
    }
    gauges {}
    distributions {
        /// From the moment each request was sent to the end of the head of its answer.
        RESPONSE_DELAY = "response_delay", Seconds, "";
        /// From the moment a client's first request was due to the first byte of the body that brings media, redirects included.
        FIRST_BYTE_DELAY = "first_byte_delay", Seconds, "";
    }
    derived {}
}
