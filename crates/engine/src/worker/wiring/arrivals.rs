//! What arrives, and who hears of it: connections, bytes, datagrams.

use std::time::Duration;

use measure::{Run, Time};
use mio::event::Event;
use protocol::metrics as clients;
use protocol::session::{ChannelId, Closed, Input};

use crate::worker::Worker;
use crate::worker::connections::{
    Attempt, Fast, Flushed, Party, State, Step, Told, Unsealed, WantedRead,
};
use crate::worker::errors::channel_error;
use crate::worker::exchanges::around;
use crate::worker::inbox::Pending;
use crate::worker::keys::{ACCEPTED, Place, SessionKey};
use crate::worker::listeners::Accepting;
use crate::worker::sessions::Channel;
use crate::worker::timers::Task;

/// How long after a connection could not be accepted the next attempt is made.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Worker {
    pub(crate) fn ready(&mut self, place: Place, event: &Event) {
        if let Place::Connection(place) = place {
            let Some(stream) = self.connections.get_mut(place) else {
                return;
            };
            stream.ended |= event.is_read_closed() || event.is_error();
            if matches!(stream.state, State::Connecting { .. }) {
                self.finish_connecting(place);
                self.settle();
                // Data may have come with the event that told of the connection.
                self.readable(Place::Connection(place));
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

    pub(crate) fn readable(&mut self, place: Place) {
        match place {
            Place::Listener(place) => self.accept(place),
            Place::Connection(place) => self.read_connection(place),
            Place::Pair(_) | Place::Shared(_) => self.read_pair(place),
            Place::Group(end) => self.read_group(end),
            Place::Single(place) => self.read_single(place),
        }
        self.settle();
    }

    pub(crate) fn writable(&mut self, place: usize) {
        match self.connections.flush(place) {
            Flushed::Broken => self.lose_stream(place, Closed::Reset),
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
        self.settle();
        self.readable(Place::Connection(place));
    }

    /// Begins the session of an accepted connection, which stands.
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
            None => self.lose_stream(place, Closed::Reset),
        }
    }

    /// Finds out how a connection attempt went, when its socket became ready.
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
                // What was sent before it stood; that it is writable is told just this once.
                self.writable(place);
            }
            Attempt::Securing { begun: true } => self.writable(place),
            Attempt::Securing { begun: false } => self.lose_stream(place, Closed::Reset),
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

    /// Reads a connection because the kernel has told of it.
    fn read_connection(&mut self, place: usize) {
        let line = match self.connections.get(place).map(|stream| &stream.state) {
            Some(State::Exchange { line }) => Some(*line),
            _ => None,
        };
        if let Some(line) = line {
            self.exchanges.read(around!(self), place, line);
            return self.hear_ended_exchanges();
        }
        let wanted = match self.connections.told(place, &mut self.runtime) {
            Told::Read(wanted) => wanted,
            Told::Ending { session, channel } => {
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
                    self.lose_stream(place, Closed::End);
                    break;
                }
                Step::Broken => {
                    self.lose_stream(place, Closed::Reset);
                    break;
                }
                Step::Done => break,
            };
            if let Some(more) = self.connections.put_back(&mut reading) {
                self.settle();
                if more && heard {
                    continue;
                }
                break;
            }
            if !heard {
                break;
            }
            self.settle();
            if reading.is_prompt() && self.brings_media(place) {
                self.connections.read_seldom(place);
            }
            if !self.connections.goes_on(&mut reading, &mut self.runtime) {
                break;
            }
        }
        self.connections.end_reading(reading);
    }

    /// Whether media comes in a connection that could be read seldom.
    fn brings_media(&self, place: usize) -> bool {
        let session = self.connections.could_be_seldom(place);
        let slot = session.and_then(|session| self.sessions.get(session));
        slot.is_some_and(|slot| {
            // Media that comes by sockets of its own is none of the connection's.
            let pairs = |(_, channel): &(_, Channel)| matches!(channel, Channel::Pair { .. });
            slot.has_media() && !slot.stopping && !slot.channels.iter().any(pairs)
        })
    }

    /// The end of a connection that was read seldom need not wait any more.
    pub(crate) fn read_to_end(&mut self, place: usize, key: SessionKey, of: ChannelId) {
        // Its session may have closed it meanwhile, and the place be another's.
        if self.connections.is_of(place, key, of) {
            self.connections.read_at_once(place);
            self.read_stream(place, WantedRead::All);
        }
    }

    /// Reads a connection of which something may be known to have come.
    fn read_known(&mut self, place: usize, wanted: WantedRead) {
        if wanted != WantedRead::Nothing {
            self.read_stream(place, wanted);
            self.settle();
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

    /// Reads those of the fast connections of which enough has been shown.
    pub(crate) fn read_fast_connections(&mut self, now: Time) {
        let Some(mut places) = self.connections.take_fast(now) else {
            return;
        };
        places.retain(|&place| match self.connections.look_at_fast(place, now) {
            Fast::IsNoMore => false,
            Fast::Nothing => true,
            Fast::Read(wanted) => {
                self.read_known(place, wanted);
                true
            }
        });
        self.connections.put_fast(places);
    }

    /// Reads all connections that are read seldom, up to the end of a window.
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

    /// Has a session hear all that has come for it as far as is known, before it hears that time
    /// has passed.
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

    /// Takes in what a connection over TLS brought, with when that came; says whether it is to be
    /// read on.
    fn open_sealed(&mut self, place: usize, bytes: &[u8], runs: &[Run]) -> bool {
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

    /// Has a session hear what came over TLS; says whether the connection is to be read on. `came`
    /// is when the last of it came.
    fn unsealed(
        &mut self,
        place: usize,
        unsealed: Unsealed,
        came: Option<Time>,
        (plain, plain_runs): (&[u8], &[Run]),
    ) -> bool {
        let (stands, ended, sent) = match unsealed {
            Unsealed::Ignored => return true,
            Unsealed::Failed(fault) => {
                self.tls_failed(place, &fault);
                return false;
            }
            Unsealed::Opened {
                stands,
                ended,
                sent,
            } => (stands, ended, sent),
        };
        if stands {
            let at = came.unwrap_or_else(|| self.runtime.clock.now());
            self.tls_stands(place, at);
            self.settle();
        }
        let Some(stream) = self.connections.get(place) else {
            return false;
        };
        // Its session may have handed it over at once, and a message have come with the end of the
        // handshake.
        if let State::Exchange { line } = stream.state {
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
            // One that was ended in the middle of its handshake.
            if sent && ended {
                self.lose_stream(place, Closed::End);
            }
            return sent && !ended;
        };
        if let Some(last) = plain_runs.last() {
            self.bytes_arrived(session, channel, plain, last.at, plain_runs);
            self.settle();
        }
        let how = match (ended, sent) {
            (true, _) => Closed::End,
            (false, false) => Closed::Reset,
            (false, true) => return true,
        };
        // Its session may have closed it, and the place be another's.
        if self.connections.is_of(place, session, channel) {
            self.lose_stream(place, how);
        }
        false
    }

    /// The handshake of a connection is through.
    fn tls_stands(&mut self, place: usize, at: Time) {
        let Some(stream) = self.connections.get_mut(place) else {
            return;
        };
        let State::Securing { party, since } = stream.state else {
            return;
        };
        match party {
            Party::Client { session, channel } => {
                let ends = (stream.socket.local_addr(), stream.socket.peer_addr());
                let (Ok(local), Ok(remote)) = ends else {
                    return self.lose_stream(place, Closed::Reset);
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
