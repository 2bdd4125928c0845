//! Datagrams of sessions: many at a time, each with its address, in and out.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use measure::Time;

use super::{ChannelId, Output, Session};

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// When the kernel took it in.
    pub at: Time,
    /// All of it.
    pub bytes: &'a [u8],
}

/// How soon the datagrams of a channel are read. Times of arrival are the kernel's either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As soon as they come.
    AtOnce,
    /// Within that time. One wake-up serves the sockets of all sessions. If a packet ring brings
    /// the media, the rest is read as with [`Reading::Late`].
    Soon(Duration),
    /// As [`Reading::Soon`], for sessions with a deadline every few milliseconds. If a packet ring
    /// brings the media, the rest is read at deadlines, at most every 40 ms.
    MediaSoon(Duration),
    /// Whenever the worker is awake for something else, but every 40 ms, and before the session
    /// hears of anything else. For media, where answers may wait: nobody is woken for it.
    Late,
    /// When the session's deadline comes, before it hears of anything else, and at the end of each
    /// window. For media of a session that has a deadline every few milliseconds anyway: the worker
    /// does not even look whether something has come. Where a packet ring brings the media, what
    /// else comes is read every 40 ms.
    AtDeadlines,
}

/// A part of what a session sends: one datagram, or several to one place of which all but the last
/// are equally long. Its bytes are in the [`Outbox`] of the call that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// On which channel.
    pub channel: ChannelId,
    /// Where to. `None` is the peer that the channel was opened with.
    pub to: Option<SocketAddr>,
    /// How long each datagram is; the last one may be shorter.
    pub segment_size: usize,
    /// Where its bytes are.
    pub place: Range<usize>,
}

impl Transmit {
    /// The most datagrams in one: the kernel takes no more (`UDP_MAX_SEGMENTS` was 64 up to
    /// Linux 6.8).
    const SEGMENTS_MAX: usize = 64;

    /// The most bytes in one: what fits into the length of an IPv6 or IPv4 packet with its headers.
    const BYTES_MAX: usize = 65_000;

    /// Whether a datagram of that length can follow in the same one.
    fn takes(&self, channel: ChannelId, to: Option<SocketAddr>, length: usize) -> bool {
        let bytes = self.place.len();
        (self.channel, self.to) == (channel, to)
            && (1..=self.segment_size).contains(&length)
            && bytes.is_multiple_of(self.segment_size)
            && bytes / self.segment_size < Transmit::SEGMENTS_MAX
            && bytes + length <= Transmit::BYTES_MAX
    }
}

/// The bytes of what a session sends as datagrams in one call. It belongs to the worker and is used
/// again and again, so that no datagram is allocated.
#[derive(Debug, Default)]
pub struct Outbox(Vec<u8>);

impl Outbox {
    /// The bytes of a [`Transmit`] of the same call.
    pub fn bytes(&self, transmit: &Transmit) -> &[u8] {
        &self.0[transmit.place.clone()]
    }

    /// Forgets everything, for the next call.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a datagram that `write` appends to what is there already, after the outputs so far. One
    /// of no bytes is none.
    pub(crate) fn add(
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
            "a datagram is appended, and nothing taken away"
        );
        if begin == end {
            return;
        }
        match out.back_mut() {
            Some(Output::Transmit(last))
                if last.place.end == begin && last.takes(channel, to, end - begin) =>
            {
                last.place.end = end;
            }
            _ => out.push_back(Output::Transmit(Transmit {
                channel,
                to,
                segment_size: end - begin,
                place: begin..end,
            })),
        }
    }
}

/// A session behind an [`Endpoint`], as the endpoint numbers it. Each number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u64);

/// What becomes of a datagram that came to an [`Endpoint`].
pub enum Route {
    /// It is for that session, which hears it as [`Input::Datagrams`](super::Input::Datagrams). One
    /// for a session that is over is dropped, and counted as foreign.
    Session(PeerId),
    /// It begins that session: the session is started, hears that channel 0 stands with the sender
    /// as its remote end, and then the datagram.
    Accept(PeerId, Box<dyn Session>),
    /// What was written is sent back to its sender, and nothing else is done: a challenge, a
    /// refusal.
    Answer,
    /// Nobody wants it. It is counted as foreign.
    Drop,
}

/// The server's side of one UDP port: it sees every datagram, and finds or makes the session that
/// it belongs to, by whatever the protocol tells sessions apart by (an address, a socket id, an ICE
/// user fragment).
///
/// It is called for each datagram, after the session of the one before has heard that one. So it
/// must be quick, and nothing that a stranger sends may make
/// it grow without bound: before a peer has proven its address (RFC 6347, 4.2.1), [`Route::Answer`]
/// keeps nothing.
pub trait Endpoint: Send {
    /// Whose a datagram is. With [`Route::Answer`], `answer` holds what is sent back; it comes
    /// empty. Without `room` there are as many sessions as may be, and [`Route::Accept`] is
    /// refused.
    fn route(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        room: bool,
        answer: &mut Vec<u8>,
    ) -> Route;

    /// A session is over: nothing is to be sent to it any more.
    fn ended(&mut self, session: PeerId);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn lengths(out: &VecDeque<Output>) -> Vec<(u32, usize, usize)> {
        out.iter()
            .map(|output| match output {
                Output::Transmit(t) => (t.channel.0, t.segment_size, t.place.len()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn datagrams_of_one_length_to_one_place_are_one_transmit() {
        let (mut outbox, mut out) = (Outbox::default(), VecDeque::new());
        let to = "10.0.0.1:5".parse().ok();
        let other = "10.0.0.2:5".parse().ok();
        for (channel, to, length) in [
            (1, to, 100),
            (1, to, 100),
            (1, to, 60),
            // After a shorter one the next is another's.
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
            panic!("it is one");
        };
        let cut: Vec<usize> = outbox.bytes(first).chunks(100).map(<[u8]>::len).collect();
        assert_eq!(cut, [100, 100, 60]);
    }

    #[test]
    fn a_transmit_is_no_more_than_the_kernel_takes() {
        for (length, most) in [(10, 64), (1400, 46)] {
            let (mut outbox, mut out) = (Outbox::default(), VecDeque::new());
            for _ in 0..200 {
                outbox.add(&mut out, ChannelId(0), None, |bytes| {
                    bytes.extend(std::iter::repeat_n(0, length));
                });
            }
            let found = lengths(&out);
            assert_eq!(found[0], (0, length, length * most));
            assert_eq!(found.iter().map(|f| f.2).sum::<usize>(), 200 * length);
        }
    }

    #[test]
    fn what_lies_between_two_datagrams_stays_there() {
        let (mut outbox, mut out) = (Outbox::default(), VecDeque::new());
        outbox.add(&mut out, ChannelId(0), None, |bytes| bytes.push(1));
        out.push_back(Output::Close {
            channel: ChannelId(3),
        });
        outbox.add(&mut out, ChannelId(0), None, |bytes| bytes.push(2));
        assert!(matches!(out[1], Output::Close { .. }) && out.len() == 3);
    }
}
