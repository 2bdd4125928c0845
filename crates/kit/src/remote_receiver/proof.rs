//! Proof of knowing a receiver's secret without sending it.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use sha2::Sha256;

use crate::auth::hex;

/// Secret shared by a receiver and its clients. It is never displayed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// Returns the challenge of a connection. Challenges are unique, and unpredictable without the key.
pub fn challenge_of(key: &[u8], number: u64) -> String {
    hex(&hmac(key, &number.to_be_bytes()))
}

/// Returns the proof of knowing the secret, for a challenge.
pub fn proof(secret: &Secret, challenge: &str) -> String {
    hex(&hmac(secret.0.as_bytes(), challenge.as_bytes()))
}

/// Returns `true` if the proof matches the challenge. Runs in constant time for proofs of equal
/// length.
pub(super) fn is_valid_proof(given: &str, secret: &Secret, challenge: &str) -> bool {
    let right = proof(secret, challenge);
    let differences = given
        .bytes()
        .zip(right.bytes())
        .fold(0, |all, (one, other)| all | (one ^ other));
    given.len() == right.len() && differences == 0
}

/// HMAC with SHA-256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of HMAC has any length");
    mac.chain_update(message).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_matches_the_rfc_4231_examples() {
        // RFC 4231, 4.3 and 4.7.
        let made = hmac(b"Jefe", b"what do ya want for nothing?");
        let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&made), known);
        let long = hmac(
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
        );
        let known = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(hex(&long), known);
    }

    #[test]
    fn only_the_right_secret_gives_a_valid_proof() {
        let secret = Secret::new("one two");
        let challenge = challenge_of(&[7; 32], 1);
        assert_ne!(challenge, challenge_of(&[7; 32], 2));
        let right = proof(&secret, &challenge);
        assert!(is_valid_proof(&right, &secret, &challenge));
        assert!(!is_valid_proof(&right, &Secret::new("one"), &challenge));
        assert!(!is_valid_proof(&right, &secret, "another"));
        assert!(!is_valid_proof("", &secret, &challenge));
        assert!(!is_valid_proof(&right[1..], &secret, &challenge));
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).expect("a text"), "\"***\"");
    }
}
