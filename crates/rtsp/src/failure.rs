//! Failure reasons of a client.

use measure::CounterId;

use super::codec::Method;
use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use kit::metrics as m;
use kit::zapping::counter_of_connect_failure;
use session::{ChannelError, CloseReason};

reasons! {
    /// Reason why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The GET of an HTTP tunnel was not answered in time.
        TimeoutTunnel = "timeout_tunnel";
        /// OPTIONS was not answered in time.
        TimeoutOptions = "timeout_options";
        /// DESCRIBE was not answered in time.
        TimeoutDescribe = "timeout_describe";
        /// SETUP was not answered in time.
        TimeoutSetup = "timeout_setup";
        /// PLAY was not answered in time.
        TimeoutPlay = "timeout_play";
        /// ANNOUNCE was not answered in time.
        TimeoutAnnounce = "timeout_announce";
        /// RECORD was not answered in time.
        TimeoutRecord = "timeout_record";
        /// The server could not read the request (400).
        Status400 = "status_400";
        /// The server requires credentials, and none were given or it rejected them (401).
        Status401 = "status_401";
        /// The server denied access (403).
        Status403 = "status_403";
        /// The server has no such media (404).
        Status404 = "status_404";
        /// The method is not allowed (405).
        Status405 = "status_405";
        /// The server lacks bandwidth (453).
        Status453 = "status_453";
        /// The server does not know the session (454).
        Status454 = "status_454";
        /// The method is not valid in the session's state (455).
        Status455 = "status_455";
        /// The server refused or required aggregate control (459, 460).
        StatusAggregate = "status_aggregate";
        /// The server does not support the transport (461).
        Status461 = "status_461";
        /// The server reported an internal error (500).
        Status500 = "status_500";
        /// The server does not support the method (501).
        Status501 = "status_501";
        /// The server is overloaded (503).
        Status503 = "status_503";
        /// The server refused with another status, named in the detail.
        StatusOther = "status_other";
        /// The server redirected the client more than five times.
        TooManyRedirects = "too_many_redirects";
        /// The server sent an invalid redirect: without `Location`, or to something other than an
        /// RTSP URL.
        BadRedirect = "bad_redirect";
        /// The server redirected the client to another host, which `follow` does not allow. The
        /// detail names the host. Use the URL of that host, or set `follow: any`.
        RedirectRefused = "redirect_refused";
        /// The server's answer to SETUP named another host as the source of the media (`source`).
        /// Receiver reports would be sent to that host, which `follow` does not allow. The detail
        /// names the host. If it belongs to the server, set `follow: any`.
        SourceRefused = "source_refused";
        /// The server closed the connection before OPTIONS was answered.
        ClosedInOptions = "closed_in_options";
        /// The server closed the connection before DESCRIBE was answered.
        ClosedInDescribe = "closed_in_describe";
        /// The server closed the connection before SETUP was answered.
        ClosedInSetup = "closed_in_setup";
        /// The server closed the connection before PLAY was answered, or while media played.
        ClosedInPlay = "closed_in_play";
        /// The server closed the connection before ANNOUNCE was answered.
        ClosedInAnnounce = "closed_in_announce";
        /// The server closed the connection before RECORD was answered, or while media was sent.
        ClosedInRecord = "closed_in_record";
        /// The connection was reset before OPTIONS was answered.
        ResetInOptions = "reset_in_options";
        /// The connection was reset before DESCRIBE was answered.
        ResetInDescribe = "reset_in_describe";
        /// The connection was reset before SETUP was answered.
        ResetInSetup = "reset_in_setup";
        /// The connection was reset before PLAY was answered, or while media played.
        ResetInPlay = "reset_in_play";
        /// The connection was reset before ANNOUNCE was answered.
        ResetInAnnounce = "reset_in_announce";
        /// The connection was reset before RECORD was answered, or while media was sent.
        ResetInRecord = "reset_in_record";
        /// The server stopped reading from the connection until the bounded queue of requests
        /// overflowed.
        Stuck = "stuck";
        /// No packet of any stream arrived in time after the answer to PLAY.
        NoMedia = "no_media";
        /// All streams went silent for too long or ended (BYE), well before the known end of the
        /// media; or media without a known end went silent for too long, without BYE.
        MediaStopped = "media_stopped";
        /// The server ended all streams (BYE) or asked the client to leave, before the client was
        /// due to leave and without a known end of the media. Does not occur with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// An answer could not be parsed, or lacks required information.
        MalformedResponse = "malformed_response";
        /// The description of the media could not be parsed.
        MalformedSdp = "malformed_sdp";
        /// The description contains no stream that can be played.
        NoStreams = "no_streams";
        /// The server answered with a transport other than the requested one.
        UnsupportedTransportAnswer = "unsupported_transport_answer";
        /// The server refused to send media to an address other than the one that requests come
        /// from (`media.address`): it answered SETUP with 400, 403, 451, 461 or 463. Allow it in
        /// the server, if possible; otherwise remove `media.address`.
        DestinationRefused = "destination_refused";
        /// The server answered SETUP with a `destination` other than the requested one, so media
        /// would be sent there. Allow other media addresses in the server, if possible; otherwise
        /// remove `media.address`.
        DestinationChanged = "destination_changed";
        /// The server's answer to SETUP named no `destination`, and no packet arrived at the
        /// requested one. Most likely, the server sent the media to the address that requests come
        /// from. Allow other media addresses in the server, if possible; otherwise remove
        /// `media.address`.
        DestinationIgnored = "destination_ignored";
        /// The machine that should receive the media (`media.receiver`) could not be reached,
        /// refused, or was lost: see the detail. Its ports are then closed, and packets that
        /// arrived there after its last message are unknown.
        ReceiverLost = "receiver_lost";
        /// A message exceeded a size limit.
        MessageTooLarge = "message_too_large";
        /// The server sent more messages at once than a client accepts. They would delay all other
        /// clients of a worker.
        Flooded = "flooded";
        /// The server sent more than 64 KiB that are neither messages nor packets, and little else.
        Garbage = "garbage";
        /// This machine granted no membership in a multicast group because of a kernel limit, which
        /// the detail names, or has no such network interface.
        LocalMembership = "local_membership";
        /// This machine could not open a pair of UDP ports for another reason, named in the detail.
        LocalOther = "local_other";
    }
}

impl Failure {
    /// Returns the failure for a status of 300 or more that the client cannot handle.
    pub const fn from_status(status: u16) -> Failure {
        match status {
            400 => Failure::Status400,
            401 => Failure::Status401,
            403 => Failure::Status403,
            404 => Failure::Status404,
            405 => Failure::Status405,
            453 => Failure::Status453,
            454 => Failure::Status454,
            455 => Failure::Status455,
            459 | 460 => Failure::StatusAggregate,
            461 => Failure::Status461,
            500 => Failure::Status500,
            501 => Failure::Status501,
            503 => Failure::Status503,
            _ => Failure::StatusOther,
        }
    }

    /// Returns the failure for a request that was not answered in time. Methods after PLAY count as
    /// PLAY.
    pub const fn from_timeout(method: &Method) -> Failure {
        match method {
            Method::Options => Failure::TimeoutOptions,
            Method::Describe => Failure::TimeoutDescribe,
            Method::Setup => Failure::TimeoutSetup,
            Method::Announce => Failure::TimeoutAnnounce,
            Method::Record => Failure::TimeoutRecord,
            _ => Failure::TimeoutPlay,
        }
    }

    /// Returns the failure for a connection that ended before `method` was answered, or after PLAY
    /// or RECORD was answered.
    pub fn from_closed(how: CloseReason, method: &Method) -> Failure {
        match (how, method) {
            (CloseReason::SendQueueFull, _) => Failure::Stuck,
            (CloseReason::Tls(error), _) => Failure::Connect(error.into()),
            (CloseReason::End, Method::Options) => Failure::ClosedInOptions,
            (CloseReason::End, Method::Describe) => Failure::ClosedInDescribe,
            (CloseReason::End, Method::Setup) => Failure::ClosedInSetup,
            (CloseReason::End, Method::Announce) => Failure::ClosedInAnnounce,
            (CloseReason::End, Method::Record) => Failure::ClosedInRecord,
            (CloseReason::End, _) => Failure::ClosedInPlay,
            (CloseReason::Reset, Method::Options) => Failure::ResetInOptions,
            (CloseReason::Reset, Method::Describe) => Failure::ResetInDescribe,
            (CloseReason::Reset, Method::Setup) => Failure::ResetInSetup,
            (CloseReason::Reset, Method::Announce) => Failure::ResetInAnnounce,
            (CloseReason::Reset, Method::Record) => Failure::ResetInRecord,
            (CloseReason::Reset, _) => Failure::ResetInPlay,
        }
    }

    /// Returns the failure for a pair of ports that could not be opened.
    pub fn from_ports(error: ChannelError) -> Failure {
        match error {
            ChannelError::NoPorts | ChannelError::NoDescriptors => Failure::Connect(error.into()),
            ChannelError::NoMembership | ChannelError::NoInterface => Failure::LocalMembership,
            _ => Failure::LocalOther,
        }
    }

    /// Returns the counter for channel changes that failed with this reason.
    pub(crate) const fn zap_counter(self) -> CounterId {
        match self {
            Failure::Connect(failure) => counter_of_connect_failure(failure),
            Failure::Status453 | Failure::Status503 => m::ZAPS_FAILED_503,
            Failure::Status400
            | Failure::Status401
            | Failure::Status403
            | Failure::Status404
            | Failure::Status405
            | Failure::Status454
            | Failure::Status455
            | Failure::StatusAggregate
            | Failure::Status461
            | Failure::Status500
            | Failure::Status501
            | Failure::StatusOther
            | Failure::TooManyRedirects
            | Failure::BadRedirect
            | Failure::RedirectRefused
            | Failure::SourceRefused
            | Failure::NoStreams => m::ZAPS_FAILED_STATUS,
            Failure::TimeoutTunnel
            | Failure::TimeoutOptions
            | Failure::TimeoutDescribe
            | Failure::TimeoutSetup
            | Failure::TimeoutPlay
            | Failure::NoMedia
            | Failure::MediaStopped => m::ZAPS_FAILED_SILENT,
            Failure::LocalMembership | Failure::LocalOther => m::ZAPS_FAILED_LOCAL,
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

    #[test]
    fn statuses_map_to_their_own_reasons() {
        for status in 300..=999 {
            let name = Failure::from_status(status).name();
            if let Some(number) = name.strip_prefix("status_")
                && let Ok(number) = number.parse::<u16>()
            {
                assert_eq!(number, status);
            }
        }
        assert_eq!(Failure::from_status(459), Failure::StatusAggregate);
    }
}
