//! Datagrams of sessions, sent and received in batches.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use measure::Time;

use super::{ChannelId, Output, Session};

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub from: SocketAddr,
    /// Kernel arrival time.
    pub at: Time,
    /// The whole payload.
    pub bytes: &'a [u8],
}

/// Maximum delay until the datagrams of a channel are read. Arrival times are the kernel's in every
/// mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTiming {
    /// As soon as they arrive.
    AtOnce,
    /// Within this time. One wake-up serves the sockets of all sessions. If a packet ring brings
    /// the media, the rest is read as with [`ReadTiming::Late`].
    Soon(Duration),
    /// As [`ReadTiming::Soon`], for sessions with a deadline every few milliseconds. If a packet
    /// ring brings the media, the rest is read at deadlines, but at most every 40 ms.
    MediaSoon(Duration),
    /// Whenever the worker is awake anyway, every 40 ms at the latest, and before the session
    /// receives any other input. For media of sessions whose answers may wait: it causes no
    /// wake-up.
    Late,
    /// At the session's deadlines before other input, and at the end of each window.
    ///
    /// For media of a session with a deadline every few milliseconds: the worker does not even poll
    /// the socket. If a packet ring brings the media, the rest is read at deadlines too, but at
    /// most every 40 ms.
    AtDeadlines,
}

/// Datagrams that a session sends: one, or several to one destination, of equal length except for
/// the last. Their bytes are in the [`Outbox`] of the same call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Channel to send on.
    pub channel: ChannelId,
    /// Destination. `None` means the channel's peer.
    pub to: Option<SocketAddr>,
    /// Length of each datagram in bytes; the last one may be shorter.
    pub segment_size: usize,
    /// Range of the bytes in the [`Outbox`].
    pub range: Range<usize>,
}

impl Transmit {
    /// Maximum number of datagrams in one transmit: a kernel limit (`UDP_MAX_SEGMENTS` was 64 up to
    /// Linux 6.8).
    const SEGMENTS_MAX: usize = 64;

    /// Maximum number of bytes in one transmit, which fit into the length field of an IPv4 or IPv6
    /// packet with its headers.
    const BYTES_MAX: usize = 65_000;

    /// Returns `true` if a datagram of `length` bytes can be appended.
    fn can_append(&self, channel: ChannelId, to: Option<SocketAddr>, length: usize) -> bool {
        let bytes = self.range.len();
        (self.channel, self.to) == (channel, to)
            && (1..=self.segment_size).contains(&length)
            && bytes.is_multiple_of(self.segment_size)
            && bytes / self.segment_size < Transmit::SEGMENTS_MAX
            && bytes + length <= Transmit::BYTES_MAX
    }
}

/// Bytes of the datagrams that a session sends in one call. The worker reuses it, so that sending
/// allocates nothing.
#[derive(Debug, Default)]
pub struct Outbox(Vec<u8>);

impl Outbox {
    /// Bytes of a [`Transmit`] from the same call.
    pub fn bytes(&self, transmit: &Transmit) -> &[u8] {
        &self.0[transmit.range.clone()]
    }

    /// Empties the outbox for the next call.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a datagram after the outputs so far. `write` appends its bytes. An empty datagram is
    /// not sent.
    pub fn add(
        &mut self,
        out: &mut std::collections::VecDeque<Output>,
        channel: ChannelId,
        to: Option<SocketAddr>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let begin = self.0.len();
        write(&mut self.0);
        let end = self.0.len();
        assert!(
            begin <= end,
            "`write` appends a datagram and must not remove any bytes"
        );
        if begin == end {
            return;
        }
        match out.back_mut() {
            Some(Output::Transmit(last))
                if last.range.end == begin && last.can_append(channel, to, end - begin) =>
            {
                last.range.end = end;
            }
            _ => out.push_back(Output::Transmit(Transmit {
                channel,
                to,
                segment_size: end - begin,
                range: begin..end,
            })),
        }
    }
}

/// Number of a session behind an [`Endpoint`]. The endpoint chooses it and uses it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u64);

/// Destination of a datagram that an [`Endpoint`] received.
pub enum Route {
    /// An existing session, which receives it as [`Input::Datagrams`](super::Input::Datagrams). If
    /// that session has ended, the datagram is dropped and counted as foreign.
    Session(PeerId),
    /// A new session. The engine starts it, delivers [`Input::Opened`](super::Input::Opened) for
    /// channel 0 with the sender as `remote`, and then the datagram.
    Accept(PeerId, Box<dyn Session>),
    /// No session: the endpoint answers the sender itself, with a challenge or a refusal.
    Answer,
    /// No session: the datagram is dropped and counted as foreign.
    Discard,
}

/// The server's side of one UDP port. It receives every datagram, and finds or makes the session
/// that the datagram belongs to, by the protocol's own key (an address, a socket id, an ICE user
/// fragment).
///
/// The engine calls it for each datagram, after the session of the previous datagram has received
/// that one. The endpoint must therefore be fast, and its memory must not grow with datagrams of
/// unknown senders: before a peer has proven its address (RFC 6347, section 4.2.1),
/// [`Route::Answer`] keeps no state.
pub trait Endpoint: Send {
    /// Returns the destination of a datagram.
    ///
    /// For [`Route::Answer`] the endpoint writes the answer to `answer`, which is empty before the
    /// call. If `room` is `false`, the maximum number of sessions is reached and [`Route::Accept`]
    /// is refused.
    fn route(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        room: bool,
        answer: &mut Vec<u8>,
    ) -> Route;

    /// A session has ended. No further datagram is routed to it.
    fn session_ended(&mut self, session: PeerId);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn lengths(out: &VecDeque<Output>) -> Vec<(u32, usize, usize)> {
        out.iter()
            .map(|output| match output {
                Output::Transmit(t) => (t.channel.0, t.segment_size, t.range.len()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn equal_datagrams_to_one_address_share_a_transmit() {
        let (mut outbox, mut out) = (Outbox::default(), VecDeque::new());
        let to = "10.0.0.1:5".parse().ok();
        let other = "10.0.0.2:5".parse().ok();
        for (channel, to, length) in [
            (1, to, 100),
            (1, to, 100),
            (1, to, 60),
            // A shorter datagram ends the transmit.
            (1, to, 60),
            (1, to, 61),
            (1, other, 61),
            (2, other, 61),
            (2, None, 61),
            (2, None, 0),
        ] {
            outbox.add(&mut out, ChannelId(channel), to, |bytes| {
                bytes.extend(std::iter::repeat_n(length as u8, length));
            });
        }
        let expected = [
            (1, 100, 260),
            (1, 60, 60),
            (1, 61, 61),
            (1, 61, 61),
            (2, 61, 61),
            (2, 61, 61),
        ];
        assert_eq!(lengths(&out), expected);
        let Some(Output::Transmit(first)) = out.front() else {
            panic!("the first output is a transmit");
        };
        let cut: Vec<usize> = outbox.bytes(first).chunks(100).map(<[u8]>::len).collect();
        assert_eq!(cut, [100, 100, 60]);
    }

    #[test]
    fn transmit_stays_within_kernel_limits() {
        for (length, count) in [(10, 64), (1400, 46)] {
            let (mut outbox, mut out) = (Outbox::default(), VecDeque::new());
            for _ in 0..200 {
                outbox.add(&mut out, ChannelId(0), None, |bytes| {
                    bytes.extend(std::iter::repeat_n(0, length));
                });
            }
            let found = lengths(&out);
            assert_eq!(found[0], (0, length, length * count));
            assert_eq!(found.iter().map(|f| f.2).sum::<usize>(), 200 * length);
        }
    }

    #[test]
    fn output_between_datagrams_keeps_its_position() {
        let (mut outbox, mut out) = (Outbox::default(), VecDeque::new());
        outbox.add(&mut out, ChannelId(0), None, |bytes| bytes.push(1));
        out.push_back(Output::Close {
            channel: ChannelId(3),
        });
        outbox.add(&mut out, ChannelId(0), None, |bytes| bytes.push(2));
        assert!(matches!(out[1], Output::Close { .. }) && out.len() == 3);
    }
}
