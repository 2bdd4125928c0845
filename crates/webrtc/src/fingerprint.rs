//! Fingerprint of a certificate (RFC 8122, 5).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{self, Algorithm, SHA256, SHA384, SHA512};
use thiserror::Error;

/// Hash of a certificate, with the name of the hash function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Name in the IANA registry, in lower case: `sha-256`.
    hash: String,
    digest: Vec<u8>,
}

/// Parse error of a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a certificate fingerprint; example: `sha-256 AB:CD:...`")]
pub struct ParseFingerprintError;

/// Returns a hash function that is accepted for certificates. SHA-1 and MD5 prove nothing (RFC
/// 8122, 5.1).
fn algorithm(hash: &str) -> Option<&'static Algorithm> {
    match hash {
        "sha-256" => Some(&SHA256),
        "sha-384" => Some(&SHA384),
        "sha-512" => Some(&SHA512),
        _ => None,
    }
}

impl Fingerprint {
    /// Computes the SHA-256 fingerprint of a certificate in DER.
    pub fn of_certificate(certificate: &[u8]) -> Fingerprint {
        Fingerprint {
            hash: "sha-256".to_owned(),
            digest: digest::digest(&SHA256, certificate).as_ref().to_vec(),
        }
    }

    /// Returns `true` if the hash function is accepted and the digest has its length.
    pub fn is_usable(&self) -> bool {
        algorithm(&self.hash).is_some_and(|known| known.output_len() == self.digest.len())
    }

    /// Returns `true` if the fingerprint matches a certificate in DER.
    pub fn matches(&self, certificate: &[u8]) -> bool {
        algorithm(&self.hash)
            .is_some_and(|known| digest::digest(known, certificate).as_ref() == self.digest)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.hash)?;
        for (place, byte) in self.digest.iter().enumerate() {
            write!(out, "{}{byte:02X}", if place == 0 { ' ' } else { ':' })?;
        }
        Ok(())
    }
}

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Fingerprint, ParseFingerprintError> {
        let (hash, digest) = text.trim().split_once(' ').ok_or(ParseFingerprintError)?;
        let byte = |pair: &str| match pair.as_bytes() {
            [high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                u8::from_str_radix(pair, 16).map_err(|_| ParseFingerprintError)
            }
            _ => Err(ParseFingerprintError),
        };
        Ok(Fingerprint {
            hash: hash.to_ascii_lowercase(),
            digest: digest
                .trim()
                .split(':')
                .map(byte)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_fingerprint_parses_back() {
        let fingerprint = Fingerprint::of_certificate(b"a certificate");
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint.clone()));
        assert_eq!(text.to_ascii_lowercase().parse(), Ok(fingerprint.clone()));
        assert!(fingerprint.is_usable());
        assert!(fingerprint.matches(b"a certificate") && !fingerprint.matches(b"another"));
        for wrong in ["", "sha-256", "sha-256 AB:C", "sha-256 AB:+C", "sha-256 :"] {
            assert_eq!(
                wrong.parse::<Fingerprint>(),
                Err(ParseFingerprintError),
                "{wrong}"
            );
        }
    }

    #[test]
    fn weak_hashes_match_no_certificate() {
        for weak in ["sha-1 AB:CD", "sha-256 AB:CD"] {
            let weak: Fingerprint = weak.parse().expect("it is written as one");
            assert!(!weak.is_usable() && !weak.matches(b"a certificate"));
        }
    }
}
