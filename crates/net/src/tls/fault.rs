//! TLS failures, classified as far as the user needs it to fix them.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error};

/// Class of a failure, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The certificate, or one above it in the chain, has expired.
    Expired,
    /// The certificate, or one above it in the chain, is not valid yet.
    NotYetValid,
    /// No trusted authority has signed the certificate.
    UnknownIssuer,
    /// The certificate is for another name than the requested one.
    WrongName,
    /// The certificate is invalid for another reason: its purpose, its format, or a revocation.
    BadCertificate,
    /// The two sides have no version, cipher or signature scheme in common.
    Incompatible,
    /// The peer closed the connection with this alert (RFC 8446, 6.2).
    Alert(u8),
    /// The first bytes received are not TLS.
    NotTls,
    /// The peer violated the protocol: a record that cannot be decrypted, or an unexpected message.
    Broken,
    /// The local settings are unusable: a file that cannot be read, or an invalid name.
    Unusable,
}

/// A TLS failure with its details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    pub reason: Reason,
    /// Details for the user.
    pub text: String,
}

impl Fault {
    /// Returns a fault of the local settings.
    pub(super) fn unusable(text: String) -> Fault {
        Fault {
            reason: Reason::Unusable,
            text,
        }
    }

    /// Returns a fault of a record or message that is too long.
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
        // If a trusted authority has the same name as the issuer, the signature is found to be
        // wrong.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Reason::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Reason::WrongName
        }
        _ => Reason::BadCertificate,
    }
}
