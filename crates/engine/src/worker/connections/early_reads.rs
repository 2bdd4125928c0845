//! Bytes of fast connections that were read before the packet ring has delivered their arrival
//! times.
//!
//! The bytes are held here instead of in the kernel. One reason is the sender's window. Another
//! reason is a server on the same machine that sends from its own buffer without copying
//! (sendfile(2), MSG_ZEROCOPY): it overwrites data that is not read in time.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use measure::Time;
use mio::net::TcpStream;

/// Size of a chunk. One read usually takes all available bytes ([`super::segment_times`]).
pub(crate) const CHUNK: usize = 640 * 1024;

/// Maximum number of chunks of one connection: the data of 1 Gb/s in 20 ms, because chunks are half
/// full when the kernel reports the connection readable.
const CHUNKS_PER_CONNECTION_MAX: usize = 8;

/// Maximum number of chunks of all connections of a worker: 40 MiB.
const CHUNKS_MAX: usize = 64;

/// Maximum number of free chunks that are kept for reuse.
const SPARE: usize = 4;

/// Chunk pool for the early reads of all connections of a worker.
#[derive(Debug, Default)]
pub(crate) struct ChunkPool {
    spare: Vec<Vec<u8>>,
    lent: usize,
}

/// Bytes held for one connection, in order.
#[derive(Debug, Default)]
pub(crate) struct EarlyReads {
    chunks: VecDeque<Chunk>,
}

/// Bytes of one read, with the time by which they had arrived.
#[derive(Debug)]
pub(crate) struct Chunk {
    memory: Vec<u8>,
    within: Range<usize>,
    pub(crate) by: Time,
}

/// Result of reading all available bytes of a connection early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyRead {
    /// All available bytes were read.
    All,
    /// There is no room for more.
    Full,
    /// The peer closed the connection.
    Ended,
    /// The connection failed.
    Broken,
}

impl ChunkPool {
    fn lend(&mut self) -> Option<Vec<u8>> {
        if self.lent >= CHUNKS_MAX {
            return None;
        }
        self.lent += 1;
        Some(self.spare.pop().unwrap_or_else(|| vec![0; CHUNK]))
    }

    /// Returns the memory of a chunk to the pool.
    pub(crate) fn take_back(&mut self, chunk: Chunk) {
        self.keep(chunk.memory);
    }

    fn keep(&mut self, memory: Vec<u8>) {
        self.lent = self.lent.saturating_sub(1);
        if self.spare.len() < SPARE {
            self.spare.push(memory);
        }
    }
}

impl Chunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.within.clone()]
    }
}

impl EarlyReads {
    /// Reads the available bytes of a connection.
    pub(crate) fn read(
        &mut self,
        socket: &TcpStream,
        room: &mut ChunkPool,
        now: Time,
    ) -> EarlyRead {
        while self.chunks.len() < CHUNKS_PER_CONNECTION_MAX {
            let Some(mut memory) = room.lend() else {
                return EarlyRead::Full;
            };
            let end = match net::timed_read::read_untimed(socket, &mut memory) {
                Ok(count @ 1..) => {
                    self.chunks.push_back(Chunk {
                        memory,
                        within: 0..count,
                        by: now,
                    });
                    if count < CHUNK {
                        return EarlyRead::All;
                    }
                    continue;
                }
                Ok(0) => EarlyRead::Ended,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => EarlyRead::All,
                // Readiness reports it again.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => EarlyRead::All,
                Err(_) => EarlyRead::Broken,
            };
            room.keep(memory);
            return end;
        }
        EarlyRead::Full
    }

    /// Removes and returns the first chunk.
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        self.chunks.pop_front()
    }

    /// Puts back the chunk taken last, without its first `done` bytes.
    pub(crate) fn put_back(&mut self, mut chunk: Chunk, done: usize, room: &mut ChunkPool) {
        chunk.within.start += done;
        if chunk.within.is_empty() {
            room.take_back(chunk);
            return;
        }
        self.chunks.push_front(chunk);
    }

    /// Releases all chunks.
    pub(crate) fn clear(&mut self, room: &mut ChunkPool) {
        for chunk in self.chunks.drain(..) {
            room.take_back(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let ours = std::net::TcpStream::connect(address).expect("it listens");
        ours.set_nonblocking(true).expect("it is open");
        let (theirs, _) = listener.accept().expect("one came");
        (TcpStream::from_std(ours), theirs)
    }

    impl EarlyReads {
        fn len(&self) -> usize {
            self.chunks.iter().map(|chunk| chunk.within.len()).sum()
        }
    }

    /// Reads until `bytes` bytes are held, or until the connection is full, closed or broken.
    fn read_until(
        early: &mut EarlyReads,
        bytes: usize,
        ours: &TcpStream,
        room: &mut ChunkPool,
    ) -> EarlyRead {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let holding = early.read(ours, room, Time::ZERO);
            if holding != EarlyRead::All || early.len() >= bytes {
                return holding;
            }
            assert!(Instant::now() < deadline, "it does not arrive");
            std::thread::park_timeout(Duration::from_micros(100));
        }
    }

    #[test]
    fn early_reads_come_out_in_order_in_pieces_of_any_size() {
        let (ours, mut theirs) = pair();
        let (mut early, mut room) = (EarlyReads::default(), ChunkPool::default());
        let sent: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let sender = std::thread::spawn(move || {
            theirs.write_all(&sent).expect("it is read");
            theirs
        });
        assert_eq!(
            read_until(&mut early, 300_000, &ours, &mut room),
            EarlyRead::All
        );
        let mut taken = Vec::new();
        for part in (1..).map(|n| n * 1000) {
            let Some(chunk) = early.take() else { break };
            let count = chunk.bytes().len().min(part);
            taken.extend_from_slice(&chunk.bytes()[..count]);
            early.put_back(chunk, count, &mut room);
            assert_eq!(taken.len() + early.len(), expected.len());
        }
        assert!(taken == expected);
        assert_eq!((early.len(), room.lent), (0, 0));
        drop(sender.join().expect("it sent all"));
        assert_eq!(
            read_until(&mut early, 1, &ours, &mut room),
            EarlyRead::Ended
        );
        assert_eq!(room.lent, 0);
    }

    #[test]
    fn early_reads_are_bounded() {
        let (ours, mut theirs) = pair();
        let (mut early, mut room) = (EarlyReads::default(), ChunkPool::default());
        let sender = std::thread::spawn(move || {
            // Ends when the receiver closes the connection.
            while theirs.write_all(&[7; CHUNK]).is_ok() {}
        });
        let all = CHUNKS_PER_CONNECTION_MAX * CHUNK;
        assert_eq!(
            read_until(&mut early, usize::MAX, &ours, &mut room),
            EarlyRead::Full
        );
        assert!(early.len() <= all && room.lent == CHUNKS_PER_CONNECTION_MAX);
        early.clear(&mut room);
        assert_eq!((early.len(), room.lent, room.spare.len()), (0, 0, SPARE));
        room.lent = CHUNKS_MAX;
        assert_eq!(early.read(&ours, &mut room, Time::ZERO), EarlyRead::Full);
        assert_eq!(early.len(), 0);
        drop(ours);
        sender.join().expect("it ended");
    }
}
