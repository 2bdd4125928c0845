//! Senders of media of one worker, held by the worker or lent to the thread that sends for it.

use std::any::Any;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use measure::Time;
use slab::Slab;

/// Handle of a sender in [`Flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(usize);

/// A sender of media with a schedule of its own.
///
/// Once started, it is polled for packets by whatever sends for its worker; for datagrams that is
/// another thread. It may build packets there: encrypt them, or answer retransmission requests that
/// its session passed on.
pub trait Flow: Any + fmt::Debug + Send {
    /// Time at which the next packet is due: [`Time::NEVER`] while none is, `None` after the last
    /// packet. A call of the session may make it earlier.
    fn next_due(&self) -> Option<Time>;

    /// Returns the next packet if it is due.
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket>;

    /// Reports the fate of a packet: the time it left, or `None` if the network stack rejected it.
    /// Called once for each packet, in the order of [`Flow::next_packet`].
    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>);

    /// Returns `true` if each packet needs an exact send time: it is then sent with a system call
    /// of its own. Default: `false`.
    fn needs_send_times(&self) -> bool {
        false
    }

    /// Returns `true` if packets are to be spaced evenly instead of leaving in batches with those
    /// of other flows. Default: `false`.
    fn wants_even_spacing(&self) -> bool {
        false
    }

    /// Returns `true` for a flow that sends parts of a byte stream, none of which may be missing.
    /// Default: `false`.
    ///
    /// Such a flow is polled only while nothing else is queued on the connection.
    /// [`Flow::packet_sent`] is called once the kernel has taken the whole packet; until then no
    /// other packet is polled. The kernel keeps only little unsent data of the connection.
    fn is_byte_stream(&self) -> bool {
        false
    }
}

/// A packet that is due: a datagram, or a piece of a connection's byte stream.
#[derive(Clone, Debug)]
pub struct FlowPacket {
    /// Planned send time.
    pub due: Time,
    /// First bytes: the protocol's headers, and on a connection the framing.
    pub header: PacketHeader,
    /// Remaining bytes, which may be shared with all other receivers of the same media.
    pub payload: Bytes,
    /// Identifies the packet in [`Flow::packet_sent`].
    pub tag: Tag,
}

/// Identifies a packet within its flow. The flow chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u64);

/// First bytes of a packet, at most [`PacketHeader::CAPACITY`]. They are copied, so they hold only
/// what differs from packet to packet.
#[derive(Clone, Copy)]
pub struct PacketHeader {
    bytes: [u8; PacketHeader::CAPACITY],
    length: u8,
}

impl PacketHeader {
    /// Maximum number of bytes.
    pub const CAPACITY: usize = 40;

    /// An empty header.
    pub const EMPTY: PacketHeader = PacketHeader {
        bytes: [0; PacketHeader::CAPACITY],
        length: 0,
    };

    /// Returns the header with `more` appended.
    ///
    /// # Panics
    /// If the result is longer than [`PacketHeader::CAPACITY`].
    #[inline]
    #[must_use]
    pub fn append(mut self, more: &[u8]) -> PacketHeader {
        let begin = usize::from(self.length);
        let end = begin + more.len();
        self.bytes[begin..end].copy_from_slice(more);
        self.length = end as u8;
        self
    }
}

impl Deref for PacketHeader {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for PacketHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

/// Time at which the network stack took a packet: between `began` and `ended`.
///
/// For a datagram both are read around the system call; on the loopback interface the datagram also
/// arrives between them. The same holds for a packet on a connection, unless the connection was
/// full and the packet had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Time right before the system call.
    pub began: Time,
    /// Time right after the system call.
    pub ended: Time,
}

impl Handover {
    /// A handover at an exactly known time.
    pub fn at(time: Time) -> Handover {
        Handover {
            began: time,
            ended: time,
        }
    }
}

/// Access to a flow that was lent ([`Flows::lend`]).
///
/// A lent flow may send at any moment, except while it is accessed and after it was taken back.
pub trait LentFlow {
    /// Calls `f` once with the flow. The flow sends nothing during the call.
    fn access(&mut self, f: &mut dyn FnMut(&mut dyn Flow));

    /// Returns the flow. Its counts are then final.
    fn take_back(self: Box<Self>) -> Box<dyn Flow>;
}

/// All senders of one worker.
#[derive(Debug, Default)]
pub struct Flows(Slab<Slot>);

/// Panic message for a session that asks for a flow with the wrong type.
const OTHER_TYPE: &str = "a session asks for its flow with another type than it made";

/// Reason why no caller sees [`Slot::Moving`]: nothing else runs within the call.
const MOVING: &str = "a flow is in transit only within one call";

enum Slot {
    Held(Box<dyn Flow>),
    Lent(Box<dyn LentFlow>),
    /// Transient state within [`Flows::lend`] and [`Flows::take_back`].
    Moving,
}

impl fmt::Debug for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Held(flow) => flow.fmt(out),
            Slot::Lent(_) => out.write_str("Lent"),
            Slot::Moving => out.write_str("Between"),
        }
    }
}

impl Flows {
    /// Adds a sender. It sends nothing before [`Output::StartFlow`](super::Output::StartFlow).
    pub fn insert(&mut self, flow: impl Flow) -> FlowId {
        FlowId(self.0.insert(Slot::Held(Box::new(flow))))
    }

    /// Calls `f` with a sender of type `F` and returns the result; see [`Flows::access`].
    ///
    /// # Panics
    /// If the sender was removed or has another type. Only the session that made it may call this.
    pub fn access_as<F: Flow, R>(&mut self, id: FlowId, f: impl FnOnce(&mut F) -> R) -> R {
        self.access(id, |flow| {
            let flow: &mut dyn Any = flow;
            f(flow.downcast_mut().expect(OTHER_TYPE))
        })
    }

    /// Calls `f` with a sender and returns the result.
    ///
    /// A lent flow and this call block each other, so `f` must be short.
    ///
    /// # Panics
    /// If the sender was removed. Only the session that made it may call this.
    pub fn access<R>(&mut self, id: FlowId, f: impl FnOnce(&mut dyn Flow) -> R) -> R {
        match &mut self.0[id.0] {
            Slot::Held(flow) => f(&mut **flow),
            Slot::Lent(lender) => {
                let mut f = Some(f);
                let mut result = None;
                lender.access(&mut |flow| {
                    if let Some(f) = f.take() {
                        result = Some(f(flow));
                    }
                });
                result.expect("a lender calls what it is given")
            }
            Slot::Moving => unreachable!("{MOVING}"),
        }
    }

    /// Removes a sender and takes it back if it was lent. It sends nothing more, so its counts are
    /// final.
    ///
    /// # Panics
    /// If the sender was already removed. Only the session that made it may call this.
    pub fn remove(&mut self, id: FlowId) -> Box<dyn Flow> {
        match self.0.remove(id.0) {
            Slot::Held(flow) => flow,
            Slot::Lent(lender) => lender.take_back(),
            Slot::Moving => unreachable!("{MOVING}"),
        }
    }

    /// Removes a sender of type `F`, as [`Flows::remove`] does.
    ///
    /// # Panics
    /// If the sender was already removed or has another type.
    pub fn remove_as<F: Flow>(&mut self, id: FlowId) -> Box<F> {
        let flow: Box<dyn Any> = self.remove(id);
        flow.downcast().expect(OTHER_TYPE)
    }

    /// Returns `true` if the sender has not been removed, lent or not.
    pub fn contains(&self, id: FlowId) -> bool {
        self.0.contains(id.0)
    }

    /// Lends a sender: `lend` takes it and returns the access to it. Returns `false` if it is
    /// already lent.
    ///
    /// # Panics
    /// If the sender was removed.
    pub fn lend(
        &mut self,
        id: FlowId,
        lend: impl FnOnce(Box<dyn Flow>) -> Box<dyn LentFlow>,
    ) -> bool {
        let slot = &mut self.0[id.0];
        match std::mem::replace(slot, Slot::Moving) {
            Slot::Held(flow) => {
                *slot = Slot::Lent(lend(flow));
                true
            }
            lent => {
                *slot = lent;
                false
            }
        }
    }

    /// Takes a lent sender back. Does nothing if it is not lent or was removed.
    pub fn take_back(&mut self, id: FlowId) {
        let Some(slot) = self.0.get_mut(id.0) else {
            return;
        };
        *slot = match std::mem::replace(slot, Slot::Moving) {
            Slot::Lent(lender) => Slot::Held(lender.take_back()),
            home => home,
        };
    }
}
