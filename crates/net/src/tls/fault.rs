//! What can go wrong with TLS, told apart as far as one who mends it needs to know.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error};

/// What went wrong, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The certificate, or one above it, is not valid any more.
    Expired,
    /// The certificate, or one above it, is not valid yet.
    NotYetValid,
    /// Nobody who is trusted has signed it.
    UnknownIssuer,
    /// It is for another name than the one that was asked for.
    WrongName,
    /// Something else is wrong with the certificate: its purpose, its form; or it is revoked.
    BadCertificate,
    /// There is no version, cipher or signature that both sides know.
    Incompatible,
    /// The other side broke it off, with this number (RFC 8446, 6.2).
    Alert(u8),
    /// What came first is not TLS.
    NotTls,
    /// What came breaks the rules: a record that cannot be opened, a message where it must not be.
    Broken,
    /// Our own settings make none: a file that cannot be read, a name that is none.
    Unusable,
}

/// What went wrong, and how exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// What.
    pub reason: Reason,
    /// How, for whoever looks into it.
    pub text: String,
}

impl Fault {
    /// Of our own settings.
    pub(super) fn unusable(text: String) -> Fault {
        Fault {
            reason: Reason::Unusable,
            text,
        }
    }

    /// Of a record or message that is longer than is taken.
    pub(super) fn too_long(error: &dyn fmt::Display) -> Fault {
        Fault {
            reason: Reason::Broken,
            text: error.to_string(),
        }
    }

    pub(super) fn of(error: &Error) -> Fault {
        let reason = match error {
            Error::InvalidCertificate(wrong) => of_certificate(wrong),
            Error::NoCertificatesPresented => Reason::BadCertificate,
            Error::PeerIncompatible(_) => Reason::Incompatible,
            Error::AlertReceived(
                AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion,
            ) => Reason::Incompatible,
            Error::AlertReceived(alert) => Reason::Alert((*alert).into()),
            Error::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType
                | rustls::InvalidMessage::UnknownProtocolVersion,
            ) => Reason::NotTls,
            Error::InconsistentKeys(_) | Error::General(_) | Error::EncryptError => {
                Reason::Unusable
            }
            _ => Reason::Broken,
        };
        Fault {
            reason,
            text: error.to_string(),
        }
    }
}

fn of_certificate(wrong: &CertificateError) -> Reason {
    match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Reason::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Reason::NotYetValid
        }
        // Where somebody else of the same name is trusted, it is the signature that is found to be
        // wrong.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Reason::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Reason::WrongName
        }
        _ => Reason::BadCertificate,
    }
}
