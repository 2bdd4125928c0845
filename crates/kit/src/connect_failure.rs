//! Reasons for failed connections and TLS sessions, which all protocols share.

use crate::failure::reasons;
use session::{ChannelError, TlsError};

reasons! {
    /// Reason why a connection could not be made, or its TLS failed.
    ConnectFailure {
        /// No process listens on the server's port.
        Refused = "refused";
        /// There is no route to the server.
        Unreachable = "unreachable";
        /// The server's host name has no address.
        NameNotFound = "name_not_found";
        /// The connection was not established before the timeout.
        TimedOut = "connect_timeout";
        /// The connection failed for another reason, which the detail names.
        Other = "connect_other";
        /// A certificate of the server's chain has expired.
        TlsExpired = "tls_expired";
        /// A certificate of the server's chain is not yet valid.
        TlsNotYetValid = "tls_not_yet_valid";
        /// The server's certificate has no trusted issuer.
        TlsUnknownIssuer = "tls_unknown_issuer";
        /// The server's certificate is for another name.
        TlsWrongName = "tls_wrong_name";
        /// The server's certificate is invalid for another reason: its purpose, its format, or
        /// because it is revoked.
        TlsBadCertificate = "tls_bad_certificate";
        /// Server and client have no TLS version, cipher suite or signature scheme in common.
        TlsIncompatible = "tls_incompatible";
        /// The server aborted TLS with an alert, which the detail names.
        TlsAlert = "tls_alert";
        /// The server's answer is not TLS.
        TlsNotTls = "tls_not_tls";
        /// The server violated the TLS protocol.
        TlsBroken = "tls_broken";
        /// The connection closed during the TLS handshake.
        TlsClosed = "tls_closed";
        /// The connection was established, but the TLS handshake did not finish before the timeout.
        TlsTimeout = "tls_timeout";
        /// The TLS settings are unusable: an error of the tester's configuration.
        TlsUnusable = "tls_unusable";
        /// This machine had no free port, or for UDP no free port pair: a limit of the tester.
        NoPorts = "local_ports";
        /// This process had no free file descriptor: a limit of the tester.
        NoDescriptors = "local_files";
    }
}

impl ConnectFailure {
    /// Returns `true` for a limit of the tester, which says nothing about the server.
    pub const fn is_local(self) -> bool {
        matches!(
            self,
            ConnectFailure::NoPorts | ConnectFailure::NoDescriptors
        )
    }
}

impl From<ChannelError> for ConnectFailure {
    fn from(error: ChannelError) -> ConnectFailure {
        match error {
            ChannelError::Refused => ConnectFailure::Refused,
            ChannelError::Unreachable => ConnectFailure::Unreachable,
            ChannelError::NameNotFound => ConnectFailure::NameNotFound,
            ChannelError::TimedOut => ConnectFailure::TimedOut,
            ChannelError::Tls(error) => error.into(),
            ChannelError::NoPorts => ConnectFailure::NoPorts,
            ChannelError::NoDescriptors => ConnectFailure::NoDescriptors,
            ChannelError::NoMembership
            | ChannelError::NoInterface
            | ChannelError::NotPermitted
            | ChannelError::Other(_) => ConnectFailure::Other,
        }
    }
}

impl From<TlsError> for ConnectFailure {
    fn from(error: TlsError) -> ConnectFailure {
        match error {
            TlsError::Expired => ConnectFailure::TlsExpired,
            TlsError::NotYetValid => ConnectFailure::TlsNotYetValid,
            TlsError::UnknownIssuer => ConnectFailure::TlsUnknownIssuer,
            TlsError::WrongName => ConnectFailure::TlsWrongName,
            TlsError::BadCertificate => ConnectFailure::TlsBadCertificate,
            TlsError::Incompatible => ConnectFailure::TlsIncompatible,
            TlsError::Alert(_) => ConnectFailure::TlsAlert,
            TlsError::NotTls => ConnectFailure::TlsNotTls,
            TlsError::Broken => ConnectFailure::TlsBroken,
            TlsError::Closed => ConnectFailure::TlsClosed,
            TlsError::TimedOut => ConnectFailure::TlsTimeout,
            TlsError::Unusable => ConnectFailure::TlsUnusable,
        }
    }
}

/// Checks rules for all reasons of a protocol: names are unique identifiers, also among the
/// shared ones, and no name is the prefix of a group, because a threshold on it would count the
/// whole group.
#[cfg(any(test, feature = "testing"))]
pub fn assert_reasons(own: impl Iterator<Item = (&'static str, &'static str)>) {
    let shared = ConnectFailure::ALL.iter();
    let shared = shared.map(|failure| (failure.name(), failure.doc()));
    let mut names = Vec::new();
    for (name, doc) in own.chain(shared) {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        assert!(
            name.bytes().all(|byte| letter(byte) || byte == b'_'),
            "{name}"
        );
        assert!(!doc.is_empty(), "{name}");
        names.push(name);
    }
    for name in &names {
        let group = format!("{name}_");
        let same = names.iter().filter(|other| other == &name).count();
        assert_eq!(same, 1, "{name}");
        assert!(
            !names.iter().any(|other| other.starts_with(&group)),
            "{name}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tls_error_has_a_name_in_the_tls_group() {
        for error in [
            TlsError::Expired,
            TlsError::NotYetValid,
            TlsError::UnknownIssuer,
            TlsError::WrongName,
            TlsError::BadCertificate,
            TlsError::Incompatible,
            TlsError::Alert(40),
            TlsError::NotTls,
            TlsError::Broken,
            TlsError::Closed,
            TlsError::TimedOut,
            TlsError::Unusable,
        ] {
            let failure = ConnectFailure::from(ChannelError::Tls(error));
            assert_eq!(failure, ConnectFailure::from(error));
            assert!(failure.name().starts_with("tls_"), "{error:?}");
            assert!(!failure.is_local());
        }
    }
}
