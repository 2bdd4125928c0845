//! Admission of runs: a thread that accepts connections and admits those that know the secret.
//!
//! An unauthenticated connection costs a descriptor and a few KiB, and times out soon. At the limit
//! of such connections each new one replaces the oldest, so that idle connections cannot keep runs
//! out. An authenticated connection is never dropped for another.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use kit::remote_receiver::messages::{LINE_MAX, ReceiverMessage, VERSION};
use kit::remote_receiver::{PROOF_TIMEOUT, Terms};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::worker::remote::{
    LineConnection, READ_TIMEOUT, ReceptionOrder, RunMessage, SILENCE_TIMEOUT, WorkerMessage,
};

/// Maximum number of unauthenticated connections.
const UNPROVEN_MAX: usize = 256;

/// Maximum number of authenticated connections whose order is pending, and capacity of the queue of
/// admitted runs.
const PROVEN_MAX: usize = 16;

const LISTENER: Token = Token(0);
const STOP: Token = Token(usize::MAX);

/// An admitted run and its order.
pub(super) type Admitted = (LineConnection, ReceptionOrder);

/// Handle of the admission thread. Dropping it ends the thread.
pub(super) struct Admission {
    stopped: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Admission {
    /// Starts the thread. Returns the channel of admitted runs.
    pub(super) fn open(
        listener: TcpListener,
        terms: Arc<Terms>,
    ) -> io::Result<(Admission, Receiver<Admitted>)> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let readable = Interest::READABLE;
        let registry = poll.registry();
        registry.register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, readable)?;
        let waker = Waker::new(registry, STOP)?;
        let (admitted, runs) = bounded(PROVEN_MAX);
        let stopped = Arc::new(AtomicBool::new(false));
        let admission_thread = AdmissionThread {
            poll,
            listener,
            terms,
            admitted,
            number: 0,
            waiting: BTreeMap::new(),
        };
        let stop = stopped.clone();
        let thread = std::thread::Builder::new()
            .name("door".to_owned())
            .spawn(move || admission_thread.work(&stop))?;
        let thread = Some(thread);
        let admission = Admission {
            stopped,
            waker,
            thread,
        };
        Ok((admission, runs))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // If the wake-up fails, the thread notices the flag within [`READ_TIMEOUT`].
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection that is not admitted yet.
struct PendingConnection {
    connection: LineConnection,
    challenge: String,
    until: Instant,
    proven: bool,
}

struct AdmissionThread {
    poll: Poll,
    listener: TcpListener,
    terms: Arc<Terms>,
    admitted: Sender<Admitted>,
    /// Number of the last connection.
    number: u64,
    /// By number, so the oldest is first.
    waiting: BTreeMap<u64, PendingConnection>,
}

impl AdmissionThread {
    fn work(mut self, stop: &AtomicBool) {
        let mut events = Events::with_capacity(UNPROVEN_MAX);
        let mut more = false;
        while !stop.load(Ordering::Relaxed) {
            let next = self.waiting.values().map(|pending| pending.until).min();
            let now = Instant::now();
            let turn = if more { Duration::ZERO } else { READ_TIMEOUT };
            let pause = next.map_or(turn, |next| next.saturating_duration_since(now).min(turn));
            // An interrupted poll has no events.
            if self.poll.poll(&mut events, Some(pause)).is_err() {
                events.clear();
            }
            let ready: Vec<Token> = events.iter().map(|event| event.token()).collect();
            // Before accepting, because new connections may replace those that wait.
            for token in &ready {
                if let Ok(number) = u64::try_from(token.0) {
                    self.handle_messages(number);
                }
            }
            // Accepts on every turn: after a failed accept the kernel does not report the same
            // connection again.
            more = self.accept();
            self.expire();
        }
    }

    /// Accepts new connections. Returns `true` if there may be more.
    fn accept(&mut self) -> bool {
        // Bounded, so that accepted connections are read in between.
        for _ in 0..UNPROVEN_MAX / 4 {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.number += 1;
                    if self.send_challenge(stream).is_err() {
                        self.terms.refuse();
                    }
                    self.handle_messages(self.number);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // No descriptor is left.
                Err(_) => return self.drop_oldest(),
            }
        }
        true
    }

    /// Sends the challenge and registers the connection, which may replace another.
    fn send_challenge(&mut self, stream: TcpStream) -> Result<(), String> {
        let system = |error: io::Error| error.to_string();
        stream.set_nonblocking(true).map_err(system)?;
        stream.set_nodelay(true).map_err(system)?;
        let unproven = self.waiting.values().filter(|other| !other.proven).count();
        if unproven >= UNPROVEN_MAX {
            self.drop_oldest();
        }
        let token = Token(usize::try_from(self.number).map_err(|error| error.to_string())?);
        let fd = stream.as_raw_fd();
        let mut source = SourceFd(&fd);
        let registry = self.poll.registry();
        registry
            .register(&mut source, token, Interest::READABLE)
            .map_err(system)?;
        let challenge = self.terms.challenge(self.number);
        let mut pending = PendingConnection {
            connection: LineConnection::new(stream),
            challenge: challenge.clone(),
            until: Instant::now() + PROOF_TIMEOUT,
            proven: false,
        };
        // The send buffer of a new connection has room for a line.
        pending.connection.send(&ReceiverMessage::Hello {
            version: VERSION,
            challenge,
        })?;
        self.waiting.insert(self.number, pending);
        Ok(())
    }

    /// Drops the oldest unauthenticated connection. Returns `false` if there is none.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.waiting.iter().find(|(_, other)| !other.proven);
        let Some(number) = oldest.map(|(&number, _)| number) else {
            return false;
        };
        self.waiting.remove(&number);
        self.terms.refuse();
        true
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let before = self.waiting.len();
        self.waiting.retain(|_, pending| now < pending.until);
        for _ in self.waiting.len()..before {
            self.terms.refuse();
        }
    }

    /// Handles the messages of a connection.
    fn handle_messages(&mut self, number: u64) {
        let proven = self.waiting.values().filter(|other| other.proven).count();
        let Some(pending) = self.waiting.get_mut(&number) else {
            return;
        };
        match pending.next(&self.terms, proven) {
            Ok(None) => {}
            Ok(Some(wanted)) => {
                if let Some(pending) = self.waiting.remove(&number) {
                    self.admit(pending, *wanted);
                }
            }
            Err(_) => {
                self.waiting.remove(&number);
                self.terms.refuse();
            }
        }
    }

    /// Admits a run.
    fn admit(&mut self, pending: PendingConnection, wanted: ReceptionOrder) {
        let stream = &pending.connection.stream;
        let _ = self
            .poll
            .registry()
            .deregister(&mut SourceFd(&stream.as_raw_fd()));
        let blocking = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(READ_TIMEOUT)))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE_TIMEOUT)));
        if blocking.is_err()
            || self
                .admitted
                .try_send((pending.connection, wanted))
                .is_err()
        {
            self.terms.refuse();
        }
    }
}

impl PendingConnection {
    /// Handles messages up to the order for the run. Returns `None` if it has not arrived
    /// completely; fails if the connection is refused or closed. `proven` is the number of
    /// authenticated connections.
    fn next(
        &mut self,
        terms: &Terms,
        proven: usize,
    ) -> Result<Option<Box<ReceptionOrder>>, String> {
        loop {
            let Some(order) = self.connection.receive::<RunMessage>(LINE_MAX)? else {
                // The rest of a long line causes no further readiness event, so the socket is read
                // until it would block.
                match self.connection.stream.peek(&mut [0]) {
                    Ok(_) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(error.to_string()),
                }
            };
            let why = match (self.proven, order) {
                (true, RunMessage::Prepare(wanted)) => return Ok(Some(wanted)),
                (false, RunMessage::Proof { proof }) if !terms.proves(&proof, &self.challenge) => {
                    "wrong secret: use the one that `streamgauge receive` was started with, or has printed"
                }
                (false, RunMessage::Proof { .. }) if proven >= PROVEN_MAX => {
                    "too many runs are waiting to be admitted"
                }
                (false, RunMessage::Proof { .. }) => {
                    self.proven = true;
                    self.until = Instant::now() + PROOF_TIMEOUT;
                    continue;
                }
                _ => return Err("another message was expected".to_owned()),
            };
            let why = why.to_owned();
            self.connection.send(&WorkerMessage::Refused { why })?;
            return Err("it was refused".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use kit::remote_receiver::{Secret, proof};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    struct Bench {
        at: SocketAddr,
        terms: Arc<Terms>,
        runs: Receiver<Admitted>,
        _admission: Admission,
    }

    impl Bench {
        fn new() -> Bench {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let at = listener.local_addr().expect("it is bound");
            let terms = Arc::new(Terms::new(Secret::new("known to both"), [3; 32], 9));
            let (admission, runs) =
                Admission::open(listener, terms.clone()).expect("a thread and a poll");
            Bench {
                at,
                terms,
                runs,
                _admission: admission,
            }
        }

        /// Connects and waits for the challenge, so that the connection is registered.
        fn connect(&self) -> (LineConnection, String) {
            let stream = TcpStream::connect(self.at).expect("it listens");
            let limit = Some(Duration::from_millis(10));
            stream.set_read_timeout(limit).expect("a socket");
            let mut connection = LineConnection::new(stream);
            match connection.wait::<ReceiverMessage>(PATIENCE) {
                Ok(ReceiverMessage::Hello { challenge, .. }) => (connection, challenge),
                other => panic!("{other:?}"),
            }
        }

        fn refused(&self, wanted: u64) {
            let until = Instant::now() + PATIENCE;
            while self.terms.refused() < wanted {
                assert!(Instant::now() < until, "{} refused", self.terms.refused());
                std::thread::park_timeout(Duration::from_micros(100));
            }
        }
    }

    fn prove(connection: &mut LineConnection, challenge: &str) {
        let proof = proof(&Secret::new("known to both"), challenge);
        connection
            .send(&RunMessage::Proof { proof })
            .expect("it is open");
    }

    fn prepare(connection: &mut LineConnection, version: &str) {
        let wanted = ReceptionOrder {
            version: version.to_owned(),
            populations: Vec::new(),
            ports: None,
            receive_buffer: 0,
            ring: 0,
        };
        let order = RunMessage::Prepare(Box::new(wanted));
        connection.send(&order).expect("it is open");
    }

    #[test]
    fn run_is_admitted_despite_idle_connections() {
        let bench = Bench::new();
        let idle: Vec<_> = (0..UNPROVEN_MAX).map(|_| bench.connect()).collect();
        let (mut run, challenge) = bench.connect();
        bench.refused(1);
        prove(&mut run, &challenge);
        // Longer than one read.
        prepare(&mut run, &"v".repeat(40_000));
        let (_, wanted) = bench
            .runs
            .recv_timeout(PATIENCE)
            .expect("it knows the secret");
        assert_eq!(wanted.version.len(), 40_000);
        drop(idle);
    }

    #[test]
    fn authenticated_connection_is_not_dropped_for_new_ones() {
        let bench = Bench::new();
        let (mut run, challenge) = bench.connect();
        prove(&mut run, &challenge);
        let idle: Vec<_> = (0..UNPROVEN_MAX + 10).map(|_| bench.connect()).collect();
        bench.refused(10);
        prepare(&mut run, "1");
        bench
            .runs
            .recv_timeout(PATIENCE)
            .expect("it kept its place");
        drop(idle);
    }

    #[test]
    fn wrong_secret_is_refused_and_silence_times_out() {
        let bench = Bench::new();
        let (mut wrong, _) = bench.connect();
        prove(&mut wrong, "another challenge");
        match wrong.wait::<WorkerMessage>(PATIENCE) {
            Ok(WorkerMessage::Refused { why }) => assert!(why.contains("wrong secret"), "{why}"),
            other => panic!("{other:?}"),
        }
        let (mut silent, _) = bench.connect();
        let asked = Instant::now();
        silent
            .wait::<WorkerMessage>(PATIENCE)
            .expect_err("it is closed");
        assert!(asked.elapsed() < PROOF_TIMEOUT + Duration::from_secs(2));
        // The counter is incremented after the connection is closed.
        bench.refused(2);
        assert!(bench.runs.is_empty());
    }
}
