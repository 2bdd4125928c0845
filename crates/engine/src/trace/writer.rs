//! The thread that writes a trace: puts records in order of time, makes packets of them, and writes
//! those.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use measure::Time;

use super::frames::{self, Conversation, Packet, SEGMENT_BYTES, Way};
use super::pcapng::Blocks;
use super::tracer::{End, Record, Shared, What};

/// For so long a record waits for earlier ones: what came in is read later than what left
/// meanwhile. Longer than a connection with media goes unread.
const ORDER_WITHIN: Duration = Duration::from_millis(300);

/// What has been put in order is in the file at the latest after this.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// How much is written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// What is kept free in the file for its last block.
const END_BYTES: u64 = 1024;

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Packets in the file.
    pub(super) packets: u64,
    /// Length of the file in bytes.
    pub(super) bytes: u64,
}

/// Writes one file.
pub(super) struct Writer {
    shared: Arc<Shared>,
    file: File,
    /// How long the file may become.
    limit: u64,
    blocks: Option<Blocks>,
    /// Program, client and comment: what the file begins with.
    title: [String; 3],
    waiting: BinaryHeap<Waiting>,
    waiting_bytes: usize,
    serial: u64,
    /// The latest that any record stands at.
    latest: Time,
    conversations: HashMap<u64, Conversation>,
    /// In the file, whole blocks.
    written: Written,
    flushed: Instant,
}

/// A record that waits for earlier ones. The greatest is the one to come first.
struct Waiting {
    serial: u64,
    since: Instant,
    record: Record,
}

impl Waiting {
    fn key(&self) -> (Time, u64) {
        (self.record.order, self.serial)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, file: File, limit: u64, title: [String; 3]) -> Writer {
        Writer {
            shared,
            file,
            limit,
            blocks: None,
            title,
            waiting: BinaryHeap::new(),
            waiting_bytes: 0,
            serial: 0,
            latest: Time::ZERO,
            conversations: HashMap::new(),
            written: Written::default(),
            flushed: Instant::now(),
        }
    }

    /// Until the run is over, or nobody is left who could record anything.
    pub(super) fn run(mut self, records: &Receiver<Record>) -> Written {
        let mut heard = Instant::now();
        loop {
            match records.recv_timeout(FLUSH_EVERY) {
                Ok(Record {
                    what: What::Finish, ..
                })
                | Err(RecvTimeoutError::Disconnected) => break,
                Ok(record) => {
                    self.take(record);
                    self.put_in_order();
                    heard = Instant::now();
                }
                // Nothing that could come before what waits has come for long enough.
                Err(RecvTimeoutError::Timeout) if heard.elapsed() >= ORDER_WITHIN => {
                    self.put_all_in_order();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.pending() >= WRITE_BYTES || self.flushed.elapsed() >= FLUSH_EVERY {
                self.flush();
            }
        }
        self.put_all_in_order();
        self.end();
        self.written
    }

    fn pending(&self) -> usize {
        self.blocks.as_ref().map_or(0, |blocks| blocks.bytes.len())
    }

    fn take(&mut self, record: Record) {
        self.latest = self.latest.max(record.order);
        self.waiting_bytes += record.size();
        self.serial += 1;
        let waiting = Waiting {
            serial: self.serial,
            since: Instant::now(),
            record,
        };
        self.waiting.push(waiting);
    }

    /// Writes what nothing earlier can be expected for, by its time or because it has waited (the
    /// kernel's clock may have been set back); and where half of all room is taken by what waits
    /// here, the earliest of it.
    fn put_in_order(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.waiting.peek()
            && (first.record.order + ORDER_WITHIN <= self.latest
                || now.duration_since(first.since) >= ORDER_WITHIN
                || self.waiting_bytes > self.shared.room / 2)
        {
            self.put_first();
        }
    }

    fn put_all_in_order(&mut self) {
        while self.put_first() {}
    }

    fn put_first(&mut self) -> bool {
        let Some(Waiting { record, .. }) = self.waiting.pop() else {
            return false;
        };
        let size = record.size();
        self.write(record);
        self.waiting_bytes -= size;
        self.shared.queued.fetch_sub(size, Relaxed);
        true
    }

    /// Makes packets of a record.
    fn write(&mut self, record: Record) {
        let Record {
            at, what, bytes, ..
        } = record;
        match what {
            What::Datagram {
                local,
                remote,
                inbound,
                length,
            } => {
                let way = Way::new(local, remote, inbound);
                let headers = frames::datagram(way, &bytes, length);
                self.packet(at, &(inbound, headers), &bytes, length);
            }
            What::Opening {
                connection,
                local,
                remote,
            } => {
                let (conversation, syn) = Conversation::open(local, remote);
                self.conversations.insert(connection, conversation);
                self.packet(at, &syn, &[], 0);
            }
            What::Opened { connection } => {
                self.segments(connection, at, Conversation::establish);
            }
            What::Bytes {
                connection,
                inbound,
                skipped,
            } => {
                self.segments(connection, at, |conversation| {
                    let handshake = conversation.establish();
                    conversation.skip(inbound, skipped);
                    handshake
                });
                let mut parts = bytes.chunks(SEGMENT_BYTES).peekable();
                while let Some(part) = parts.next() {
                    let Some(conversation) = self.conversations.get_mut(&connection) else {
                        // Its beginning found no room.
                        self.shared.left_out.fetch_add(1, Relaxed);
                        break;
                    };
                    let packet = conversation.bytes(inbound, part, parts.peek().is_none());
                    self.packet(at, &packet, part, part.len());
                }
            }
            What::Ended {
                connection,
                how,
                skipped,
            } => {
                self.segments(connection, at, |conversation| {
                    conversation.skip(false, skipped[0]);
                    conversation.skip(true, skipped[1]);
                    vec![match how {
                        End::Theirs => conversation.finish(true),
                        End::Ours => conversation.finish(false),
                        End::Reset => conversation.reset(true),
                    }]
                });
                if how != End::Theirs {
                    self.conversations.remove(&connection);
                }
            }
            What::Finish => {}
        }
    }

    /// Writes packets without payload.
    fn segments(
        &mut self,
        connection: u64,
        at: Time,
        make: impl FnOnce(&mut Conversation) -> Vec<Packet>,
    ) {
        let packets = match self.conversations.get_mut(&connection) {
            Some(conversation) => make(conversation),
            None => return,
        };
        for packet in packets {
            self.packet(at, &packet, &[], 0);
        }
    }

    fn packet(&mut self, at: Time, packet: &Packet, payload: &[u8], length: usize) {
        let (inbound, headers) = packet;
        let stopped = self.shared.full.load(Relaxed) || self.shared.broken.get().is_some();
        let Some(blocks) = self.begun().filter(|_| !stopped) else {
            self.shared.left_out.fetch_add(1, Relaxed);
            return;
        };
        let before = blocks.bytes.len();
        blocks.packet(at, *inbound, headers, payload, headers.len() + length);
        let after = blocks.bytes.len();
        if self.written.bytes + after as u64 + END_BYTES > self.limit {
            if let Some(blocks) = &mut self.blocks {
                blocks.bytes.truncate(before);
            }
            self.shared.full.store(true, Relaxed);
            self.shared.left_out.fetch_add(1, Relaxed);
            return;
        }
        self.written.packets += 1;
        if after >= WRITE_BYTES {
            self.flush();
        }
    }

    /// The blocks, with the beginning of the file among or before them. None before the run has
    /// begun.
    fn begun(&mut self) -> Option<&mut Blocks> {
        if self.blocks.is_none() {
            let started_at = *self.shared.started_at.get()?;
            let mut blocks = Blocks::new(started_at);
            let [program, client, comment] = &self.title;
            blocks.begin(program, client, comment);
            self.blocks = Some(blocks);
        }
        self.blocks.as_mut()
    }

    /// Hands to the operating system what there is, whole blocks.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        let Some(blocks) = &mut self.blocks else {
            return;
        };
        if !blocks.bytes.is_empty() && self.shared.broken.get().is_none() {
            match self.file.write_all(&blocks.bytes) {
                Ok(()) => self.written.bytes += blocks.bytes.len() as u64,
                Err(error) => {
                    let _ = self.shared.broken.set(error.to_string());
                    // What was half written is cut off, so that the file can be read to its end.
                    let _ = self.file.set_len(self.written.bytes);
                }
            }
        }
        blocks.bytes.clear();
    }

    fn end(&mut self) {
        let left_out = self.shared.left_out.load(Relaxed);
        let (at, packets) = (self.latest, self.written.packets + left_out);
        if let Some(blocks) = self.begun() {
            let comment = match left_out {
                0 => "complete".to_owned(),
                more => {
                    format!("incomplete: {more} datagrams, reads or writes are not in this file")
                }
            };
            blocks.end(at, packets, left_out, &comment);
        }
        self.flush();
    }
}
