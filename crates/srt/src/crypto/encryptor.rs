//! Sending half: encrypts payloads, and changes its key after a number of packets.

use std::time::Duration;

use bytes::BytesMut;
use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::cipher::{GCM_TAG, StreamKey};
use super::cipher_mode::{CipherMode, GcmVariant};
use super::key_material::{KeyMaterial, KeySelection, SALT};
use super::key_wrap;
use super::negotiated_keys::NegotiatedKeys;
use super::parity::Parity;
use super::secret::KeyLength;
use crate::arq::sender::PayloadCipher;
use crate::codec::handshake::Extension;
use crate::codec::packet::{Control, ControlHeader, DataHeader, KeyFlag};

/// Interval between announcements until one is answered.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of announcements of a key, as in libsrt.
const ANNOUNCE_MAX: u32 = 10;

/// Schedule of key changes, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Number of packets that use the same key. Default: 2^24.
    pub packets_per_key: u64,
    /// Number of packets before a change at which the next key is announced. At most half of
    /// `packets_per_key`. Default: 2^16, as in libsrt.
    pub announce_before_packets: u64,
}

impl Default for Refresh {
    fn default() -> Self {
        Refresh {
            packets_per_key: 1 << 24,
            announce_before_packets: 1 << 16,
        }
    }
}

struct Slot {
    bytes: Vec<u8>,
    key: StreamKey,
}

struct Announcement {
    message: Vec<u8>,
    remaining: u32,
    due: Time,
}

/// Sending half of an encrypted connection.
pub struct Encryptor {
    mode: CipherMode,
    variant: GcmVariant,
    key_length: KeyLength,
    salt: [u8; SALT],
    wrapping: Vec<u8>,
    active: Parity,
    current: Slot,
    next: Option<Slot>,
    /// Number of packets with the current key.
    count: u64,
    refresh: Refresh,
    random: Pcg64,
    announcement: Option<Announcement>,
}

impl std::fmt::Debug for Encryptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryptor")
            .field("mode", &self.mode)
            .field("active", &self.active)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Encryptor {
    pub(super) fn new(negotiated: &NegotiatedKeys, variant: GcmVariant, seed: u64) -> Encryptor {
        let (active, bytes) = negotiated.each().next().expect("there is a key at least");
        Encryptor {
            mode: negotiated.mode,
            variant,
            key_length: negotiated.key_length,
            salt: negotiated.salt,
            wrapping: negotiated.wrapping.clone(),
            active,
            current: Slot {
                bytes: bytes.to_vec(),
                key: StreamKey::new(bytes, negotiated.mode),
            },
            next: None,
            count: 0,
            refresh: Refresh::default(),
            random: Pcg64::seed_from_u64(seed),
            announcement: None,
        }
    }

    /// Sets the schedule of key changes.
    pub fn set_refresh(&mut self, refresh: Refresh) {
        self.refresh = Refresh {
            announce_before_packets: refresh
                .announce_before_packets
                .min(refresh.packets_per_key / 2),
            ..refresh
        };
    }

    pub fn mode(&self) -> CipherMode {
        self.mode
    }

    pub fn key_length(&self) -> KeyLength {
        self.key_length
    }

    /// Number of bytes that encryption adds to a payload.
    pub fn overhead(&self) -> usize {
        match self.mode {
            CipherMode::Gcm => GCM_TAG,
            CipherMode::Ctr | CipherMode::Auto => 0,
        }
    }

    /// Counts a packet, and changes the key when it is time (SRT, 6.1.6).
    fn advance(&mut self) {
        if self.count >= self.refresh.packets_per_key
            && let Some(next) = self.next.take()
        {
            self.current = next;
            self.active = self.active.other();
            self.count = 0;
        }
        self.count += 1;
        if self.next.is_none()
            && self.count > self.refresh.packets_per_key - self.refresh.announce_before_packets
        {
            self.prepare();
        }
    }

    /// Generates the next key, and the message that announces it together with the current one.
    fn prepare(&mut self) {
        let mut bytes = vec![0; self.key_length.bytes()];
        self.random.fill_bytes(&mut bytes);
        let both = match self.active {
            Parity::Even => [self.current.bytes.as_slice(), &bytes].concat(),
            Parity::Odd => [bytes.as_slice(), &self.current.bytes].concat(),
        };
        let wrapped = key_wrap::wrap(&self.wrapping, &both);
        let message = KeyMaterial {
            keys: KeySelection::Both,
            mode: self.mode,
            key_length: self.key_length,
            salt: self.salt,
            wrapped: &wrapped,
        }
        .write();
        let key = StreamKey::new(&bytes, self.mode);
        self.next = Some(Slot { bytes, key });
        self.announcement = Some(Announcement {
            message,
            remaining: ANNOUNCE_MAX,
            due: Time::ZERO,
        });
    }
}

impl PayloadCipher for Encryptor {
    // GCM appends its tag. The key in `header` is ignored, and all other fields must be as sent.
    fn encrypt(&mut self, header: &DataHeader, payload: &mut BytesMut) -> KeyFlag {
        self.advance();
        let header = DataHeader {
            key: self.active.key(),
            ..*header
        };
        let slot = &self.current;
        if let Some(tag) = slot.key.encrypt(&self.salt, &header, self.variant, payload) {
            payload.extend_from_slice(&tag);
        }
        header.key
    }

    // The answer to an announcement ends its repetition; other packets are ignored.
    fn control(&mut self, control: &Control<'_>, _at: Time) {
        let Control::UserDefined { subtype, cif, .. } = *control else {
            return;
        };
        if subtype == Extension::KM_RESPONSE
            && self
                .announcement
                .as_ref()
                .is_some_and(|announced| announced.message == cif)
        {
            self.announcement = None;
        }
    }

    fn due(&self) -> Time {
        match &self.announcement {
            Some(announced) if announced.remaining > 0 => announced.due,
            _ => Time::NEVER,
        }
    }

    // Announces the next key.
    fn write_next(&mut self, now: Time, header: ControlHeader, out: &mut Vec<u8>) -> bool {
        let Some(announced) = &mut self.announcement else {
            return false;
        };
        if announced.remaining == 0 || now < announced.due {
            return false;
        }
        announced.remaining -= 1;
        announced.due = now + ANNOUNCE_INTERVAL;
        Control::UserDefined {
            subtype: Extension::KM_REQUEST,
            info: 0,
            cif: &announced.message,
        }
        .write(header, out);
        true
    }
}
