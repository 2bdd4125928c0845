//! Own counters of a launched server. A thread requests them over the server's interface on this
//! machine.
//!
//! An answer costs the server: a PeerConnection of a room with a hundred others reports on each of
//! their streams. The server is therefore asked every 10 s at most, and for at most a hundredth of
//! the time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use measure::Recorder;
use measure::server as m;
use protocol::server_counters::{CounterInterface, CounterQuery, Counts, JanusAdmin, Step};
use protocol::websocket;

use crate::catalogue::CountersAccess;
use crate::error::SutError;

/// Minimum interval between two readings.
const EVERY: Duration = Duration::from_secs(10);

/// Minimum interval, as a multiple of the duration of a reading.
const COST_SHARE: u32 = 100;

/// Time limit for the next message of the server.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Time limit of a reading.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// Time limit for a server that was just started to answer.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Interval between attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Seed of the WebSocket masks, which hide nothing on the loopback interface.
const SEED: u64 = 1;

#[derive(Debug, Default)]
struct Readings {
    newest: Option<CounterQuery>,
    looks: u64,
    failed: u64,
}

/// Reads a server's own counters while it lives.
#[derive(Debug)]
pub(crate) struct Counters {
    found: Arc<Mutex<Readings>>,
    /// Maximum values that were already recorded.
    recorded: Counts,
    failed: u64,
    looks: u64,
    now: Option<Sender<Sender<()>>>,
    /// Its connection, for aborting a request that the server does not answer.
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Counters {
    /// Begins to read the counters of a running server, from the network of the calling thread.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub(crate) fn start(counted: &CountersAccess) -> Result<Counters, SutError> {
        let CounterInterface::JanusAdmin = counted.kind;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, counted.port));
        let mut asked = Connection::open(address, &counted.secret)
            .map_err(|reason| SutError::Counters { address, reason })?;
        let stream = asked.stream.try_clone();
        let stream = stream.map_err(|error| SutError::Counters {
            address,
            reason: error.to_string(),
        })?;
        let found = Arc::new(Mutex::new(Readings::default()));
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

    /// Requests a reading and waits for it.
    pub(crate) fn read_now(&self, within: Duration) {
        let (done, waits) = bounded(1);
        let Some(now) = &self.now else { return };
        let until = Instant::now() + within;
        // A reading in progress is awaited first.
        if now.send_deadline(done, until).is_ok() {
            let _ = waits.recv_deadline(until);
        }
    }

    /// Records new readings.
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
            // The number of lost packets can decrease, but a counter cannot.
            recorder.add(counter, now.saturating_sub(*most));
            *most = now.max(*most);
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.now = None;
        // The server may have closed the connection.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(found: &Mutex<Readings>) -> MutexGuard<'_, Readings> {
    // The data is consistent after each single change.
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follow(asked: &mut Connection, found: &Mutex<Readings>, wanted: &Receiver<Sender<()>>) {
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
            // The waiting thread may have given up.
            let _ = done.send(());
        }
    }
}

/// A connection to a server's own counters.
#[derive(Debug)]
struct Connection {
    admin: JanusAdmin,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects and takes one reading, which shows that the counters are available.
    fn open(address: SocketAddr, secret: &str) -> Result<Connection, String> {
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
        let mut asked = Connection {
            admin,
            stream,
            buffer: vec![0; 64 << 10],
        };
        asked.send(&request)?;
        asked.until_done(until)?;
        asked.look()?;
        Ok(asked)
    }

    fn look(&mut self) -> Result<CounterQuery, String> {
        let request = self.admin.start_query();
        self.send(&request)?;
        let look = self.until_done(Instant::now() + LOOK_WITHIN)?;
        look.ok_or_else(|| "no answer".to_owned())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|error| error.to_string())
    }

    /// Reads until the connection is open or a reading is complete.
    fn until_done(&mut self, until: Instant) -> Result<Option<CounterQuery>, String> {
        loop {
            if Instant::now() >= until {
                return Err("timed out".to_owned());
            }
            let read = self.stream.read(&mut self.buffer);
            let count = match read.map_err(|error| error.to_string())? {
                0 => return Err("the server closed the connection".to_owned()),
                count => count,
            };
            let mut step = self.admin.received(&self.buffer[..count])?;
            loop {
                match step {
                    Step::Wait => break,
                    Step::Open => return Ok(None),
                    Step::Done(look) => return Ok(Some(look)),
                    Step::Send(bytes) => self.send(&bytes)?,
                }
                step = self.admin.received(&[])?;
            }
        }
    }
}
