//! Connections of sessions: opening, failing, closing.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use kit::metrics as clients;
use net::tls::{Fault, TlsLayer};
use session::{ChannelError, CloseReason, ExchangeEnded, Input, TlsError};

use crate::network::resolver::ResolverAnswer;
use crate::worker::Worker;
use crate::worker::connections::{ConnectRequest, NotConnected, Party, State, Stream};
use crate::worker::error_mapping::{channel_error, tls_error};
use crate::worker::exchanges::around;
use crate::worker::ids::ChannelKey;
use crate::worker::name_cache::{PendingLookup, SocketKind};
use crate::worker::sessions::Channel;
use crate::worker::timers::Task;

/// Local address of a Unix socket, which has none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

impl Worker {
    /// Resolves the host, and then opens `wanted` to it. Both together may take `timeout`.
    pub(crate) fn open_by_name(
        &mut self,
        owner: ChannelKey,
        host: String,
        port: u16,
        timeout: Duration,
        wanted: SocketKind,
    ) {
        let ChannelKey { session, channel } = owner;
        let now = self.runtime.clock.now();
        let task = Task::Connect { session, channel };
        self.runtime.timers.add(now + timeout, task);
        let Some(slot) = self.slot(session) else {
            return;
        };
        slot.set_channel(channel, Channel::Resolving);
        let asking = PendingLookup {
            owner,
            port,
            wanted,
        };
        match self.names.look_up(host.clone(), asking) {
            Ok(Some(addresses)) => self.open_to(asking, &host, addresses),
            Ok(None) => {}
            Err(error) => self.fail_to_open(owner, error),
        }
    }

    pub(crate) fn resolved(&mut self, answer: ResolverAnswer) {
        let host = answer.host.clone();
        for (asking, addresses) in self.names.resolved(answer) {
            self.open_to(asking, &host, addresses);
        }
    }

    fn open_to(&mut self, asking: PendingLookup, host: &str, addresses: Vec<SocketAddr>) {
        let owner = asking.owner;
        let is_known = !addresses.is_empty();
        let addresses = self.targets.permitted(host, addresses, SocketAddr::ip);
        if is_known && addresses.is_empty() {
            return self.fail_to_open(owner, ChannelError::NotPermitted);
        }
        match asking.wanted {
            SocketKind::Connection => self.connect(owner, addresses),
            SocketKind::Datagrams {
                local_port,
                reading,
                media,
            } => self.open_udp_to(owner, local_port, &addresses, reading, media),
        }
    }

    /// Begins to connect to the first address. The others are tried in turn if it fails. The task
    /// that was added when the session opened the channel limits the total time.
    pub(crate) fn connect(&mut self, owner: ChannelKey, mut addresses: Vec<SocketAddr>) {
        if self.sessions.channel(owner).is_none() {
            return;
        }
        let mut layer = match self.layer_of(owner) {
            Ok(layer) => layer,
            Err(error) => return self.fail_to_open(owner, error),
        };
        let mut error = ChannelError::NameNotFound;
        while !addresses.is_empty() {
            let to = addresses.remove(0);
            match self.begin_connection(owner, to, addresses.clone(), &mut layer) {
                Ok(index) => return self.sessions.set_channel(owner, Channel::Stream(index)),
                Err(NotConnected::Other(failed)) => error = channel_error(&failed),
                Err(NotConnected::NoPorts(failed, text)) => {
                    let population = self.sessions.population(owner.session);
                    self.note("no_ports", population, text);
                    error = channel_error(&failed);
                }
            }
        }
        self.fail_to_open(owner, error);
    }

    fn begin_connection(
        &mut self,
        owner: ChannelKey,
        to: SocketAddr,
        others: Vec<SocketAddr>,
        layer: &mut Option<TlsLayer>,
    ) -> Result<usize, NotConnected> {
        let slot = self.sessions.get(owner.session);
        let population = slot.map(|slot| slot.population);
        let media = population.is_none_or(|population| self.populations.has_media(population));
        let by_ring =
            population.is_none_or(|population| self.populations.has_segment_times(population));
        let watches = by_ring && self.connections.segment_times.is_some();
        let request = ConnectRequest {
            owner,
            population,
            media,
            sources: population.map_or(&[][..], |index| self.populations.sources(index)),
            tracer: slot.and_then(|slot| slot.trace.as_ref()),
            on_ring: watches
                && self.rings.as_mut().is_none_or(|rings| {
                    rings.ensure_open(to.ip(), &self.runtime.readiness).is_ok()
                }),
        };
        let (connections, runtime) = (&mut self.connections, &mut self.runtime);
        connections.connect(runtime, &request, to, others, layer)
    }

    /// Returns the TLS layer for a channel that is about to connect, or `None` if it does not use
    /// TLS.
    pub(crate) fn layer_of(&mut self, owner: ChannelKey) -> Result<Option<TlsLayer>, ChannelError> {
        let Some(slot) = self.slot(owner.session) else {
            return Ok(None);
        };
        let Some(name) = slot.tls_name(owner.channel) else {
            return Ok(None);
        };
        let population = slot.population;
        let made = match self.populations.tls(population) {
            Some(tls) => tls.layer(&name),
            None => return Err(ChannelError::Tls(TlsError::Unusable)),
        };
        made.map(Some).map_err(|fault| {
            self.note("tls_failed", Some(population), format!("{name}: {fault}"));
            ChannelError::Tls(tls_error(fault.reason))
        })
    }

    pub(crate) fn connect_unix(&mut self, owner: ChannelKey, path: &Path) {
        match self.connections.connect_unix(&self.runtime, owner, path) {
            Ok(index) => {
                self.sessions.set_channel(owner, Channel::Stream(index));
                self.channel_opened(owner, NOWHERE, None);
            }
            Err(error) => self.fail_to_open(owner, channel_error(&error)),
        }
    }

    pub(crate) fn give_up_connecting(&mut self, owner: ChannelKey) {
        let error = match self.sessions.channel(owner) {
            Some(Channel::Resolving) => Some(ChannelError::TimedOut),
            Some(Channel::Stream(index)) => self.connections.give_up_connecting(index),
            _ => None,
        };
        if let Some(error) = error {
            self.fail_to_open(owner, error);
        }
    }

    pub(crate) fn give_up_handshake(&mut self, index: usize, serial: u64) {
        if let Some(from) = self.connections.give_up_handshake(index, serial) {
            self.note_handshake(from, &TlsError::TimedOut);
        }
    }

    pub(crate) fn fail_to_open(&mut self, owner: ChannelKey, error: ChannelError) {
        self.count_refused(error);
        let ChannelKey { session, channel } = owner;
        if let Some(slot) = self.slot(session) {
            slot.forget_channel(channel);
            let failed = Input::OpenFailed { channel, error };
            self.runtime.inbox.push(session, failed);
        }
    }

    /// Closes a connection, handed over or not.
    pub(crate) fn close_stream(&mut self, index: usize) {
        let worker = around!(self);
        let ended = self
            .exchanges
            .remove_exchange(worker, index, &ExchangeEnded::ClosedByUs);
        if ended.is_none() {
            self.connections.close(index, &mut self.runtime);
        }
    }

    /// Removes a connection that failed or was closed by the peer.
    pub(crate) fn lose_stream(&mut self, index: usize, reason: CloseReason) {
        let stream = self.connections.get(index);
        if stream.and_then(Stream::exchange).is_some() {
            let ended = ExchangeEnded::Closed(reason);
            self.exchanges.end(around!(self), index, ended);
            return self.deliver_ended_exchanges();
        }
        let Some(stream) = self.connections.remove_broken(index, reason) else {
            return;
        };
        match stream.state {
            State::TlsHandshake { party, .. } => self.lost_in_handshake(&stream, party),
            State::Open(owner) => self.connection_ended(owner, reason),
            State::Connecting { owner, .. } => self.fail_to_open(owner, ChannelError::Refused),
            State::Exchange { .. } | State::Closing { .. } => {}
        }
    }

    /// Handles the end of a connection during its TLS handshake.
    fn lost_in_handshake(&mut self, stream: &Stream, party: Party) {
        match party {
            Party::Client(owner) => {
                self.fail_to_open(owner, ChannelError::Tls(TlsError::Closed));
            }
            Party::Server { .. } => {
                self.note_handshake(stream.socket.peer_addr().ok(), &TlsError::Closed);
            }
        }
    }

    /// Handles a TLS failure, during the handshake or later.
    pub(crate) fn tls_failed(&mut self, index: usize, fault: &Fault) {
        let Some(stream) = self.connections.remove(index) else {
            return;
        };
        let error = tls_error(fault.reason);
        let remote = stream.socket.peer_addr().ok();
        let owner = match stream.state {
            State::TlsHandshake {
                party: Party::Client(owner),
                ..
            } => {
                self.fail_to_open(owner, ChannelError::Tls(error));
                owner
            }
            State::Open(owner) => {
                self.connection_ended(owner, CloseReason::Tls(error));
                owner
            }
            _ => return self.note_handshake(remote, fault),
        };
        let subject = self.sessions.population(owner.session);
        let to = remote.map_or_else(String::new, |remote| format!("{remote}: "));
        self.note("tls_failed", subject, format!("{to}{fault}"));
    }

    /// Adds a note about the failed TLS handshake of a reference server's client.
    fn note_handshake(&mut self, from: Option<SocketAddr>, why: &dyn std::fmt::Display) {
        let from = from.map_or_else(|| "a client".to_owned(), |from| from.to_string());
        self.note("tls_failed", None, format!("{from}: {why}"));
    }

    /// Counts a connection that the peer closed without closing TLS.
    pub(crate) fn count_cut_off(&mut self, index: usize) {
        let Some(stream) = self.connections.get(index) else {
            return;
        };
        if let State::Open(owner) = stream.state
            && stream.tls.is_some()
            && let Some(population) = self.sessions.population(owner.session)
        {
            let recorder = self.populations.recorder(population);
            recorder.add(clients::TLS_CUT_OFF, 1);
        }
    }
}
