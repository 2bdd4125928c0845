//! Relays a published stream, as fast as the connection takes it.

use std::sync::Arc;

use measure::Time;

use super::published::{PublishedStreams, Relayed};
use crate::rtmp::codec::message::Kind;
use crate::rtmp::codec::write::{self, Head};
use crate::rtmp::flow::{Fate, Fates, FlowFaults, Outgoing, Sent, What};
use crate::session::{Flow, FlowPacket, Handover, Tag};

/// Flow that sends a published stream to a player.
#[derive(Debug)]
pub(super) struct RelayFlow {
    published: Arc<PublishedStreams>,
    name: String,
    /// Number of the next message.
    next: u64,
    stream: u32,
    chunk_size: u32,
    /// Time since which there may be more messages.
    more: Option<Time>,
    message: Option<Outgoing>,
    handed_out: bool,
    fates: Fates,
    sent: Sent,
}

impl RelayFlow {
    pub(super) fn new(
        published: Arc<PublishedStreams>,
        name: String,
        next: u64,
        (stream, chunk_size): (u32, u32),
        faults: &FlowFaults,
        seed: u64,
    ) -> RelayFlow {
        RelayFlow {
            published,
            name,
            next,
            stream,
            chunk_size,
            more: None,
            message: None,
            handed_out: false,
            fates: Fates::new(faults, seed),
            sent: Sent::default(),
        }
    }

    /// Notifies the flow that there are more messages.
    pub(super) fn wake(&mut self, now: Time) {
        self.more.get_or_insert(now);
    }

    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    fn make(&mut self) -> Option<Outgoing> {
        self.more?;
        let (message, fate) = loop {
            let Some((message, number)) = self.published.get(&self.name, self.next) else {
                self.more = None;
                return None;
            };
            self.sent.not_taken += number - self.next;
            self.next = number + 1;
            let fate = match message.what {
                What::Other => Fate::Whole,
                what => self.fates.next(what.is_video(), &mut self.sent),
            };
            if fate != Fate::LeftOut {
                break (message, fate);
            }
        };
        let head = head(&message, self.stream);
        let due = message.at;
        let payload = &message.payload[..];
        if fate == Fate::Malformed {
            return Some(Outgoing::malformed((head, self.chunk_size), payload, due));
        }
        let mut out = Vec::with_capacity(head.written(payload.len(), self.chunk_size));
        head.write(&[payload], self.chunk_size, &mut out);
        let way = (head, self.chunk_size);
        Some(Outgoing::new(
            way,
            out.into(),
            due,
            message.what,
            payload.len(),
        ))
    }
}

/// Returns the message header of a relayed message.
pub(super) fn head(message: &Relayed, stream: u32) -> Head {
    Head {
        chunk_stream: match message.kind {
            Kind::Video => write::VIDEO,
            _ => write::AUDIO,
        },
        kind: message.kind,
        timestamp: message.timestamp,
        stream,
    }
}

impl Flow for RelayFlow {
    fn next_due(&self) -> Option<Time> {
        Some(match (&self.message, self.handed_out) {
            (_, true) => Time::NEVER,
            (Some(message), false) => message.due(),
            (None, false) => self.more.unwrap_or(Time::NEVER),
        })
    }

    fn next_packet(&mut self, _: Time) -> Option<FlowPacket> {
        if self.handed_out {
            return None;
        }
        if self.message.is_none() {
            self.message = self.make();
        }
        let packet = self.message.as_mut()?.hand_out();
        self.handed_out = true;
        Some(packet)
    }

    fn left(&mut self, _: Tag, left: Option<Handover>) {
        self.handed_out = false;
        let (Some(message), Some(left)) = (&mut self.message, left) else {
            return;
        };
        if !message.took() {
            return;
        }
        if message.is_video() {
            self.fates.video_left(&mut self.sent);
        }
        message.count(&mut self.sent, left);
        self.message = None;
    }

    fn wants_times(&self) -> bool {
        true
    }

    fn waits_for_room(&self) -> bool {
        true
    }
}
