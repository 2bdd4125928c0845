//! Receivers of media, which count packets without the session.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use measure::{Recorder, Time};
use slab::Slab;

/// A receiver of media that is updated packet by packet.
///
/// A sink belongs to one worker and to the session that made it. That session reads it by its
/// concrete type; see [`Sinks::get`].
pub trait Sink: Any + fmt::Debug {
    /// Counts a packet, and returns an event that the session must act on. Must cost no more than
    /// some tens of nanoseconds and allocate nothing.
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent>;
}

/// An event in a sink that its session must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaEvent {
    /// The first packet has arrived.
    First {
        /// Arrival time of the packet.
        at: Time,
    },
    /// The first packet of the newest position has arrived, as far as the server's description of
    /// that position identifies it.
    Position {
        /// Arrival time of the packet.
        at: Time,
    },
    /// The media clock jumped in a stream that has changed its position.
    ClockJumped {
        /// Arrival time of the first packet after the jump.
        at: Time,
    },
    /// The stream restarted with another synchronisation source.
    SourceChanged {
        /// New synchronisation source.
        ssrc: u32,
    },
    /// The packet makes feedback due: it shows a gap, or requires an acknowledgement. Not repeated
    /// before the session has sent its feedback.
    FeedbackDue {
        /// Arrival time of the packet.
        at: Time,
    },
    /// First datagram from an address other than the server's. Such datagrams do not count.
    Foreign {
        /// Address of the sender.
        from: IpAddr,
    },
    /// First packet with a transport-wide sequence number. Reported if the session checks for such
    /// numbers only rarely.
    FirstTransportNumber,
}

/// A media packet that a worker passes to a sink.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Arrival time of the packet.
    pub at: Time,
    /// First bytes of the packet: all of them, or as many as were captured.
    pub bytes: &'a [u8],
    /// Length of the whole packet in bytes, counted from the first of `bytes`.
    pub length: usize,
    /// Further bytes on the wire: the IP and UDP headers, or the framing in a stream.
    pub overhead: usize,
}

/// The datagrams of one socket that are media, and the sink that counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMedia {
    /// Sink that counts the media.
    pub sink: SinkId,
    /// Test that tells media from the other datagrams.
    pub filter: MediaFilter,
}

/// Test that tells media from other datagrams of a socket that several protocols share, by the
/// first two bytes.
///
/// The first byte tells media and control from other protocols (RFC 7983, section 7). The second
/// byte tells control from media (RFC 5761, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFilter {
    /// Minimum and maximum of the first byte of media.
    pub first_byte: [u8; 2],
    /// Minimum and maximum of the second byte of datagrams that are not media despite their first
    /// byte.
    pub excluded_second_byte: Option<[u8; 2]>,
}

impl MediaFilter {
    /// Returns `true` if the datagram is media.
    #[inline]
    pub fn matches(&self, datagram: &[u8]) -> bool {
        let within = |byte: &u8, [least, greatest]: [u8; 2]| (least..=greatest).contains(byte);
        let second = |bounds| datagram.get(1).is_some_and(|byte| within(byte, bounds));
        datagram
            .first()
            .is_some_and(|byte| within(byte, self.first_byte))
            && !self.excluded_second_byte.is_some_and(second)
    }
}

/// Bytes of each datagram that a type of sink reads, decided by the first byte. A filter in the
/// kernel then keeps no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureNeeds {
    /// `true` if the sink reads every datagram whole.
    pub all: bool,
    /// A datagram is kept whole if any of these bits is set in its first byte.
    pub whole_if: u8,
    /// A random sample of datagrams is kept whole, one in 2 to the power of this, for checks that
    /// need all bytes of some datagrams. Default: none.
    pub whole_sample: Option<u8>,
    /// If any of these bits is set in the first byte, more than [`CaptureNeeds::prefix_bytes`]
    /// bytes are kept: up to some 80 of the payload.
    pub longer_if: u8,
    /// Number of bytes that suffice for all other datagrams.
    pub prefix_bytes: u8,
    /// Maximum delay from arrival to counting, for sinks whose packets make feedback due. With
    /// `None` packets are gathered for 100 ms, which costs least.
    pub delay_max: Option<Duration>,
}

impl CaptureNeeds {
    /// Needs of a sink that reads payloads: every datagram whole.
    pub const ALL: CaptureNeeds = CaptureNeeds {
        all: true,
        whole_if: u8::MAX,
        whole_sample: None,
        longer_if: u8::MAX,
        prefix_bytes: 0,
        delay_max: None,
    };

    /// Returns needs that satisfy both.
    pub fn union(self, other: CaptureNeeds) -> CaptureNeeds {
        CaptureNeeds {
            all: self.all || other.all,
            whole_if: self.whole_if | other.whole_if,
            whole_sample: self
                .whole_sample
                .into_iter()
                .chain(other.whole_sample)
                .min(),
            longer_if: self.longer_if | other.longer_if,
            prefix_bytes: self.prefix_bytes.max(other.prefix_bytes),
            delay_max: self.delay_max.into_iter().chain(other.delay_max).min(),
        }
    }
}

/// Handle of a receiver in [`Sinks`]. After the receiver was removed it stays invalid, even if
/// another receiver uses its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinkId {
    slot: usize,
    /// Tells receivers apart that used the same slot one after the other.
    serial: u64,
}

/// All receivers of one worker.
#[derive(Debug, Default)]
pub struct Sinks {
    slots: Slab<(u64, Box<dyn Sink>)>,
    serial: u64,
}

impl Sinks {
    /// Adds a receiver.
    pub fn insert(&mut self, sink: impl Sink) -> SinkId {
        self.serial += 1;
        SinkId {
            slot: self.slots.insert((self.serial, Box::new(sink))),
            serial: self.serial,
        }
    }

    /// Counts a packet. Ignores it if the receiver was removed.
    #[inline]
    pub fn packet(
        &mut self,
        id: SinkId,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        self.sink(id)?.packet(arrival, recorder)
    }

    /// Returns a receiver of any type, or `None` if it was removed.
    #[inline]
    pub fn sink(&mut self, id: SinkId) -> Option<&mut dyn Sink> {
        match self.slots.get_mut(id.slot) {
            Some((serial, sink)) if *serial == id.serial => Some(&mut **sink),
            _ => None,
        }
    }

    /// Returns a shared reference to a receiver, or `None` if it was removed.
    #[inline]
    pub fn peek(&self, id: SinkId) -> Option<&dyn Sink> {
        match self.slots.get(id.slot) {
            Some((serial, sink)) if *serial == id.serial => Some(&**sink),
            _ => None,
        }
    }

    /// Returns a receiver by its concrete type.
    ///
    /// # Panics
    /// If the receiver was removed or has another type. Only the session that made it may call
    /// this.
    pub fn get<T: Sink>(&mut self, id: SinkId) -> &mut T {
        let sink: Option<&mut dyn Any> = self.sink(id).map(|sink| sink as _);
        sink.and_then(|sink| sink.downcast_mut())
            .expect("a session uses only sinks that it made and has not removed")
    }

    /// Removes a receiver.
    ///
    /// # Panics
    /// If the receiver was already removed or has another type. Only the session that made it may
    /// call this.
    pub fn remove<T: Sink>(&mut self, id: SinkId) -> Box<T> {
        assert!(self.contains(id), "a session removes a sink twice");
        let sink: Box<dyn Any> = self.slots.remove(id.slot).1;
        sink.downcast()
            .expect("a session removes a sink with the type that it made")
    }

    /// Returns `true` if the receiver has not been removed.
    pub fn contains(&self, id: SinkId) -> bool {
        self.peek(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums packet lengths and reports the first packet.
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
    fn sinks_of_different_types_share_a_worker() {
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
        // The slot was reused.
        let other = sinks.insert(Bytes::default());
        assert_eq!(sinks.packet(ids[0], &arrival, &mut recorder), None);
        assert_eq!(sinks.get::<Bytes>(other).0, 0);
    }

    #[test]
    fn media_filter_checks_the_first_two_bytes() {
        let rtp = MediaFilter {
            first_byte: [128, 191],
            excluded_second_byte: Some([192, 223]),
        };
        for (datagram, is_media) in [
            (&[0x80, 96][..], true),
            (&[0xbf, 0xe0], true),
            (&[0x80], true),
            // RTCP sender report, STUN, DTLS, empty datagram.
            (&[0x80, 200], false),
            (&[0, 1], false),
            (&[22, 254], false),
            (&[], false),
        ] {
            assert_eq!(rtp.matches(datagram), is_media, "{datagram:?}");
        }
        let first_bit_clear = MediaFilter {
            first_byte: [0, 127],
            excluded_second_byte: None,
        };
        assert!(first_bit_clear.matches(&[0x7f, 200]) && !first_bit_clear.matches(&[0x80, 0]));
    }

    #[test]
    fn combined_needs_satisfy_both_sinks() {
        let needs = |whole_if, more_if, first| CaptureNeeds {
            all: false,
            whole_if,
            whole_sample: None,
            longer_if: more_if,
            prefix_bytes: first,
            delay_max: None,
        };
        let both = needs(0x20, 0x1f, 12).union(needs(0x80, 1, 16));
        assert_eq!(both, needs(0xa0, 0x1f, 16));
        let sample = |whole_sample| CaptureNeeds {
            whole_sample,
            ..needs(0, 0, 12)
        };
        assert_eq!(sample(Some(6)).union(sample(None)), sample(Some(6)));
        assert_eq!(sample(Some(6)).union(sample(Some(3))), sample(Some(3)));
    }
}
