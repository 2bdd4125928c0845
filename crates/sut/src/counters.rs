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
use kit::server_counters::{CounterInterface, CounterSnapshot, Counts, JanusAdmin, Step};
use kit::websocket;
use measure::server as m;
use measure::{CounterId, Recorder};

use crate::catalogue::CountersAccess;
use crate::error::SutError;

/// Minimum interval between two readings.
const READING_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum interval, as a multiple of the duration of a reading.
const COST_SHARE: u32 = 100;

/// Time limit for the next message of the server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit of a reading.
const READING_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for a server that was just started to answer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Seed of the WebSocket masks, which hide nothing on the loopback interface.
const SEED: u64 = 1;

/// Selects one of the counts of a reading.
type SelectCount = fn(&mut Counts) -> &mut u64;

/// The counts of a reading, and the counters that record them.
const COUNTS: [(CounterId, SelectCount); 9] = [
    (m::COUNTED_PACKETS_IN, |counts| &mut counts.packets_in),
    (m::COUNTED_BYTES_IN, |counts| &mut counts.bytes_in),
    (m::COUNTED_PACKETS_OUT, |counts| &mut counts.packets_out),
    (m::COUNTED_BYTES_OUT, |counts| &mut counts.bytes_out),
    (m::COUNTED_NACKED_IN, |counts| &mut counts.nacked_in),
    (m::COUNTED_NACKED_OUT, |counts| &mut counts.nacked_out),
    (m::COUNTED_RETRANSMISSIONS_IN, |counts| {
        &mut counts.retransmissions_in
    }),
    (m::COUNTED_LOST_IN, |counts| &mut counts.lost_in),
    (m::COUNTED_LOST_OUT, |counts| &mut counts.lost_out),
];

#[derive(Debug, Default)]
struct Readings {
    newest: Option<CounterSnapshot>,
    completed: u64,
    failed: u64,
}

/// Reads a server's own counters while it lives.
#[derive(Debug)]
pub(crate) struct Counters {
    readings: Arc<Mutex<Readings>>,
    /// Maximum values that were already recorded.
    recorded: Counts,
    failed: u64,
    completed: u64,
    requests: Option<Sender<Sender<()>>>,
    /// Its connection, for aborting a request that the server does not answer.
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Counters {
    /// Begins to read the counters of a running server, from the network of the calling thread.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub(crate) fn start(access: &CountersAccess) -> Result<Counters, SutError> {
        let CounterInterface::JanusAdmin = access.kind;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, access.port));
        let failed = |reason| SutError::Counters { address, reason };
        let mut connection = Connection::open(address, &access.secret).map_err(failed)?;
        let stream = connection.stream.try_clone();
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        let readings = Arc::new(Mutex::new(Readings::default()));
        let (requests, received) = bounded(1);
        let shared = readings.clone();
        let thread = std::thread::Builder::new()
            .name("counters".to_owned())
            .spawn(move || follow(&mut connection, &shared, &received))
            .map_err(|error| SutError::Supervisor(error.to_string()))?;
        Ok(Counters {
            readings,
            recorded: Counts::default(),
            failed: 0,
            completed: 0,
            requests: Some(requests),
            stream,
            thread: Some(thread),
        })
    }

    /// Requests a reading and waits for it.
    pub(crate) fn read_now(&self, within: Duration) {
        let (done, completion) = bounded(1);
        let Some(requests) = &self.requests else {
            return;
        };
        let until = Instant::now() + within;
        // A reading in progress is awaited first.
        if requests.send_deadline(done, until).is_ok() {
            let _ = completion.recv_deadline(until);
        }
    }

    /// Records new readings.
    pub(crate) fn record(&mut self, recorder: &mut Recorder) {
        let readings = lock(&self.readings);
        let failed = readings.failed - std::mem::replace(&mut self.failed, readings.failed);
        recorder.add(m::COUNTS_FAILED, failed);
        let completed =
            readings.completed - std::mem::replace(&mut self.completed, readings.completed);
        recorder.add(m::COUNTS_READ, completed);
        let newest = readings.newest.filter(|_| completed > 0);
        let Some(reading) = newest else {
            recorder.unset(m::COUNTED_PEERS);
            recorder.unset(m::COUNTED_QUEUED);
            return;
        };
        recorder.set(m::COUNTED_PEERS, reading.peers as f64);
        recorder.set(m::COUNTED_QUEUED, reading.queued as f64);
        let mut counts = reading.counts;
        for (counter, count) in COUNTS {
            let (now, recorded) = (*count(&mut counts), count(&mut self.recorded));
            // The number of lost packets can decrease, but a counter cannot.
            recorder.add(counter, now.saturating_sub(*recorded));
            *recorded = now.max(*recorded);
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.requests = None;
        // The server may have closed the connection.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(readings: &Mutex<Readings>) -> MutexGuard<'_, Readings> {
    // The data is consistent after each single change.
    readings.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follow(
    connection: &mut Connection,
    readings: &Mutex<Readings>,
    requests: &Receiver<Sender<()>>,
) {
    let mut pause = READING_INTERVAL;
    loop {
        let waiting = match requests.recv_timeout(pause) {
            Ok(done) => Some(done),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let began = Instant::now();
        let reading = connection.read();
        pause = READING_INTERVAL.max(began.elapsed().saturating_mul(COST_SHARE));
        {
            let mut readings = lock(readings);
            match reading {
                Ok(reading) => {
                    readings.newest = Some(reading);
                    readings.completed += 1;
                }
                Err(_) => readings.failed += 1,
            }
        }
        if let Some(done) = waiting {
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
        let until = Instant::now() + OPEN_TIMEOUT;
        let stream = loop {
            match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= until => return Err(error.to_string()),
                Err(_) => std::thread::sleep(CONNECT_INTERVAL),
            }
        };
        let url = websocket::parse_url(&format!("ws://{address}/"));
        let url = url.map_err(|error| error.to_string())?;
        let (admin, request) = JanusAdmin::begin(&url, secret, SEED);
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(ANSWER_TIMEOUT)))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
            .map_err(|error| error.to_string())?;
        let mut connection = Connection {
            admin,
            stream,
            buffer: vec![0; 64 << 10],
        };
        connection.send(&request)?;
        connection.until_done(until)?;
        connection.read()?;
        Ok(connection)
    }

    fn read(&mut self) -> Result<CounterSnapshot, String> {
        let request = self.admin.start_query();
        self.send(&request)?;
        let reading = self.until_done(Instant::now() + READING_TIMEOUT)?;
        reading.ok_or_else(|| "no answer".to_owned())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|error| error.to_string())
    }

    /// Reads until the connection is open or a reading is complete.
    fn until_done(&mut self, until: Instant) -> Result<Option<CounterSnapshot>, String> {
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
                    Step::Done(reading) => return Ok(Some(reading)),
                    Step::Send(bytes) => self.send(&bytes)?,
                }
                step = self.admin.received(&[])?;
            }
        }
    }
}
