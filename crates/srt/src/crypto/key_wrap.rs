//! AES key wrap (RFC 3394). The provider's implementation lacks keys of 192 bits.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptingKey, DecryptionContext, EncryptingKey,
    EncryptionContext, UnboundCipherKey,
};

use super::secret::KeyLength;

/// Number of bytes that wrapping adds.
pub(super) const OVERHEAD: usize = 8;

/// Initial value: a correctly unwrapped key starts with it (RFC 3394, 2.2.3.1).
const INITIAL: [u8; 8] = [0xa6; 8];

pub(super) fn algorithm(length: KeyLength) -> &'static Algorithm {
    match length {
        KeyLength::Aes128 => &AES_128,
        KeyLength::Aes192 => &AES_192,
        KeyLength::Aes256 => &AES_256,
    }
}

pub(super) fn unbound(key: &[u8]) -> UnboundCipherKey {
    let length = KeyLength::of_bytes(key.len()).expect("keys have a length of AES");
    UnboundCipherKey::new(algorithm(length), key).expect("the key has the algorithm's length")
}

/// Block made from the register and one part.
fn join(register: [u8; 8], part: [u8; 8]) -> [u8; 16] {
    (u128::from(u64::from_be_bytes(register)) << 64 | u128::from(u64::from_be_bytes(part)))
        .to_be_bytes()
}

fn halves(block: [u8; 16]) -> ([u8; 8], [u8; 8]) {
    let word = u128::from_be_bytes(block);
    (
        ((word >> 64) as u64).to_be_bytes(),
        (word as u64).to_be_bytes(),
    )
}

fn xor_step(register: [u8; 8], step: u64) -> [u8; 8] {
    (u64::from_be_bytes(register) ^ step).to_be_bytes()
}

/// Wraps keys, which are whole parts of eight bytes, with an AES key (RFC 3394, 2.2.1).
pub(super) fn wrap(wrapping: &[u8], keys: &[u8]) -> Vec<u8> {
    let cipher = EncryptingKey::ecb(unbound(wrapping)).expect("AES has blocks alone");
    let (parts, rest) = keys.as_chunks::<8>();
    assert!(rest.is_empty(), "keys are whole parts of eight bytes");
    let mut parts = parts.to_vec();
    let (mut register, mut step) = (INITIAL, 0);
    for _ in 0..6 {
        for part in &mut parts {
            step += 1;
            let mut block = join(register, *part);
            cipher
                .less_safe_encrypt(&mut block, EncryptionContext::None)
                .expect("it is one block");
            let (first, second) = halves(block);
            (register, *part) = (xor_step(first, step), second);
        }
    }
    let mut wrapped = register.to_vec();
    wrapped.extend_from_slice(parts.as_flattened());
    wrapped
}

/// Unwraps keys (RFC 3394, 2.2.2). Returns `None` if they were wrapped with another key, or are
/// damaged.
pub(super) fn unwrap(wrapping: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    let cipher = DecryptingKey::ecb(unbound(wrapping)).expect("AES has blocks alone");
    let (parts, rest) = wrapped.as_chunks::<8>();
    let (&first, parts) = parts.split_first()?;
    if !rest.is_empty() || parts.len() < 2 {
        return None;
    }
    let mut parts = parts.to_vec();
    let (mut register, mut step) = (first, 6 * parts.len() as u64);
    for _ in 0..6 {
        for part in parts.iter_mut().rev() {
            let mut block = join(xor_step(register, step), *part);
            cipher
                .decrypt(&mut block, DecryptionContext::None)
                .expect("it is one block");
            (register, *part) = halves(block);
            step -= 1;
        }
    }
    (register == INITIAL).then(|| parts.as_flattened().to_vec())
}
