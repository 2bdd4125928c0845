//! STUN messages as TURN uses them (RFC 8489, 5; RFC 8656, 17 and 18).
//!
//! The ICE agent has its own codec, which cannot write the attributes of requests to a TURN server,
//! or take transaction ids from a seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use is::Sha1HmacProvider as _;

use crate::ice::MessageIntegrity;

/// Magic cookie, which follows type and length (RFC 8489, 5).
pub(super) const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// Length of a message header, in bytes.
pub(super) const HEADER_LENGTH: usize = 20;

/// Length of an attribute header (type and length), and of the value of MESSAGE-INTEGRITY, in
/// bytes.
const ATTRIBUTE_HEADER_LENGTH: usize = 4;
const INTEGRITY_LENGTH: usize = 20;

/// Maximum length of an error reason, in characters (RFC 8489, 14.8).
const REASON_MAX: usize = 127;

/// Method of a message (RFC 8489, 18.2), by its name in RFC 8656, 17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Allocate = 3,
    Refresh = 4,
    Send = 6,
    Data = 7,
    CreatePermission = 8,
    ChannelBind = 9,
}

impl Method {
    const ALL: [Method; 6] = [
        Method::Allocate,
        Method::Refresh,
        Method::Send,
        Method::Data,
        Method::CreatePermission,
        Method::ChannelBind,
    ];
}

/// Class of a message (RFC 8489, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Request = 0x000,
    Indication = 0x010,
    Success = 0x100,
    Error = 0x110,
}

/// Transaction ID, which matches a response to its request.
pub(super) type TransactionId = [u8; 12];

/// Attribute types (RFC 8489, 18.3; RFC 8656, 18).
pub(super) mod attribute {
    pub(crate) const USERNAME: u16 = 0x0006;
    pub(crate) const MESSAGE_INTEGRITY: u16 = 0x0008;
    pub(crate) const ERROR_CODE: u16 = 0x0009;
    pub(crate) const CHANNEL_NUMBER: u16 = 0x000c;
    pub(crate) const LIFETIME: u16 = 0x000d;
    pub(crate) const XOR_PEER_ADDRESS: u16 = 0x0012;
    pub(crate) const DATA: u16 = 0x0013;
    pub(crate) const REALM: u16 = 0x0014;
    pub(crate) const NONCE: u16 = 0x0015;
    pub(crate) const XOR_RELAYED_ADDRESS: u16 = 0x0016;
    pub(crate) const REQUESTED_ADDRESS_FAMILY: u16 = 0x0017;
    pub(crate) const REQUESTED_TRANSPORT: u16 = 0x0019;
}

/// Error: the bytes are not a STUN message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Parsed message. `method` is `None` if it is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    bytes: &'a [u8],
    pub(super) method: Option<Method>,
    pub(super) class: Class,
    pub(super) transaction: TransactionId,
    /// Start of MESSAGE-INTEGRITY, or end of the message. Attributes after it are not
    /// authenticated, and therefore not read (RFC 8489, 14.5).
    end: usize,
}

impl<'a> Message<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let (head, attributes) = bytes.split_at_checked(HEADER_LENGTH).ok_or(Malformed)?;
        let kind = u16::from_be_bytes([head[0], head[1]]);
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let is_stun = kind >> 14 == 0 && head[4..8] == COOKIE;
        if !is_stun || length != attributes.len() || !length.is_multiple_of(4) {
            return Err(Malformed);
        }
        let class = match kind & 0x110 {
            0x000 => Class::Request,
            0x010 => Class::Indication,
            0x100 => Class::Success,
            _ => Class::Error,
        };
        // The bits of the class lie between those of the method.
        let number = (kind & 0x000f) | (kind & 0x00e0) >> 1 | (kind & 0x3e00) >> 2;
        let mut message = Message {
            bytes,
            method: Method::ALL.into_iter().find(|own| *own as u16 == number),
            class,
            transaction: head[8..].try_into().expect("a head has 20 bytes"),
            end: bytes.len(),
        };
        let mut at = HEADER_LENGTH;
        while at < bytes.len() {
            let (kind, value) = attribute_at(bytes, at).ok_or(Malformed)?;
            if kind == attribute::MESSAGE_INTEGRITY && message.end == bytes.len() {
                if value.len() != INTEGRITY_LENGTH {
                    return Err(Malformed);
                }
                message.end = at;
            }
            at += ATTRIBUTE_HEADER_LENGTH + value.len().next_multiple_of(4);
        }
        Ok(message)
    }

    /// Returns the value of the first attribute of this type.
    pub(super) fn attribute(&self, number: u16) -> Option<&'a [u8]> {
        let mut at = HEADER_LENGTH;
        while at < self.end {
            let (kind, value) = attribute_at(self.bytes, at)?;
            if kind == number {
                return Some(value);
            }
            at += ATTRIBUTE_HEADER_LENGTH + value.len().next_multiple_of(4);
        }
        None
    }

    /// Returns an attribute that is a 32-bit number.
    pub(super) fn number(&self, number: u16) -> Option<u32> {
        let value: [u8; 4] = self.attribute(number)?.try_into().ok()?;
        Some(u32::from_be_bytes(value))
    }

    /// Returns an attribute that is an address, XORed with the cookie and the transaction ID (RFC
    /// 8489, 14.2).
    pub(super) fn address(&self, number: u16) -> Option<SocketAddr> {
        let value = self.attribute(number)?;
        let (&[_, family, high, low], ip) = value.split_first_chunk()?;
        let port = u16::from_be_bytes([high, low]) ^ u16::from_be_bytes([COOKIE[0], COOKIE[1]]);
        let ip: IpAddr = match family {
            1 => Ipv4Addr::from(self.unmasked(ip)?).into(),
            2 => Ipv6Addr::from(self.unmasked(ip)?).into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }

    /// Removes the mask from an IP address of this length.
    fn unmasked<const N: usize>(&self, ip: &[u8]) -> Option<[u8; N]> {
        let mut ip: [u8; N] = ip.try_into().ok()?;
        let mask = xor_mask(&self.transaction);
        ip.iter_mut().zip(mask).for_each(|(byte, own)| *byte ^= own);
        Some(ip)
    }

    /// Returns the code and the reason of an error (RFC 8489, 14.8).
    pub(super) fn error(&self) -> Option<(u16, String)> {
        let value = self.attribute(attribute::ERROR_CODE)?;
        let (&[_, _, class, number], reason) = value.split_first_chunk()?;
        let reason = String::from_utf8_lossy(reason);
        let plain = reason.chars().filter(|letter| !letter.is_control());
        let code = u16::from(class & 7) * 100 + u16::from(number.min(99));
        Some((code, plain.take(REASON_MAX).collect()))
    }

    /// Returns true if the sender knows the key (RFC 8489, 14.5).
    pub(super) fn is_authentic(&self, key: &[u8]) -> bool {
        let Some((attribute::MESSAGE_INTEGRITY, tag)) = attribute_at(self.bytes, self.end) else {
            return false;
        };
        verify_slices_are_equal(&integrity(key, &self.bytes[..self.end]), tag).is_ok()
    }
}

/// Returns the attribute at a position. `None` if it extends past the end.
fn attribute_at(bytes: &[u8], at: usize) -> Option<(u16, &[u8])> {
    let (&[a, b, c, d], rest) = bytes.get(at..)?.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes([c, d]));
    rest.get(..length.next_multiple_of(4))?;
    Some((u16::from_be_bytes([a, b]), &rest[..length]))
}

/// Mask that addresses are XORed with.
fn xor_mask(transaction: &TransactionId) -> [u8; 16] {
    let mut mask = [0; 16];
    mask[..4].copy_from_slice(&COOKIE);
    mask[4..].copy_from_slice(transaction);
    mask
}

/// Computes MESSAGE-INTEGRITY over `before`, with a length field that includes MESSAGE-INTEGRITY.
fn integrity(key: &[u8], before: &[u8]) -> [u8; INTEGRITY_LENGTH] {
    let length = before.len() - HEADER_LENGTH + ATTRIBUTE_HEADER_LENGTH + INTEGRITY_LENGTH;
    let length = (length as u16).to_be_bytes();
    MessageIntegrity.sha1_hmac(key, &[&before[..2], &length, &before[4..]])
}

/// Writer that appends one message to a buffer.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
    transaction: TransactionId,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        out: &'a mut Vec<u8>,
        method: Method,
        class: Class,
        transaction: TransactionId,
    ) -> Writer<'a> {
        let begin = out.len();
        let method = method as u16;
        let kind = (method & 0x000f) | (method & 0x0070) << 1 | (method & 0x0f80) << 2;
        out.extend_from_slice(&(kind | class as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&COOKIE);
        out.extend_from_slice(&transaction);
        Writer {
            out,
            begin,
            transaction,
        }
    }

    /// Appends an attribute. A value that exceeds the maximum length of a message is truncated.
    pub(super) fn attribute(self, number: u16, value: &[u8]) -> Writer<'a> {
        let available = usize::from(u16::MAX) & !3;
        let available = available.saturating_sub(
            self.out.len() - self.begin + ATTRIBUTE_HEADER_LENGTH + INTEGRITY_LENGTH,
        );
        let value = &value[..value.len().min(available)];
        self.out.extend_from_slice(&number.to_be_bytes());
        self.out
            .extend_from_slice(&(value.len() as u16).to_be_bytes());
        self.out.extend_from_slice(value);
        let padding = value.len().next_multiple_of(4) - value.len();
        self.out.extend_from_slice(&[0; 3][..padding]);
        self
    }

    pub(super) fn number(self, number: u16, value: u32) -> Writer<'a> {
        self.attribute(number, &value.to_be_bytes())
    }

    pub(super) fn address(self, number: u16, address: SocketAddr) -> Writer<'a> {
        let mask = xor_mask(&self.transaction);
        let port = address.port() ^ u16::from_be_bytes([COOKIE[0], COOKIE[1]]);
        let [high, low] = port.to_be_bytes();
        let mut value = [0; 20];
        let (family, length) = match address.ip() {
            IpAddr::V4(ip) => {
                value[4..8].copy_from_slice(&ip.octets());
                (1, 8)
            }
            IpAddr::V6(ip) => {
                value[4..].copy_from_slice(&ip.octets());
                (2, 20)
            }
        };
        value[..4].copy_from_slice(&[0, family, high, low]);
        let masked = value[4..].iter_mut().zip(mask);
        masked.for_each(|(byte, own)| *byte ^= own);
        self.attribute(number, &value[..length])
    }

    /// Completes the message, with MESSAGE-INTEGRITY if a key is given.
    pub(super) fn finish(self, key: Option<&[u8]>) {
        let before = &self.out[self.begin..];
        if let Some(key) = key {
            let tag = integrity(key, before);
            self.out
                .extend_from_slice(&attribute::MESSAGE_INTEGRITY.to_be_bytes());
            self.out
                .extend_from_slice(&(INTEGRITY_LENGTH as u16).to_be_bytes());
            self.out.extend_from_slice(&tag);
        }
        let length = (self.out.len() - self.begin - HEADER_LENGTH) as u16;
        self.out[self.begin + 2..self.begin + 4].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use md5::{Digest as _, Md5};
    use proptest::prelude::*;

    use super::*;
    use crate::srtp::hex;

    /// RFC 5769, 2.4: a request with long-term credentials.
    const LONG_TERM: &str = "000100602112a44278ad3433c6ad72c029da412e00060012e3839ee38388e383aae383\
        83e382afe382b9000000 15001c662f2f3439396b3935346436 4f4c33346f4c39465354767936347341 0014\
        000b6578616d706c652e6f72670000080014f67024656dd64a3e02b8e0712e85c9a28ca89666";

    /// RFC 5769, 2.2 and 2.3: responses with an IPv4 and an IPv6 address.
    const ADDRESSED: [(&str, &str); 2] = [
        (
            "0101003c2112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f722000200008\
             0001a147e112a643000800142b91f599fd9e90c38c7489f92af9ba53f06be7d780280004c07d4c96",
            "192.0.2.1:32853",
        ),
        (
            "010100482112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f722000200014\
             0002a1470113a9faa5d3f179bc25f4b5bed2b9d900080014a382954e4be67bf11784c97c8292c275\
             bfe3ed4180280004c8fb0b4c",
            "[2001:db8:1234:5678:11:2233:4455:6677]:32853",
        ),
    ];

    const XOR_MAPPED_ADDRESS: u16 = 0x0020;

    fn bytes(text: &str) -> Vec<u8> {
        hex(&text.replace([' ', '\n'], ""))
    }

    #[test]
    fn rfc_5769_sample_with_long_term_credentials_round_trips() {
        let sample = bytes(LONG_TERM);
        let message = Message::parse(&sample).expect("it is one");
        let user = "\u{30de}\u{30c8}\u{30ea}\u{30c3}\u{30af}\u{30b9}";
        let key = Md5::digest(format!("{user}:example.org:TheMatrIX"));
        assert!(message.is_authentic(&key) && !message.is_authentic(b"other"));
        let value = |number| message.attribute(number).expect("it is there");
        assert_eq!(value(attribute::USERNAME), user.as_bytes());
        assert_eq!(value(attribute::NONCE), b"f//499k954d6OL34oL9FSTvy64sA");
        assert_eq!(value(attribute::REALM), b"example.org");
        let mut made = Vec::new();
        // The sample is a Binding request, which TURN does not use: its type is set afterwards.
        Writer::new(
            &mut made,
            Method::Allocate,
            Class::Request,
            message.transaction,
        )
        .attribute(attribute::USERNAME, user.as_bytes())
        .attribute(attribute::NONCE, value(attribute::NONCE))
        .attribute(attribute::REALM, b"example.org")
        .finish(None);
        made[1] = 1;
        assert_eq!(made[..2], sample[..2]);
        assert_eq!(made[4..], sample[4..sample.len() - 24]);
        assert_eq!(
            integrity(&key, &made),
            sample[sample.len() - INTEGRITY_LENGTH..]
        );
    }

    #[test]
    fn rfc_5769_samples_with_addresses_are_parsed() {
        for (text, address) in ADDRESSED {
            let sample = bytes(text);
            let message = Message::parse(&sample).expect("it is one");
            assert!(message.is_authentic(b"VOkJxbRl1RmTxUk/WvJxBt"));
            assert_eq!(
                message.address(XOR_MAPPED_ADDRESS),
                address.parse().ok(),
                "{address}"
            );
        }
    }

    #[test]
    fn truncated_or_changed_messages_are_not_authentic() {
        let sample = bytes(LONG_TERM);
        for length in 0..sample.len() {
            assert!(Message::parse(&sample[..length]).is_err(), "{length}");
        }
        let user = "\u{30de}\u{30c8}\u{30ea}\u{30c3}\u{30af}\u{30b9}";
        let key = Md5::digest(format!("{user}:example.org:TheMatrIX"));
        for place in 0..sample.len() {
            let mut changed = sample.clone();
            changed[place] ^= 0x40;
            let authentic = Message::parse(&changed).is_ok_and(|own| own.is_authentic(&key));
            assert!(!authentic, "{place}");
        }
    }

    #[test]
    fn attributes_after_message_integrity_are_ignored() {
        let mut made = Vec::new();
        Writer::new(&mut made, Method::Refresh, Class::Success, [7; 12])
            .number(attribute::LIFETIME, 600)
            .finish(Some(b"key"));
        made.extend_from_slice(&[0, 0x0c, 0, 4, 0x40, 0, 0, 0]);
        made[3] += 8;
        let message = Message::parse(&made).expect("it is one");
        assert!(message.is_authentic(b"key"));
        assert_eq!(message.number(attribute::LIFETIME), Some(600));
        assert_eq!(message.attribute(attribute::CHANNEL_NUMBER), None);
    }

    fn any_address() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            method in proptest::sample::select(&Method::ALL[..]),
            class in proptest::sample::select(&[
                Class::Request, Class::Indication, Class::Success, Class::Error
            ][..]),
            transaction in any::<TransactionId>(),
            data in proptest::collection::vec(any::<u8>(), 0..1500),
            address in any_address(),
            lifetime in any::<u32>(),
            key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..70)),
            before in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut out = before.clone();
            Writer::new(&mut out, method, class, transaction)
                .address(attribute::XOR_PEER_ADDRESS, address)
                .attribute(attribute::DATA, &data)
                .number(attribute::LIFETIME, lifetime)
                .finish(key.as_deref());
            let message = Message::parse(&out[before.len()..]).expect("it was written");
            prop_assert_eq!(message.method, Some(method));
            prop_assert_eq!(message.class, class);
            prop_assert_eq!(message.transaction, transaction);
            prop_assert_eq!(message.address(attribute::XOR_PEER_ADDRESS), Some(address));
            prop_assert_eq!(message.attribute(attribute::DATA), Some(&data[..]));
            prop_assert_eq!(message.number(attribute::LIFETIME), Some(lifetime));
            if let Some(key) = key {
                prop_assert!(message.is_authentic(&key));
            }
        }

        #[test]
        fn arbitrary_bytes_parse_or_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let whole = bytes.len() >= HEADER_LENGTH;
            if whole {
                let length = (bytes.len() - HEADER_LENGTH) as u16 & !3;
                bytes.truncate(HEADER_LENGTH + usize::from(length));
                bytes[0] &= 0x3f;
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[4..8].copy_from_slice(&COOKIE);
            }
            if let Ok(message) = Message::parse(&bytes) {
                let _ = (message.error(), message.address(attribute::XOR_PEER_ADDRESS));
                prop_assert!(!message.is_authentic(b"nobody's"));
            }
        }
    }
}
