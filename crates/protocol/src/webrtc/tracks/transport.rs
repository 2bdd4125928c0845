//! When the packets of a PeerConnection arrived, and how much its receiver can take.

use std::time::Duration;

use measure::Time;

use super::Tracks;
use crate::media::rtcp;
use crate::session::{Arrival, MediaEvent};
use crate::webrtc::extension;
use crate::webrtc::feedback::{self, Arrivals};

/// Of how much less than this share lost an estimate is not lowered, as senders have it too
/// (draft-ietf-rmcat-gcc-02, 6).
const LOSS_BORNE: f64 = 0.1;

/// The least that is estimated, in bits per second: enough for a sender to begin with.
const LEAST: f64 = 300_000.0;

/// What is kept of the numbers that all packets of a transport share.
#[derive(Debug)]
pub(super) struct Transport {
    /// The number of the header extension.
    extension: u8,
    arrivals: Arrivals,
    /// The source of the last packet.
    media: u32,
    /// Whether the session, which looks seldom, is to be told of the first number.
    tells_first: bool,
}

/// What came up to an estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimated {
    at: Option<Time>,
    bytes: u64,
    expected: u64,
    received: u64,
}

impl Tracks {
    /// Has it keep when packets arrive, by the numbers in that header extension; or not.
    pub(in crate::webrtc) fn tell_arrivals(&mut self, extension: Option<u8>) {
        let known = self.transport.as_ref().map(|own| own.extension);
        if known != extension {
            self.transport = extension.map(|extension| {
                Box::new(Transport {
                    extension,
                    arrivals: Arrivals::default(),
                    media: 0,
                    tells_first: false,
                })
            });
        }
    }

    /// Whether arrivals are told.
    pub(in crate::webrtc) fn tells_arrivals(&self) -> bool {
        self.transport.is_some()
    }

    /// Whether arrivals are told, and media has come, but never with a number. Some servers agree to
    /// numbers and give none, others number pictures and no sound. If so, the session is told when
    /// the first number comes.
    pub(in crate::webrtc) fn lack_numbers(&mut self) -> bool {
        let mut heard = self.tracks.iter().filter_map(|own| own.receiver.as_ref());
        let Some(transport) = &mut self.transport else {
            return false;
        };
        let lacks = !transport.arrivals.has_begun() && heard.any(|own| own.counts().received > 0);
        transport.tells_first = lacks;
        lacks
    }

    /// What the session is to hear when the first number has come.
    pub(super) fn first_number(&mut self) -> Option<MediaEvent> {
        let transport = self.transport.as_mut()?;
        std::mem::take(&mut transport.tells_first).then_some(MediaEvent::Numbered)
    }

    /// Writes compounds that say which packets arrived since the last time, and when; says of how
    /// many packets those tell that `send` takes.
    pub(in crate::webrtc) fn write_arrivals(
        &mut self,
        own: u32,
        mut send: impl FnMut(&[u8]) -> bool,
    ) -> u64 {
        let Some(transport) = &mut self.transport else {
            return 0;
        };
        let (mut told, mut compound) = (0, Vec::new());
        loop {
            let before = transport.arrivals.counts().said;
            compound.clear();
            rtcp::write_receiver_report(&mut compound, own, &[]);
            if !transport
                .arrivals
                .write(own, transport.media, &mut compound)
            {
                return told;
            }
            if send(&compound) {
                told += transport.arrivals.counts().said - before;
            }
        }
    }

    /// Appends a message that says how much can be taken, in bits per second. The estimate is half
    /// as much again as what came since the last time. With more than 10 % lost it is lowered by
    /// half of the share that is. None before something came.
    pub(in crate::webrtc) fn write_remb(
        &mut self,
        now: Time,
        own: u32,
        compound: &mut Vec<u8>,
    ) -> Option<u64> {
        let mut sum = Estimated {
            at: Some(now),
            ..Estimated::default()
        };
        let mut sources = Vec::new();
        for track in &self.tracks {
            if let Some(receiver) = &track.receiver {
                let counts = receiver.counts();
                sum.bytes += counts.wire_bytes;
                sum.expected += counts.expected;
                sum.received += counts.received;
                sources.extend(track.is_heard(now).then_some(track.ssrc));
            }
        }
        let before = std::mem::replace(&mut self.estimated, sum);
        let span = now.since(before.at?);
        if span < Duration::from_millis(100) || sources.is_empty() {
            return None;
        }
        let rate = (sum.bytes - before.bytes) as f64 * 8.0 / span.as_secs_f64();
        let expected = sum.expected.saturating_sub(before.expected);
        let received = sum.received.saturating_sub(before.received);
        // What came late may be of before.
        let lost = expected.saturating_sub(received) as f64;
        let loss = if lost > 0.0 {
            lost / expected as f64
        } else {
            0.0
        };
        let lowered = match loss > LOSS_BORNE {
            true => 1.0 - loss / 2.0,
            false => 1.0,
        };
        let estimate = ((rate * 1.5).max(LEAST) * lowered) as u64;
        feedback::write_remb(compound, own, estimate, &sources);
        Some(estimate)
    }
}

impl Transport {
    /// A packet has come. Says whether the session waits to hear of its number.
    #[inline]
    pub(super) fn packet(&mut self, ssrc: u32, arrival: &Arrival<'_>) -> bool {
        let Some(&[high, low]) = extension::find(arrival.bytes, self.extension) else {
            return false;
        };
        self.media = ssrc;
        let number = u16::from_be_bytes([high, low]);
        self.arrivals.packet(number, arrival.at);
        self.tells_first
    }
}
