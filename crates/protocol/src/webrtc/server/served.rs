//! What the reference server says that it did: the lines of its report.

use measure::Time;
use serde::Serialize;

use crate::media::rtp::StreamSummary;

/// What became of the packets of one media on their way to a player. Sums of several media are of
/// the same form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SentCounts {
    /// Packets that were to leave.
    pub planned: u64,
    /// First copies that left.
    pub sent: u64,
    /// Packets from the lowest number that left to the highest: what a player knows of.
    pub expected: u64,
    /// Of these, those that never left, not even when they were asked for.
    pub lost: u64,
    /// Packets that were left out on purpose when they were to leave first.
    pub left_out: u64,
    /// Second copies that left on purpose.
    pub duplicated: u64,
    /// First copies that left behind a packet with a higher number.
    pub reordered: u64,
    /// Bytes of payload in first copies, those of recovered packets not counted.
    pub payload_bytes: u64,
    /// Packets that the player asked for (NACK), each time.
    pub asked: u64,
    /// Of these, those that were not kept any more.
    pub asked_too_late: u64,
    /// Packets that left because they were asked for.
    pub again: u64,
    /// Of these, those that had been left out before.
    pub recovered: u64,
    /// Of these, the others: the player has them twice.
    pub again_in_vain: u64,
    /// Packets that were asked for, and left out again on purpose.
    pub left_out_again: u64,
    /// Packets that the network stack did not take.
    pub not_taken: u64,
    /// Packets of a publisher that waited for so long that others took their place.
    pub overflown: u64,
    /// When the first packet left, in nanoseconds since the server began.
    pub first_left_nanos: Option<u64>,
    /// Frames whose last packet left, and by how much they were late together, in nanoseconds.
    pub frames: u64,
    /// See there.
    pub frames_late_nanos: u64,
    #[serde(skip)]
    pub(super) lowest: u64,
    #[serde(skip)]
    pub(super) highest: u64,
}

impl SentCounts {
    /// A first copy left.
    pub(super) fn first_copy(&mut self, number: u64, payload: u64, at: Time) {
        self.sent += 1;
        self.payload_bytes += payload;
        if self.first_left_nanos.is_none() {
            self.first_left_nanos = Some(at.as_nanos());
            (self.lowest, self.highest) = (number, number);
            return;
        }
        self.reordered += u64::from(number < self.highest);
        self.lowest = self.lowest.min(number);
        self.highest = self.highest.max(number);
    }

    /// The last packet of a frame left, which was due then.
    pub(super) fn frame(&mut self, due: Option<Time>, left: Time) {
        if let Some(due) = due {
            self.frames += 1;
            self.frames_late_nanos += left.since(due).as_nanos() as u64;
        }
    }

    /// With what follows from the others.
    pub(super) fn settled(self) -> SentCounts {
        let expected = match self.sent {
            0 => 0,
            _ => self.highest - self.lowest + 1,
        };
        SentCounts {
            expected,
            lost: expected.saturating_sub(self.sent + self.recovered),
            ..self
        }
    }

    /// Adds those of another media.
    pub(super) fn add(&mut self, other: &SentCounts) {
        let SentCounts {
            planned,
            sent,
            expected,
            lost,
            left_out,
            duplicated,
            reordered,
            payload_bytes,
            asked,
            asked_too_late,
            again,
            recovered,
            again_in_vain,
            left_out_again,
            not_taken,
            overflown,
            first_left_nanos,
            frames,
            frames_late_nanos,
            lowest: _,
            highest: _,
        } = *other;
        for (sum, more) in [
            (&mut self.planned, planned),
            (&mut self.sent, sent),
            (&mut self.expected, expected),
            (&mut self.lost, lost),
            (&mut self.left_out, left_out),
            (&mut self.duplicated, duplicated),
            (&mut self.reordered, reordered),
            (&mut self.payload_bytes, payload_bytes),
            (&mut self.asked, asked),
            (&mut self.asked_too_late, asked_too_late),
            (&mut self.again, again),
            (&mut self.recovered, recovered),
            (&mut self.again_in_vain, again_in_vain),
            (&mut self.left_out_again, left_out_again),
            (&mut self.not_taken, not_taken),
            (&mut self.overflown, overflown),
            (&mut self.frames, frames),
            (&mut self.frames_late_nanos, frames_late_nanos),
        ] {
            *sum += more;
        }
        let both = self.first_left_nanos.into_iter().chain(first_left_nanos);
        self.first_left_nanos = both.min();
    }
}

/// What came of a publisher, all its media together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedCounts {
    /// Packets that came.
    pub received: u64,
    /// Packets that are missing.
    pub lost: u64,
    /// Packets that came behind one with a higher number.
    pub reordered: u64,
    /// Bytes of their payload.
    pub payload_bytes: u64,
    /// Packets that were passed on to those who play, or would have been.
    pub forwarded: u64,
    /// Packets that the publisher was asked for, each time.
    pub asked: u64,
    /// Of these, those that came then.
    pub recovered: u64,
    /// Key frames that the publisher was asked for.
    pub pictures_asked: u64,
    /// Packets that were not authentic.
    pub unauthentic: u64,
    /// Packets that had come before.
    pub replayed: u64,
    /// Packets that are none of RTP, or of no media agreed upon.
    pub foreign: u64,
}

/// What became of other datagrams of a PeerConnection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DroppedCounts {
    /// Messages of STUN that were none, or lacked something.
    pub stun_malformed: u64,
    /// Messages of STUN that were not authentic.
    pub stun_unauthentic: u64,
    /// Datagrams of DTLS when none was expected.
    pub dtls_unexpected: u64,
    /// Compounds of RTCP that were not authentic, and that had come before.
    pub rtcp_unauthentic: u64,
    /// See there.
    pub rtcp_replayed: u64,
    /// Datagrams of no protocol that is known.
    pub foreign: u64,
}

/// What the server did for one PeerConnection: a line of its report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedPeer {
    /// Which, from 0.
    pub number: u64,
    /// Where it came from.
    pub remote: Option<String>,
    /// The name of the stream.
    pub stream: String,
    /// Whether it published. Else it played.
    pub published: bool,
    /// Whether it played what a client published.
    pub relayed: bool,
    /// Whether ICE and DTLS came to their end.
    pub connected: bool,
    /// Which ciphers protected media.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srtp_profile: Option<String>,
    /// How it ended.
    pub ended: String,
    /// What left to a player, all its media together; none of a publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentCounts>,
    /// The same of each media.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent_media: Vec<SentMedia>,
    /// Key frames that a player asked for.
    pub key_frames_wanted: u64,
    /// Packets of which a player said that they arrived (transport-wide congestion control).
    pub arrivals_told: u64,
    /// Estimates of what a player can take (REMB).
    pub rembs: u64,
    /// What came of a publisher; none of a player.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedCounts>,
    /// What came in each of its streams.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub received_streams: Vec<StreamSummary>,
    /// Datagrams that were dropped.
    pub dropped: DroppedCounts,
    /// What `CLOCK_MONOTONIC`, which the whole machine shares, showed when the server began, in
    /// nanoseconds: what the times above count from. Set by whoever runs the server.
    pub clock_monotonic_nanos: i64,
}

/// What left of one media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SentMedia {
    /// `video` or `audio`.
    pub kind: &'static str,
    /// Its synchronisation source.
    pub ssrc: u32,
    /// Its counts.
    #[serde(flatten)]
    pub counts: SentCounts,
}
