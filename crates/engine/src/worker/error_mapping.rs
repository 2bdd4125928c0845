//! Maps errors of the operating system and of TLS to channel errors.

use std::io;

use net::tls::Reason;
use session::{ChannelError, TlsError};

/// Returns the channel error for an error of the operating system.
pub(super) fn channel_error(error: &io::Error) -> ChannelError {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ChannelError::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ChannelError::Unreachable
        }
        io::ErrorKind::TimedOut => ChannelError::TimedOut,
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => ChannelError::NoPorts,
        _ => match error.raw_os_error() {
            Some(EMFILE | ENFILE) => ChannelError::NoDescriptors,
            code => ChannelError::Other(code.unwrap_or(0)),
        },
    }
}

/// Returns the channel's TLS error for a failure reason of TLS.
pub(super) fn tls_error(reason: Reason) -> TlsError {
    match reason {
        Reason::Expired => TlsError::Expired,
        Reason::NotYetValid => TlsError::NotYetValid,
        Reason::UnknownIssuer => TlsError::UnknownIssuer,
        Reason::WrongName => TlsError::WrongName,
        Reason::BadCertificate => TlsError::BadCertificate,
        Reason::Incompatible => TlsError::Incompatible,
        Reason::Alert(number) => TlsError::Alert(number),
        Reason::NotTls => TlsError::NotTls,
        Reason::Broken => TlsError::Broken,
        Reason::Unusable => TlsError::Unusable,
    }
}
