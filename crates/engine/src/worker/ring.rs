//! Media out of the packet ring: whose it is, and when it is counted.
//!
//! Each media port is held by a socket that takes nothing and counts all
//! (`net::options::drop_all`). At the end of a stream the kernel's count is held against what the
//! ring brought for it: what is missing there was lost by the tester, whatever the reason.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::{Time, tester};
use net::prefetch;
use net::ring::{Arrived, Datagram, Family, PacketRing, RingSettings, Take};
use protocol::metrics as clients;
use protocol::session::{Arrival, SinkId};

use super::Worker;
use super::connections::SegmentTimes;
use super::inbox::Pending;
use super::keys::SessionKey;
use super::sockets::Socket;
use super::waiting::Queue;

/// How many blocks are worked off before the other sockets have their turn.
const BLOCKS_A_TURN: usize = 16;

/// How long packets are gathered in the ring before they are counted, all of a stream one after the
/// other: with thousands of streams most of what counting a packet costs is to fetch what is known
/// of its stream.
///
/// Measured over loopback with two testers beside each other, 500 and 600 clients of 1 Mb/s each (2
/// cores of a busy virtual machine, Linux 6.18), processor time a packet against that with 50 ms:
/// at once 1.30, 25 ms 1.03, 100 ms 0.94.
///
/// Arrival times are the kernel's. What a session hears, that its media has begun for example, and
/// what waits for the ring, it hears up to so much later, with the time at which it came.
const GATHER: Duration = Duration::from_millis(100);

/// The rings of a worker, and what is behind each port.
pub(super) struct Rings {
    settings: RingSettings,
    /// For IPv4 and for IPv6; the second is opened when it is first needed.
    rings: [Option<PacketRing>; 2],
    /// By pair of ports.
    targets: Vec<Option<Target>>,
    /// When they were read last.
    read: Time,
    /// What is heard when they have brought what came before it.
    pub(super) waiting: Queue,
    /// What the kernel could not put into the rings, as far as it has been taken up.
    dropped: u64,
}

/// Whose the media of a port is.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) sink: SinkId,
    session: SessionKey,
    population: usize,
    local: IpAddr,
    /// Whose datagrams count. Before the peer is named: anybody's.
    peer: Option<IpAddr>,
    /// How many datagrams the ring has brought for it, whoever sent them.
    seen: u64,
}

/// How much the rings had taken in at a moment, and when that was.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    counts: [u64; 2],
    pub(super) at: Time,
}

impl Rings {
    /// The ring for IPv4, for the ports that `settings` names.
    pub(super) fn open(settings: RingSettings) -> io::Result<Rings> {
        let ring = PacketRing::open(&settings)?;
        let pairs = usize::from(settings.ports.end() - settings.ports.start()) / 2 + 1;
        Ok(Rings {
            settings,
            rings: [Some(ring), None],
            targets: vec![None; pairs],
            read: Time::ZERO,
            waiting: Queue::default(),
            dropped: 0,
        })
    }

    /// Opens the ring for the family of `local` if that has not been done.
    pub(super) fn cover(&mut self, local: IpAddr) -> io::Result<()> {
        let family = match local {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        let place = &mut self.rings[usize::from(local.is_ipv6())];
        if place.is_none() {
            *place = Some(PacketRing::open(&RingSettings {
                family,
                ..self.settings.clone()
            })?);
        }
        Ok(())
    }

    /// Whether so many blocks have been handed over.
    fn have_ready(&self, blocks: usize) -> bool {
        let mut each = self.rings.iter().flatten();
        each.any(|ring| ring.has_ready(blocks))
    }

    fn place(&self, port: u16) -> Option<usize> {
        let offset = port.checked_sub(*self.settings.ports.start())?;
        (offset % 2 == 0).then_some(usize::from(offset / 2))
    }

    fn target(&mut self, port: u16) -> Option<&mut Target> {
        let place = self.place(port)?;
        self.targets.get_mut(place)?.as_mut()
    }

    /// From now on the port's media goes to that sink.
    pub(super) fn assign(
        &mut self,
        local: SocketAddr,
        sink: SinkId,
        session: SessionKey,
        population: usize,
    ) {
        if let Some(place) = self.place(local.port())
            && let Some(target) = self.targets.get_mut(place)
        {
            *target = Some(Target {
                sink,
                session,
                population,
                local: local.ip(),
                peer: None,
                seen: 0,
            });
        }
    }

    /// Whose datagrams count on that port.
    pub(super) fn name_peer(&mut self, port: u16, peer: IpAddr) {
        if let Some(target) = self.target(port) {
            target.peer = Some(peer);
        }
    }

    /// How much the kernel has put into the rings so far.
    pub(super) fn mark(&mut self, at: Time) -> Mark {
        let mut counts = [0; 2];
        for (count, ring) in counts.iter_mut().zip(&mut self.rings) {
            // A count that cannot be read makes nobody wait.
            if let Some(seen) = ring.as_mut().and_then(|ring| ring.seen().ok()) {
                *count = seen.arrived - seen.dropped;
            }
        }
        Mark { counts, at }
    }

    /// Whether all has been handed over that had arrived at that moment.
    pub(super) fn reached(&self, mark: &Mark) -> bool {
        let handled = self
            .rings
            .iter()
            .map(|ring| ring.as_ref().map_or(0, PacketRing::handled));
        handled
            .zip(mark.counts)
            .all(|(handled, count)| handled >= count)
    }

    /// What the kernel could not put into the rings since the last look.
    fn take_drops(&mut self) -> u64 {
        let rings = self.rings.iter_mut().flatten();
        let dropped: u64 = rings
            .filter_map(|ring| ring.seen().ok())
            .map(|seen| seen.dropped)
            .sum();
        let new = dropped.saturating_sub(self.dropped);
        self.dropped = self.dropped.max(dropped);
        new
    }
}

/// Counts what comes out of a ring.
struct Counting<'a> {
    worker: &'a mut Worker,
    targets: &'a mut [Option<Target>],
    /// The first of the ring's ports.
    first: u16,
}

impl Take for Counting<'_> {
    fn soon(&mut self, ports: &[u16]) {
        for port in ports {
            let place = usize::from(port.wrapping_sub(self.first)) / 2;
            if let Some(Some(target)) = self.targets.get(place)
                && let Some(receiver) = self.worker.sinks.peek(target.sink)
            {
                prefetch(receiver);
            }
        }
    }

    fn take(&mut self, arrived: Arrived<'_>) {
        match arrived {
            Arrived::Datagram(datagram) => {
                self.run(datagram.to.port(), std::iter::once(*datagram));
            }
            Arrived::Segment(segment) => {
                if let Some(times) = self.worker.connections.segment_times() {
                    times.shown(segment);
                }
            }
        }
    }

    #[inline]
    fn run<'a>(&mut self, port: u16, datagrams: impl Iterator<Item = Datagram<'a>>) {
        let offset = usize::from(port.wrapping_sub(self.first));
        // RTCP is its own socket's, and a port that nobody has is nobody's.
        if offset.is_multiple_of(2)
            && let Some(Some(target)) = self.targets.get_mut(offset / 2)
        {
            self.worker.ring_datagrams(target, datagrams);
        }
    }
}

/// Whether media for that local address comes by the ring.
pub(super) fn cover_by_ring(rings: &mut Option<Rings>, local: IpAddr) -> io::Result<bool> {
    match rings {
        Some(rings) => rings.cover(local).map(|()| true),
        None => Ok(false),
    }
}

impl Worker {
    /// From now on the ring's packets for that port are that session's.
    pub(super) fn assign_to_ring(&mut self, local: SocketAddr, sink: SinkId, key: SessionKey) {
        let Some(slot) = self.slot(key) else { return };
        slot.on_ring = true;
        let population = slot.population;
        if let Some(rings) = &mut self.rings {
            rings.assign(local, sink, key, population);
        }
    }

    /// When the rings are to be read next, if nothing more comes. They are not polled: to be woken
    /// for each block would cost more than to look at each heartbeat, and whether there is anything
    /// is seen in their memory.
    pub(super) fn rings_due(&self) -> Time {
        match &self.rings {
            Some(rings) if rings.have_ready(BLOCKS_A_TURN) => self.runtime.turn,
            _ => Time::NEVER,
        }
    }

    /// Works off what the rings hold if it is time for that.
    pub(super) fn read_rings(&mut self) {
        let Some(rings) = &self.rings else { return };
        // Of connections that are read seldom the ring has to show all in time.
        let at_once = self.connections.segment_times();
        let at_once = at_once.is_some_and(SegmentTimes::hurries);
        let enough = match at_once || self.runtime.clock.now() >= rings.read + GATHER {
            true => 1,
            false => BLOCKS_A_TURN,
        };
        if rings.have_ready(enough) {
            self.read_rings_now();
        }
    }

    /// Works off what the rings hold.
    pub(super) fn read_rings_now(&mut self) {
        let Some(mut rings) = self.rings.take() else {
            return;
        };
        let Rings {
            rings: each,
            targets,
            settings,
            ..
        } = &mut rings;
        let clock = self.runtime.clock.same_start();
        for ring in each.iter_mut().flatten() {
            let mut counting = Counting {
                worker: self,
                targets,
                first: *settings.ports.start(),
            };
            ring.receive_all(&clock, BLOCKS_A_TURN, &mut counting);
        }
        rings.read = self.runtime.clock.now();
        self.rings = Some(rings);
        self.settle();
        self.let_go();
    }

    /// Counts datagrams of one stream.
    #[inline]
    fn ring_datagrams<'a>(
        &mut self,
        target: &mut Target,
        datagrams: impl Iterator<Item = Datagram<'a>>,
    ) {
        let mut sink = self.sinks.sink(target.sink);
        for datagram in datagrams {
            // A socket bound to an address gets what is sent to that address.
            if !target.local.is_unspecified() && target.local != datagram.to.ip() {
                continue;
            }
            target.seen += 1;
            if target.peer.is_some_and(|peer| peer != datagram.from.ip()) {
                self.runtime.tester.add(tester::FOREIGN_PACKETS, 1);
                continue;
            }
            let arrival = Arrival {
                at: datagram.at,
                bytes: datagram.bytes,
                length: datagram.length,
                overhead: datagram.overhead,
            };
            let sink = sink.as_deref_mut();
            let recorder = self.populations.recorder_at(target.population, datagram.at);
            let event = sink.and_then(|sink| sink.packet(&arrival, recorder));
            if let Some(event) = event {
                self.runtime.inbox.push(
                    target.session,
                    Pending::Media {
                        sink: target.sink,
                        event,
                    },
                );
            }
        }
    }

    /// A media port whose media comes by the ring is wanted no more. It stays taken until all is
    /// counted that has arrived for it.
    pub(super) fn close_ring_port(&mut self, place: usize) {
        let Some(Socket::Udp(end)) = self.sockets.get(place) else {
            return;
        };
        let arrived = net::options::drops(&end.socket).unwrap_or(0);
        self.port_ends(place, arrived);
    }

    /// Takes a media port back of which all has been counted that the ring brings.
    pub(super) fn give_port_back(&mut self, place: usize, arrived: u32) {
        let Some(Socket::Udp(end)) = self.sockets.try_remove(place) else {
            return;
        };
        let Some(rings) = &mut self.rings else { return };
        if let Some(index) = rings.place(end.pair)
            && let Some(target) = rings.targets.get_mut(index).and_then(Option::take)
        {
            let missed = u64::from(arrived).saturating_sub(target.seen);
            self.runtime.tester.add(tester::RING_MISSED, missed);
            self.populations
                .recorder(target.population)
                .add(clients::LOST_IN_TESTER, missed);
        }
        self.ports.release(end.pair);
    }

    /// Takes up what the kernel could not put into the rings.
    pub(super) fn collect_ring_drops(&mut self) {
        if let Some(rings) = &mut self.rings {
            let drops = rings.take_drops();
            self.runtime.tester.add(tester::RING_OVERFLOW, drops);
        }
    }
}
