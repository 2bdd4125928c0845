//! Network of two ends with seeded loss, duplication and delay, which reorders datagrams.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::handshake::HandshakeSettings;
use crate::seq::{SeqNumber, SocketClock};

/// Datagrams in flight, with their arrival times and the end that they are sent to.
pub(super) struct Network {
    random: Pcg64,
    loss: f64,
    duplication: f64,
    under_way: Vec<(Time, usize, Vec<u8>)>,
}

impl Network {
    pub(super) fn new(seed: u64, loss: f64, duplication: f64) -> Network {
        Network {
            random: Pcg64::seed_from_u64(seed),
            loss,
            duplication,
            under_way: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, now: Time, to: usize, datagram: &[u8]) {
        let copies = 1 + usize::from(self.random.random::<f64>() < self.duplication);
        for _ in 0..copies {
            if self.random.random::<f64>() >= self.loss {
                let delay = Duration::from_micros(self.random.random_range(1_000..80_000));
                self.under_way.push((now + delay, to, datagram.to_vec()));
            }
        }
    }

    pub(super) fn due(&self) -> Time {
        let times = self.under_way.iter().map(|(at, ..)| *at);
        times.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn arrived(&mut self, now: Time) -> Option<(usize, Vec<u8>)> {
        let due = self.due();
        if due > now {
            return None;
        }
        let index = self.under_way.iter().position(|(at, ..)| *at == due)?;
        let (_, to, datagram) = self.under_way.remove(index);
        Some((to, datagram))
    }
}

pub(super) const CALLER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1111);

pub(in crate::handshake) fn settings(socket_id: u32, seed: u64) -> HandshakeSettings {
    let clock = SocketClock::new(Time::ZERO);
    let ip = CALLER.ip();
    HandshakeSettings::live(socket_id, SeqNumber::new(socket_id * 1000), clock, ip, seed)
}
