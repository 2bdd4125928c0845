//! Reasons for the failure of a client.

use measure::CounterId;

use super::codec::Malformed;
use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use kit::metrics as m;
use kit::zapping::counter_of_connect_failure;
use session::CloseReason;

reasons! {
    /// Reason for a client's failure: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The handshake did not complete in time.
        TimeoutHandshake = "timeout_handshake";
        /// The connection ended during the handshake: the server does not speak RTMP, or has too
        /// many clients.
        ClosedInHandshake = "closed_in_handshake";
        /// The server's handshake has a version other than 3: the server does not speak RTMP, or
        /// speaks an encrypted variant.
        HandshakeVersion = "handshake_version";
        /// S2 does not prove that the server read the client's digest (`handshake: digest`).
        HandshakeEcho = "handshake_echo";
        /// S1 carries a wrong digest (`handshake: digest`).
        HandshakeDigest = "handshake_digest";
        /// `connect` was not answered in time.
        TimeoutConnect = "timeout_connect";
        /// `createStream` was not answered in time.
        TimeoutCreateStream = "timeout_create_stream";
        /// `play` was not answered in time.
        TimeoutPlay = "timeout_play";
        /// `publish` was not answered in time.
        TimeoutPublish = "timeout_publish";
        /// The server closed the connection instead of answering `connect`. Some servers do so if
        /// the application does not exist or the client is not authorized.
        ClosedInConnect = "closed_in_connect";
        /// The server closed the connection instead of answering a later command, which the detail
        /// names.
        ClosedInCommand = "closed_in_command";
        /// The server rejected the connection (`NetConnection.Connect.Rejected`).
        ConnectRejected = "connect_rejected";
        /// The server refused `connect` and redirected the client to another URL, which the detail
        /// shows. The client does not follow it.
        RedirectRefused = "redirect_refused";
        /// The application does not exist (`NetConnection.Connect.InvalidApp`).
        InvalidApp = "invalid_app";
        /// The server shut the application down (`NetConnection.Connect.AppShutdown` or `.Closed`).
        AppShutdown = "app_shutdown";
        /// The server refused `connect` for another reason, which the detail names.
        ConnectFailed = "connect_failed";
        /// The server refused another command (`_error`), which the detail names.
        CommandRefused = "command_refused";
        /// The stream does not exist (`NetStream.Play.StreamNotFound`).
        StreamNotFound = "stream_not_found";
        /// The server cannot play the stream (`NetStream.Play.Failed`).
        PlayFailed = "play_failed";
        /// The stream's name is in use or not allowed (`NetStream.Publish.BadName`).
        PublishBadName = "publish_bad_name";
        /// The client is not authorized to publish (`NetStream.Publish.Denied`, `.Rejected` or
        /// `.Unauthorized`).
        PublishDenied = "publish_denied";
        /// The server reported another error (`onStatus` with level `error`), whose code the detail
        /// names.
        StatusError = "status_error";
        /// The server sent bytes that violate RTMP.
        MalformedMessage = "malformed_message";
        /// The server set a chunk size of 0, or of 2^31 or more.
        BadChunkSize = "bad_chunk_size";
        /// A message exceeds the limit of what the client buffers, or there are too many chunk
        /// streams.
        LimitExceeded = "too_much";
        /// A command holds values that cannot be parsed, or too many values.
        MalformedAmf = "malformed_amf";
        /// A command holds values that are nested too deeply.
        AmfTooDeep = "amf_too_deep";
        /// The server sent more than 1,000 messages in a row without media.
        Flooded = "flooded";
        /// No media arrived in time after the answer to `play`.
        NoMedia = "no_media";
        /// Video lasted 2 s or more without a key frame: a viewer saw no picture.
        NoPicture = "no_picture";
        /// Media stopped without an end of the stream.
        MediaStopped = "media_stopped";
        /// The server closed the connection during playback.
        ClosedInMedia = "closed_in_media";
        /// The server ended the live stream, and the stream was not published again within 3 s. Not
        /// a failure with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// The server closed the connection while the client published.
        ClosedInPublishing = "closed_in_publishing";
        /// The connection was reset.
        Reset = "reset";
        /// The server did not read from the connection until the client's send queue overflowed.
        Stuck = "stuck";
    }
}

impl Failure {
    /// Returns the reason for a violation of RTMP.
    pub const fn from_malformed(malformed: Malformed) -> Failure {
        match malformed {
            Malformed::Version(_) => Failure::HandshakeVersion,
            Malformed::Echo => Failure::HandshakeEcho,
            Malformed::Digest => Failure::HandshakeDigest,
            Malformed::ChunkSize(_) => Failure::BadChunkSize,
            Malformed::TooLong { .. } | Malformed::ChunkStreams => Failure::LimitExceeded,
            Malformed::Amf | Malformed::AmfTooMany => Failure::MalformedAmf,
            Malformed::AmfTooDeep => Failure::AmfTooDeep,
            Malformed::NoHeader(_)
            | Malformed::Interrupted(_)
            | Malformed::TooShort(_)
            | Malformed::Command
            | Malformed::Aggregate => Failure::MalformedMessage,
        }
    }

    /// Returns the reason for the code of an error status or error response.
    pub fn from_status_code(code: &str) -> Failure {
        match code {
            "NetConnection.Connect.Rejected" => Failure::ConnectRejected,
            "NetConnection.Connect.InvalidApp" => Failure::InvalidApp,
            "NetConnection.Connect.AppShutdown" | "NetConnection.Connect.Closed" => {
                Failure::AppShutdown
            }
            "NetConnection.Connect.Failed" => Failure::ConnectFailed,
            "NetStream.Play.StreamNotFound" => Failure::StreamNotFound,
            "NetStream.Play.Failed" | "NetStream.Failed" => Failure::PlayFailed,
            "NetStream.Publish.BadName" => Failure::PublishBadName,
            "NetStream.Publish.Denied"
            | "NetStream.Publish.Rejected"
            | "NetStream.Publish.Unauthorized" => Failure::PublishDenied,
            _ => Failure::StatusError,
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

    /// Returns the counter for channel changes that failed with this reason.
    pub(crate) const fn zap_counter(self) -> CounterId {
        match self {
            Failure::Connect(failure) => counter_of_connect_failure(failure),
            Failure::ConnectRejected
            | Failure::RedirectRefused
            | Failure::InvalidApp
            | Failure::AppShutdown
            | Failure::ConnectFailed
            | Failure::CommandRefused
            | Failure::StreamNotFound
            | Failure::PlayFailed
            | Failure::StatusError => m::ZAPS_FAILED_STATUS,
            Failure::TimeoutHandshake
            | Failure::TimeoutConnect
            | Failure::TimeoutCreateStream
            | Failure::TimeoutPlay
            | Failure::NoMedia
            | Failure::MediaStopped => m::ZAPS_FAILED_SILENT,
            Failure::NoPicture => m::ZAPS_FAILED_NO_PICTURE,
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
