//! Puts what several blocks hold in order by port, so that all packets of a stream are taken one after the other:
//! what is known of a stream is out of the processor's caches when its next packet comes, and to fetch it costs
//! more than to count a packet.
//!
//! Packets of one port stay in the order in which they came. Where a part of a datagram is among them, which
//! does not tell its port, all stay as they came: so a datagram in parts never overtakes another one of its stream.

use std::hint::black_box;
use std::ops::RangeInclusive;

use super::Take;
use super::block::{Frame, Frames, Malformed};
use super::packet::{Port, port_of};

/// How many ports are announced together: enough for all that a processor can wait for at a time.
const PORTS_TOGETHER: usize = 16;
/// How many frames are taken after they were announced: few enough to stay in the nearest cache.
const FRAMES_TOGETHER: usize = 64;

/// The headers of IPv4 and UDP, and the fixed one of RTP.
const HEADERS: usize = 20 + 8 + 12;

/// The frames of some blocks.
#[derive(Debug, Default)]
pub(super) struct Batch {
    first: u16,
    items: Vec<Item>,
    /// The places of `items`, in the order in which they are taken.
    order: Vec<u32>,
    /// Where in `order` the next item of each port goes; the last is of all that is for no port of ours.
    next: Vec<u32>,
    /// Whether all have to be taken as they came.
    as_they_came: bool,
}

/// A frame, as small as it can be: thousands are kept at a time.
#[derive(Clone, Copy, Debug)]
struct Item {
    realtime_nanos: i64,
    /// Where in the memory of the blocks the packet begins.
    at: u32,
    kept: u32,
    length: u32,
    interface: u32,
    /// From the first of the ports.
    port: u16,
    segment: u16,
    kind: u8,
}

impl Item {
    fn new(frame: &Frame<'_>, memory: &[u8], port: u16) -> Option<Item> {
        let at = frame.packet.as_ptr().addr() - memory.as_ptr().addr();
        Some(Item {
            realtime_nanos: frame.realtime_nanos,
            at: u32::try_from(at).ok()?,
            kept: u32::try_from(frame.packet.len()).ok()?,
            length: u32::try_from(frame.length).ok()?,
            interface: frame.interface,
            port,
            segment: frame.segment.unwrap_or(0),
            kind: frame.kind,
        })
    }

    #[inline]
    fn frame<'a>(&self, memory: &'a [u8]) -> Frame<'a> {
        Frame {
            packet: &memory[self.at as usize..][..self.kept as usize],
            length: self.length as usize,
            realtime_nanos: self.realtime_nanos,
            kind: self.kind,
            interface: self.interface,
            segment: (self.segment > 0).then_some(self.segment),
        }
    }
}

impl Batch {
    /// Finds the frames of the blocks that `memory` consists of. Gives how many the kernel says there are, and how many
    /// blocks could not be read to their end.
    pub(super) fn gather(
        &mut self,
        memory: &[u8],
        block_bytes: usize,
        ports: &RangeInclusive<u16>,
    ) -> (u64, u64) {
        self.items.clear();
        self.first = *ports.start();
        self.next.clear();
        // One more for what is nobody's; there are no more than 65,535, because 0 is no port.
        self.next
            .resize(usize::from(ports.end() - ports.start()) + 2, 0);
        self.as_they_came = false;
        let (mut announced, mut malformed) = (0, 0);
        for block in memory.chunks(block_bytes) {
            let frames = Frames::new(block);
            announced += u64::from(frames.left());
            for frame in frames {
                match frame {
                    Ok(frame) if self.add(&frame, memory) => {}
                    // No memory of ours is so large that a place in it has no number.
                    Ok(_) | Err(Malformed) => malformed += 1,
                }
            }
        }
        self.arrange();
        (announced, malformed)
    }

    #[inline]
    fn add(&mut self, frame: &Frame<'_>, memory: &[u8]) -> bool {
        let nobodys = (self.next.len() - 1) as u16;
        let place = match port_of(frame.packet) {
            Port::Is(port) => port.wrapping_sub(self.first).min(nobodys),
            Port::None => nobodys,
            Port::Unknown => {
                self.as_they_came = true;
                nobodys
            }
        };
        let Some(item) = Item::new(frame, memory, place) else {
            return false;
        };
        self.next[usize::from(place)] += 1;
        self.items.push(item);
        true
    }

    /// Sorts by counting: what is there is looked at once more, and compared with nothing.
    fn arrange(&mut self) {
        self.order.clear();
        let count = self.items.len() as u32;
        if self.as_they_came {
            self.order.extend(0..count);
            return;
        }
        let mut begin = 0;
        for next in &mut self.next {
            begin += std::mem::replace(next, begin);
        }
        self.order.resize(self.items.len(), 0);
        for (place, item) in (0..).zip(&self.items) {
            let next = &mut self.next[usize::from(item.port)];
            self.order[*next as usize] = place;
            *next += 1;
        }
    }

    /// Hands all frames to `each`, in their order; `take` is told of ports some time before their frames come.
    pub(super) fn hand_over<T: Take>(
        &self,
        memory: &[u8],
        take: &mut T,
        mut each: impl FnMut(&Frame<'_>, &mut T),
    ) {
        let mut rest = self.order.as_slice();
        while !rest.is_empty() {
            let mut ports = [0; PORTS_TOGETHER];
            let (mut known, mut frames) = (0, 0);
            for &place in rest.iter().take(FRAMES_TOGETHER) {
                let item = &self.items[place as usize];
                // That of nobody is no port at all.
                let port = self.first.saturating_add(item.port);
                if known == 0 || ports[known - 1] != port {
                    if known == PORTS_TOGETHER {
                        break;
                    }
                    ports[known] = port;
                    known += 1;
                }
                // None of these loads waits for another: the first byte, and one in the next line of memory, in which
                // the payload begins.
                let at = item.at as usize;
                black_box((memory.get(at).copied(), memory.get(at + HEADERS).copied()));
                frames += 1;
            }
            take.soon(&ports[..known]);
            let (now, after) = rest.split_at(frames);
            for &place in now {
                each(&self.items[place as usize].frame(memory), take);
            }
            rest = after;
        }
    }
}
