//! What receives media packet by packet, without the session.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use measure::{Recorder, Time};
use slab::Slab;

/// A receiver of media that is updated packet by packet. It belongs to one worker, and to the
/// session that made it, which reads it by its own type: see [`Sinks::get`].
pub trait Sink: Any + fmt::Debug {
    /// Counts a packet. Costs some tens of nanoseconds and allocates nothing.
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent>;
}

/// Something that happened in a sink and that its session must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaEvent {
    /// The first packet has arrived.
    First {
        /// When.
        at: Time,
    },
    /// The first packet has arrived of the position that the receiver was told of last, as far as
    /// what the server said of it tells.
    Position {
        /// When.
        at: Time,
    },
    /// The media's clock jumped, in a stream that has changed its position.
    ClockJumped {
        /// When the first packet came after it.
        at: Time,
    },
    /// The stream began anew with another source.
    SourceChanged {
        /// The new synchronisation source.
        ssrc: u32,
    },
    /// This packet makes feedback due: it shows a gap, or an acknowledgement has to be sent. Not
    /// repeated before the session has sent its feedback.
    FeedbackDue {
        /// Arrival time of the packet.
        at: Time,
    },
    /// First datagram from another address than the server's. Such datagrams do not count.
    Foreign {
        /// The address.
        from: IpAddr,
    },
    /// The first packet with a number of its transport, where the session looks for them seldom.
    Numbered,
}

/// A packet of media, as a worker hands it to a sink.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When it arrived.
    pub at: Time,
    /// Its first bytes: all, or as many as were captured.
    pub bytes: &'a [u8],
    /// How long it really is, from the first of `bytes`.
    pub length: usize,
    /// What it took on the wire beyond that: the headers of IP and UDP, or the framing in a stream.
    pub overhead: usize,
}

/// What of the datagrams of one socket is media, and what counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    /// What counts it.
    pub sink: SinkId,
    /// What tells it from the rest.
    pub mark: MediaMark,
}

/// Tells media from the rest of a socket's datagrams by their first two bytes, where several
/// protocols share it: of those that have a first byte as media has (RFC 7983, 7), some have a
/// second byte that makes them control (RFC 5761, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaMark {
    /// The least and the greatest first byte of media.
    pub first: [u8; 2],
    /// The least and the greatest second byte of what is none all the same.
    pub but_second: Option<[u8; 2]>,
}

impl MediaMark {
    /// Whether a datagram is media.
    #[inline]
    pub fn is_on(&self, datagram: &[u8]) -> bool {
        let within = |byte: &u8, [least, greatest]: [u8; 2]| (least..=greatest).contains(byte);
        let second = |bounds| datagram.get(1).is_some_and(|byte| within(byte, bounds));
        datagram
            .first()
            .is_some_and(|byte| within(byte, self.first))
            && !self.but_second.is_some_and(second)
    }
}

/// How much of each datagram a kind of sink reads. Its first byte tells: so a filter in the kernel
/// can keep no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The whole of each datagram.
    pub all: bool,
    /// The whole datagram, where any of these bits is set in its first byte.
    pub whole_if: u8,
    /// The whole of a random sample of datagrams, one in 2 to the power of this: for checks that
    /// need all bytes, but not of every datagram.
    pub whole_sample: Option<u8>,
    /// More than the first [`Needs::first`] bytes, up to some 80 of the payload, where any of these
    /// is set.
    pub more_if: u8,
    /// How many bytes are enough else.
    pub first: u8,
    /// Maximum delay from arrival to counting, because feedback may be due. By default, packets are
    /// gathered for 100 ms, which costs least.
    pub within: Option<Duration>,
}

impl Needs {
    /// What a sink needs that reads payloads: all of each datagram.
    pub const ALL: Needs = Needs {
        all: true,
        whole_if: u8::MAX,
        whole_sample: None,
        more_if: u8::MAX,
        first: 0,
        within: None,
    };

    /// What sinks of both kinds need.
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            all: self.all || other.all,
            whole_if: self.whole_if | other.whole_if,
            whole_sample: self
                .whole_sample
                .into_iter()
                .chain(other.whole_sample)
                .min(),
            more_if: self.more_if | other.more_if,
            first: self.first.max(other.first),
            within: self.within.into_iter().chain(other.within).min(),
        }
    }
}

/// A place in [`Sinks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinkId {
    place: usize,
    /// Which of those that had the place: it is used again.
    serial: u64,
}

/// All receivers of one worker, side by side.
#[derive(Debug, Default)]
pub struct Sinks {
    places: Slab<(u64, Box<dyn Sink>)>,
    serial: u64,
}

impl Sinks {
    /// Adds a receiver.
    pub fn insert(&mut self, sink: impl Sink) -> SinkId {
        self.serial += 1;
        SinkId {
            place: self.places.insert((self.serial, Box::new(sink))),
            serial: self.serial,
        }
    }

    /// Counts a packet. A packet for a receiver that was taken out is in no figure.
    #[inline]
    pub fn packet(
        &mut self,
        id: SinkId,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        self.sink(id)?.packet(arrival, recorder)
    }

    /// The receiver in that place, of whatever kind, unless it was taken out.
    #[inline]
    pub fn sink(&mut self, id: SinkId) -> Option<&mut dyn Sink> {
        match self.places.get_mut(id.place) {
            Some((serial, sink)) if *serial == id.serial => Some(&mut **sink),
            _ => None,
        }
    }

    /// The same, to be looked at.
    #[inline]
    pub fn peek(&self, id: SinkId) -> Option<&dyn Sink> {
        match self.places.get(id.place) {
            Some((serial, sink)) if *serial == id.serial => Some(&**sink),
            _ => None,
        }
    }

    /// The receiver in that place, as its session made it.
    ///
    /// # Panics
    /// If it was taken out, or is of another type: only its session does that.
    pub fn get<T: Sink>(&mut self, id: SinkId) -> &mut T {
        let sink: Option<&mut dyn Any> = self.sink(id).map(|sink| sink as _);
        sink.and_then(|sink| sink.downcast_mut())
            .expect("a session uses the sinks that it made, until it takes them out")
    }

    /// Takes a receiver out.
    ///
    /// # Panics
    /// If it was taken out already, or is of another type: only its session does that.
    pub fn remove<T: Sink>(&mut self, id: SinkId) -> Box<T> {
        assert!(self.contains(id), "a session takes a sink out twice");
        let sink: Box<dyn Any> = self.places.remove(id.place).1;
        sink.downcast()
            .expect("a session knows the sinks that it made")
    }

    /// Whether a receiver is in that place.
    pub fn contains(&self, id: SinkId) -> bool {
        self.peek(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts packets, and says when the first came.
    #[derive(Debug, Default)]
    struct Bytes(usize);

    impl Sink for Bytes {
        fn packet(&mut self, arrival: &Arrival<'_>, _: &mut Recorder) -> Option<MediaEvent> {
            let first = self.0 == 0;
            self.0 += arrival.length;
            first.then_some(MediaEvent::First { at: arrival.at })
        }
    }

    #[derive(Debug)]
    struct Nothing;

    impl Sink for Nothing {
        fn packet(&mut self, _: &Arrival<'_>, _: &mut Recorder) -> Option<MediaEvent> {
            None
        }
    }

    #[test]
    fn sinks_of_several_kinds_stand_side_by_side() {
        let mut recorder = Recorder::new(measure::Catalogue(&[]));
        let mut sinks = Sinks::default();
        let ids = [sinks.insert(Bytes::default()), sinks.insert(Nothing)];
        let arrival = Arrival {
            at: Time::from_nanos(5),
            bytes: b"ab",
            length: 7,
            overhead: 0,
        };
        let first = Some(MediaEvent::First { at: arrival.at });
        for expected in [[first, None], [None, None]] {
            let events = ids.map(|id| sinks.packet(id, &arrival, &mut recorder));
            assert_eq!(events, expected);
        }
        assert_eq!(sinks.get::<Bytes>(ids[0]).0, 14);
        assert_eq!(sinks.remove::<Bytes>(ids[0]).0, 14);
        assert!(!sinks.contains(ids[0]) && sinks.contains(ids[1]));
        // Its place is another's now.
        let other = sinks.insert(Bytes::default());
        assert_eq!(sinks.packet(ids[0], &arrival, &mut recorder), None);
        assert_eq!(sinks.get::<Bytes>(other).0, 0);
    }

    #[test]
    fn media_is_told_by_its_first_bytes() {
        let rtp = MediaMark {
            first: [128, 191],
            but_second: Some([192, 223]),
        };
        for (datagram, is_media) in [
            (&[0x80, 96][..], true),
            (&[0xbf, 0xe0], true),
            (&[0x80], true),
            // A sender report, STUN, DTLS, and nothing.
            (&[0x80, 200], false),
            (&[0, 1], false),
            (&[22, 254], false),
            (&[], false),
        ] {
            assert_eq!(rtp.is_on(datagram), is_media, "{datagram:?}");
        }
        let first_bit_clear = MediaMark {
            first: [0, 127],
            but_second: None,
        };
        assert!(first_bit_clear.is_on(&[0x7f, 200]) && !first_bit_clear.is_on(&[0x80, 0]));
    }

    #[test]
    fn a_ring_keeps_what_all_kinds_of_sinks_need() {
        let needs = |whole_if, more_if, first| Needs {
            all: false,
            whole_if,
            whole_sample: None,
            more_if,
            first,
            within: None,
        };
        let both = needs(0x20, 0x1f, 12).and(needs(0x80, 1, 16));
        assert_eq!(both, needs(0xa0, 0x1f, 16));
        let sample = |whole_sample| Needs {
            whole_sample,
            ..needs(0, 0, 12)
        };
        assert_eq!(sample(Some(6)).and(sample(None)), sample(Some(6)));
        assert_eq!(sample(Some(6)).and(sample(Some(3))), sample(Some(3)));
    }
}
