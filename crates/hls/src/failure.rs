//! Reasons for the failure of a player.

use std::time::Duration;

use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use kit::http1::ResponseError;
use session::CloseReason;

reasons! {
    /// Reason for a client's failure: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The response head did not arrive in time.
        TimeoutResponse = "timeout_response";
        /// The response body did not arrive in time.
        TimeoutBody = "timeout_body";
        /// The connection ended before the response head was complete.
        ClosedInResponse = "closed_in_response";
        /// The server requires credentials, and none were given or it rejected them (401).
        Status401 = "status_401";
        /// The server forbids the request (403).
        Status403 = "status_403";
        /// The playlist or segment does not exist (404).
        Status404 = "status_404";
        /// The server refused with another status from 400 to 499, which the detail names.
        Status4xx = "status_4xx";
        /// The server failed with a status from 500 to 599, which the detail names.
        Status5xx = "status_5xx";
        /// The server answered with a status that carries nothing, which the detail names.
        StatusOther = "status_other";
        /// The server redirected the client to a URL that it had already requested.
        RedirectLoop = "redirect_loop";
        /// The server redirected the client more than five times.
        TooManyRedirects = "too_many_redirects";
        /// The server sent a redirect without `Location`, or to something other than an HTTP URL.
        BadRedirect = "bad_redirect";
        /// A redirect or a playlist names another host, which the detail says, and `follow` does
        /// not allow that. Write the URL of that host, or `follow: any`.
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
        /// The body ended before its stated length or its last chunk.
        CutOff = "cut_off";
        /// The connection was reset.
        Reset = "reset";
        /// The server did not read from the connection until the bounded queue of requests
        /// overflowed.
        Stuck = "stuck";
        /// The body of a playlist cannot be played, for a reason that the detail says.
        BadPlaylist = "bad_playlist";
        /// The body of a segment is empty, or is no media of any format that players know. The
        /// detail has its beginning.
        NotMedia = "not_media";
        /// The body of a segment is longer than the byte range that was requested: the server
        /// ignores ranges.
        WrongRange = "wrong_range";
        /// A key is not 16 bytes long.
        BadKey = "bad_key";
        /// A playlist is longer than 4 MiB, and may be endless.
        PlaylistTooLong = "playlist_too_long";
        /// No segment was complete in time.
        NoMedia = "no_media";
        /// No segment was complete for so long that media counts as stopped.
        MediaStopped = "media_stopped";
        /// The server ended a live stream during playback, before the client was to leave. Not a
        /// failure with `leave: at_end`.
        EndedByServer = "ended_by_server";
    }
}

impl Failure {
    /// Returns the reason for a status that carries nothing and is no redirect.
    pub const fn from_status(status: u16) -> Failure {
        match status {
            401 => Failure::Status401,
            403 => Failure::Status403,
            404 => Failure::Status404,
            400..=499 => Failure::Status4xx,
            500..=599 => Failure::Status5xx,
            _ => Failure::StatusOther,
        }
    }

    /// Returns how a player tries again to get a segment after this failure; `None` if it does not.
    pub(crate) const fn retries(self) -> Option<Retries> {
        match self {
            Failure::TimeoutResponse | Failure::TimeoutBody => Some(Retries::AtOnce),
            Failure::Status5xx
            | Failure::ClosedInResponse
            | Failure::CutOff
            | Failure::Reset
            | Failure::Connect(_) => Some(Retries::Later),
            _ => None,
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

/// How a player tries again to get a segment: with the numbers and delays of hls.js 1.5
/// (`fragLoadPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retries {
    /// Four times, at once.
    AtOnce,
    /// Six times, after 1, 2, 4, 8, 8 and 8 s.
    Later,
}

impl Retries {
    /// Returns the delay of the next attempt after `before` repeated ones; `None` if there is no
    /// further one.
    pub(crate) fn delay(self, before: u32) -> Option<Duration> {
        match self {
            Retries::AtOnce => (before < 4).then_some(Duration::ZERO),
            Retries::Later => (before < 6).then(|| Duration::from_secs(1 << before.min(3))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::connect_failure::assert_reasons;

    #[test]
    fn attempts_are_repeated_after_longer_and_longer_delays() {
        let delays = |retries: Retries| -> Vec<u64> {
            let delays = (0..).map_while(|before| retries.delay(before));
            delays.map(|delay| delay.as_secs()).collect()
        };
        assert_eq!(delays(Retries::Later), [1, 2, 4, 8, 8, 8]);
        assert_eq!(delays(Retries::AtOnce), [0; 4]);
        assert_eq!(Failure::Status404.retries(), None);
        for timeout in [Failure::TimeoutResponse, Failure::TimeoutBody] {
            assert_eq!(timeout.retries(), Some(Retries::AtOnce));
        }
    }

    #[test]
    fn names_are_stable_words_and_differ() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }
}
