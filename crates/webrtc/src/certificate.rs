//! DTLS certificate of a peer: self-signed, identified only by its fingerprint (RFC 8827, 6.5).

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use rcgen::{CertificateParams, DnType, KeyPair, SerialNumber};

use super::fingerprint::Fingerprint;

/// PKCS #8 prefix (RFC 5958) of a private key on the curve P-256 (RFC 5915), without the public
/// key.
const PKCS8_PREFIX: [u8; 35] = [
    0x30, 0x41, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x27, 0x30, 0x25, 0x02, 0x01,
    0x01, 0x04, 0x20,
];

/// A certificate with its private key. Generating one costs as much as some connections, so many
/// peers share one, as the connections of a browser may.
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
    /// Generates an ECDSA P-256 certificate that is valid at any realistic time. The seed
    /// determines the private key. The signature is randomized, so the fingerprint differs even for
    /// equal seeds.
    pub fn generate(seed: u64) -> Certificate {
        let mut random = Pcg64::seed_from_u64(seed);
        loop {
            let mut number = [0; 32];
            random.fill_bytes(&mut number);
            // A number beyond the order of the curve is not a key: one in 2^32.
            if let Some(certificate) = Certificate::with_key(&number, random.next_u64()) {
                return certificate;
            }
        }
    }

    fn with_key(number: &[u8; 32], serial: u64) -> Option<Certificate> {
        let private_key = [&PKCS8_PREFIX[..], number].concat();
        let key = KeyPair::try_from(&private_key[..]).ok()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "WebRTC");
        params.serial_number = Some(SerialNumber::from(serial >> 1));
        let certificate = params.self_signed(&key).ok()?.der().to_vec();
        let fingerprint = Fingerprint::of_certificate(&certificate);
        Some(Certificate {
            certificate,
            private_key,
            fingerprint,
        })
    }

    /// Returns the fingerprint by which the other side identifies the certificate.
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
    fn seed_determines_the_private_key() {
        let [one, same, other] = [1, 1, 2].map(Certificate::generate);
        assert_eq!(one.private_key, same.private_key);
        assert_ne!(one.private_key, other.private_key);
        assert!(one.fingerprint().matches(&one.certificate));
        assert!(!one.fingerprint().matches(&other.certificate));
    }
}
