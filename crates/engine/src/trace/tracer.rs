//! A worker's part of a trace: records what a client's sockets read and wrote, and never blocks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_channel::Sender;
use measure::Time;
use net::Clock;

/// Size of a record without its payload, for the bound of the queue.
pub(super) const RECORD_BYTES: usize = 160;

/// Extra room for the open and close records of connections. They are few, and without them no data
/// of a connection could be written.
const EVENT_ROOM: usize = 1 << 20;

/// An event on one of the client's sockets.
#[derive(Debug)]
pub(super) struct Record {
    /// Time of the event.
    pub(super) at: Time,
    /// Sort key. Within a socket and direction it never decreases.
    pub(super) order: Time,
    pub(super) what: RecordKind,
    /// Bytes read or written.
    pub(super) bytes: Box<[u8]>,
}

impl Record {
    /// A record without bytes.
    pub(super) fn event(at: Time, order: Time, what: RecordKind) -> Record {
        Record {
            at,
            order,
            what,
            bytes: Box::default(),
        }
    }

    pub(super) fn size(&self) -> usize {
        RECORD_BYTES + self.bytes.len()
    }
}

/// Kind of a record.
#[derive(Debug)]
pub(super) enum RecordKind {
    Datagram {
        local: SocketAddr,
        remote: SocketAddr,
        inbound: bool,
        /// Real length of the datagram.
        length: usize,
    },
    /// A connection is being opened.
    Opening {
        connection: u64,
        local: SocketAddr,
        remote: SocketAddr,
    },
    Opened {
        connection: u64,
    },
    Bytes {
        connection: u64,
        inbound: bool,
        /// Number of bytes right before these that were not recorded for lack of room.
        skipped: u64,
    },
    Ended {
        connection: u64,
        how: ConnectionEnd,
        /// Number of bytes not recorded: outbound, inbound.
        skipped: [u64; 2],
    },
    /// The run has ended.
    Finish,
}

/// End of a connection, or of one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The peer closed its direction.
    Theirs,
    /// The client closed the connection.
    Ours,
    /// The peer reset or refused the connection.
    Reset,
}

/// State shared by workers and the writer.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes in the queue, record overhead included.
    pub(super) queued: AtomicUsize,
    /// Maximum of `queued`.
    pub(super) room: usize,
    connections: AtomicU64,
    /// Number of datagrams, reads and writes missing in the file.
    pub(super) missing: AtomicU64,
    /// True once the file has reached its maximum size.
    pub(super) full: AtomicBool,
    /// Write error that ended the trace.
    pub(super) broken: OnceLock<String>,
    /// Real time of the start of the run, in nanoseconds since 1970.
    pub(super) started_at: OnceLock<i64>,
}

impl Shared {
    pub(super) fn new(room: usize) -> Shared {
        Shared {
            room,
            ..Shared::default()
        }
    }
}

/// A worker's handle of a client's trace. Holds no file descriptor, so it may move to a thread with
/// a descriptor table of its own.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    pub(super) shared: Arc<Shared>,
    pub(super) records: Sender<Record>,
}

impl Tracer {
    /// Queues a record. Returns `false` if there was no room.
    fn record(&self, record: Record, room: usize) -> bool {
        let size = record.size();
        if self.shared.queued.fetch_add(size, Relaxed) + size > room {
            self.shared.queued.fetch_sub(size, Relaxed);
            return false;
        }
        // If the writer has ended, it has recorded the reason.
        let _ = self.records.send(record);
        true
    }

    fn keep(&self, at: Time, order: Time, what: RecordKind, bytes: Vec<u8>) -> bool {
        let bytes = bytes.into_boxed_slice();
        let record = Record {
            at,
            order,
            what,
            bytes,
        };
        let kept = self.record(record, self.shared.room);
        if !kept {
            self.shared.missing.fetch_add(1, Relaxed);
        }
        kept
    }

    fn event(&self, at: Time, order: Time, what: RecordKind) {
        let record = Record::event(at, order, what);
        self.record(record, self.shared.room + EVENT_ROOM);
    }

    /// Creates the trace of one of the client's UDP sockets.
    pub(crate) fn socket(&self, local: SocketAddr) -> Box<TracedSocket> {
        Box::new(TracedSocket {
            tracer: self.clone(),
            local,
            order: Time::ZERO,
        })
    }

    /// Creates the trace of a connection that is being opened.
    pub(crate) fn connection(
        &self,
        clock: Clock,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Box<TracedConnection> {
        let connection = self.shared.connections.fetch_add(1, Relaxed);
        let now = clock.now();
        let opening = RecordKind::Opening {
            connection,
            local,
            remote,
        };
        self.event(now, now, opening);
        Box::new(TracedConnection {
            tracer: self.clone(),
            clock,
            connection,
            order: now,
            skipped: [0; 2],
            open: false,
        })
    }
}

#[derive(Debug)]
pub(crate) struct TracedSocket {
    tracer: Tracer,
    local: SocketAddr,
    order: Time,
}

impl TracedSocket {
    /// Records a datagram of `length` bytes that arrived at `at`; `bytes` is its beginning.
    pub(crate) fn received(&mut self, from: SocketAddr, bytes: &[u8], length: usize, at: Time) {
        self.order = self.order.max(at);
        let what = RecordKind::Datagram {
            local: self.local,
            remote: from,
            inbound: true,
            length,
        };
        self.tracer.keep(at, self.order, what, bytes.to_vec());
    }

    /// Records a datagram that was handed to the kernel at `at`.
    pub(crate) fn sent(&self, to: SocketAddr, bytes: &[u8], at: Time) {
        let what = RecordKind::Datagram {
            local: self.local,
            remote: to,
            inbound: false,
            length: bytes.len(),
        };
        self.tracer.keep(at, at, what, bytes.to_vec());
    }
}

/// Trace of a connection. Dropping it while the connection is open records that the client closed
/// it.
#[derive(Debug)]
pub(crate) struct TracedConnection {
    tracer: Tracer,
    clock: Clock,
    connection: u64,
    order: Time,
    /// Bytes not recorded since the last record: outbound, inbound.
    skipped: [u64; 2],
    open: bool,
}

impl TracedConnection {
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Records that the connection is established.
    pub(crate) fn opened(&mut self) {
        self.open = true;
        let connection = self.connection;
        let now = self.clock.now();
        self.tracer
            .event(now, now.max(self.order), RecordKind::Opened { connection });
    }

    /// Records bytes that arrived at `at`.
    pub(crate) fn received(&mut self, bytes: &[u8], at: Time) {
        self.order = self.order.max(at);
        self.bytes(true, at, self.order, bytes.to_vec());
    }

    /// Records bytes, in two parts, that were handed to the kernel at `at`.
    pub(crate) fn sent(&mut self, parts: [&[u8]; 2], at: Time) {
        self.bytes(false, at, at, parts.concat());
    }

    fn bytes(&mut self, inbound: bool, at: Time, order: Time, bytes: Vec<u8>) {
        let skipped = &mut self.skipped[usize::from(inbound)];
        let (before, length) = (*skipped, bytes.len() as u64);
        let what = RecordKind::Bytes {
            connection: self.connection,
            inbound,
            skipped: before,
        };
        *skipped = match self.tracer.keep(at, order, what, bytes) {
            true => 0,
            false => before + length,
        };
    }

    /// Records that the peer closed its direction.
    pub(crate) fn closed_by_peer(&mut self) {
        self.ended(ConnectionEnd::Theirs);
    }

    /// Records that the connection was reset or refused.
    pub(crate) fn broke(&mut self) {
        self.ended(ConnectionEnd::Reset);
        self.open = false;
    }

    fn ended(&mut self, how: ConnectionEnd) {
        let what = RecordKind::Ended {
            connection: self.connection,
            how,
            skipped: std::mem::take(&mut self.skipped),
        };
        let now = self.clock.now();
        self.tracer.event(now, now.max(self.order), what);
    }
}

impl Drop for TracedConnection {
    fn drop(&mut self) {
        if self.open {
            self.ended(ConnectionEnd::Ours);
        }
    }
}
