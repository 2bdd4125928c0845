//! Reading from one connection, step by step.

use std::io;

use measure::{ArrivalRun, Time};
use net::timed_read::TimedRead;

use super::super::ids::{ChannelKey, SocketId};
use super::super::runtime::Runtime;
use super::early_reads::Chunk;
use super::segment_times::WatchedConnection;
use super::stream::{State, trace_runs};
use super::{Connections, READ_BYTES, WantedRead};

/// Maximum number of reads of a connection before others are served.
const READS_A_TURN: usize = 4;

/// Maximum number of handshake reads in a loop iteration. Each costs as much as hundreds of
/// packets, and the handshakes of a thousand clients must not delay received data.
const HANDSHAKES_A_TURN: usize = 16;

/// A connection that is being read.
pub(crate) struct Reading {
    pub(crate) place: usize,
    wanted: WantedRead,
    /// Number of bytes still to be read.
    left: usize,
    reads: usize,
    buffer: Vec<u8>,
    /// Arrival times of the bytes of the last read.
    pub(crate) runs: Vec<ArrivalRun>,
    /// Early read that is being delivered, with the channel it belonged to.
    early: Option<(Chunk, ChannelKey)>,
    /// Size of the last read, and its maximum.
    count: usize,
    most: usize,
    /// True if the peer had closed the connection before the last read.
    ended: bool,
}

/// Result of a read.
pub(crate) enum Step {
    /// Bytes for a session; `at` is the arrival time of the last one.
    Bytes { to: ChannelKey, at: Time },
    /// Bytes to be decrypted.
    Sealed,
    /// The peer closed the connection.
    Ended,
    /// The connection failed.
    Broken,
    /// The read is complete.
    Done,
}

impl Reading {
    /// Bytes of the last read.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.early {
            Some((chunk, _)) => &chunk.bytes()[..self.count],
            None => &self.buffer[..self.count],
        }
    }

    /// Returns `true` if the connection may switch to periodic reads: it was read on readiness and
    /// not because bytes were known to have arrived.
    pub(crate) fn is_prompt(&self) -> bool {
        self.early.is_none() && self.wanted == WantedRead::All
    }
}

impl Connections {
    /// Starts reading a connection. Returns `None` if nothing is wanted.
    pub(crate) fn begin_reading(&mut self, place: usize, wanted: WantedRead) -> Option<Reading> {
        let left = match wanted {
            WantedRead::Known(count) => count,
            WantedRead::All => usize::MAX,
            WantedRead::Nothing => return None,
        };
        Some(Reading {
            place,
            wanted,
            left,
            reads: 0,
            buffer: std::mem::take(&mut self.buffers.read),
            runs: std::mem::take(&mut self.buffers.runs),
            early: None,
            count: 0,
            most: 0,
            ended: false,
        })
    }

    /// Takes back the buffers.
    pub(crate) fn end_reading(&mut self, reading: Reading) {
        self.buffers.read = reading.buffer;
        self.buffers.runs = reading.runs;
    }

    /// Reads once.
    pub(crate) fn read_once(&mut self, reading: &mut Reading, runtime: &mut Runtime) -> Step {
        let place = reading.place;
        let read = loop {
            reading.reads += 1;
            let Some(stream) = self.streams.get_mut(place) else {
                return Step::Done;
            };
            if matches!(stream.state, State::TlsHandshake { .. }) {
                self.handshakes += 1;
                if self.handshakes > HANDSHAKES_A_TURN {
                    runtime.read_later(SocketId::Connection(place));
                    return Step::Done;
                }
            }
            let to = match stream.state {
                State::Connecting { .. } | State::Exchange { .. } => return Step::Done,
                _ => stream.recipient(),
            };
            // Early reads come first.
            if let Some(chunk) = stream
                .watched
                .as_mut()
                .and_then(WatchedConnection::take_early)
            {
                let count = reading.left.min(chunk.bytes().len());
                let at = chunk.by;
                reading.early = Some((chunk, to));
                let exact = false;
                break TimedRead { count, at, exact };
            }
            if stream.watched.as_ref().is_some_and(|watched| watched.broke) {
                return Step::Broken;
            }
            reading.ended = stream.ended;
            reading.most = reading.left.min(READ_BYTES);
            let buffer = &mut reading.buffer[..reading.most];
            let timed = !matches!(reading.wanted, WantedRead::Known(_));
            match stream.read(buffer, timed, runtime) {
                Ok(TimedRead { count: 0, .. }) => return Step::Ended,
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let WantedRead::Known(_) = reading.wanted {
                        self.note_short_read(place, runtime.clock.now());
                    }
                    return Step::Done;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Step::Broken,
            }
        };
        reading.count = read.count;
        self.take_in(reading, read)
    }

    /// Determines the arrival times of the bytes that were read.
    fn take_in(&mut self, reading: &mut Reading, read: TimedRead) -> Step {
        let Some(stream) = self.streams.get_mut(reading.place) else {
            return Step::Done;
        };
        let TimedRead { count, at, exact } = read;
        stream.was_read(count);
        reading.runs.clear();
        match &mut stream.watched {
            Some(watched) => watched.take(count, at, exact, &mut reading.runs),
            None => net::arrival_times::append_unseen(count, at, exact, &mut reading.runs),
        }
        if stream.tls.is_some() {
            // With TLS, the trace records the decrypted bytes.
            return Step::Sealed;
        }
        if let Some(trace) = &mut stream.trace {
            trace_runs(trace, reading.bytes(), &reading.runs);
        }
        Step::Bytes {
            to: stream.recipient(),
            at: reading.runs.last().map_or(at, |run| run.at),
        }
    }

    /// Completes a read whose bytes were delivered. Returns `true` if another one is to follow.
    pub(crate) fn goes_on(&mut self, reading: &mut Reading, runtime: &mut Runtime) -> bool {
        let place = reading.place;
        if let WantedRead::Known(_) = reading.wanted {
            reading.left -= reading.count;
            if reading.count < reading.most {
                self.note_short_read(place, runtime.clock.now());
                return false;
            }
            return reading.left > 0;
        }
        // A read that leaves room in the buffer has taken all bytes. Later bytes cause an event of
        // their own, and so does the end, unless it was there before the read.
        if reading.count < reading.most && !reading.ended {
            return false;
        }
        if reading.reads >= READS_A_TURN {
            runtime.read_later(SocketId::Connection(place));
            return false;
        }
        true
    }

    /// Completes the delivery of an early read. Puts back the rest, unless the index belongs to
    /// another connection by now. Returns whether more is wanted, or `None` if the last read was
    /// not an early one.
    pub(crate) fn put_back(&mut self, reading: &mut Reading) -> Option<bool> {
        let (chunk, owner) = reading.early.take()?;
        let same = self.is_of(reading.place, owner);
        let stream = self.streams.get_mut(reading.place).filter(|_| same);
        match stream.and_then(|stream| stream.watched.as_mut()) {
            Some(watched) => watched.put_back(chunk, reading.count),
            None => {
                if let Some(times) = &self.segment_times {
                    times.forget(chunk);
                }
            }
        }
        reading.left -= reading.count;
        Some(reading.left > 0)
    }
}
