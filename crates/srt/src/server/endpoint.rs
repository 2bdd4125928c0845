//! Port of the server: creates sessions for callers that have proved their address, distinguishes
//! sessions by their socket ids, and keeps no other state.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use measure::Time;

use super::Shared;
use super::faults::HandshakeFault;
use super::session::ServerSession;
use crate::codec::packet::destination_socket_id;
use crate::handshake::{Listener, ListenerConfig, ListenerResult};
use crate::seq::SocketClock;
use session::seeds::derive_seed;
use session::{Datagram, PeerId, Route};

/// Port of one worker.
#[derive(Debug)]
pub(super) struct Endpoint {
    shared: Arc<Shared>,
    worker: u32,
    listener: Listener,
    /// Session and address of the peer, by our socket id.
    sockets: HashMap<u32, (PeerId, SocketAddr)>,
    /// Session by caller: a caller repeats its conclusion if the answer was lost.
    callers: HashMap<(SocketAddr, u32), PeerId>,
    sessions: BTreeMap<PeerId, (u32, (SocketAddr, u32))>,
    next: u64,
}

impl Endpoint {
    pub(super) fn new(shared: Arc<Shared>, worker: u32) -> Endpoint {
        let seed = shared.config.seed;
        let secret = shared.secret();
        let listener = Listener::new(ListenerConfig {
            secret: derive_seed(&[seed, 1, worker.into()]),
            clock: SocketClock::new(Time::ZERO),
            advertised_key: secret.map(|secret| secret.key_length),
        });
        Endpoint {
            shared,
            worker,
            listener,
            sockets: HashMap::new(),
            callers: HashMap::new(),
            sessions: BTreeMap::new(),
            next: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Unused socket id: of 30 bits and not 0, like those of libsrt.
    fn socket_id(&self) -> u32 {
        let tries = 0u64..;
        let seed = [self.shared.config.seed, self.worker.into(), self.next];
        let mut ids = tries.map(|again| {
            let [seed, worker, number] = seed;
            (derive_seed(&[seed, 2, worker, number, again]) as u32 & 0x3fff_ffff).max(1)
        });
        let free = ids.find(|id| !self.sockets.contains_key(id));
        free.expect("there are more ids than sessions may be")
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
        match destination_socket_id(datagram.bytes) {
            None => return Route::Discard,
            Some(0) => {}
            Some(id) => {
                return match self.sockets.get(&id) {
                    Some(&(peer, address)) if address == from => Route::Session(peer),
                    _ => Route::Discard,
                };
            }
        }
        let fault = self.shared.config.faults.handshake;
        if fault == Some(HandshakeFault::Silent) {
            return Route::Discard;
        }
        match self.listener.handle(from, datagram.bytes, now, answer) {
            ListenerResult::Ignored => Route::Discard,
            ListenerResult::Answered => {
                if fault == Some(HandshakeFault::Malformed) {
                    answer.truncate(answer.len() / 2);
                }
                Route::Answer
            }
            ListenerResult::Request(_) if fault == Some(HandshakeFault::Unfinished) => {
                Route::Discard
            }
            ListenerResult::Request(request) => {
                let caller = (from, request.peer_socket_id());
                if let Some(&peer) = self.callers.get(&caller) {
                    return Route::Session(peer);
                }
                if !room {
                    request.reject(super::session::TOO_MANY_SESSIONS, now, answer);
                    return Route::Answer;
                }
                let id = self.socket_id();
                let peer = PeerId(self.next);
                self.next += 1;
                self.sockets.insert(id, (peer, from));
                self.callers.insert(caller, peer);
                self.sessions.insert(peer, (id, caller));
                let number = peer.0 << 8 | u64::from(self.worker & 0xff);
                let session = ServerSession::new(self.shared.clone(), request, id, number);
                Route::Accept(peer, Box::new(session))
            }
        }
    }

    fn session_ended(&mut self, session: PeerId) {
        if let Some((id, caller)) = self.sessions.remove(&session) {
            self.sockets.remove(&id);
            self.callers.remove(&caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::handshake::{Caller, HandshakeSettings};
    use crate::seq::SeqNumber;
    use crate::server::{Server, ServerConfig};
    use session::Endpoint as _;

    #[test]
    fn only_a_first_conclusion_with_a_cookie_opens_a_session() {
        let server = Server::new(ServerConfig::default()).expect("it can be made");
        let mut endpoint = Endpoint::new(server.0.clone(), 0);
        let now = Time::from_nanos(1_000_000);
        let mut hear = |from: SocketAddr, bytes: &[u8]| {
            let datagram = Datagram {
                from,
                at: now,
                bytes,
            };
            let mut answer = Vec::new();
            let route = endpoint.route(now, &datagram, true, &mut answer);
            let what = match route {
                Route::Session(_) => "session",
                Route::Accept(..) => "accept",
                Route::Answer => "answer",
                Route::Discard => "drop",
            };
            (what, answer, endpoint.len())
        };
        let from = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let caller = || {
            let clock = SocketClock::new(Time::ZERO);
            let first = SeqNumber::new(5);
            let settings = HandshakeSettings::live(7, first, clock, from(1).ip(), 1);
            Caller::new(settings, None, now)
        };
        let said = |caller: &mut Caller| {
            let mut out = Vec::new();
            caller.write_next(now, &mut out);
            out
        };
        for port in 1..1000 {
            let (what, answer, known) = hear(from(port), &said(&mut caller()));
            assert_eq!((what, known), ("answer", 0));
            // An answer is hardly longer than the datagram that caused it.
            assert!(answer.len() <= 80);
            assert_eq!(hear(from(port), &[0x80; 20]).0, "drop");
        }
        let mut own = caller();
        let (_, answer, _) = hear(from(1), &said(&mut own));
        own.handle(&answer, now);
        let conclusion = said(&mut own);
        // The cookie is invalid for another address.
        assert_eq!(hear(from(2), &conclusion).0, "drop");
        let (what, _, known) = hear(from(1), &conclusion);
        assert_eq!((what, known), ("accept", 1));
        let (what, _, known) = hear(from(1), &conclusion);
        assert_eq!((what, known), ("session", 1));
        endpoint.session_ended(PeerId(0));
        assert_eq!(endpoint.len(), 0);
        assert!(endpoint.sockets.is_empty() && endpoint.callers.is_empty());
    }
}
