//! What protocols over TLS share: the keys of a scenario, and how TLS can fail.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How clients speak TLS, where a URL asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// Whether the server's certificate is checked: that somebody who is trusted has signed it,
    /// that it is valid now, and for this server. Default true.
    pub verify: bool,
    /// A file (PEM) of the certificates that are trusted, relative to the scenario file: of
    /// authorities, or the server's own. Default: what this machine trusts.
    pub ca: Option<PathBuf>,
    /// The name that the certificate must be for, and that the server is told (SNI; RFC 6066, 3).
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
    /// Whether these values make sense together; if not, why.
    pub fn check(&self) -> Result<(), String> {
        if !self.verify && self.ca.is_some() {
            return Err("`tls`: a `ca` says whom to trust, and `verify: false` trusts everybody; take one out".to_owned());
        }
        let name = self.server_name.as_deref();
        if name.is_some_and(|name| name.is_empty() || name.bytes().any(|b| !b.is_ascii_graphic())) {
            return Err("`tls.server_name` must be a name or an address".to_owned());
        }
        Ok(())
    }
}

/// Why TLS could not be had, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsError {
    /// The server's certificate, or one above it, has expired.
    Expired,
    /// The server's certificate, or one above it, is not valid yet.
    NotYetValid,
    /// Nobody who is trusted has signed the server's certificate.
    UnknownIssuer,
    /// The server's certificate is for another name.
    WrongName,
    /// Something else is wrong with the server's certificate.
    BadCertificate,
    /// Both sides have no version, cipher or signature in common.
    Incompatible,
    /// The other side broke it off with the alert of this number (RFC 8446, 6.2).
    Alert(u8),
    /// The other side does not speak TLS.
    NotTls,
    /// What came breaks the rules of TLS.
    Broken,
    /// The connection ended during the handshake.
    Closed,
    /// The handshake came to no end in time.
    TimedOut,
    /// Our own settings are none that TLS can be spoken with.
    Unusable,
}

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TlsError::Expired => "the server's certificate has expired",
            TlsError::NotYetValid => "the server's certificate is not valid yet",
            TlsError::UnknownIssuer => "the server's certificate is of nobody who is trusted",
            TlsError::WrongName => "the server's certificate is for another name",
            TlsError::BadCertificate => "the server's certificate will not do",
            TlsError::Incompatible => "no version or cipher of TLS in common",
            TlsError::Alert(number) => {
                return write!(out, "TLS broken off by the other side, alert {number}");
            }
            TlsError::NotTls => "the other side does not speak TLS",
            TlsError::Broken => "what came breaks the rules of TLS",
            TlsError::Closed => "the connection ended during the TLS handshake",
            TlsError::TimedOut => "the TLS handshake came to no end in time",
            TlsError::Unusable => "TLS cannot be spoken with these settings",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_checked_unless_it_is_said() {
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
    fn senseless_values_are_refused() {
        for text in [
            r#"{"verify":false,"ca":"a.pem"}"#,
            r#"{"server_name":""}"#,
            r#"{"server_name":"a b"}"#,
        ] {
            let config: TlsConfig = serde_json::from_str(text).expect("it can be read");
            assert!(config.check().is_err(), "{text}");
        }
    }
}
