//! What a worker holds of a trace: it hands over what a client's sockets read and wrote, and never
//! waits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_channel::Sender;
use measure::Time;
use net::Clock;

/// What of a record waits beside its bytes, as far as the bound on what waits is concerned.
pub(super) const RECORD_BYTES: usize = 160;

/// What the beginnings and ends of connections may take beyond the bound: they are few, and without
/// them nothing of the connection could be written.
const EVENT_ROOM: usize = 1 << 20;

/// One thing that happened on one of the client's sockets.
#[derive(Debug)]
pub(super) struct Record {
    /// When.
    pub(super) at: Time,
    /// What it is put in order by: of one socket and direction never earlier than that of the one
    /// before.
    pub(super) order: Time,
    pub(super) what: What,
    /// What was read or written.
    pub(super) bytes: Box<[u8]>,
}

impl Record {
    pub(super) fn size(&self) -> usize {
        RECORD_BYTES + self.bytes.len()
    }
}

/// What happened.
#[derive(Debug)]
pub(super) enum What {
    Datagram {
        local: SocketAddr,
        remote: SocketAddr,
        inbound: bool,
        /// How long it really was.
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
        /// Bytes right before that found no room.
        skipped: u64,
    },
    Ended {
        connection: u64,
        how: End,
        /// As above, outbound and inbound.
        skipped: [u64; 2],
    },
    /// The run is over.
    Finish,
}

/// How a connection ended, or one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The other side has no more to say.
    Theirs,
    /// We closed it.
    Ours,
    /// The other side broke it off, or refused it.
    Reset,
}

/// What the two sides of a trace share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Bytes that wait for the writer, records included.
    pub(super) queued: AtomicUsize,
    /// How much may wait.
    pub(super) room: usize,
    connections: AtomicU64,
    /// Datagrams, reads and writes that are not in the file.
    pub(super) left_out: AtomicU64,
    /// The file has reached its bound.
    pub(super) full: AtomicBool,
    /// Why nothing more could be written.
    pub(super) broken: OnceLock<String>,
    /// Real time at which the run began, in nanoseconds since 1970.
    pub(super) started_at: OnceLock<i64>,
}

impl Shared {
    pub(super) fn new(room: usize) -> Shared {
        Shared {
            queued: AtomicUsize::new(0),
            room,
            connections: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            full: AtomicBool::new(false),
            broken: OnceLock::new(),
            started_at: OnceLock::new(),
        }
    }
}

/// The trace of one client, as its worker has it. Holds no descriptor, so it may go to a thread
/// with a table of its own.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    pub(super) shared: Arc<Shared>,
    pub(super) records: Sender<Record>,
}

impl Tracer {
    /// Hands a record over; says whether there was room.
    fn record(&self, record: Record, room: usize) -> bool {
        let size = record.size();
        if self.shared.queued.fetch_add(size, Relaxed) + size > room {
            self.shared.queued.fetch_sub(size, Relaxed);
            return false;
        }
        // A writer that is gone has said why.
        let _ = self.records.send(record);
        true
    }

    fn keep(&self, at: Time, order: Time, what: What, bytes: Vec<u8>) -> bool {
        let bytes = bytes.into_boxed_slice();
        let record = Record {
            at,
            order,
            what,
            bytes,
        };
        let kept = self.record(record, self.shared.room);
        if !kept {
            self.shared.left_out.fetch_add(1, Relaxed);
        }
        kept
    }

    fn event(&self, at: Time, order: Time, what: What) {
        let record = Record {
            at,
            order,
            what,
            bytes: Box::default(),
        };
        self.record(record, self.shared.room + EVENT_ROOM);
    }

    /// The trace of one of the client's UDP sockets.
    pub(crate) fn socket(&self, local: SocketAddr) -> Box<TracedSocket> {
        Box::new(TracedSocket {
            tracer: self.clone(),
            local,
            order: Time::ZERO,
        })
    }

    /// The trace of a connection that is being opened now.
    pub(crate) fn connection(
        &self,
        clock: Clock,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Box<TracedConnection> {
        let connection = self.shared.connections.fetch_add(1, Relaxed);
        let now = clock.now();
        let opening = What::Opening {
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

/// The trace of a UDP socket.
#[derive(Debug)]
pub(crate) struct TracedSocket {
    tracer: Tracer,
    local: SocketAddr,
    order: Time,
}

impl TracedSocket {
    /// A datagram came at that time, so long, with those bytes at its beginning.
    pub(crate) fn received(&mut self, from: SocketAddr, bytes: &[u8], length: usize, at: Time) {
        self.order = self.order.max(at);
        let what = What::Datagram {
            local: self.local,
            remote: from,
            inbound: true,
            length,
        };
        self.tracer.keep(at, self.order, what, bytes.to_vec());
    }

    /// A datagram was handed to the kernel at that time.
    pub(crate) fn sent(&self, to: SocketAddr, bytes: &[u8], at: Time) {
        let what = What::Datagram {
            local: self.local,
            remote: to,
            inbound: false,
            length: bytes.len(),
        };
        self.tracer.keep(at, at, what, bytes.to_vec());
    }
}

/// The trace of a connection. What drops it closes the connection.
#[derive(Debug)]
pub(crate) struct TracedConnection {
    tracer: Tracer,
    clock: Clock,
    connection: u64,
    order: Time,
    /// Bytes that found no room since the last that did: outbound, inbound.
    skipped: [u64; 2],
    open: bool,
}

impl TracedConnection {
    /// The time now.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// It stands.
    pub(crate) fn opened(&mut self) {
        self.open = true;
        let connection = self.connection;
        let now = self.clock.now();
        self.tracer
            .event(now, now.max(self.order), What::Opened { connection });
    }

    /// Bytes were read that came at that time.
    pub(crate) fn received(&mut self, bytes: &[u8], at: Time) {
        self.order = self.order.max(at);
        self.bytes(true, at, self.order, bytes.to_vec());
    }

    /// Bytes, in two parts, were handed to the kernel at that time.
    pub(crate) fn sent(&mut self, parts: [&[u8]; 2], at: Time) {
        self.bytes(false, at, at, parts.concat());
    }

    fn bytes(&mut self, inbound: bool, at: Time, order: Time, bytes: Vec<u8>) {
        let skipped = &mut self.skipped[usize::from(inbound)];
        let (before, length) = (*skipped, bytes.len() as u64);
        let what = What::Bytes {
            connection: self.connection,
            inbound,
            skipped: before,
        };
        *skipped = match self.tracer.keep(at, order, what, bytes) {
            true => 0,
            false => before + length,
        };
    }

    /// The other side has closed it.
    pub(crate) fn closed_by_peer(&mut self) {
        self.ended(End::Theirs);
    }

    /// It broke, or was refused.
    pub(crate) fn broke(&mut self) {
        self.ended(End::Reset);
        self.open = false;
    }

    fn ended(&mut self, how: End) {
        let what = What::Ended {
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
            self.ended(End::Ours);
        }
    }
}
