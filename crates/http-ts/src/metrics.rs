//! HTTP metrics, in addition to those of transport streams.

use measure::KeyFigure;

use kit::media::ts::metrics::TS;
use kit::summary;

measure::metrics! {
    /// HTTP requests.
    pub HTTP_TS after TS;
    counters {
        /// Requests sent.
        REQUESTS = "requests", Count, "RFC 9110, 9.3.1";
        /// Responses whose head was received.
        RESPONSES = "responses", Count, "RFC 9110, 15";
        /// Responses with a status of 300 or more, including redirects.
        REFUSALS = "refusals", Count, "RFC 9110, 15";
        /// Responses that redirected the client to another URL.
        REDIRECTS = "redirects", Count, "RFC 9110, 15.4";
        /// Responses with chunked bodies.
        CHUNKED = "chunked", Count, "RFC 9112, 7.1";
        /// Streams that the server ended by a stated `Content-Length`, of which no more than that
        /// was received. A live stream has no length.
        ENDED_BY_LENGTH = "ended_by_length", Count, "RFC 9112, 6.3";
    }
    gauges {}
    distributions {
        /// Time from sending each request to the end of the response head.
        RESPONSE_DELAY = "response_delay", Seconds, "";
        /// Time from when a client's first request was due to the first byte of the body that
        /// carries media, including redirects.
        FIRST_BYTE_DELAY = "first_byte_delay", Seconds, "";
    }
    derived {}
    summary {
        super::summary::NO_STAMPS;
        summary::MEDIA_ROWS;
        super::summary::TIMES;
        summary::STARTUP_ROWS;
        super::summary::CONTENT;
        summary::TS_STREAM;
        summary::CODED_PICTURES;
        super::summary::ENDS;
        kit::zapping::SUMMARY;
    }
    starts {
        RESPONSE_DELAY;
        FIRST_BYTE_DELAY;
    }
    key_figures {
        KeyFigure::value("loss");
        KeyFigure::p95("random_access_delay");
        KeyFigure::value("continuity_errors");
        KeyFigure::value("bitrate");
    }
}
