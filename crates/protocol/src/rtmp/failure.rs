//! The ways in which a client can fail.

use super::codec::Malformed;
use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;
use crate::session::Closed;

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The handshake came to no end in time.
        TimeoutHandshake = "timeout_handshake";
        /// The connection ended within the handshake: the server speaks no RTMP, or has too many
        /// clients.
        ClosedInHandshake = "closed_in_handshake";
        /// The server's handshake has another version than 3: it speaks no RTMP, or an encrypted
        /// kind.
        HandshakeVersion = "handshake_version";
        /// The server's part of the handshake does not prove that it read the client's digest
        /// (`handshake: digest`).
        HandshakeEcho = "handshake_echo";
        /// The server's part of the handshake bears a digest that is wrong (`handshake: digest`).
        HandshakeDigest = "handshake_digest";
        /// `connect` was not answered in time.
        TimeoutConnect = "timeout_connect";
        /// `createStream` was not answered in time.
        TimeoutCreateStream = "timeout_create_stream";
        /// `play` was not answered in time.
        TimeoutPlay = "timeout_play";
        /// `publish` was not answered in time.
        TimeoutPublish = "timeout_publish";
        /// The server closed the connection instead of an answer to `connect`: so some servers say
        /// that there is no such application, or that the client may not.
        ClosedInConnect = "closed_in_connect";
        /// The server closed the connection instead of an answer to a later command, which the
        /// detail names.
        ClosedInCommand = "closed_in_command";
        /// The server rejected the connection (`NetConnection.Connect.Rejected`).
        ConnectRejected = "connect_rejected";
        /// The server refused `connect` and named another URL to go to, which the detail shows. It
        /// is not followed.
        RedirectRefused = "redirect_refused";
        /// There is no such application (`NetConnection.Connect.InvalidApp`).
        InvalidApp = "invalid_app";
        /// The server closes the application (`NetConnection.Connect.AppShutdown` or `.Closed`).
        AppShutdown = "app_shutdown";
        /// The server refused `connect` in another way, which the detail names.
        ConnectFailed = "connect_failed";
        /// The server refused another command (`_error`), which the detail names.
        CommandRefused = "command_refused";
        /// There is no such stream (`NetStream.Play.StreamNotFound`).
        StreamNotFound = "stream_not_found";
        /// The server cannot play the stream (`NetStream.Play.Failed`).
        PlayFailed = "play_failed";
        /// The stream's name is in use, or none that may be published
        /// (`NetStream.Publish.BadName`).
        PublishBadName = "publish_bad_name";
        /// The client may not publish (`NetStream.Publish.Denied`, `.Rejected` or `.Unauthorized`).
        PublishDenied = "publish_denied";
        /// The server reported another error (`onStatus` with the level `error`), whose code the
        /// detail names.
        StatusError = "status_error";
        /// What the server sends is no RTMP, or breaks its rules.
        MalformedMessage = "malformed_message";
        /// The server set chunks of 0 bytes, or of 2^31 or more.
        BadChunkSize = "bad_chunk_size";
        /// A message that has to be kept is longer than is taken, or there are too many chunk
        /// streams at a time.
        TooMuch = "too_much";
        /// A command holds values that cannot be read, or too many.
        MalformedAmf = "malformed_amf";
        /// A command holds values within values, deeper than is followed.
        AmfTooDeep = "amf_too_deep";
        /// The server sent so many messages without media between them that it may never end.
        Flooded = "flooded";
        /// The answer to `play` came, and then no media in time.
        NoMedia = "no_media";
        /// No key frame in 2 s or more of video: a viewer saw no picture.
        NoPicture = "no_picture";
        /// Media came to a stop, and the stream did not end.
        MediaStopped = "media_stopped";
        /// The server closed the connection while media came.
        ClosedInMedia = "closed_in_media";
        /// The server ended the live stream, and nobody published it again within 3 s.
        /// Not with `leave: at_end`.
        EndedByServer = "ended_by_server";
        /// The server closed the connection while the client published.
        ClosedInPublishing = "closed_in_publishing";
        /// The connection was reset.
        Reset = "reset";
        /// The server took nothing off the connection for so long that it was given up.
        Stuck = "stuck";
    }
}

impl Failure {
    /// Of what is no RTMP.
    pub const fn of_malformed(malformed: Malformed) -> Failure {
        match malformed {
            Malformed::Version(_) => Failure::HandshakeVersion,
            Malformed::Echo => Failure::HandshakeEcho,
            Malformed::Digest => Failure::HandshakeDigest,
            Malformed::ChunkSize(_) => Failure::BadChunkSize,
            Malformed::TooLong { .. } | Malformed::ChunkStreams => Failure::TooMuch,
            Malformed::Amf | Malformed::AmfTooMany => Failure::MalformedAmf,
            Malformed::AmfTooDeep => Failure::AmfTooDeep,
            Malformed::NoHeader(_)
            | Malformed::Interrupted(_)
            | Malformed::TooShort(_)
            | Malformed::Command
            | Malformed::Aggregate => Failure::MalformedMessage,
        }
    }

    /// Of the code in a status or in an answer that says no.
    pub fn of_code(code: &str) -> Failure {
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
}
