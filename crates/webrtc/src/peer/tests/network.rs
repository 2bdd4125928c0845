//! Two peers and the network between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::certificate::Certificate;
use crate::peer::{Peer, PeerConfig, PeerEvent, PeerState, Received};

/// Shared by all cases, as generating a certificate takes as long as some cases.
pub(super) static CERTIFICATES: LazyLock<[Arc<Certificate>; 2]> =
    LazyLock::new(|| [1, 2].map(|seed| Arc::new(Certificate::generate(seed))));

/// Impairments of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Impairments {
    pub(super) loss_rate: f64,
    pub(super) duplication_rate: f64,
    pub(super) delay: Duration,
    /// Maximum additional delay, by which datagrams overtake each other.
    pub(super) jitter: Duration,
}

pub(super) const NO_IMPAIRMENTS: Impairments = Impairments {
    loss_rate: 0.0,
    duplication_rate: 0.0,
    delay: Duration::from_millis(1),
    jitter: Duration::ZERO,
};

/// A datagram in flight: sending side, source, destination and contents.
type InFlight = (usize, SocketAddr, SocketAddr, Vec<u8>);

/// Two peers; peer 0 makes the offer.
pub(super) struct Pair {
    pub(super) now: Time,
    pub(super) peers: [Peer; 2],
    pub(super) addresses: [SocketAddr; 2],
    pub(super) impairments: Impairments,
    pub(super) events: [Vec<(Time, PeerEvent)>; 2],
    pub(super) rtcp: [Vec<Vec<u8>>; 2],
    pub(super) sent: [u64; 2],
    in_flight: BTreeMap<(Time, u64), InFlight>,
    number: u64,
    random: Pcg64,
    /// Sides whose datagrams are lost.
    pub(super) silent: [bool; 2],
}

pub(super) fn address(side: usize) -> SocketAddr {
    ([127, 0, 0, 1 + side as u8], 5000 + side as u16).into()
}

pub(super) fn config(side: usize, seed: u64) -> PeerConfig {
    let certificate = CERTIFICATES[side].clone();
    PeerConfig::new(certificate, seed.wrapping_mul(2).wrapping_add(side as u64))
}

impl Pair {
    pub(super) fn new(configs: [PeerConfig; 2], impairments: Impairments, seed: u64) -> Pair {
        Pair::at([address(0), address(1)], configs, impairments, seed)
    }

    pub(super) fn at(
        addresses: [SocketAddr; 2],
        configs: [PeerConfig; 2],
        impairments: Impairments,
        seed: u64,
    ) -> Pair {
        let now = Time::from_nanos(1_000_000_000);
        let mut peers = [
            Peer::offerer(now, &configs[0]),
            Peer::answerer(now, &configs[1]),
        ];
        for (side, peer) in peers.iter_mut().enumerate() {
            assert!(peer.add_local_candidate(now, addresses[side]));
        }
        Pair {
            now,
            peers,
            addresses,
            impairments,
            events: [Vec::new(), Vec::new()],
            rtcp: [Vec::new(), Vec::new()],
            sent: [0; 2],
            in_flight: BTreeMap::new(),
            number: 0,
            random: Pcg64::seed_from_u64(seed),
            silent: [false; 2],
        }
    }

    /// Exchanges offer and answer at once. They contain the candidates, which with `trickle` follow
    /// 30 ms later.
    pub(super) fn negotiate(&mut self, trickle: bool) {
        let mut candidates = [Vec::new(), Vec::new()];
        for side in [0, 1] {
            let mut transport = self.peers[side].local_transport();
            if trickle {
                candidates[side] = std::mem::take(&mut transport.candidates);
                transport.end_of_candidates = false;
            }
            let result = self.peers[1 - side].set_remote(self.now, &transport);
            assert_eq!(result, Ok(()));
        }
        self.drain_peers();
        if trickle {
            self.run_for(Duration::from_millis(30));
            for side in [0, 1] {
                for candidate in &candidates[side] {
                    assert!(self.peers[1 - side].add_remote_candidate(self.now, candidate));
                }
            }
            self.drain_peers();
        }
    }

    fn drain_peers(&mut self) {
        for side in [0, 1] {
            loop {
                let mut bytes = Vec::new();
                let Some(to) = self.peers[side].poll_transmit(&mut bytes) else {
                    break;
                };
                assert!(!bytes.is_empty() && bytes.len() <= 1200, "{}", bytes.len());
                self.sent[side] += 1;
                self.inject(side, to, bytes);
            }
            while let Some(event) = self.peers[side].poll_event() {
                self.events[side].push((self.now, event));
            }
        }
    }

    /// Sends a datagram as if that side had sent it.
    pub(super) fn inject(&mut self, side: usize, to: SocketAddr, bytes: Vec<u8>) {
        if self.silent[side] {
            return;
        }
        let copies = 1 + u8::from(self.random.random_bool(self.impairments.duplication_rate));
        for _ in 0..copies {
            if self.random.random_bool(self.impairments.loss_rate) {
                continue;
            }
            let jitter = self.impairments.jitter.as_nanos() as u64;
            let jitter = Duration::from_nanos(self.random.random_range(0..=jitter));
            let at = self.now + self.impairments.delay + jitter;
            self.number += 1;
            let datagram = (side, self.addresses[side], to, bytes.clone());
            self.in_flight.insert((at, self.number), datagram);
        }
    }

    /// Processes the next event up to `by`: a datagram arrives, or a peer's deadline is due.
    /// Returns `false` if no event is due by then.
    fn step(&mut self, by: Time) -> bool {
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self.peers.each_ref().map(|peer| peer.deadline());
        let next = [arrival, deadlines[0], deadlines[1]]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.filter(|next| *next <= by) else {
            self.now = by.max(self.now);
            return false;
        };
        self.now = next.max(self.now);
        if arrival == Some(next) {
            let (_, (side, from, to, bytes)) = self.in_flight.pop_first().expect("it is there");
            let other = 1 - side;
            if to == self.addresses[other] {
                let now = self.now;
                match self.peers[other].handle_datagram(now, from, &bytes) {
                    Received::Rtcp(plain) => {
                        let plain = plain.to_vec();
                        self.rtcp[other].push(plain);
                    }
                    Received::Handled | Received::Rtp | Received::Dropped => {}
                }
            }
        } else {
            for (peer, deadline) in self.peers.iter_mut().zip(deadlines) {
                if deadline == Some(next) {
                    peer.handle_timeout(self.now);
                }
            }
        }
        self.drain_peers();
        true
    }

    pub(super) fn run_for(&mut self, length: Duration) {
        let by = self.now + length;
        self.drain_peers();
        let mut steps = 0;
        while self.step(by) {
            steps += 1;
            assert!(steps < 200_000, "time stands still at {:?}", self.now);
        }
    }

    /// Runs until both peers are connected. Returns the time taken, or `None` if `within` has
    /// passed.
    pub(super) fn connect(&mut self, within: Duration) -> Option<Duration> {
        let began = self.now;
        let by = self.now + within;
        self.drain_peers();
        while !self
            .peers
            .iter()
            .all(|peer| peer.state() == PeerState::Connected)
        {
            if !self.step(by) {
                return None;
            }
        }
        Some(self.now.since(began))
    }

    /// Checks that each side decrypts the other's media, and that both use the same profile.
    pub(super) fn exchange_media(&mut self) {
        for side in [0, 1] {
            let mut sealer = self.peers[side].rtp_sealer().expect("it is connected");
            let mut opener = self.peers[1 - side]
                .take_rtp_opener()
                .expect("it is connected");
            let plain = [&[0x80, 96, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9][..], b"media"].concat();
            let (mut packet, mut out) = (plain.clone(), Vec::new());
            sealer.seal(&mut packet).expect("it is RTP");
            assert_eq!(opener.open(&packet, &mut out), Ok(&plain[..]));
        }
        let profiles = self.peers.each_ref().map(|peer| peer.srtp_profile());
        assert!(profiles[0].is_some() && profiles[0] == profiles[1]);
    }
}

pub(super) const REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 9];
