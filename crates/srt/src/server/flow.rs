//! Flow of a player: generated media, or media that another client publishes, with injected faults.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::faults::FlowFaults;
use crate::arq::flow::{RETRANSMISSION_TAG, SourceFlow};
use crate::seq::SeqNumber;
use session::{Flow, FlowPacket, Handover, Tag};

/// Tag bit of the packets that this flow adds to those of the inner flow.
const EXTRA_TAG: u64 = 1 << 63;

/// Counts of injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    /// First transmissions that were left out.
    pub left_out: u64,
    /// First transmissions that were left out after the last packet sent: a player cannot know of
    /// them.
    pub left_out_at_the_end: u64,
    /// Retransmissions that were left out.
    pub left_out_again: u64,
    /// Packets that were sent twice.
    pub duplicated: u64,
    /// Packets that were sent after the next one.
    pub reordered: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
}

/// Sums over the first transmissions of packets, in nanoseconds: from when a packet was due, or
/// received if it is relayed. Over the loopback interface, it arrives between the two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SendDelays {
    /// Number of packets.
    pub packets: u64,
    /// Until the packet was given to the network stack.
    pub given_nanos: u64,
    /// Until the network stack had taken it.
    pub taken_nanos: u64,
}

#[derive(Debug)]
pub(super) struct PlayerFlow {
    media: SourceFlow,
    faults: FlowFaults,
    began: Time,
    rng: Pcg64,
    /// Duplicates and delayed packets, which are sent in addition to those of the inner flow.
    extra_packets: VecDeque<FlowPacket>,
    /// True if the packet in `extra_packets` must be sent after the next one.
    is_delayed: bool,
    pub(super) fault_counts: FaultCounts,
    pub(super) delays: SendDelays,
}

impl PlayerFlow {
    pub(super) fn new(media: SourceFlow, faults: FlowFaults, began: Time, seed: u64) -> PlayerFlow {
        PlayerFlow {
            media,
            faults,
            began,
            rng: Pcg64::seed_from_u64(seed),
            extra_packets: VecDeque::new(),
            is_delayed: false,
            fault_counts: FaultCounts::default(),
            delays: SendDelays::default(),
        }
    }

    /// Flow without faults. It counts packets that were left out as sent.
    pub(super) fn media(&mut self) -> &mut SourceFlow {
        &mut self.media
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share.min(1.0))
    }

    /// End of the pause, if the flow is paused at `now`.
    fn stall_end(&self, now: Time) -> Option<Time> {
        let (at, length) = self.faults.stall?;
        let begins = self.began + at;
        (begins <= now && now < begins + length).then(|| begins + length)
    }

    /// Applies faults to a packet. Returns `None` if the packet is left out or delayed.
    fn apply_faults(&mut self, mut packet: FlowPacket) -> Option<FlowPacket> {
        let is_retransmission = packet.tag.0 & RETRANSMISSION_TAG != 0;
        let share = match is_retransmission {
            true => self.faults.lose_again,
            false => self.faults.lose,
        };
        if self.chance(share) {
            match is_retransmission {
                true => self.fault_counts.left_out_again += 1,
                false => {
                    self.fault_counts.left_out += 1;
                    self.fault_counts.left_out_at_the_end += 1;
                }
            }
            // Counted as sent, as if the network had lost it.
            self.media
                .packet_sent(packet.tag, Some(Handover::at(packet.due)));
            return None;
        }
        if !is_retransmission {
            self.fault_counts.left_out_at_the_end = 0;
        }
        if self.chance(self.faults.corrupt) {
            packet.payload = corrupted_copy(&packet.payload);
            self.fault_counts.corrupted += 1;
        }
        if self.chance(self.faults.duplicate) {
            let tag = Tag(packet.tag.0 | EXTRA_TAG);
            self.extra_packets.push_back(FlowPacket {
                tag,
                ..packet.clone()
            });
            self.fault_counts.duplicated += 1;
        } else if !is_retransmission
            && self.extra_packets.is_empty()
            && self.chance(self.faults.reorder)
        {
            self.extra_packets.push_back(packet);
            self.is_delayed = true;
            self.fault_counts.reordered += 1;
            return None;
        }
        Some(packet)
    }
}

/// Copy of a payload with a wrong bit in its last byte.
fn corrupted_copy(payload: &Bytes) -> Bytes {
    let mut copy = BytesMut::from(&payload[..]);
    if let Some(last) = copy.last_mut() {
        *last ^= 1;
    }
    copy.freeze()
}

impl Flow for PlayerFlow {
    fn next_due(&self) -> Option<Time> {
        let within = self.media.next_due();
        let due = match self.extra_packets.front() {
            Some(packet) if !self.is_delayed || within.is_none() => Some(packet.due),
            _ => within,
        };
        let due = due?;
        Some(self.stall_end(due).unwrap_or(due))
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.stall_end(now).is_some() {
            return None;
        }
        if !self.is_delayed || self.media.next_due().is_none() {
            self.is_delayed = false;
            if let Some(packet) = self.extra_packets.pop_front() {
                return Some(packet);
            }
        }
        loop {
            let packet = self.media.next_packet(now)?;
            let held = self.is_delayed;
            if let Some(packet) = self.apply_faults(packet) {
                // The delayed packet is sent next, unless this one is a retransmission, which has
                // not overtaken it.
                if held && packet.tag.0 & RETRANSMISSION_TAG == 0 {
                    self.is_delayed = false;
                }
                return Some(packet);
            }
        }
    }

    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        if tag.0 & (EXTRA_TAG | RETRANSMISSION_TAG) == 0
            && let Some(left) = left
            && let Some(due) = self.media.sender().pushed_at(SeqNumber::new(tag.0 as u32))
        {
            self.delays.packets += 1;
            self.delays.given_nanos += left.began.since(due).as_nanos() as u64;
            self.delays.taken_nanos += left.ended.since(due).as_nanos() as u64;
        }
        if tag.0 & EXTRA_TAG == 0 {
            self.media.packet_sent(tag, left);
        }
    }
}

/// Time `span` after the start of a flow, or never if `span` is `None`.
pub(super) fn time_after(began: Time, span: Option<Duration>) -> Time {
    span.map_or(Time::NEVER, |span| began + span)
}
