//! The ways in which a client of messages can fail.

use super::frame::Malformed;
use crate::failure::{bounded, reasons};
use crate::session::{self, ChannelError, Closed, TlsError};

reasons! {
    /// Nobody listens on the server's port.
    Refused = "refused";
    /// There is no way to the server.
    Unreachable = "unreachable";
    /// The server's name has no address.
    NameNotFound = "name_not_found";
    /// The connection did not stand in time.
    ConnectTimeout = "connect_timeout";
    /// The connection could not be made for another reason, which the detail names.
    ConnectOther = "connect_other";
    /// TLS could not be had, or was broken off: the detail says why.
    Tls = "tls";
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
    /// The server took nothing off the connection until the bounded queue of the greeting ran over.
    Stuck = "stuck";
    /// This machine had no free port left: the tester's own limit.
    LocalPorts = "local_ports";
    /// This process had no file descriptor left: the tester's own limit.
    LocalFiles = "local_files";
}

impl Failure {
    /// The failure with what exactly happened.
    pub fn with(self, detail: impl Into<String>) -> session::Failure {
        session::Failure {
            reason: self.name(),
            detail: bounded(detail.into()),
        }
    }

    /// Of bytes that are no messages.
    pub fn of_malformed(malformed: Malformed) -> session::Failure {
        Failure::MalformedAnswer.with(malformed.to_string())
    }

    /// Of a connection that could not be made.
    pub const fn of_connect(error: ChannelError) -> Failure {
        match error {
            ChannelError::Refused => Failure::Refused,
            ChannelError::Unreachable => Failure::Unreachable,
            ChannelError::NameNotFound => Failure::NameNotFound,
            ChannelError::TimedOut | ChannelError::Tls(TlsError::TimedOut) => {
                Failure::ConnectTimeout
            }
            ChannelError::NoPorts => Failure::LocalPorts,
            ChannelError::NoFiles => Failure::LocalFiles,
            ChannelError::Tls(_) => Failure::Tls,
            ChannelError::NoMembership | ChannelError::NoInterface | ChannelError::Other(_) => {
                Failure::ConnectOther
            }
        }
    }

    /// Of a connection that ended though more was to come.
    pub const fn of_closed(how: Closed) -> Failure {
        match how {
            Closed::End => Failure::ClosedByServer,
            Closed::Reset => Failure::Reset,
            Closed::Stuck => Failure::Stuck,
            Closed::Tls(_) => Failure::Tls,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Failure::ALL.iter().map(|failure| failure.name()).collect();
        assert_eq!(names.len(), Failure::ALL.len());
        assert!(Failure::ALL.iter().all(|failure| !failure.doc().is_empty()));
    }
}
