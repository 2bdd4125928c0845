//! The ways in which a client can fail.

use super::codec::Method;
use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;
use crate::session::{ChannelError, Closed};

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The GET of a tunnel over HTTP was not answered in time.
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
        /// The server cannot read the request (400).
        Status400 = "status_400";
        /// The server wants a name and password, and none were given or it refused them (401).
        Status401 = "status_401";
        /// The server forbids it (403).
        Status403 = "status_403";
        /// There is no such media (404).
        Status404 = "status_404";
        /// The method is not allowed (405).
        Status405 = "status_405";
        /// The server has not enough bandwidth (453).
        Status453 = "status_453";
        /// The server does not know the session (454).
        Status454 = "status_454";
        /// The method is not valid in the session's state (455).
        Status455 = "status_455";
        /// Aggregate control is refused or demanded (459, 460).
        StatusAggregate = "status_aggregate";
        /// The server does not carry media in this way (461).
        Status461 = "status_461";
        /// The server failed (500).
        Status500 = "status_500";
        /// The server does not know the method (501).
        Status501 = "status_501";
        /// The server is overloaded (503).
        Status503 = "status_503";
        /// The server refused with another status, which the detail names.
        StatusOther = "status_other";
        /// The server sent the client on more than five times.
        TooManyRedirects = "too_many_redirects";
        /// The server sent the client on to nowhere: no `Location`, or none that is a URL of RTSP.
        BadRedirect = "bad_redirect";
        /// The server sent the client on to another host, which the detail names, and `follow` does
        /// not allow that. Write the URL of that host, or `follow: any`.
        RedirectRefused = "redirect_refused";
        /// The server said in its answer to SETUP that media comes from another host (`source`),
        /// which the detail names: receiver reports would go there, and `follow` does not allow
        /// that. Where that host is the server's own, write `follow: any`.
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
        /// The server took nothing off the connection until the bounded queue of requests ran over.
        Stuck = "stuck";
        /// No packet of any stream arrived in time after PLAY was answered.
        NoMedia = "no_media";
        /// No stream brought a packet for so long that media had stopped, well before its known
        /// end.
        MediaStopped = "media_stopped";
        /// The server ended all streams (BYE), or asked the client to leave, before the client was
        /// to leave and with no known end of the media. Not with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// An answer could not be read, or lacks what it must state.
        MalformedResponse = "malformed_response";
        /// The description of the media could not be read.
        MalformedSdp = "malformed_sdp";
        /// The description names no stream that can be played.
        NoStreams = "no_streams";
        /// The server answered with another transport than was asked for.
        UnsupportedTransportAnswer = "unsupported_transport_answer";
        /// The server refused to send media to another address than the one that requests come from
        /// (`media.address`): it answered SETUP with 400, 403, 451, 461 or 463. Let it, if it can
        /// be told to; else leave `media.address` out.
        DestinationRefused = "destination_refused";
        /// The server answered SETUP with another `destination` than was asked for, so media would
        /// go there. Let it send media to other addresses, if it can be told to; else leave
        /// `media.address` out.
        DestinationChanged = "destination_changed";
        /// The server's answer to SETUP named no `destination`, and no packet came to the one that
        /// was asked for: it has most likely sent the media to where requests come from. Let it
        /// send media to other addresses, if it can be told to; else leave `media.address` out.
        DestinationIgnored = "destination_ignored";
        /// The machine that is to receive the media (`media.receiver`) could not be reached,
        /// refused, or was lost: see the detail. Its ports are closed then, and what came to them
        /// since it was last heard of is unknown.
        ReceiverLost = "receiver_lost";
        /// A message was larger than is taken.
        MessageTooLarge = "message_too_large";
        /// The server sent more messages at once than a client takes. They would keep all other
        /// clients of a worker waiting.
        Flooded = "flooded";
        /// The server sent more than 64 KiB that are neither message nor packet, and little else.
        Garbage = "garbage";
        /// This machine granted no membership in a multicast group: a limit of the kernel's, which
        /// the detail names, or there is no such network interface.
        LocalMembership = "local_membership";
        /// This machine could not open a pair of UDP ports for another reason, which the detail
        /// names.
        LocalOther = "local_other";
    }
}

impl Failure {
    /// Of a status of 300 and more, that cannot be gone on from.
    pub const fn of_status(status: u16) -> Failure {
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

    /// Of a request that was not answered in time. What follows PLAY fails as PLAY does.
    pub const fn of_timeout(method: &Method) -> Failure {
        match method {
            Method::Options => Failure::TimeoutOptions,
            Method::Describe => Failure::TimeoutDescribe,
            Method::Setup => Failure::TimeoutSetup,
            Method::Announce => Failure::TimeoutAnnounce,
            Method::Record => Failure::TimeoutRecord,
            _ => Failure::TimeoutPlay,
        }
    }

    /// Of a connection that ended while `method` was to be answered, or after PLAY or RECORD was.
    pub fn of_closed(how: Closed, method: &Method) -> Failure {
        match (how, method) {
            (Closed::Stuck, _) => Failure::Stuck,
            (Closed::Tls(error), _) => Failure::Connect(error.into()),
            (Closed::End, Method::Options) => Failure::ClosedInOptions,
            (Closed::End, Method::Describe) => Failure::ClosedInDescribe,
            (Closed::End, Method::Setup) => Failure::ClosedInSetup,
            (Closed::End, Method::Announce) => Failure::ClosedInAnnounce,
            (Closed::End, Method::Record) => Failure::ClosedInRecord,
            (Closed::End, _) => Failure::ClosedInPlay,
            (Closed::Reset, Method::Options) => Failure::ResetInOptions,
            (Closed::Reset, Method::Describe) => Failure::ResetInDescribe,
            (Closed::Reset, Method::Setup) => Failure::ResetInSetup,
            (Closed::Reset, Method::Announce) => Failure::ResetInAnnounce,
            (Closed::Reset, Method::Record) => Failure::ResetInRecord,
            (Closed::Reset, _) => Failure::ResetInPlay,
        }
    }

    /// Of a pair of ports that could not be had.
    pub fn of_ports(error: ChannelError) -> Failure {
        match error {
            ChannelError::NoPorts | ChannelError::NoFiles => Failure::Connect(error.into()),
            ChannelError::NoMembership | ChannelError::NoInterface => Failure::LocalMembership,
            _ => Failure::LocalOther,
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
    fn a_status_that_has_a_row_of_its_own_finds_it() {
        for status in 300..=999 {
            let name = Failure::of_status(status).name();
            if let Some(number) = name.strip_prefix("status_")
                && let Ok(number) = number.parse::<u16>()
            {
                assert_eq!(number, status);
            }
        }
        assert_eq!(Failure::of_status(459), Failure::StatusAggregate);
    }
}
