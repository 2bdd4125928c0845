//! What a client publishes to the reference server, as it is taken in.

use bytes::Bytes;
use measure::Time;
use serde::Serialize;

use crate::srt::arq::TsbpdConfig;
use crate::srt::arq::receiver::{Receiver, ReceiverConfig, Verdict};
use crate::srt::codec::packet::{Control, DataHeader};
use crate::srt::crypto::Decryptor;
use crate::srt::handshake::Negotiated;
use crate::srt::in_order::InOrder;
use crate::srt::messages::assembly::Assembly;
use crate::srt::messages::{Messages, Outcome};
use crate::srt::seq::{SeqNumber, SocketClock};

/// What became of messages that a client published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedMessages {
    /// Messages that were due to come, as far as their numbers and packets tell.
    pub expected: u64,
    /// Of these, the ones that came whole.
    pub whole: u64,
    /// Messages of which some packets came, and others were given up.
    pub incomplete: u64,
    /// Of the whole ones, those that came before others that were missing.
    pub early: u64,
    /// Packets that contradict others of the same message.
    pub contradictions: u64,
    /// Bytes of whole messages.
    pub bytes: u64,
    /// Whole messages that were not passed on, because there was no room to keep all of them.
    pub too_large: u64,
}

/// What comes of one client, and is passed on.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) receiver: Receiver,
    decryptor: Option<Decryptor>,
    content: Content,
    pub(super) name: String,
    pub(super) index: usize,
}

#[derive(Debug)]
enum Content {
    Stream(InOrder),
    Messages(Box<TakenMessages>),
}

#[derive(Debug, Default)]
struct TakenMessages {
    messages: Messages,
    assembly: Assembly,
    counted: ReceivedMessages,
}

impl TakenMessages {
    fn told(
        counted: &mut ReceivedMessages,
        assembly: &mut Assembly,
        given_up: &mut bool,
        outcome: Outcome,
        pass_on: &mut impl FnMut(Bytes),
    ) {
        match outcome {
            Outcome::Whole(message) => {
                counted.expected += 1;
                counted.whole += 1;
                counted.bytes += message.bytes;
                counted.early += u64::from(message.is_early);
                match assembly.take(&message) {
                    Some(content) => pass_on(content),
                    None => counted.too_large += 1,
                }
            }
            Outcome::Incomplete => {
                counted.expected += 1;
                counted.incomplete += 1;
                *given_up = true;
            }
            Outcome::Missing(count) => counted.expected += u64::from(count),
            Outcome::Contradiction => counted.contradictions += 1,
        }
    }

    /// Takes a packet in, where there is one, and settles what everything before `acknowledged`
    /// has come of, or was given up.
    fn take(
        &mut self,
        packet: Option<(&DataHeader, &[u8])>,
        at: Time,
        acknowledged: SeqNumber,
        pass_on: &mut impl FnMut(Bytes),
    ) {
        let TakenMessages {
            messages,
            assembly,
            counted,
        } = self;
        let mut given_up = false;
        if let Some((header, payload)) = packet {
            assembly.keep(header, payload);
            messages.packet(header, payload.len(), at, acknowledged, &mut |outcome| {
                TakenMessages::told(counted, assembly, &mut given_up, outcome, pass_on);
            });
        } else {
            messages.settle(at, acknowledged, &mut |outcome| {
                TakenMessages::told(counted, assembly, &mut given_up, outcome, pass_on);
            });
        }
        if given_up {
            assembly.forget_settled(messages);
        }
    }
}

impl Taking {
    /// Of a connection that stands, of a stream of that name and number.
    pub(super) fn new(
        negotiated: Negotiated,
        clock: SocketClock,
        are_messages: bool,
        (name, index): (String, usize),
    ) -> Taking {
        let first = negotiated.peer_initial_sequence;
        let tsbpd = TsbpdConfig {
            reference: negotiated.reference,
            timestamp: negotiated.timestamp,
            latency: negotiated.receive_latency,
        };
        let config = ReceiverConfig::live(first, negotiated.peer_socket_id, clock, tsbpd);
        Taking {
            receiver: Receiver::new(ReceiverConfig {
                tsbpd: (!are_messages).then_some(tsbpd),
                ..config
            }),
            decryptor: negotiated.decryptor,
            content: match are_messages {
                true => Content::Messages(Box::default()),
                false => Content::Stream(InOrder::new(first)),
            },
            name,
            index,
        }
    }

    /// Takes a data packet in, and passes on what is complete with it, under its name. Says
    /// whether it could be decrypted.
    pub(super) fn data(
        &mut self,
        header: &DataHeader,
        payload: &[u8],
        at: Time,
        mut pass_on: impl FnMut(&str, Bytes),
    ) -> bool {
        let verdict = self.receiver.data(header, payload, at);
        if !matches!(verdict, Verdict::New { .. }) {
            return true;
        }
        let payload = match &mut self.decryptor {
            None => payload,
            Some(decryptor) => match decryptor.open(header, payload) {
                Ok(payload) => payload,
                Err(_) => return false,
            },
        };
        let given_up = self.receiver.acknowledged();
        match &mut self.content {
            Content::Stream(order) => {
                let mut pass_on =
                    |payload: &[u8], _| pass_on(&self.name, Bytes::copy_from_slice(payload));
                order.put(header.sequence, at, payload, &mut pass_on);
                order.give_up(given_up, at, &mut pass_on);
            }
            Content::Messages(messages) => {
                let mut pass_on = |message| pass_on(&self.name, message);
                messages.take(Some((header, payload)), at, given_up, &mut pass_on);
            }
        }
        true
    }

    /// Takes a control packet in, and passes on what is complete with it.
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
            messages.take(None, at, self.receiver.acknowledged(), &mut pass_on);
        }
    }

    /// The answer to a demand of new keys, where it is encrypted.
    pub(super) fn key_request(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        self.decryptor.as_mut()?.key_request(message, &mut reply);
        Some(reply)
    }

    /// What became of messages; none of a stream.
    pub(super) fn messages(&self) -> Option<ReceivedMessages> {
        match &self.content {
            Content::Stream(_) => None,
            Content::Messages(messages) => Some(messages.counted),
        }
    }
}
