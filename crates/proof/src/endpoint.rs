//! The server's port: it accepts clients that have proven their address, and keeps no state of
//! others.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use measure::Time;
use sha2::Sha256;

use super::codec::{Cookie, Message};
use super::config::ServerConfig;
use super::server::Server;
use session::{Datagram, PeerId, Route};

/// Minimum lifetime of a cookie. The maximum is twice that.
const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// The port of one worker.
#[derive(Debug)]
pub(super) struct Endpoint {
    config: ServerConfig,
    peers: BTreeMap<SocketAddr, PeerId>,
    addresses: BTreeMap<PeerId, SocketAddr>,
    next: u64,
}

impl Endpoint {
    pub(super) fn new(config: ServerConfig) -> Endpoint {
        Endpoint {
            config,
            peers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            next: 0,
        }
    }

    /// Number of sessions.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Cookie of an address in one lifetime period: a MAC, so that it cannot be forged.
    fn cookie(&self, from: SocketAddr, life: u64) -> Cookie {
        let key = self.config.seed.to_be_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of HMAC has any length");
        match from.ip() {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac.update(&from.port().to_be_bytes());
        mac.update(&life.to_be_bytes());
        let mac = mac.finalize().into_bytes();
        *mac.first_chunk().expect("32 bytes are more than 8")
    }

    fn accept(&mut self, from: SocketAddr) -> Route {
        let peer = PeerId(self.next);
        self.next += 1;
        self.peers.insert(from, peer);
        self.addresses.insert(peer, from);
        Route::Accept(peer, Box::new(Server::new(self.config)))
    }
}

impl session::Endpoint for Endpoint {
    fn route(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        room: bool,
        answer: &mut Vec<u8>,
    ) -> Route {
        let from = datagram.from;
        if let Some(&peer) = self.peers.get(&from) {
            return Route::Session(peer);
        }
        let Some(Message::Hello(cookie)) = Message::parse(datagram.bytes) else {
            return Route::Discard;
        };
        let life = now.since_start().as_secs() / COOKIE_LIFE.as_secs();
        let good = |life: u64| cookie == self.cookie(from, life);
        if good(life) || life.checked_sub(1).is_some_and(good) {
            return match room {
                true => self.accept(from),
                false => Route::Discard,
            };
        }
        Message::Challenge(self.cookie(from, life)).write(answer);
        Route::Answer
    }

    fn session_ended(&mut self, session: PeerId) {
        if let Some(address) = self.addresses.remove(&session) {
            self.peers.remove(&address);
        }
    }
}
