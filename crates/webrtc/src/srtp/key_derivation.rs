//! Derivation of session keys from master keys (RFC 3711, 4.3).

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;

/// Length of a counter block, in bytes.
pub(super) const BLOCK_LENGTH: usize = 16;

/// Purpose of a session key (RFC 3711, 4.3.1 and 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    RtpEncryption = 0,
    RtpAuthentication = 1,
    RtpSalt = 2,
    RtcpEncryption = 3,
    RtcpAuthentication = 4,
    RtcpSalt = 5,
}

/// Labels of the keys of RTP and of RTCP, which differ: for encryption, authentication and salt.
pub(super) const RTP: [Label; 3] = [
    Label::RtpEncryption,
    Label::RtpAuthentication,
    Label::RtpSalt,
];
pub(super) const RTCP: [Label; 3] = [
    Label::RtcpEncryption,
    Label::RtcpAuthentication,
    Label::RtcpSalt,
];

/// AES in counter mode, with a key of 16 or 32 bytes.
///
/// # Panics
/// The key has another length. No profile has such a key.
pub(super) fn counter_mode(key: &[u8]) -> EncryptingKey {
    let algorithm = match key.len() {
        32 => &AES_256,
        _ => &AES_128,
    };
    let key = UnboundCipherKey::new(algorithm, key).expect("a profile's key is one of AES");
    EncryptingKey::ctr(key).expect("AES has a counter mode")
}

/// Encrypts or decrypts in counter mode, from this counter block on.
pub(super) fn apply_keystream(key: &EncryptingKey, block: [u8; BLOCK_LENGTH], bytes: &mut [u8]) {
    let context = EncryptionContext::Iv128(FixedLength::from(block));
    key.less_safe_encrypt(bytes, context)
        .expect("counter mode takes any length");
}

/// Fills `out` with a session key. The key derivation rate is 0: all packets have the same session
/// key. A salt of 12 bytes is used as if two zero bytes followed (RFC 7714, 11).
pub(super) fn derive(master_key: &[u8], master_salt: &[u8], label: Label, out: &mut [u8]) {
    let mut block = [0; BLOCK_LENGTH];
    block[..master_salt.len()].copy_from_slice(master_salt);
    block[7] ^= label as u8;
    out.fill(0);
    apply_keystream(&counter_mode(master_key), block, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srtp::hex::hex;

    /// RFC 3711, B.2.
    #[test]
    fn counter_mode_matches_the_rfc_keystream() {
        let key = counter_mode(&hex("2B7E151628AED2A6ABF7158809CF4F3C"));
        let block = hex("F0F1F2F3F4F5F6F7F8F9FAFBFCFD0000");
        let mut stream = [0; 48];
        apply_keystream(&key, block.try_into().expect("it is a block"), &mut stream);
        let expected = "E03EAD0935C95E80E166B16DD92B4EB4D23513162B02D0F72A43A2FE4A5F97AB\
                        41E95B3BB0A2E8DD477901E4FCA894C0";
        assert_eq!(stream, hex(expected)[..]);
    }

    /// RFC 3711, B.3.
    #[test]
    fn session_keys_match_the_rfc() {
        let key = hex("E1F97A0D3E018BE0D64FA32C06DE4139");
        let salt = hex("0EC675AD498AFEEBB6960B3AABE6");
        for (label, expected) in [
            (Label::RtpEncryption, "C61E7A93744F39EE10734AFE3FF7A087"),
            (Label::RtpSalt, "30CBBC08863D8C85D49DB34A9AE1"),
            (
                Label::RtpAuthentication,
                "CEBE321F6FF7716B6FD4AB49AF256A156D38BAA48F0A0ACF3C34E2359E6CDBCE\
                 E049646C43D9327AD175578EF72270986371C10C9A369AC2F94A8C5FBCDDDC25\
                 6D6E919A48B610EF17C2041E474035766B68642C59BBFC2F34DB60DBDFB2",
            ),
        ] {
            let expected = hex(expected);
            let mut derived = vec![1; expected.len()];
            derive(&key, &salt, label, &mut derived);
            assert_eq!(derived, expected, "{label:?}");
        }
    }
}
