//! Reasons for the failure of a client.

use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use kit::http1::ResponseError;
use session::CloseReason;

reasons! {
    /// Reason for a client's failure: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The response head did not arrive in time.
        TimeoutResponse = "timeout_response";
        /// The connection ended before the response head was complete.
        ClosedInResponse = "closed_in_response";
        /// The server cannot parse the request (400).
        Status400 = "status_400";
        /// The server requires credentials, and none were given or it rejected them (401).
        Status401 = "status_401";
        /// The server forbids the request (403).
        Status403 = "status_403";
        /// The stream does not exist (404).
        Status404 = "status_404";
        /// The server refused with another status from 400 to 499, which the detail names.
        Status4xx = "status_4xx";
        /// The server failed (500).
        Status500 = "status_500";
        /// The server could not get the stream from its source (502).
        Status502 = "status_502";
        /// The server is overloaded, or has as many clients as it allows (503).
        Status503 = "status_503";
        /// The server could not get the stream from its source in time (504).
        Status504 = "status_504";
        /// The server failed with another status from 500 to 599, which the detail names.
        Status5xx = "status_5xx";
        /// The server answered with a status that carries no stream, which the detail names.
        StatusOther = "status_other";
        /// The server redirected the client to a URL that it had already requested.
        RedirectLoop = "redirect_loop";
        /// The server redirected the client more than five times.
        TooManyRedirects = "too_many_redirects";
        /// The server sent a redirect without `Location`, or to something other than an HTTP URL.
        BadRedirect = "bad_redirect";
        /// The server redirected the client to another host, which the detail names, and `follow`
        /// does not allow that. Write the URL of that host, or `follow: any`.
        RedirectRefused = "redirect_refused";
        /// The response is not HTTP/1.
        NotHttp = "not_http";
        /// The response head cannot be parsed.
        MalformedResponse = "malformed_response";
        /// The response head exceeds the length limit, and may be endless.
        HeaderTooLong = "header_too_long";
        /// The framing of the body is wrong: a chunk size that cannot be parsed, or a chunk that
        /// does not end where its size says.
        BadChunk = "bad_chunk";
        /// The server sent the body in chunks so small that most of the bytes were framing.
        Flooded = "flooded";
        /// The body is not a transport stream. The detail says what it looks like, such as HTML or
        /// gzip.
        NotTs = "not_ts";
        /// No packet arrived in time after the response head.
        NoMedia = "no_media";
        /// The response body ended without a packet.
        EmptyBody = "empty_body";
        /// No packet arrived for so long that media counts as stopped.
        MediaStopped = "media_stopped";
        /// Video lasted 2 s or more without a random-access point, at which decoding can start: the
        /// viewer saw no picture. Reported when the client leaves.
        NoPicture = "no_picture";
        /// The server ended its response during playback, by the stated length or the last chunk,
        /// before the client was to leave. Not a failure with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// The server closed the connection during playback, and nothing had marked the end of the
        /// stream.
        /// Not a failure with `leave: at_end`.
        ClosedInMedia = "closed_in_media";
        /// The body ended before its stated length or its last chunk.
        CutOff = "cut_off";
        /// The connection was reset.
        Reset = "reset";
        /// The server did not read from the connection until the bounded queue of requests
        /// overflowed.
        Stuck = "stuck";
        /// After a channel change, datagrams of other channels arrived, and none of the new
        /// channel. Only channel changes fail with this reason, never clients.
        WrongChannel = "wrong_channel";
    }
}

impl Failure {
    /// Returns the reason for a status that carries no stream and is no redirect.
    pub const fn from_status(status: u16) -> Failure {
        match status {
            400 => Failure::Status400,
            401 => Failure::Status401,
            403 => Failure::Status403,
            404 => Failure::Status404,
            405..=499 | 402 => Failure::Status4xx,
            500 => Failure::Status500,
            502 => Failure::Status502,
            503 => Failure::Status503,
            504 => Failure::Status504,
            501 | 505..=599 => Failure::Status5xx,
            _ => Failure::StatusOther,
        }
    }

    /// Returns the reason for a response that cannot be parsed.
    pub const fn from_malformed(malformed: ResponseError) -> Failure {
        match malformed {
            ResponseError::NotHttp => Failure::NotHttp,
            ResponseError::StatusLine
            | ResponseError::HeaderField
            | ResponseError::Length(_)
            | ResponseError::TransferCoding(_) => Failure::MalformedResponse,
            ResponseError::HeadTooLong => Failure::HeaderTooLong,
            ResponseError::ChunksTooSmall => Failure::Flooded,
            ResponseError::ChunkSize | ResponseError::ChunkEnd => Failure::BadChunk,
        }
    }

    /// Returns the reason for a broken connection, or `None` if it was closed in order.
    pub fn from_closed(how: CloseReason) -> Option<Failure> {
        match how {
            CloseReason::End => None,
            CloseReason::Reset => Some(Failure::Reset),
            CloseReason::SendQueueFull => Some(Failure::Stuck),
            CloseReason::Tls(error) => Some(Failure::Connect(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::connect_failure::assert_reasons;

    #[test]
    fn names_are_stable_words_and_differ() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }

    #[test]
    fn each_status_has_its_reason() {
        for status in 100..1000 {
            let name = Failure::from_status(status).name();
            match status {
                400..=599 => {
                    let whole = format!("status_{status}");
                    let class = format!("status_{}xx", status / 100);
                    assert!(name == whole || name == class, "{status} is {name}");
                }
                _ => assert_eq!(name, "status_other"),
            }
        }
    }
}
