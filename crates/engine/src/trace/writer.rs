//! The writer thread of a trace: sorts records by time, makes packets of them, and writes the
//! packets.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use measure::Time;

use super::packet_headers::{self, FlowDirection, Packet, SEGMENT_BYTES, TcpConnection};
use super::pcapng::Blocks;
use super::tracer::{ConnectionEnd, Record, RecordKind, Shared};

/// Delay of a record before it is written, so that earlier ones can be sorted in: received data is
/// read later than data sent meanwhile. Longer than a media connection stays unread
/// (`READ_INTERVAL` of the worker, 400 ms).
pub(crate) const ORDER_WITHIN: Duration = Duration::from_millis(600);

/// Maximum time until sorted records are in the file.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Size of a write.
const WRITE_BYTES: usize = 256 * 1024;

/// Space reserved in the file for its last block.
const END_BYTES: u64 = 1024;

/// Result of a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    file: File,
    /// Maximum length of the file.
    limit: u64,
    blocks: Option<Blocks>,
    /// Program, client and comment for the file header.
    title: [String; 3],
    /// Records that wait for earlier ones, by sort key and number.
    waiting: BTreeMap<(Time, u64), Waiting>,
    waiting_bytes: usize,
    serial: u64,
    /// Latest sort key of all records.
    latest: Time,
    conversations: HashMap<u64, TcpConnection>,
    /// Written so far, complete blocks only.
    written: Written,
    flushed: Instant,
}

/// A record that waits for earlier ones.
struct Waiting {
    since: Instant,
    record: Record,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, file: File, limit: u64, title: [String; 3]) -> Writer {
        Writer {
            shared,
            file,
            limit,
            blocks: None,
            title,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            serial: 0,
            latest: Time::ZERO,
            conversations: HashMap::new(),
            written: Written::default(),
            flushed: Instant::now(),
        }
    }

    /// Runs until the run has ended, or until no tracer is left.
    pub(super) fn run(mut self, records: &Receiver<Record>) -> Written {
        let mut last_received = Instant::now();
        loop {
            match records.recv_timeout(FLUSH_EVERY) {
                Ok(Record {
                    what: RecordKind::Finish,
                    ..
                })
                | Err(RecvTimeoutError::Disconnected) => break,
                Ok(record) => {
                    self.take(record);
                    self.write_ready();
                    last_received = Instant::now();
                }
                // For long enough no record has arrived that could sort before those that wait.
                Err(RecvTimeoutError::Timeout) if last_received.elapsed() >= ORDER_WITHIN => {
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
        let key = (record.order, self.serial);
        let since = Instant::now();
        self.waiting.insert(key, Waiting { since, record });
    }

    /// Writes the records that no earlier one can precede: by their sort key, or because they have
    /// waited long enough (the kernel's clock may have been set back). If the waiting records take
    /// half of all room, the earliest ones are written as well.
    fn write_ready(&mut self) {
        let now = Instant::now();
        while let Some((&(order, _), first)) = self.waiting.first_key_value()
            && (order + ORDER_WITHIN <= self.latest
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
        let Some((_, Waiting { record, .. })) = self.waiting.pop_first() else {
            return false;
        };
        let size = record.size();
        self.write(record);
        self.waiting_bytes -= size;
        self.shared.queued.fetch_sub(size, Relaxed);
        true
    }

    /// Turns a record into packets.
    fn write(&mut self, record: Record) {
        let Record {
            at, what, bytes, ..
        } = record;
        match what {
            RecordKind::Datagram {
                local,
                remote,
                inbound,
                length,
            } => {
                let direction = FlowDirection::new(local, remote, inbound);
                let headers = packet_headers::datagram(direction, &bytes, length);
                self.packet(at, &(inbound, headers), &bytes, length);
            }
            RecordKind::Opening {
                connection,
                local,
                remote,
            } => {
                let (conversation, syn) = TcpConnection::open(local, remote);
                self.conversations.insert(connection, conversation);
                self.packet(at, &syn, &[], 0);
            }
            RecordKind::Opened { connection } => {
                self.segments(connection, at, TcpConnection::establish);
            }
            RecordKind::Bytes {
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
                        // The record of its opening was not kept.
                        self.shared.missing.fetch_add(1, Relaxed);
                        break;
                    };
                    let packet = conversation.bytes(inbound, part, parts.peek().is_none());
                    self.packet(at, &packet, part, part.len());
                }
            }
            RecordKind::Ended {
                connection,
                how,
                skipped,
            } => {
                self.segments(connection, at, |conversation| {
                    conversation.skip(false, skipped[0]);
                    conversation.skip(true, skipped[1]);
                    vec![match how {
                        ConnectionEnd::Theirs => conversation.finish(true),
                        ConnectionEnd::Ours => conversation.finish(false),
                        ConnectionEnd::Reset => conversation.reset(true),
                    }]
                });
                if how != ConnectionEnd::Theirs {
                    self.conversations.remove(&connection);
                }
            }
            RecordKind::Finish => {}
        }
    }

    /// Writes packets without payload.
    fn segments(
        &mut self,
        connection: u64,
        at: Time,
        make: impl FnOnce(&mut TcpConnection) -> Vec<Packet>,
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
            self.shared.missing.fetch_add(1, Relaxed);
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
            self.shared.missing.fetch_add(1, Relaxed);
            return;
        }
        self.written.packets += 1;
        if after >= WRITE_BYTES {
            self.flush();
        }
    }

    /// Buffer, with the file header written first. `None` before the run has begun.
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

    /// Writes the buffered blocks to the file.
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
                    // A partly written block is cut off, so that the file remains readable.
                    let _ = self.file.set_len(self.written.bytes);
                }
            }
        }
        blocks.bytes.clear();
    }

    fn end(&mut self) {
        let left_out = self.shared.missing.load(Relaxed);
        let (at, packets) = (self.latest, self.written.packets + left_out);
        if let Some(blocks) = self.begun() {
            let comment = match left_out {
                0 => "complete".to_owned(),
                more => {
                    format!("incomplete: {more} datagrams, reads or writes are missing")
                }
            };
            blocks.end(at, packets, left_out, &comment);
        }
        self.flush();
    }
}
