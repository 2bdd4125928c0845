//! Telling the checks of many peers on one port apart.

use is::Sha1HmacProvider;
use is::stun::StunMessage;

use super::integrity::MessageIntegrity;

/// A check that is sent to some peer on a shared port (RFC 8445, 7.2.2). Nothing of it is verified
/// yet.
#[derive(Debug)]
pub struct Check<'a>(StunMessage<'a>);

impl<'a> Check<'a> {
    /// Reads one; none where it is no binding request with a user name of both sides.
    pub fn parse(datagram: &'a [u8]) -> Option<Check<'a>> {
        if !matches!(datagram, [0..=3, ..]) {
            return None;
        }
        let message = StunMessage::parse(datagram).ok()?;
        if !message.is_binding_request() {
            return None;
        }
        message.username()?.split_once(':')?;
        Some(Check(message))
    }

    /// The user fragment of the side that it is sent to.
    pub fn addressed_to(&self) -> &'a str {
        let name = self.0.username().and_then(|name| name.split_once(':'));
        name.map_or("", |(own, _)| own)
    }

    /// Whether whoever sent it knows that side's password (RFC 8489, 9.1.3).
    pub fn is_authentic(&self, pwd: &str) -> bool {
        let hmac = |key: &[u8], payloads: &[&[u8]]| MessageIntegrity.sha1_hmac(key, payloads);
        self.0.verify(pwd.as_bytes(), hmac)
    }
}
