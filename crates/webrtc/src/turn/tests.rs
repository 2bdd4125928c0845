//! A peer behind a small TURN server, in virtual time over a lossy network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use md5::{Digest as _, Md5};
use measure::Time;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::message::{Class, Message, Method, Writer, attribute};
use super::*;
use crate::certificate::Certificate;
use crate::failure::Failure;
use crate::peer::{Peer, PeerConfig, PeerEvent, PeerState};

static CERTIFICATE: LazyLock<Arc<Certificate>> =
    LazyLock::new(|| Arc::new(Certificate::generate(3)));

const DELAY: Duration = Duration::from_millis(5);

fn relayed() -> SocketAddr {
    ([10, 0, 0, 9], 50_000).into()
}

fn other() -> SocketAddr {
    ([10, 0, 0, 2], 6000).into()
}

/// Misbehaviour of the TURN server.
#[derive(Clone, Debug, Default)]
struct Misbehaviour {
    /// Number of requests after which the nonce changes.
    nonce_after: Option<u32>,
    /// Method whose requests are refused, and the error code.
    refuses: Option<(Method, u16)>,
    /// Method whose requests get no answer.
    ignores: Option<Method>,
    /// True if responses are signed with a wrong key.
    forges: bool,
    lifetime: Option<u32>,
    /// Relayed address that the response contains.
    relayed_address: Option<SocketAddr>,
}

/// TURN server of one client.
struct Server {
    misbehaviour: Misbehaviour,
    key: [u8; 16],
    nonce: u32,
    requests: u32,
    allocated: bool,
    permitted: BTreeSet<IpAddr>,
    channels: BTreeMap<u16, SocketAddr>,
    /// Methods of the successful requests.
    done: Vec<Method>,
    transactions: BTreeMap<[u8; 12], Vec<u8>>,
    closed: bool,
    by_channel: u64,
    indicated: u64,
    retransmitted_requests: u64,
}

enum ServerOutput {
    Client(Vec<u8>),
    Peer(SocketAddr, Vec<u8>),
    Nothing,
}

impl Server {
    fn new(misbehaviour: Misbehaviour) -> Server {
        Server {
            misbehaviour,
            key: Md5::digest(b"me:here:secret").into(),
            nonce: 0,
            requests: 0,
            allocated: false,
            permitted: BTreeSet::new(),
            channels: BTreeMap::new(),
            done: Vec::new(),
            transactions: BTreeMap::new(),
            closed: false,
            by_channel: 0,
            indicated: 0,
            retransmitted_requests: 0,
        }
    }

    fn client_sent(&mut self, bytes: &[u8]) -> ServerOutput {
        if bytes[0] & 0xc0 == 0x40 {
            let number = u16::from_be_bytes([bytes[0], bytes[1]]);
            let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
            assert_eq!(bytes.len(), 4 + length, "no padding over UDP");
            self.by_channel += 1;
            let peer = self.channels.get(&number).expect("it was bound");
            return ServerOutput::Peer(*peer, bytes[4..].to_vec());
        }
        let message = Message::parse(bytes).expect("clients send STUN");
        let method = message.method.expect("it is known");
        if message.class == Class::Indication {
            let peer = message
                .address(attribute::XOR_PEER_ADDRESS)
                .expect("it is there");
            assert!(self.permitted.contains(&peer.ip()), "it would be dropped");
            self.indicated += 1;
            let data = message.attribute(attribute::DATA).expect("it is there");
            return ServerOutput::Peer(peer, data.to_vec());
        }
        // A retransmitted request gets the same answer (RFC 8489, 6.3.1).
        if let Some(answer) = self.transactions.get(&message.transaction) {
            self.retransmitted_requests += 1;
            return ServerOutput::Client(answer.clone());
        }
        if self.misbehaviour.ignores == Some(method) {
            return ServerOutput::Nothing;
        }
        let answer = self.answer(method, &message);
        self.transactions
            .insert(message.transaction, answer.clone());
        ServerOutput::Client(answer)
    }

    fn answer(&mut self, method: Method, message: &Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let error = |out: &mut Vec<u8>, code: u16, key: Option<&[u8]>, nonce: u32| {
            Writer::new(out, method, Class::Error, message.transaction)
                .attribute(
                    attribute::ERROR_CODE,
                    &[&[0, 0, (code / 100) as u8, (code % 100) as u8], &b"no"[..]].concat(),
                )
                .attribute(attribute::REALM, b"here")
                .attribute(attribute::NONCE, format!("n{nonce}").as_bytes())
                .finish(key);
        };
        self.requests += 1;
        if self
            .misbehaviour
            .nonce_after
            .is_some_and(|every| self.requests.is_multiple_of(every))
        {
            self.nonce += 1;
        }
        if !message.is_authentic(&self.key) {
            error(&mut out, 401, None, self.nonce);
            return out;
        }
        let key = match self.misbehaviour.forges {
            false => self.key,
            true => [9; 16],
        };
        let nonce = format!("n{}", self.nonce);
        if message.attribute(attribute::NONCE) != Some(nonce.as_bytes()) {
            error(&mut out, 438, None, self.nonce);
            return out;
        }
        if let Some((refused, code)) = self.misbehaviour.refuses
            && refused == method
        {
            error(&mut out, code, Some(&key), self.nonce);
            return out;
        }
        self.done.push(method);
        let mut writer = Writer::new(&mut out, method, Class::Success, message.transaction);
        let lifetime = self.misbehaviour.lifetime.unwrap_or(600);
        let peer = message.address(attribute::XOR_PEER_ADDRESS);
        match method {
            Method::Allocate => {
                self.allocated = true;
                let address = self.misbehaviour.relayed_address.unwrap_or(relayed());
                writer = writer
                    .address(attribute::XOR_RELAYED_ADDRESS, address)
                    .number(attribute::LIFETIME, lifetime);
            }
            Method::Refresh => {
                self.closed |= message.number(attribute::LIFETIME) == Some(0);
                writer = writer.number(attribute::LIFETIME, lifetime);
            }
            Method::CreatePermission => {
                self.permitted.insert(peer.expect("it is there").ip());
            }
            Method::ChannelBind => {
                let number = message
                    .number(attribute::CHANNEL_NUMBER)
                    .expect("it is there");
                let peer = peer.expect("it is there");
                self.permitted.insert(peer.ip());
                self.channels.insert((number >> 16) as u16, peer);
            }
            Method::Send | Method::Data => panic!("they are indications"),
        }
        writer.finish(Some(&key));
        out
    }

    /// Returns a peer's datagram in the form in which the client receives it.
    fn peer_sent(&self, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        if !self.permitted.contains(&from.ip()) {
            return None;
        }
        let mut out = Vec::new();
        match self.channels.iter().find(|(_, peer)| **peer == from) {
            Some((number, _)) => {
                let channel = RelayChannel {
                    number: *number,
                    padded: false,
                };
                out.extend_from_slice(&channel.header_and_padding(bytes.len()).0);
                out.extend_from_slice(bytes);
            }
            None => Writer::new(&mut out, Method::Data, Class::Indication, [4; 12])
                .address(attribute::XOR_PEER_ADDRESS, from)
                .attribute(attribute::DATA, bytes)
                .finish(None),
        }
        Some(out)
    }
}

enum InFlight {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    ToPeer(Vec<u8>),
    FromPeer(SocketAddr, Vec<u8>),
}

/// A peer that sends through the TURN server, the server, and a peer that is reached directly.
struct Trio {
    now: Time,
    /// Delay of each datagram.
    delay: Duration,
    loss_rate: f64,
    client: Option<Peer>,
    allocation: Allocation,
    server: Server,
    peer: Peer,
    in_flight: BTreeMap<(Time, u64), InFlight>,
    number: u64,
    random: Pcg64,
    events: Vec<TurnEvent>,
    seen: Vec<PeerEvent>,
    seed: u64,
}

fn settings(password: &str) -> TurnSettings {
    TurnSettings {
        user: "me".to_owned(),
        password: password.to_owned(),
        reliable: false,
        ipv6: false,
        timeout: Duration::from_secs(10),
    }
}

impl Trio {
    fn new(seed: u64, loss_rate: f64, misbehaviour: Misbehaviour) -> Trio {
        Trio::with(seed, loss_rate, misbehaviour, "secret")
    }

    fn with(seed: u64, loss_rate: f64, misbehaviour: Misbehaviour, password: &str) -> Trio {
        let now = Time::from_nanos(1_000_000_000);
        let mut peer = Peer::answerer(now, &PeerConfig::new(CERTIFICATE.clone(), 2 * seed));
        assert!(peer.add_local_candidate(now, other()));
        let random = Pcg64::seed_from_u64(seed);
        Trio {
            now,
            delay: DELAY,
            loss_rate,
            client: None,
            allocation: Allocation::new(now, settings(password), seed),
            server: Server::new(misbehaviour),
            peer,
            in_flight: BTreeMap::new(),
            number: 0,
            random,
            events: Vec::new(),
            seen: Vec::new(),
            seed,
        }
    }

    fn inject(&mut self, what: InFlight) {
        let lossy = matches!(what, InFlight::ToServer(_) | InFlight::ToClient(_));
        if lossy && self.random.random_bool(self.loss_rate) {
            return;
        }
        self.number += 1;
        self.in_flight
            .insert((self.now + self.delay, self.number), what);
    }

    fn collect_output(&mut self) {
        loop {
            let mut out = Vec::new();
            if let Some(client) = &mut self.client {
                let mut bytes = Vec::new();
                while let Some(to) = client.poll_transmit(&mut bytes) {
                    let mut out = Vec::new();
                    self.allocation.send(self.now, to, &bytes, &mut out);
                    bytes.clear();
                    if !out.is_empty() {
                        self.number += 1;
                        if !self.random.random_bool(self.loss_rate) {
                            let at = (self.now + self.delay, self.number);
                            self.in_flight.insert(at, InFlight::ToServer(out));
                        }
                    }
                }
                while let Some(event) = client.poll_event() {
                    if let PeerEvent::IceConnected { remote } = event {
                        self.allocation.bind(self.now, remote);
                    }
                    self.seen.push(event);
                }
            }
            while self.allocation.poll_transmit(&mut out) {
                self.inject(InFlight::ToServer(std::mem::take(&mut out)));
            }
            let Some(event) = self.allocation.poll_event() else {
                break;
            };
            if let TurnEvent::Allocated { relayed } = event {
                self.begin(relayed);
            }
            self.events.push(event);
        }
        let mut bytes = Vec::new();
        while let Some(to) = self.peer.poll_transmit(&mut bytes) {
            if to == relayed() {
                self.inject(InFlight::FromPeer(other(), std::mem::take(&mut bytes)));
            }
            bytes.clear();
        }
        while self.peer.poll_event().is_some() {}
    }

    /// Connects both sides once the relayed address is allocated.
    fn begin(&mut self, relayed: SocketAddr) {
        let config = PeerConfig::new(CERTIFICATE.clone(), 2 * self.seed + 1);
        let mut client = Peer::offerer(self.now, &config);
        assert!(client.add_relayed_candidate(self.now, relayed));
        let offer = client.local_transport();
        let text = offer.candidates[0].to_string();
        assert!(text.contains("typ relay raddr 0.0.0.0 rport 0"), "{text}");
        self.peer.set_remote(self.now, &offer).expect("it is good");
        let answer = self.peer.local_transport();
        client.set_remote(self.now, &answer).expect("it is good");
        self.client = Some(client);
    }

    fn step(&mut self, by: Time) -> bool {
        self.collect_output();
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let client = self.client.as_ref().and_then(|client| client.deadline());
        let due = [
            arrival,
            client,
            self.peer.deadline(),
            self.allocation.deadline(),
        ];
        let next = due.into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= by) else {
            self.now = by;
            return false;
        };
        self.now = next.max(self.now);
        let now = self.now;
        if arrival == Some(next) {
            let (_, what) = self.in_flight.pop_first().expect("it is there");
            match what {
                InFlight::ToServer(bytes) => match self.server.client_sent(&bytes) {
                    ServerOutput::Client(bytes) => self.inject(InFlight::ToClient(bytes)),
                    ServerOutput::Peer(to, bytes) if to == other() => {
                        self.inject(InFlight::ToPeer(bytes))
                    }
                    ServerOutput::Peer(..) | ServerOutput::Nothing => {}
                },
                InFlight::ToClient(bytes) => {
                    if let TurnReceived::Data { peer, bytes } = self.allocation.handle(now, &bytes)
                        && let Some(client) = &mut self.client
                    {
                        client.handle_datagram(now, peer, bytes);
                    }
                }
                InFlight::ToPeer(bytes) => {
                    self.peer.handle_datagram(now, relayed(), &bytes);
                }
                InFlight::FromPeer(from, bytes) => {
                    if let Some(bytes) = self.server.peer_sent(from, &bytes) {
                        self.inject(InFlight::ToClient(bytes));
                    }
                }
            }
        }
        if let Some(client) = &mut self.client
            && client.deadline().is_some_and(|due| due <= now)
        {
            client.handle_timeout(now);
        }
        if self.peer.deadline().is_some_and(|due| due <= now) {
            self.peer.handle_timeout(now);
        }
        if self.allocation.deadline().is_some_and(|due| due <= now) {
            self.allocation.handle_timeout(now);
        }
        true
    }

    fn run_for(&mut self, length: Duration) {
        let by = self.now + length;
        let mut steps = 0;
        while self.step(by) {
            steps += 1;
            assert!(steps < 500_000, "time stands still at {:?}", self.now);
        }
    }

    fn connected(&self) -> bool {
        let state = self.client.as_ref().map(|client| client.state());
        state == Some(PeerState::Connected) && self.peer.state() == PeerState::Connected
    }

    fn failure(&self) -> Option<&TurnFailure> {
        self.events.iter().find_map(|event| match event {
            TurnEvent::Failed(failure) => Some(failure),
            _ => None,
        })
    }
}

#[test]
fn peers_connect_through_the_server_despite_loss() {
    let mut took = Vec::new();
    for seed in 0..200 {
        let loss_rate = [0.0, 0.05, 0.2][seed as usize % 3];
        let misbehaviour = Misbehaviour {
            nonce_after: [None, Some(2), Some(3)][seed as usize / 3 % 3],
            ..Misbehaviour::default()
        };
        let mut trio = Trio::new(seed, loss_rate, misbehaviour);
        let began = trio.now;
        while !(trio.connected() && trio.events.len() == 2) {
            let by = began + Duration::from_secs(20);
            assert!(trio.step(by), "{seed}: {:?} {:?}", trio.events, trio.seen);
        }
        assert!(
            matches!(trio.events[0], TurnEvent::Allocated { relayed: own } if own == relayed())
        );
        assert!(
            matches!(trio.events[1], TurnEvent::Bound { peer, channel: 0x4000 } if peer == other())
        );
        assert!(trio.server.indicated > 0, "checks come before the channel");
        assert_eq!(trio.allocation.dropped(), 0, "{seed}");
        if loss_rate == 0.0 {
            took.push(trio.now.since(began));
        }
    }
    // A check that is sent before its peer is permitted is retransmitted.
    let longest = took.iter().max();
    assert!(longest < Some(&Duration::from_millis(400)), "{took:?}");
}

#[test]
fn repeated_responses_are_not_counted_as_dropped() {
    // Each request is retransmitted before its answer arrives.
    let mut trio = Trio::new(7, 0.0, Misbehaviour::default());
    trio.delay = Duration::from_millis(200);
    trio.run_for(Duration::from_secs(20));
    assert!(trio.connected(), "{:?} {:?}", trio.events, trio.seen);
    assert!(
        trio.server.retransmitted_requests > 2,
        "{}",
        trio.server.retransmitted_requests
    );
    assert_eq!(trio.allocation.dropped(), 0);
}

#[test]
fn allocation_and_channel_are_renewed_while_in_use() {
    let mut trio = Trio::new(
        1,
        0.0,
        Misbehaviour {
            nonce_after: Some(5),
            ..Misbehaviour::default()
        },
    );
    trio.run_for(Duration::from_secs(3600));
    assert!(trio.connected(), "{:?} {:?}", trio.events, trio.seen);
    let times = |method| {
        trio.server
            .done
            .iter()
            .filter(|own| **own == method)
            .count()
    };
    // The allocation is refreshed every 540 s of 600 s, a channel every 240 s.
    assert_eq!(times(Method::Allocate), 1);
    assert_eq!(times(Method::Refresh), 6);
    assert_eq!(times(Method::ChannelBind), 15);
    assert_eq!(times(Method::CreatePermission), 1, "the channel renews it");
    assert!(trio.server.by_channel > 500, "consent is requested there");
    assert_eq!(trio.failure(), None);
}

#[test]
fn allocation_is_released_at_any_time_despite_loss() {
    for seed in 0..300 {
        let loss_rate = [0.0, 0.05, 0.2][seed as usize % 3];
        let misbehaviour = Misbehaviour {
            nonce_after: [None, Some(2), Some(3)][seed as usize / 3 % 3],
            ..Misbehaviour::default()
        };
        let mut trio = Trio::new(seed, loss_rate, misbehaviour);
        // At some seeds the allocation is still pending.
        trio.run_for(Duration::from_millis(3 * seed));
        trio.allocation.close(trio.now);
        trio.client = None;
        trio.run_for(Duration::from_secs(40));
        assert!(trio.allocation.is_ended(), "{seed}");
        assert_eq!(trio.allocation.deadline(), None, "{seed}");
        assert_eq!(trio.server.allocated, trio.server.closed, "{seed}");
        assert_eq!(trio.failure(), None, "{seed}");
    }
}

fn peer(number: u8) -> SocketAddr {
    ([10, 1, 0, number], 9).into()
}

/// Sends a datagram to a peer. Returns the number of bytes that leave at once.
fn send(trio: &mut Trio, number: u8) -> usize {
    let mut out = Vec::new();
    let now = trio.now;
    trio.allocation.send(now, peer(number), b"hello", &mut out);
    let left = out.len();
    if left > 0 {
        trio.inject(InFlight::ToServer(out));
    }
    left
}

#[test]
fn permissions_are_renewed_while_used_and_then_expire() {
    let mut trio = Trio::new(8, 0.0, Misbehaviour::default());
    trio.run_for(Duration::from_secs(1));
    let requests = |trio: &Trio| {
        let done = trio.server.done.iter();
        done.filter(|own| **own == Method::CreatePermission).count()
    };
    let before = requests(&trio);
    assert_eq!(send(&mut trio, 1), 0, "it waits to be permitted");
    trio.run_for(Duration::from_secs(1));
    assert_eq!(requests(&trio), before + 1);
    for _ in 0..10 {
        trio.run_for(Duration::from_secs(60));
        assert!(send(&mut trio, 1) > 0);
    }
    assert_eq!(requests(&trio), before + 3, "twice in ten minutes");
    // The permission remains valid for four and a half minutes without use, and is then used again.
    trio.run_for(Duration::from_secs(4 * 60 + 30));
    let before = requests(&trio);
    assert!(send(&mut trio, 1) > 0);
    trio.run_for(Duration::from_secs(1));
    let data = trio.server.peer_sent(peer(1), b"hello");
    let data = data.expect("it is permitted");
    let received = trio.allocation.handle(trio.now, &data);
    assert!(matches!(received, TurnReceived::Data { peer: from, .. } if from == peer(1)));
    // Without use for longer, it lapses and must be requested again.
    trio.run_for(Duration::from_secs(11 * 60));
    assert_eq!(
        trio.allocation.handle(trio.now, &data),
        TurnReceived::Dropped
    );
    let then = requests(&trio);
    assert!(then <= before + 2, "{before} {then}");
    assert_eq!(send(&mut trio, 1), 0);
    trio.run_for(Duration::from_secs(1));
    assert_eq!(requests(&trio), then + 1);
    assert!(send(&mut trio, 1) > 0);
}

#[test]
fn refused_permission_is_requested_again_after_a_delay() {
    let mut trio = Trio::new(9, 0.0, Misbehaviour::default());
    trio.run_for(Duration::from_secs(1));
    trio.server.misbehaviour.refuses = Some((Method::CreatePermission, 508));
    let requests = |trio: &Trio| trio.server.requests;
    let before = requests(&trio);
    for _ in 0..50 {
        send(&mut trio, 1);
        trio.run_for(Duration::from_millis(100));
    }
    assert_eq!(requests(&trio), before + 1, "once in five seconds");
    trio.server.misbehaviour.refuses = None;
    trio.run_for(Duration::from_secs(6));
    assert_eq!(send(&mut trio, 1), 0);
    trio.run_for(Duration::from_secs(1));
    assert!(send(&mut trio, 1) > 0, "it is permitted now");
}

#[test]
fn channel_is_reported_after_each_request_for_it() {
    let mut trio = Trio::new(10, 0.0, Misbehaviour::default());
    trio.run_for(Duration::from_secs(2));
    let known = trio.events.len();
    for number in [1, 2, 1, 1] {
        trio.allocation.bind(trio.now, peer(number));
        trio.run_for(Duration::from_secs(1));
    }
    let told = trio.events[known..].iter().map(|event| match event {
        TurnEvent::Bound { peer, channel } => (*peer, *channel),
        other => panic!("{other:?}"),
    });
    let (first, second) = ((peer(1), 0x4001), (peer(2), 0x4002));
    assert_eq!(told.collect::<Vec<_>>(), [first, second, first, first]);
}

#[test]
fn short_lifetimes_are_refreshed_in_time_at_a_bounded_rate() {
    for (lifetime, most) in [(20, 8), (0, 14)] {
        let misbehaviour = Misbehaviour {
            lifetime: Some(lifetime),
            ..Misbehaviour::default()
        };
        let mut trio = Trio::new(2, 0.0, misbehaviour);
        trio.run_for(Duration::from_secs(60));
        let times = trio.server.done.iter();
        let times = times.filter(|own| **own == Method::Refresh).count();
        assert!((5..=most).contains(&times), "{lifetime}: {times}");
        assert!(trio.connected());
    }
}

#[test]
fn every_failure_has_its_reason() {
    let failure = |failure, text: &str| (failure, text.to_owned());
    let refuses = |method, code| Misbehaviour {
        refuses: Some((method, code)),
        ..Misbehaviour::default()
    };
    let ignores = |method| Misbehaviour {
        ignores: Some(method),
        ..Misbehaviour::default()
    };
    for (misbehaviour, password, expected) in [
        (
            Misbehaviour::default(),
            "wrong",
            failure(Failure::TurnUnauthorized, "Allocate: 401 no"),
        ),
        (
            refuses(Method::Allocate, 486),
            "secret",
            failure(Failure::TurnRefused, "Allocate: 486 no"),
        ),
        (
            refuses(Method::Allocate, 441),
            "secret",
            failure(Failure::TurnUnauthorized, "Allocate: 441 no"),
        ),
        (
            refuses(Method::ChannelBind, 403),
            "secret",
            failure(Failure::TurnRefused, "ChannelBind: 403 no"),
        ),
        (
            refuses(Method::Refresh, 437),
            "secret",
            failure(Failure::TurnLost, "Refresh: 437 no"),
        ),
        (
            ignores(Method::Allocate),
            "secret",
            failure(Failure::TurnTimeout, "Allocate: no answer in time"),
        ),
        (
            ignores(Method::Refresh),
            "secret",
            failure(Failure::TurnLost, "Refresh: no answer in time"),
        ),
        (
            // The server demands another nonce each time.
            Misbehaviour {
                nonce_after: Some(1),
                ..Misbehaviour::default()
            },
            "secret",
            failure(Failure::TurnRefused, "Allocate: 438 no"),
        ),
        (
            // No response of the server is authentic.
            Misbehaviour {
                forges: true,
                ..Misbehaviour::default()
            },
            "secret",
            failure(Failure::TurnTimeout, "Allocate: no answer in time"),
        ),
        (
            Misbehaviour {
                relayed_address: "0.0.0.0:5".parse().ok(),
                ..Misbehaviour::default()
            },
            "secret",
            failure(
                Failure::TurnRefused,
                "Allocate: the server gave no usable relayed address",
            ),
        ),
    ] {
        let mut trio = Trio::with(3, 0.0, misbehaviour.clone(), password);
        trio.run_for(Duration::from_secs(700));
        assert_eq!(trio.failure(), Some(&expected), "{misbehaviour:?}");
        assert_eq!(trio.allocation.deadline(), None);
    }
}

#[test]
fn refused_permission_has_a_reason() {
    let misbehaviour = Misbehaviour {
        refuses: Some((Method::CreatePermission, 403)),
        ..Misbehaviour::default()
    };
    let mut trio = Trio::new(4, 0.0, misbehaviour);
    trio.run_for(Duration::from_secs(20));
    assert!(!trio.connected());
    let refusal = trio.allocation.refusal().expect("it was refused");
    assert_eq!(refusal, "CreatePermission: 403 no (for 10.0.0.2)");
    assert_eq!(trio.server.indicated, 0);
}

#[test]
fn unrequested_messages_are_dropped_and_counted() {
    let mut trio = Trio::new(5, 0.0, Misbehaviour::default());
    trio.run_for(Duration::from_secs(2));
    assert!(trio.connected());
    let mut random = Pcg64::seed_from_u64(6);
    let mut dropped = trio.allocation.dropped();
    assert_eq!(dropped, 0);
    for round in 0..20_000 {
        let mut bytes = Vec::new();
        let mut transaction = [0; 12];
        random.fill_bytes(&mut transaction);
        match round % 5 {
            // Data of an unbound channel, and data with a length beyond the datagram.
            0 => bytes.extend_from_slice(&[0x40, 7, 0, 0]),
            1 => bytes.extend_from_slice(&[0x40, 0, 0xff, 0xff, 1]),
            // Responses without a request, and data from an unknown peer.
            2 => Writer::new(&mut bytes, Method::Allocate, Class::Success, transaction)
                .address(
                    attribute::XOR_RELAYED_ADDRESS,
                    "1.2.3.4:5".parse().expect("good"),
                )
                .finish(None),
            3 => Writer::new(&mut bytes, Method::Data, Class::Indication, transaction)
                .address(
                    attribute::XOR_PEER_ADDRESS,
                    "1.2.3.4:5".parse().expect("good"),
                )
                .attribute(attribute::DATA, b"x")
                .finish(None),
            _ => {
                bytes.resize(random.random_range(0..60), 0);
                random.fill_bytes(&mut bytes);
                if let Some(first) = bytes.first_mut() {
                    *first &= 0x0f;
                }
            }
        }
        let received = trio.allocation.handle(trio.now, &bytes);
        assert_eq!(received, TurnReceived::Dropped, "{bytes:x?}");
        dropped += 1;
    }
    assert_eq!(trio.allocation.dropped(), dropped);
    trio.run_for(Duration::from_secs(30));
    assert!(trio.connected());
}

#[test]
fn number_of_requested_peers_is_bounded() {
    let mut trio = Trio::new(6, 0.0, Misbehaviour::default());
    trio.run_for(Duration::from_secs(1));
    let mut out = Vec::new();
    for number in 0..1000_u32 {
        let to = SocketAddr::new(IpAddr::from(number.to_be_bytes()), 9);
        for _ in 0..100 {
            trio.allocation.send(trio.now, to, b"hello", &mut out);
        }
        trio.allocation.bind(trio.now, to);
    }
    assert!(out.is_empty(), "nothing leaves before it is permitted");
    let mut requests = 0;
    while trio.allocation.poll_transmit(&mut out) {
        requests += 1;
    }
    // Permissions for 32 peers, one of which exists already, and 32 channels.
    assert!((40..=64).contains(&requests), "{requests}");
}
