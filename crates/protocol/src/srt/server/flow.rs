//! What a player is sent: made media, or what another client publishes, with faults on request.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::faults::FlowFaults;
use crate::session::{Flow, FlowPacket, Handover, Tag};
use crate::srt::arq::flow::{AGAIN, Left, SrtFlow};
use crate::srt::arq::sender::Sender;
use crate::srt::made::MadeFlow;

/// Marks the tags of packets that this flow sends beside those of the flow within.
const BESIDE: u64 = 1 << 63;

/// What was done wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wrongs {
    /// Packets that were left out when they were to be sent first.
    pub left_out: u64,
    /// Of these, the ones behind the last that left: a player cannot know of them.
    pub left_out_at_the_end: u64,
    /// Retransmissions that were left out.
    pub left_out_again: u64,
    /// Packets that left twice.
    pub duplicated: u64,
    /// Packets that left behind the one after them.
    pub reordered: u64,
    /// Packets of which a bit was wrong.
    pub corrupted: u64,
}

/// Where media comes from.
#[derive(Debug)]
pub(super) enum Media {
    /// It is made.
    Made(Box<MadeFlow>),
    /// Its session pushes it.
    Relayed(Box<SrtFlow>),
}

/// The flow of a player.
#[derive(Debug)]
pub(super) struct ServedFlow {
    media: Media,
    faults: FlowFaults,
    began: Time,
    rng: Pcg64,
    /// What leaves beside and behind what the flow within sends.
    behind: VecDeque<FlowPacket>,
    /// Whether the packet in `behind` waits for the next one to leave before.
    waits: bool,
    wrongs: Wrongs,
}

impl ServedFlow {
    pub(super) fn new(media: Media, faults: FlowFaults, began: Time, seed: u64) -> ServedFlow {
        ServedFlow {
            media,
            faults,
            began,
            rng: Pcg64::seed_from_u64(seed),
            behind: VecDeque::new(),
            waits: false,
            wrongs: Wrongs::default(),
        }
    }

    /// The sender, which takes control packets, and payloads where they are pushed.
    pub(super) fn sender(&mut self) -> &mut Sender {
        match &mut self.media {
            Media::Made(flow) => flow.sender(),
            Media::Relayed(flow) => flow.sender(),
        }
    }

    /// No more media follows: the flow ends when all is acknowledged, or too late.
    pub(super) fn finish(&mut self) {
        match &mut self.media {
            Media::Made(flow) => flow.finish(),
            Media::Relayed(flow) => flow.finish(),
        }
    }

    /// What became of its packets, those left out among the ones that left.
    pub(super) fn left_so_far(&self) -> Left {
        match &self.media {
            Media::Made(flow) => flow.left_so_far(),
            Media::Relayed(flow) => flow.left_so_far(),
        }
    }

    pub(super) fn wrongs(&self) -> Wrongs {
        self.wrongs
    }

    fn inner(&self) -> &dyn Flow {
        match &self.media {
            Media::Made(flow) => &**flow,
            Media::Relayed(flow) => &**flow,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Flow {
        match &mut self.media {
            Media::Made(flow) => &mut **flow,
            Media::Relayed(flow) => &mut **flow,
        }
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share.min(1.0))
    }

    /// Until when nothing is sent, where that is now.
    fn stalls(&self, now: Time) -> Option<Time> {
        let (at, length) = self.faults.stall?;
        let begins = self.began + at;
        (begins <= now && now < begins + length).then(|| begins + length)
    }

    /// What becomes of a packet that is to leave.
    fn spoil(&mut self, mut packet: FlowPacket) -> Option<FlowPacket> {
        let again = packet.tag.0 & AGAIN != 0;
        let share = match again {
            true => self.faults.lose_again,
            false => self.faults.lose,
        };
        if self.chance(share) {
            match again {
                true => self.wrongs.left_out_again += 1,
                false => {
                    self.wrongs.left_out += 1;
                    self.wrongs.left_out_at_the_end += 1;
                }
            }
            // As if a network had lost it.
            self.inner_mut()
                .left(packet.tag, Some(Handover::at(packet.due)));
            return None;
        }
        if !again {
            self.wrongs.left_out_at_the_end = 0;
        }
        if self.chance(self.faults.corrupt) {
            packet.payload = damaged(&packet.payload);
            self.wrongs.corrupted += 1;
        }
        if self.chance(self.faults.duplicate) {
            let tag = Tag(packet.tag.0 | BESIDE);
            self.behind.push_back(FlowPacket {
                tag,
                ..packet.clone()
            });
            self.wrongs.duplicated += 1;
        } else if !again && self.behind.is_empty() && self.chance(self.faults.reorder) {
            self.behind.push_back(packet);
            self.waits = true;
            self.wrongs.reordered += 1;
            return None;
        }
        Some(packet)
    }
}

/// The same with a bit wrong in its last byte.
fn damaged(payload: &Bytes) -> Bytes {
    let mut copy = BytesMut::from(&payload[..]);
    if let Some(last) = copy.last_mut() {
        *last ^= 1;
    }
    copy.freeze()
}

impl Flow for ServedFlow {
    fn next_due(&self) -> Option<Time> {
        let within = self.inner().next_due();
        let due = match self.behind.front() {
            Some(packet) if !self.waits || within.is_none() => Some(packet.due),
            _ => within,
        };
        let due = due?;
        Some(self.stalls(due).unwrap_or(due))
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.stalls(now).is_some() {
            return None;
        }
        if !self.waits || self.inner().next_due().is_none() {
            self.waits = false;
            if let Some(packet) = self.behind.pop_front() {
                return Some(packet);
            }
        }
        loop {
            let packet = self.inner_mut().next_packet(now)?;
            let held = self.waits;
            if let Some(packet) = self.spoil(packet) {
                // What waits leaves next, unless that one was sent again: it has overtaken nothing.
                if held && packet.tag.0 & AGAIN == 0 {
                    self.waits = false;
                }
                return Some(packet);
            }
        }
    }

    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        if tag.0 & BESIDE == 0 {
            self.inner_mut().left(tag, left);
        }
    }
}

/// How long after the beginning of a flow that is.
pub(super) fn after(began: Time, span: Option<Duration>) -> Time {
    span.map_or(Time::NEVER, |span| began + span)
}
