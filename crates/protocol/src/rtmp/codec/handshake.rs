//! The handshake (RTMP, 5.2): three packets either way, of which the last repeats the other side's
//! second.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::Malformed;

/// The version of RTMP (RTMP, 5.2.2).
pub const VERSION: u8 = 3;
/// The bytes of a second or third packet.
pub const PACKET: usize = 1536;
/// What comes before what is drawn: two times.
const TIMES: usize = 8;

/// One side's part.
#[derive(Debug)]
pub struct Handshake {
    /// What this side draws, and its time: both can be made again.
    seed: u64,
    /// What has come of the packet under way.
    received: Vec<u8>,
    stage: Stage,
    server: bool,
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

impl Handshake {
    /// A client's. What it draws follows from `seed`.
    pub fn client(seed: u64) -> Handshake {
        Handshake {
            seed,
            received: Vec::new(),
            stage: Stage::Version,
            server: false,
        }
    }

    /// A server's.
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

    /// This side's second packet: its time, four bytes of zero, and what is drawn.
    fn second(&self) -> Vec<u8> {
        let mut bytes = vec![0; PACKET];
        Pcg64::seed_from_u64(self.seed).fill_bytes(&mut bytes[TIMES..]);
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

    /// Takes in bytes of `input`, of which the first `at` have been taken.
    ///
    /// # Errors
    /// [`Malformed::Version`] or [`Malformed::Echo`].
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
                Stage::Second => {
                    self.stage = Stage::Third;
                    return Ok(Step::Send(match self.server {
                        true => [&self.hello()[..], &packet].concat(),
                        false => packet,
                    }));
                }
                Stage::Third | Stage::Done => {
                    // The times are the other side's to fill in.
                    if packet.get(TIMES..) != self.second().get(TIMES..) {
                        return Err(Malformed::Echo);
                    }
                    self.stage = Stage::Done;
                }
            }
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

    #[test]
    fn both_sides_come_through_however_bytes_are_cut() {
        for piece in [1, 7, 1536, 5000] {
            let (mut client, mut server) = (Handshake::client(1), Handshake::server(2));
            let (answer, step) = take(&mut server, &client.hello(), piece);
            assert_eq!((answer.len(), step), (1 + 2 * PACKET, Ok(Step::More)));
            let (third, step) = take(&mut client, &answer, piece);
            assert_eq!((third.len(), step), (PACKET, Ok(Step::Done)));
            let (rest, step) = take(&mut server, &third, piece);
            assert_eq!((rest.len(), step), (0, Ok(Step::Done)));
        }
    }

    #[test]
    fn other_versions_and_wrong_echoes_are_told() {
        for version in [0, 6, b'H'] {
            let step = Handshake::client(1).take(&[version], &mut 0);
            assert_eq!(step, Err(Malformed::Version(version)));
        }
        let (mut client, mut server) = (Handshake::client(1), Handshake::server(2));
        let (mut answer, _) = take(&mut server, &client.hello(), 5000);
        let last = answer.len() - 1;
        answer[last] ^= 1;
        let (_, step) = take(&mut client, &answer, 5000);
        assert_eq!(step, Err(Malformed::Echo));
        // What comes behind it is left alone.
        let mut client = Handshake::client(1);
        let mut server = Handshake::server(2);
        let (answer, _) = take(&mut server, &client.hello(), 5000);
        let input = [&answer[..], &[1, 2, 3]].concat();
        let mut at = 0;
        assert!(matches!(client.take(&input, &mut at), Ok(Step::Send(_))));
        assert_eq!(
            (client.take(&input, &mut at), at),
            (Ok(Step::Done), answer.len())
        );
    }
}
