//! Handshake (RTMP, 5.2): three packets in each direction, of which the last echoes the peer's
//! second. In the digest variant, introduced by Flash Player, the second packet carries a digest,
//! and the last proves that the peer's digest was read.

use hmac::{Hmac, KeyInit, Mac};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use sha2::Sha256;

use super::Malformed;

/// RTMP version (RTMP, 5.2.2).
pub const VERSION: u8 = 3;
/// Length of C1, S1, C2 and S2 in bytes.
pub const PACKET: usize = 1536;
/// Length of the two timestamps before the random bytes. In the digest variant, the second
/// timestamp is the sender's version.
const TIMES: usize = 8;
/// Version that a client states in the digest variant: Flash Player's.
const CLIENT_VERSION: [u8; 4] = [128, 0, 7, 2];
/// Version that a server states in the digest variant.
const SERVER_VERSION: [u8; 4] = [4, 5, 0, 1];

const DIGEST: usize = 32;
/// Common suffix of both sides' keys.
const SHARED: [u8; 32] = [
    0xf0, 0xee, 0xc2, 0x4a, 0x80, 0x68, 0xbe, 0xe8, 0x2e, 0x00, 0xd0, 0xd1, 0x02, 0x9e, 0x7e, 0x57,
    0x6e, 0xec, 0x5d, 0x2d, 0x29, 0x80, 0x6f, 0xab, 0x93, 0xb8, 0xe6, 0x36, 0xcf, 0xeb, 0x31, 0xae,
];
const CLIENT_KEY: &[u8] = b"Genuine Adobe Flash Player 001";
const SERVER_KEY: &[u8] = b"Genuine Adobe Flash Media Server 001";

/// Offsets of the four bytes whose sum determines the position of the digest: after the timestamps,
/// or in the second half.
const PLACES: [usize; 2] = [TIMES, 772];
/// Modulus of that sum.
const FARTHER: usize = 728;

/// Handshake variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As specified.
    #[default]
    Plain,
    /// With digests, if the peer sends them too.
    Digest,
}

/// One side of a handshake.
#[derive(Debug)]
pub struct Handshake {
    /// Seed of this side's random bytes, which are generated again when needed.
    seed: u64,
    style: Style,
    /// Received bytes of the current packet.
    received: Vec<u8>,
    stage: Stage,
    server: bool,
    /// Digest of the peer's second packet, if it has one. This side's last packet then proves that
    /// it was read.
    digest: Option<[u8; DIGEST]>,
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
pub enum Step {
    /// More bytes are needed.
    More,
    /// These bytes must be sent.
    Send(Vec<u8>),
    /// The handshake is complete.
    Done,
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys may have any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Returns the offset of a packet's digest, given that of its four position bytes.
fn place_of_digest(packet: &[u8], place: usize) -> usize {
    let numbers = packet.get(place..place + 4).unwrap_or_default();
    let sum: usize = numbers.iter().map(|&number| usize::from(number)).sum();
    place + 4 + sum % FARTHER
}

/// Computes the digest of a packet for this offset.
fn digest_at(packet: &[u8], at: usize, key: &[u8]) -> [u8; DIGEST] {
    let before = packet.get(..at).unwrap_or_default();
    let behind = packet.get(at + DIGEST..).unwrap_or_default();
    hmac(key, &[before, behind])
}

/// Returns the digest of a packet, or `None` if it has no valid one.
fn find_digest(packet: &[u8], key: &[u8]) -> Option<[u8; DIGEST]> {
    PLACES.into_iter().find_map(|place| {
        let at = place_of_digest(packet, place);
        let digest = digest_at(packet, at, key);
        (packet.get(at..at + DIGEST)? == digest).then_some(digest)
    })
}

/// Computes the proof that a digest was read: the end of the last packet.
fn proof(packet: &[u8], digest: &[u8], key: &[u8]) -> [u8; DIGEST] {
    let key = hmac(&[key, &SHARED].concat(), &[digest]);
    hmac(&key, &[packet.get(..PACKET - DIGEST).unwrap_or_default()])
}

impl Handshake {
    /// Creates the client's side. Its random bytes derive from `seed`.
    pub fn client(seed: u64) -> Handshake {
        Handshake {
            seed,
            style: Style::Plain,
            received: Vec::new(),
            stage: Stage::Version,
            server: false,
            digest: None,
            echoed: true,
        }
    }

    /// Sets the variant.
    pub fn of_style(self, style: Style) -> Handshake {
        Handshake { style, ..self }
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
        let mut bytes = Vec::with_capacity(1 + PACKET);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.second());
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
    fn second(&self) -> Vec<u8> {
        let mut bytes = vec![0; PACKET];
        Pcg64::seed_from_u64(self.seed).fill_bytes(&mut bytes[TIMES..]);
        if self.style == Style::Digest {
            bytes[4..TIMES].copy_from_slice(match self.server {
                true => &SERVER_VERSION,
                false => &CLIENT_VERSION,
            });
            let at = place_of_digest(&bytes, TIMES);
            let digest = digest_at(&bytes, at, self.own_key());
            bytes[at..at + DIGEST].copy_from_slice(&digest);
        }
        bytes
    }

    /// Returns C2 or S2: the echo of the peer's second packet, or the proof that its digest was
    /// read.
    fn last(&self, second: Vec<u8>) -> Vec<u8> {
        let Some(digest) = self.digest else {
            return second;
        };
        let mut bytes = vec![0; PACKET];
        Pcg64::seed_from_u64(self.seed ^ 1).fill_bytes(&mut bytes);
        let proof = proof(&bytes, &digest, self.own_key());
        bytes[PACKET - DIGEST..].copy_from_slice(&proof);
        bytes
    }

    /// Returns the name of the awaited packet.
    pub fn awaits(&self) -> &'static str {
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
    pub fn take(&mut self, input: &[u8], at: &mut usize) -> Result<Step, Malformed> {
        loop {
            let wanted = match self.stage {
                Stage::Version => 1,
                Stage::Second | Stage::Third => PACKET,
                Stage::Done => return Ok(Step::Done),
            };
            let rest = input.get(*at..).unwrap_or_default();
            let count = rest.len().min(wanted - self.received.len());
            self.received.extend_from_slice(&rest[..count]);
            *at += count;
            if self.received.len() < wanted {
                return Ok(Step::More);
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
                Stage::Second => return self.take_second(packet).map(Step::Send),
                Stage::Third | Stage::Done => {
                    self.check_last(&packet)?;
                    self.stage = Stage::Done;
                }
            }
        }
    }

    /// Processes the peer's second packet. Returns the bytes to send.
    fn take_second(&mut self, packet: Vec<u8>) -> Result<Vec<u8>, Malformed> {
        self.stage = Stage::Third;
        // A peer without digests sends four bytes of zero here.
        let states_version = packet
            .get(4..TIMES)
            .is_some_and(|version| version != [0; 4]);
        if states_version && (self.server || self.style == Style::Digest) {
            self.digest = find_digest(&packet, self.other_key());
            match (self.server, self.digest) {
                (true, Some(_)) => self.style = Style::Digest,
                (false, None) => return Err(Malformed::Digest),
                _ => {}
            }
        }
        let last = self.last(packet);
        Ok(match self.server {
            true => [self.hello(), last].concat(),
            false => last,
        })
    }

    fn check_last(&mut self, packet: &[u8]) -> Result<(), Malformed> {
        let own = self.second();
        if self.digest.is_none() {
            // The timestamps are the peer's to fill in.
            self.echoed = packet.get(TIMES..) == own.get(TIMES..);
            // Some servers send an S2 that is no echo. ffmpeg and librtmp play nevertheless.
            return match self.echoed || !self.server {
                true => Ok(()),
                false => Err(Malformed::Echo),
            };
        }
        // Some clients with digests echo S1, as in the plain variant.
        let digest = find_digest(&own, self.own_key()).unwrap_or_default();
        let proves =
            packet.get(PACKET - DIGEST..) == Some(&proof(packet, &digest, self.other_key()));
        let repeats = self.server && packet.get(TIMES..) == own.get(TIMES..);
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
    ) -> (Vec<u8>, Result<Step, Malformed>) {
        let mut sent = Vec::new();
        let mut last = Ok(Step::More);
        for piece in bytes.chunks(piece) {
            let mut at = 0;
            loop {
                last = side.take(piece, &mut at);
                match &last {
                    Ok(Step::Send(bytes)) => sent.extend_from_slice(bytes),
                    _ => break,
                }
            }
        }
        (sent, last)
    }

    fn client(style: Style) -> Handshake {
        Handshake::client(1).of_style(style)
    }

    #[test]
    fn handshake_completes_with_any_fragmentation() {
        for style in [Style::Plain, Style::Digest] {
            for piece in [1, 7, 1536, 5000] {
                let (mut client, mut server) = (client(style), Handshake::server(2));
                let (answer, step) = take(&mut server, &client.hello(), piece);
                assert_eq!((answer.len(), step), (1 + 2 * PACKET, Ok(Step::More)));
                let (third, step) = take(&mut client, &answer, piece);
                assert_eq!((third.len(), step), (PACKET, Ok(Step::Done)));
                assert!(client.was_echoed());
                let (rest, step) = take(&mut server, &third, piece);
                assert_eq!((rest.len(), step), (0, Ok(Step::Done)));
                let digest = style == Style::Digest;
                assert_eq!((client.has_digest(), server.has_digest()), (digest, digest));
            }
        }
    }

    #[test]
    fn digests_are_found_in_both_halves_for_many_seeds() {
        for seed in 0..200 {
            let own = Handshake::client(seed).of_style(Style::Digest);
            let mut packet = own.second();
            assert!(find_digest(&packet, CLIENT_KEY).is_some());
            let at = place_of_digest(&packet, PLACES[1]);
            let digest = digest_at(&packet, at, CLIENT_KEY);
            packet[at..at + DIGEST].copy_from_slice(&digest);
            assert_eq!(find_digest(&packet, CLIENT_KEY), Some(digest));
            assert_eq!(find_digest(&packet, SERVER_KEY), None);
        }
    }

    #[test]
    fn server_without_digests_gets_a_plain_answer() {
        let mut own = client(Style::Digest);
        // This S2 echoes C1.
        let plain = Handshake::server(2).hello();
        let answer = [&plain[..], &own.hello()[1..]].concat();
        let (third, step) = take(&mut own, &answer, 5000);
        assert_eq!((third, step), (plain[1..].to_vec(), Ok(Step::Done)));
        assert!(!own.has_digest());
    }

    #[test]
    fn wrong_versions_digests_and_echoes_are_detected() {
        for version in [0, 6, b'H'] {
            let step = Handshake::client(1).take(&[version], &mut 0);
            assert_eq!(step, Err(Malformed::Version(version)));
        }
        // In the plain variant, players ignore a wrong S2.
        for (style, expected) in [
            (Style::Plain, Ok(Step::Done)),
            (Style::Digest, Err(Malformed::Echo)),
        ] {
            let (mut own, mut server) = (client(style), Handshake::server(2));
            let (mut answer, _) = take(&mut server, &own.hello(), 5000);
            let last = answer.len() - 1;
            answer[last] ^= 1;
            let (_, step) = take(&mut own, &answer, 5000);
            assert_eq!(step, expected);
            assert_eq!(own.was_echoed(), style == Style::Digest);
        }
        // A server is strict about C2.
        let (own, mut server) = (client(Style::Plain), Handshake::server(2));
        let (_, step) = take(&mut server, &own.hello(), 5000);
        assert_eq!(step, Ok(Step::More));
        let (_, step) = take(&mut server, &[0; PACKET], 5000);
        assert_eq!(step, Err(Malformed::Echo));
        let (mut own, mut server) = (client(Style::Digest), Handshake::server(2));
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
        assert!(matches!(own.take(&input, &mut at), Ok(Step::Send(_))));
        assert_eq!(
            (own.take(&input, &mut at), at),
            (Ok(Step::Done), answer.len())
        );
    }
}
