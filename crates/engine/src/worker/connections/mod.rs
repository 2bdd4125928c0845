//! The TCP connections of a worker: connecting, sending, reading, closing.
//!
//! A connection knows whose it is, and says what has become of it; what its session is to hear of
//! that is the loop's to pass on.

mod early_reads;
mod read_turns;
mod reading;
mod segment_times;
mod source_addresses;
mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use measure::{Run, Time};
use mio::net::TcpStream;
use net::tls::{Fault, Layer};
use protocol::session::{ChannelError, ChannelId, Closed, TlsError};
use slab::Slab;

use super::keys::{ACCEPTED, Place, SessionKey};
use super::runtime::Runtime;
use super::timers::Task;
use crate::trace::Tracer;
pub(super) use read_turns::{Fast, Told, WantedRead};
pub(super) use reading::Step;
pub(super) use segment_times::SegmentTimes;
pub(super) use source_addresses::NotConnected;
pub(super) use stream::{Party, State, Stream};

use read_turns::ReadTurns;
use source_addresses::SourceAddresses;

/// What one read of a connection takes at most. All connections of a worker share the one buffer,
/// of which only what was ever filled is in memory.
const READ_BYTES: usize = 256 * 1024;

/// How long a connection whose session has ended may take to send what is queued.
const LINGER: Duration = Duration::from_secs(1);

/// How long a client of a reference server may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The TCP connections of a worker.
pub(super) struct Connections {
    streams: Slab<Stream>,
    pub(super) buffers: Buffers,
    /// How many reads of handshakes there were in this turn.
    handshakes: usize,
    /// When their segments came; none where the ring does not show them.
    segment_times: Option<SegmentTimes>,
    turns: ReadTurns,
    sources: SourceAddresses,
}

/// What all connections are read into, one at a time. Whoever reads takes what it needs, and puts
/// it back.
pub(super) struct Buffers {
    pub(super) read: Vec<u8>,
    /// When what was read came.
    pub(super) runs: Vec<Run>,
    /// What was sealed in it by TLS, and when that could be read.
    pub(super) plain: Vec<u8>,
    pub(super) plain_runs: Vec<Run>,
}

/// A connection that a session wants.
pub(super) struct Wish<'a> {
    pub(super) session: SessionKey,
    pub(super) channel: ChannelId,
    /// None where the session is gone.
    pub(super) population: Option<usize>,
    /// Whether media comes in it.
    pub(super) media: bool,
    /// The addresses it may come from.
    pub(super) sources: &'a [IpAddr],
    pub(super) tracer: Option<&'a Tracer>,
    /// Whether the packet ring shows its segments.
    pub(super) shown: bool,
}

/// How an attempt to connect went.
pub(super) enum Attempt {
    /// It is still under way.
    Waits,
    /// It stands.
    Open {
        session: SessionKey,
        channel: ChannelId,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// The handshake of TLS has begun, or could not.
    Securing { begun: bool },
    /// It is gone; these addresses are still to be tried.
    Failed {
        session: SessionKey,
        channel: ChannelId,
        error: io::Error,
        others: Vec<SocketAddr>,
    },
}

/// What came of sending what is queued.
pub(super) enum Flushed {
    Broken,
    /// It was closing, and is gone.
    Gone,
    /// It goes on.
    On,
}

/// What came of queueing control bytes.
pub(super) enum Queued {
    Sent,
    Full,
    Broken,
}

/// What came over TLS.
pub(super) enum Unsealed {
    /// It is of no interest.
    Ignored,
    Failed(Fault),
    Opened {
        /// Whether the handshake is through with it.
        stands: bool,
        /// Whether the other side has ended TLS.
        ended: bool,
        /// Whether what TLS itself had to say could be sent.
        sent: bool,
    },
}

impl Connections {
    /// None yet. Their segments are shown of those ports, where any are.
    pub(super) fn new(
        ports: Option<RangeInclusive<u16>>,
        populations: usize,
        workers: usize,
    ) -> Connections {
        Connections {
            streams: Slab::new(),
            buffers: Buffers {
                read: vec![0; READ_BYTES],
                runs: Vec::new(),
                plain: Vec::new(),
                plain_runs: Vec::new(),
            },
            handshakes: 0,
            segment_times: ports.map(SegmentTimes::new),
            turns: ReadTurns::default(),
            sources: SourceAddresses::new(populations, workers),
        }
    }

    /// A turn of the loop begins.
    pub(super) fn begin_turn(&mut self) {
        self.handshakes = 0;
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&Stream> {
        self.streams.get(place)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Stream> {
        self.streams.get_mut(place)
    }

    /// A connection, and what is read into.
    pub(super) fn get_with_buffers(&mut self, place: usize) -> Option<(&mut Stream, &mut Buffers)> {
        let stream = self.streams.get_mut(place)?;
        Some((stream, &mut self.buffers))
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Stream> {
        self.streams.try_remove(place)
    }

    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    /// When segments came, where the ring shows them.
    #[inline]
    pub(super) fn segment_times(&self) -> Option<&SegmentTimes> {
        self.segment_times.as_ref()
    }

    /// Whether a connection is open, and that channel of that session.
    pub(super) fn is_of(&self, place: usize, key: SessionKey, of: ChannelId) -> bool {
        matches!(
            self.state(place),
            Some(State::Open { session, channel }) if (*session, *channel) == (key, of)
        )
    }

    fn state(&self, place: usize) -> Option<&State> {
        self.streams.get(place).map(|stream| &stream.state)
    }

    /// Whether a connection that was asked for does not stand yet.
    pub(super) fn is_beginning(&self, place: usize) -> bool {
        let state = self.state(place);
        matches!(
            state,
            Some(State::Connecting { .. } | State::Securing { .. })
        )
    }

    /// Whether the handshake of an accepted connection with that serial number is under way.
    pub(super) fn is_in_handshake(&self, place: usize, of: u64) -> bool {
        matches!(
            self.state(place),
            Some(State::Securing { party: Party::Server { serial, .. }, .. }) if *serial == of
        )
    }

    /// Whether a connection closes, with that serial number.
    pub(super) fn is_closing(&self, place: usize, of: u64) -> bool {
        matches!(self.state(place), Some(State::Closing { serial }) if *serial == of)
    }

    /// Whether any connection closes.
    pub(super) fn any_closes(&self) -> bool {
        let closes = |stream: &Stream| matches!(stream.state, State::Closing { .. });
        self.streams.iter().any(|(_, stream)| closes(stream))
    }

    /// Begins to connect; gives the connection's place.
    pub(super) fn connect(
        &mut self,
        runtime: &mut Runtime,
        wish: &Wish<'_>,
        to: SocketAddr,
        others: Vec<SocketAddr>,
        layer: &mut Option<Layer>,
    ) -> Result<usize, NotConnected> {
        let times = self.segment_times.as_ref().filter(|_| wish.shown);
        let watched = match times {
            Some(times) => times.connect(to).map_err(NotConnected::Other)?,
            None => None,
        };
        let (socket, watched) = match (watched, wish.population) {
            (Some((socket, watched)), _) => (socket, Some(watched)),
            (None, Some(population)) if !wish.media => {
                (self.sources.connect(population, wish.sources, to)?, None)
            }
            (None, _) => {
                let socket = TcpStream::connect(to).map_err(NotConnected::Other)?;
                (socket, None)
            }
        };
        let state = State::Connecting {
            session: wish.session,
            channel: wish.channel,
            others,
        };
        let mut stream = Stream::new(socket, state);
        stream.watched = watched;
        let set_up = || -> io::Result<usize> {
            stream.socket.set_nodelay(true)?;
            // To have it costs each packet of this machine a look at the clock.
            if wish.media {
                net::stream::ask_arrival_time(&stream.socket)?;
            }
            let entry = self.streams.vacant_entry();
            let place = entry.key();
            let polled = Place::Connection(place);
            runtime
                .readiness
                .poll_both_ways(&mut stream.socket, polled)?;
            stream.tls = layer.take();
            if let Some(tracer) = wish.tracer {
                let local = stream.socket.local_addr()?;
                stream.trace = Some(tracer.connection(runtime.clock.same_start(), local, to));
            }
            entry.insert(stream);
            Ok(place)
        };
        set_up().map_err(NotConnected::Other)
    }

    /// Connects to a Unix socket; gives the connection's place.
    pub(super) fn connect_unix(
        &mut self,
        runtime: &Runtime,
        session: SessionKey,
        channel: ChannelId,
        path: &Path,
    ) -> io::Result<usize> {
        let mut socket = TcpStream::from_std(net::connect::connect_unix(path)?);
        let entry = self.streams.vacant_entry();
        let place = entry.key();
        let polled = Place::Connection(place);
        runtime.readiness.poll_both_ways(&mut socket, polled)?;
        let mut stream = Stream::new(socket, State::Open { session, channel });
        stream.unix = true;
        entry.insert(stream);
        Ok(place)
    }

    /// Finds out how an attempt to connect went, when its socket became ready.
    pub(super) fn finish_connecting(&mut self, place: usize, now: Time) -> Attempt {
        let Some(stream) = self.streams.get_mut(place) else {
            return Attempt::Waits;
        };
        let State::Connecting {
            session,
            channel,
            others,
        } = &mut stream.state
        else {
            return Attempt::Waits;
        };
        let (session, channel) = (*session, *channel);
        let result = match stream.socket.take_error() {
            Ok(Some(error)) | Err(error) => Err(error),
            Ok(None) => stream.socket.peer_addr(),
        };
        match result {
            Ok(remote) => {
                if let Some(trace) = &mut stream.trace {
                    trace.opened();
                }
                if stream.tls.is_some() {
                    let party = Party::Client { session, channel };
                    stream.state = State::Securing { party, since: now };
                    let begun = stream.begin_handshake().is_ok();
                    return Attempt::Securing { begun };
                }
                stream.state = State::Open { session, channel };
                let local = stream.socket.local_addr().unwrap_or(remote);
                Attempt::Open {
                    session,
                    channel,
                    local,
                    remote,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Attempt::Waits,
            Err(error) => {
                let others = std::mem::take(others);
                if let Some(trace) = &mut stream.trace
                    && error.kind() == io::ErrorKind::ConnectionRefused
                {
                    trace.broke();
                }
                self.streams.remove(place);
                Attempt::Failed {
                    session,
                    channel,
                    error,
                    others,
                }
            }
        }
    }

    /// Gives an attempt to connect up that takes too long; says what is wrong, if it does not stand
    /// already.
    pub(super) fn give_up_connecting(&mut self, place: usize) -> Option<ChannelError> {
        let error = match self.state(place)? {
            State::Connecting { .. } => ChannelError::TimedOut,
            State::Securing { .. } => ChannelError::Tls(TlsError::TimedOut),
            _ => return None,
        };
        self.streams.remove(place);
        Some(error)
    }

    /// Gives a handshake up that an accepted connection came to no end with; says where it came
    /// from.
    pub(super) fn give_up_handshake(
        &mut self,
        place: usize,
        serial: u64,
    ) -> Option<Option<SocketAddr>> {
        if !self.is_in_handshake(place, serial) {
            return None;
        }
        let stream = self.streams.remove(place);
        Some(stream.socket.peer_addr().ok())
    }

    /// Takes an accepted connection in, of which nobody is told before it stands; gives its place.
    /// Over TLS it does not stand before its handshake is through.
    pub(super) fn accept(
        &mut self,
        runtime: &mut Runtime,
        mut socket: TcpStream,
        acceptor: usize,
        layer: impl FnOnce() -> io::Result<Option<Layer>>,
    ) -> io::Result<usize> {
        socket.set_nodelay(true)?;
        let entry = self.streams.vacant_entry();
        let place = entry.key();
        let polled = Place::Connection(place);
        runtime.readiness.poll_both_ways(&mut socket, polled)?;
        let stream = match layer()? {
            Some(layer) => {
                let (serial, since) = (runtime.next_serial(), runtime.clock.now());
                let party = Party::Server { acceptor, serial };
                let mut stream = Stream::new(socket, State::Securing { party, since });
                stream.tls = Some(layer);
                let task = Task::Handshake {
                    socket: place,
                    serial,
                };
                runtime.timers.add(since + HANDSHAKE, task);
                stream
            }
            None => {
                let state = State::Open {
                    session: SessionKey::NOBODY,
                    channel: ACCEPTED,
                };
                Stream::new(socket, state)
            }
        };
        entry.insert(stream);
        Ok(place)
    }

    /// An accepted connection stands, and is that session's; gives its ends, where it was not reset
    /// meanwhile.
    pub(super) fn give_to(
        &mut self,
        place: usize,
        session: SessionKey,
        channel: ChannelId,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let stream = self.streams.get_mut(place)?;
        stream.state = State::Open { session, channel };
        let local = stream.socket.local_addr().ok()?;
        Some((local, stream.socket.peer_addr().ok()?))
    }

    /// Queues control bytes, and sends them if it stands.
    pub(super) fn send_control(&mut self, place: usize, bytes: &[u8]) -> Queued {
        let Some(stream) = self.streams.get_mut(place) else {
            return Queued::Sent;
        };
        if !stream.queue_control(bytes) {
            Queued::Full
        } else if stream.is_open() && stream.flush().is_err() {
            Queued::Broken
        } else {
            Queued::Sent
        }
    }

    /// Sends what is queued; one that was closing and has nothing queued any more is gone.
    pub(super) fn flush(&mut self, place: usize) -> Flushed {
        let Some(stream) = self.streams.get_mut(place) else {
            return Flushed::Gone;
        };
        let result = stream.flush();
        let done = matches!(stream.state, State::Closing { .. }) && stream.is_drained();
        if result.is_err() {
            return Flushed::Broken;
        }
        if done {
            self.streams.remove(place);
            return Flushed::Gone;
        }
        Flushed::On
    }

    /// Closes a connection. One that still has something to send gets a moment to do so.
    pub(super) fn close(&mut self, place: usize, runtime: &mut Runtime) {
        let Some(stream) = self.streams.get_mut(place) else {
            return;
        };
        let open = stream.is_open();
        if open {
            stream.say_goodbye();
        }
        if open && !stream.is_drained() {
            let serial = runtime.next_serial();
            stream.state = State::Closing { serial };
            let task = Task::Linger {
                socket: place,
                serial,
            };
            runtime.timers.add(runtime.clock.now() + LINGER, task);
        } else {
            self.streams.remove(place);
        }
    }

    /// Gives a closing connection up that takes nothing any more.
    pub(super) fn give_up_closing(&mut self, place: usize, serial: u64) {
        if self.is_closing(place, serial) {
            self.streams.remove(place);
        }
    }

    /// Takes a connection away that broke or was closed by the other side.
    pub(super) fn lose(&mut self, place: usize, how: Closed) -> Option<Stream> {
        let mut stream = self.streams.try_remove(place)?;
        if let Some(trace) = &mut stream.trace {
            match how {
                Closed::End => trace.closed_by_peer(),
                Closed::Reset => trace.broke(),
                // Given up by us.
                Closed::Stuck | Closed::Tls(_) => {}
            }
        }
        Some(stream)
    }

    /// Opens what a connection over TLS brought, with when that came. Nothing where it is gone.
    pub(super) fn unseal(
        &mut self,
        place: usize,
        (bytes, runs): (&[u8], &[Run]),
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<Run>,
    ) -> Option<Unsealed> {
        let stream = self.streams.get_mut(place)?;
        // What still comes is of no interest.
        if matches!(stream.state, State::Closing { .. }) {
            return Some(Unsealed::Ignored);
        }
        let result = stream.open_sealed(bytes, runs, plain, plain_runs);
        if let Some(trace) = &mut stream.trace {
            stream::trace_runs(trace, plain, plain_runs);
        }
        // Answers of the handshake, or the alert that says why not.
        let sent = stream.flush().is_ok();
        Some(match result {
            Ok(taken) => Unsealed::Opened {
                stands: taken.stands,
                ended: taken.ended,
                sent,
            },
            Err(fault) => Unsealed::Failed(fault),
        })
    }
}

#[cfg(test)]
mod tests;
