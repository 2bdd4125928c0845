//! Periodic reads of connections with media, with arrival times from the packet ring.
//!
//! Reading a connection for each segment costs several times as much as everything else that is
//! done for a packet: a wake-up, a system call, and the acknowledgement that the kernel sends when
//! all bytes have been read. Once its media has begun, a connection is therefore read every
//! [`READ_INTERVAL`](super::read_schedule::READ_INTERVAL), or when [`LOW_WATER`] bytes are
//! available, and then together with other connections that receive as much
//! ([`super::read_schedule`]). This does not distort measurements, because arrival times do not
//! come from reading: the packet ring receives each segment ([`net::arrival_times`]). For that, a
//! client connects from a port of the worker's own range. Bytes whose segments the ring has not
//! delivered are not read if they can wait, so that each byte has its arrival time. If too many
//! bytes arrive before that, they are read and held until the ring has delivered their segments
//! ([`super::early_reads`]).
//!
//! Until media has begun, a connection is read on readiness. Its end is noticed immediately, and
//! deferred until the ring has caught up. A connection whose segments the ring does not receive (no
//! free port in the range, the beginning was missed, address translation, clients that read at once
//! anyway) is read on readiness for its whole lifetime.
//!
//! Segments from the ring are queued by share, and processed when the turn of the share comes. With
//! thousands of connections, the state of each is then fetched from memory once for each turn, not
//! for each segment.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;

use measure::{ArrivalRun, Time};
use mio::net::TcpStream;
use net::ConnectPorts;
use net::arrival_times::{SegmentArrivals, SegmentHeader};
use net::ring::Segment;

use super::early_reads::{CHUNK, Chunk, ChunkPool, EarlyRead, EarlyReads};

/// Number of shares that are read one after the other, so that the loop is never busy with reading
/// for long.
pub(crate) const SHARES: usize = 10;

/// Number of available bytes at which the kernel reports a connection readable before its turn: the
/// data of 6.5 Mb/s between two turns. From then on, the connection is also read while the loop is
/// awake, as soon as the ring has delivered a quarter of these bytes. Bytes that the ring has not
/// delivered at the event, because the stream is fast or arrives in large bursts, are read at once
/// and held until the ring has delivered their segments.
///
/// Processor time behind a relay that sends large bursts: 256 KiB took 0.6 (8 connections of 40
/// Mb/s) to 0.85 (one of 400 Mb/s) of that of 128 KiB, and 320 KiB took 0.9 of that of 256 KiB;
/// more saves less. The value must stay well below the buffer of a server on the same machine that
/// sends without copying. msd_lite overwrites its ring buffer of 1 MiB: with 1 MiB waiting here, 6
/// to 12 % of its datagrams were corrupt, and none with a client that reads promptly.
pub(crate) const LOW_WATER: usize = CHUNK / 2;

/// Room that the kernel must have, as a multiple of [`LOW_WATER`]: periodic reads must never block
/// the sender.
const ROOM_FOR: usize = 4;

/// Number of segments that are processed together.
const TOGETHER: usize = 32;

/// Maximum number of queued segments of one share: 1,000,000 segments a second over all shares
/// between two turns.
const ASIDE_MAX: usize = 40_000;

/// The connections whose segments the ring receives, by local port.
#[derive(Debug)]
struct SegmentWatch {
    first: u16,
    ports: ConnectPorts,
    /// Remote addresses.
    remotes: Vec<Option<SocketAddr>>,
    connections: Vec<Option<Box<Connection>>>,
    /// Segments from the ring that are not processed yet, by share.
    aside: [Vec<QueuedSegment>; SHARES],
    /// Chunk pool for early reads.
    room: ChunkPool,
}

/// A queued segment.
#[derive(Clone, Copy, Debug)]
struct QueuedSegment {
    at: Time,
    header: SegmentHeader,
    port: u16,
}

#[derive(Debug, Default)]
struct Connection {
    segments: SegmentArrivals,
    /// Index in the worker's connections if the connection is read periodically.
    periodic: Option<usize>,
}

/// Arrival times of the segments of a worker's connections.
#[derive(Debug)]
pub(crate) struct SegmentTimes {
    watch: Rc<RefCell<SegmentWatch>>,
    /// Number of connections that are read periodically.
    seldom: Rc<Cell<usize>>,
    /// True if a connection waits for its first segment from the ring to start periodic reads.
    pub(super) hurries: Cell<bool>,
}

/// A connection whose segments the ring receives. Dropping it releases the port.
#[derive(Debug)]
pub(crate) struct WatchedConnection {
    watch: Rc<RefCell<SegmentWatch>>,
    count: Rc<Cell<usize>>,
    port: u16,
    /// True if the connection is read periodically.
    pub(crate) seldom: bool,
    /// True if the connection is in the list of fast connections.
    pub(crate) fast: bool,
    /// True if the end of the connection is deferred until the ring has caught up.
    pub(crate) ending: bool,
    /// Time of the last read.
    pub(crate) read: Time,
    /// Early reads that are not delivered yet.
    early: EarlyReads,
    /// True if the connection failed after these bytes.
    pub(crate) broke: bool,
}

impl SegmentTimes {
    /// Creates the state for connections from `ports`.
    pub(crate) fn new(ports: RangeInclusive<u16>) -> SegmentTimes {
        SegmentTimes {
            watch: Rc::new(RefCell::new(SegmentWatch {
                first: *ports.start(),
                remotes: vec![None; ports.len()],
                connections: ports.clone().map(|_| None).collect(),
                ports: ConnectPorts::new(ports),
                aside: Default::default(),
                room: ChunkPool::default(),
            })),
            seldom: Rc::default(),
            hurries: Cell::default(),
        }
    }

    /// Begins to connect from a port of the range. Returns `None` if no port is free.
    pub(crate) fn connect(
        &self,
        to: SocketAddr,
    ) -> io::Result<Option<(TcpStream, WatchedConnection)>> {
        let mut watch = self.watch.borrow_mut();
        let (socket, port) = match watch.ports.connect(to) {
            Ok(connected) => connected,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(error),
        };
        // Segments that have arrived already are still in the ring, which this thread reads.
        watch.open(port, to);
        let watched = WatchedConnection {
            watch: self.watch.clone(),
            count: self.seldom.clone(),
            port,
            seldom: false,
            fast: false,
            ending: false,
            read: Time::ZERO,
            early: EarlyReads::default(),
            broke: false,
        };
        Ok(Some((TcpStream::from_std(socket), watched)))
    }

    /// Queues a segment from the ring.
    #[inline]
    pub(crate) fn queue(&self, segment: &Segment) {
        self.watch.borrow_mut().put_aside(segment);
    }

    /// Processes the queued segments of a share. Appends the indices of the share's periodically
    /// read connections to `indices`.
    pub(crate) fn begin_turn(&self, share: usize, indices: &mut Vec<usize>) {
        self.hurries.set(false);
        let mut watch = self.watch.borrow_mut();
        watch.take_in(share);
        let connections = watch.connections.iter().skip(share).step_by(SHARES);
        indices.extend(connections.flatten().filter_map(|c| c.periodic));
    }

    /// Releases a chunk of a connection that is gone.
    pub(crate) fn forget(&self, chunk: Chunk) {
        self.watch.borrow_mut().room.take_back(chunk);
    }

    /// Returns `true` if any connection is read periodically.
    pub(crate) fn is_needed(&self) -> bool {
        self.seldom.get() > 0
    }

    /// Returns `true` if the ring must be read as soon as it has anything.
    pub(crate) fn needs_prompt_reads(&self) -> bool {
        self.is_needed() || self.hurries.get()
    }
}

impl SegmentWatch {
    fn index(&self, port: u16) -> Option<usize> {
        let index = usize::from(port.checked_sub(self.first)?);
        (index < self.connections.len()).then_some(index)
    }

    fn open(&mut self, port: u16, to: SocketAddr) {
        let Some(index) = self.index(port) else {
            return;
        };
        // Segments of the port's previous connection do not belong to this one.
        self.aside[index % SHARES].retain(|aside| aside.port != port);
        self.remotes[index] = Some(to);
        self.connections[index] = Some(Box::default());
    }

    #[inline]
    fn connection(&mut self, port: u16) -> Option<&mut Connection> {
        let index = port.checked_sub(self.first)?;
        self.connections.get_mut(usize::from(index))?.as_deref_mut()
    }

    #[inline]
    fn put_aside(&mut self, segment: &Segment) {
        let port = segment.to.port();
        let Some(index) = self.index(port) else {
            return;
        };
        // The zone of an IPv6 address may differ.
        let (seen, remote) = (segment.from, self.remotes[index]);
        if remote.is_none_or(|remote| seen.port() != remote.port() || seen.ip() != remote.ip()) {
            return;
        }
        let share = index % SHARES;
        self.aside[share].push(QueuedSegment {
            at: segment.at,
            header: segment.header,
            port,
        });
        if self.aside[share].len() >= ASIDE_MAX {
            self.take_in(share);
        }
    }

    /// Processes the queued segments of a share.
    fn take_in(&mut self, share: usize) {
        let mut aside = std::mem::take(&mut self.aside[share]);
        for together in aside.chunks(TOGETHER) {
            // With thousands of connections, none is in the cache. Reading them one after the other
            // without data dependencies lets the processor fetch them in parallel, instead of each
            // when it is processed.
            let mut looked_at = 0;
            for segment in together {
                if let Some(connection) = self.connection(segment.port) {
                    looked_at ^= connection.segments.touch();
                }
            }
            std::hint::black_box(looked_at);
            for segment in together {
                if let Some(connection) = self.connection(segment.port) {
                    connection
                        .segments
                        .record_segment(&segment.header, segment.at);
                }
            }
        }
        aside.clear();
        self.aside[share] = aside;
    }
}

impl WatchedConnection {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut SegmentArrivals) -> T) -> Option<T> {
        let mut watch = self.watch.borrow_mut();
        let share = watch.index(self.port)? % SHARES;
        watch.take_in(share);
        let connection = watch.connection(self.port)?;
        Some(f(&mut connection.segments))
    }

    /// Notes a read of `count` bytes and appends their arrival times to `runs`. See
    /// [`ArrivalTimes::record_read`].
    pub(crate) fn take(&mut self, count: usize, at: Time, exact: bool, runs: &mut Vec<ArrivalRun>) {
        self.read = at;
        self.with(|segments| segments.record_read(count, at, exact, runs));
    }

    /// Starts periodic reads of the connection with this index, or ends them if `None`.
    pub(crate) fn read_periodically(&mut self, index: Option<usize>) {
        let count = self.count.get() - usize::from(self.seldom);
        self.seldom = index.is_some();
        self.count.set(count + usize::from(self.seldom));
        if let Some(connection) = self.watch.borrow_mut().connection(self.port) {
            connection.periodic = index;
        }
    }

    /// Makes the kernel report the connection readable only at [`LOW_WATER`] bytes, and keep room
    /// for more.
    pub(crate) fn be_told_seldom(&self, socket: &TcpStream) -> io::Result<()> {
        // The receive buffer grows with the low-water mark and does not shrink again
        // (`tcp_set_rcvlowat`). If the kernel grants less, it reports readiness when the buffer is
        // full.
        net::options::set_receive_low_water(socket, LOW_WATER * ROOM_FOR)?;
        net::options::set_receive_low_water(socket, LOW_WATER)
    }

    /// Reads the available bytes early, to be delivered later.
    pub(crate) fn hold(&mut self, socket: &TcpStream, now: Time) -> EarlyRead {
        let holding = self
            .early
            .read(socket, &mut self.watch.borrow_mut().room, now);
        self.broke |= holding == EarlyRead::Broken;
        holding
    }

    /// Takes the first early read.
    pub(crate) fn take_early(&mut self) -> Option<Chunk> {
        self.early.take()
    }

    /// Puts back the chunk from [`WatchedConnection::take_early`] without its first `delivered`
    /// bytes.
    pub(crate) fn put_back(&mut self, chunk: Chunk, delivered: usize) {
        let room = &mut self.watch.borrow_mut().room;
        self.early.put_back(chunk, delivered, room);
    }

    /// Number of unread bytes with known arrival times.
    pub(crate) fn known(&self) -> usize {
        self.with(|segments| segments.unread()).unwrap_or(0)
    }
}

impl Drop for WatchedConnection {
    fn drop(&mut self) {
        self.read_periodically(None);
        let mut watch = self.watch.borrow_mut();
        self.early.clear(&mut watch.room);
        watch.ports.release(self.port);
        if let Some(index) = watch.index(self.port) {
            watch.remotes[index] = None;
            watch.connections[index] = None;
        }
    }
}

#[cfg(test)]
mod tests;
