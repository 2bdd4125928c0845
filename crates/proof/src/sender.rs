//! The server's flow: numbered packets, retransmissions, and the end message.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use serde::Serialize;

use super::codec;
use super::config::ServerConfig;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Maximum number of queued retransmissions.
const RETRANSMISSIONS_MAX: usize = 256;

/// Interval and maximum number of end messages. A client that does not answer them is gone.
const END_EVERY: Duration = Duration::from_millis(100);
const ENDS_MAX: u32 = 100;

/// Counts of one client, as in the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Sent {
    /// Packets that were due.
    pub(super) expected: u64,
    /// First copies that left.
    pub(super) sent: u64,
    /// First copies omitted on purpose.
    pub(super) left_out: u64,
    /// Requests for packets.
    pub(super) asked: u64,
    /// Retransmissions that left.
    pub(super) sent_again: u64,
    /// Datagrams that the kernel rejected.
    pub(super) not_taken: u64,
}

/// Numbered media for one client.
#[derive(Debug)]
pub(super) struct NumberedMedia {
    config: ServerConfig,
    payload: Bytes,
    next: u32,
    /// Time at which the next packet or end message is due.
    due: Time,
    retransmissions: VecDeque<(Time, u32)>,
    ends: u32,
    pub(super) sent: Sent,
}

impl NumberedMedia {
    pub(super) fn new(config: ServerConfig, now: Time) -> NumberedMedia {
        NumberedMedia {
            config,
            payload: Bytes::from(vec![0x47; config.size]),
            next: 0,
            due: now,
            retransmissions: VecDeque::new(),
            ends: 0,
            sent: Sent::default(),
        }
    }

    /// Queues retransmissions of packets that have been sent before.
    pub(super) fn queue_retransmissions(&mut self, now: Time, numbers: &[u32]) {
        for &number in numbers {
            self.sent.asked += 1;
            let waits = || {
                self.retransmissions
                    .iter()
                    .any(|&(_, other)| other == number)
            };
            if number < self.next && self.retransmissions.len() < RETRANSMISSIONS_MAX && !waits() {
                self.retransmissions.push_back((now, number));
            }
        }
    }

    fn packet(&self, due: Time, header: &[u8], number: u32, kind: PacketKind) -> FlowPacket {
        FlowPacket {
            due,
            header: PacketHeader::EMPTY.append(header),
            payload: match kind {
                PacketKind::End => Bytes::new(),
                PacketKind::First | PacketKind::Retransmission => self.payload.clone(),
            },
            tag: Tag(u64::from(number) | (kind as u64) << 32),
        }
    }
}

/// Type of a datagram.
#[derive(Clone, Copy)]
enum PacketKind {
    First = 0,
    Retransmission = 1,
    End = 2,
}

impl Flow for NumberedMedia {
    fn next_due(&self) -> Option<Time> {
        let again = self.retransmissions.front().map(|&(asked, _)| asked);
        let next = (self.ends < ENDS_MAX).then_some(self.due);
        again.into_iter().chain(next).min()
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if let Some(&(asked, number)) = self.retransmissions.front() {
            self.retransmissions.pop_front();
            let header = codec::media_header(number, true);
            return Some(self.packet(asked, &header, number, PacketKind::Retransmission));
        }
        while self.due <= now && self.next < self.config.count {
            let (number, due) = (self.next, self.due);
            self.next += 1;
            self.due += self.config.every;
            self.sent.expected += 1;
            let one_in = self.config.lose_every;
            if one_in.is_some_and(|one_in| self.next.is_multiple_of(one_in)) {
                self.sent.left_out += 1;
                continue;
            }
            let header = codec::media_header(number, false);
            return Some(self.packet(due, &header, number, PacketKind::First));
        }
        if self.due > now || self.ends >= ENDS_MAX {
            return None;
        }
        self.ends += 1;
        let due = std::mem::replace(&mut self.due, now + END_EVERY);
        let count = self.config.count;
        Some(self.packet(due, &codec::end(count), count, PacketKind::End))
    }

    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        match (left, tag.0 >> 32) {
            (None, _) => self.sent.not_taken += 1,
            (Some(_), 0) => self.sent.sent += 1,
            (Some(_), 1) => self.sent.sent_again += 1,
            (Some(_), _) => {}
        }
    }
}
