//! The TCP connections of a worker: connecting, sending, reading, closing.
//!
//! A connection knows its session and returns what happened to it. The loop notifies the session.

mod early_reads;
mod read_schedule;
mod reading;
mod segment_times;
mod source_addresses;
mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use measure::{ArrivalRun, Time};
use mio::net::TcpStream;
use net::tls::{Fault, OpenStatus, TlsLayer};
use session::{ChannelError, CloseReason, TlsError};
use slab::Slab;

use super::ids::{ACCEPTED, ChannelKey, SessionKey, SocketId};
use super::runtime::Runtime;
use super::timers::Task;
use crate::trace::Tracer;
pub(super) use read_schedule::{ReadyAction, WantedRead};
pub(super) use reading::Step;
pub(super) use segment_times::SegmentTimes;
pub(super) use source_addresses::NotConnected;
pub(super) use stream::{Party, State, Stream};

use read_schedule::ReadSchedule;
use source_addresses::SourceAddresses;

/// Maximum size of one read. All connections of a worker share the buffer; only its touched part
/// occupies memory.
const READ_BYTES: usize = 256 * 1024;

/// Time that a connection may take to send its queue after its session has ended.
const LINGER: Duration = Duration::from_secs(1);

/// Time limit for the TLS handshake of a reference server's client.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The TCP connections of a worker.
pub(super) struct Connections {
    streams: Slab<Stream>,
    pub(super) buffers: Buffers,
    /// Number of handshake reads in this iteration.
    handshakes: usize,
    /// Arrival times of segments; `None` if the ring does not receive segments.
    pub(super) segment_times: Option<SegmentTimes>,
    turns: ReadSchedule,
    sources: SourceAddresses,
}

/// Shared read buffers, used by one connection at a time. A reader takes them and puts them back.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) read: Vec<u8>,
    /// Arrival times of the bytes in `read`.
    pub(super) runs: Vec<ArrivalRun>,
    /// Bytes decrypted by TLS, and their arrival times.
    pub(super) plain: Vec<u8>,
    pub(super) plain_runs: Vec<ArrivalRun>,
}

/// Request of a session for a connection.
pub(super) struct ConnectRequest<'a> {
    pub(super) owner: ChannelKey,
    /// `None` if the session is gone.
    pub(super) population: Option<usize>,
    /// True if media may arrive on the connection.
    pub(super) media: bool,
    /// Permitted source addresses.
    pub(super) sources: &'a [IpAddr],
    pub(super) tracer: Option<&'a Tracer>,
    /// True if the packet ring receives the connection's segments.
    pub(super) on_ring: bool,
}

/// Result of an attempt to connect.
pub(super) enum Attempt {
    /// The connection is established.
    Open {
        owner: ChannelKey,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// The connection is established, and the TLS handshake has begun, unless it failed to.
    Securing { begun: bool },
    /// The attempt failed; `others` are the addresses still to be tried.
    Failed {
        owner: ChannelKey,
        error: io::Error,
        others: Vec<SocketAddr>,
    },
}

impl Connections {
    /// Creates an empty list. The ring receives the segments of connections from `ports`, if given.
    pub(super) fn new(
        ports: Option<RangeInclusive<u16>>,
        populations: usize,
        workers: usize,
    ) -> Connections {
        Connections {
            streams: Slab::new(),
            buffers: Buffers {
                read: vec![0; READ_BYTES],
                ..Buffers::default()
            },
            handshakes: 0,
            segment_times: ports.map(SegmentTimes::new),
            turns: ReadSchedule::default(),
            sources: SourceAddresses::new(populations, workers),
        }
    }

    /// Starts a loop iteration.
    pub(super) fn begin_turn(&mut self) {
        self.handshakes = 0;
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Stream> {
        self.streams.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Stream> {
        self.streams.get_mut(index)
    }

    /// Returns a connection together with the read buffers.
    pub(super) fn get_with_buffers(&mut self, index: usize) -> Option<(&mut Stream, &mut Buffers)> {
        let stream = self.streams.get_mut(index)?;
        Some((stream, &mut self.buffers))
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Stream> {
        self.streams.try_remove(index)
    }

    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    /// Returns `true` if the connection is open and is this channel.
    pub(super) fn is_of(&self, index: usize, key: ChannelKey) -> bool {
        matches!(self.state(index), Some(State::Open(owner)) if *owner == key)
    }

    fn state(&self, index: usize) -> Option<&State> {
        self.streams.get(index).map(|stream| &stream.state)
    }

    /// Returns `true` if the connection is still connecting or in its TLS handshake.
    pub(super) fn is_beginning(&self, index: usize) -> bool {
        let state = self.state(index);
        matches!(
            state,
            Some(State::Connecting { .. } | State::TlsHandshake { .. })
        )
    }

    /// Returns `true` if the connection was accepted and is in the TLS handshake with serial number
    /// `of`.
    pub(super) fn is_in_handshake(&self, index: usize, of: u64) -> bool {
        matches!(
            self.state(index),
            Some(State::TlsHandshake { party: Party::Server { serial, .. }, .. }) if *serial == of
        )
    }

    /// Returns `true` if the connection is closing with serial number `of`.
    pub(super) fn is_closing(&self, index: usize, of: u64) -> bool {
        matches!(self.state(index), Some(State::Closing { serial }) if *serial == of)
    }

    /// Returns `true` if any connection is closing.
    pub(super) fn any_closes(&self) -> bool {
        let closes = |stream: &Stream| matches!(stream.state, State::Closing { .. });
        self.streams.iter().any(|(_, stream)| closes(stream))
    }

    /// Begins to connect. Returns the index of the connection.
    pub(super) fn connect(
        &mut self,
        runtime: &mut Runtime,
        request: &ConnectRequest<'_>,
        to: SocketAddr,
        others: Vec<SocketAddr>,
        layer: &mut Option<TlsLayer>,
    ) -> Result<usize, NotConnected> {
        let times = self.segment_times.as_ref().filter(|_| request.on_ring);
        let watched = times.map(|times| times.connect(to)).transpose();
        let watched = watched.map_err(NotConnected::Other)?.flatten();
        let (socket, watched) = match (watched, request.population) {
            (Some((socket, watched)), _) => (socket, Some(watched)),
            (None, Some(population)) if !request.media => {
                (self.sources.connect(population, request.sources, to)?, None)
            }
            (None, _) => {
                let socket = TcpStream::connect(to).map_err(NotConnected::Other)?;
                (socket, None)
            }
        };
        let owner = request.owner;
        let state = State::Connecting { owner, others };
        let mut stream = Stream::new(socket, state);
        stream.watched = watched;
        let set_up = || -> io::Result<usize> {
            stream.socket.set_nodelay(true)?;
            // Only for media: socket timestamps make the kernel read the clock for each packet of
            // this machine.
            if request.media {
                net::timed_read::enable_timestamps(&stream.socket)?;
            }
            let tracer = request.tracer;
            let local = tracer.map(|_| stream.socket.local_addr()).transpose()?;
            let index = self.add(runtime, stream)?;
            let stream = &mut self.streams[index];
            stream.tls = layer.take();
            stream.trace = tracer
                .zip(local)
                .map(|(tracer, local)| tracer.connection(runtime.clock.same_start(), local, to));
            Ok(index)
        };
        set_up().map_err(NotConnected::Other)
    }

    /// Connects to a Unix socket. Returns the index of the connection.
    pub(super) fn connect_unix(
        &mut self,
        runtime: &Runtime,
        owner: ChannelKey,
        path: &Path,
    ) -> io::Result<usize> {
        let socket = TcpStream::from_std(net::connect::connect_unix(path)?);
        let mut stream = Stream::new(socket, State::Open(owner));
        stream.unix = true;
        self.add(runtime, stream)
    }

    /// Polls a connection and adds it. Returns its index.
    fn add(&mut self, runtime: &Runtime, mut stream: Stream) -> io::Result<usize> {
        let entry = self.streams.vacant_entry();
        let index = entry.key();
        let id = SocketId::Connection(index);
        runtime.readiness.poll_read_write(&mut stream.socket, id)?;
        entry.insert(stream);
        Ok(index)
    }

    /// Returns the result of an attempt to connect, after the socket became ready; `None` if the
    /// attempt is still in progress.
    pub(super) fn finish_connecting(&mut self, index: usize, now: Time) -> Option<Attempt> {
        let stream = self.streams.get_mut(index)?;
        let State::Connecting { owner, others } = &mut stream.state else {
            return None;
        };
        let owner = *owner;
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
                    let party = Party::Client(owner);
                    stream.state = State::TlsHandshake { party, since: now };
                    let begun = stream.begin_handshake().is_ok();
                    return Some(Attempt::Securing { begun });
                }
                stream.state = State::Open(owner);
                let local = stream.socket.local_addr().unwrap_or(remote);
                Some(Attempt::Open {
                    owner,
                    local,
                    remote,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => {
                let others = std::mem::take(others);
                if let Some(trace) = &mut stream.trace
                    && error.kind() == io::ErrorKind::ConnectionRefused
                {
                    trace.broke();
                }
                self.streams.remove(index);
                Some(Attempt::Failed {
                    owner,
                    error,
                    others,
                })
            }
        }
    }

    /// Gives up an attempt to connect that takes too long. Returns the error, or `None` if the
    /// connection is already established.
    pub(super) fn give_up_connecting(&mut self, index: usize) -> Option<ChannelError> {
        let error = match self.state(index)? {
            State::Connecting { .. } => ChannelError::TimedOut,
            State::TlsHandshake { .. } => ChannelError::Tls(TlsError::TimedOut),
            _ => return None,
        };
        self.streams.remove(index);
        Some(error)
    }

    /// Gives up the unfinished TLS handshake of an accepted connection. Returns the peer's address,
    /// or `None` if the handshake is no longer in progress.
    pub(super) fn give_up_handshake(
        &mut self,
        index: usize,
        serial: u64,
    ) -> Option<Option<SocketAddr>> {
        if !self.is_in_handshake(index, serial) {
            return None;
        }
        let stream = self.streams.remove(index);
        Some(stream.socket.peer_addr().ok())
    }

    /// Adds an accepted connection and returns its index. Its session starts once the connection is
    /// open; with TLS, that is after the handshake.
    pub(super) fn accept(
        &mut self,
        runtime: &mut Runtime,
        socket: TcpStream,
        acceptor: usize,
        layer: impl FnOnce() -> io::Result<Option<TlsLayer>>,
    ) -> io::Result<usize> {
        socket.set_nodelay(true)?;
        let Some(layer) = layer()? else {
            let state = State::Open(SessionKey::NONE.channel(ACCEPTED));
            return self.add(runtime, Stream::new(socket, state));
        };
        let (serial, since) = (runtime.next_serial(), runtime.clock.now());
        let party = Party::Server { acceptor, serial };
        let mut stream = Stream::new(socket, State::TlsHandshake { party, since });
        stream.tls = Some(layer);
        let index = self.add(runtime, stream)?;
        let task = Task::Handshake { index, serial };
        runtime.timers.add(since + HANDSHAKE, task);
        Ok(index)
    }

    /// Assigns an open accepted connection to its session. Returns its local and remote address, or
    /// `None` if it was reset meanwhile.
    pub(super) fn give_to(
        &mut self,
        index: usize,
        owner: ChannelKey,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let stream = self.streams.get_mut(index)?;
        stream.state = State::Open(owner);
        let local = stream.socket.local_addr().ok()?;
        Some((local, stream.socket.peer_addr().ok()?))
    }

    /// Queues control bytes, and sends them if the connection is open. Fails with the reason why
    /// the connection cannot go on.
    pub(super) fn send_control(&mut self, index: usize, bytes: &[u8]) -> Result<(), CloseReason> {
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(());
        };
        if !stream.queue_control(bytes) {
            return Err(CloseReason::SendQueueFull);
        }
        let broken = stream.is_open() && stream.flush().is_err();
        if broken {
            Err(CloseReason::Reset)
        } else {
            Ok(())
        }
    }

    /// Sends the queue. A closing connection is removed once its queue is empty. Returns `true` if
    /// the connection stays open; fails if it broke.
    pub(super) fn flush(&mut self, index: usize) -> io::Result<bool> {
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(false);
        };
        stream.flush()?;
        let is_closed = matches!(stream.state, State::Closing { .. }) && stream.is_drained();
        if is_closed {
            self.streams.remove(index);
        }
        Ok(!is_closed)
    }

    /// Closes a connection. If its queue is not empty, it may linger to send it.
    pub(super) fn close(&mut self, index: usize, runtime: &mut Runtime) {
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        let open = stream.is_open();
        if open {
            stream.close_tls();
        }
        if open && !stream.is_drained() {
            let serial = runtime.next_serial();
            stream.state = State::Closing { serial };
            let task = Task::Linger { index, serial };
            runtime.timers.add(runtime.clock.now() + LINGER, task);
        } else {
            self.streams.remove(index);
        }
    }

    /// Gives up a closing connection whose peer does not read the rest of the queue.
    pub(super) fn give_up_closing(&mut self, index: usize, serial: u64) {
        if self.is_closing(index, serial) {
            self.streams.remove(index);
        }
    }

    /// Removes a connection that failed or was closed by the peer.
    pub(super) fn remove_broken(&mut self, index: usize, reason: CloseReason) -> Option<Stream> {
        let mut stream = self.streams.try_remove(index)?;
        if let Some(trace) = &mut stream.trace {
            match reason {
                CloseReason::End => trace.closed_by_peer(),
                CloseReason::Reset => trace.broke(),
                // Closed by this side.
                CloseReason::SendQueueFull | CloseReason::Tls(_) => {}
            }
        }
        Some(stream)
    }

    /// Decrypts received bytes, with their arrival times. Also returns whether TLS's own responses
    /// could be sent. Returns `None` if the connection is gone.
    pub(super) fn unseal(
        &mut self,
        index: usize,
        bytes: &[u8],
        runs: &[ArrivalRun],
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<ArrivalRun>,
    ) -> Option<Result<(OpenStatus, bool), Fault>> {
        let stream = self.streams.get_mut(index)?;
        // A closing connection ignores received bytes.
        if matches!(stream.state, State::Closing { .. }) {
            return Some(Ok((OpenStatus::default(), true)));
        }
        let result = stream.open_sealed(bytes, runs, plain, plain_runs);
        if let Some(trace) = &mut stream.trace {
            stream::trace_runs(trace, plain, plain_runs);
        }
        // Responses of the handshake, or the alert that gives the error.
        let sent = stream.flush().is_ok();
        Some(result.map(|status| (status, sent)))
    }
}

#[cfg(test)]
mod tests;
