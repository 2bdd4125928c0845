//! The ways in which a client can fail.

use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;
use crate::http1::Malformed;
use crate::session::Closed;

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The head of the answer did not come in time.
        TimeoutResponse = "timeout_response";
        /// The connection ended before the head of the answer was whole.
        ClosedInResponse = "closed_in_response";
        /// The server cannot read the request (400).
        Status400 = "status_400";
        /// The server wants a name and password, and none were given or it refused them (401).
        Status401 = "status_401";
        /// The server forbids it (403).
        Status403 = "status_403";
        /// There is no such stream (404).
        Status404 = "status_404";
        /// The server refused with another status from 400 to 499, which the detail names.
        Status4xx = "status_4xx";
        /// The server failed (500).
        Status500 = "status_500";
        /// The server could not get the stream from where it has it (502).
        Status502 = "status_502";
        /// The server is overloaded, or serves as many as it is allowed to (503).
        Status503 = "status_503";
        /// The server could not get the stream in time from where it has it (504).
        Status504 = "status_504";
        /// The server failed with another status from 500 to 599, which the detail names.
        Status5xx = "status_5xx";
        /// The server answered with a status that brings no stream, which the detail names.
        StatusOther = "status_other";
        /// The server sent the client on to a URL where it had been.
        RedirectLoop = "redirect_loop";
        /// The server sent the client on more than five times.
        TooManyRedirects = "too_many_redirects";
        /// The server sent the client on to nowhere: no `Location`, or none that is a URL of HTTP.
        BadRedirect = "bad_redirect";
        /// The server sent the client on to another host, which the detail names, and `follow` does
        /// not allow that. Write the URL of that host, or `follow: any`.
        RedirectRefused = "redirect_refused";
        /// What the server answered is not HTTP/1.
        NotHttp = "not_http";
        /// The head of the answer cannot be read.
        MalformedResponse = "malformed_response";
        /// The head of the answer is longer than is taken, and may be endless.
        HeaderTooLong = "header_too_long";
        /// The framing of the body is wrong: a chunk whose size cannot be read, or that is not over
        /// where its size says.
        BadChunk = "bad_chunk";
        /// The server sent the body in chunks so small that most of what came was their framing.
        Flooded = "flooded";
        /// What the server sends is no transport stream: the detail says what it looks like, such
        /// as HTML or gzip.
        NotTs = "not_ts";
        /// The head of the answer came, and then no packet in time.
        NoMedia = "no_media";
        /// The body of the answer was over without a packet.
        EmptyBody = "empty_body";
        /// No packet came for so long that media had stopped.
        MediaStopped = "media_stopped";
        /// Video came for 2 s or more without a random-access point with which a decoder can begin:
        /// the viewer saw no picture. Told when the client leaves.
        NoPicture = "no_picture";
        /// The server ended its answer while media came, by the stated length or the last chunk,
        /// before the client was to leave. Not with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// The server closed the connection while media came, and nothing had said that the stream
        /// is over. Not with `leave: at_end`.
        ClosedInMedia = "closed_in_media";
        /// The body ended before its stated length or its last chunk.
        CutOff = "cut_off";
        /// The connection was reset.
        Reset = "reset";
        /// The server took nothing off the connection until the bounded queue of requests ran over.
        Stuck = "stuck";
        /// After a change of channel, datagrams of other channels came and none of the new one. Of
        /// changes only, never of clients.
        WrongChannel = "wrong_channel";
    }
}

impl Failure {
    /// Of a status that brings no stream, and sends nobody on.
    pub const fn of_status(status: u16) -> Failure {
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

    /// Of an answer that cannot be read.
    pub const fn of_malformed(malformed: Malformed) -> Failure {
        match malformed {
            Malformed::NotHttp => Failure::NotHttp,
            Malformed::StatusLine
            | Malformed::HeaderField
            | Malformed::Length(_)
            | Malformed::TransferCoding(_) => Failure::MalformedResponse,
            Malformed::HeadTooLong => Failure::HeaderTooLong,
            Malformed::ChunksTooSmall => Failure::Flooded,
            Malformed::ChunkSize | Malformed::ChunkEnd => Failure::BadChunk,
        }
    }

    /// Of a connection that broke; none where it ended in order.
    pub fn of_broken(how: Closed) -> Option<Failure> {
        match how {
            Closed::End => None,
            Closed::Reset => Some(Failure::Reset),
            Closed::Stuck => Some(Failure::Stuck),
            Closed::Tls(error) => Some(Failure::Connect(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect_failure::tests::assert_reasons;

    #[test]
    fn names_are_stable_words_and_differ() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }

    #[test]
    fn each_status_finds_its_row() {
        for status in 100..1000 {
            let name = Failure::of_status(status).name();
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
