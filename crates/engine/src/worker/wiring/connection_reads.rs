//! Received data: dispatch of readiness events, and reading of connections.

use std::time::Duration;

use measure::{ArrivalRun, Time};
use mio::event::Event;
use protocol::metrics as clients;
use protocol::session::{ChannelId, CloseReason, Input};

use crate::worker::Worker;
use crate::worker::connections::{
    Attempt, Decrypted, FastCheck, Flushed, Party, ReadyAction, State, Step, WantedRead,
};
use crate::worker::error_mapping::channel_error;
use crate::worker::exchanges::around;
use crate::worker::ids::{ACCEPTED, SessionKey, SocketId};
use crate::worker::listeners::Accepting;
use crate::worker::pending_inputs::Pending;
use crate::worker::sessions::Channel;
use crate::worker::timers::Task;

/// Delay before the next attempt after accepting a connection failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Worker {
    pub(crate) fn ready(&mut self, place: SocketId, event: &Event) {
        if let SocketId::Connection(place) = place {
            let Some(stream) = self.connections.get_mut(place) else {
                return;
            };
            stream.ended |= event.is_read_closed() || event.is_error();
            if matches!(stream.state, State::Connecting { .. }) {
                self.finish_connecting(place);
                self.deliver_pending();
                // Data may have arrived with the event that reported the connection established.
                self.readable(SocketId::Connection(place));
                return;
            }
            if event.is_writable() {
                self.writable(place);
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.readable(place);
        }
    }

    pub(crate) fn readable(&mut self, place: SocketId) {
        match place {
            SocketId::Listener(place) => self.accept(place),
            SocketId::Connection(place) => self.read_connection(place),
            SocketId::Pair(_) | SocketId::Shared(_) => self.read_pair(place),
            SocketId::Group(end) => self.read_group(end),
            SocketId::Single(place) => self.read_single(place),
        }
        self.deliver_pending();
    }

    pub(crate) fn writable(&mut self, place: usize) {
        match self.connections.flush(place) {
            Flushed::Broken => self.lose_stream(place, CloseReason::Reset),
            Flushed::Gone => {}
            Flushed::On => {
                self.exchanges.go_on(around!(self), place);
                self.hear_ended_exchanges();
            }
        }
    }

    fn accept(&mut self, place: usize) {
        for number in 0.. {
            match self.listeners.accept(place, number, &mut self.runtime) {
                Accepting::One(socket) => {
                    let (refused, text) = self.listeners.refuses(place, self.sessions.count());
                    if let Some(text) = text {
                        self.note("sessions_refused", None, text);
                    }
                    if refused {
                        drop(socket);
                        continue;
                    }
                    let runtime = &mut self.runtime;
                    let layer = || self.listeners.layer(place);
                    match self.connections.accept(runtime, socket, place, layer) {
                        Ok(accepted) => self.accepted(accepted, place),
                        Err(error) => self.note("accept_failed", None, error.to_string()),
                    }
                }
                Accepting::Nothing => return,
                Accepting::Failed { error, goes_on } => {
                    self.note("accept_failed", None, error.to_string());
                    if !goes_on {
                        let task = Task::Accept { socket: place };
                        let again = self.runtime.clock.now() + ACCEPT_AGAIN;
                        self.runtime.timers.add(again, task);
                        return;
                    }
                }
            }
        }
    }

    fn accepted(&mut self, place: usize, acceptor: usize) {
        let open = self.connections.get(place);
        if open.is_some_and(|stream| stream.is_open()) {
            self.serve_accepted(place, acceptor);
        }
        self.deliver_pending();
        self.readable(SocketId::Connection(place));
    }

    /// Starts the session of an accepted connection that is open.
    pub(crate) fn serve_accepted(&mut self, place: usize, acceptor: usize) {
        let number = self.runtime.coming_serial();
        let session = self.listeners.session(acceptor, number);
        let key = self.add_session(session, acceptor, None);
        let ends = self.connections.give_to(place, key, ACCEPTED);
        if let Some(slot) = self.slot(key) {
            slot.set_channel(ACCEPTED, Channel::Stream(place));
        }
        let now = self.runtime.clock.now();
        self.deliver(key, Input::Start { due: now });
        match ends {
            Some((local, remote)) => self.deliver(
                key,
                Input::Opened {
                    channel: ACCEPTED,
                    local,
                    remote: Some(remote),
                },
            ),
            // Reset meanwhile.
            None => self.lose_stream(place, CloseReason::Reset),
        }
    }

    /// Processes the result of an attempt to connect, after the socket became ready.
    fn finish_connecting(&mut self, place: usize) {
        let now = self.runtime.clock.now();
        match self.connections.finish_connecting(place, now) {
            Attempt::Waits => {}
            Attempt::Open {
                session,
                channel,
                local,
                remote,
            } => {
                let opened = Pending::Opened {
                    channel,
                    local,
                    remote: Some(remote),
                };
                self.runtime.inbox.push(session, opened);
                // Sends what was queued before: the socket reports writability only this once.
                self.writable(place);
            }
            Attempt::Securing { begun: true } => self.writable(place),
            Attempt::Securing { begun: false } => self.lose_stream(place, CloseReason::Reset),
            Attempt::Failed {
                session,
                channel,
                error,
                others,
            } if others.is_empty() => {
                self.fail_to_open(session, channel, channel_error(&error));
            }
            Attempt::Failed {
                session,
                channel,
                others,
                ..
            } => self.connect(session, channel, others),
        }
    }

    /// Reads a connection after a readiness event.
    fn read_connection(&mut self, place: usize) {
        let line = match self.connections.get(place).map(|stream| &stream.state) {
            Some(State::Exchange { exchange: line }) => Some(*line),
            _ => None,
        };
        if let Some(line) = line {
            self.exchanges.read(around!(self), place, line);
            return self.hear_ended_exchanges();
        }
        let wanted = match self.connections.on_readable(place, &mut self.runtime) {
            ReadyAction::Read(wanted) => wanted,
            ReadyAction::Ending { session, channel } => {
                if self.end_waits(place, session, channel) {
                    return;
                }
                self.connections.read_at_once(place);
                WantedRead::All
            }
        };
        self.read_stream(place, wanted);
    }

    pub(crate) fn read_stream(&mut self, place: usize, wanted: WantedRead) {
        let Some(mut reading) = self.connections.begin_reading(place, wanted) else {
            return;
        };
        loop {
            let heard = match self.connections.read_once(&mut reading, &mut self.runtime) {
                Step::Bytes {
                    session,
                    channel,
                    at,
                } => {
                    let (bytes, runs) = (reading.bytes(), reading.runs());
                    self.bytes_arrived(session, channel, bytes, at, runs);
                    true
                }
                Step::Sealed => self.open_sealed(place, reading.bytes(), reading.runs()),
                Step::Ended => {
                    self.count_cut_off(place);
                    self.lose_stream(place, CloseReason::End);
                    break;
                }
                Step::Broken => {
                    self.lose_stream(place, CloseReason::Reset);
                    break;
                }
                Step::Done => break,
            };
            if let Some(more) = self.connections.put_back(&mut reading) {
                self.deliver_pending();
                if more && heard {
                    continue;
                }
                break;
            }
            if !heard {
                break;
            }
            self.deliver_pending();
            if reading.is_prompt() && self.brings_media(place) {
                self.connections.start_periodic_reads(place);
            }
            if !self.connections.goes_on(&mut reading, &mut self.runtime) {
                break;
            }
        }
        self.connections.end_reading(reading);
    }

    /// Returns `true` if a connection carries media and could be read periodically.
    fn brings_media(&self, place: usize) -> bool {
        let session = self.connections.periodic_candidate(place);
        let slot = session.and_then(|session| self.sessions.get(session));
        slot.is_some_and(|slot| {
            // Media on sockets of its own does not arrive on the connection.
            let pairs = |(_, channel): &(_, Channel)| matches!(channel, Channel::Pair { .. });
            slot.has_media() && !slot.stopping && !slot.channels.iter().any(pairs)
        })
    }

    /// Reads the rest of a periodically read connection that has ended, once it need not wait any
    /// longer.
    pub(crate) fn read_to_end(&mut self, place: usize, key: SessionKey, of: ChannelId) {
        // Its session may have closed it meanwhile, and the index may belong to another connection.
        if self.connections.is_of(place, key, of) {
            self.connections.read_at_once(place);
            self.read_stream(place, WantedRead::All);
        }
    }

    /// Reads the given amount from a connection, if any.
    fn read_known(&mut self, place: usize, wanted: WantedRead) {
        if wanted != WantedRead::Nothing {
            self.read_stream(place, wanted);
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
            let places = self.connections.places_of_turn(turn);
            for &place in &places {
                let wanted = self.connections.wanted_in_turn(place, now, planned);
                self.read_known(place, wanted);
            }
            self.connections.turn_ended(places);
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
        let Some(mut places) = self.connections.take_fast(now) else {
            return;
        };
        places.retain(|&place| match self.connections.look_at_fast(place, now) {
            FastCheck::IsNoMore => false,
            FastCheck::Nothing => true,
            FastCheck::Read(wanted) => {
                self.read_known(place, wanted);
                true
            }
        });
        self.connections.put_fast(places);
    }

    /// Reads all periodically read connections, up to the end of a window.
    pub(crate) fn read_all_connections(&mut self, end: Time) {
        let now = self.runtime.clock.now();
        for turn in self.connections.all_turns() {
            let places = self.connections.places_of_turn(turn);
            for &place in &places {
                let wanted = self.connections.wanted_by(place, now, end);
                self.read_known(place, wanted);
            }
            self.connections.turn_ended(places);
        }
    }

    /// Delivers everything that is known to have arrived for a session, before its deadline or its
    /// end.
    pub(crate) fn catch_up(&mut self, key: SessionKey) {
        let Some(slot) = self.sessions.get(key) else {
            return;
        };
        let place = slot.channels.iter().find_map(|(_, channel)| match channel {
            Channel::Stream(place) => Some(*place),
            _ => None,
        });
        if let Some(place) = place {
            let wanted = self.connections.known(place);
            self.read_known(place, wanted);
        }
    }

    /// Processes received bytes of a connection that uses TLS, with their arrival times. Returns
    /// `true` if reading continues.
    fn open_sealed(&mut self, place: usize, bytes: &[u8], runs: &[ArrivalRun]) -> bool {
        let buffers = &mut self.connections.buffers;
        let mut plain = std::mem::take(&mut buffers.plain);
        let mut plain_runs = std::mem::take(&mut buffers.plain_runs);
        plain.clear();
        plain_runs.clear();
        let came = (bytes, runs);
        let unsealed = self
            .connections
            .unseal(place, came, &mut plain, &mut plain_runs);
        let on = unsealed.is_some_and(|unsealed| {
            let at = runs.last().map(|run| run.at);
            self.unsealed(place, unsealed, at, (&plain, &plain_runs))
        });
        self.connections.buffers.plain = plain;
        self.connections.buffers.plain_runs = plain_runs;
        on
    }

    /// Delivers decrypted bytes to the session. Returns `true` if reading continues. `came` is the
    /// arrival time of the last byte.
    fn unsealed(
        &mut self,
        place: usize,
        unsealed: Decrypted,
        came: Option<Time>,
        (plain, plain_runs): (&[u8], &[ArrivalRun]),
    ) -> bool {
        let (stands, ended, sent) = match unsealed {
            Decrypted::Ignored => return true,
            Decrypted::Failed(fault) => {
                self.tls_failed(place, &fault);
                return false;
            }
            Decrypted::Opened {
                stands,
                ended,
                sent,
            } => (stands, ended, sent),
        };
        if stands {
            let at = came.unwrap_or_else(|| self.runtime.clock.now());
            self.tls_stands(place, at);
            self.deliver_pending();
        }
        let Some(stream) = self.connections.get(place) else {
            return false;
        };
        // Its session may have handed it over immediately, and a message may have arrived with the
        // end of the handshake.
        if let State::Exchange { exchange: line } = stream.state {
            let at = plain_runs.last().map_or(self.runtime.turn, |run| run.at);
            let came = (plain, at);
            let around = around!(self);
            let on = self
                .exchanges
                .opened(around, place, line, came, (ended, sent));
            self.hear_ended_exchanges();
            return on;
        }
        let State::Open { session, channel } = stream.state else {
            // The peer closed the connection during its handshake.
            if sent && ended {
                self.lose_stream(place, CloseReason::End);
            }
            return sent && !ended;
        };
        if let Some(last) = plain_runs.last() {
            self.bytes_arrived(session, channel, plain, last.at, plain_runs);
            self.deliver_pending();
        }
        let how = match (ended, sent) {
            (true, _) => CloseReason::End,
            (false, false) => CloseReason::Reset,
            (false, true) => return true,
        };
        // Its session may have closed it, and the index may belong to another connection.
        if self.connections.is_of(place, session, channel) {
            self.lose_stream(place, how);
        }
        false
    }

    /// Opens a connection after its TLS handshake.
    fn tls_stands(&mut self, place: usize, at: Time) {
        let Some(stream) = self.connections.get_mut(place) else {
            return;
        };
        let State::TlsHandshake { party, since } = stream.state else {
            return;
        };
        match party {
            Party::Client { session, channel } => {
                let ends = (stream.socket.local_addr(), stream.socket.peer_addr());
                let (Ok(local), Ok(remote)) = ends else {
                    return self.lose_stream(place, CloseReason::Reset);
                };
                stream.state = State::Open { session, channel };
                let opened = Pending::Opened {
                    channel,
                    local,
                    remote: Some(remote),
                };
                self.runtime.inbox.push(session, opened);
                if let Some(population) = self.sessions.population(session) {
                    let took = at.since(since).as_nanos() as u64;
                    let recorder = self.populations.recorder(population);
                    recorder.record(clients::TLS_HANDSHAKE_DELAY, took);
                }
            }
            Party::Server { acceptor, .. } => self.serve_accepted(place, acceptor),
        }
    }
}
