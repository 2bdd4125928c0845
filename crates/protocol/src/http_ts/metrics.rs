//! HTTP metrics, in addition to those of transport streams.

use measure::KeyFigure;

use crate::media::ts::metrics::TS;
use crate::summary;

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
        /// Channel changes: connections closed by a client's `zap` in order to request another URL.
        /// Counted when the change begins.
        ZAPS = "zaps", Count, "";
        /// Channel changes that failed before the first random-access point of the new channel: it
        /// was refused, did not arrive, was not a transport stream, or was another channel. The
        /// client then waits for the next change, as a viewer would. The events of the run give the
        /// exact failure (`zap_failed`). If clients `zap`, this must be 0 unless the scenario sets
        /// another threshold on it.
        ZAPS_FAILED = "zaps_failed", Count, "";
        /// Failed changes that were answered with status 503: the server has as many clients as it
        /// can serve or is allowed to.
        ZAPS_FAILED_503 = "zaps_failed_503", Count, "RFC 9110, 15.6.4";
        /// Failed changes that were answered with another status that carries no stream, or with a
        /// redirect loop.
        ZAPS_FAILED_STATUS = "zaps_failed_status", Count, "RFC 9110, 15";
        /// Failed changes without a connection.
        ZAPS_FAILED_CONNECT = "zaps_failed_connect", Count, "";
        /// Failed changes without data in time: no response, no packet after it, or no further
        /// packets.
        ZAPS_FAILED_SILENT = "zaps_failed_silent", Count, "";
        /// Failed changes whose connection ended early, or whose response could not be parsed.
        ZAPS_FAILED_BROKEN = "zaps_failed_broken", Count, "";
        /// Failed changes that received something other than a transport stream.
        ZAPS_FAILED_NOT_TS = "zaps_failed_not_ts", Count, "";
        /// Failed changes that received stamped datagrams of other channels up to the next change,
        /// and none of the new channel.
        ZAPS_FAILED_WRONG_CHANNEL = "zaps_failed_wrong_channel", Count, "";
        /// Failed changes that received at least 2 s of video up to the next change, without a
        /// random-access point.
        ZAPS_FAILED_NO_PICTURE = "zaps_failed_no_picture", Count, "ISO/IEC 13818-1, 2.4.3.5";
        /// Failed changes for which this machine had no free port or file descriptor: a limit of
        /// the tester.
        ZAPS_FAILED_LOCAL = "zaps_failed_local", Count, "";
        /// Channel changes without a picture, that is the first random-access point, that had not
        /// failed when the client changed again or was stopped: media without one had arrived for
        /// less than 2 s, or nothing had arrived for less than a second. They are missing from
        /// `zap_delay`, which is therefore too low.
        ZAPS_UNFINISHED = "zaps_unfinished", Count, "";
    }
    gauges {}
    distributions {
        /// Time from sending each request to the end of the response head.
        RESPONSE_DELAY = "response_delay", Seconds, "";
        /// Time from when a client's first request was due to the first byte of the body that
        /// carries media, including redirects.
        FIRST_BYTE_DELAY = "first_byte_delay", Seconds, "";
        /// Time from when a channel change was due to the arrival of the first random-access point
        /// of the new channel: the delay that a viewer notices, without decoding. Only of changes
        /// that led to a picture. Datagrams of another group than that of the new channel are
        /// ignored if they are stamped.
        ZAP_DELAY = "zap_delay", Seconds, "ISO/IEC 13818-1, 2.4.3.5";
        /// Time from when a channel change was due to the first byte of the body that carries
        /// media, including redirects.
        ZAP_FIRST_BYTE_DELAY = "zap_first_byte_delay", Seconds, "";
    }
    derived {}
    summary {
        super::summary::NO_STAMPS;
        summary::MEDIA_ROWS;
        super::summary::TIMES;
        summary::STARTUP_ROWS;
        super::summary::STREAM;
        summary::CODED_PICTURES;
        super::summary::ENDS;
        super::summary::CHANNEL_CHANGES;
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
    features {
        &[
            ZAPS,
            ZAPS_FAILED,
            ZAPS_FAILED_503,
            ZAPS_FAILED_STATUS,
            ZAPS_FAILED_CONNECT,
            ZAPS_FAILED_SILENT,
            ZAPS_FAILED_BROKEN,
            ZAPS_FAILED_NOT_TS,
            ZAPS_FAILED_WRONG_CHANNEL,
            ZAPS_FAILED_NO_PICTURE,
            ZAPS_FAILED_LOCAL,
            ZAPS_UNFINISHED,
        ];
    }
}
