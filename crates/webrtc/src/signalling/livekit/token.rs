//! Token that tells a LiveKit server the identity and the permissions of a client: a JSON Web Token
//! (RFC 7519), signed with HMAC and SHA-256 (RFC 7515, 3).

use std::time::Duration;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Validity of a token. A server checks it only when a client joins.
const VALIDITY: Duration = Duration::from_secs(3600);

/// Content of a token.
#[derive(Clone, Debug)]
pub(super) struct Grant<'a> {
    /// Issuer: the name of the API key.
    pub(super) api_key: &'a str,
    /// Name of the client, unique in the room.
    pub(super) identity: &'a str,
    pub(super) room: &'a str,
    pub(super) publishes: bool,
    pub(super) subscribes: bool,
}

/// Returns the signed token of a grant. `now` is the time since 1970.
pub(super) fn token(grant: &Grant<'_>, secret: &str, now: Duration) -> String {
    let claims = json!({
        "iss": grant.api_key,
        "sub": grant.identity,
        "exp": (now + VALIDITY).as_secs(),
        "video": {
            "roomJoin": true,
            "room": grant.room,
            "canPublish": grant.publishes,
            "canPublishData": false,
            "canSubscribe": grant.subscribes,
        },
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = json!({"alg": "HS256", "typ": "JWT"});
    let signed = format!("{}.{}", part(&head), part(&claims));
    let tag = sign(&Key::new(HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use sha2::Sha256;

    use super::*;

    #[test]
    fn token_has_the_grant_and_is_signed_with_the_secret() {
        let grant = Grant {
            api_key: "devkey",
            identity: "one",
            room: "a room",
            publishes: true,
            subscribes: false,
        };
        let text = token(&grant, "secret", Duration::from_secs(1_000));
        let parts: Vec<&str> = text.split('.').collect();
        let read = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("base64");
        let json = |part: &str| serde_json::from_slice::<Value>(&read(part)).expect("JSON");
        assert_eq!(json(parts[0])["alg"], "HS256");
        let claims = json(parts[1]);
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&json!("devkey"), &json!("one"))
        );
        assert_eq!(claims["exp"], 4_600);
        assert_eq!(claims["video"]["room"], "a room");
        assert_eq!(claims["video"]["canPublish"], true);
        assert_eq!(claims["video"]["canSubscribe"], false);
        // Another implementation of HMAC verifies the signature.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"secret").expect("any length will do");
        mac.update(format!("{}.{}", parts[0], parts[1]).as_bytes());
        mac.verify_slice(&read(parts[2])).expect("it is authentic");
    }
}
