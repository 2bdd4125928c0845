//! Receiving of datagrams: a UDP socket with what the worker knows of it, and the receive batches
//! that the sockets of a worker share.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use mio::net::UdpSocket;
use net::batch::{ReceiveBatch, ReceivedDatagram};
use net::{Clock, options};
use session::Port;

use super::batched_reads::RECEIVE_BUFFER_MIN;
use super::ids::{ChannelKey, SocketId};
use super::runtime::Runtime;
use crate::trace::TracedSocket;

/// A UDP socket that a worker receives from.
pub(super) struct ReceivingSocket {
    pub(super) udp: UdpSocket,
    /// True if the packet ring receives the media: the socket's filter drops it, and the kernel
    /// counts it as dropped.
    pub(super) on_ring: bool,
    /// True if the socket is read in batches instead of polled.
    pub(super) in_batches: bool,
    /// True if batched reads ended because the socket received too much.
    was_fast: bool,
    /// The kernel's count of dropped datagrams, as far as already counted.
    dropped: u32,
    /// Records the datagrams of a traced client.
    pub(super) trace: Option<Box<TracedSocket>>,
}

/// Result of one receive call on a socket.
pub(super) enum ReceiveOutcome {
    Filled {
        /// True if the socket may hold more datagrams.
        more: bool,
    },
    Nothing,
    /// The socket is empty, and its peer is unreachable.
    NobodyThere(ChannelKey),
    /// An error, which stands for one datagram or none. Datagrams behind it are not announced
    /// again.
    Error(io::ErrorKind),
}

impl ReceivingSocket {
    pub(super) fn new(
        socket: std::net::UdpSocket,
        on_ring: bool,
        trace: Option<Box<TracedSocket>>,
    ) -> ReceivingSocket {
        ReceivingSocket {
            udp: UdpSocket::from_std(socket),
            on_ring,
            in_batches: false,
            was_fast: false,
            dropped: 0,
            trace,
        }
    }

    /// Registers the socket of a pair: RTCP never wakes the loop, and media on the ring has no
    /// events.
    pub(super) fn poll(&mut self, port: Port, id: SocketId, runtime: &Runtime) -> io::Result<()> {
        match port {
            Port::Media if self.on_ring => Ok(()),
            Port::Media => runtime.readiness.poll(&mut self.udp, id),
            Port::Control => runtime.readiness.poll_control(&mut self.udp, id),
        }
    }

    /// Receives one batch. Calls `lose` with the number of datagrams that the kernel has dropped
    /// since the last call, if any.
    #[inline]
    pub(super) fn receive(
        &mut self,
        batch: &mut ReceiveBatch,
        lose: impl FnOnce(u64),
    ) -> ReceiveOutcome {
        match batch.receive(&self.udp) {
            Ok(filled) => {
                if let Some(drops) = filled.drops {
                    self.count_drops(drops, lose);
                }
                ReceiveOutcome::Filled { more: filled.more }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ReceiveOutcome::Nothing,
            Err(error) => ReceiveOutcome::Error(error.kind()),
        }
    }

    /// Calls `lose` like [`ReceivingSocket::receive`], but receives nothing.
    pub(super) fn take_drops(&mut self, lose: impl FnOnce(u64)) {
        if let Ok(drops) = options::drops(&self.udp) {
            self.count_drops(drops, lose);
        }
    }

    /// Processes the kernel's drop count, counted since the socket was opened.
    fn count_drops(&mut self, drops: u32, lose: impl FnOnce(u64)) {
        // The ring receives these datagrams; the counts are compared at the end.
        if self.on_ring {
            return;
        }
        let lost = u64::from(drops.wrapping_sub(self.dropped));
        self.dropped = drops;
        if lost > 0 {
            lose(lost);
        }
    }

    /// Number of datagrams that the filter has dropped because the ring receives them.
    pub(super) fn dropped_for_ring(&self) -> u32 {
        options::drops(&self.udp).unwrap_or(0)
    }

    /// Adds a received datagram to the trace.
    #[inline]
    pub(super) fn trace_received(&mut self, datagram: &ReceivedDatagram<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.received(datagram.from, datagram.bytes, datagram.length, datagram.at);
        }
    }

    /// Sends a datagram. Returns `false` on error.
    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8], clock: &Clock) -> bool {
        let trace = self.trace.as_ref().map(|trace| (trace, clock.now()));
        let sent = self.udp.send_to(bytes, to).is_ok();
        if let Some((trace, at)) = trace.filter(|_| sent) {
            trace.sent(to, bytes, at);
        }
        sent
    }

    /// Duplicates the descriptor.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.udp.as_fd().try_clone_to_owned()
    }

    /// Starts batched reads if possible. Returns `true` if they were started.
    pub(super) fn begin_batches(&mut self, runtime: &Runtime) -> bool {
        let room = options::receive_buffer(&self.udp).unwrap_or(0);
        if self.in_batches || self.was_fast || self.trace.is_some() || room < RECEIVE_BUFFER_MIN {
            return false;
        }
        self.in_batches = runtime.readiness.deregister(&mut self.udp).is_ok();
        self.in_batches
    }

    /// Ends batched reads. The socket is read on readiness from now on.
    pub(super) fn end_batches(&mut self, id: SocketId, runtime: &mut Runtime) {
        // If polling is refused, batched reads go on: rare reads are better than none.
        self.in_batches = runtime.readiness.poll(&mut self.udp, id).is_err();
        self.was_fast = true;
        runtime.read_later(id);
    }
}

/// Use of a receive batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum BatchUse {
    /// Polled sockets.
    Polled,
    /// Polled sockets of traced clients. Keeps every datagram whole; allocates its memory on first
    /// use.
    Traced,
    /// Media sockets that are read in batches, and media of multicast groups.
    Media,
    /// Single sockets. Keeps every datagram whole; allocates its memory on first use.
    Single,
}

/// The receive batches. A batch is `None` while its datagrams are being delivered.
pub(super) struct Batches([Option<ReceiveBatch>; 4]);

impl Batches {
    pub(super) fn new() -> Batches {
        let (polled, media) = (ReceiveBatch::new(), ReceiveBatch::new());
        let (traced, single) = (ReceiveBatch::whole(), ReceiveBatch::bulk());
        Batches([polled, traced, media, single].map(Some))
    }

    /// The batch of a use. A reader takes it and puts it back.
    pub(super) fn of(&mut self, used: BatchUse) -> &mut Option<ReceiveBatch> {
        &mut self.0[used as usize]
    }

    /// Returns `true` while the datagrams of the batch are being delivered.
    pub(super) fn is_delivering(&self, used: BatchUse) -> bool {
        self.0[used as usize].is_none()
    }
}
