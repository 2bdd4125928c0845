//! Agreeing on the keys of media (DTLS-SRTP, RFC 5764; DTLS 1.2, RFC 6347).
//!
//! `vendor/dimpl` shakes hands, also with peers that have RSA certificates. The run's clock drives
//! it. Its elliptic-curve keys and signatures are random, whatever the seed is: nothing that is
//! measured depends on them.

mod handshake;

pub use handshake::{Dtls, DtlsError, DtlsEvent, DtlsSettings};
