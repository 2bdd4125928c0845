//! A TCP connection of a worker: connecting, sending with a bound, closing in order.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;

use measure::{Run, Time};
use mio::net::TcpStream;
use net::tls::{Fault, Layer, Taken};
use protocol::session::{Acks, ChannelId};

use super::super::keys::{ACCEPTED, SessionKey};
use super::segment_times::Watched;
use crate::trace::TracedConnection;

/// What may wait in front of a connection that takes nothing. A control message is some hundred
/// bytes; of interleaved media it is two seconds at 1 Mb/s. Beyond it media is left out.
pub(crate) const SEND_QUEUE_BYTES: usize = 256 * 1024;

/// What control may take beyond that, so that a stream which is ahead of its receiver does not
/// close the channel. Who runs out of this as well is stuck.
pub(crate) const CONTROL_ROOM_BYTES: usize = 64 * 1024;

/// How many bytes the kernel may hold that it has not sent, of a connection whose flow is told when
/// what it sends was taken: enough to keep the connection busy between two looks at it.
const UNSENT_BYTES: usize = 16 * 1024;

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) state: State,
    /// Whether the other side has ended it, or it broke, as far as readiness has told. What is yet
    /// to be read of it no other event announces.
    pub(crate) ended: bool,
    /// Hears all that is read and written, of a client that is traced.
    pub(crate) trace: Option<Box<TracedConnection>>,
    /// That the ring watches it; none where it does not.
    pub(crate) watched: Option<Watched>,
    /// What seals and opens its bytes; none of a plain connection.
    pub(crate) tls: Option<Layer>,
    /// Whether it is to a Unix socket.
    pub(crate) unix: bool,
    /// Whether it is read at once also while media comes.
    pub(crate) prompt: bool,
    queue: VecDeque<u8>,
}

/// Whose handshake it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Party {
    /// A session's that asked for the connection.
    Client {
        session: SessionKey,
        channel: ChannelId,
    },
    /// One that was accepted; it has no session before it stands.
    Server { acceptor: usize, serial: u64 },
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum State {
    /// The handshake is under way; further addresses to try if it fails.
    Connecting {
        session: SessionKey,
        channel: ChannelId,
        others: Vec<SocketAddr>,
    },
    /// It stands, and the handshake of TLS is under way on it, since then.
    Securing { party: Party, since: Time },
    /// It stands.
    Open {
        session: SessionKey,
        channel: ChannelId,
    },
    /// It stands, and its session has handed it over; its place among such.
    Exchange { line: usize },
    /// Its session has done with it; what is queued still has to leave.
    Closing { serial: u64 },
}

impl Stream {
    pub(crate) fn new(socket: TcpStream, state: State) -> Stream {
        Stream {
            socket,
            state,
            ended: false,
            trace: None,
            watched: None,
            tls: None,
            unix: false,
            prompt: false,
            queue: VecDeque::new(),
        }
    }

    /// Who hears what comes. Nobody hears of a handshake. What still comes at the end is of no
    /// interest; that the other side has closed is.
    pub(crate) fn hearer(&self) -> (SessionKey, ChannelId) {
        match self.state {
            State::Open { session, channel } => (session, channel),
            _ => (SessionKey::NOBODY, ACCEPTED),
        }
    }

    /// Whether it stands, and its session has not done with it.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Queues control bytes; says whether there was room.
    pub(crate) fn queue_control(&mut self, bytes: &[u8]) -> bool {
        self.put([bytes], SEND_QUEUE_BYTES + CONTROL_ROOM_BYTES)
    }

    /// Queues media; says whether there was room.
    pub(crate) fn queue(&mut self, parts: [&[u8]; 2]) -> bool {
        self.put(parts, SEND_QUEUE_BYTES)
    }

    /// Queues bytes, sealed where it is over TLS, if the queue is then no longer than that.
    fn put<const N: usize>(&mut self, parts: [&[u8]; N], most: usize) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = match self.tls {
            Some(_) => net::tls::sealed(length),
            None => length,
        };
        if self.queue.len() + length > most {
            return false;
        }
        match &mut self.tls {
            Some(layer) => {
                // Of what leaves over TLS a trace hears as it was before it was sealed.
                if let Some(trace) = &mut self.trace {
                    let at = trace.now();
                    parts.iter().for_each(|part| trace.sent([part, &[]], at));
                }
                layer.seal(&parts, &mut self.queue).is_ok()
            }
            None => {
                for part in parts {
                    self.queue.extend(part);
                }
                true
            }
        }
    }

    /// Opens what a connection over TLS brought. See [`Layer::open`].
    pub(crate) fn open_sealed(
        &mut self,
        bytes: &[u8],
        runs: &[Run],
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<Run>,
    ) -> Result<Taken, Fault> {
        match &mut self.tls {
            Some(layer) => layer.open(bytes, runs, plain, plain_runs, &mut self.queue),
            None => Ok(Taken::default()),
        }
    }

    /// Begins the handshake: its first message is queued.
    pub(crate) fn begin_handshake(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(layer) => layer.flush(&mut self.queue),
            None => Ok(()),
        }
    }

    /// Queues that nothing more is sent, where it is over TLS, and sends it if the connection takes
    /// it.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some(layer) = &mut self.tls
            && layer.close(&mut self.queue).is_ok()
        {
            // Whoever is gone need not hear it.
            let _ = self.flush();
        }
    }

    /// Has what comes acknowledged that soon.
    pub(crate) fn acknowledge(&mut self, acks: Acks) {
        self.prompt = acks == Acks::AtOnce;
        if !self.unix {
            // Kernels before Linux 6.15 cannot be told so.
            let _ = net::options::acknowledge_soon(&self.socket);
        }
    }

    /// Has the kernel take no more than it can send soon, so that what a slow connection holds back
    /// shows here.
    pub(crate) fn keep_little_unsent(&self) {
        if !self.unix {
            // Without it the kernel takes more, and what it holds back shows late.
            let _ = net::options::set_unsent_low_water(&self.socket, UNSENT_BYTES);
        }
    }

    /// How many bytes wait for the connection to take them.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Sends a message if the connection takes it, or at least its beginning, whose rest is then
    /// queued. Says whether it did. While anything is queued it takes none.
    #[inline]
    pub(crate) fn send_message(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if !self.queue.is_empty() {
            return Ok(false);
        }
        if self.tls.is_some() || self.trace.is_some() {
            return self.send_all(bytes).map(|()| true);
        }
        loop {
            match self.socket.write(bytes) {
                Ok(sent) if sent == bytes.len() => return Ok(true),
                Ok(sent) => {
                    self.queue.extend(&bytes[sent..]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends bytes, and queues what the connection does not take. Whoever calls it sees to a bound.
    pub(crate) fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let plain = self.tls.is_none() && self.trace.is_none();
        if plain && self.queue.is_empty() {
            return match self.send_message(bytes)? {
                true => Ok(()),
                false => {
                    self.queue.extend(bytes);
                    Ok(())
                }
            };
        }
        // A record has a bound of its own, and so has what TLS takes at once.
        for part in bytes.chunks(16 * 1024) {
            if !self.put([part], usize::MAX) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        self.flush()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends as much as the connection takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.queue.is_empty() {
            let (front, back) = self.queue.as_slices();
            let traced = self.trace.as_ref().filter(|_| self.tls.is_none());
            let at = traced.map(|trace| trace.now());
            match self
                .socket
                .write_vectored(&[IoSlice::new(front), IoSlice::new(back)])
            {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    if let (Some(trace), Some(at)) = (&mut self.trace, at) {
                        let (front, back) = (&front[..sent.min(front.len())], back);
                        trace.sent([front, &back[..sent - front.len()]], at);
                    }
                    self.queue.drain(..sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // A connection that was busy once should not hold its memory for ever.
        if self.queue.capacity() > 8 * 1024 {
            self.queue = VecDeque::new();
        }
        Ok(())
    }
}

/// Has a trace hear what was read, as many pieces as there are times.
#[cold]
pub(crate) fn trace_runs(trace: &mut TracedConnection, bytes: &[u8], runs: &[Run]) {
    let mut begin = 0;
    for together in runs.chunk_by(|one, next| one.at == next.at) {
        if let Some(last) = together.last() {
            trace.received(&bytes[begin..last.end], last.at);
            begin = last.end;
        }
    }
}
