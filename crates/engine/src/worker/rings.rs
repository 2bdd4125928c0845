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
use protocol::session::{Arrival, MediaMark, SinkId};

use super::config::RingPlan;
use super::connections::SegmentTimes;
use super::counting::{Counting, foreign};
use super::deferred::{DeferredInputs, Mark};
use super::inbox::Pending;
use super::keys::SessionKey;
use super::readiness::Readiness;

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
/// Sessions hear of events up to 100 ms later, with the kernel's arrival times. If feedback may be
/// due ([`protocol::session::Needs::within`]), packets are not gathered: each block wakes the loop.
const GATHER: Duration = Duration::from_millis(100);

/// The rings of a worker, and what is behind each port.
pub(super) struct Rings {
    settings: RingSettings,
    /// For IPv4 and for IPv6; the second is opened when it is first needed.
    rings: [Option<PacketRing>; 2],
    /// By pair of ports.
    targets: Vec<Option<Target>>,
    /// True if each block wakes the loop.
    wakes: bool,
    /// When they were read last.
    read: Time,
    /// What is heard when they have brought what came before it.
    pub(super) deferred: DeferredInputs,
    /// What the kernel could not put into the rings, as far as it has been taken up.
    dropped: u64,
}

/// Longest tick of the kernel's timer (`CONFIG_HZ` 100).
const TICK: Duration = Duration::from_millis(10);

/// Whose the media of a port is.
#[derive(Clone, Copy)]
struct Target {
    sink: SinkId,
    session: SessionKey,
    population: usize,
    local: IpAddr,
    /// Whose datagrams count.
    from: From,
    /// What of the port's datagrams is media, where they are not all.
    mark: Option<MediaMark>,
    /// How many datagrams the ring has brought for it that its socket counted too.
    seen: u64,
    /// True once the session was told of datagrams from another address.
    knows_others: bool,
}

/// Whose datagrams count as media of a port.
#[derive(Clone, Copy)]
enum From {
    /// Before the peer is named.
    Anybody,
    /// Those of that host; others' are foreign.
    Host(IpAddr),
    /// Those of the peer that the port's socket is connected to: the kernel gives it no others.
    Connected(SocketAddr),
}

/// What a port is, whose media comes by the ring.
pub(super) struct RingPort {
    pub(super) sink: SinkId,
    pub(super) session: SessionKey,
    pub(super) population: usize,
    /// What of it is media; none where all is.
    pub(super) mark: Option<MediaMark>,
    /// The peer that the socket is connected to.
    pub(super) connected: Option<SocketAddr>,
}

impl Rings {
    /// The ring for IPv4, for the ports that `settings` names.
    pub(super) fn open(
        RingPlan { settings, wakes }: RingPlan,
        readiness: &Readiness,
    ) -> io::Result<Rings> {
        let ring = PacketRing::open(&settings)?;
        if wakes {
            readiness.poll_ring(&ring)?;
        }
        let pairs = usize::from(settings.ports.end() - settings.ports.start()) / 2 + 1;
        Ok(Rings {
            settings,
            rings: [Some(ring), None],
            targets: vec![None; pairs],
            wakes,
            read: Time::ZERO,
            deferred: DeferredInputs::default(),
            dropped: 0,
        })
    }

    /// Maximum time between the arrival of a packet and its sight: the kernel hands a block over
    /// after its timeout, as exactly as its timer ticks.
    pub(super) fn delay(&self) -> Duration {
        self.settings.block_timeout + TICK
    }

    /// Opens the ring for the family of `local` if that has not been done.
    pub(super) fn cover(&mut self, local: IpAddr, readiness: &Readiness) -> io::Result<()> {
        let family = match local {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        let place = &mut self.rings[usize::from(local.is_ipv6())];
        if place.is_none() {
            let ring = PacketRing::open(&RingSettings {
                family,
                ..self.settings.clone()
            })?;
            if self.wakes {
                readiness.poll_ring(&ring)?;
            }
            *place = Some(ring);
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
    pub(super) fn assign(&mut self, local: SocketAddr, port: &RingPort) {
        if let Some(place) = self.place(local.port())
            && let Some(target) = self.targets.get_mut(place)
        {
            *target = Some(Target {
                sink: port.sink,
                session: port.session,
                population: port.population,
                local: local.ip(),
                from: port.connected.map_or(From::Anybody, From::Connected),
                mark: port.mark,
                seen: 0,
                knows_others: false,
            });
        }
    }

    /// Whose datagrams count on that port.
    pub(super) fn name_peer(&mut self, port: u16, peer: IpAddr) {
        if let Some(target) = self.target(port) {
            target.from = From::Host(peer);
        }
    }

    /// How much the kernel has put into the rings so far.
    fn mark(&mut self, at: Time) -> Mark {
        let mut counts = [0; 2];
        for (count, ring) in counts.iter_mut().zip(&mut self.rings) {
            // A count that cannot be read makes nobody wait.
            if let Some(seen) = ring.as_mut().and_then(|ring| ring.seen().ok()) {
                *count = seen.arrived - seen.dropped;
            }
        }
        Mark::new(counts, at)
    }

    /// Whether all has been handed over that had arrived at that moment.
    fn reached(&self, mark: &Mark) -> bool {
        let handled = self
            .rings
            .iter()
            .map(|ring| ring.as_ref().map_or(0, PacketRing::handled));
        handled
            .zip(mark.counts())
            .all(|(handled, count)| handled >= count)
    }

    /// Time of the next read if no further block is ready; `turn` is the start of the running turn.
    /// Rings are polled only if feedback may be due. Otherwise each heartbeat looks into their
    /// memory, which costs less than a wake-up for each block.
    pub(super) fn next_read(&self, turn: Time) -> Time {
        match self.have_ready(BLOCKS_A_TURN) {
            true => turn,
            false => Time::NEVER,
        }
    }

    /// Whether it is time to read them: with `at_once` as soon as there is anything.
    pub(super) fn are_due(&self, now: Time, at_once: bool) -> bool {
        let enough = match at_once || self.wakes || now >= self.read + GATHER {
            true => 1,
            false => BLOCKS_A_TURN,
        };
        self.have_ready(enough)
    }

    /// Works off what they hold. What sessions are to hear of it is pending then.
    pub(super) fn read(
        &mut self,
        segment_times: Option<&SegmentTimes>,
        counting: &mut Counting<'_>,
    ) {
        let clock = counting.runtime.clock.same_start();
        for ring in self.rings.iter_mut().flatten() {
            let mut counter = Counter {
                counting,
                segment_times,
                targets: &mut self.targets,
                first: *self.settings.ports.start(),
            };
            ring.receive_all(&clock, BLOCKS_A_TURN, &mut counter);
        }
        self.read = clock.now();
    }

    /// All has been counted that the ring brings for a port, which is taken back: of what the
    /// kernel counted for it the rest is missing.
    pub(super) fn take_back(&mut self, port: u16, arrived: u32, counting: &mut Counting<'_>) {
        if let Some(index) = self.place(port)
            && let Some(target) = self.targets.get_mut(index).and_then(Option::take)
        {
            let missed = u64::from(arrived).saturating_sub(target.seen);
            counting.runtime.tester.add(tester::RING_MISSED, missed);
            let recorder = counting.populations.recorder(target.population);
            recorder.add(clients::LOST_IN_TESTER, missed);
        }
    }

    /// Until when they have to be read for all to be counted that has arrived; nothing if they have
    /// been, and nothing waits for it.
    pub(super) fn mark_if_behind(&mut self, now: Time) -> Option<Mark> {
        let mark = self.mark(now);
        (!self.deferred.is_empty() || !self.reached(&mark)).then_some(mark)
    }

    /// Whether the first of what waits need not any more.
    pub(super) fn can_let_go(&self, turn: Time) -> bool {
        let first = self.deferred.first();
        first.is_some_and(|mark| self.reached(mark) || turn >= mark.patience_ends())
    }

    /// What the kernel could not put into the rings since the last look.
    pub(super) fn take_drops(&mut self) -> u64 {
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
struct Counter<'a, 'b> {
    counting: &'a mut Counting<'b>,
    segment_times: Option<&'a SegmentTimes>,
    targets: &'a mut [Option<Target>],
    /// The first of the ring's ports.
    first: u16,
}

impl Take for Counter<'_, '_> {
    fn soon(&mut self, ports: &[u16]) {
        for port in ports {
            let place = usize::from(port.wrapping_sub(self.first)) / 2;
            if let Some(Some(target)) = self.targets.get(place)
                && let Some(receiver) = self.counting.sinks.peek(target.sink)
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
                if let Some(times) = self.segment_times {
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
            target.count(self.counting, datagrams);
        }
    }
}

impl Target {
    /// Counts datagrams of its stream.
    #[inline]
    fn count<'a>(
        &mut self,
        counting: &mut Counting<'_>,
        datagrams: impl Iterator<Item = Datagram<'a>>,
    ) {
        let Counting {
            sinks,
            populations,
            runtime,
        } = counting;
        let whose = (self.session, self.sink);
        let mut sink = sinks.sink(self.sink);
        for datagram in datagrams {
            // A socket bound to an address gets what is sent to that address.
            if !self.local.is_unspecified() && self.local != datagram.to.ip() {
                continue;
            }
            // The kernel gives a connected socket none of these, so only the ring can report an
            // answer from another address.
            if let From::Connected(peer) = self.from
                && peer != datagram.from
            {
                foreign(&mut self.knows_others, whose, datagram.from.ip(), runtime);
                continue;
            }
            if self.mark.is_some_and(|mark| !mark.is_on(datagram.bytes)) {
                continue;
            }
            self.seen += 1;
            if let From::Host(peer) = self.from
                && peer != datagram.from.ip()
            {
                foreign(&mut self.knows_others, whose, datagram.from.ip(), runtime);
                continue;
            }
            let arrival = Arrival {
                at: datagram.at,
                bytes: datagram.bytes,
                length: datagram.length,
                overhead: datagram.overhead,
            };
            let sink = sink.as_deref_mut();
            let recorder = populations.recorder_at(self.population, datagram.at);
            let event = sink.and_then(|sink| sink.packet(&arrival, recorder));
            if let Some(event) = event {
                runtime.inbox.push(
                    self.session,
                    Pending::Media {
                        sink: self.sink,
                        event,
                    },
                );
            }
        }
    }
}
