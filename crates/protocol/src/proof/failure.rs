//! The ways in which a client can fail.

use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// No media came in time after the first hello.
        HandshakeTimeout = "handshake_timeout";
        /// Nothing came for so long that media had stopped.
        MediaStopped = "media_stopped";
        /// Nobody is at the server's port any more.
        Reset = "reset";
    }
}
