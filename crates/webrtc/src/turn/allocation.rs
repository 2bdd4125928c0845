//! One relayed address: its allocation, renewal and release (RFC 8656), and the data that passes
//! through it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use md5::{Digest as _, Md5};
use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::channel::RelayChannel;
use super::event::{TurnEvent, TurnFailure, TurnReceived, TurnSettings};
use super::message::{Class, Message, Method, TransactionId, Writer, attribute};
use crate::failure::Failure;

/// Time until the first retransmission of a request over UDP. It doubles each time, up to
/// [`RETRANSMISSION_MAX`]. RFC 8489 (6.2.1) recommends half a second and allows other values;
/// browsers use this one.
const RETRANSMISSION_INITIAL: Duration = Duration::from_millis(250);
const RETRANSMISSION_MAX: Duration = Duration::from_secs(8);

/// Interval between renewals of permissions and channels: one minute less than the lifetime of a
/// permission (5 minutes; RFC 8656, 9). A channel lasts 10 minutes (RFC 8656, 12). Its renewal
/// renews the permission too.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(240);

/// Time before expiry at which an allocation is refreshed, unless its lifetime is shorter than
/// twice this value.
const REFRESH_MARGIN: Duration = Duration::from_secs(60);

/// Minimum lifetime, in seconds. A shorter one of the server is raised to it, which bounds the rate
/// of refreshes.
const LIFETIME_MIN: u32 = 10;

/// Lifetime of a permission that is not renewed (RFC 8656, 9).
const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);

/// Delay until a refused permission may be requested again.
const PERMISSION_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Maximum number of answered requests that are remembered. A request that was retransmitted before
/// its answer arrived is answered again.
const ANSWERED_MAX: usize = 16;

/// Maximum number of times that a request is repeated with another nonce (RFC 8489, 9.2.5).
const NONCE_RETRIES_MAX: u32 = 4;

/// Maximum number of peers. ICE keeps as many.
const PEERS_MAX: usize = 32;

/// Maximum number of datagrams held until their peer is permitted.
const HELD_MAX: usize = 32;

/// Maximum length of a realm and of a nonce, in bytes (RFC 8489, 14.9 and 14.10).
const REALM_MAX: usize = 763;

/// Channel numbers (RFC 8656, 12).
const CHANNELS: std::ops::RangeInclusive<u16> = 0x4000..=0x4fff;

/// UDP as requested transport (RFC 8656, 18.8), and requested address families (18.6).
const UDP: u32 = 17 << 24;
const IPV4: u32 = 1 << 24;
const IPV6: u32 = 2 << 24;

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Allocate,
    Refresh,
    CreatePermission(IpAddr),
    BindChannel(SocketAddr, u16),
    /// Refresh with a lifetime of 0 (RFC 8656, 7).
    Release,
}

impl Purpose {
    fn method(self) -> Method {
        match self {
            Purpose::Allocate => Method::Allocate,
            Purpose::Refresh | Purpose::Release => Method::Refresh,
            Purpose::CreatePermission(_) => Method::CreatePermission,
            Purpose::BindChannel(..) => Method::ChannelBind,
        }
    }
}

/// Request that has not been answered.
#[derive(Debug)]
struct Request {
    purpose: Purpose,
    transaction: TransactionId,
    bytes: Vec<u8>,
    /// True if the request is authenticated.
    authenticated: bool,
    /// Number of times that the request was repeated with another nonce.
    nonce_retries: u32,
    retransmit_at: Time,
    retransmit_interval: Duration,
    deadline: Time,
}

/// Permission for the peers at an IP address.
#[derive(Debug)]
struct Permission {
    ip: IpAddr,
    granted: bool,
    /// True if a datagram was sent to the address since the permission was last granted.
    used: bool,
    /// Time of the next renewal if the permission is used, or of the next request if it was
    /// refused.
    renew_at: Time,
    /// Time at which the server drops the permission.
    ends_at: Time,
}

/// Channel to a peer, which replaces STUN messages by a short header.
#[derive(Debug)]
struct ChannelBinding {
    number: u16,
    peer: SocketAddr,
    bound: bool,
    renew_at: Time,
}

/// Client side of one relayed address.
#[derive(Debug)]
pub struct Allocation {
    settings: TurnSettings,
    random: Pcg64,
    realm: Vec<u8>,
    nonce: Vec<u8>,
    /// Key that authenticates requests, once the realm is known (RFC 8489, 9.2.2).
    key: Option<[u8; 16]>,
    requests: Vec<Request>,
    relayed: Option<SocketAddr>,
    refresh_at: Option<Time>,
    permissions: Vec<Permission>,
    channels: Vec<ChannelBinding>,
    /// Datagrams held until their peer is permitted.
    held: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Reason of the last refused permission.
    refusal: Option<String>,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<TurnEvent>,
    /// Transactions of the last answered requests.
    answered_transactions: VecDeque<TransactionId>,
    /// True while the relayed address is being released.
    is_closing: bool,
    is_ended: bool,
    dropped: u64,
}

impl Allocation {
    /// Requests a relayed address. `seed` determines the transaction IDs.
    pub fn new(now: Time, settings: TurnSettings, seed: u64) -> Allocation {
        let mut allocation = Allocation {
            settings,
            random: Pcg64::seed_from_u64(seed),
            realm: Vec::new(),
            nonce: Vec::new(),
            key: None,
            requests: Vec::new(),
            relayed: None,
            refresh_at: None,
            permissions: Vec::new(),
            channels: Vec::new(),
            held: VecDeque::new(),
            refusal: None,
            out: VecDeque::new(),
            events: VecDeque::new(),
            answered_transactions: VecDeque::new(),
            is_closing: false,
            is_ended: false,
            dropped: 0,
        };
        allocation.send_request(now, Purpose::Allocate, 0);
        allocation
    }

    /// Relayed address, once it is allocated.
    pub fn relayed(&self) -> Option<SocketAddr> {
        self.relayed
    }

    /// Reason of the last refused permission, if no permission is granted.
    pub fn refusal(&self) -> Option<&str> {
        let is_permitted = self.permissions.iter().any(|own| own.granted);
        self.refusal.as_deref().filter(|_| !is_permitted)
    }

    /// Number of dropped messages.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Binds a channel to a peer, so that its media leaves with a short header (RFC 8656, 12).
    /// [`TurnEvent::Bound`] follows, at once if the channel is already bound.
    pub fn bind(&mut self, now: Time, peer: SocketAddr) {
        if self.is_ended || self.is_closing || self.relayed.is_none() {
            return;
        }
        let mut channels = self.channels.iter();
        if let Some(channel) = channels.find(|own| own.peer == peer) {
            if channel.bound && self.events.len() < PEERS_MAX {
                let channel = channel.number;
                self.events.push_back(TurnEvent::Bound { peer, channel });
            }
            return;
        }
        if self.channels.len() >= PEERS_MAX {
            return;
        }
        let number = *CHANNELS.start() + self.channels.len() as u16;
        self.channels.push(ChannelBinding {
            number,
            peer,
            bound: false,
            renew_at: Time::NEVER,
        });
        self.send_request(now, Purpose::BindChannel(peer, number), 0);
    }

    /// Appends a message that carries a datagram to a peer. If the peer needs a permission first,
    /// nothing is appended: the datagram is held and later returned by
    /// [`Allocation::poll_transmit`].
    pub fn send(&mut self, now: Time, to: SocketAddr, bytes: &[u8], out: &mut Vec<u8>) {
        if self.is_ended || self.is_closing || self.relayed.is_none() {
            return;
        }
        if let Some(channel) = self.channels.iter().find(|own| own.peer == to && own.bound) {
            let channel = RelayChannel {
                number: channel.number,
                padded: self.settings.reliable,
            };
            let (head, padding) = channel.header_and_padding(bytes.len());
            for part in [&head, bytes, padding] {
                out.extend_from_slice(part);
            }
            return;
        }
        let mut permissions = self.permissions.iter();
        let known = permissions.position(|own| own.ip == to.ip());
        match known {
            Some(at) if self.permissions[at].granted => {
                let permission = &mut self.permissions[at];
                // The permission would have lapsed, because it had not been used.
                let lapses = !std::mem::replace(&mut permission.used, true)
                    && permission.renew_at == Time::NEVER;
                if lapses {
                    self.send_request(now, Purpose::CreatePermission(to.ip()), 0);
                }
                self.write_send_indication(to, bytes, out);
            }
            Some(at) => {
                let permission = &mut self.permissions[at];
                if permission.renew_at <= now {
                    permission.renew_at = Time::NEVER;
                    self.send_request(now, Purpose::CreatePermission(to.ip()), 0);
                }
                self.hold(to, bytes);
            }
            None if self.permissions.len() < PEERS_MAX => {
                self.permissions.push(Permission {
                    ip: to.ip(),
                    granted: false,
                    used: true,
                    renew_at: Time::NEVER,
                    ends_at: Time::NEVER,
                });
                self.send_request(now, Purpose::CreatePermission(to.ip()), 0);
                self.hold(to, bytes);
            }
            None => {}
        }
    }

    /// Holds a datagram while its peer's permission is requested. Drops it if the permission was
    /// refused.
    fn hold(&mut self, to: SocketAddr, bytes: &[u8]) {
        let mut requests = self.requests.iter();
        let is_requested = requests.any(|own| own.purpose == Purpose::CreatePermission(to.ip()));
        if is_requested && self.held.len() < HELD_MAX {
            self.held.push_back((to, bytes.to_vec()));
        }
    }

    fn write_send_indication(&mut self, to: SocketAddr, bytes: &[u8], out: &mut Vec<u8>) {
        let transaction = self.draw_transaction_id();
        Writer::new(out, Method::Send, Class::Indication, transaction)
            .address(attribute::XOR_PEER_ADDRESS, to)
            .attribute(attribute::DATA, bytes)
            .finish(None);
    }

    /// Handles a datagram, or a frame of the connection, from the server.
    pub fn handle<'a>(&mut self, now: Time, bytes: &'a [u8]) -> TurnReceived<'a> {
        let received = match bytes.first() {
            _ if self.is_ended => TurnReceived::Dropped,
            Some(0x40..=0x4f) => self.channel_data(bytes),
            _ => match Message::parse(bytes) {
                Ok(message) => self.handle_message(now, &message),
                Err(_) => TurnReceived::Dropped,
            },
        };
        // Data of peers is not needed once the relayed address is being released.
        match received {
            TurnReceived::Data { .. } if self.is_closing => TurnReceived::Handled,
            received => {
                self.dropped += u64::from(received == TurnReceived::Dropped);
                received
            }
        }
    }

    fn channel_data<'a>(&self, bytes: &'a [u8]) -> TurnReceived<'a> {
        let Some((&[a, b, c, d], rest)) = bytes.split_first_chunk() else {
            return TurnReceived::Dropped;
        };
        let (number, length) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let channel = self.channels.iter().find(|own| own.number == number);
        match (channel, rest.get(..usize::from(length))) {
            (Some(channel), Some(bytes)) => TurnReceived::Data {
                peer: channel.peer,
                bytes,
            },
            _ => TurnReceived::Dropped,
        }
    }

    fn handle_message<'a>(&mut self, now: Time, message: &Message<'a>) -> TurnReceived<'a> {
        match (message.class, message.method) {
            (Class::Indication, Some(Method::Data)) => {
                let peer = message.address(attribute::XOR_PEER_ADDRESS);
                let bytes = message.attribute(attribute::DATA);
                let allowed = |peer: &SocketAddr| {
                    let mut permissions = self.permissions.iter();
                    permissions.any(|own| own.ip == peer.ip())
                };
                match (peer.filter(allowed), bytes) {
                    (Some(peer), Some(bytes)) => TurnReceived::Data { peer, bytes },
                    _ => TurnReceived::Dropped,
                }
            }
            (Class::Success | Class::Error, Some(method)) => {
                self.handle_response(now, method, message)
            }
            _ => TurnReceived::Dropped,
        }
    }

    fn handle_response(
        &mut self,
        now: Time,
        method: Method,
        message: &Message<'_>,
    ) -> TurnReceived<'static> {
        let mut requests = self.requests.iter();
        let Some(at) = requests.position(|own| {
            own.transaction == message.transaction && own.purpose.method() == method
        }) else {
            return match self.answered_transactions.contains(&message.transaction) {
                true => TurnReceived::Handled,
                false => TurnReceived::Dropped,
            };
        };
        let is_authenticated = self.requests[at].authenticated;
        let error = match message.class {
            Class::Error => match message.error() {
                Some(error) => Some(error),
                None => return TurnReceived::Dropped,
            },
            _ => None,
        };
        // A demand for credentials (401) or for another nonce (438) needs no authentication (RFC
        // 8489, 9.2.5).
        let needs_proof = is_authenticated && !matches!(error, Some((401 | 438, _)));
        let proven = self.key.is_some_and(|key| message.is_authentic(&key));
        // A server that accepts an unauthenticated request has no key either.
        if needs_proof && !proven {
            return TurnReceived::Dropped;
        }
        let request = self.requests.swap_remove(at);
        if self.answered_transactions.len() >= ANSWERED_MAX {
            self.answered_transactions.pop_front();
        }
        self.answered_transactions.push_back(request.transaction);
        match error {
            None => self.handle_success(now, request.purpose, message),
            Some((code, reason)) => self.handle_error(now, &request, code, &reason, message),
        }
        TurnReceived::Handled
    }

    /// Handles a success response.
    fn handle_success(&mut self, now: Time, purpose: Purpose, message: &Message<'_>) {
        let lifetime = || {
            let seconds = message.number(attribute::LIFETIME).unwrap_or(600);
            Duration::from_secs(u64::from(seconds.max(LIFETIME_MIN)))
        };
        match purpose {
            Purpose::Allocate => {
                let relayed = message.address(attribute::XOR_RELAYED_ADDRESS);
                let usable = |own: &SocketAddr| {
                    own.port() > 0 && !own.ip().is_unspecified() && !own.ip().is_multicast()
                };
                let Some(relayed) = relayed.filter(usable) else {
                    let text = "Allocate: the server gave no usable relayed address".to_owned();
                    return self.fail((Failure::TurnRefused, text));
                };
                self.relayed = Some(relayed);
                if self.is_closing {
                    return self.send_request(now, Purpose::Release, 0);
                }
                self.refresh_at = Some(now + refresh_delay(lifetime()));
                self.events.push_back(TurnEvent::Allocated { relayed });
            }
            Purpose::Refresh => self.refresh_at = Some(now + refresh_delay(lifetime())),
            Purpose::CreatePermission(ip) => self.permission_granted(now, ip),
            Purpose::Release => self.is_ended = true,
            Purpose::BindChannel(peer, number) => {
                let mut channels = self.channels.iter_mut();
                if let Some(channel) = channels.find(|own| own.number == number) {
                    channel.renew_at = now + RENEWAL_INTERVAL;
                    if !std::mem::replace(&mut channel.bound, true) {
                        let channel = number;
                        self.events.push_back(TurnEvent::Bound { peer, channel });
                    }
                }
                self.permission_granted(now, peer.ip());
            }
        }
    }

    /// Marks a permission as granted, and sends the datagrams held for its peers.
    fn permission_granted(&mut self, now: Time, ip: IpAddr) {
        let mut permissions = self.permissions.iter_mut();
        if let Some(permission) = permissions.find(|own| own.ip == ip) {
            permission.granted = true;
            permission.used = false;
            permission.renew_at = now + RENEWAL_INTERVAL;
            permission.ends_at = now + PERMISSION_LIFETIME;
        }
        for (to, bytes) in std::mem::take(&mut self.held) {
            if to.ip() == ip {
                let mut out = Vec::new();
                self.write_send_indication(to, &bytes, &mut out);
                self.out.push_back(out);
            } else {
                self.held.push_back((to, bytes));
            }
        }
    }

    fn handle_error(
        &mut self,
        now: Time,
        request: &Request,
        code: u16,
        reason: &str,
        message: &Message<'_>,
    ) {
        if self.is_closing && request.purpose == Purpose::Allocate {
            self.is_ended = true;
            return;
        }
        let is_challenge = (code == 401 && !request.authenticated) || code == 438;
        if is_challenge
            && request.nonce_retries < NONCE_RETRIES_MAX
            && self.store_challenge(message)
        {
            return self.send_request(now, request.purpose, request.nonce_retries + 1);
        }
        let text = format!("{:?}: {code} {reason}", request.purpose.method());
        let failure = match code {
            401 | 441 => Failure::TurnUnauthorized,
            _ => Failure::TurnRefused,
        };
        self.request_failed(now, request.purpose, (failure, text));
    }

    /// Stores the realm and nonce for later requests. Returns `false` if they are missing.
    fn store_challenge(&mut self, message: &Message<'_>) -> bool {
        let value = |number| {
            let value = message.attribute(number);
            value.filter(|own| !own.is_empty() && own.len() <= REALM_MAX)
        };
        let Some(nonce) = value(attribute::NONCE) else {
            return false;
        };
        match value(attribute::REALM) {
            Some(realm) => self.realm = realm.to_vec(),
            None if self.realm.is_empty() => return false,
            None => {}
        }
        self.nonce = nonce.to_vec();
        let mut hash = Md5::new();
        hash.update(self.settings.user.as_bytes());
        hash.update(b":");
        hash.update(&self.realm);
        hash.update(b":");
        hash.update(self.settings.password.as_bytes());
        self.key = Some(hash.finalize().into());
        true
    }

    fn request_failed(&mut self, now: Time, purpose: Purpose, failure: TurnFailure) {
        match (purpose, failure) {
            // The server has released the allocation, or will do so when it expires.
            (Purpose::Release, _) => self.is_ended = true,
            (Purpose::Allocate, _) if self.is_closing => self.is_ended = true,
            // Other peers may be permitted.
            (Purpose::CreatePermission(ip), (_, text)) => {
                self.held.retain(|(to, _)| to.ip() != ip);
                let mut permissions = self.permissions.iter_mut();
                if let Some(permission) = permissions.find(|own| own.ip == ip) {
                    permission.granted = false;
                    permission.renew_at = now + PERMISSION_RETRY_DELAY;
                    permission.ends_at = Time::NEVER;
                }
                self.refusal = Some(format!("{text} (for {ip})"));
            }
            (Purpose::BindChannel(_, number), failure) if !self.is_bound(number) => {
                self.fail(failure)
            }
            (Purpose::Refresh | Purpose::BindChannel(..), (_, text)) => {
                self.fail((Failure::TurnLost, text));
            }
            (Purpose::Allocate, failure) => self.fail(failure),
        }
    }

    fn is_bound(&self, number: u16) -> bool {
        let mut channels = self.channels.iter();
        channels.any(|own| own.number == number && own.bound)
    }

    fn fail(&mut self, failure: TurnFailure) {
        if !std::mem::replace(&mut self.is_ended, true) {
            self.requests.clear();
            self.held.clear();
            self.events.push_back(TurnEvent::Failed(failure));
        }
    }

    fn draw_transaction_id(&mut self) -> TransactionId {
        let mut transaction = [0; 12];
        self.random.fill_bytes(&mut transaction);
        transaction
    }

    fn send_request(&mut self, now: Time, purpose: Purpose, nonce_retries: u32) {
        let (transaction, bytes) = self.write_request(purpose);
        self.out.push_back(bytes.clone());
        let interval = match self.settings.reliable {
            true => self.settings.timeout,
            false => RETRANSMISSION_INITIAL,
        };
        self.requests.push(Request {
            purpose,
            transaction,
            bytes,
            authenticated: self.key.is_some(),
            nonce_retries,
            retransmit_at: now + interval,
            retransmit_interval: interval,
            deadline: now + self.settings.timeout,
        });
    }

    fn write_request(&mut self, purpose: Purpose) -> (TransactionId, Vec<u8>) {
        let transaction = self.draw_transaction_id();
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, purpose.method(), Class::Request, transaction);
        writer = match purpose {
            Purpose::Allocate => {
                let family = if self.settings.ipv6 { IPV6 } else { IPV4 };
                writer
                    .number(attribute::REQUESTED_TRANSPORT, UDP)
                    .number(attribute::REQUESTED_ADDRESS_FAMILY, family)
            }
            Purpose::Refresh => writer,
            Purpose::Release => writer.number(attribute::LIFETIME, 0),
            Purpose::CreatePermission(ip) => {
                writer.address(attribute::XOR_PEER_ADDRESS, SocketAddr::new(ip, 0))
            }
            Purpose::BindChannel(peer, number) => writer
                .number(attribute::CHANNEL_NUMBER, u32::from(number) << 16)
                .address(attribute::XOR_PEER_ADDRESS, peer),
        };
        if self.key.is_some() {
            writer = writer
                .attribute(attribute::USERNAME, self.settings.user.as_bytes())
                .attribute(attribute::REALM, &self.realm)
                .attribute(attribute::NONCE, &self.nonce);
        }
        writer.finish(self.key.as_ref().map(|key| &key[..]));
        (transaction, bytes)
    }

    /// Releases the relayed address. If the allocation is still pending, it is released as soon as
    /// it is granted. Nothing more is sent to peers. The release is complete when
    /// [`Allocation::is_ended`] returns true.
    pub fn close(&mut self, now: Time) {
        if self.is_ended || std::mem::replace(&mut self.is_closing, true) {
            return;
        }
        self.held.clear();
        let is_allocate = |own: &Request| own.purpose == Purpose::Allocate;
        self.requests.retain(is_allocate);
        if self.relayed.is_some() {
            self.send_request(now, Purpose::Release, 0);
        }
        self.is_ended = self.requests.is_empty();
    }

    /// Returns true if there is no relayed address and none is being requested.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Time at which [`Allocation::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Time> {
        if self.is_ended {
            return None;
        }
        let requests = self.requests.iter();
        let requests = requests
            .map(|own| own.retransmit_at.min(own.deadline))
            .min();
        if self.is_closing {
            return requests;
        }
        let channels = self.channels.iter().map(|own| own.renew_at).min();
        let permissions = self.permissions.iter().filter(|own| own.granted);
        let permissions = permissions.map(|own| own.renew_at.min(own.ends_at)).min();
        [requests, channels, permissions, self.refresh_at]
            .into_iter()
            .flatten()
            .min()
            .filter(|due| *due != Time::NEVER)
    }

    /// Handles all timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_ended {
            return;
        }
        let is_overdue = |own: &Request| own.deadline <= now;
        while let Some(at) = self.requests.iter().position(is_overdue) {
            let purpose = self.requests.swap_remove(at).purpose;
            let text = format!("{:?}: no answer in time", purpose.method());
            self.request_failed(now, purpose, (Failure::TurnTimeout, text));
        }
        if self.is_ended {
            return;
        }
        for request in &mut self.requests {
            if request.retransmit_at <= now {
                request.retransmit_interval =
                    (2 * request.retransmit_interval).min(RETRANSMISSION_MAX);
                request.retransmit_at = now + request.retransmit_interval;
                self.out.push_back(request.bytes.clone());
            }
        }
        if self.is_closing {
            return;
        }
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh_at = None;
            self.send_request(now, Purpose::Refresh, 0);
        }
        self.renew(now);
    }

    /// Renews channels, and permissions that are used and not renewed by a channel.
    fn renew(&mut self, now: Time) {
        let mut renewals = Vec::new();
        for channel in &mut self.channels {
            if channel.renew_at <= now {
                channel.renew_at = Time::NEVER;
                renewals.push(Purpose::BindChannel(channel.peer, channel.number));
            }
        }
        let (channels, requests) = (&self.channels, &self.requests);
        self.permissions.retain_mut(|own| {
            if !own.granted || own.renew_at > now && own.ends_at > now {
                return true;
            }
            let by_channel = channels.iter().any(|channel| channel.peer.ip() == own.ip);
            let renew = Purpose::CreatePermission(own.ip);
            if own.renew_at <= now && own.used && !by_channel {
                renewals.push(renew);
            }
            own.renew_at = Time::NEVER;
            let is_requested =
                renewals.contains(&renew) || requests.iter().any(|own| own.purpose == renew);
            if by_channel || is_requested {
                own.ends_at = Time::NEVER;
            }
            // Peers may send until the server drops the permission.
            own.ends_at > now
        });
        for purpose in renewals {
            self.send_request(now, purpose, 0);
        }
    }

    /// Appends the next message to the server. Returns `false` if none is pending.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let next = self.out.pop_front();
        let any = next.is_some();
        out.extend_from_slice(&next.unwrap_or_default());
        any
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<TurnEvent> {
        self.events.pop_front()
    }
}

/// Time after which an allocation with this lifetime is refreshed.
fn refresh_delay(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(REFRESH_MARGIN).max(lifetime / 2)
}
