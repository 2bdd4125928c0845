//! Sealing and opening of RTP packets (RFC 3711, 3.3).

use super::cipher::{
    Cipher, SessionKeys, apply_counter_mode, authenticate, open_gcm, seal_gcm, verify_tag,
};
use super::error::{SrtpCounts, SrtpError};
use super::index::{estimate_index, one_rollover_later};
use super::packet::RtpParts;
use super::profile::SrtpProfile;
use super::replay::ReplayWindow;
use super::sources::Sources;
use super::tag::Tag;

/// Highest index that one key may protect (RFC 3711, 9.2).
const INDEX_MAX: u64 = (1 << 48) - 1;

/// Opens RTP packets of the other side. The code that counts media owns it; only its keys come from
/// the connection.
#[derive(Debug)]
pub struct RtpOpener {
    cipher: Cipher,
    sources: Sources<Box<ReplayWindow>>,
    counts: SrtpCounts,
}

impl RtpOpener {
    pub(super) fn new(keys: &SessionKeys) -> RtpOpener {
        RtpOpener {
            cipher: Cipher::of(keys),
            sources: Sources::default(),
            counts: SrtpCounts::default(),
        }
    }

    pub fn profile(&self) -> SrtpProfile {
        self.cipher.profile()
    }

    /// Counts of the packets so far.
    pub fn counts(&self) -> SrtpCounts {
        self.counts
    }

    /// Authenticates and decrypts a packet into `out`, whose former content is lost. Returns the
    /// RTP packet. A new source is stored once a packet of it is authentic; nothing else allocates
    /// if `out` has enough capacity.
    ///
    /// # Errors
    /// [`SrtpError`]; counted in [`RtpOpener::counts`]. The content of `out` is then meaningless.
    pub fn open<'a>(&mut self, packet: &[u8], out: &'a mut Vec<u8>) -> Result<&'a [u8], SrtpError> {
        let result = self.open_uncounted(packet, out);
        self.counts.count(&result);
        result.map(|()| &out[..])
    }

    fn open_uncounted(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), SrtpError> {
        let parts = RtpParts::parse(packet)?;
        if packet.len() < parts.header_length + self.profile().tag_length() {
            return Err(SrtpError::Malformed);
        }
        let position = self.sources.position(parts.ssrc);
        let window = self.sources.get(position);
        let highest = window.map_or(0, |window| window.highest);
        let is_new = |index| window.is_none_or(|window| window.is_new(index));
        let expected = estimate_index(highest, parts.sequence);
        let mut index = expected;
        let first_try = match is_new(index) {
            true => self.open_with_index(packet, parts, index, out),
            false => Err(SrtpError::Replayed),
        };
        match first_try {
            // The sender may have passed a rollover that a lost packet hides.
            Err(SrtpError::Unauthentic) if window.is_some() => {
                index = one_rollover_later(expected);
                self.open_with_index(packet, parts, index, out)?;
            }
            other => other?,
        }
        self.sources.at(position, parts.ssrc)?.mark_received(index);
        Ok(())
    }

    /// Takes note of a packet that is not opened, because only its header is known. Without it, the
    /// index of a later packet could not be found after a rollover.
    pub fn pass_over(&mut self, header: &[u8]) {
        let Some(&[_, _, high, low, _, _, _, _, a, b, c, d]) = header.first_chunk() else {
            return;
        };
        let ssrc = u32::from_be_bytes([a, b, c, d]);
        let Ok(window) = self.sources.state(ssrc) else {
            return;
        };
        let index = estimate_index(window.highest, u16::from_be_bytes([high, low]));
        if window.is_new(index) {
            window.mark_received(index);
        }
    }

    fn open_with_index(
        &self,
        packet: &[u8],
        parts: RtpParts,
        index: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), SrtpError> {
        let (header, sealed) = packet.split_at(parts.header_length);
        out.clear();
        match &self.cipher {
            Cipher::Gcm { key, salt, .. } => {
                out.extend_from_slice(header);
                out.resize(packet.len() - Tag::LENGTH_MAX, 0);
                open_gcm(
                    key,
                    salt,
                    parts.ssrc,
                    index,
                    header,
                    sealed,
                    &mut out[parts.header_length..],
                )
            }
            Cipher::Counter {
                encryption,
                authentication,
                salt,
            } => {
                let (packet, tag) = packet.split_at(packet.len() - self.profile().tag_length());
                if !verify_tag(
                    &authenticate(authentication, &[packet, &rollover_counter(index)]),
                    tag,
                ) {
                    return Err(SrtpError::Unauthentic);
                }
                out.extend_from_slice(packet);
                apply_counter_mode(
                    encryption,
                    salt,
                    parts.ssrc,
                    index,
                    &mut out[parts.header_length..],
                );
                Ok(())
            }
        }
    }
}

/// Rollover counter of an index, as it is authenticated after the packet.
fn rollover_counter(index: u64) -> [u8; 4] {
    ((index >> 16) as u32).to_be_bytes()
}

/// Seals RTP packets of this side. It can be moved to the thread that sends.
#[derive(Debug)]
pub struct RtpSealer {
    cipher: Cipher,
    /// Highest index of each source.
    sources: Sources<u64>,
}

impl RtpSealer {
    pub(super) fn new(keys: &SessionKeys) -> RtpSealer {
        RtpSealer {
            cipher: Cipher::of(keys),
            sources: Sources::default(),
        }
    }

    pub fn profile(&self) -> SrtpProfile {
        self.cipher.profile()
    }

    /// Number of bytes that sealing adds to a packet: 10 or 16.
    pub fn overhead(&self) -> usize {
        self.profile().tag_length()
    }

    /// Seals an RTP packet in place and appends its tag.
    ///
    /// # Errors
    /// [`SrtpError`]; the packet is unchanged.
    pub fn seal(&mut self, packet: &mut Vec<u8>) -> Result<(), SrtpError> {
        let parts = RtpParts::parse(packet)?;
        let (header, payload) = packet.split_at_mut(parts.header_length);
        let tag = self.seal_in_place(parts, header, payload)?;
        packet.extend_from_slice(&tag);
        Ok(())
    }

    /// Seals a payload in place, with the header in a separate buffer. The tag must follow the
    /// payload. Only the first packet of a source allocates.
    ///
    /// # Errors
    /// [`SrtpError`]: `header` is not exactly one RTP header, there are too many sources, or the
    /// key is used up.
    pub fn seal_parts(&mut self, header: &[u8], payload: &mut [u8]) -> Result<Tag, SrtpError> {
        let parts = RtpParts::parse(header)?;
        if parts.header_length != header.len() {
            return Err(SrtpError::Malformed);
        }
        self.seal_in_place(parts, header, payload)
    }

    fn seal_in_place(
        &mut self,
        parts: RtpParts,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, SrtpError> {
        let index = self.next_index(parts)?;
        Ok(match &self.cipher {
            Cipher::Gcm { key, salt, .. } => {
                seal_gcm(key, salt, parts.ssrc, index, header, payload)
            }
            Cipher::Counter {
                encryption,
                authentication,
                salt,
            } => {
                apply_counter_mode(encryption, salt, parts.ssrc, index, payload);
                authenticate(authentication, &[header, payload, &rollover_counter(index)])
            }
        })
    }

    /// Returns the index of the next packet, by the rule of openers.
    fn next_index(&mut self, parts: RtpParts) -> Result<u64, SrtpError> {
        let highest = self.sources.state(parts.ssrc)?;
        let index = estimate_index(*highest, parts.sequence);
        if index > INDEX_MAX {
            return Err(SrtpError::KeyUsedUp);
        }
        *highest = index.max(*highest);
        Ok(index)
    }
}
