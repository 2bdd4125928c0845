//! Where runs come in: a thread that accepts connections, and lets in those that know the secret.
//!
//! A connection that has shown nothing yet costs a descriptor and a few KiB, and has little time.
//! When there are too many of them, each newcomer takes the place of the oldest, so that nobody can
//! keep runs out by connecting and saying nothing. A connection that has proven itself is never
//! dropped for another.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use protocol::remote_receiver::messages::{LINE_MAX, Said, VERSION};
use protocol::remote_receiver::{PROOF_WITHIN, Terms};

use crate::remote_worker::{Answer, Order, ReceptionOrder, SILENCE, TURN, Talk};

/// How many connections may be unproven at a time.
const UNPROVEN_MAX: usize = 256;

/// How many may have shown that they know the secret, and not yet have said what they want. Also
/// how many runs wait to be looked at.
const PROVEN_MAX: usize = 16;

const LISTENER: Token = Token(0);
const STOP: Token = Token(usize::MAX);

/// A run that was let in, and what it wants.
pub(super) type Admitted = (Talk, ReceptionOrder);

/// The thread, which ends when this is dropped.
pub(super) struct Door {
    stopped: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens it. Gives the runs that come in.
    pub(super) fn open(
        listener: TcpListener,
        terms: Arc<Terms>,
    ) -> io::Result<(Door, Receiver<Admitted>)> {
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let readable = Interest::READABLE;
        let registry = poll.registry();
        registry.register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, readable)?;
        let waker = Waker::new(registry, STOP)?;
        let (admitted, runs) = bounded(PROVEN_MAX);
        let stopped = Arc::new(AtomicBool::new(false));
        let keeper = Keeper {
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
            .spawn(move || keeper.work(&stop))?;
        let thread = Some(thread);
        let door = Door {
            stopped,
            waker,
            thread,
        };
        Ok((door, runs))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // If it cannot be woken, it looks by itself after a turn.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection that is not let in yet.
struct Stranger {
    talk: Talk,
    challenge: String,
    until: Instant,
    proven: bool,
}

/// What becomes of a connection.
enum Fate {
    Waits,
    /// It is refused, or gone.
    Out,
    In(Box<ReceptionOrder>),
}

struct Keeper {
    poll: Poll,
    listener: TcpListener,
    terms: Arc<Terms>,
    admitted: Sender<Admitted>,
    /// Of the connection that came last.
    number: u64,
    /// By number, so the oldest comes first.
    waiting: BTreeMap<u64, Stranger>,
}

impl Keeper {
    fn work(mut self, stop: &AtomicBool) {
        let mut events = Events::with_capacity(UNPROVEN_MAX);
        let mut more = false;
        while !stop.load(Ordering::Relaxed) {
            let next = self.waiting.values().map(|stranger| stranger.until).min();
            let now = Instant::now();
            let turn = if more { Duration::ZERO } else { TURN };
            let pause = next.map_or(turn, |next| next.saturating_duration_since(now).min(turn));
            // Interrupted: there are no events then.
            if self.poll.poll(&mut events, Some(pause)).is_err() {
                events.clear();
            }
            let ready: Vec<Token> = events.iter().map(|event| event.token()).collect();
            // Those who wait are heard before newcomers take their places.
            for token in &ready {
                if let Ok(number) = u64::try_from(token.0) {
                    self.hear(number);
                }
            }
            // Asked each turn, because the kernel does not tell twice of those that could not be
            // accepted.
            more = self.accept();
            self.expire();
        }
    }

    /// Accepts newcomers; says whether there may be more.
    fn accept(&mut self) -> bool {
        // Those who were just accepted are heard in between.
        for _ in 0..UNPROVEN_MAX / 4 {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.number += 1;
                    if self.greet(stream).is_err() {
                        self.terms.refuse();
                    }
                    self.hear(self.number);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // No descriptor is left.
                Err(_) => return self.drop_oldest(),
            }
        }
        true
    }

    /// Gives a newcomer its challenge, and a place, which may have been another's.
    fn greet(&mut self, stream: TcpStream) -> Result<(), String> {
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
        let mut stranger = Stranger {
            talk: Talk::new(stream),
            challenge: challenge.clone(),
            until: Instant::now() + PROOF_WITHIN,
            proven: false,
        };
        // A new connection has room for a line.
        stranger.talk.say(&Said::Hello {
            version: VERSION,
            challenge,
        })?;
        self.waiting.insert(self.number, stranger);
        Ok(())
    }

    /// Makes room: the oldest connection that has proven nothing goes. Says whether there was one.
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
        self.waiting.retain(|_, stranger| now < stranger.until);
        for _ in self.waiting.len()..before {
            self.terms.refuse();
        }
    }

    /// Takes in what a connection has said.
    fn hear(&mut self, number: u64) {
        loop {
            let proven = self.waiting.values().filter(|other| other.proven).count();
            let Some(stranger) = self.waiting.get_mut(&number) else {
                return;
            };
            match stranger.next(&self.terms, proven) {
                Ok(Some(Fate::Waits)) => {}
                Ok(None) => return,
                Ok(Some(Fate::In(wanted))) => {
                    if let Some(stranger) = self.waiting.remove(&number) {
                        self.admit(stranger, *wanted);
                    }
                    return;
                }
                Ok(Some(Fate::Out)) | Err(_) => {
                    self.waiting.remove(&number);
                    self.terms.refuse();
                    return;
                }
            }
        }
    }

    /// Lets a run in.
    fn admit(&mut self, stranger: Stranger, wanted: ReceptionOrder) {
        let stream = &stranger.talk.stream;
        let _ = self
            .poll
            .registry()
            .deregister(&mut SourceFd(&stream.as_raw_fd()));
        let blocking = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(TURN)))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE)));
        if blocking.is_err() || self.admitted.try_send((stranger.talk, wanted)).is_err() {
            self.terms.refuse();
        }
    }
}

impl Stranger {
    /// What comes of what it says next; nothing where it has said nothing more. `proven` is how
    /// many have proven themselves.
    fn next(&mut self, terms: &Terms, proven: usize) -> Result<Option<Fate>, String> {
        let order = loop {
            if let Some(order) = self.talk.hear::<Order>(LINE_MAX)? {
                break order;
            }
            // Of what was left of a long line there is no further event.
            match self.talk.stream.peek(&mut [0]) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        };
        let why = match (self.proven, order) {
            (true, Order::Prepare(wanted)) => return Ok(Some(Fate::In(wanted))),
            (false, Order::Proof { proof }) if !terms.proves(&proof, &self.challenge) => {
                "the secret is another: it is what `streamgauge receive` was started with, or has printed"
            }
            (false, Order::Proof { .. }) if proven >= PROVEN_MAX => {
                "too many runs wait to be let in"
            }
            (false, Order::Proof { .. }) => {
                self.proven = true;
                self.until = Instant::now() + PROOF_WITHIN;
                return Ok(Some(Fate::Waits));
            }
            _ => return Ok(Some(Fate::Out)),
        };
        let why = why.to_owned();
        self.talk.say(&Answer::Refused { why })?;
        Ok(Some(Fate::Out))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use protocol::remote_receiver::{Secret, proof};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    struct Bench {
        at: SocketAddr,
        terms: Arc<Terms>,
        runs: Receiver<Admitted>,
        _door: Door,
    }

    impl Bench {
        fn new() -> Bench {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let at = listener.local_addr().expect("it is bound");
            let terms = Arc::new(Terms::new(Secret::new("known to both"), [3; 32], 9));
            let (door, runs) = Door::open(listener, terms.clone()).expect("a thread and a poll");
            Bench {
                at,
                terms,
                runs,
                _door: door,
            }
        }

        /// Connects, and waits for the challenge: then it has its place.
        fn connect(&self) -> (Talk, String) {
            let stream = TcpStream::connect(self.at).expect("it listens");
            let limit = Some(Duration::from_millis(10));
            stream.set_read_timeout(limit).expect("a socket");
            let mut talk = Talk::new(stream);
            match talk.wait::<Said>(PATIENCE) {
                Ok(Said::Hello { challenge, .. }) => (talk, challenge),
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

    fn prove(talk: &mut Talk, challenge: &str) {
        let proof = proof(&Secret::new("known to both"), challenge);
        talk.say(&Order::Proof { proof }).expect("it is open");
    }

    fn prepare(talk: &mut Talk, version: &str) {
        let wanted = ReceptionOrder {
            version: version.to_owned(),
            populations: Vec::new(),
            ports: None,
            receive_buffer: 0,
            ring: 0,
        };
        let order = Order::Prepare(Box::new(wanted));
        talk.say(&order).expect("it is open");
    }

    #[test]
    fn a_run_comes_in_past_idle_strangers() {
        let bench = Bench::new();
        let idle: Vec<_> = (0..UNPROVEN_MAX).map(|_| bench.connect()).collect();
        let (mut run, challenge) = bench.connect();
        bench.refused(1);
        prove(&mut run, &challenge);
        // Longer than what one read takes.
        prepare(&mut run, &"v".repeat(40_000));
        let (_, wanted) = bench
            .runs
            .recv_timeout(PATIENCE)
            .expect("it knows the secret");
        assert_eq!(wanted.version.len(), 40_000);
        drop(idle);
    }

    #[test]
    fn a_proven_connection_is_not_dropped_for_newcomers() {
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
    fn the_secret_must_be_known_and_time_is_short() {
        let bench = Bench::new();
        let (mut wrong, _) = bench.connect();
        prove(&mut wrong, "another challenge");
        match wrong.wait::<Answer>(PATIENCE) {
            Ok(Answer::Refused { why }) => assert!(why.contains("the secret is another"), "{why}"),
            other => panic!("{other:?}"),
        }
        let (mut silent, _) = bench.connect();
        let asked = Instant::now();
        silent.wait::<Answer>(PATIENCE).expect_err("it is closed");
        assert!(asked.elapsed() < PROOF_WITHIN + Duration::from_secs(2));
        // It is counted after it is closed.
        bench.refused(2);
        assert!(bench.runs.is_empty());
    }
}
