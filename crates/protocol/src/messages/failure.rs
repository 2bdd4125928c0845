//! The ways in which a client of messages can fail.

use super::frame::Malformed;
use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;
use crate::session::{self, Closed};

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The server would not speak WebSocket: the detail says what it answered.
        WebSocketRefused = "websocket_refused";
        /// What the greeting expects did not come in time.
        TimeoutGreeting = "timeout_greeting";
        /// The server said so much, and not what the greeting expects.
        WrongGreeting = "wrong_greeting";
        /// The server closed the connection before the greeting was over.
        ClosedInGreeting = "closed_in_greeting";
        /// The server closed the connection though messages were still to come.
        ClosedByServer = "closed_by_server";
        /// The connection was reset.
        Reset = "reset";
        /// What the server sends is not framed as was agreed, or is longer than is taken.
        MalformedAnswer = "malformed_answer";
        /// The server sent more pings at once than a client answers.
        Flooded = "flooded";
        /// The server took nothing off the connection until the bounded queue of the greeting ran
        /// over.
        Stuck = "stuck";
    }
}

/// The most pings of a WebSocket that one read may bring. Each is answered with as much, so that a
/// peer that sends nothing else would make its worker do nothing else.
const PINGS_A_READ: usize = 256;

/// Counts a ping of a read.
pub(super) fn one_ping_more(pings: &mut usize) -> Result<(), session::Failure> {
    *pings += 1;
    match *pings > PINGS_A_READ {
        true => Err(Failure::Flooded.with(format!("more than {PINGS_A_READ} pings at once"))),
        false => Ok(()),
    }
}

impl Failure {
    /// Of bytes that are no messages.
    pub fn of_malformed(malformed: Malformed) -> session::Failure {
        Failure::MalformedAnswer.with(malformed.to_string())
    }

    /// Of a connection that ended though more was to come.
    pub fn of_closed(how: Closed) -> Failure {
        match how {
            Closed::End => Failure::ClosedByServer,
            Closed::Reset => Failure::Reset,
            Closed::Stuck => Failure::Stuck,
            Closed::Tls(error) => Failure::Connect(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect_failure::tests::assert_reasons;
    use crate::session::TlsError;

    #[test]
    fn names_are_stable_words_and_differ() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }
    #[test]
    fn tls_that_fails_says_why() {
        let failure = |how| Failure::of_closed(how).name();
        assert_eq!(failure(Closed::Tls(TlsError::Alert(40))), "tls_alert");
        assert_eq!(failure(Closed::Reset), "reset");
    }
}
