//! Reasons for the failure of a message client.

use super::framing::Malformed;
use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use session::CloseReason;

reasons! {
    /// Reason for a client's failure: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The server refused the WebSocket. The detail shows its answer.
        WebSocketRefused = "websocket_refused";
        /// The expected part of the greeting did not arrive in time.
        TimeoutGreeting = "timeout_greeting";
        /// The server exceeded the length limit of the greeting without sending the expected part.
        WrongGreeting = "wrong_greeting";
        /// The server closed the connection before the greeting was complete.
        ClosedInGreeting = "closed_in_greeting";
        /// The server closed the connection although further messages were due.
        ClosedByServer = "closed_by_server";
        /// The connection was reset.
        Reset = "reset";
        /// The server's bytes violate the framing, or a message exceeds the length limit.
        MalformedAnswer = "malformed_answer";
        /// The server sent more pings at once than the client answers.
        Flooded = "flooded";
        /// The server did not read from the connection until the bounded queue of the greeting
        /// overflowed.
        Stuck = "stuck";
    }
}

/// Maximum number of WebSocket pings in one read. Each one is answered with as many bytes, so that
/// a peer that only sends pings would occupy its worker completely.
const PINGS_PER_READ_MAX: usize = 256;

/// Counts a ping, and fails above the limit.
pub(super) fn count_ping(pings: &mut usize) -> Result<(), session::Failure> {
    *pings += 1;
    match *pings > PINGS_PER_READ_MAX {
        true => Err(Failure::Flooded.with(format!("more than {PINGS_PER_READ_MAX} pings at once"))),
        false => Ok(()),
    }
}

impl Failure {
    /// Returns the failure for a violation of the framing.
    pub fn from_malformed(malformed: Malformed) -> session::Failure {
        Failure::MalformedAnswer.with(malformed.to_string())
    }

    /// Returns the reason for a connection that ended too early.
    pub fn from_closed(how: CloseReason) -> Failure {
        match how {
            CloseReason::End => Failure::ClosedByServer,
            CloseReason::Reset => Failure::Reset,
            CloseReason::SendQueueFull => Failure::Stuck,
            CloseReason::Tls(error) => Failure::Connect(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::connect_failure::assert_reasons;
    use session::TlsError;

    #[test]
    fn names_are_stable_words_and_differ() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }
    #[test]
    fn tls_failures_keep_their_reason() {
        let failure = |how| Failure::from_closed(how).name();
        assert_eq!(failure(CloseReason::Tls(TlsError::Alert(40))), "tls_alert");
        assert_eq!(failure(CloseReason::Reset), "reset");
    }
}
