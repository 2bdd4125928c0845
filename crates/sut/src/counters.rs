//! What a launched server counts itself: asked over its own interface on this machine, by a thread.
//!
//! To tell costs the server: a PeerConnection of a room with a hundred others tells of each of
//! their streams. So it is asked every 10 s at most, and for a hundredth of the time at most.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use measure::Recorder;
use measure::server as m;
use protocol::server_counters::{Counts, JanusAdmin, Kind, Look, Step};
use protocol::websocket;

use crate::catalogue::Counted;
use crate::error::SutError;

/// The least time between two looks.
const EVERY: Duration = Duration::from_secs(10);

/// One look in this many times its own cost.
const COST_SHARE: u32 = 100;

/// How long the server may take to say the next thing.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// How long a look may take.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// How long a server that was just started may take to be asked.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// How often it is tried.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// What masks of WebSockets follow from: they hide nothing on the loopback interface.
const SEED: u64 = 1;

#[derive(Debug, Default)]
struct Found {
    newest: Option<Look>,
    looks: u64,
    failed: u64,
}

/// Asks a server what it counts, while it lives.
#[derive(Debug)]
pub(crate) struct Counters {
    found: Arc<Mutex<Found>>,
    /// The most that was recorded already.
    recorded: Counts,
    failed: u64,
    looks: u64,
    now: Option<Sender<Sender<()>>>,
    /// Its connection: to break off what the server does not answer.
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Counters {
    /// Begins to ask the server, which runs, from the network of the calling thread.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(crate) fn start(counted: &Counted) -> Result<Counters, SutError> {
        let Kind::JanusAdmin = counted.kind;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, counted.port));
        let mut asked = Asked::open(address, &counted.secret)
            .map_err(|reason| SutError::Counters { address, reason })?;
        let stream = asked.stream.try_clone();
        let stream = stream.map_err(|error| SutError::Counters {
            address,
            reason: error.to_string(),
        })?;
        let found = Arc::new(Mutex::new(Found::default()));
        let (now, wanted) = bounded(1);
        let own = found.clone();
        let thread = std::thread::Builder::new()
            .name("counters".to_owned())
            .spawn(move || follow(&mut asked, &own, &wanted))
            .map_err(|error| SutError::Supervisor(error.to_string()))?;
        Ok(Counters {
            found,
            recorded: Counts::default(),
            failed: 0,
            looks: 0,
            now: Some(now),
            stream,
            thread: Some(thread),
        })
    }

    /// Has it asked now, and waits for that.
    pub(crate) fn look_now(&self, within: Duration) {
        let (done, waits) = bounded(1);
        let Some(now) = &self.now else { return };
        let until = Instant::now() + within;
        // Where a look is under way, that one is waited for first.
        if now.send_deadline(done, until).is_ok() {
            let _ = waits.recv_deadline(until);
        }
    }

    /// Records what is new.
    pub(crate) fn record(&mut self, recorder: &mut Recorder) {
        let found = lock(&self.found);
        let failed = found.failed - std::mem::replace(&mut self.failed, found.failed);
        recorder.add(m::COUNTS_FAILED, failed);
        let looks = found.looks - std::mem::replace(&mut self.looks, found.looks);
        recorder.add(m::COUNTS_READ, looks);
        let newest = found.newest.filter(|_| looks > 0);
        let Some(look) = newest else {
            recorder.unset(m::COUNTED_PEERS);
            recorder.unset(m::COUNTED_QUEUED);
            return;
        };
        recorder.set(m::COUNTED_PEERS, look.peers as f64);
        recorder.set(m::COUNTED_QUEUED, look.queued as f64);
        let (now, most) = (look.counts, &mut self.recorded);
        for (counter, now, most) in [
            (m::COUNTED_PACKETS_IN, now.packets_in, &mut most.packets_in),
            (m::COUNTED_BYTES_IN, now.bytes_in, &mut most.bytes_in),
            (
                m::COUNTED_PACKETS_OUT,
                now.packets_out,
                &mut most.packets_out,
            ),
            (m::COUNTED_BYTES_OUT, now.bytes_out, &mut most.bytes_out),
            (m::COUNTED_NACKED_IN, now.nacked_in, &mut most.nacked_in),
            (m::COUNTED_NACKED_OUT, now.nacked_out, &mut most.nacked_out),
            (
                m::COUNTED_RETRANSMISSIONS_IN,
                now.retransmissions_in,
                &mut most.retransmissions_in,
            ),
            (m::COUNTED_LOST_IN, now.lost_in, &mut most.lost_in),
            (m::COUNTED_LOST_OUT, now.lost_out, &mut most.lost_out),
        ] {
            // What is lost may become less, and a counter may not.
            recorder.add(counter, now.saturating_sub(*most));
            *most = now.max(*most);
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.now = None;
        // It may have been closed by the server.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    // What is kept stays whole after each single change.
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follow(asked: &mut Asked, found: &Mutex<Found>, wanted: &Receiver<Sender<()>>) {
    let mut pause = EVERY;
    loop {
        let waits = match wanted.recv_timeout(pause) {
            Ok(done) => Some(done),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let began = Instant::now();
        let look = asked.look();
        pause = EVERY.max(began.elapsed().saturating_mul(COST_SHARE));
        {
            let mut found = lock(found);
            match look {
                Ok(look) => {
                    found.newest = Some(look);
                    found.looks += 1;
                }
                Err(_) => found.failed += 1,
            }
        }
        if let Some(done) = waits {
            // Whoever waited may have given up.
            let _ = done.send(());
        }
    }
}

/// A connection that is asked.
#[derive(Debug)]
struct Asked {
    admin: JanusAdmin,
    stream: TcpStream,
    room: Vec<u8>,
}

impl Asked {
    /// Connects, and looks once: then it is known that it can be asked.
    fn open(address: SocketAddr, secret: &str) -> Result<Asked, String> {
        let until = Instant::now() + OPEN_WITHIN;
        let stream = loop {
            match TcpStream::connect_timeout(&address, ANSWER_WITHIN) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= until => return Err(error.to_string()),
                Err(_) => std::thread::sleep(TRY_EVERY),
            }
        };
        let url = websocket::parse_url(&format!("ws://{address}/"));
        let url = url.map_err(|error| error.to_string())?;
        let (admin, request) = JanusAdmin::begin(&url, secret, SEED);
        let text = |error: std::io::Error| error.to_string();
        stream.set_nodelay(true).map_err(text)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(text)?;
        stream
            .set_write_timeout(Some(ANSWER_WITHIN))
            .map_err(text)?;
        let mut asked = Asked {
            admin,
            stream,
            room: vec![0; 64 << 10],
        };
        asked.send(&request)?;
        asked.until_done(until)?;
        asked.look()?;
        Ok(asked)
    }

    fn look(&mut self) -> Result<Look, String> {
        let request = self.admin.look();
        self.send(&request)?;
        let look = self.until_done(Instant::now() + LOOK_WITHIN)?;
        look.ok_or_else(|| "it did not answer".to_owned())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|error| error.to_string())
    }

    /// Until the connection is open, or a look is over.
    fn until_done(&mut self, until: Instant) -> Result<Option<Look>, String> {
        loop {
            if Instant::now() >= until {
                return Err("it took too long".to_owned());
            }
            let read = self.stream.read(&mut self.room);
            let count = match read.map_err(|error| error.to_string())? {
                0 => return Err("the connection ended".to_owned()),
                count => count,
            };
            let mut step = self.admin.take(&self.room[..count])?;
            loop {
                match step {
                    Step::Wait => break,
                    Step::Open => return Ok(None),
                    Step::Done(look) => return Ok(Some(look)),
                    Step::Send(bytes) => self.send(&bytes)?,
                }
                step = self.admin.take(&[])?;
            }
        }
    }
}
