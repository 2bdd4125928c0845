//! Datagrams of a transport stream in a loop, each of which begins with a stamp.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use measure::Time;

use crate::mediagen::ts::looped_stream::{DATAGRAM, LoopedStream, PACKETS_PER_DATAGRAM};
use crate::mediagen::ts::mux::Mux;
use crate::mediagen::ts::packet::PACKET_LEN;
use crate::mediagen::ts::stamp::Stamp;

/// Makes the datagrams of one sender.
#[derive(Debug)]
pub struct StampedStream {
    mux: Mux,
    stamp: Stamp,
    wall_clock: u64,
    buffer: BytesMut,
    /// Number of bytes that are allocated at once.
    chunk: usize,
}

impl StampedStream {
    /// Creates the datagrams for `address` of a source, by its number, with the wall clock at
    /// [`Time::ZERO`]. Memory is allocated for `count` datagrams at once, and reused when they have
    /// left.
    pub fn new(
        looped: Arc<LoopedStream>,
        (address, source): (SocketAddr, u64),
        wall_clock: Duration,
        count: usize,
    ) -> StampedStream {
        StampedStream {
            mux: Mux::new(looped, source as u32),
            stamp: Stamp {
                packets: PACKETS_PER_DATAGRAM as u8,
                group: address,
                source,
                number: 0,
                due: 0,
                check: 0,
            },
            wall_clock: u64::try_from(wall_clock.as_nanos()).unwrap_or(u64::MAX),
            buffer: BytesMut::new(),
            chunk: count * DATAGRAM,
        }
    }

    /// Stamp of the datagram that was made last, with the number of the next one.
    #[inline]
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Returns the wall clock at a time, in nanoseconds since 1970.
    #[inline]
    pub fn nanos_at(&self, time: Time) -> u64 {
        self.wall_clock + time.as_nanos()
    }

    /// Makes the datagram that is due at `due`.
    #[inline]
    pub fn next(&mut self, due: Time) -> BytesMut {
        if self.buffer.capacity() < DATAGRAM {
            self.buffer.reserve(self.chunk);
        }
        let due_nanos = self.nanos_at(due);
        self.mux.set_due(due_nanos);
        // Space for the stamp, which contains a checksum of the bytes after it.
        self.buffer.extend_from_slice(&[0; PACKET_LEN]);
        for _ in 1..PACKETS_PER_DATAGRAM {
            let room = &mut self.buffer;
            self.mux.next(|packet| room.extend_from_slice(packet));
        }
        self.stamp.check = libdeflater::crc32(&self.buffer[PACKET_LEN..]);
        self.stamp.due = due_nanos;
        self.buffer[..PACKET_LEN].copy_from_slice(&self.stamp.write());
        self.stamp.number += 1;
        self.buffer.split()
    }
}
