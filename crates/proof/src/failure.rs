//! Failure reasons of clients.

use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;

reasons! {
    /// Reason why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// No media arrived before the timeout after the first hello.
        HandshakeTimeout = "handshake_timeout";
        /// Media stopped: no packet arrived for longer than `silence`.
        MediaStopped = "media_stopped";
        /// The server's port is no longer reachable.
        Reset = "reset";
    }
}
