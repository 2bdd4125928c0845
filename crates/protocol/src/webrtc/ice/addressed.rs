//! Telling the checks of many peers on one port apart.

use is::stun::StunMessage;

/// The user fragment of the side that a check is sent to (RFC 8445, 7.2.2), as far as it says one:
/// nothing is verified. A server that has one port for all finds the peer by it.
pub fn addressed_to(datagram: &[u8]) -> Option<&str> {
    if !matches!(datagram, [0..=3, ..]) {
        return None;
    }
    let message = StunMessage::parse(datagram).ok()?;
    let (ufrag, _) = message.username()?.split_once(':')?;
    Some(ufrag)
}
