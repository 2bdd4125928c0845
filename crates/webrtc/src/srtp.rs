//! SRTP and SRTCP (RFC 3711), with AES in counter mode and with GCM (RFC 7714).
//!
//! RTP and RTCP have separate keys, and so have both directions. There are four contexts: two
//! openers and two sealers. Those of RTP are moved to the code that counts and sends media.

mod cipher;
mod error;
#[cfg(test)]
mod hex;
mod index;
mod key_derivation;
mod keys;
mod master_key;
mod packet;
mod payload_start;
mod profile;
mod replay;
mod rtcp;
mod rtp;
mod sources;
mod tag;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use hex::hex;

pub use error::{SrtpCounts, SrtpError};
pub use keys::SrtpKeys;
pub(crate) use packet::RtpParts;
pub use payload_start::PayloadStartDecryptor;
pub use profile::SrtpProfile;
pub use rtcp::{RtcpOpener, RtcpSealer};
pub use rtp::{RtpOpener, RtpSealer};
pub use tag::Tag;
