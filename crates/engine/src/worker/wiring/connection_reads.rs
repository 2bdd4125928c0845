//! Received data: dispatch of readiness events, and reading of connections.

use std::io;
use std::time::Duration;

use kit::metrics as clients;
use measure::{ArrivalRun, Time};
use mio::event::Event;
use net::tls::{Fault, OpenStatus};
use session::{CloseReason, Input};

use crate::worker::Worker;
use crate::worker::connections::{Attempt, Party, ReadyAction, State, Step, Stream, WantedRead};
use crate::worker::error_mapping::channel_error;
use crate::worker::exchanges::around;
use crate::worker::ids::{ACCEPTED, ChannelKey, SessionKey, SocketId};
use crate::worker::sessions::Channel;
use crate::worker::timers::Task;

/// Delay before the next attempt after accepting a connection failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Worker {
    pub(crate) fn ready(&mut self, id: SocketId, event: &Event) {
        if let SocketId::Connection(index) = id {
            let Some(stream) = self.connections.get_mut(index) else {
                return;
            };
            stream.ended |= event.is_read_closed() || event.is_error();
            if matches!(stream.state, State::Connecting { .. }) {
                self.finish_connecting(index);
                self.deliver_pending();
                // Data may have arrived with the event that reported the connection established.
                self.readable(SocketId::Connection(index));
                return;
            }
            if event.is_writable() {
                self.writable(index);
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.readable(id);
        }
    }

    pub(crate) fn readable(&mut self, id: SocketId) {
        match id {
            SocketId::Listener(index) => self.accept(index),
            SocketId::Connection(index) => self.read_connection(index),
            SocketId::Pair(_) | SocketId::Shared(_) => self.read_pair(id),
            SocketId::Group(end) => self.read_group(end),
            SocketId::Single(index) => self.read_single(index),
        }
        self.deliver_pending();
    }

    pub(crate) fn writable(&mut self, index: usize) {
        match self.connections.flush(index) {
            Err(_) => self.lose_stream(index, CloseReason::Reset),
            Ok(false) => {}
            Ok(true) => {
                self.exchanges.go_on(around!(self), index);
                self.deliver_ended_exchanges();
            }
        }
    }

    fn accept(&mut self, index: usize) {
        for number in 0.. {
            match self.listeners.accept(index, number, &mut self.runtime) {
                Ok(Some(socket)) => {
                    let (refused, text) = self.listeners.refuses(index, self.connections.count());
                    if let Some(text) = text {
                        self.note("sessions_refused", None, text);
                    }
                    if refused {
                        drop(socket);
                        continue;
                    }
                    let runtime = &mut self.runtime;
                    let layer = || self.listeners.layer(index);
                    match self.connections.accept(runtime, socket, index, layer) {
                        Ok(accepted) => self.accepted(accepted, index),
                        Err(error) => self.note("accept_failed", None, error.to_string()),
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    self.note("accept_failed", None, error.to_string());
                    // Other connections wait without a further event, because all descriptors are
                    // in use. After a reset, the next one can be accepted immediately.
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        let task = Task::Accept { socket: index };
                        let again = self.runtime.clock.now() + ACCEPT_AGAIN;
                        self.runtime.timers.add(again, task);
                        return;
                    }
                }
            }
        }
    }

    fn accepted(&mut self, index: usize, acceptor: usize) {
        let open = self.connections.get(index);
        if open.is_some_and(|stream| stream.is_open()) {
            self.serve_accepted(index, acceptor);
        }
        self.deliver_pending();
        self.readable(SocketId::Connection(index));
    }

    /// Starts the session of an accepted connection that is open.
    pub(crate) fn serve_accepted(&mut self, index: usize, acceptor: usize) {
        let number = self.runtime.coming_serial();
        let session = self.listeners.session(acceptor, number);
        let key = self.add_session(session, acceptor, None);
        let owner = key.channel(ACCEPTED);
        let ends = self.connections.give_to(index, owner);
        self.sessions.set_channel(owner, Channel::Stream(index));
        let now = self.runtime.clock.now();
        self.deliver(key, Input::Start { due: now });
        match ends {
            Some((local, remote)) => {
                let opened = Input::Opened {
                    channel: ACCEPTED,
                    local,
                    remote: Some(remote),
                };
                self.deliver(key, opened);
            }
            // Reset meanwhile.
            None => self.lose_stream(index, CloseReason::Reset),
        }
    }

    /// Processes the result of an attempt to connect, after the socket became ready.
    fn finish_connecting(&mut self, index: usize) {
        let now = self.runtime.clock.now();
        let Some(attempt) = self.connections.finish_connecting(index, now) else {
            return;
        };
        match attempt {
            Attempt::Open {
                owner,
                local,
                remote,
            } => {
                self.channel_opened(owner, local, Some(remote));
                // Sends what was queued before: the socket reports writability only this once.
                self.writable(index);
            }
            Attempt::Securing { begun: true } => self.writable(index),
            Attempt::Securing { begun: false } => self.lose_stream(index, CloseReason::Reset),
            Attempt::Failed {
                owner,
                error,
                others,
            } => match others.is_empty() {
                true => self.fail_to_open(owner, channel_error(&error)),
                false => self.connect(owner, others),
            },
        }
    }

    /// Reads a connection after a readiness event.
    fn read_connection(&mut self, index: usize) {
        let stream = self.connections.get(index);
        if let Some(exchange) = stream.and_then(Stream::exchange) {
            self.exchanges.read(around!(self), index, exchange);
            return self.deliver_ended_exchanges();
        }
        let wanted = match self.connections.on_readable(index, &mut self.runtime) {
            ReadyAction::Read(wanted) => wanted,
            ReadyAction::Ending(owner) => {
                if self.end_waits(index, owner) {
                    return;
                }
                self.connections.read_at_once(index);
                WantedRead::All
            }
        };
        self.read_stream(index, wanted);
    }

    pub(crate) fn read_stream(&mut self, index: usize, wanted: WantedRead) {
        let Some(mut reading) = self.connections.begin_reading(index, wanted) else {
            return;
        };
        loop {
            let goes_on = match self.connections.read_once(&mut reading, &mut self.runtime) {
                Step::Bytes { to, at } => {
                    self.bytes_arrived(to, reading.bytes(), at, &reading.runs);
                    true
                }
                Step::Sealed => self.open_sealed(index, reading.bytes(), &reading.runs),
                Step::Ended => {
                    self.count_cut_off(index);
                    self.lose_stream(index, CloseReason::End);
                    break;
                }
                Step::Broken => {
                    self.lose_stream(index, CloseReason::Reset);
                    break;
                }
                Step::Done => break,
            };
            if let Some(more) = self.connections.put_back(&mut reading) {
                self.deliver_pending();
                if more && goes_on {
                    continue;
                }
                break;
            }
            if !goes_on {
                break;
            }
            self.deliver_pending();
            if reading.is_prompt() && self.brings_media(index) {
                self.connections.start_periodic_reads(index);
            }
            if !self.connections.goes_on(&mut reading, &mut self.runtime) {
                break;
            }
        }
        self.connections.end_reading(reading);
    }

    /// Returns `true` if a connection carries media and could be read periodically.
    fn brings_media(&self, index: usize) -> bool {
        let session = self.connections.periodic_candidate(index);
        let slot = session.and_then(|session| self.sessions.get(session));
        slot.is_some_and(|slot| {
            // Media on sockets of its own does not arrive on the connection.
            let pairs = |(_, channel): &(_, Channel)| matches!(channel, Channel::Pair { .. });
            slot.has_media() && !slot.stopping && !slot.channels.iter().any(pairs)
        })
    }

    /// Reads the rest of a periodically read connection that has ended, once it need not wait any
    /// longer.
    pub(crate) fn read_to_end(&mut self, index: usize, owner: ChannelKey) {
        // Its session may have closed it meanwhile, and the index may belong to another connection.
        if self.connections.is_of(index, owner) {
            self.connections.read_at_once(index);
            self.read_stream(index, WantedRead::All);
        }
    }

    /// Reads the given amount from a connection, if any.
    fn read_known(&mut self, index: usize, wanted: WantedRead) {
        if wanted != WantedRead::Nothing {
            self.read_stream(index, wanted);
            self.deliver_pending();
        }
    }

    /// Reads the connections whose turn it is.
    pub(crate) fn read_connections_in_turn(&mut self, now: Time) {
        let Some(turns) = self.connections.take_turns(now) else {
            return;
        };
        if !turns.is_empty() {
            self.read_rings_now();
        }
        for turn in turns {
            let planned = WantedRead::planned(turn);
            let indices = self.connections.indices_of_turn(turn);
            for &index in &indices {
                let wanted = self.connections.wanted_in_turn(index, now, planned);
                self.read_known(index, wanted);
            }
            self.connections.turn_ended(indices);
        }
        for key in self.connections.take_leaving() {
            if self.sessions.get(key).is_some() {
                self.catch_up(key);
                self.connections.leaves(key);
            }
        }
    }

    /// Reads the fast connections with enough bytes of known arrival time.
    pub(crate) fn read_fast_connections(&mut self, now: Time) {
        let Some(mut indices) = self.connections.take_fast(now) else {
            return;
        };
        indices.retain(|&index| {
            let wanted = self.connections.check_fast(index, now);
            wanted
                .inspect(|&wanted| self.read_known(index, wanted))
                .is_some()
        });
        self.connections.put_fast(indices);
    }

    /// Reads all periodically read connections, up to the end of a window.
    pub(crate) fn read_all_connections(&mut self, end: Time) {
        let now = self.runtime.clock.now();
        for turn in self.connections.all_turns() {
            let indices = self.connections.indices_of_turn(turn);
            for &index in &indices {
                let wanted = self.connections.wanted_by(index, now, end);
                self.read_known(index, wanted);
            }
            self.connections.turn_ended(indices);
        }
    }

    /// Delivers everything that is known to have arrived for a session, before its deadline or its
    /// end.
    pub(crate) fn catch_up(&mut self, key: SessionKey) {
        let Some(slot) = self.sessions.get(key) else {
            return;
        };
        let stream = |&(_, channel): &(_, Channel)| match channel {
            Channel::Stream(index) => Some(index),
            _ => None,
        };
        if let Some(index) = slot.channels.iter().find_map(stream) {
            let wanted = self.connections.known(index);
            self.read_known(index, wanted);
        }
    }

    /// Processes received bytes of a connection that uses TLS, with their arrival times. Returns
    /// `true` if reading continues.
    fn open_sealed(&mut self, index: usize, bytes: &[u8], runs: &[ArrivalRun]) -> bool {
        let buffers = &mut self.connections.buffers;
        let mut plain = std::mem::take(&mut buffers.plain);
        let mut plain_runs = std::mem::take(&mut buffers.plain_runs);
        plain.clear();
        plain_runs.clear();
        let unsealed = self
            .connections
            .unseal(index, bytes, runs, &mut plain, &mut plain_runs);
        let on = unsealed.is_some_and(|unsealed| {
            let at = runs.last().map(|run| run.at);
            self.unsealed(index, unsealed, at, &plain, &plain_runs)
        });
        self.connections.buffers.plain = plain;
        self.connections.buffers.plain_runs = plain_runs;
        on
    }

    /// Delivers decrypted bytes to the session. Returns `true` if reading continues. `came` is the
    /// arrival time of the last byte.
    fn unsealed(
        &mut self,
        index: usize,
        unsealed: Result<(OpenStatus, bool), Fault>,
        came: Option<Time>,
        plain: &[u8],
        plain_runs: &[ArrivalRun],
    ) -> bool {
        let (status, sent) = match unsealed {
            Ok(opened) => opened,
            Err(fault) => {
                self.tls_failed(index, &fault);
                return false;
            }
        };
        let ended = status.peer_closed;
        if status.handshake_done {
            let at = came.unwrap_or_else(|| self.runtime.clock.now());
            self.tls_stands(index, at);
            self.deliver_pending();
        }
        let Some(stream) = self.connections.get(index) else {
            return false;
        };
        // Its session may have handed it over immediately, and a message may have arrived with the
        // end of the handshake.
        if let Some(exchange) = stream.exchange() {
            let at = plain_runs.last().map_or(self.runtime.turn, |run| run.at);
            let worker = around!(self);
            let on = self
                .exchanges
                .opened(worker, exchange, plain, at, ended, sent);
            self.deliver_ended_exchanges();
            return on;
        }
        let State::Open(owner) = stream.state else {
            // The peer closed the connection during its handshake.
            if sent && ended {
                self.lose_stream(index, CloseReason::End);
            }
            return sent && !ended;
        };
        if let Some(last) = plain_runs.last() {
            self.bytes_arrived(owner, plain, last.at, plain_runs);
            self.deliver_pending();
        }
        let reason = match (ended, sent) {
            (true, _) => CloseReason::End,
            (false, false) => CloseReason::Reset,
            (false, true) => return true,
        };
        // Its session may have closed it, and the index may belong to another connection.
        if self.connections.is_of(index, owner) {
            self.lose_stream(index, reason);
        }
        false
    }

    /// Opens a connection after its TLS handshake.
    fn tls_stands(&mut self, index: usize, at: Time) {
        let Some(stream) = self.connections.get_mut(index) else {
            return;
        };
        let State::TlsHandshake { party, since } = stream.state else {
            return;
        };
        match party {
            Party::Client(owner) => {
                let ends = (stream.socket.local_addr(), stream.socket.peer_addr());
                let (Ok(local), Ok(remote)) = ends else {
                    return self.lose_stream(index, CloseReason::Reset);
                };
                stream.state = State::Open(owner);
                self.channel_opened(owner, local, Some(remote));
                if let Some(population) = self.sessions.population(owner.session) {
                    let recorder = self.populations.recorder(population);
                    recorder.record_duration(clients::TLS_HANDSHAKE_DELAY, at.since(since));
                }
            }
            Party::Server { acceptor, .. } => self.serve_accepted(index, acceptor),
        }
    }
}
