//! Connections with media in them, read seldom, with times out of the packet ring.
//!
//! To read a connection at each segment costs several times what all else costs that is done for a
//! packet: a wake-up, a system call, and the acknowledgement that the kernel sends when all has
//! been read. So once its media has begun, a connection is read every [`READ_INTERVAL`](super::read_turns::READ_INTERVAL), or when
//! [`LOW_WATER`] bytes are there, and then with all others that bring so much ([`super::read_turns`]). That is
//! honest because times of arrival do not come from reading: the packet ring shows each segment
//! ([`net::segments`]). For that a client's connection comes from a port of the worker's own range.
//! What has not been shown is not read, where that can wait, so that each byte has its time. Where
//! so much comes before the ring shows it that it cannot, it is read, and held until it has been
//! shown ([`super::early_reads`]).
//!
//! Until media has begun a connection is read at once. Its end is heard at once, and waits for the
//! ring. A connection of which the ring shows nothing (no port was to be had, the beginning was
//! missed, an address is translated on the way) is read at once for as long as it stands.
//!
//! What the ring shows is put aside by share, and taken in when that share's turn to be read comes:
//! what is known of each of thousands of connections then comes out of memory once a turn, and not
//! once a segment.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;

use measure::{Run, Time};
use mio::net::TcpStream;
use net::ConnectPorts;
use net::ring::Segment;
use net::segments::{Header, Segments};

use super::early_reads::{CHUNK, Chunk, EarlyReads, Holding, Room};

/// In how many parts the connections are read, one after the other, so that the loop is never long
/// at it.
pub(crate) const SHARES: usize = 10;

/// How many bytes make the kernel tell of a connection before its turn has come, as long as the
/// ring has then shown a quarter of them: what 6.5 Mb/s bring between two turns. Where it has not,
/// because the stream is fast or comes in large bursts, it is read, and held until it has been
/// shown.
///
/// Behind a relay that sends much at a time 256 KiB took 0.6 (8 connections of 40 Mb/s) to 0.85
/// (one of 400 Mb/s) of the processor time that 128 KiB took, and 320 KiB 0.9 of that again; more
/// saves less. It must stay well below what a server on the same machine keeps of a stream that it
/// sends without a copy: msd_lite writes over its 1 MiB in a circle, and with 1 MiB waiting here 6
/// to 12 % of its datagrams came wrong, which none do to a prompt client.
pub(crate) const LOW_WATER: usize = CHUNK / 2;

/// For how many times as many the kernel is to have room: a sender must never wait because of how
/// seldom is read.
const ROOM_FOR: usize = 4;

/// How many segments are taken in together.
const TOGETHER: usize = 32;

/// How many segments of one share may be put aside: what 1,000,000 a second of all shares bring
/// between two turns.
const ASIDE_MAX: usize = 40_000;

/// The connections that the ring watches, by local port.
#[derive(Debug)]
struct Watch {
    first: u16,
    ports: ConnectPorts,
    /// Whom they are to.
    remotes: Vec<Option<SocketAddr>>,
    connections: Vec<Option<Box<Connection>>>,
    /// What the ring has shown and has not been taken in, by share.
    aside: [Vec<Aside>; SHARES],
    /// For what is read before the ring has shown it.
    room: Room,
}

/// What the ring has shown of a connection.
#[derive(Clone, Copy, Debug)]
struct Aside {
    at: Time,
    header: Header,
    port: u16,
}

#[derive(Debug, Default)]
struct Connection {
    segments: Segments,
    /// Its place among the sockets, if it is read seldom.
    seldom: Option<usize>,
}

/// A worker's watch over its connections.
#[derive(Debug)]
pub(crate) struct SegmentTimes {
    watch: Rc<RefCell<Watch>>,
    /// How many connections are read seldom.
    seldom: Rc<Cell<usize>>,
    /// Whether one would be, had the ring shown its beginning.
    hurries: Cell<bool>,
}

/// A connection that is watched, and its port, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watched {
    watch: Rc<RefCell<Watch>>,
    count: Rc<Cell<usize>>,
    port: u16,
    /// Whether it is read seldom.
    pub(crate) seldom: bool,
    /// Whether it brings much between two turns, and is among those read whenever the loop is awake.
    pub(crate) fast: bool,
    /// Whether its end has been heard and waits for the ring.
    pub(crate) ending: bool,
    /// When it was read last.
    pub(crate) read: Time,
    /// What was read of it and is yet to be heard.
    early: EarlyReads,
    /// Whether it broke behind that.
    broke: bool,
}

impl SegmentTimes {
    /// Watches over connections from these ports.
    pub(crate) fn new(ports: RangeInclusive<u16>) -> SegmentTimes {
        SegmentTimes {
            watch: Rc::new(RefCell::new(Watch {
                first: *ports.start(),
                remotes: vec![None; ports.len()],
                connections: ports.clone().map(|_| None).collect(),
                ports: ConnectPorts::new(ports),
                aside: Default::default(),
                room: Room::default(),
            })),
            seldom: Rc::default(),
            hurries: Cell::default(),
        }
    }

    /// Begins to connect from a port of the range; `None` where none is to be had.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<Option<(TcpStream, Watched)>> {
        let mut watch = self.watch.borrow_mut();
        let (socket, port) = match watch.ports.connect(to) {
            Ok(connected) => connected,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(error),
        };
        // What has arrived already is still in the ring, to be taken by this thread.
        watch.open(port, to);
        let watched = Watched {
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

    /// Puts a segment aside until its connection is asked for.
    #[inline]
    pub(crate) fn shown(&self, segment: &Segment) {
        self.watch.borrow_mut().put_aside(segment);
    }

    /// Takes in what the ring has shown of a share, and gives the places of those of its
    /// connections that are read seldom.
    pub(crate) fn begin_turn(&self, share: usize, places: &mut Vec<usize>) {
        self.hurries.set(false);
        let mut watch = self.watch.borrow_mut();
        watch.take_in(share);
        let connections = watch.connections.iter().skip(share).step_by(SHARES);
        places.extend(connections.flatten().filter_map(|c| c.seldom));
    }

    /// What was held of a connection that is gone.
    pub(crate) fn forget(&self, chunk: Chunk) {
        self.watch.borrow_mut().room.take_back(chunk);
    }

    /// Whether any connection is read seldom.
    pub(crate) fn is_needed(&self) -> bool {
        self.seldom.get() > 0
    }

    /// A connection would be read seldom, had the ring shown its beginning.
    pub(crate) fn hurry(&self) {
        self.hurries.set(true);
    }

    /// Whether what the ring has is to be looked at as soon as there is anything.
    pub(crate) fn hurries(&self) -> bool {
        self.is_needed() || self.hurries.get()
    }
}

impl Watch {
    fn index(&self, port: u16) -> Option<usize> {
        let index = usize::from(port.checked_sub(self.first)?);
        (index < self.connections.len()).then_some(index)
    }

    fn open(&mut self, port: u16, to: SocketAddr) {
        let Some(index) = self.index(port) else {
            return;
        };
        // What the ring has shown of the one before is none of this one's.
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
        // An IPv6 address may be known with another zone.
        let (seen, remote) = (segment.from, self.remotes[index]);
        if remote.is_none_or(|remote| seen.port() != remote.port() || seen.ip() != remote.ip()) {
            return;
        }
        let share = index % SHARES;
        self.aside[share].push(Aside {
            at: segment.at,
            header: segment.header,
            port,
        });
        if self.aside[share].len() >= ASIDE_MAX {
            self.take_in(share);
        }
    }

    /// Takes in what has been put aside of a share.
    fn take_in(&mut self, share: usize) {
        let mut aside = std::mem::take(&mut self.aside[share]);
        for together in aside.chunks(TOGETHER) {
            // Of thousands of connections none is in the cache. Looked at one after the other
            // without anything that hangs on it, they come out of memory side by side, and not each
            // when it is its turn.
            let mut looked_at = 0;
            for segment in together {
                if let Some(connection) = self.connection(segment.port) {
                    looked_at ^= connection.segments.look();
                }
            }
            std::hint::black_box(looked_at);
            for segment in together {
                if let Some(connection) = self.connection(segment.port) {
                    connection.segments.arrived(&segment.header, segment.at);
                }
            }
        }
        aside.clear();
        self.aside[share] = aside;
    }
}

impl Watched {
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Segments) -> T) -> Option<T> {
        let mut watch = self.watch.borrow_mut();
        let share = watch.index(self.port)? % SHARES;
        watch.take_in(share);
        let connection = watch.connection(self.port)?;
        Some(look(&mut connection.segments))
    }

    /// Takes in that so much was read, and says when it came. See [`Segments::take`].
    pub(crate) fn take(&mut self, count: usize, at: Time, exact: bool, runs: &mut Vec<Run>) {
        self.read = at;
        self.with(|segments| segments.take(count, at, exact, runs));
    }

    /// From now on it is read seldom, or not; its place among the sockets is that.
    pub(crate) fn be_seldom(&mut self, place: Option<usize>) {
        let count = self.count.get() - usize::from(self.seldom);
        self.seldom = place.is_some();
        self.count.set(count + usize::from(self.seldom));
        if let Some(connection) = self.watch.borrow_mut().connection(self.port) {
            connection.seldom = place;
        }
    }

    /// Has the kernel tell of it when [`LOW_WATER`] bytes are there, and keep room for more.
    pub(crate) fn be_told_seldom(&self, socket: &TcpStream) -> io::Result<()> {
        // Its buffer grows with what it is to tell of, and does not become smaller again
        // (`tcp_set_rcvlowat`). Where it gives less, it tells when there is no room.
        net::options::set_receive_low_water(socket, LOW_WATER * ROOM_FOR)?;
        net::options::set_receive_low_water(socket, LOW_WATER)
    }

    /// Reads what is there, to be heard later; says whether all of it found room.
    pub(crate) fn hold(&mut self, socket: &TcpStream, now: Time) -> Holding {
        let holding = self
            .early
            .read(socket, &mut self.watch.borrow_mut().room, now);
        self.broke |= holding == Holding::Broken;
        holding
    }

    /// The first of what was read and is yet to be heard.
    pub(crate) fn take_early(&mut self) -> Option<Chunk> {
        self.early.take()
    }

    /// Puts back what [`Watched::take_early`] gave, of which so many bytes were heard.
    pub(crate) fn put_back(&mut self, chunk: Chunk, heard: usize) {
        let room = &mut self.watch.borrow_mut().room;
        self.early.put_back(chunk, heard, room);
    }

    /// Whether it broke behind what is held.
    pub(crate) fn broke(&self) -> bool {
        self.broke
    }

    /// How many bytes can be heard of which the ring has shown when they came.
    pub(crate) fn known(&self) -> usize {
        self.with(|segments| segments.unread()).unwrap_or(0)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.be_seldom(None);
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
