//! Why a connection cannot be made, or its TLS fails: the same for all protocols.

use crate::failure::reasons;
use crate::session::{ChannelError, TlsError};

reasons! {
    /// Why there is no connection, or none with TLS any more.
    ConnectFailure {
        /// Nobody listens on the server's port.
        Refused = "refused";
        /// There is no way to the server.
        Unreachable = "unreachable";
        /// The server's name has no address.
        NameNotFound = "name_not_found";
        /// The connection did not stand in time.
        TimedOut = "connect_timeout";
        /// The connection could not be made for another reason, which the detail names.
        Other = "connect_other";
        /// The server's certificate, or one above it, has expired.
        TlsExpired = "tls_expired";
        /// The server's certificate, or one above it, is not valid yet.
        TlsNotYetValid = "tls_not_yet_valid";
        /// Nobody who is trusted has signed the server's certificate.
        TlsUnknownIssuer = "tls_unknown_issuer";
        /// The server's certificate is for another name.
        TlsWrongName = "tls_wrong_name";
        /// Something else is wrong with the server's certificate: its purpose, its form, or that it
        /// is revoked.
        TlsBadCertificate = "tls_bad_certificate";
        /// Server and client have no version, cipher or signature of TLS in common.
        TlsIncompatible = "tls_incompatible";
        /// The server broke TLS off with an alert, which the detail names.
        TlsAlert = "tls_alert";
        /// What the server answered is not TLS.
        TlsNotTls = "tls_not_tls";
        /// What the server sent breaks the rules of TLS.
        TlsBroken = "tls_broken";
        /// The connection ended during the handshake of TLS.
        TlsClosed = "tls_closed";
        /// There was a connection, but the handshake of TLS came to no end in time.
        TlsTimeout = "tls_timeout";
        /// The settings of TLS cannot be used: our own fault.
        TlsUnusable = "tls_unusable";
        /// This machine had no free port left (of UDP: no pair of them): the tester's own limit.
        NoPorts = "local_ports";
        /// This process had no file descriptor left: the tester's own limit.
        NoFiles = "local_files";
    }
}

impl ConnectFailure {
    /// Whether it is a limit of the tester's own, and says nothing of the server.
    pub const fn is_local(self) -> bool {
        matches!(self, ConnectFailure::NoPorts | ConnectFailure::NoFiles)
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
            ChannelError::NoFiles => ConnectFailure::NoFiles,
            ChannelError::NoMembership | ChannelError::NoInterface | ChannelError::Other(_) => {
                ConnectFailure::Other
            }
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Demands of a protocol's own reasons what holds for all: names are words that differ, also
    /// from shared ones, and none is that of a group, since a threshold on it would count them all.
    pub(crate) fn assert_reasons(own: impl Iterator<Item = (&'static str, &'static str)>) {
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

    #[test]
    fn each_fault_of_tls_has_a_name_in_its_group() {
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
