//! Session inputs that are deferred until the packet ring has delivered everything that arrived
//! earlier.
//!
//! Packets of a ring are counted some time after their arrival, but control connections and RTCP
//! are read immediately. A session must not close a stream (BYE, response to TEARDOWN) before all
//! its packets are counted. RTCP and the end of a connection are therefore always deferred until
//! the ring has delivered everything that arrived before them; bytes of a connection are deferred
//! once media has begun. Before that they are not, so that start-up delays are not prolonged.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::{ArrivalRun, Time};
use session::{CloseReason, Port};

use super::ids::ChannelKey;

/// Maximum time that an input is deferred. It is reached only if the kernel's packet count and ours
/// disagree.
const DEFER_MAX: Duration = Duration::from_secs(1);

/// Maximum number of deferred bytes. Beyond it, all deferred inputs are delivered at once.
const DEFERRED_BYTES_MAX: usize = 16 << 20;

/// Number of packets that the kernel had put into the rings at a certain time.
#[derive(Clone, Copy)]
pub(super) struct RingMark {
    pub(super) counts: [u64; 2],
    pub(super) at: Time,
}

impl RingMark {
    /// Time after which inputs deferred to this mark are delivered even if the ring has not reached
    /// it.
    pub(super) fn expires(&self) -> Time {
        self.at + DEFER_MAX
    }
}

/// Deferred inputs in order of arrival, each with the mark that the rings must reach first.
#[derive(Default)]
pub(super) struct DeferredInputs {
    entries: VecDeque<(RingMark, Deferred)>,
    bytes: usize,
}

/// An input or action that can be deferred.
pub(super) enum Deferred {
    Bytes {
        to: ChannelKey,
        bytes: Vec<u8>,
        at: Time,
        runs: Vec<ArrivalRun>,
    },
    Datagram {
        to: ChannelKey,
        /// `None` for a single socket.
        port: Option<Port>,
        from: SocketAddr,
        bytes: Vec<u8>,
        at: Time,
    },
    Closed {
        owner: ChannelKey,
        reason: CloseReason,
    },
    /// End of a connection with periodic reads, and the data before it.
    End { place: usize, owner: ChannelKey },
    /// Release of a media socket of a pair. `arrived` is the kernel's datagram count for it.
    Port { place: usize, arrived: u32 },
    /// Release of the port of a closed single socket. `arrived` is the kernel's datagram count for
    /// it.
    SinglePort { port: u16, arrived: u32 },
}

impl Deferred {
    fn size(&self) -> usize {
        match self {
            Deferred::Bytes { bytes, .. } | Deferred::Datagram { bytes, .. } => bytes.len(),
            Deferred::Closed { .. }
            | Deferred::End { .. }
            | Deferred::Port { .. }
            | Deferred::SinglePort { .. } => 0,
        }
    }
}

impl DeferredInputs {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of deferred inputs.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if no more inputs may be deferred.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= DEFERRED_BYTES_MAX
    }

    pub(super) fn push(&mut self, mark: RingMark, waiting: Deferred) {
        self.bytes += waiting.size();
        self.entries.push_back((mark, waiting));
    }

    pub(super) fn pop(&mut self) -> Option<Deferred> {
        let (_, waiting) = self.entries.pop_front()?;
        self.bytes -= waiting.size();
        Some(waiting)
    }

    pub(super) fn first(&self) -> Option<&RingMark> {
        self.entries.front().map(|(mark, _)| mark)
    }

    /// Time at which the first input must be delivered, whatever the rings have delivered.
    pub(super) fn expires(&self) -> Time {
        self.first().map_or(Time::NEVER, RingMark::expires)
    }
}

#[cfg(test)]
mod tests {
    use session::ChannelId;

    use super::super::ids::SessionKey;
    use super::*;

    #[test]
    fn deferred_inputs_keep_their_order_and_are_bounded() {
        let mut deferred = DeferredInputs::default();
        let bytes = vec![7; DEFERRED_BYTES_MAX / 2];
        for number in 0..2 {
            assert!(!deferred.is_full());
            let mark = RingMark {
                counts: [0; 2],
                at: Time::from_nanos(number.into()),
            };
            let input = Deferred::Bytes {
                to: SessionKey::NONE.channel(ChannelId(number)),
                bytes: bytes.clone(),
                at: Time::ZERO,
                runs: Vec::new(),
            };
            deferred.push(mark, input);
        }
        assert!(deferred.is_full());
        assert_eq!(deferred.expires(), Time::ZERO + DEFER_MAX);
        for number in 0..2 {
            match deferred.pop() {
                Some(Deferred::Bytes { to, .. }) => assert_eq!(to.channel, ChannelId(number)),
                _ => panic!("there are two"),
            }
        }
        assert!(deferred.is_empty() && !deferred.is_full());
        assert_eq!(deferred.expires(), Time::NEVER);
    }
}
