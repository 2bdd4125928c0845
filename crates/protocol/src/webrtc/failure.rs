//! The ways in which a client can fail.

use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;
use crate::http1::Malformed;

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// A request of the signalling was not answered in time.
        RequestTimeout = "request_timeout";
        /// The connection of the signalling ended, or broke, before an answer or while it was
        /// needed.
        SignallingClosed = "signalling_closed";
        /// The connection ran over: the server did not read what it was sent.
        Stuck = "stuck";
        /// What the server answered is no HTTP.
        NotHttp = "not_http";
        /// An answer of HTTP that cannot be read.
        MalformedResponse = "malformed_response";
        /// The server refused the WebSocket, or what it answered makes none.
        WebsocketRefused = "websocket_refused";
        /// What came on the WebSocket breaks its rules, or is longer than is taken.
        MalformedMessage = "malformed_message";
        /// What came is no JSON, or not what the protocol says it is.
        MalformedJson = "malformed_json";
        /// The server answered 400: it could not read the request.
        BadRequest = "bad_request";
        /// The server wants to know who asks, or did not accept what it was told (401).
        Unauthorized = "unauthorized";
        /// The client may not (403).
        Forbidden = "forbidden";
        /// There is no such stream, endpoint, room or mount point.
        NotFound = "not_found";
        /// The server does not take the offer: 406, 415 or 422, it cannot read it, or its answer
        /// refuses all media.
        OfferRefused = "offer_refused";
        /// Somebody else publishes there, or nobody publishes (409), or somebody of the same name
        /// has come to the room.
        Conflict = "conflict";
        /// The server serves as many as it can (429, 503, or the room is full).
        Overloaded = "overloaded";
        /// The server has an error of its own (5xx).
        ServerError = "server_error";
        /// The server refused with another status or error, which the detail names.
        Refused = "other_refusal";
        /// The server sent the client elsewhere with a place that cannot be read, or without one.
        BadRedirect = "bad_redirect";
        /// The server sent the client where `follow` does not let it go.
        RedirectRefused = "redirect_refused";
        /// The server sent the client to where it had been.
        RedirectLoop = "redirect_loop";
        /// The server sent the client on too often.
        TooManyRedirects = "too_many_redirects";
        /// The server's description cannot be used: it cannot be read, has no media, lacks what the
        /// connection needs, or breaks a rule of answers that browsers enforce.
        BadSdp = "bad_sdp";
        /// The server's description is longer than is taken.
        SdpTooLong = "sdp_too_long";
        /// The server hung the PeerConnection up, with the reason that the detail names. Not with
        /// `leave: at_end` if media had come.
        HungUp = "hung_up";
        /// The server ended the session of the signalling, because it heard nothing in time.
        SessionTimeout = "session_timeout";
        /// No way to the server was found by ICE in time.
        IceTimeout = "ice_timeout";
        /// ICE failed, or the way that it had found answered no more (RFC 7675).
        IceFailed = "ice_failed";
        /// The server gave no address that the client may send to: none, or only over TCP, by
        /// names, or at addresses that are never checked. The detail says which.
        NoCandidates = "no_candidates";
        /// The TURN server refused a relayed address, or lets it send to none of the server's.
        TurnRefused = "turn_refused";
        /// The TURN server did not take name and password.
        TurnUnauthorized = "turn_unauthorized";
        /// The TURN server did not answer in time.
        TurnTimeout = "turn_timeout";
        /// The TURN server ended the connection, or did not renew what it had granted.
        TurnLost = "turn_lost";
        /// The handshake of DTLS came to no end in time.
        DtlsTimeout = "dtls_timeout";
        /// The handshake of DTLS failed.
        DtlsFailed = "dtls_failed";
        /// The certificate is not the one of which the description tells (RFC 8122).
        FingerprintMismatch = "fingerprint_mismatch";
        /// Both sides have no protection of media in common (RFC 5764).
        NoSrtpProfile = "no_srtp_profile";
        /// The server closed DTLS. Not with `leave: at_end` if media had come.
        DtlsClosed = "dtls_closed";
        /// The server ended all streams (BYE) before the client was to leave. Not with `leave:
        /// at_end`.
        EndedByServer = "ended_by_server";
        /// The connection stood, and then no media came in time.
        NoMedia = "no_media";
        /// More than a tenth of the packets of a PeerConnection belongs to none of the media agreed
        /// upon: a player would throw them away. The detail names their payload types.
        UnknownMedia = "unknown_media";
        /// Media came to a stop.
        MediaStopped = "media_stopped";
        /// Nothing can be sent.
        NotSent = "not_sent";
    }
}

impl Failure {
    /// Whether the server ended the session in good order, if media had come.
    pub const fn is_end(self) -> bool {
        matches!(
            self,
            Failure::EndedByServer | Failure::HungUp | Failure::DtlsClosed
        )
    }

    /// Of an answer's status.
    pub const fn of_status(status: u16) -> Failure {
        match status {
            400 => Failure::BadRequest,
            401 => Failure::Unauthorized,
            403 => Failure::Forbidden,
            404 | 410 => Failure::NotFound,
            406 | 415 | 422 => Failure::OfferRefused,
            409 => Failure::Conflict,
            429 | 503 => Failure::Overloaded,
            500..=599 => Failure::ServerError,
            _ => Failure::Refused,
        }
    }

    /// Of an answer that cannot be read.
    pub const fn of_malformed(malformed: Malformed) -> Failure {
        match malformed {
            Malformed::NotHttp => Failure::NotHttp,
            _ => Failure::MalformedResponse,
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
}
