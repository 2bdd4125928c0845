//! Authentication of STUN messages.

use aws_lc_rs::hmac::{Context, HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key};

/// HMAC-SHA1 (RFC 8489, 14.5).
#[derive(Debug)]
pub(crate) struct MessageIntegrity;

impl is::Sha1HmacProvider for MessageIntegrity {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        let mut context = Context::with_key(&Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, key));
        for payload in payloads {
            context.update(payload);
        }
        let tag = context.sign();
        tag.as_ref().try_into().expect("SHA-1 has 20 bytes")
    }
}
