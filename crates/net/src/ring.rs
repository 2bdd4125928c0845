//! Datagrams and headers of TCP segments from a ring of memory shared with the kernel (`AF_PACKET`,
//! `TPACKET_V3`; packet(7)): hundreds for one wake-up, without a system call for each, and with the
//! kernel's arrival time.
//!
//! # What it sees
//! A [`PacketRing`] is bound to IPv4 or IPv6, not to every protocol. It therefore works where the
//! IP layer does: it sees each received packet once, after bridges, bonds, VLANs and macvlans have
//! been resolved, on every interface, including those that appear later. It never sees outgoing
//! packets. It reads headers only, before routing and netfilter:
//! - Addresses are those in the packet. Packets that the firewall drops are seen; packets that it
//!   redirects to another port or address (DNAT) have the original one.
//! - Forwarded packets are seen, and multicast of groups that no socket of this machine has joined:
//!   check [`CapturedDatagram::to`].
//! - Checksums are not verified.
//! - Three kinds of packets are never seen: the copy of a multicast or broadcast datagram that a
//!   sender in this network namespace receives of what it sends through an interface other than
//!   loopback (`PACKET_LOOPBACK`); packets that arrived through IPsec in transport mode; and IPv6
//!   fragments whose UDP header follows destination options within the fragmented part.
//!
//! Sockets with [`crate::options::drop_all`] reserve the ports and count what the kernel would have
//! delivered to them, so that the ring's datagrams can be compared with
//! [`crate::options::drops`].
//!
//! # What it counts
//! Nothing is lost silently: [`PacketRing::kernel_counts`] counts packets for which there was no
//! space, and [`PacketRing::counters`] packets that could not be used.

mod block;
mod fast_path;
pub(crate) mod filter;
mod mapped;
mod packet;
mod port_order;
mod reader;
mod reassembly;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use measure::Time;

use crate::arrival_times::SegmentHeader;
use crate::clock::Clock;
use mapped::Mapped;
use reader::FrameReader;

#[cfg(any(test, fuzzing))]
pub use reader::read_any;

/// IP version that a ring receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
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

/// Default number of captured bytes, from the link-layer header on: Ethernet with a VLAN tag (18),
/// IPv4 with all its options (60), UDP (8), [`WANTED_BYTES`] (76), and two more, so that a frame
/// with the kernel's header has 256 bytes. In IPv6 this leaves 22 bytes for extension headers.
pub const SNAPLEN_DEFAULT: usize = 164;

/// Minimum number of payload bytes wanted: a datagram of which fewer were captured counts as
/// [`Counters::truncated`]. An RTP header has 12 bytes, 4 for each of up to 15 contributing
/// sources, and 4 of its extension (RFC 3550, 5.1 and 5.3.1).
pub const WANTED_BYTES: usize = 12 + 15 * 4 + 4;

/// Minimum size of a block: it must hold the longest possible packet and the headers before it.
pub const BLOCK_BYTES_MIN: usize = 72 << 10;

/// Settings of a [`PacketRing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSettings {
    /// IP version. Each version needs its own ring.
    pub family: Family,
    /// Destination ports of the UDP datagrams that are received, both ends included.
    pub ports: RangeInclusive<u16>,
    /// Receive the headers of TCP segments to the same ports too ([`Segment`]). Default: no.
    pub segments: bool,
    /// Memory in bytes, rounded down to whole blocks; at least two blocks. All of it is resident
    /// from the start. Default: 8 MiB, which hold 32,000 packets of usual size.
    pub bytes: usize,
    /// Size in bytes of a block, the unit in which the kernel hands packets over: a multiple of the
    /// page size, at least [`BLOCK_BYTES_MIN`]. Default: 128 KiB.
    pub block_bytes: usize,
    /// Time after which the kernel hands over a block that is not full; whole milliseconds, at
    /// least one. Default: 10 ms.
    ///
    /// Arrival times are the kernel's, so a long timeout costs nothing but later processing, while
    /// each wake-up costs about 10 µs. Measured over loopback with `examples/ring_timeout.rs`, 1000
    /// sockets, packets of 1200 bytes (2 cores of a busy virtual machine, Linux 6.18): processor
    /// time of the receiving thread in µs per packet, then the mean and the largest delay from
    /// arrival to processing in ms.
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
    /// A short timeout also makes the ring smaller: a block that is handed over half empty is
    /// unavailable until it is given back. A thread that is delayed for longer than the timeouts of
    /// all blocks together (64 times 10 ms) therefore loses packets even if they are few.
    pub block_timeout: Duration,
    /// Captured bytes of a packet, from its link-layer header on; packets longer than 1600 bytes
    /// are always captured whole. Default: [`SNAPLEN_DEFAULT`].
    pub snaplen: usize,
    /// Datagrams are captured whole if any of these bits is set in their first payload byte. Not
    /// checked in IPv6 behind extension headers. Default: 0, none.
    pub whole_if: u8,
    /// Share of datagrams that are captured whole: one in 2 to the power of this, chosen at
    /// random. IPv6 datagrams behind extension headers are never chosen. Default: none.
    pub whole_sample: Option<u8>,
    /// Datagrams of which fewer bytes are captured. Default: none.
    pub brief: Option<ShortCapture>,
}

/// Datagrams of which only the first bytes are captured. Each takes 160 bytes of the ring instead
/// of 256, and accordingly less memory and cache bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortCapture {
    /// Selects datagrams whose first payload byte has none of these bits set. In IPv6 behind
    /// extension headers none is selected.
    pub unless: u8,
    /// Minimum number of captured payload bytes, in place of [`WANTED_BYTES`].
    pub bytes: u8,
}

impl RingSettings {
    /// Returns the defaults, for datagrams of `family` to `ports`.
    pub fn new(family: Family, ports: RangeInclusive<u16>) -> RingSettings {
        RingSettings {
            family,
            ports,
            segments: false,
            bytes: 8 << 20,
            block_bytes: 128 << 10,
            block_timeout: Duration::from_millis(10),
            snaplen: SNAPLEN_DEFAULT,
            whole_if: 0,
            whole_sample: None,
            brief: None,
        }
    }
}

/// A datagram from a [`PacketRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedDatagram<'a> {
    pub from: SocketAddr,
    /// Destination; the address may be a multicast group.
    pub to: SocketAddr,
    /// First bytes of the payload: at least [`WANTED_BYTES`] (or [`ShortCapture::bytes`]) if it has
    /// as many, unless the datagram counts as [`Counters::truncated`].
    pub bytes: &'a [u8],
    /// Length of the payload in bytes, according to its headers.
    pub length: usize,
    /// Length of the IP and UDP headers in bytes; for a fragmented datagram, of all fragments.
    pub overhead: usize,
    /// Kernel arrival time; for a fragmented datagram, that of the fragment that completed it.
    pub at: Time,
    /// Index of the receiving interface.
    pub interface: u32,
}

/// The header of a TCP segment from a [`PacketRing`]. If the kernel merged several segments (GRO,
/// or a local sender's GSO), there is one header for all of them. IPv4 fragments, and TCP behind
/// IPv6 extension headers, are not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub header: SegmentHeader,
    /// Kernel arrival time.
    pub at: Time,
}

/// A packet that a [`PacketRing`] delivers.
#[derive(Clone, Copy, Debug)]
pub enum RingPacket<'a> {
    Datagram(&'a CapturedDatagram<'a>),
    Segment(&'a Segment),
}

/// Receives the packets of a ring. Closures implement it; only [`PacketHandler::take`] is required.
pub trait PacketHandler {
    /// Announces the ports of the next packets. An implementation can read the state that it needs
    /// for each, so that the processor fetches all of it at the same time.
    fn announce(&mut self, _ports: &[u16]) {}

    /// Handles one datagram or segment.
    fn take(&mut self, packet: RingPacket<'_>);

    /// Handles several datagrams to one port, in order of arrival.
    fn handle_datagrams<'a>(
        &mut self,
        _port: u16,
        datagrams: impl Iterator<Item = CapturedDatagram<'a>>,
    ) {
        for datagram in datagrams {
            self.take(RingPacket::Datagram(&datagram));
        }
    }
}

impl<F: FnMut(RingPacket<'_>)> PacketHandler for F {
    fn take(&mut self, packet: RingPacket<'_>) {
        self(packet);
    }
}

/// Result of one [`PacketRing::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounts {
    /// Packets taken out of the ring, of any kind.
    pub frames: u64,
    /// Datagrams delivered to the caller.
    pub datagrams: u64,
    /// Blocks taken and given back.
    pub blocks: usize,
    /// True if another block is ready.
    pub more: bool,
}

/// The kernel's counts of a ring since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Packets that passed the filter, including those dropped for lack of space.
    pub arrived: u64,
    /// Packets dropped for lack of space.
    pub dropped: u64,
}

/// Packets that were received but could not be used as they should, since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets whose headers contradict themselves, and blocks that could not be read to their end.
    pub malformed: u64,
    /// Packets for other ports, which the filter could not recognise.
    pub foreign: u64,
    /// Packets to another machine's link-layer address, seen because an interface is promiscuous.
    pub other_host: u64,
    /// Discarded fragmented datagrams for these ports: incomplete after 30 s, inconsistent, or more
    /// than 1024 at a time.
    pub fragments_given_up: u64,
    /// Discarded fragmented datagrams whose first fragment was not seen, so that their port is
    /// unknown.
    pub fragments_unknown: u64,
    /// Datagrams of which fewer than the first [`WANTED_BYTES`] (or [`ShortCapture::bytes`]) were
    /// captured. They were delivered.
    pub truncated: u64,
}

/// A ring of received packets, for one worker and one IP version.
#[derive(Debug)]
pub struct PacketRing {
    mapped: Mapped,
    block_bytes: usize,
    reader: FrameReader,
    handled: u64,
    counted: KernelCounts,
    /// True once every packet is captured whole.
    whole: bool,
    /// Settings of the current filter.
    rule: RingSettings,
}

impl PacketRing {
    /// Opens a ring. It contains the packets that arrive from now on.
    ///
    /// # Errors
    /// `PermissionDenied` without the capability CAP_NET_RAW; `InvalidInput` for impossible sizes;
    /// otherwise the operating system's error if memory is short or packet rings are not supported.
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
        // A datagram that is captured whole is never brief.
        let brief = settings.brief.map(|brief| ShortCapture {
            unless: brief.unless | settings.whole_if,
            ..brief
        });
        let rule = RingSettings {
            brief,
            ..settings.clone()
        };
        let program = filter::program(&rule);
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
            counted: KernelCounts::default(),
            whole: false,
            rule,
        })
    }

    /// Delivers the datagrams of up to `blocks_max` blocks to `take` and gives the blocks back to
    /// the kernel. Datagrams for one port are delivered one after the other, in order of arrival;
    /// if there are fragments among them, all datagrams keep their order of arrival. Never blocks:
    /// poll the file descriptor, and call this until there is no more.
    pub fn receive(
        &mut self,
        clock: &Clock,
        blocks_max: usize,
        mut take: impl FnMut(&CapturedDatagram<'_>),
    ) -> ReceiveCounts {
        let mut all = |packet: RingPacket<'_>| match packet {
            RingPacket::Datagram(datagram) => take(datagram),
            RingPacket::Segment(_) => {}
        };
        self.receive_all(clock, blocks_max, &mut all)
    }

    /// Like [`PacketRing::receive`], and delivers the headers of TCP segments too if
    /// [`RingSettings::segments`] requests them.
    pub fn receive_all(
        &mut self,
        clock: &Clock,
        blocks_max: usize,
        take: &mut impl PacketHandler,
    ) -> ReceiveCounts {
        let mut counts = ReceiveCounts::default();
        while counts.blocks < blocks_max {
            let memory = self.mapped.next_blocks(blocks_max - counts.blocks);
            if memory.is_empty() {
                break;
            }
            let blocks = memory.len() / self.block_bytes;
            let (frames, datagrams) =
                self.reader
                    .take_blocks(memory, self.block_bytes, clock, take);
            counts.frames += frames;
            counts.datagrams += datagrams;
            counts.blocks += blocks;
            self.mapped.give_back(blocks);
        }
        self.handled += counts.frames;
        counts.more = self.mapped.ready(1);
        if !self.reader.fragments.is_empty() {
            self.reader.fragments.expire(clock.now());
        }
        if self.reader.keep_whole && !self.whole {
            self.whole = true;
            self.rule.snaplen = usize::MAX;
            let program = filter::program(&self.rule);
            // If this fails, truncated datagrams are still counted.
            let _ = self.mapped.replace_filter(&filter::assemble(&program));
        }
        counts
    }

    /// Returns `true` if the kernel has handed over at least `blocks` blocks, or all there are.
    /// Needs no system call.
    pub fn has_ready(&self, blocks: usize) -> bool {
        self.mapped.ready(blocks)
    }

    /// Returns the kernel's counts since the ring was opened. Needs one system call.
    ///
    /// `arrived - dropped == handled()` holds if and only if no packet is waiting in a block: the
    /// kernel hands over a block that is not full after [`RingSettings::block_timeout`].
    ///
    /// # Errors
    /// The operating system's error.
    pub fn kernel_counts(&mut self) -> io::Result<KernelCounts> {
        // The kernel resets its counts on each read.
        let new = self.mapped.statistics()?;
        self.counted.arrived += u64::from(new.packets);
        self.counted.dropped += u64::from(new.drops);
        Ok(self.counted)
    }

    /// Number of packets taken out of the ring since it was opened, of any kind.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Returns the counts of packets that could not be used as they should.
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
