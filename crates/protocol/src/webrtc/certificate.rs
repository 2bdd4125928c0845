//! The certificate that a peer shows in DTLS: self-signed, known by its fingerprint alone (RFC
//! 8827, 6.5).

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use rcgen::{CertificateParams, DnType, KeyPair, SerialNumber};

use super::fingerprint::Fingerprint;

/// What stands in PKCS #8 (RFC 5958) before the number that is a private key on the curve P-256
/// (RFC 5915); the public key is left out.
const BEFORE_KEY: [u8; 35] = [
    0x30, 0x41, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x27, 0x30, 0x25, 0x02, 0x01,
    0x01, 0x04, 0x20,
];

/// A certificate with its private key. Making one costs as much as some connections: many peers
/// share one, as the connections of one browser may.
#[derive(Clone)]
pub struct Certificate {
    /// In DER.
    certificate: Vec<u8>,
    /// In DER, as PKCS #8.
    private_key: Vec<u8>,
    fingerprint: Fingerprint,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Certificate")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Makes one, of ECDSA with P-256, valid at any time that matters. One seed gives one private
    /// key; the signature has randomness of its own, so the fingerprint differs all the same.
    pub fn generate(seed: u64) -> Certificate {
        let mut random = Pcg64::seed_from_u64(seed);
        loop {
            let mut number = [0; 32];
            random.fill_bytes(&mut number);
            // A number beyond the curve's order is no key: one in 2^32 of them.
            if let Some(certificate) = Certificate::with_key(&number, random.next_u64()) {
                return certificate;
            }
        }
    }

    fn with_key(number: &[u8; 32], serial: u64) -> Option<Certificate> {
        let private_key = [&BEFORE_KEY[..], number].concat();
        let key = KeyPair::try_from(&private_key[..]).ok()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "WebRTC");
        params.serial_number = Some(SerialNumber::from(serial >> 1));
        let certificate = params.self_signed(&key).ok()?.der().to_vec();
        let fingerprint = Fingerprint::of(&certificate);
        Some(Certificate {
            certificate,
            private_key,
            fingerprint,
        })
    }

    /// What the other side knows it by.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    pub(super) fn for_dtls(&self) -> dimpl::DtlsCertificate {
        dimpl::DtlsCertificate {
            certificate: self.certificate.clone(),
            private_key: self.private_key.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_private_key() {
        let [one, same, other] = [1, 1, 2].map(Certificate::generate);
        assert_eq!(one.private_key, same.private_key);
        assert_ne!(one.private_key, other.private_key);
        assert!(one.fingerprint().is_of(&one.certificate));
        assert!(!one.fingerprint().is_of(&other.certificate));
    }
}
