//! Handshake (RTMP, 5.2): three packets in each direction, of which the last echoes the peer's
//! second. In the digest variant, introduced by Flash Player, the second packet carries a digest,
//! and the last proves that the peer's digest was read.

use hmac::{Hmac, KeyInit, Mac};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::Malformed;

/// RTMP version (RTMP, 5.2.2).
pub const VERSION: u8 = 3;
/// Length of C1, S1, C2 and S2 in bytes.
pub const PACKET_BYTES: usize = 1536;
/// Length of the two timestamps before the random bytes. In the digest variant, the second
/// timestamp is the sender's version.
const TIMESTAMP_BYTES: usize = 8;
/// Version that a client states in the digest variant: Flash Player's.
const CLIENT_VERSION: [u8; 4] = [128, 0, 7, 2];
/// Version that a server states in the digest variant.
const SERVER_VERSION: [u8; 4] = [4, 5, 0, 1];

const DIGEST_BYTES: usize = 32;
/// Common suffix of both sides' keys.
const KEY_SUFFIX: [u8; 32] = [
    0xf0, 0xee, 0xc2, 0x4a, 0x80, 0x68, 0xbe, 0xe8, 0x2e, 0x00, 0xd0, 0xd1, 0x02, 0x9e, 0x7e, 0x57,
    0x6e, 0xec, 0x5d, 0x2d, 0x29, 0x80, 0x6f, 0xab, 0x93, 0xb8, 0xe6, 0x36, 0xcf, 0xeb, 0x31, 0xae,
];
const CLIENT_KEY: &[u8] = b"Genuine Adobe Flash Player 001";
const SERVER_KEY: &[u8] = b"Genuine Adobe Flash Media Server 001";

/// Offsets of the four bytes whose sum determines the position of the digest: after the timestamps,
/// or in the second half.
const DIGEST_POSITION_OFFSETS: [usize; 2] = [TIMESTAMP_BYTES, 772];
/// Modulus of that sum.
const DIGEST_POSITION_MODULUS: usize = 728;

/// Handshake variant of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "HandshakeStyle")]
pub enum HandshakeVariant {
    /// As specified.
    #[default]
    Plain,
    // A side that is to send digests does so if its peer sends them too.
    /// With digests.
    Digest,
}

/// One side of a handshake.
#[derive(Debug)]
pub struct Handshake {
    /// Seed of this side's random bytes, which are generated again when needed.
    seed: u64,
    variant: HandshakeVariant,
    /// Received bytes of the current packet.
    received: Vec<u8>,
    stage: Stage,
    server: bool,
    /// Digest of the peer's second packet, if it has one. This side's last packet then proves that
    /// it was read.
    digest: Option<[u8; DIGEST_BYTES]>,
    /// False if S2 did not echo C1.
    echoed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Version,
    Second,
    Third,
    Done,
}

/// Next step after bytes were received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// More bytes are needed.
    NeedMore,
    /// These bytes must be sent.
    Send(Vec<u8>),
    /// The handshake is complete.
    Done,
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; DIGEST_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys may have any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Returns the offset of a packet's digest, given that of its four position bytes.
fn digest_offset(packet: &[u8], position: usize) -> usize {
    let numbers = packet.get(position..position + 4).unwrap_or_default();
    let sum: usize = numbers.iter().map(|&number| usize::from(number)).sum();
    position + 4 + sum % DIGEST_POSITION_MODULUS
}

/// Computes the digest of a packet for this offset.
fn compute_digest(packet: &[u8], at: usize, key: &[u8]) -> [u8; DIGEST_BYTES] {
    let before = packet.get(..at).unwrap_or_default();
    let behind = packet.get(at + DIGEST_BYTES..).unwrap_or_default();
    hmac(key, &[before, behind])
}

/// Returns the digest of a packet, or `None` if it has no valid one.
fn find_digest(packet: &[u8], key: &[u8]) -> Option<[u8; DIGEST_BYTES]> {
    DIGEST_POSITION_OFFSETS.into_iter().find_map(|position| {
        let at = digest_offset(packet, position);
        let digest = compute_digest(packet, at, key);
        (packet.get(at..at + DIGEST_BYTES)? == digest).then_some(digest)
    })
}

/// Computes the proof that a digest was read: the end of the last packet.
fn compute_proof(packet: &[u8], digest: &[u8], key: &[u8]) -> [u8; DIGEST_BYTES] {
    let key = hmac(&[key, &KEY_SUFFIX].concat(), &[digest]);
    hmac(
        &key,
        &[packet
            .get(..PACKET_BYTES - DIGEST_BYTES)
            .unwrap_or_default()],
    )
}

impl Handshake {
    /// Creates the client's side. Its random bytes derive from `seed`.
    pub fn client(seed: u64) -> Handshake {
        Handshake {
            seed,
            variant: HandshakeVariant::Plain,
            received: Vec::new(),
            stage: Stage::Version,
            server: false,
            digest: None,
            echoed: true,
        }
    }

    /// Sets the variant.
    pub fn with_variant(self, variant: HandshakeVariant) -> Handshake {
        Handshake { variant, ..self }
    }

    /// Creates the server's side, which adopts the client's variant.
    pub fn server(seed: u64) -> Handshake {
        Handshake {
            server: true,
            ..Handshake::client(seed)
        }
    }

    /// Returns the version and this side's second packet: C0 and C1, or S0 and S1.
    pub fn hello(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + PACKET_BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.own_second_packet());
        bytes
    }

    fn own_key(&self) -> &'static [u8] {
        if self.server { SERVER_KEY } else { CLIENT_KEY }
    }

    fn other_key(&self) -> &'static [u8] {
        if self.server { CLIENT_KEY } else { SERVER_KEY }
    }

    /// Returns C1 or S1: a timestamp of zero, four bytes of zero and random bytes. In the digest
    /// variant, a version replaces the four bytes, and there is a digest.
    fn own_second_packet(&self) -> Vec<u8> {
        let mut bytes = vec![0; PACKET_BYTES];
        Pcg64::seed_from_u64(self.seed).fill_bytes(&mut bytes[TIMESTAMP_BYTES..]);
        if self.variant == HandshakeVariant::Digest {
            bytes[4..TIMESTAMP_BYTES].copy_from_slice(match self.server {
                true => &SERVER_VERSION,
                false => &CLIENT_VERSION,
            });
            let at = digest_offset(&bytes, TIMESTAMP_BYTES);
            let digest = compute_digest(&bytes, at, self.own_key());
            bytes[at..at + DIGEST_BYTES].copy_from_slice(&digest);
        }
        bytes
    }

    /// Returns C2 or S2: the echo of the peer's second packet, or the proof that its digest was
    /// read.
    fn last_packet(&self, second: Vec<u8>) -> Vec<u8> {
        let Some(digest) = self.digest else {
            return second;
        };
        let mut bytes = vec![0; PACKET_BYTES];
        Pcg64::seed_from_u64(self.seed ^ 1).fill_bytes(&mut bytes);
        let proof = compute_proof(&bytes, &digest, self.own_key());
        bytes[PACKET_BYTES - DIGEST_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// Returns the name of the awaited packet.
    pub fn awaited_packet(&self) -> &'static str {
        match (self.stage, self.server) {
            (Stage::Version, false) => "S0",
            (Stage::Second, false) => "S1",
            (Stage::Third, false) => "S2",
            (Stage::Version, true) => "C0",
            (Stage::Second, true) => "C1",
            (Stage::Third, true) => "C2",
            (Stage::Done, _) => "nothing",
        }
    }

    /// Returns true if both sides use digests. Valid once the peer's second packet was received.
    pub fn has_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// Returns false if the peer's last packet did not echo this side's second one. In the digest
    /// variant a missing proof is an error instead.
    pub fn was_echoed(&self) -> bool {
        self.echoed
    }

    /// Consumes bytes of `input` from offset `at` on, and advances `at`.
    ///
    /// # Errors
    /// [`Malformed::Version`], [`Malformed::Digest`] or [`Malformed::Echo`].
    pub fn receive(&mut self, input: &[u8], at: &mut usize) -> Result<HandshakeStep, Malformed> {
        loop {
            let wanted = match self.stage {
                Stage::Version => 1,
                Stage::Second | Stage::Third => PACKET_BYTES,
                Stage::Done => return Ok(HandshakeStep::Done),
            };
            let rest = input.get(*at..).unwrap_or_default();
            let count = rest.len().min(wanted - self.received.len());
            self.received.extend_from_slice(&rest[..count]);
            *at += count;
            if self.received.len() < wanted {
                return Ok(HandshakeStep::NeedMore);
            }
            let packet = std::mem::take(&mut self.received);
            match self.stage {
                Stage::Version => {
                    let version = packet.first().copied().unwrap_or_default();
                    if version != VERSION {
                        return Err(Malformed::Version(version));
                    }
                    self.stage = Stage::Second;
                }
                Stage::Second => {
                    return self.receive_second_packet(packet).map(HandshakeStep::Send);
                }
                Stage::Third | Stage::Done => {
                    self.check_last(&packet)?;
                    self.stage = Stage::Done;
                }
            }
        }
    }

    /// Processes the peer's second packet. Returns the bytes to send.
    fn receive_second_packet(&mut self, packet: Vec<u8>) -> Result<Vec<u8>, Malformed> {
        self.stage = Stage::Third;
        // A peer without digests sends four bytes of zero here.
        let states_version = packet
            .get(4..TIMESTAMP_BYTES)
            .is_some_and(|version| version != [0; 4]);
        if states_version && (self.server || self.variant == HandshakeVariant::Digest) {
            self.digest = find_digest(&packet, self.other_key());
            match (self.server, self.digest) {
                (true, Some(_)) => self.variant = HandshakeVariant::Digest,
                (false, None) => return Err(Malformed::Digest),
                _ => {}
            }
        }
        let last = self.last_packet(packet);
        Ok(match self.server {
            true => [self.hello(), last].concat(),
            false => last,
        })
    }

    fn check_last(&mut self, packet: &[u8]) -> Result<(), Malformed> {
        let own = self.own_second_packet();
        if self.digest.is_none() {
            // The timestamps are the peer's to fill in.
            self.echoed = packet.get(TIMESTAMP_BYTES..) == own.get(TIMESTAMP_BYTES..);
            // Some servers send an S2 that is no echo. ffmpeg and librtmp play nevertheless.
            return match self.echoed || !self.server {
                true => Ok(()),
                false => Err(Malformed::Echo),
            };
        }
        // Some clients with digests echo S1, as in the plain variant.
        let digest = find_digest(&own, self.own_key()).unwrap_or_default();
        let proves = packet.get(PACKET_BYTES - DIGEST_BYTES..)
            == Some(&compute_proof(packet, &digest, self.other_key()));
        let repeats = self.server && packet.get(TIMESTAMP_BYTES..) == own.get(TIMESTAMP_BYTES..);
        match proves || repeats {
            true => Ok(()),
            false => Err(Malformed::Echo),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes in pieces. Returns the bytes sent, and the last step.
    fn take(
        side: &mut Handshake,
        bytes: &[u8],
        piece: usize,
    ) -> (Vec<u8>, Result<HandshakeStep, Malformed>) {
        let mut sent = Vec::new();
        let mut last = Ok(HandshakeStep::NeedMore);
        for piece in bytes.chunks(piece) {
            let mut at = 0;
            loop {
                last = side.receive(piece, &mut at);
                match &last {
                    Ok(HandshakeStep::Send(bytes)) => sent.extend_from_slice(bytes),
                    _ => break,
                }
            }
        }
        (sent, last)
    }

    fn client(variant: HandshakeVariant) -> Handshake {
        Handshake::client(1).with_variant(variant)
    }

    #[test]
    fn handshake_completes_with_any_fragmentation() {
        for variant in [HandshakeVariant::Plain, HandshakeVariant::Digest] {
            for piece in [1, 7, 1536, 5000] {
                let (mut client, mut server) = (client(variant), Handshake::server(2));
                let (answer, step) = take(&mut server, &client.hello(), piece);
                assert_eq!(
                    (answer.len(), step),
                    (1 + 2 * PACKET_BYTES, Ok(HandshakeStep::NeedMore))
                );
                let (third, step) = take(&mut client, &answer, piece);
                assert_eq!((third.len(), step), (PACKET_BYTES, Ok(HandshakeStep::Done)));
                assert!(client.was_echoed());
                let (rest, step) = take(&mut server, &third, piece);
                assert_eq!((rest.len(), step), (0, Ok(HandshakeStep::Done)));
                let digest = variant == HandshakeVariant::Digest;
                assert_eq!((client.has_digest(), server.has_digest()), (digest, digest));
            }
        }
    }

    #[test]
    fn digests_are_found_in_both_halves_for_many_seeds() {
        for seed in 0..200 {
            let own = Handshake::client(seed).with_variant(HandshakeVariant::Digest);
            let mut packet = own.own_second_packet();
            assert!(find_digest(&packet, CLIENT_KEY).is_some());
            let at = digest_offset(&packet, DIGEST_POSITION_OFFSETS[1]);
            let digest = compute_digest(&packet, at, CLIENT_KEY);
            packet[at..at + DIGEST_BYTES].copy_from_slice(&digest);
            assert_eq!(find_digest(&packet, CLIENT_KEY), Some(digest));
            assert_eq!(find_digest(&packet, SERVER_KEY), None);
        }
    }

    #[test]
    fn server_without_digests_gets_a_plain_answer() {
        let mut own = client(HandshakeVariant::Digest);
        // This S2 echoes C1.
        let plain = Handshake::server(2).hello();
        let answer = [&plain[..], &own.hello()[1..]].concat();
        let (third, step) = take(&mut own, &answer, 5000);
        assert_eq!(
            (third, step),
            (plain[1..].to_vec(), Ok(HandshakeStep::Done))
        );
        assert!(!own.has_digest());
    }

    #[test]
    fn wrong_versions_digests_and_echoes_are_detected() {
        for version in [0, 6, b'H'] {
            let step = Handshake::client(1).receive(&[version], &mut 0);
            assert_eq!(step, Err(Malformed::Version(version)));
        }
        // In the plain variant, players ignore a wrong S2.
        for (variant, expected) in [
            (HandshakeVariant::Plain, Ok(HandshakeStep::Done)),
            (HandshakeVariant::Digest, Err(Malformed::Echo)),
        ] {
            let (mut own, mut server) = (client(variant), Handshake::server(2));
            let (mut answer, _) = take(&mut server, &own.hello(), 5000);
            let last = answer.len() - 1;
            answer[last] ^= 1;
            let (_, step) = take(&mut own, &answer, 5000);
            assert_eq!(step, expected);
            assert_eq!(own.was_echoed(), variant == HandshakeVariant::Digest);
        }
        // A server is strict about C2.
        let (own, mut server) = (client(HandshakeVariant::Plain), Handshake::server(2));
        let (_, step) = take(&mut server, &own.hello(), 5000);
        assert_eq!(step, Ok(HandshakeStep::NeedMore));
        let (_, step) = take(&mut server, &[0; PACKET_BYTES], 5000);
        assert_eq!(step, Err(Malformed::Echo));
        let (mut own, mut server) = (client(HandshakeVariant::Digest), Handshake::server(2));
        let (mut answer, _) = take(&mut server, &own.hello(), 5000);
        answer[1 + 1500] ^= 1;
        let (_, step) = take(&mut own, &answer, 5000);
        assert_eq!(step, Err(Malformed::Digest));
        // Bytes after the handshake are not consumed.
        let mut own = Handshake::client(1);
        let mut server = Handshake::server(2);
        let (answer, _) = take(&mut server, &own.hello(), 5000);
        let input = [&answer[..], &[1, 2, 3]].concat();
        let mut at = 0;
        assert!(matches!(
            own.receive(&input, &mut at),
            Ok(HandshakeStep::Send(_))
        ));
        assert_eq!(
            (own.receive(&input, &mut at), at),
            (Ok(HandshakeStep::Done), answer.len())
        );
    }
}
