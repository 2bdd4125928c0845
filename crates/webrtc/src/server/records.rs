//! Records of the reference server's report.

use measure::Time;
use serde::Serialize;

use kit::media::rtp::StreamSummary;

/// Counts of the packets for a player, of one track or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SentCounts {
    /// Packets that were due for their first transmission.
    pub planned: u64,
    /// First copies that were sent.
    pub sent: u64,
    /// Packets from the lowest sequence number sent to the highest: the range that a player sees.
    pub expected: u64,
    /// Expected packets that were never sent, not even as retransmissions.
    pub lost: u64,
    /// Packets dropped on purpose at their first transmission.
    pub left_out: u64,
    /// Second copies sent on purpose.
    pub duplicated: u64,
    /// First copies sent after a packet with a higher number.
    pub reordered: u64,
    /// Payload bytes of first copies. Retransmissions are not counted.
    pub payload_bytes: u64,
    /// Packets that the player requested (NACK), counted once per request.
    pub asked: u64,
    /// Requested packets that were no longer kept.
    pub asked_too_late: u64,
    /// Retransmissions that were sent.
    pub again: u64,
    /// Retransmissions of packets whose first copy was dropped on purpose.
    pub recovered: u64,
    /// Retransmissions of packets that had already been sent: the player has them twice.
    pub again_in_vain: u64,
    /// Retransmissions dropped on purpose.
    pub left_out_again: u64,
    /// Packets that could not be encrypted, or that the network stack refused.
    pub not_taken: u64,
    /// Packets of a publisher that were dropped because this player's queue was full.
    pub overflown: u64,
    /// Send time of the first packet, in nanoseconds since the server's start.
    pub first_left_nanos: Option<u64>,
    /// Frames whose last packet was sent.
    pub frames: u64,
    /// Sum of the delays of these frames past their due times, in nanoseconds.
    pub frames_late_nanos: u64,
    #[serde(skip)]
    pub(super) lowest: u64,
    #[serde(skip)]
    pub(super) highest: u64,
}

impl SentCounts {
    /// Counts a first copy that was sent at `at`.
    pub(super) fn count_first_copy(&mut self, number: u64, payload: u64, at: Time) {
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

    /// Counts a frame whose last packet was due at `due` and was sent at `left`.
    pub(super) fn count_frame(&mut self, due: Option<Time>, left: Time) {
        if let Some(due) = due {
            self.frames += 1;
            self.frames_late_nanos += left.since(due).as_nanos() as u64;
        }
    }

    /// Returns the counts with `expected` and `lost` computed from the others.
    pub(super) fn with_totals(self) -> SentCounts {
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

    /// Returns the counts that are summed over tracks.
    fn sums(&mut self) -> [&mut u64; 18] {
        [
            &mut self.planned,
            &mut self.sent,
            &mut self.expected,
            &mut self.lost,
            &mut self.left_out,
            &mut self.duplicated,
            &mut self.reordered,
            &mut self.payload_bytes,
            &mut self.asked,
            &mut self.asked_too_late,
            &mut self.again,
            &mut self.recovered,
            &mut self.again_in_vain,
            &mut self.left_out_again,
            &mut self.not_taken,
            &mut self.overflown,
            &mut self.frames,
            &mut self.frames_late_nanos,
        ]
    }

    /// Adds the counts of another track.
    pub(super) fn add(&mut self, mut other: SentCounts) {
        for (sum, more) in self.sums().into_iter().zip(other.sums()) {
            *sum += *more;
        }
        let both = self.first_left_nanos.into_iter();
        self.first_left_nanos = both.chain(other.first_left_nanos).min();
    }
}

/// Counts of the packets of a publisher, over all tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedCounts {
    /// Packets received.
    pub received: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets received after one with a higher number.
    pub reordered: u64,
    /// Payload bytes received.
    pub payload_bytes: u64,
    /// Packets made available to players, whether or not one was present.
    pub forwarded: u64,
    /// Packets requested from the publisher (NACK), counted once per request.
    pub asked: u64,
    /// Requested packets that then arrived.
    pub recovered: u64,
    /// Key frames requested from the publisher.
    pub pictures_asked: u64,
    /// Packets that were not authentic.
    pub unauthentic: u64,
    /// Packets that had been received before, or were too old for the replay window.
    pub replayed: u64,
    /// Packets that are not RTP, or whose payload type was not negotiated.
    pub foreign: u64,
}

/// Counts of other datagrams that a PeerConnection dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DroppedCounts {
    /// STUN messages that were malformed or lacked a required attribute.
    pub stun_malformed: u64,
    /// STUN messages that were not authentic.
    pub stun_unauthentic: u64,
    /// DTLS datagrams received when none was expected.
    pub dtls_unexpected: u64,
    /// RTCP compounds that were not authentic.
    pub rtcp_unauthentic: u64,
    /// RTCP compounds that had been received before.
    pub rtcp_replayed: u64,
    /// Datagrams of an unknown protocol.
    pub foreign: u64,
}

/// Record of one PeerConnection: a line of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedPeer {
    /// Number of the PeerConnection, from 0.
    pub number: u64,
    /// Address of the client.
    pub remote: Option<String>,
    /// Name of the stream.
    pub stream: String,
    /// True if the client published, false if it played.
    pub published: bool,
    /// True if the client played a stream that another client published.
    pub relayed: bool,
    /// True if ICE and DTLS completed.
    pub connected: bool,
    /// SRTP protection profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srtp_profile: Option<String>,
    /// Reason for the end.
    pub ended: String,
    /// Packets sent to a player, over all tracks. `None` for a publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentCounts>,
    /// Packets sent to a player, by track.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent_media: Vec<SentTrackCounts>,
    /// Key frames that the player requested.
    pub key_frames_wanted: u64,
    /// Packets that the player reported as received (transport-wide congestion control).
    pub arrivals_told: u64,
    /// Bandwidth estimates that the player sent (REMB).
    pub rembs: u64,
    /// Packets received from a publisher, over all tracks. `None` for a player.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedCounts>,
    /// Packets received from a publisher, by stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub received_streams: Vec<StreamSummary>,
    /// Datagrams that were dropped.
    pub dropped: DroppedCounts,
    /// Reading of `CLOCK_MONOTONIC`, which the whole machine shares, at the server's start, in
    /// nanoseconds: the zero of the times above. Set by the caller that runs the server.
    pub clock_monotonic_nanos: i64,
}

/// Packets sent of one track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SentTrackCounts {
    /// `video` or `audio`.
    pub kind: &'static str,
    /// Synchronisation source.
    pub ssrc: u32,
    #[serde(flatten)]
    pub counts: SentCounts,
}
