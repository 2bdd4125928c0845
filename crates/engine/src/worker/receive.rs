//! What arrives: connections, bytes, datagrams.

use std::io;
use std::time::Duration;

use measure::{Run, tester};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Token};
use net::batch::Datagram;
use net::stream::Read;
use protocol::session::{Arrival, ChannelId, Closed, Input};

use super::held::Chunk;
use super::outputs::Pending;
use super::sessions::{Channel, SessionKey};
use super::sockets::Socket;
use super::stream::{State, Stream};
use super::timers::Task;
use super::watch::{Wanted, Watched};
use super::{READ_BYTES, Worker};
use crate::trace::TracedConnection;

/// How many reads a socket gets before the others have their turn.
pub(super) const READS_A_TURN: usize = 16;

/// The same for a connection, whose reads are larger.
const STREAM_READS_A_TURN: usize = 4;

/// How long after a connection could not be accepted the next attempt is made.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The channel of an accepted connection.
pub(super) const ACCEPTED: ChannelId = ChannelId(0);

/// No session.
const NOBODY: SessionKey = SessionKey {
    place: usize::MAX,
    serial: 0,
};

/// Has a trace hear what was read, as many pieces as there are times.
#[cold]
pub(super) fn trace_runs(trace: &mut TracedConnection, bytes: &[u8], runs: &[Run]) {
    let mut begin = 0;
    for together in runs.chunk_by(|one, next| one.at == next.at) {
        if let Some(last) = together.last() {
            trace.received(&bytes[begin..last.end], last.at);
            begin = last.end;
        }
    }
}

impl Worker {
    pub(super) fn ready(&mut self, place: usize, event: &Event) {
        let Some(socket) = self.sockets.get_mut(place) else {
            return;
        };
        if let Socket::Stream(stream) = socket {
            stream.ended |= event.is_read_closed() || event.is_error();
            if matches!(stream.state, State::Connecting { .. }) {
                self.finish_connecting(place);
                self.settle();
                // Data may have come with the event that told of the connection.
                self.readable(place);
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

    pub(super) fn readable(&mut self, place: usize) {
        match self.sockets.get(place) {
            Some(Socket::Listener { .. }) => self.accept(place),
            Some(Socket::Stream(Stream {
                state: State::Exchange { line },
                ..
            })) => {
                let line = *line;
                self.read_exchange(place, line);
            }
            Some(Socket::Stream(_)) => {
                let wanted = self.wanted_when_told(place);
                self.read_stream(place, &wanted);
            }
            Some(Socket::Udp(_) | Socket::Shared(_)) => self.read_datagrams(place),
            Some(Socket::Group(_)) => self.read_group(place),
            Some(Socket::Datagrams(_)) => self.read_single(place),
            None => {}
        }
        self.settle();
    }

    pub(super) fn writable(&mut self, place: usize) {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return;
        };
        let result = stream.flush();
        let done = matches!(stream.state, State::Closing { .. }) && stream.is_drained();
        if result.is_err() {
            self.lose_stream(place, Closed::Reset);
        } else if done {
            self.sockets.remove(place);
        } else {
            self.go_on(place);
        }
    }

    fn accept(&mut self, place: usize) {
        for _ in 0..1024 {
            let Some(Socket::Listener { listener, acceptor }) = self.sockets.get(place) else {
                return;
            };
            let acceptor = *acceptor;
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.accepted(stream, acceptor) {
                        self.note("accept_failed", None, error.to_string());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // A connection that was gone again, or no descriptor left: the others still
                    // wait, and are not told of a second time.
                    self.note("accept_failed", None, error.to_string());
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        let task = Task::Accept { socket: place };
                        self.timers.add(self.clock.now() + ACCEPT_AGAIN, task);
                        return;
                    }
                }
            }
        }
        self.unread.push(place);
    }

    fn accepted(&mut self, mut socket: TcpStream, acceptor: usize) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let place = self.sockets.vacant_key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut socket, Token(place), interest)?;
        let tls = self.acceptors[acceptor].tls.as_ref();
        let layer = tls.map(|tls| tls.layer().map_err(io::Error::other));
        let stream = match layer.transpose()? {
            Some(layer) => self.secure_accepted(socket, acceptor, layer),
            None => {
                let state = State::Open {
                    session: NOBODY,
                    channel: ACCEPTED,
                };
                Stream::new(socket, state)
            }
        };
        let secured = stream.tls.is_some();
        self.sockets.insert(Socket::Stream(stream));
        if secured {
            self.limit_handshake(place);
        } else {
            self.serve_accepted(place, acceptor);
        }
        self.settle();
        self.readable(place);
        Ok(())
    }

    /// Begins the session of an accepted connection, which stands.
    pub(super) fn serve_accepted(&mut self, place: usize, acceptor: usize) {
        let session = (self.acceptors[acceptor].accept)(self.serial + 1);
        let key = self.add_session(session, acceptor, None);
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return;
        };
        stream.state = State::Open {
            session: key,
            channel: ACCEPTED,
        };
        let (local, remote) = (stream.socket.local_addr(), stream.socket.peer_addr());
        if let Some(slot) = self.slot(key) {
            slot.set_channel(ACCEPTED, Channel::Stream(place));
        }
        let now = self.clock.now();
        self.deliver(key, Input::Start { due: now });
        match (local, remote) {
            (Ok(local), Ok(remote)) => self.deliver(
                key,
                Input::Opened {
                    channel: ACCEPTED,
                    local,
                    remote: Some(remote),
                },
            ),
            // Reset meanwhile.
            _ => self.lose_stream(place, Closed::Reset),
        }
    }

    pub(super) fn read_stream(&mut self, place: usize, wanted: &Wanted) {
        let mut left = match *wanted {
            Wanted::Known(count) => count,
            Wanted::All => usize::MAX,
            Wanted::Nothing => return,
        };
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut runs = std::mem::take(&mut self.runs);
        for turn in 1.. {
            let securing = matches!(
                self.sockets.get(place),
                Some(Socket::Stream(stream)) if matches!(stream.state, State::Securing { .. })
            );
            if securing && self.handshake_waits(place) {
                break;
            }
            let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
                break;
            };
            let (key, channel) = match stream.state {
                State::Open { session, channel } => (session, channel),
                State::Connecting { .. } | State::Exchange { .. } => break,
                // Nobody hears of a handshake. What still comes at the end is of no interest; that
                // the other side has closed is.
                State::Securing { .. } | State::Closing { .. } => (NOBODY, ACCEPTED),
            };
            // What was read before the ring had shown it.
            if let Some(chunk) = stream.watched.as_mut().and_then(Watched::take_held) {
                let count = left.min(chunk.bytes().len());
                let (at, exact) = (chunk.by, false);
                let bytes = &chunk.bytes()[..count];
                let heard = self.pass_on(place, bytes, Read { count, at, exact }, &mut runs);
                self.put_back(place, (key, channel), chunk, count);
                self.settle();
                left -= count;
                if left == 0 || !heard {
                    break;
                }
                continue;
            }
            if stream.watched.as_ref().is_some_and(Watched::broke) {
                self.lose_stream(place, Closed::Reset);
                break;
            }
            let ended = stream.ended;
            let most = left.min(READ_BYTES);
            let buffer = &mut buffer[..most];
            let result = match wanted {
                Wanted::Known(_) => {
                    net::stream::read_untimed(&stream.socket, buffer).map(|count| Read {
                        count,
                        at: self.turn,
                        exact: false,
                    })
                }
                _ => net::stream::read(&stream.socket, buffer, &self.clock),
            };
            match result {
                Ok(Read { count: 0, .. }) => {
                    self.count_cut_off(place);
                    self.lose_stream(place, Closed::End);
                    break;
                }
                Ok(read @ Read { count, .. }) => {
                    if !self.pass_on(place, &buffer[..count], read, &mut runs) {
                        break;
                    }
                    self.settle();
                    if let Wanted::Known(_) = wanted {
                        left -= count;
                        if count < most {
                            self.came_short(place);
                            break;
                        }
                        if left == 0 {
                            break;
                        }
                        continue;
                    }
                    self.read_seldom(place);
                    // A read that leaves room has taken all there was, so that what comes now comes
                    // with an event of its own, as does the end; but not an end that was there
                    // already.
                    if count < buffer.len() && !ended {
                        break;
                    }
                    if turn >= STREAM_READS_A_TURN {
                        self.unread.push(place);
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Wanted::Known(_) = wanted {
                        self.came_short(place);
                    }
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.lose_stream(place, Closed::Reset);
                    break;
                }
            }
        }
        self.read_buffer = buffer;
        self.runs = runs;
    }

    /// Has a connection's session hear bytes of it, with their times; says whether more is to be
    /// read.
    fn pass_on(&mut self, place: usize, bytes: &[u8], read: Read, runs: &mut Vec<Run>) -> bool {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return false;
        };
        let Read { count, at, exact } = read;
        runs.clear();
        match &mut stream.watched {
            Some(watched) => watched.take(count, at, exact, runs),
            None => net::segments::not_seen(count, at, exact, runs),
        }
        if stream.tls.is_some() {
            // Of what comes over TLS a trace hears when it has been opened.
            return self.open_sealed(place, bytes, runs);
        }
        if let Some(trace) = &mut stream.trace {
            trace_runs(trace, bytes, runs);
        }
        let (key, channel) = match stream.state {
            State::Open { session, channel } => (session, channel),
            _ => (NOBODY, ACCEPTED),
        };
        let at = runs.last().map_or(at, |run| run.at);
        self.bytes_arrived(key, channel, bytes, at, runs);
        true
    }

    /// Puts back what is held of a connection and was heard in part, unless it is another's by now.
    fn put_back(&mut self, place: usize, of: (SessionKey, ChannelId), chunk: Chunk, heard: usize) {
        let same = self.is_of(place, of.0, of.1);
        match self.sockets.get_mut(place) {
            Some(Socket::Stream(Stream {
                watched: Some(watched),
                ..
            })) if same => watched.put_back(chunk, heard),
            _ => {
                if let Some(watcher) = &self.watcher {
                    watcher.forget(chunk);
                }
            }
        }
    }

    fn read_datagrams(&mut self, place: usize) {
        let traced =
            matches!(self.sockets.get(place), Some(Socket::Udp(end)) if end.trace.is_some());
        let kept = match traced {
            true => &mut self.traced_batch,
            false => &mut self.batch,
        };
        let Some(mut batch) = kept.take() else {
            return;
        };
        for turn in 1.. {
            let result = match self.sockets.get(place) {
                Some(Socket::Udp(end)) => batch.receive(&end.socket),
                Some(Socket::Shared(end)) => batch.receive(&end.socket),
                _ => break,
            };
            let filled = match result {
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An error stands for one datagram or none; those behind it are not told of again.
                Err(_) if turn < READS_A_TURN => continue,
                Err(_) => {
                    self.unread.push(place);
                    break;
                }
            };
            if let Some(drops) = filled.drops {
                self.count_drops(place, drops);
            }
            let clock = self.clock.same_start();
            let owner = self.owner(place);
            for datagram in batch.datagrams(&clock) {
                // What the session hears may end it, and its place be another's.
                if self.owner(place) != owner {
                    break;
                }
                self.datagram(place, &datagram);
            }
            self.settle();
            if !filled.more {
                break;
            }
            if turn >= READS_A_TURN {
                self.unread.push(place);
                break;
            }
        }
        match traced {
            true => self.traced_batch = Some(batch),
            false => self.batch = Some(batch),
        }
    }

    /// The session whose socket it is; none where sessions share it, or it is gone.
    fn owner(&self, place: usize) -> Option<SessionKey> {
        match self.sockets.get(place) {
            Some(Socket::Udp(end)) => Some(end.session),
            _ => None,
        }
    }

    pub(super) fn count_drops(&mut self, place: usize, drops: u32) {
        let taken = match self.sockets.get_mut(place) {
            Some(Socket::Udp(end)) => &mut end.dropped,
            Some(Socket::Shared(end)) => &mut end.dropped,
            Some(Socket::Group(end)) => &mut end.dropped,
            Some(Socket::Datagrams(end)) => &mut end.dropped,
            _ => return,
        };
        let lost = drops.wrapping_sub(*taken);
        *taken = drops;
        self.lost_at_socket(place, lost);
    }

    #[inline]
    pub(super) fn datagram(&mut self, place: usize, datagram: &Datagram<'_>) {
        let window_ends = self.window_ends();
        let (key, channel, port) = match self.sockets.get_mut(place) {
            Some(Socket::Udp(end)) => {
                if let Some(trace) = &mut end.trace {
                    trace.received(datagram.from, datagram.bytes, datagram.length, datagram.at);
                }
                if end.peer.is_some_and(|peer| peer != datagram.from.ip()) {
                    self.tester.add(tester::FOREIGN_PACKETS, 1);
                    return;
                }
                if let Some(sink) = end.sink {
                    let arrival = Arrival {
                        at: datagram.at,
                        bytes: datagram.bytes,
                        length: datagram.length,
                        overhead: end.overhead,
                    };
                    let key = end.session;
                    let Some(slot) = self.sessions.get(key.place) else {
                        return;
                    };
                    let population = &mut self.populations[slot.population];
                    let recorder = population.recorder_at(datagram.at, window_ends);
                    if let Some(event) = self.sinks.packet(sink, &arrival, recorder) {
                        self.pending
                            .push_back((key, Pending::Media { sink, event }));
                        self.read_in_turns(place);
                    }
                    return;
                }
                (end.session, end.channel, end.port)
            }
            Some(Socket::Shared(end)) => match end.routes.get(&datagram.from) {
                Some(&(key, channel)) => (key, channel, end.port),
                None => {
                    self.tester.add(tester::FOREIGN_PACKETS, 1);
                    return;
                }
            },
            _ => return,
        };
        self.datagram_arrived(key, channel, port, datagram);
    }
}
