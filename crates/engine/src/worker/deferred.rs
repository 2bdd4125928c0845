//! What sessions are to hear, and do not hear before the packet ring has handed over all that came
//! earlier.
//!
//! A ring's packets are counted some time after they have arrived; a control connection and RTCP
//! are heard at once. So that no session takes leave of a stream (a BYE, the answer to TEARDOWN)
//! before it has been counted to the end, what a session hears waits until the ring has handed over
//! all that had arrived before: RTCP and the end of a connection always, bytes of a connection once
//! media has begun. Before that they do not wait: the delay of a start-up is not prolonged.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::{Run, Time};
use protocol::session::{ChannelId, Closed, Port};

use super::keys::SessionKey;

/// How long anything waits for the ring at most. That long only where the kernel's count of what
/// arrived and ours do not agree.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many bytes of what sessions are yet to hear may wait. Beyond that they hear all of it at
/// once.
const WAITING_BYTES: usize = 16 << 20;

/// How much the rings had taken in at a moment, and when that was.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    counts: [u64; 2],
    at: Time,
}

impl Mark {
    pub(super) fn new(counts: [u64; 2], at: Time) -> Mark {
        Mark { counts, at }
    }

    pub(super) fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// When what waits for it has to be heard though the ring has not brought all before it.
    pub(super) fn patience_ends(&self) -> Time {
        self.at + PATIENCE
    }
}

/// What waits, in its order, each until the rings have brought all up to its mark.
#[derive(Default)]
pub(super) struct DeferredInputs {
    entries: VecDeque<(Mark, Deferred<'static>)>,
    bytes: usize,
}

/// Something that may have to wait.
pub(super) enum Deferred<'a> {
    Bytes {
        session: SessionKey,
        channel: ChannelId,
        bytes: Cow<'a, [u8]>,
        at: Time,
        runs: Cow<'a, [Run]>,
    },
    Datagram {
        session: SessionKey,
        channel: ChannelId,
        /// None of a single socket.
        port: Option<Port>,
        from: SocketAddr,
        bytes: Cow<'a, [u8]>,
        at: Time,
    },
    Closed {
        session: SessionKey,
        channel: ChannelId,
        how: Closed,
    },
    /// The end of a connection that is read seldom, and what has come before it.
    End {
        place: usize,
        session: SessionKey,
        channel: ChannelId,
    },
    /// A media socket that nobody wants any more; the kernel has counted so many datagrams for it.
    Port { place: usize, arrived: u32 },
    /// The port of a single socket that has been closed, which had counted so many datagrams.
    SinglePort { port: u16, arrived: u32 },
}

impl Deferred<'_> {
    fn size(&self) -> usize {
        match self {
            Deferred::Bytes { bytes, .. } | Deferred::Datagram { bytes, .. } => bytes.len(),
            Deferred::Closed { .. }
            | Deferred::End { .. }
            | Deferred::Port { .. }
            | Deferred::SinglePort { .. } => 0,
        }
    }

    /// With bytes of its own.
    fn kept(self) -> Deferred<'static> {
        match self {
            Deferred::Bytes {
                session,
                channel,
                bytes,
                at,
                runs,
            } => Deferred::Bytes {
                session,
                channel,
                bytes: Cow::Owned(bytes.into_owned()),
                at,
                runs: Cow::Owned(runs.into_owned()),
            },
            Deferred::Datagram {
                session,
                channel,
                port,
                from,
                bytes,
                at,
            } => Deferred::Datagram {
                session,
                channel,
                port,
                from,
                bytes: Cow::Owned(bytes.into_owned()),
                at,
            },
            Deferred::Closed {
                session,
                channel,
                how,
            } => Deferred::Closed {
                session,
                channel,
                how,
            },
            Deferred::End {
                place,
                session,
                channel,
            } => Deferred::End {
                place,
                session,
                channel,
            },
            Deferred::Port { place, arrived } => Deferred::Port { place, arrived },
            Deferred::SinglePort { port, arrived } => Deferred::SinglePort { port, arrived },
        }
    }
}

impl DeferredInputs {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether no more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= WAITING_BYTES
    }

    pub(super) fn push(&mut self, mark: Mark, waiting: Deferred<'_>) {
        self.bytes += waiting.size();
        self.entries.push_back((mark, waiting.kept()));
    }

    pub(super) fn pop(&mut self) -> Option<Deferred<'static>> {
        let (_, waiting) = self.entries.pop_front()?;
        self.bytes -= waiting.size();
        Some(waiting)
    }

    pub(super) fn first(&self) -> Option<&Mark> {
        self.entries.front().map(|(mark, _)| mark)
    }

    /// When the first has to be heard, whatever the rings have brought.
    pub(super) fn ends(&self) -> Time {
        self.first().map_or(Time::NEVER, Mark::patience_ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deferred_comes_out_in_its_order_and_its_bytes_are_bounded() {
        let mut deferred = DeferredInputs::default();
        let bytes = vec![7; WAITING_BYTES / 2];
        for number in 0..2 {
            assert!(!deferred.is_full());
            let mark = Mark::new([0, 0], Time::from_nanos(number));
            let input = Deferred::Bytes {
                session: SessionKey::NOBODY,
                channel: ChannelId(u32::try_from(number).expect("few")),
                bytes: Cow::Borrowed(&bytes),
                at: Time::ZERO,
                runs: Cow::Borrowed(&[]),
            };
            deferred.push(mark, input);
        }
        assert!(deferred.is_full());
        assert_eq!(deferred.ends(), Time::ZERO + PATIENCE);
        for number in 0..2 {
            match deferred.pop() {
                Some(Deferred::Bytes { channel, .. }) => assert_eq!(channel, ChannelId(number)),
                _ => panic!("there are two"),
            }
        }
        assert!(deferred.is_empty() && !deferred.is_full());
        assert_eq!(deferred.ends(), Time::NEVER);
    }
}
