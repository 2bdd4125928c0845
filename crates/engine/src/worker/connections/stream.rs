//! A TCP connection of a worker: connecting, bounded sending, orderly closing.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;

use measure::{ArrivalRun, Time};
use mio::net::TcpStream;
use net::timed_read::TimedRead;
use net::tls::{Fault, OpenStatus, TlsLayer};
use session::AckDelay;

use super::super::ids::{ACCEPTED, ChannelKey, SessionKey};
use super::super::runtime::Runtime;
use super::segment_times::WatchedConnection;
use crate::trace::TracedConnection;

/// Maximum size of the send queue for media. A control message takes some hundred bytes; of
/// interleaved media, this is two seconds at 1 Mb/s. Media beyond this size is dropped.
pub(crate) const SEND_QUEUE_BYTES: usize = 256 * 1024;

/// Additional room of the send queue for control messages, so that a stream that is ahead of its
/// receiver does not close the channel. A connection that exceeds this as well is closed
/// ([`CloseReason::SendQueueFull`](session::CloseReason::SendQueueFull)).
pub(crate) const CONTROL_ROOM_BYTES: usize = 64 * 1024;

/// Maximum number of unsent bytes in the kernel, for a connection whose flow is notified when its
/// data was taken: enough to keep the connection busy between two checks.
const UNSENT_BYTES: usize = 16 * 1024;

/// Maximum number of expected bytes that are read together. The kernel's receive buffer grows to
/// twice as much.
const EXPECTED_BYTES_MAX: u64 = 128 * 1024;

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) state: State,
    /// True if a readiness event has reported the end or failure of the connection. No further
    /// event announces its remaining bytes.
    pub(crate) ended: bool,
    /// Records all bytes of a traced client.
    pub(crate) trace: Option<Box<TracedConnection>>,
    /// State of arrival times from the ring; `None` if the ring does not receive the segments.
    pub(crate) watched: Option<WatchedConnection>,
    /// TLS state; `None` for a plain connection.
    pub(crate) tls: Option<TlsLayer>,
    /// True for a Unix socket.
    pub(crate) unix: bool,
    /// True if the connection is read on readiness even while it carries media.
    pub(crate) prompt: bool,
    /// Number of bytes before the last of which the session does nothing.
    expected: u64,
    queue: VecDeque<u8>,
}

/// Role of this side in a TLS handshake, and the owner of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Party {
    /// A session connects as client.
    Client(ChannelKey),
    /// The connection was accepted; it has no session before the handshake is complete.
    Server { acceptor: usize, serial: u64 },
}

/// State of a connection.
#[derive(Debug)]
pub(crate) enum State {
    /// The TCP handshake is in progress; `others` are the addresses to try if it fails.
    Connecting {
        owner: ChannelKey,
        others: Vec<SocketAddr>,
    },
    /// The TLS handshake is in progress since `since`.
    TlsHandshake { party: Party, since: Time },
    /// The connection is established.
    Open(ChannelKey),
    /// The session handed the connection over; `exchange` is its index among the exchanges.
    Exchange { exchange: usize },
    /// The session has closed the connection; the rest of the queue is being sent.
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
            expected: 0,
            queue: VecDeque::new(),
        }
    }

    /// Returns the session and channel that receive the connection's bytes. During a handshake and
    /// while closing there is none, and only the end of the connection matters.
    pub(crate) fn recipient(&self) -> ChannelKey {
        match self.state {
            State::Open(owner) => owner,
            _ => SessionKey::NONE.channel(ACCEPTED),
        }
    }

    /// Index of the exchange that the connection was handed over to.
    pub(crate) fn exchange(&self) -> Option<usize> {
        match self.state {
            State::Exchange { exchange } => Some(exchange),
            _ => None,
        }
    }

    /// Returns `true` if the connection is established and not closing.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Queues control bytes. Returns `false` if the queue is full.
    pub(crate) fn queue_control(&mut self, bytes: &[u8]) -> bool {
        self.put([bytes], SEND_QUEUE_BYTES + CONTROL_ROOM_BYTES)
    }

    /// Queues media. Returns `false` if the queue is full.
    pub(crate) fn queue(&mut self, parts: [&[u8]; 2]) -> bool {
        self.put(parts, SEND_QUEUE_BYTES)
    }

    /// Queues bytes, encrypted if the connection uses TLS, unless the queue would exceed `max`
    /// bytes.
    fn put<const N: usize>(&mut self, parts: [&[u8]; N], max: usize) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = match self.tls {
            Some(_) => net::tls::sealed_length_max(length),
            None => length,
        };
        if self.queue.len() + length > max {
            return false;
        }
        match &mut self.tls {
            Some(layer) => {
                // With TLS, the trace records the bytes before encryption.
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

    /// Decrypts received bytes. See [`TlsLayer::open`].
    pub(crate) fn open_sealed(
        &mut self,
        bytes: &[u8],
        runs: &[ArrivalRun],
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<ArrivalRun>,
    ) -> Result<OpenStatus, Fault> {
        match &mut self.tls {
            Some(layer) => layer.open(bytes, runs, plain, plain_runs, &mut self.queue),
            None => Ok(OpenStatus::default()),
        }
    }

    /// Begins the TLS handshake by queuing its first message.
    pub(crate) fn begin_handshake(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(layer) => layer.flush(&mut self.queue),
            None => Ok(()),
        }
    }

    /// Queues the close alert if the connection uses TLS, and sends it if the connection takes it.
    pub(crate) fn close_tls(&mut self) {
        if let Some(layer) = &mut self.tls
            && layer.close(&mut self.queue).is_ok()
        {
            // The alert is not needed if the peer is gone.
            let _ = self.flush();
        }
    }

    /// Sets how soon received bytes are acknowledged.
    pub(crate) fn acknowledge(&mut self, acks: AckDelay) {
        self.prompt = acks == AckDelay::AtOnce;
        if !self.unix {
            // Not supported before Linux 6.15.
            let _ = net::options::limit_ack_delay(&self.socket);
        }
    }

    /// Delays readiness until these bytes have arrived, or as many as are read together.
    pub(crate) fn expect(&mut self, bytes: u64) {
        // Records of TLS have a length of their own, and media that is read periodically has a
        // low-water mark already.
        let is_read_rarely = self.watched.as_ref().is_some_and(|watched| watched.seldom);
        if self.prompt && self.tls.is_none() && !self.unix && !is_read_rarely {
            self.set_expected(bytes);
        }
    }

    /// Reads once. Unless `timed`, all bytes count as having arrived by the start of the loop
    /// iteration.
    #[inline]
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        timed: bool,
        runtime: &Runtime,
    ) -> io::Result<TimedRead> {
        if timed {
            return net::timed_read::read_timed(&self.socket, buffer, &runtime.clock);
        }
        Ok(TimedRead {
            count: net::timed_read::read_untimed(&self.socket, buffer)?,
            at: runtime.turn,
            exact: false,
        })
    }

    /// Notes that this many bytes were read.
    pub(crate) fn was_read(&mut self, count: usize) {
        if self.expected > 0 {
            self.set_expected(self.expected.saturating_sub(count as u64));
        }
    }

    fn set_expected(&mut self, bytes: u64) {
        let mark = |expected: u64| expected.clamp(1, EXPECTED_BYTES_MAX) as usize;
        let (before, wanted) = (mark(self.expected), mark(bytes));
        self.expected = bytes;
        if wanted != before && net::options::set_receive_low_water(&self.socket, wanted).is_err() {
            // The kernel refuses only for a socket that is not open, whose end is announced anyway.
            self.expected = 0;
        }
    }

    /// Limits the unsent bytes in the kernel, so that this side notices when a slow connection
    /// holds data back.
    pub(crate) fn keep_little_unsent(&self) {
        if !self.unix {
            // Without the limit, the kernel takes more, and congestion is noticed late.
            let _ = net::options::set_unsent_low_water(&self.socket, UNSENT_BYTES);
        }
    }

    /// Number of bytes in the send queue.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Sends a message if the connection takes at least its beginning; the rest is queued. Returns
    /// `false` if it takes nothing, as always while the queue is not empty.
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

    /// Sends bytes, and queues what the connection does not take. The caller limits the size of the
    /// queue.
    pub(crate) fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let plain = self.tls.is_none() && self.trace.is_none();
        if plain && self.queue.is_empty() {
            if !self.send_message(bytes)? {
                self.queue.extend(bytes);
            }
            return Ok(());
        }
        // TLS limits the size of a record, and of the plain text that it takes at once.
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

    /// Sends as much of the queue as the connection takes.
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
        // A connection that was busy once should not keep its memory.
        if self.queue.capacity() > 8 * 1024 {
            self.queue = VecDeque::new();
        }
        Ok(())
    }
}

/// Records received bytes in a trace, one entry for each arrival time.
#[cold]
pub(crate) fn trace_runs(trace: &mut TracedConnection, bytes: &[u8], runs: &[ArrivalRun]) {
    let mut begin = 0;
    for together in runs.chunk_by(|one, next| one.at == next.at) {
        if let Some(last) = together.last() {
            trace.received(&bytes[begin..last.end], last.at);
            begin = last.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use mio::{Events, Interest, Poll, Token};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn is_readable(stream: &mut Stream, wait: Duration) -> bool {
        let mut poll = Poll::new().expect("there are descriptors");
        let mut events = Events::with_capacity(1);
        let registry = poll.registry().try_clone().expect("there are descriptors");
        registry
            .register(&mut stream.socket, Token(0), Interest::READABLE)
            .expect("it is open");
        poll.poll(&mut events, Some(wait))
            .expect("it can be polled");
        registry
            .deregister(&mut stream.socket)
            .expect("it is registered");
        !events.is_empty()
    }

    /// Waits until this many bytes can be read.
    fn wait_for(stream: &Stream, count: usize) {
        let until = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 1 << 20];
        while stream.socket.peek(&mut buffer).unwrap_or_default() < count {
            assert!(Instant::now() < until, "the bytes did not arrive");
            std::thread::yield_now();
        }
    }

    #[test]
    fn expected_bytes_are_announced_together_and_later_ones_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = listener.local_addr().expect("it is bound");
        for prompt in [true, false] {
            let socket = TcpStream::connect(to).expect("it listens");
            let (mut theirs, _) = listener.accept().expect("it connected");
            theirs.set_nodelay(true).expect("it is open");
            let state = State::Open(SessionKey::NONE.channel(ACCEPTED));
            let mut stream = Stream::new(socket, state);
            if prompt {
                stream.acknowledge(AckDelay::AtOnce);
            }
            stream.expect(1000);
            theirs.write_all(&[7; 500]).expect("it takes them");
            wait_for(&stream, 500);
            assert_eq!(is_readable(&mut stream, Duration::ZERO), !prompt);
            // A read for another reason.
            stream.was_read(500);
            let mut buffer = [0; 500];
            io::Read::read_exact(&mut stream.socket, &mut buffer).expect("they are there");
            theirs.write_all(&[7; 499]).expect("it takes them");
            wait_for(&stream, 499);
            assert_eq!(is_readable(&mut stream, Duration::ZERO), !prompt);
            theirs.write_all(&[7]).expect("it takes it");
            assert!(is_readable(&mut stream, PATIENCE));
            wait_for(&stream, 500);
            stream.was_read(500);
            io::Read::read_exact(&mut stream.socket, &mut buffer).expect("they are there");
            theirs.write_all(&[7]).expect("it takes it");
            assert!(
                is_readable(&mut stream, PATIENCE),
                "nothing is expected any more"
            );
        }
    }
}
