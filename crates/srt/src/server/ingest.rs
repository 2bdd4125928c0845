//! Media that a client publishes to the reference server.

use bytes::Bytes;
use measure::Time;
use serde::Serialize;

use crate::arq::receiver::{PacketStatus, Receiver, ReceiverConfig};
use crate::codec::packet::{Control, DataHeader};
use crate::crypto::Decryptor;
use crate::handshake::Negotiated;
use crate::messages::assembly::MessageAssembly;
use crate::messages::{MessageOutcome, MessageTracker};
use crate::reorder_buffer::ReorderBuffer;
use crate::seq::{SeqNumber, SocketClock};

/// Message counts of a client that publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedMessageCounts {
    /// Messages expected, according to message and packet numbers.
    pub expected: u64,
    /// Expected messages that arrived whole.
    pub whole: u64,
    /// Messages of which some packets arrived, and others were given up.
    pub incomplete: u64,
    /// Whole messages that arrived before others that were missing.
    pub early: u64,
    /// Packets that contradict others of the same message.
    pub contradictions: u64,
    /// Bytes of whole messages.
    pub bytes: u64,
    /// Whole messages that were not relayed, because there was not enough space to keep them.
    pub too_large: u64,
}

/// Receiver of one publisher, whose media is relayed.
#[derive(Debug)]
pub(super) struct Ingest {
    pub(super) receiver: Receiver,
    decryptor: Option<Decryptor>,
    content: Content,
    pub(super) name: String,
    pub(super) index: usize,
}

#[derive(Debug)]
enum Content {
    Stream(ReorderBuffer),
    Messages(Box<IngestedMessages>),
}

#[derive(Debug, Default)]
struct IngestedMessages {
    messages: MessageTracker,
    assembly: MessageAssembly,
    counted: ReceivedMessageCounts,
}

impl IngestedMessages {
    /// Adds a packet, if any, and settles messages after everything before `acknowledged` has
    /// arrived or was given up.
    fn process_packet(
        &mut self,
        packet: Option<(&DataHeader, &[u8])>,
        at: Time,
        acknowledged: SeqNumber,
        pass_on: &mut impl FnMut(Bytes),
    ) {
        let IngestedMessages {
            messages,
            assembly,
            counted,
        } = self;
        if let Some((header, payload)) = packet {
            assembly.add_packet(header, payload);
        }
        let mut given_up = false;
        let report = &mut |outcome| match outcome {
            MessageOutcome::Whole(message) => {
                counted.expected += 1;
                counted.whole += 1;
                counted.bytes += message.bytes;
                counted.early += u64::from(message.is_early);
                match assembly.take(&message) {
                    Some(content) => pass_on(content),
                    None => counted.too_large += 1,
                }
            }
            MessageOutcome::Incomplete => {
                counted.expected += 1;
                counted.incomplete += 1;
                given_up = true;
            }
            MessageOutcome::Missing(count) => counted.expected += u64::from(count),
            MessageOutcome::InconsistentPacket => counted.contradictions += 1,
        };
        match packet {
            Some((header, payload)) => {
                messages.add_packet(header, payload.len(), at, acknowledged, report);
            }
            None => messages.settle(at, acknowledged, report),
        }
        if given_up {
            assembly.discard_settled(messages);
        }
    }
}

impl Ingest {
    /// Creates the receiver of an established connection, for a stream with that name and number.
    pub(super) fn new(
        negotiated: Negotiated,
        clock: SocketClock,
        are_messages: bool,
        name: String,
        index: usize,
    ) -> Ingest {
        let config = negotiated.receiver(clock);
        Ingest {
            receiver: Receiver::new(ReceiverConfig {
                tsbpd: config.tsbpd.filter(|_| !are_messages),
                ..config
            }),
            decryptor: negotiated.decryptor,
            content: match are_messages {
                true => Content::Messages(Box::default()),
                false => Content::Stream(ReorderBuffer::new(config.first_sequence)),
            },
            name,
            index,
        }
    }

    /// Handles a data packet, and passes on what it completes, under the name of the stream.
    /// Returns `false` if the packet could not be decrypted.
    pub(super) fn data(
        &mut self,
        header: &DataHeader,
        payload: &[u8],
        at: Time,
        mut pass_on: impl FnMut(&str, Bytes),
    ) -> bool {
        let status = self.receiver.data(header, payload, at);
        if !matches!(status, PacketStatus::New { .. }) {
            return true;
        }
        let payload = match &mut self.decryptor {
            None => payload,
            Some(decryptor) => match decryptor.decrypt_copy(header, payload) {
                Ok(payload) => payload,
                Err(_) => return false,
            },
        };
        let given_up = self.receiver.acknowledged();
        match &mut self.content {
            Content::Stream(order) => {
                let mut pass_on =
                    |payload: &[u8], _| pass_on(&self.name, Bytes::copy_from_slice(payload));
                order.insert(header.sequence, at, payload, &mut pass_on);
                order.give_up_before(given_up, at, &mut pass_on);
            }
            Content::Messages(messages) => {
                let mut pass_on = |message| pass_on(&self.name, message);
                messages.process_packet(Some((header, payload)), at, given_up, &mut pass_on);
            }
        }
        true
    }

    /// Handles a control packet, and passes on what it completes.
    pub(super) fn control(
        &mut self,
        control: &Control<'_>,
        timestamp: u32,
        at: Time,
        mut pass_on: impl FnMut(&str, Bytes),
    ) {
        self.receiver.control(control, timestamp, at);
        if let (Control::DropRequest { .. }, Content::Messages(messages)) =
            (control, &mut self.content)
        {
            let mut pass_on = |message| pass_on(&self.name, message);
            messages.process_packet(None, at, self.receiver.acknowledged(), &mut pass_on);
        }
    }

    /// Answer to a KMREQ, if the connection is encrypted.
    pub(super) fn key_request(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        self.decryptor.as_mut()?.key_request(message, &mut reply);
        Some(reply)
    }

    /// Message counts; `None` for a transport stream.
    pub(super) fn messages(&self) -> Option<ReceivedMessageCounts> {
        match &self.content {
            Content::Stream(_) => None,
            Content::Messages(messages) => Some(messages.counted),
        }
    }
}
