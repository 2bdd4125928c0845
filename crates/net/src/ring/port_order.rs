//! Orders the packets of several blocks by port, so that all packets of a stream are processed one
//! after the other: the state of a stream has left the processor's caches when its next packet
//! arrives, and fetching it costs more than counting a packet.
//!
//! Packets of one port keep their order of arrival. If a short check does not find the port of one
//! packet (a fragment, or one with IPv6 extension headers), all packets keep their order of
//! arrival, so that a fragmented datagram never overtakes another one of its stream.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Deref, RangeInclusive};

use super::block::{Frame, Frames, Malformed, frame_at};
use super::fast_path::{FastFrame, HEAD};
use super::packet::{Port, Udp, destination_port, whole_udp_v4};
use super::{CapturedDatagram, PacketHandler, ShortCapture, WANTED_BYTES};
use crate::clock::Clock;
use crate::prefetch;

/// Number of ports announced together: as many as a processor can fetch at a time.
const PORTS_TOGETHER: usize = 16;
/// Number of packets processed after their ports were announced: few enough to stay in the nearest
/// cache.
const PACKETS_TOGETHER: usize = 64;

/// Distance of the prefetch while a block is read, and its size: that of the usual frame.
const AHEAD: usize = 5 * FRAME;
const FRAME: usize = 160;

/// The packets of some blocks.
#[derive(Debug, Default)]
pub(super) struct Batch {
    first: u16,
    items: Vec<Item>,
    /// Order in which `items` are processed.
    order: Vec<OrderEntry>,
    /// Position in `order` of the next item of each port; the last entry is for packets to other
    /// ports.
    next: Vec<u32>,
    /// True if all packets keep their order of arrival.
    keep_arrival_order: bool,
}

/// Index of an item, and its port, so that the item itself need not be read.
#[derive(Clone, Copy, Debug, Default)]
struct OrderEntry {
    item: u32,
    /// Offset from the first port.
    port: u16,
    is_other: bool,
}

/// Ports of consecutive packets, without consecutive duplicates.
#[derive(Debug, Default)]
struct Ports {
    known: usize,
    ports: [u16; PORTS_TOGETHER],
}

impl Ports {
    /// Adds a port. Returns `false` if there is no space for it.
    #[inline]
    fn add(&mut self, port: u16) -> bool {
        if self.known > 0 && self.ports[self.known - 1] == port {
            return true;
        }
        if self.known == PORTS_TOGETHER {
            return false;
        }
        self.ports[self.known] = port;
        self.known += 1;
        true
    }
}

impl Deref for Ports {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.ports[..self.known]
    }
}

/// A packet, as small as possible: thousands are kept at a time. What most packets need is read
/// while their block is read sequentially, which is the fastest way to access memory.
#[derive(Clone, Copy, Debug)]
struct Item {
    realtime_nanos: i64,
    from: Ipv4Addr,
    to: Ipv4Addr,
    interface: u32,
    /// Offset in the memory of the blocks: of the payload for [`ItemKind::Datagram`], of the frame
    /// for [`ItemKind::Other`].
    at: u32,
    head: [u8; HEAD],
    /// Length of the captured payload.
    kept: u16,
    /// Length of the payload.
    length: u16,
    from_port: u16,
    /// Offset from the first port.
    port: u16,
    /// Length of the IP and UDP headers in bytes.
    overhead: u8,
    kind: ItemKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    /// A whole IPv4 datagram for one of our ports, of which all wanted bytes were captured.
    Datagram,
    /// Such a datagram of which only the head is wanted.
    Brief,
    /// A frame that is parsed when it is processed.
    Other,
}

impl Item {
    /// Item for a frame at `at` that is parsed when it is processed.
    fn other(at: u32, port: u16) -> Item {
        Item {
            realtime_nanos: 0,
            from: Ipv4Addr::UNSPECIFIED,
            to: Ipv4Addr::UNSPECIFIED,
            interface: 0,
            at,
            head: [0; HEAD],
            kept: 0,
            length: 0,
            from_port: 0,
            port,
            overhead: 0,
            kind: ItemKind::Other,
        }
    }

    /// Item for the only datagram of a frame, of which only the head is wanted.
    #[inline(always)]
    fn plain(frame: &FastFrame, port: u16) -> Item {
        Item {
            realtime_nanos: frame.realtime_nanos,
            from: frame.from,
            to: frame.to,
            interface: frame.interface,
            at: 0,
            head: frame.head,
            kept: HEAD as u16,
            length: frame.length,
            from_port: frame.from_port,
            port,
            overhead: FastFrame::OVERHEAD,
            kind: ItemKind::Brief,
        }
    }

    /// Item for the only datagram of a frame; `None` if the frame needs the full parser.
    #[inline(always)]
    fn datagram(
        frame: &Frame<'_>,
        udp: &Udp<'_>,
        memory: &[u8],
        brief: Option<ShortCapture>,
    ) -> Option<Item> {
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (udp.from, udp.to) else {
            return None;
        };
        if frame.kind == libc::PACKET_OTHERHOST
            || frame.kind == libc::PACKET_OUTGOING
            || frame.segment.is_some()
        {
            return None;
        }
        let head = udp.kept.first_chunk::<HEAD>()?;
        let kind = match brief {
            Some(ShortCapture { unless, bytes })
                if head[0] & unless == 0 && bytes as usize <= HEAD =>
            {
                ItemKind::Brief
            }
            _ if udp.kept.len() >= udp.length.min(WANTED_BYTES) => ItemKind::Datagram,
            _ => return None,
        };
        let at = udp.kept.as_ptr().addr() - memory.as_ptr().addr();
        Some(Item {
            realtime_nanos: frame.realtime_nanos,
            from: *from.ip(),
            to: *to.ip(),
            interface: frame.interface,
            at: u32::try_from(at).ok()?,
            head: *head,
            kept: u16::try_from(udp.kept.len()).ok()?,
            length: u16::try_from(udp.length).ok()?,
            from_port: from.port(),
            port: to.port(),
            overhead: u8::try_from(udp.overhead).ok()?,
            kind,
        })
    }

    /// Returns the datagram of the item, for `port`.
    #[inline(always)]
    fn read<'a>(&'a self, port: u16, memory: &'a [u8], clock: &Clock) -> CapturedDatagram<'a> {
        CapturedDatagram {
            from: SocketAddr::new(IpAddr::V4(self.from), self.from_port),
            to: SocketAddr::new(IpAddr::V4(self.to), port),
            bytes: match self.kind {
                ItemKind::Brief => &self.head,
                _ => &memory[self.at as usize..][..usize::from(self.kept)],
            },
            length: usize::from(self.length),
            overhead: usize::from(self.overhead),
            at: clock.from_realtime(self.realtime_nanos),
            interface: self.interface,
        }
    }
}

impl Batch {
    /// Reads the packets of the blocks in `memory`. Returns their number according to the kernel,
    /// and how many blocks could not be read to their end.
    pub(super) fn gather(
        &mut self,
        memory: &[u8],
        block_bytes: usize,
        ports: &RangeInclusive<u16>,
        brief: Option<ShortCapture>,
    ) -> (u64, u64) {
        self.items.clear();
        self.first = *ports.start();
        self.next.clear();
        // One more entry for packets to other ports. There are no more than 65,535 ports, because 0
        // is not a port.
        self.next
            .resize(usize::from(ports.end() - ports.start()) + 2, 0);
        self.keep_arrival_order = false;
        let (mut announced, mut malformed) = (0, 0);
        for block in memory.chunks(block_bytes) {
            let mut frames = Frames::new(block);
            announced += u64::from(frames.remaining());
            loop {
                let within = frames.offset();
                if let Some(ahead) = block.get(within + AHEAD..within + AHEAD + FRAME) {
                    prefetch(ahead);
                }
                if let Some(brief) = brief
                    && self.add_fast_path(&mut frames, brief)
                {
                    continue;
                }
                match frames.next() {
                    Some(Ok(frame)) => {
                        let begin = block.as_ptr().addr() - memory.as_ptr().addr();
                        // The memory of the blocks is never so large that an offset does not fit.
                        match u32::try_from(begin + within) {
                            Ok(at) => self.add(&frame, at, memory, brief),
                            Err(_) => malformed += 1,
                        }
                    }
                    Some(Err(Malformed)) => malformed += 1,
                    None => break,
                }
            }
        }
        self.arrange();
        (announced, malformed)
    }

    /// Adds the next frame if it is an ordinary one. Otherwise it remains the next frame.
    #[inline(always)]
    fn add_fast_path(&mut self, frames: &mut Frames<'_>, brief: ShortCapture) -> bool {
        let before = frames.clone();
        let Some(frame) = frames.next_fast_path() else {
            return false;
        };
        let offset = frame.to_port.wrapping_sub(self.first);
        // The last entry is for packets to other ports.
        let ours = usize::from(offset) + 1 < self.next.len();
        if !ours || frame.head[0] & brief.unless != 0 || usize::from(brief.bytes) > HEAD {
            *frames = before;
            return false;
        }
        self.next[usize::from(offset)] += 1;
        self.items.push(Item::plain(&frame, offset));
        true
    }

    #[inline]
    fn add(&mut self, frame: &Frame<'_>, at: u32, memory: &[u8], brief: Option<ShortCapture>) {
        let other_ports = (self.next.len() - 1) as u16;
        if let Some(udp) = whole_udp_v4(frame)
            && let Some(mut item) = Item::datagram(frame, &udp, memory, brief)
        {
            let offset = item.port.wrapping_sub(self.first);
            if offset < other_ports {
                item.port = offset;
                self.next[usize::from(offset)] += 1;
                self.items.push(item);
                return;
            }
        }
        let offset = match destination_port(frame.packet) {
            Port::Known(port) => port.wrapping_sub(self.first).min(other_ports),
            Port::None => other_ports,
            Port::Unknown => {
                self.keep_arrival_order = true;
                other_ports
            }
        };
        self.next[usize::from(offset)] += 1;
        self.items.push(Item::other(at, offset));
    }

    /// Counting sort: reads each item once more, and compares none.
    fn arrange(&mut self) {
        self.order.clear();
        let count = self.items.len() as u32;
        let order_entry = |(index, item): (u32, &Item)| OrderEntry {
            item: index,
            port: item.port,
            is_other: item.kind == ItemKind::Other,
        };
        if self.keep_arrival_order {
            self.order
                .extend((0..count).zip(&self.items).map(order_entry));
            return;
        }
        let mut begin = 0;
        for next in &mut self.next {
            begin += std::mem::replace(next, begin);
        }
        self.order.resize(self.items.len(), OrderEntry::default());
        for entry in (0..).zip(&self.items).map(order_entry) {
            let next = &mut self.next[usize::from(entry.port)];
            self.order[*next as usize] = entry;
            *next += 1;
        }
    }

    /// Delivers the datagrams that do not need the full parser to `take`, and the other frames to
    /// `other`, in their order; announces ports to `take` some time before their packets. Returns
    /// the number of datagrams delivered to `take`.
    pub(super) fn hand_over<T: PacketHandler>(
        &self,
        memory: &[u8],
        clock: &Clock,
        take: &mut T,
        mut other: impl FnMut(&Frame<'_>, &mut T),
    ) -> u64 {
        let mut datagrams = 0;
        let mut rest = self.order.as_slice();
        let (ports, mut count) = self.ports_ahead(rest);
        take.announce(&ports);
        while !rest.is_empty() {
            let (mut now, after) = rest.split_at(count);
            // The next packets are fetched while these are counted.
            let (ports, next) = self.ports_ahead(after);
            take.announce(&ports);
            count = next;
            while let Some(&first) = now.first() {
                if first.is_other {
                    // The frame has been read before, so it is valid.
                    let item = &self.items[first.item as usize];
                    if let Some(frame) = frame_at(memory, item.at as usize) {
                        other(&frame, take);
                    }
                    now = &now[1..];
                    continue;
                }
                let same = |next: &&OrderEntry| next.port == first.port && !next.is_other;
                let count = 1 + now[1..].iter().take_while(same).count();
                let (run, after) = now.split_at(count);
                let port = self.first + first.port;
                take.handle_datagrams(
                    port,
                    run.iter()
                        .map(|entry| self.items[entry.item as usize].read(port, memory, clock)),
                );
                datagrams += count as u64;
                now = after;
            }
            rest = after;
        }
        datagrams
    }

    /// Returns the ports of the next packets, and the number of these packets, which are
    /// prefetched.
    fn ports_ahead(&self, rest: &[OrderEntry]) -> (Ports, usize) {
        let mut ports = Ports::default();
        let mut packets = 0;
        for entry in rest.iter().take(PACKETS_TOGETHER) {
            // The entry for other ports is not a port.
            if !ports.add(self.first.saturating_add(entry.port)) {
                break;
            }
            prefetch(&self.items[entry.item as usize]);
            packets += 1;
        }
        (ports, packets)
    }
}
