//! Failure reasons of a client.

use measure::CounterId;

use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use kit::http1::ResponseError;
use kit::metrics as m;
use kit::zapping::counter_of_connect_failure;

reasons! {
    /// Reason why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// A signalling request was not answered in time.
        RequestTimeout = "request_timeout";
        /// The signalling connection ended or broke before an answer, or while it was still needed.
        SignallingClosed = "signalling_closed";
        /// The server stopped reading from the connection until the send queue overflowed.
        Stuck = "stuck";
        /// The server's answer is not HTTP.
        NotHttp = "not_http";
        /// An HTTP response could not be parsed.
        MalformedResponse = "malformed_response";
        /// The server refused the WebSocket, or its answer to the upgrade is invalid.
        WebsocketRefused = "websocket_refused";
        /// The server violated the WebSocket protocol, or sent a message that exceeds the size
        /// limit.
        MalformedMessage = "malformed_message";
        /// A message is not JSON, or not as the protocol specifies it.
        MalformedJson = "malformed_json";
        /// The server answered 400: it could not parse the request.
        BadRequest = "bad_request";
        /// The server requires authentication, or rejected the credentials (401).
        Unauthorized = "unauthorized";
        /// The server denied access (403).
        Forbidden = "forbidden";
        /// The stream, endpoint, room or mount point does not exist.
        NotFound = "not_found";
        /// The server did not accept the offer: 406, 415 or 422, a parse error, or an answer that
        /// rejects all media.
        OfferRefused = "offer_refused";
        /// Another client already publishes there, or no client publishes (409), or another
        /// participant joined the room under the same name.
        Conflict = "conflict";
        /// The server has reached its capacity (429, 503, or the room is full).
        Overloaded = "overloaded";
        /// The server reported an internal error (5xx).
        ServerError = "server_error";
        /// The server refused with another status or error, named in the detail.
        OtherRefusal = "other_refusal";
        /// The server redirected the client without a `Location`, or with one that could not be
        /// parsed.
        BadRedirect = "bad_redirect";
        /// The server redirected the client to a host that `follow` does not allow.
        RedirectRefused = "redirect_refused";
        /// The server redirected the client to a URL that it had visited before.
        RedirectLoop = "redirect_loop";
        /// The server redirected the client too often.
        TooManyRedirects = "too_many_redirects";
        /// The server's session description is not usable: it could not be parsed, has no media,
        /// lacks parameters of the transport, or breaks a rule of answers that browsers enforce.
        BadSdp = "bad_sdp";
        /// The server's session description exceeds the size limit.
        SdpTooLong = "sdp_too_long";
        /// The server hung up the PeerConnection, for the reason in the detail. With `leave:
        /// at_end`, a hang-up after media was received is no failure.
        HungUp = "hung_up";
        /// The server ended the signalling session because it received no keep-alive in time.
        SessionTimeout = "session_timeout";
        /// ICE found no path to the server in time.
        IceTimeout = "ice_timeout";
        /// ICE failed, or the selected path stopped answering checks (RFC 7675).
        IceFailed = "ice_failed";
        /// The server gave no candidate that the client can use: none at all, or only TCP
        /// candidates, hostnames, or addresses that are never checked. The detail says which.
        NoCandidates = "no_candidates";
        /// The TURN server refused to allocate a relayed address, or to relay to any of the
        /// server's addresses.
        TurnRefused = "turn_refused";
        /// The TURN server rejected the name and password.
        TurnUnauthorized = "turn_unauthorized";
        /// The TURN server did not answer in time.
        TurnTimeout = "turn_timeout";
        /// The TURN server closed the connection, or did not renew an allocation or permission.
        TurnLost = "turn_lost";
        /// The DTLS handshake did not complete in time.
        DtlsTimeout = "dtls_timeout";
        /// The DTLS handshake failed.
        DtlsFailed = "dtls_failed";
        /// The certificate does not match the fingerprint in the session description (RFC 8122).
        FingerprintMismatch = "fingerprint_mismatch";
        /// The client and the server have no SRTP profile in common (RFC 5764).
        NoSrtpProfile = "no_srtp_profile";
        /// The server closed DTLS. With `leave: at_end`, a close after media was received is no
        /// failure.
        DtlsClosed = "dtls_closed";
        /// The server ended all streams (BYE) before the client was due to leave. Not a failure
        /// with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// The PeerConnection was established, but no media arrived in time.
        NoMedia = "no_media";
        /// More than a tenth of the packets of a PeerConnection belong to no negotiated media; a
        /// player would discard them. The detail names their payload types.
        UnknownMedia = "unknown_media";
        /// Media stopped.
        MediaStopped = "media_stopped";
        /// Nothing can be sent.
        NotSent = "not_sent";
    }
}

impl Failure {
    /// Returns `true` if the server ended the session in order, provided that media was received.
    pub const fn is_orderly_end(self) -> bool {
        matches!(
            self,
            Failure::EndedByServer | Failure::HungUp | Failure::DtlsClosed
        )
    }

    /// Returns the failure for the status of an answer.
    pub const fn from_status(status: u16) -> Failure {
        match status {
            400 => Failure::BadRequest,
            401 => Failure::Unauthorized,
            403 => Failure::Forbidden,
            404 | 410 => Failure::NotFound,
            406 | 415 | 422 => Failure::OfferRefused,
            409 => Failure::Conflict,
            429 | 503 => Failure::Overloaded,
            500..=599 => Failure::ServerError,
            _ => Failure::OtherRefusal,
        }
    }

    /// Returns the failure for an answer that could not be parsed.
    pub const fn from_malformed(malformed: ResponseError) -> Failure {
        match malformed {
            ResponseError::NotHttp => Failure::NotHttp,
            _ => Failure::MalformedResponse,
        }
    }

    /// Returns the counter for channel changes that failed with this reason.
    pub(crate) const fn zap_counter(self) -> CounterId {
        match self {
            Failure::Connect(failure) => counter_of_connect_failure(failure),
            Failure::Overloaded => m::ZAPS_FAILED_503,
            Failure::BadRequest
            | Failure::Unauthorized
            | Failure::Forbidden
            | Failure::NotFound
            | Failure::OfferRefused
            | Failure::Conflict
            | Failure::ServerError
            | Failure::OtherRefusal
            | Failure::BadRedirect
            | Failure::RedirectRefused
            | Failure::RedirectLoop
            | Failure::TooManyRedirects => m::ZAPS_FAILED_STATUS,
            Failure::RequestTimeout | Failure::NoMedia | Failure::MediaStopped => {
                m::ZAPS_FAILED_SILENT
            }
            Failure::IceTimeout
            | Failure::IceFailed
            | Failure::NoCandidates
            | Failure::TurnRefused
            | Failure::TurnUnauthorized
            | Failure::TurnTimeout
            | Failure::DtlsTimeout
            | Failure::DtlsFailed => m::ZAPS_FAILED_CONNECT,
            _ => m::ZAPS_FAILED_BROKEN,
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
}
