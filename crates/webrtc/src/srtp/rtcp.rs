//! Sealing and opening of RTCP compounds (RFC 3711, 3.4; RFC 7714, 9). Compounds are rare, so keys
//! are expanded for each one: expanded keys would take 1.2 KiB per client.

use super::cipher::{
    Cipher, SessionKeys, apply_counter_mode, authenticate, open_gcm, seal_gcm, verify_tag,
};
use super::error::{SrtpCounts, SrtpError};
use super::packet::{RTCP_HEADER_LENGTH, rtcp_sender_ssrc};
use super::profile::SrtpProfile;
use super::replay::ReplayWindow;
use super::sources::Sources;
use super::tag::Tag;

/// Bit of the index word that marks the compound as encrypted.
const ENCRYPTED_FLAG: u32 = 1 << 31;

/// Length of the index word, in bytes.
const INDEX_WORD_LENGTH: usize = 4;

/// Seals RTCP compounds of this side. All sources share one index, so the index is unique for each
/// source too.
#[derive(Debug)]
pub struct RtcpSealer {
    keys: SessionKeys,
    next: u32,
}

impl RtcpSealer {
    pub(super) fn new(keys: SessionKeys, next: u32) -> RtcpSealer {
        RtcpSealer { keys, next }
    }

    /// Number of bytes that sealing adds to a compound: 14 or 20.
    pub fn overhead(&self) -> usize {
        INDEX_WORD_LENGTH + self.keys.profile.tag_length()
    }

    /// Appends a sealed compound.
    ///
    /// # Errors
    /// [`SrtpError`]; nothing is appended.
    pub fn seal(&mut self, compound: &[u8], out: &mut Vec<u8>) -> Result<(), SrtpError> {
        let (ssrc, index) = (rtcp_sender_ssrc(compound)?, u64::from(self.next));
        if self.next >= ENCRYPTED_FLAG {
            return Err(SrtpError::KeyUsedUp);
        }
        let word = (ENCRYPTED_FLAG | self.next).to_be_bytes();
        self.next += 1;
        let begin = out.len();
        out.extend_from_slice(compound);
        let (header, payload) = out[begin..].split_at_mut(RTCP_HEADER_LENGTH);
        match &Cipher::of(&self.keys) {
            Cipher::Gcm { key, salt, .. } => {
                let tag = seal_gcm(
                    key,
                    salt,
                    ssrc,
                    index,
                    &associated_data(header, word),
                    payload,
                );
                out.extend_from_slice(&tag);
                out.extend_from_slice(&word);
            }
            Cipher::Counter {
                encryption,
                authentication,
                salt,
            } => {
                apply_counter_mode(encryption, salt, ssrc, index, payload);
                out.extend_from_slice(&word);
                let tag = authenticate(authentication, &[&out[begin..]]);
                out.extend_from_slice(&tag);
            }
        }
        Ok(())
    }
}

/// Bytes that GCM authenticates but does not encrypt.
fn associated_data(
    header: &[u8],
    word: [u8; INDEX_WORD_LENGTH],
) -> [u8; RTCP_HEADER_LENGTH + INDEX_WORD_LENGTH] {
    let mut clear = [0; RTCP_HEADER_LENGTH + INDEX_WORD_LENGTH];
    clear[..RTCP_HEADER_LENGTH].copy_from_slice(header);
    clear[RTCP_HEADER_LENGTH..].copy_from_slice(&word);
    clear
}

/// Opens RTCP compounds of the other side.
#[derive(Debug)]
pub struct RtcpOpener {
    keys: SessionKeys,
    senders: Sources<Box<ReplayWindow>>,
    counts: SrtpCounts,
}

impl RtcpOpener {
    pub(super) fn new(keys: SessionKeys) -> RtcpOpener {
        RtcpOpener {
            keys,
            senders: Sources::default(),
            counts: SrtpCounts::default(),
        }
    }

    /// Counts of the compounds so far.
    pub fn counts(&self) -> SrtpCounts {
        self.counts
    }

    /// Authenticates and decrypts a compound into `out`, whose former content is lost. Returns the
    /// decrypted compound.
    ///
    /// # Errors
    /// [`SrtpError`]; counted in [`RtcpOpener::counts`]. The content of `out` is then meaningless.
    pub fn open<'a>(&mut self, packet: &[u8], out: &'a mut Vec<u8>) -> Result<&'a [u8], SrtpError> {
        let result = self.open_uncounted(packet, out);
        self.counts.count(&result);
        result.map(|()| &out[..])
    }

    fn open_uncounted(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), SrtpError> {
        let ssrc = rtcp_sender_ssrc(packet)?;
        let tag_length = self.keys.profile.tag_length();
        if packet.len() < RTCP_HEADER_LENGTH + INDEX_WORD_LENGTH + tag_length {
            return Err(SrtpError::Malformed);
        }
        // The index word follows the tag of GCM, and precedes that of HMAC.
        let word_at = match self.keys.profile {
            SrtpProfile::AesCm128HmacSha1_80 => packet.len() - INDEX_WORD_LENGTH - tag_length,
            SrtpProfile::AeadAes128Gcm | SrtpProfile::AeadAes256Gcm => {
                packet.len() - INDEX_WORD_LENGTH
            }
        };
        let word: [u8; INDEX_WORD_LENGTH] = packet[word_at..word_at + INDEX_WORD_LENGTH]
            .try_into()
            .expect("it is as long as a word");
        let is_encrypted = u32::from_be_bytes(word) & ENCRYPTED_FLAG != 0;
        let index = u64::from(u32::from_be_bytes(word) & !ENCRYPTED_FLAG);
        let position = self.senders.position(ssrc);
        let window = self.senders.get(position);
        if window.is_some_and(|window| !window.is_new(index)) {
            return Err(SrtpError::Replayed);
        }
        out.clear();
        match &Cipher::of(&self.keys) {
            Cipher::Gcm { key, salt, .. } => {
                let (header, sealed) = packet[..word_at].split_at(RTCP_HEADER_LENGTH);
                out.extend_from_slice(header);
                if is_encrypted {
                    out.resize(word_at - Tag::LENGTH_MAX, 0);
                    let associated = associated_data(header, word);
                    let secret = &mut out[RTCP_HEADER_LENGTH..];
                    open_gcm(key, salt, ssrc, index, &associated, sealed, secret)?;
                } else {
                    // The whole compound is authenticated, but not encrypted (RFC 7714, 9.3).
                    let (rest, tag) = sealed.split_at(sealed.len() - Tag::LENGTH_MAX);
                    out.extend_from_slice(rest);
                    out.extend_from_slice(&word);
                    open_gcm(key, salt, ssrc, index, out, tag, &mut [])?;
                    out.truncate(word_at - Tag::LENGTH_MAX);
                }
            }
            Cipher::Counter {
                encryption,
                authentication,
                salt,
            } => {
                let (authenticated, tag) = packet.split_at(word_at + INDEX_WORD_LENGTH);
                if !verify_tag(&authenticate(authentication, &[authenticated]), tag) {
                    return Err(SrtpError::Unauthentic);
                }
                out.extend_from_slice(&packet[..word_at]);
                if is_encrypted {
                    apply_counter_mode(
                        encryption,
                        salt,
                        ssrc,
                        index,
                        &mut out[RTCP_HEADER_LENGTH..],
                    );
                }
            }
        }
        self.senders.at(position, ssrc)?.mark_received(index);
        Ok(())
    }
}
