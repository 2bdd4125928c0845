//! Shared parts of protocols over TLS: keys of a scenario and failures.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS settings of clients, for URLs that require TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// Verify the server's certificate: a trusted issuer, its validity period and its name. Default
    /// true.
    pub verify: bool,
    /// PEM file of trusted certificates, relative to the scenario file: certificate authorities, or
    /// the server's own certificate. Default: the trust store of this machine.
    pub ca: Option<PathBuf>,
    /// Name that the certificate must be valid for, also sent to the server as SNI (RFC 6066, 3).
    /// Default: the URL's host.
    pub server_name: Option<String>,
}

impl Default for TlsConfig {
    fn default() -> TlsConfig {
        TlsConfig {
            verify: true,
            ca: None,
            server_name: None,
        }
    }
}

impl TlsConfig {
    /// Checks that the settings are consistent. The error says why not.
    pub fn check(&self) -> Result<(), String> {
        if !self.verify && self.ca.is_some() {
            return Err("`tls`: `ca` has no effect with `verify: false`, which accepts every certificate; remove one of them".to_owned());
        }
        let name = self.server_name.as_deref();
        if name.is_some_and(|name| name.is_empty() || name.bytes().any(|b| !b.is_ascii_graphic())) {
            return Err("`tls.server_name` must be a name or an address".to_owned());
        }
        Ok(())
    }
}

/// Reason why TLS could not be established, or failed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsError {
    /// A certificate of the server's chain has expired.
    Expired,
    /// A certificate of the server's chain is not yet valid.
    NotYetValid,
    /// The server's certificate has no trusted issuer.
    UnknownIssuer,
    /// The server's certificate is for another name.
    WrongName,
    /// The server's certificate is invalid for another reason.
    BadCertificate,
    /// The peers have no TLS version, cipher suite or signature scheme in common.
    Incompatible,
    /// The peer aborted TLS with the alert of this number (RFC 8446, 6.2).
    Alert(u8),
    /// The peer does not speak TLS.
    NotTls,
    /// The peer violated the TLS protocol.
    Broken,
    /// The connection closed during the handshake.
    Closed,
    /// The handshake did not finish before the timeout.
    TimedOut,
    /// The local TLS settings are unusable.
    Unusable,
}

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TlsError::Expired => "the server's certificate has expired",
            TlsError::NotYetValid => "the server's certificate is not yet valid",
            TlsError::UnknownIssuer => "the server's certificate has no trusted issuer",
            TlsError::WrongName => "the server's certificate is for another name",
            TlsError::BadCertificate => "the server's certificate is invalid",
            TlsError::Incompatible => "no TLS version or cipher suite in common",
            TlsError::Alert(number) => {
                return write!(out, "the peer aborted TLS with alert {number}");
            }
            TlsError::NotTls => "the peer does not speak TLS",
            TlsError::Broken => "the peer violated the TLS protocol",
            TlsError::Closed => "the connection closed during the TLS handshake",
            TlsError::TimedOut => "the TLS handshake timed out",
            TlsError::Unusable => "the TLS settings are unusable",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_verified_by_default() {
        let config: TlsConfig = serde_json::from_str("{}").expect("valid");
        assert_eq!(config, TlsConfig::default());
        assert!(config.verify && config.check().is_ok());
        let config: TlsConfig =
            serde_json::from_str(r#"{"ca":"a.pem","server_name":"cam.local"}"#).expect("valid");
        assert_eq!(config.ca, Some(PathBuf::from("a.pem")));
        assert!(config.check().is_ok());
        assert!(serde_json::from_str::<TlsConfig>(r#"{"verfy":false}"#).is_err());
    }

    #[test]
    fn inconsistent_settings_are_rejected() {
        for text in [
            r#"{"verify":false,"ca":"a.pem"}"#,
            r#"{"server_name":""}"#,
            r#"{"server_name":"a b"}"#,
        ] {
            let config: TlsConfig = serde_json::from_str(text).expect("valid syntax");
            assert!(config.check().is_err(), "{text}");
        }
    }
}
