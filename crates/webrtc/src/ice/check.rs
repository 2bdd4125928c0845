//! ICE checks on a port that several peers share.

use is::Sha1HmacProvider;
use is::stun::StunMessage;

use super::integrity::MessageIntegrity;

/// ICE check for one of several peers on a shared port (RFC 8445, 7.2.2). Nothing of it has been
/// verified.
#[derive(Debug)]
pub struct IceCheck<'a>(StunMessage<'a>);

impl<'a> IceCheck<'a> {
    /// Parses a check. Returns `None` unless it is a binding request whose user name contains both
    /// user fragments.
    pub fn parse(datagram: &'a [u8]) -> Option<IceCheck<'a>> {
        if !matches!(datagram, [0..=3, ..]) {
            return None;
        }
        let message = StunMessage::parse(datagram).ok()?;
        if !message.is_binding_request() {
            return None;
        }
        message.username()?.split_once(':')?;
        Some(IceCheck(message))
    }

    /// User fragment of the addressed side.
    pub fn receiver_ufrag(&self) -> &'a str {
        let name = self.0.username().and_then(|name| name.split_once(':'));
        name.map_or("", |(own, _)| own)
    }

    /// Returns true if the sender knows the password of the addressed side (RFC 8489, 9.1.3).
    pub fn is_authentic(&self, pwd: &str) -> bool {
        let hmac = |key: &[u8], payloads: &[&[u8]]| MessageIntegrity.sha1_hmac(key, payloads);
        self.0.verify(pwd.as_bytes(), hmac)
    }
}
