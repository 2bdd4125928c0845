//! Connections with media in them, read seldom, with times out of the packet ring.
//!
//! To read a connection at each segment costs several times what all else costs that is done for a
//! packet: a wake-up, a system call, and the acknowledgement that the kernel sends when all has
//! been read. So once its media has begun, a connection is read every [`READ_INTERVAL`], or when
//! [`LOW_WATER`] bytes are there, and then with all others that bring so much ([`Fast`]). That is
//! honest because times of arrival do not come from reading: the packet ring shows each segment
//! ([`net::segments`]). For that a client's connection comes from a port of the worker's own range.
//! What has not been shown is not read, where that can wait, so that each byte has its time. Where
//! so much comes before the ring shows it that it cannot, it is read, and held until it has been
//! shown ([`super::held`]).
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
use std::time::Duration;

use measure::{Run, Time};
use mio::net::TcpStream;
use net::ConnectPorts;
use net::ring::Segment;
use net::segments::{Header, Segments};
use protocol::session::ChannelId;

use super::Worker;
use super::held::{CHUNK, Chunk, Held, Holding, Room};
use super::sessions::{Channel, SessionKey};
use super::sockets::Socket;
use super::stream::State;

/// How often a connection is read whose media has begun.
///
/// Measured over loopback with 1,000 clients of 1 Mb/s, 129,000 packets/s (2 cores of a busy
/// virtual machine, Linux 6.18), in µs of processor time a packet: at once 5.7; every 50 ms 1.8;
/// every 100 ms 1.3. Every 200 ms, and at the end of each window, it is 0.80 to 0.85 of what it is
/// every 100 ms (two testers of 500 such clients beside each other), and every 400 ms 0.93 of what
/// it is every 200 ms. More than half of what is left is the copy of the bytes. Longer would also
/// fill more of the kernel's memory: what comes in that time waits there.
pub(super) const READ_INTERVAL: Duration = Duration::from_millis(400);

/// In how many parts the connections are read, one after the other, so that the loop is never long
/// at it.
const SHARES: usize = 10;

/// How long after one share it is the next one's turn.
const SHARE: Duration = Duration::from_millis(READ_INTERVAL.as_millis() as u64 / SHARES as u64);

/// What came later than so long before its turn waits for the next one. By then the ring has shown
/// all that came before, so that what is read in a turn, and in a window, does not hang on when the
/// ring hands a block over.
const SHOWN_WITHIN: Duration = Duration::from_millis(15);

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
const LOW_WATER: usize = CHUNK / 2;

/// From how many bytes on, shown by the ring, a connection that brings [`LOW_WATER`] before its
/// turn is read whenever the loop is awake. So several of them are read in one go, where each by
/// itself would wake the loop.
const WITH_OTHERS: usize = LOW_WATER / 4;

/// How often they are looked at, at the most.
const LOOK_AT_FAST: Duration = Duration::from_millis(10);

/// For how many times as many the kernel is to have room: a sender must never wait because of how
/// seldom is read.
const ROOM_FOR: usize = 4;

/// How many segments are taken in together.
const TOGETHER: usize = 32;

/// How many segments of one share may be put aside: what 1,000,000 a second of all shares bring
/// between two turns.
const ASIDE_MAX: usize = 40_000;

/// How long after it was seen a segment that cannot be read was not taken by TCP.
const NOT_TAKEN: Duration = Duration::from_millis(50);

/// How long a connection may go unread on the ring's word that nothing has come.
const UNHEARD: Duration = Duration::from_secs(1);

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
pub(super) struct Watcher {
    watch: Rc<RefCell<Watch>>,
    /// How many connections are read seldom.
    seldom: Rc<Cell<usize>>,
    /// Whether one would be, had the ring shown its beginning.
    hurries: Cell<bool>,
}

/// A connection that is watched, and its port, for as long as this lives.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Rc<RefCell<Watch>>,
    count: Rc<Cell<usize>>,
    port: u16,
    /// Whether it is read seldom.
    seldom: bool,
    /// Whether it brings much between two turns, and is among [`Fast`].
    fast: bool,
    /// Whether its end has been heard and waits for the ring.
    ending: bool,
    /// When it was read last.
    read: Time,
    /// What was read of it and is yet to be heard.
    held: Held,
    /// Whether it broke behind that.
    broke: bool,
}

impl Watcher {
    /// Watches over connections from these ports.
    pub(super) fn new(ports: RangeInclusive<u16>) -> Watcher {
        Watcher {
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
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<Option<(TcpStream, Watched)>> {
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
            held: Held::default(),
            broke: false,
        };
        Ok(Some((TcpStream::from_std(socket), watched)))
    }

    /// Puts a segment aside until its connection is asked for.
    #[inline]
    pub(super) fn shown(&self, segment: &Segment) {
        self.watch.borrow_mut().put_aside(segment);
    }

    /// Takes in what the ring has shown of a share, and gives the places of those of its
    /// connections that are read seldom.
    fn begin_turn(&self, share: usize, places: &mut Vec<usize>) {
        self.hurries.set(false);
        let mut watch = self.watch.borrow_mut();
        watch.take_in(share);
        let connections = watch.connections.iter().skip(share).step_by(SHARES);
        places.extend(connections.flatten().filter_map(|c| c.seldom));
    }

    /// What was held of a connection that is gone.
    pub(super) fn forget(&self, chunk: Chunk) {
        self.watch.borrow_mut().room.take_back(chunk);
    }

    /// Whether any connection is read seldom.
    pub(super) fn is_needed(&self) -> bool {
        self.seldom.get() > 0
    }

    /// Whether what the ring has is to be looked at as soon as there is anything.
    pub(super) fn hurries(&self) -> bool {
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
    fn with<T>(&self, look: impl FnOnce(&mut Segments) -> T) -> Option<T> {
        let mut watch = self.watch.borrow_mut();
        let share = watch.index(self.port)? % SHARES;
        watch.take_in(share);
        let connection = watch.connection(self.port)?;
        Some(look(&mut connection.segments))
    }

    /// Takes in that so much was read, and says when it came. See [`Segments::take`].
    pub(super) fn take(&mut self, count: usize, at: Time, exact: bool, runs: &mut Vec<Run>) {
        self.read = at;
        self.with(|segments| segments.take(count, at, exact, runs));
    }

    /// From now on it is read seldom, or not; its place among the sockets is that.
    fn be_seldom(&mut self, place: Option<usize>) {
        let count = self.count.get() - usize::from(self.seldom);
        self.seldom = place.is_some();
        self.count.set(count + usize::from(self.seldom));
        if let Some(connection) = self.watch.borrow_mut().connection(self.port) {
            connection.seldom = place;
        }
    }

    /// Has the kernel tell of it when [`LOW_WATER`] bytes are there, and keep room for more.
    fn be_told_seldom(&self, socket: &TcpStream) -> io::Result<()> {
        // Its buffer grows with what it is to tell of, and does not become smaller again
        // (`tcp_set_rcvlowat`). Where it gives less, it tells when there is no room.
        net::options::set_receive_low_water(socket, LOW_WATER * ROOM_FOR)?;
        net::options::set_receive_low_water(socket, LOW_WATER)
    }

    /// Reads what is there, to be heard later; says whether all of it found room.
    fn hold(&mut self, socket: &TcpStream, now: Time) -> Holding {
        let holding = self
            .held
            .read(socket, &mut self.watch.borrow_mut().room, now);
        self.broke |= holding == Holding::Broken;
        holding
    }

    /// The first of what was read and is yet to be heard.
    pub(super) fn take_held(&mut self) -> Option<Chunk> {
        self.held.take()
    }

    /// Puts back what [`Watched::take_held`] gave, of which so many bytes were heard.
    pub(super) fn put_back(&mut self, chunk: Chunk, heard: usize) {
        let room = &mut self.watch.borrow_mut().room;
        self.held.put_back(chunk, heard, room);
    }

    /// Whether it broke behind what is held.
    pub(super) fn broke(&self) -> bool {
        self.broke
    }

    /// How many bytes can be heard of which the ring has shown when they came.
    fn known(&self) -> usize {
        self.with(|segments| segments.unread()).unwrap_or(0)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.be_seldom(None);
        let mut watch = self.watch.borrow_mut();
        self.held.clear(&mut watch.room);
        watch.ports.release(self.port);
        if let Some(index) = watch.index(self.port) {
            watch.remotes[index] = None;
            watch.connections[index] = None;
        }
    }
}

/// The connections that bring much between two turns.
#[derive(Debug, Default)]
pub(super) struct Fast {
    /// Their places among the sockets, and perhaps those of some that were and are no more.
    places: Vec<usize>,
    /// When they were looked at last.
    looked: Time,
}

/// What is to be read of a connection that is read seldom.
pub(super) enum Wanted {
    /// So many bytes, whose times are known.
    Known(usize),
    /// Whatever there is.
    All,
    /// Nothing.
    Nothing,
}

impl Worker {
    /// What is to be read of a connection because the kernel has told of it.
    pub(super) fn wanted_when_told(&mut self, place: usize) -> Wanted {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return Wanted::Nothing;
        };
        let (ended, state) = (stream.ended, &stream.state);
        let Some(watched) = stream.watched.as_mut().filter(|watched| watched.seldom) else {
            return Wanted::All;
        };
        if watched.ending {
            return Wanted::Nothing;
        }
        if ended && let State::Open { session, channel } = *state {
            watched.ending = true;
            if self.end_waits(place, session, channel) {
                return Wanted::Nothing;
            }
            self.read_at_once(place);
            return Wanted::All;
        }
        // One that was fast, ended, and is so again at the same place may be there still.
        if !std::mem::replace(&mut watched.fast, true) && !self.fast.places.contains(&place) {
            self.fast.places.push(place);
        }
        let known = watched.known();
        let wanted = match known {
            0 => Wanted::Nothing,
            _ => Wanted::Known(known),
        };
        // What the ring has missed it will not show any more.
        if watched.with(|segments| segments.has_gap()) == Some(true) {
            return Wanted::All;
        }
        // The ring may be behind. Nobody who sends is to be kept waiting for that, and what is left
        // there would have the kernel tell of it again all the sooner.
        match watched.hold(&stream.socket, self.turn) {
            Holding::All => wanted,
            // Times are then those of reading, and counted as such.
            Holding::Full => Wanted::All,
            Holding::Ended | Holding::Broken => {
                stream.ended = true;
                self.unread.push(place);
                wanted
            }
        }
    }

    /// Less was read of a connection than the ring has shown.
    pub(super) fn came_short(&mut self, place: usize) {
        let now = self.clock.now();
        if let Some(Socket::Stream(stream)) = self.sockets.get(place)
            && let Some(watched) = &stream.watched
        {
            watched.with(|segments| {
                if segments.oldest().is_some_and(|at| at + NOT_TAKEN < now) {
                    segments.nothing_more();
                }
            });
        }
    }

    /// From now on the connection is read seldom, if it may be: media comes in it, and the ring
    /// shows when.
    pub(super) fn read_seldom(&mut self, place: usize) {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return;
        };
        let State::Open { session, .. } = stream.state else {
            return;
        };
        let Some(watched) = stream.watched.as_mut() else {
            return;
        };
        let media = self.sessions.get(session.place).is_some_and(|slot| {
            // Media that comes by sockets of its own is none of the connection's.
            let pairs = |(_, channel): &(_, Channel)| matches!(channel, Channel::Pair { .. });
            slot.serial == session.serial
                && slot.has_media()
                && !slot.stopping
                && !slot.channels.iter().any(pairs)
        });
        if watched.seldom || stream.ended || !media {
            return;
        }
        if watched.with(|segments| segments.is_known()) != Some(true) {
            if let Some(watcher) = &self.watcher {
                watcher.hurries.set(true);
            }
            return;
        }
        // Where it is refused, it goes on as it was.
        if watched.be_told_seldom(&stream.socket).is_ok() {
            watched.be_seldom(Some(place));
        }
    }

    /// From now on the connection is read whenever the kernel tells of it.
    fn read_at_once(&mut self, place: usize) {
        if let Some(Socket::Stream(stream)) = self.sockets.get_mut(place)
            && let Some(watched) = &mut stream.watched
        {
            watched.be_seldom(None);
        }
    }

    /// The end of a connection that was read seldom need not wait any more.
    pub(super) fn read_to_end(&mut self, place: usize, key: SessionKey, of: ChannelId) {
        // Its session may have closed it meanwhile, and the place be another's.
        if let Some(Socket::Stream(stream)) = self.sockets.get(place)
            && let State::Open { session, channel } = stream.state
            && (session, channel) == (key, of)
        {
            self.read_at_once(place);
            self.read_stream(place, &Wanted::All);
        }
    }

    /// When [`Worker::read_in_turn`] finds the next to read.
    pub(super) fn connections_due(&self) -> Time {
        match &self.watcher {
            Some(watcher) if watcher.is_needed() => {
                Time::from_nanos((self.turns_taken + 1) * SHARE.as_nanos() as u64)
            }
            _ => Time::NEVER,
        }
    }

    /// Reads the connections whose turn it is.
    pub(super) fn read_in_turn(&mut self, now: Time) {
        let turn = now.as_nanos() / SHARE.as_nanos() as u64;
        // Nobody's turn comes twice because the loop was late.
        let from = self.turns_taken.max(turn.saturating_sub(SHARES as u64));
        self.turns_taken = turn;
        if !self.watcher.as_ref().is_some_and(Watcher::is_needed) {
            self.leaving.clear();
            return;
        }
        if from < turn {
            self.read_rings_now();
        }
        let mut places = std::mem::take(&mut self.places);
        for turn in from..turn {
            let planned = Time::from_start(SHARE * u32::try_from(turn).unwrap_or(u32::MAX));
            self.begin_turn(turn, &mut places);
            for place in places.drain(..) {
                if !self.was_just_read(place, now) {
                    self.read_one_in_turn(place, now, planned);
                }
            }
        }
        self.places = places;
        for key in std::mem::take(&mut self.leaving) {
            if self.slot(key).is_some() {
                self.catch_up(key);
                self.leaving.push(key);
            }
        }
    }

    /// Reads those of the fast connections of which enough has been shown.
    pub(super) fn read_fast(&mut self, now: Time) {
        if self.fast.places.is_empty() || now < self.fast.looked + LOOK_AT_FAST {
            return;
        }
        self.fast.looked = now;
        let mut places = std::mem::take(&mut self.fast.places);
        places.retain(|&place| self.read_if_fast(place, now));
        // Nothing that is heard meanwhile adds one, but let none be lost if it did.
        places.append(&mut self.fast.places);
        self.fast.places = places;
    }

    /// Reads a connection if enough of it has been shown; says whether it is fast still.
    fn read_if_fast(&mut self, place: usize, now: Time) -> bool {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return false;
        };
        // The place may be another's by now.
        let Some(watched) = stream.watched.as_mut().filter(|watched| watched.fast) else {
            return false;
        };
        let known = watched.known();
        watched.fast = watched.seldom && now.since(watched.read) < READ_INTERVAL / 2;
        if !watched.fast || watched.ending {
            return watched.fast;
        }
        if known >= WITH_OTHERS {
            self.read_stream(place, &Wanted::Known(known));
            self.settle();
        }
        true
    }

    /// Whether a connection's turn may be left out: it was read between two of them.
    fn was_just_read(&self, place: usize, now: Time) -> bool {
        match self.sockets.get(place) {
            Some(Socket::Stream(stream)) => stream
                .watched
                .as_ref()
                .is_some_and(|watched| now.since(watched.read) < READ_INTERVAL / 2),
            _ => false,
        }
    }

    /// Reads all connections that are read seldom, at the end of a window: it is to hold what came
    /// in it. While clients are being added, windows would else miss some of what came: 3.5 % where
    /// their number grows by a quarter a second.
    pub(super) fn read_all_streams(&mut self, end: Time) {
        if self.watcher.as_ref().is_some_and(Watcher::is_needed) {
            let now = self.clock.now();
            let mut places = std::mem::take(&mut self.places);
            for turn in 0..SHARES as u64 {
                self.begin_turn(turn, &mut places);
                for place in places.drain(..) {
                    self.read_one_in_turn(place, now, end);
                }
            }
            self.places = places;
        }
    }

    /// Gives the places of the connections whose turn it is.
    fn begin_turn(&self, turn: u64, places: &mut Vec<usize>) {
        if let Some(watcher) = &self.watcher {
            let share = usize::try_from(turn % SHARES as u64).unwrap_or(0);
            watcher.begin_turn(share, places);
        }
    }

    /// `planned` is when its turn was due.
    fn read_one_in_turn(&mut self, place: usize, now: Time, planned: Time) {
        let Some(Socket::Stream(stream)) = self.sockets.get(place) else {
            return;
        };
        let Some(watched) = stream.watched.as_ref().filter(|watched| watched.seldom) else {
            return;
        };
        if watched.ending {
            return;
        }
        let unheard = now.since(watched.read) >= UNHEARD;
        let until = Time::from_nanos(
            planned
                .as_nanos()
                .saturating_sub(SHOWN_WITHIN.as_nanos() as u64),
        );
        let known = watched.with(|segments| (segments.unread_before(until), segments.has_gap()));
        match known {
            Some((known @ 1.., false)) => self.read_stream(place, &Wanted::Known(known)),
            // What the ring has missed it will not show any more.
            Some((_, true)) => self.read_stream(place, &Wanted::All),
            Some((0, false)) | None if unheard => self.read_stream(place, &Wanted::All),
            Some((0, false)) | None => return,
        }
        self.settle();
    }

    /// Has a session hear all that has come for it as far as is known, before it hears that time
    /// has passed.
    pub(super) fn catch_up(&mut self, key: SessionKey) {
        if !self.watcher.as_ref().is_some_and(Watcher::is_needed) {
            return;
        }
        let Some(slot) = self.slot(key) else { return };
        let place = slot.channels.iter().find_map(|(_, channel)| match channel {
            Channel::Stream(place) => Some(*place),
            Channel::Resolving
            | Channel::Pair { .. }
            | Channel::Group(_)
            | Channel::Datagrams { .. } => None,
        });
        let Some(place) = place else { return };
        let Some(Socket::Stream(stream)) = self.sockets.get(place) else {
            return;
        };
        if let Some(watched) = &stream.watched
            && watched.seldom
            && !watched.ending
            && let known @ 1.. = watched.known()
        {
            self.read_stream(place, &Wanted::Known(known));
            self.settle();
        }
    }

    /// A session is to end soon: what comes for it is read more often, for nobody is to wait for
    /// that.
    pub(super) fn leaves(&mut self, key: SessionKey) {
        if self.watcher.as_ref().is_some_and(Watcher::is_needed) {
            self.leaving.push(key);
        }
    }
}

#[cfg(test)]
mod tests;
