//! Datagrams, and headers of TCP segments, out of a ring of memory that the kernel shares with us
//! (`AF_PACKET`, `TPACKET_V3`; packet(7)): hundreds for one wake-up, without a system call for any
//! of them, each with the kernel's arrival time.
//!
//! # What it sees
//! A [`PacketRing`] is bound to IPv4 or IPv6, not to every protocol. So it stands where the IP
//! layer stands, and sees each received packet once, after bridges, bonds, VLANs and macvlans have
//! been resolved, on every interface, those that appear later included; never what leaves. It looks
//! at headers alone, before routing and netfilter:
//! - Addresses are those in the packet. What the firewall drops is seen; what it redirects to
//!   another port or address (DNAT) has the old one.
//! - Packets that are being forwarded, and multicast of groups that nobody here has joined, are
//!   seen: look at [`Datagram::to`].
//! - Checksums are not verified.
//! - It never sees the copy of a multicast or broadcast datagram that a sender in this network
//!   namespace gets back of what it sends out of an interface other than loopback
//!   (`PACKET_LOOPBACK`); nor what IPsec in transport mode brought; nor IPv6 fragments whose UDP
//!   header stands behind destination options within the fragmented part.
//!
//! [`crate::options::drop_all`] makes sockets that reserve the ports, and count what the kernel
//! would have delivered to them: the ring's datagrams can be held against
//! [`crate::options::drops`].
//!
//! # What it counts
//! Nothing is lost silently: what found no room is in [`PacketRing::seen`], what could not be made
//! use of in [`PacketRing::counters`].

mod block;
mod filter;
mod fragments;
mod mapped;
mod order;
mod packet;
mod plain;
mod reader;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use measure::Time;

use crate::clock::Clock;
use crate::segments::Header;
use filter::FilterRule;
use mapped::Mapped;
use reader::FrameReader;

#[cfg(any(test, fuzzing))]
pub use reader::read_any;

/// Which version of IP a ring receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// `ETH_P_IP` or `ETH_P_IPV6` (linux/if_ether.h).
    fn protocol(self) -> u16 {
        match self {
            Family::V4 => 0x0800,
            Family::V6 => 0x86dd,
        }
    }
}

/// How many bytes of a packet are kept when nothing else is said, from its link-layer header on:
/// Ethernet with a VLAN tag (18), IPv4 with all its options (60), UDP (8), and [`WANTED_BYTES`]
/// (76), and two more that make a frame 256 bytes with what the kernel puts before it. Of IPv6
/// there is room for 22 bytes of extension headers.
pub const SNAPSHOT: usize = 164;

/// How many of a payload's first bytes are wanted at least: a datagram of which fewer were kept is
/// [`Counters::cut`]. An RTP header has 12, 4 for each of up to 15 contributing sources, and 4 of
/// its extension (RFC 3550, 5.1 and 5.3.1).
pub const WANTED_BYTES: usize = 12 + 15 * 4 + 4;

/// A block must hold the longest packet there is, and the headers before it.
pub const BLOCK_BYTES_MIN: usize = 72 << 10;

/// How a [`PacketRing`] is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSettings {
    /// IPv4 or IPv6: one ring for each.
    pub family: Family,
    /// Destination ports of UDP datagrams that are received, both ends included.
    pub ports: RangeInclusive<u16>,
    /// Whether the headers of TCP segments to the same ports are received as well ([`Segment`]).
    /// Default: no.
    pub segments: bool,
    /// Bytes of memory, rounded down to whole blocks; at least two. All of it is resident from the
    /// beginning. Default: 8 MiB, which hold 32,000 packets of usual size.
    pub bytes: usize,
    /// Bytes of a block, the unit in which the kernel hands packets over: a multiple of the page
    /// size, at least [`BLOCK_BYTES_MIN`]. Default: 128 KiB.
    pub block_bytes: usize,
    /// When the kernel hands over a block that is not full; whole milliseconds, at least one.
    /// Default: 10 ms.
    ///
    /// Arrival times are the kernel's, so that waiting costs nothing but that things are noticed
    /// later; each wake-up costs about 10 µs. Measured over loopback with
    /// `examples/ring_timeout.rs`, 1000 sockets, packets of 1200 bytes (2 cores of a busy virtual
    /// machine, Linux 6.18): processor time of the receiving thread in µs a packet, and how long
    /// after its arrival a packet is looked at, mean and largest in ms.
    ///
    /// | timeout | 1,000 packets/s | 10,000 packets/s | 100,000 packets/s |
    /// |--:|--:|--:|--:|
    /// | 1 ms | 12.7, 0.6 to 7 | 1.40, 0.6 to 5 | 0.21, 0.5 to 5 |
    /// | 2 ms | 9.7, 1.0 to 6 | 0.93, 1.0 to 4 | 0.17, 1.0 to 4 |
    /// | 5 ms | 4.5, 2.6 to 5 | 0.48, 2.5 to 7 | 0.13, 2.4 to 9 |
    /// | 10 ms | 2.4, 5.1 to 12 | 0.34, 5.1 to 15 | 0.14, 2.5 to 6 |
    /// | 20 ms | 1.4, 10 to 20 | 0.24, 10 to 22 | 0.12, 2.6 to 16 |
    /// | 50 ms | 0.6, 25 to 50 | 0.18, 25 to 50 | 0.13, 2.6 to 45 |
    ///
    /// A short one also makes the ring small: a block that is handed over half empty is gone until
    /// it is given back, so that a thread that is kept from its work for longer than all blocks'
    /// timeouts together (64 times 10 ms) loses packets even if they are few.
    pub block_timeout: Duration,
    /// How many bytes of a packet are kept, from its link-layer header on; packets longer than 1600
    /// are always kept whole. Default: [`SNAPSHOT`].
    pub snapshot: usize,
    /// Datagrams of whose payload's first byte any of these bits is set are kept whole as well. Not
    /// looked at in IPv6 behind extension headers. Default: 0, none.
    pub whole_if: u8,
    /// Share of datagrams that the kernel keeps whole: one in 2 to the power of this, chosen at
    /// random. IPv6 datagrams behind extension headers are never chosen. Default: none.
    pub whole_sample: Option<u8>,
    /// Of which datagrams less is kept. Default: of none.
    pub brief: Option<Brief>,
}

/// Datagrams of which only the first bytes are wanted: what is kept of them takes 160 bytes of the
/// ring instead of 256, and as much less of the memory's and the caches' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Those of whose payload's first byte none of these bits is set. In IPv6 behind extension
    /// headers there are none.
    pub unless: u8,
    /// How many bytes of the payload are kept at least, in place of [`WANTED_BYTES`].
    pub bytes: u8,
}

impl RingSettings {
    /// The defaults, for datagrams of `family` to `ports`.
    pub fn new(family: Family, ports: RangeInclusive<u16>) -> RingSettings {
        RingSettings {
            family,
            ports,
            segments: false,
            bytes: 8 << 20,
            block_bytes: 128 << 10,
            block_timeout: Duration::from_millis(10),
            snapshot: SNAPSHOT,
            whole_if: 0,
            whole_sample: None,
            brief: None,
        }
    }
}

/// A datagram out of a [`PacketRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// For whom it is; the address may be a group's.
    pub to: SocketAddr,
    /// The first bytes of its payload: at least [`WANTED_BYTES`] (or [`Brief::bytes`]) if it has as
    /// many, unless it is counted as [`Counters::cut`].
    pub bytes: &'a [u8],
    /// How long the payload really is, in bytes, as its headers say.
    pub length: usize,
    /// Bytes of IP and UDP headers that it took; of a fragmented one, those of all fragments.
    pub overhead: usize,
    /// When the kernel took it in; of a fragmented one, the part that was missing last.
    pub at: Time,
    /// The index of the interface that it came in on.
    pub interface: u32,
}

/// The header of a TCP segment out of a [`PacketRing`]; of several that the kernel had put together
/// (GRO, or a local sender's GSO) one stands for all. IPv4 fragments, and TCP behind IPv6 extension
/// headers, are not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who sent it.
    pub from: SocketAddr,
    /// For whom it is.
    pub to: SocketAddr,
    /// Where it belongs in the stream.
    pub header: Header,
    /// When the kernel took it in.
    pub at: Time,
}

/// What a [`PacketRing`] hands over.
#[derive(Clone, Copy, Debug)]
pub enum Arrived<'a> {
    /// A UDP datagram.
    Datagram(&'a Datagram<'a>),
    /// A TCP segment's header.
    Segment(&'a Segment),
}

/// Takes what comes out of a ring. A closure does; only [`Take::take`] has to do anything.
pub trait Take {
    /// The packets that come next are for these ports. To look at what is needed of each, before
    /// the first of them comes, lets the processor fetch all of it at the same time.
    fn soon(&mut self, _ports: &[u16]) {}

    /// A datagram, or a segment.
    fn take(&mut self, arrived: Arrived<'_>);

    /// Several datagrams for that port, in the order in which they came.
    fn run<'a>(&mut self, _port: u16, datagrams: impl Iterator<Item = Datagram<'a>>) {
        for datagram in datagrams {
            self.take(Arrived::Datagram(&datagram));
        }
    }
}

impl<F: FnMut(Arrived<'_>)> Take for F {
    fn take(&mut self, arrived: Arrived<'_>) {
        self(arrived);
    }
}

/// What one [`PacketRing::receive`] brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Packets out of the ring, of whatever kind.
    pub frames: u64,
    /// Datagrams that the caller was given.
    pub datagrams: u64,
    /// Blocks taken and given back.
    pub blocks: usize,
    /// Whether another block is ready.
    pub more: bool,
}

/// What the kernel has put into a ring since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets that passed the filter, with those for which there was no room.
    pub arrived: u64,
    /// Packets for which there was no room.
    pub dropped: u64,
}

/// Packets that were received and not made use of, since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets with headers that contradict themselves, and blocks that could not be read to their
    /// end.
    pub malformed: u64,
    /// Packets that are not for these ports, which the filter could not know.
    pub foreign: u64,
    /// Packets addressed to another machine's link-layer address, seen because an interface is
    /// promiscuous.
    pub other_host: u64,
    /// Fragmented datagrams for these ports that were given up: incomplete after 30 s,
    /// inconsistent, or too many at a time (1024).
    pub fragments_given_up: u64,
    /// The same of datagrams whose first fragment was not seen, so that nobody knows for which port
    /// they were.
    pub fragments_unknown: u64,
    /// Datagrams of which less than their first [`WANTED_BYTES`] (or [`Brief::bytes`]) were kept.
    /// They were handed over.
    pub cut: u64,
}

/// A ring of received packets. One belongs to one worker and one version of IP.
#[derive(Debug)]
pub struct PacketRing {
    mapped: Mapped,
    block_bytes: usize,
    reader: FrameReader,
    handled: u64,
    seen: Seen,
    /// Whether every packet is kept whole by now.
    whole: bool,
    /// What the filter lets through.
    wanted: FilterRule,
}

impl PacketRing {
    /// Opens a ring. Packets that arrive from now on are in it.
    ///
    /// # Errors
    /// `PermissionDenied` without the capability CAP_NET_RAW, `InvalidInput` for sizes that cannot
    /// be, and what the operating system says where memory is short or it knows no such rings.
    pub fn open(settings: &RingSettings) -> io::Result<PacketRing> {
        let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
        if settings.ports.is_empty() {
            return Err(invalid("a packet ring needs at least one port"));
        }
        if settings.block_bytes < BLOCK_BYTES_MIN
            || !settings
                .block_bytes
                .is_multiple_of(crate::clock::page_size())
        {
            return Err(invalid(
                "a packet ring's block must be whole pages, at least 72 KiB",
            ));
        }
        let blocks = settings.bytes / settings.block_bytes;
        let (Some(block_bytes), Some(blocks)) = (
            NonZeroUsize::new(settings.block_bytes),
            NonZeroUsize::new(blocks).filter(|blocks| blocks.get() >= 2),
        ) else {
            return Err(invalid("a packet ring needs at least two blocks"));
        };
        let snapshot = u32::try_from(settings.snapshot).unwrap_or(u32::MAX);
        // What is wanted whole is not brief.
        let brief = settings.brief.map(|brief| Brief {
            unless: brief.unless | settings.whole_if,
            ..brief
        });
        let wanted = FilterRule {
            family: settings.family,
            ports: settings.ports.clone(),
            snapshot,
            whole_if: settings.whole_if,
            whole_sample: settings.whole_sample,
            brief,
            segments: settings.segments,
        };
        let program = filter::program(&wanted);
        let mapped = Mapped::open(
            settings.family.protocol(),
            &filter::assemble(&program),
            block_bytes,
            blocks,
            settings.block_timeout,
        )?;
        Ok(PacketRing {
            mapped,
            block_bytes: block_bytes.get(),
            reader: FrameReader::new(settings.ports.clone(), settings.segments, brief),
            handled: 0,
            seen: Seen::default(),
            whole: false,
            wanted,
        })
    }

    /// Hands the datagrams of up to `blocks_max` blocks to `take` and gives the blocks back to the
    /// kernel. Those for one port come one after the other, in the order in which they arrived.
    /// Never waits: poll the file descriptor for that, and call this until there is no more.
    pub fn receive(
        &mut self,
        clock: &Clock,
        blocks_max: usize,
        mut take: impl FnMut(&Datagram<'_>),
    ) -> Taken {
        let mut all = |arrived: Arrived<'_>| match arrived {
            Arrived::Datagram(datagram) => take(datagram),
            Arrived::Segment(_) => {}
        };
        self.receive_all(clock, blocks_max, &mut all)
    }

    /// As [`PacketRing::receive`], with the headers of TCP segments where
    /// [`RingSettings::segments`] asks for them.
    pub fn receive_all(&mut self, clock: &Clock, blocks_max: usize, take: &mut impl Take) -> Taken {
        let mut taken = Taken::default();
        while taken.blocks < blocks_max {
            let memory = self.mapped.next_blocks(blocks_max - taken.blocks);
            if memory.is_empty() {
                break;
            }
            let blocks = memory.len() / self.block_bytes;
            let (frames, datagrams) =
                self.reader
                    .take_blocks(memory, self.block_bytes, clock, take);
            taken.frames += frames;
            taken.datagrams += datagrams;
            taken.blocks += blocks;
            self.mapped.give_back(blocks);
        }
        self.handled += taken.frames;
        taken.more = self.mapped.ready(1);
        if !self.reader.fragments.is_empty() {
            self.reader.fragments.expire(clock.now());
        }
        if self.reader.keep_whole && !self.whole {
            self.whole = true;
            self.wanted.snapshot = u32::MAX;
            let program = filter::program(&self.wanted);
            // Where it is refused, what is cut goes on being counted.
            let _ = self.mapped.replace_filter(&filter::assemble(&program));
        }
        taken
    }

    /// Whether the kernel has handed over so many blocks, or all there are. Costs no system call.
    pub fn has_ready(&self, blocks: usize) -> bool {
        self.mapped.ready(blocks)
    }

    /// What the kernel has put into the ring since it was opened. Costs one system call.
    ///
    /// `arrived - dropped == handled()` holds if and only if nothing is waiting in a block: the
    /// kernel hands one over that is not full when [`RingSettings::block_timeout`] has passed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn seen(&mut self) -> io::Result<Seen> {
        // The kernel begins anew with each look.
        let new = self.mapped.statistics()?;
        self.seen.arrived += u64::from(new.packets);
        self.seen.dropped += u64::from(new.drops);
        Ok(self.seen)
    }

    /// How many packets were taken out of the ring since it was opened, of whatever kind.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// What was received and not made use of.
    pub fn counters(&self) -> Counters {
        Counters {
            fragments_given_up: self.reader.fragments.given_up,
            fragments_unknown: self.reader.fragments.given_up_unknown,
            ..self.reader.counters
        }
    }
}

impl AsRawFd for PacketRing {
    fn as_raw_fd(&self) -> RawFd {
        self.mapped.as_raw_fd()
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mapped.as_fd()
    }
}
