//! Key agreement for media (DTLS-SRTP, RFC 5764; DTLS 1.2, RFC 6347).
//!
//! `vendor/dimpl` implements the handshake, also with peers that have RSA certificates. The run's
//! clock drives it. Its elliptic-curve keys and signatures are random regardless of the seed; no
//! measurement depends on them.

mod handshake;

pub use handshake::{Dtls, DtlsEvent, DtlsSettings};
