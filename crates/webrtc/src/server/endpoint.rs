//! UDP port of the server. ICE checks are routed by their user fragment, and their sender must know
//! the password. Other datagrams are routed by their source address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use measure::Time;

use super::faults::Silence;
use super::registry::Claim;
use super::session::PeerSession;
use super::{Shared, add};
use crate::ice::IceCheck;
use session::{Datagram, PeerId, Route};

/// Maximum number of addresses per PeerConnection: as many as ICE remembers.
const ADDRESSES_MAX: usize = 32;

/// A PeerConnection that has started on this port.
#[derive(Debug)]
struct StartedPeer {
    ufrag: String,
    pwd: String,
    addresses: Vec<SocketAddr>,
}

/// UDP port of one worker.
#[derive(Debug)]
pub(super) struct Endpoint {
    shared: Arc<Shared>,
    worker: u32,
    peers: HashMap<PeerId, StartedPeer>,
    by_ufrag: HashMap<String, PeerId>,
    by_address: HashMap<SocketAddr, PeerId>,
    next_id: u64,
}

impl Endpoint {
    pub(super) fn new(shared: Arc<Shared>, worker: u32) -> Endpoint {
        Endpoint {
            shared,
            worker,
            peers: HashMap::new(),
            by_ufrag: HashMap::new(),
            by_address: HashMap::new(),
            next_id: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn address_count(&self) -> usize {
        self.by_address.len()
    }

    /// Maps the source address of an authentic check to its PeerConnection.
    fn learn_address(&mut self, peer: PeerId, from: SocketAddr) {
        if self.by_address.get(&from) == Some(&peer) {
            return;
        }
        let Some(started) = self.peers.get_mut(&peer) else {
            return;
        };
        if started.addresses.len() >= ADDRESSES_MAX {
            let oldest = started.addresses.remove(0);
            if self.by_address.get(&oldest) == Some(&peer) {
                self.by_address.remove(&oldest);
            }
        }
        started.addresses.push(from);
        // A PeerConnection that had this address before has left it.
        self.by_address.insert(from, peer);
    }

    fn route_check(&mut self, now: Time, from: SocketAddr, bytes: &[u8], room: bool) -> Route {
        let counters = &self.shared.counters;
        let Some(check) = IceCheck::parse(bytes) else {
            add(&counters.checks_malformed, 1);
            return Route::Discard;
        };
        if self.shared.config.faults.silent == Some(Silence::Ice) {
            return Route::Discard;
        }
        let ufrag = check.receiver_ufrag();
        if let Some(&peer) = self.by_ufrag.get(ufrag) {
            let pwd = self.peers.get(&peer).map(|started| &started.pwd[..]);
            if !pwd.is_some_and(|pwd| check.is_authentic(pwd)) {
                add(&counters.checks_unauthentic, 1);
                return Route::Discard;
            }
            self.learn_address(peer, from);
            return Route::Session(peer);
        }
        if !room {
            return Route::Discard;
        }
        let claim = self
            .shared
            .registry()
            .claim(ufrag, |pwd| check.is_authentic(pwd));
        match claim {
            Claim::Unknown => {
                add(&counters.checks_of_nobody, 1);
                Route::Discard
            }
            Claim::Unauthentic => {
                add(&counters.checks_unauthentic, 1);
                Route::Discard
            }
            Claim::Accepted(slot, pwd, waiting) => {
                let peer = PeerId(self.next_id << 8 | u64::from(self.worker & 0xff));
                self.next_id += 1;
                self.by_ufrag.insert(ufrag.to_owned(), peer);
                let started = StartedPeer {
                    ufrag: ufrag.to_owned(),
                    pwd,
                    addresses: Vec::new(),
                };
                self.peers.insert(peer, started);
                self.learn_address(peer, from);
                let session = PeerSession::new(now, self.shared.clone(), waiting, slot);
                Route::Accept(peer, Box::new(session))
            }
        }
    }
}

impl session::Endpoint for Endpoint {
    fn route(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        room: bool,
        _answer: &mut Vec<u8>,
    ) -> Route {
        // STUN, by its first byte (RFC 7983, 7).
        if let [0..=3, ..] = datagram.bytes {
            return self.route_check(now, datagram.from, datagram.bytes, room);
        }
        match self.by_address.get(&datagram.from) {
            Some(&peer) => Route::Session(peer),
            None => {
                add(&self.shared.counters.strangers, 1);
                Route::Discard
            }
        }
    }

    fn session_ended(&mut self, session: PeerId) {
        let Some(started) = self.peers.remove(&session) else {
            return;
        };
        self.by_ufrag.remove(&started.ufrag);
        for address in started.addresses {
            if self.by_address.get(&address) == Some(&session) {
                self.by_address.remove(&address);
            }
        }
    }
}
