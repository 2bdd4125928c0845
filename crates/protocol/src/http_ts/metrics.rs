//! What is measured of HTTP beside the transport stream.

use crate::media::ts::metrics::TS;
use crate::summary;

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
        /// Streams that the server ended by a stated `Content-Length`: no more than that came. A
        /// live stream has no length.
        ENDED_BY_LENGTH = "ended_by_length", Count, "RFC 9112, 6.3";
        /// Changes of channel: connections that were closed, by a client's `zap`, to ask for
        /// another URL. Each counts when it begins.
        ZAPS = "zaps", Count, "";
        /// Changes of channel that failed: the new one was refused, did not come, was no transport
        /// stream or was another, before its first random-access point. The client then waits for
        /// the next change, as a viewer would. What failed exactly is in the events of the run
        /// (`zap_failed`). Where clients `zap`, this must be 0 unless another threshold on it is
        /// written.
        ZAPS_FAILED = "zaps_failed", Count, "";
        /// Of these, those that were answered with status 503: the server serves as many as it can,
        /// or may.
        ZAPS_FAILED_503 = "zaps_failed_503", Count, "RFC 9110, 15.6.4";
        /// Of these, those that were answered with another status that brings no stream, or sent in
        /// circles.
        ZAPS_FAILED_STATUS = "zaps_failed_status", Count, "RFC 9110, 15";
        /// Of these, those for which no connection could be made.
        ZAPS_FAILED_CONNECT = "zaps_failed_connect", Count, "";
        /// Of these, those to which nothing came in time: no answer, no packet after it, or no more
        /// of them.
        ZAPS_FAILED_SILENT = "zaps_failed_silent", Count, "";
        /// Of these, those whose connection ended early, or whose answer could not be read.
        ZAPS_FAILED_BROKEN = "zaps_failed_broken", Count, "";
        /// Of these, those to which something else came than a transport stream.
        ZAPS_FAILED_NOT_TS = "zaps_failed_not_ts", Count, "";
        /// Of these, those to which stamped datagrams of other channels came, up to the next
        /// change, and none of the new one.
        ZAPS_FAILED_WRONG_CHANNEL = "zaps_failed_wrong_channel", Count, "";
        /// Failed changes with at least 2 s of video, up to the next change, and no random-access
        /// point.
        ZAPS_FAILED_NO_PICTURE = "zaps_failed_no_picture", Count, "ISO/IEC 13818-1, 2.4.3.5";
        /// Of these, those for which this machine had no free port or file descriptor left: the
        /// tester's own limit.
        ZAPS_FAILED_LOCAL = "zaps_failed_local", Count, "";
        /// Changes of channel that had come to no picture, the first random-access point, when the
        /// client went on or was stopped, and had not failed: media came without one for less than
        /// 2 s, or nothing did for less than a second. They have no `zap_delay`, which is better
        /// than it was by as much.
        ZAPS_UNFINISHED = "zaps_unfinished", Count, "";
    }
    gauges {}
    distributions {
        /// From the moment each request was sent to the end of the head of its answer.
        RESPONSE_DELAY = "response_delay", Seconds, "";
        /// From the moment a client's first request was due to the first byte of the body that
        /// brings media, redirects included.
        FIRST_BYTE_DELAY = "first_byte_delay", Seconds, "";
        /// From the moment a change of channel was due to the arrival of the first random-access
        /// point of the new channel: what a viewer feels, but for the decoding. Of changes that
        /// came to a picture. Datagrams of another group than the new channel's are passed over, as
        /// far as they are stamped.
        ZAP_DELAY = "zap_delay", Seconds, "ISO/IEC 13818-1, 2.4.3.5";
        /// From the moment a change of channel was due to the first byte of the body that brings
        /// media, redirects included.
        ZAP_FIRST_BYTE_DELAY = "zap_first_byte_delay", Seconds, "";
    }
    derived {}
    summary {
        super::summary::NO_STAMPS;
        summary::MEDIA;
        super::summary::TIMES;
        summary::STARTUP;
        super::summary::STREAM;
        super::summary::ENDS;
        super::summary::CHANGES;
    }
}
