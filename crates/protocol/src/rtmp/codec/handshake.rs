//! The handshake (RTMP, 5.2): three packets either way, of which the last repeats the other side's
//! second. In the kind with digests, which Flash Player began, the second bears a digest, and the
//! last proves that its digest was read.

use hmac::{Hmac, KeyInit, Mac};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use sha2::Sha256;

use super::Malformed;

/// The version of RTMP (RTMP, 5.2.2).
pub const VERSION: u8 = 3;
/// The bytes of a second or third packet.
pub const PACKET: usize = 1536;
/// What comes before what is drawn: two times; with digests, the second is the version of who
/// speaks.
const TIMES: usize = 8;
/// The version of a client that sends digests: Flash Player's.
const CLIENT_VERSION: [u8; 4] = [128, 0, 7, 2];
/// The same of a server.
const SERVER_VERSION: [u8; 4] = [4, 5, 0, 1];

const DIGEST: usize = 32;
/// What both sides' keys end with.
const SHARED: [u8; 32] = [
    0xf0, 0xee, 0xc2, 0x4a, 0x80, 0x68, 0xbe, 0xe8, 0x2e, 0x00, 0xd0, 0xd1, 0x02, 0x9e, 0x7e, 0x57,
    0x6e, 0xec, 0x5d, 0x2d, 0x29, 0x80, 0x6f, 0xab, 0x93, 0xb8, 0xe6, 0x36, 0xcf, 0xeb, 0x31, 0xae,
];
const CLIENT_KEY: &[u8] = b"Genuine Adobe Flash Player 001";
const SERVER_KEY: &[u8] = b"Genuine Adobe Flash Media Server 001";

/// Where a digest may be: behind the times, or in the second half. There stand four numbers, whose
/// sum says how much farther.
const PLACES: [usize; 2] = [TIMES, 772];
/// By how much a digest's place is at most farther.
const FARTHER: usize = 728;

/// Which kind of handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As the specification has it.
    #[default]
    Plain,
    /// With digests, where the other side has them too.
    Digest,
}

/// One side's part.
#[derive(Debug)]
pub struct Handshake {
    /// What this side draws: it can be made again.
    seed: u64,
    style: Style,
    /// What has come of the packet under way.
    received: Vec<u8>,
    stage: Stage,
    server: bool,
    /// The digest of the other side's second packet, where it has one: then this side's last proves
    /// that it was read.
    digest: Option<[u8; DIGEST]>,
    /// False once the server has repeated something else than this side's second packet.
    echoed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Version,
    Second,
    Third,
    Done,
}

/// What is to be done after bytes have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More has to come.
    More,
    /// This is to be sent.
    Send(Vec<u8>),
    /// Both sides are through.
    Done,
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys may have any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Where a packet's digest is, if it is in that place.
fn place_of_digest(packet: &[u8], place: usize) -> usize {
    let numbers = packet.get(place..place + 4).unwrap_or_default();
    let sum: usize = numbers.iter().map(|&number| usize::from(number)).sum();
    place + 4 + sum % FARTHER
}

/// The digest that belongs at that place.
fn digest_at(packet: &[u8], at: usize, key: &[u8]) -> [u8; DIGEST] {
    let before = packet.get(..at).unwrap_or_default();
    let behind = packet.get(at + DIGEST..).unwrap_or_default();
    hmac(key, &[before, behind])
}

/// The digest of a packet, where it has one that is right.
fn find_digest(packet: &[u8], key: &[u8]) -> Option<[u8; DIGEST]> {
    PLACES.into_iter().find_map(|place| {
        let at = place_of_digest(packet, place);
        let digest = digest_at(packet, at, key);
        (packet.get(at..at + DIGEST)? == digest).then_some(digest)
    })
}

/// What proves that a digest was read: at the end of the last packet.
fn proof(packet: &[u8], digest: &[u8], key: &[u8]) -> [u8; DIGEST] {
    let key = hmac(&[key, &SHARED].concat(), &[digest]);
    hmac(&key, &[packet.get(..PACKET - DIGEST).unwrap_or_default()])
}

impl Handshake {
    /// A client's. What it draws follows from `seed`.
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

    /// The same of that kind.
    pub fn of_style(self, style: Style) -> Handshake {
        Handshake { style, ..self }
    }

    /// A server's: of the kind that its client has.
    pub fn server(seed: u64) -> Handshake {
        Handshake {
            server: true,
            ..Handshake::client(seed)
        }
    }

    /// What a client begins with: its version and its second packet.
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

    /// This side's second packet: its time, four bytes of zero, and what is drawn; or its version
    /// there, and a digest.
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

    /// This side's last packet: the other's second, or the proof that its digest was read.
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

    /// How far it is, in words.
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

    /// Whether both sides' packets bear digests, once the other's second has come.
    pub fn has_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// Whether the other side's last packet repeated this side's second one, or proved that it was
    /// read.
    pub fn was_echoed(&self) -> bool {
        self.echoed
    }

    /// Takes in bytes of `input`, of which the first `at` have been taken.
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

    /// Takes in the other side's second packet; gives what is to be sent.
    fn take_second(&mut self, packet: Vec<u8>) -> Result<Vec<u8>, Malformed> {
        self.stage = Stage::Third;
        // A side without digests has four bytes of zero there.
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
            // The times are the other side's to fill in.
            self.echoed = packet.get(TIMES..) == own.get(TIMES..);
            // Some servers send anything. ffmpeg and librtmp play nevertheless.
            return match self.echoed || !self.server {
                true => Ok(()),
                false => Err(Malformed::Echo),
            };
        }
        // Some clients with digests repeat what they got, as in the plain kind.
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

    /// Takes bytes in pieces; what is sent, and how it ended.
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
    fn both_sides_come_through_however_bytes_are_cut() {
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
    fn digests_of_either_place_are_found_for_many_seeds() {
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
    fn a_server_without_digests_is_answered_plainly() {
        let mut own = client(Style::Digest);
        // It repeats what it got.
        let plain = Handshake::server(2).hello();
        let answer = [&plain[..], &own.hello()[1..]].concat();
        let (third, step) = take(&mut own, &answer, 5000);
        assert_eq!((third, step), (plain[1..].to_vec(), Ok(Step::Done)));
        assert!(!own.has_digest());
    }

    #[test]
    fn other_versions_wrong_digests_and_wrong_echoes_are_told() {
        for version in [0, 6, b'H'] {
            let step = Handshake::client(1).take(&[version], &mut 0);
            assert_eq!(step, Err(Malformed::Version(version)));
        }
        // Without digests, players go on.
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
        // A server is as strict as it was.
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
        // What comes behind a handshake is left alone.
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
