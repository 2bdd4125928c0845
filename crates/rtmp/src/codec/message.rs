//! Messages (RTMP, 5.4, 6 and 7): types, and payloads other than media.

use super::Malformed;
use super::amf0::{Amf0Reader, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// RTMP, 5.4.1.
    SetChunkSize = 1,
    /// RTMP, 5.4.2.
    Abort = 2,
    /// RTMP, 5.4.3.
    Acknowledgement = 3,
    /// RTMP, 6.2 and 7.1.7.
    UserControl = 4,
    /// RTMP, 5.4.4.
    WindowSize = 5,
    /// RTMP, 5.4.5.
    PeerBandwidth = 6,
    /// RTMP, 7.1.4.
    Audio = 8,
    /// RTMP, 7.1.5.
    Video = 9,
    /// Metadata in AMF3 (RTMP, 7.1.2).
    DataAmf3 = 15,
    /// A command in AMF3 (RTMP, 7.1.1).
    CommandAmf3 = 17,
    /// Metadata in AMF0 (RTMP, 7.1.2).
    Data = 18,
    /// A command in AMF0 (RTMP, 7.1.1).
    Command = 20,
    /// Several messages in one (RTMP, 7.1.6).
    Aggregate = 22,
}

impl MessageType {
    /// Returns the type with this ID, or `None` if it is unknown.
    #[inline]
    pub const fn from_id(number: u8) -> Option<MessageType> {
        Some(match number {
            1 => MessageType::SetChunkSize,
            2 => MessageType::Abort,
            3 => MessageType::Acknowledgement,
            4 => MessageType::UserControl,
            5 => MessageType::WindowSize,
            6 => MessageType::PeerBandwidth,
            8 => MessageType::Audio,
            9 => MessageType::Video,
            15 => MessageType::DataAmf3,
            17 => MessageType::CommandAmf3,
            18 => MessageType::Data,
            20 => MessageType::Command,
            22 => MessageType::Aggregate,
            _ => return None,
        })
    }

    /// Returns the message type ID.
    pub const fn id(self) -> u8 {
        self as u8
    }
}

/// A message other than audio or video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Message type ID.
    pub type_id: u8,
    /// Timestamp in milliseconds.
    pub timestamp: u32,
    /// Message stream ID.
    pub message_stream: u32,
    /// Size on the wire in bytes, including chunk headers.
    pub wire_bytes: u32,
    /// Payload. Empty for unknown types, for aggregate messages and for their parts.
    pub payload: Vec<u8>,
}

impl Message {
    /// Returns the first four bytes as a number: the payload of most control messages.
    ///
    /// # Errors
    /// [`Malformed::TooShort`].
    pub fn first_u32(&self) -> Result<u32, Malformed> {
        let field = self.payload.first_chunk();
        let field = field.ok_or(Malformed::TooShort(self.type_id))?;
        Ok(u32::from_be_bytes(*field))
    }
}

/// A command or a response to one (RTMP, 7.1.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Command name, such as `connect` or `_result`.
    pub name: String,
    /// Transaction ID, repeated by the response; 0 if no response is expected.
    pub transaction: f64,
    /// Arguments after the transaction ID. The first is the command object or [`Value::Null`].
    pub arguments: Vec<Value>,
}

impl Command {
    /// Creates a command.
    pub fn new(name: &str, transaction: impl Into<f64>, arguments: Vec<Value>) -> Command {
        Command {
            name: name.to_owned(),
            transaction: transaction.into(),
            arguments,
        }
    }

    /// Parses a command in AMF0, or in AMF3, which is AMF0 after one byte. A command without a
    /// transaction ID gets 0. The first unreadable argument and all after it are dropped.
    ///
    /// # Errors
    /// [`Malformed::Command`] if it has no name, [`Malformed::Amf`] if the name is unreadable,
    /// [`Malformed::AmfTooDeep`] or [`Malformed::AmfTooMany`].
    pub fn parse(payload: &[u8], amf3: bool) -> Result<Command, Malformed> {
        let bytes = match payload {
            [0, rest @ ..] if amf3 => rest,
            bytes => bytes,
        };
        let mut reader = Amf0Reader::new(bytes);
        let name = match reader.next_value()? {
            Some(Value::String(name)) => name,
            _ => return Err(Malformed::Command),
        };
        let mut arguments = Vec::new();
        loop {
            match reader.next_value() {
                Ok(Some(value)) => arguments.push(value),
                Ok(None) | Err(Malformed::Amf) => break,
                Err(error) => return Err(error),
            }
        }
        let transaction = match arguments.first() {
            Some(&Value::Number(number)) => {
                arguments.remove(0);
                number
            }
            _ => 0.0,
        };
        Ok(Command {
            name,
            transaction,
            arguments,
        })
    }

    /// Returns the payload in AMF0.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        Value::String(self.name.clone()).write(&mut out);
        Value::Number(self.transaction).write(&mut out);
        self.arguments
            .iter()
            .for_each(|value| value.write(&mut out));
        out
    }

    /// Returns a property of the information object: the last argument that has this property.
    pub fn information_property(&self, name: &str) -> Option<&str> {
        let mut arguments = self.arguments.iter().rev();
        arguments.find_map(|value| value.get(name)?.as_str())
    }

    /// Returns the redirect URL of a refused `connect`: property `redirect` of the object `ex` in
    /// the information object, with `code` 302. Adobe's access plug-ins and Wowza send it.
    pub fn redirect_url(&self) -> Option<&str> {
        let mut arguments = self.arguments.iter().rev();
        arguments.find_map(|value| value.get("ex")?.get("redirect")?.as_str())
    }
}

/// User control message (RTMP, 7.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserControlEvent {
    /// The stream is ready for use.
    StreamBegin(u32),
    /// The stream ended.
    StreamEof(u32),
    /// The stream has no more data for now.
    StreamDry(u32),
    /// Stream ID, and buffer length of the client in milliseconds.
    SetBufferLength(u32, u32),
    /// The stream is recorded.
    StreamIsRecorded(u32),
    /// Ping with a timestamp, which the response repeats.
    PingRequest(u32),
    /// Response to a ping.
    PingResponse(u32),
    /// Any other event type.
    Other(u16),
}

impl UserControlEvent {
    /// Parses an event.
    ///
    /// # Errors
    /// [`Malformed::TooShort`].
    pub fn parse(payload: &[u8]) -> Result<UserControlEvent, Malformed> {
        let short = || Malformed::TooShort(MessageType::UserControl.id());
        let (kind, rest) = payload.split_first_chunk().ok_or_else(short)?;
        let kind = u16::from_be_bytes(*kind);
        let number = |at: usize| {
            let bytes = rest.get(at..).and_then(|bytes| bytes.first_chunk());
            bytes
                .map(|bytes| u32::from_be_bytes(*bytes))
                .ok_or_else(short)
        };
        Ok(match kind {
            0 => UserControlEvent::StreamBegin(number(0)?),
            1 => UserControlEvent::StreamEof(number(0)?),
            2 => UserControlEvent::StreamDry(number(0)?),
            3 => UserControlEvent::SetBufferLength(number(0)?, number(4)?),
            4 => UserControlEvent::StreamIsRecorded(number(0)?),
            6 => UserControlEvent::PingRequest(number(0)?),
            7 => UserControlEvent::PingResponse(number(0)?),
            other => UserControlEvent::Other(other),
        })
    }

    /// Returns the payload. For [`UserControlEvent::Other`] it is the event type only.
    pub fn to_bytes(self) -> Vec<u8> {
        let (kind, numbers): (u16, &[u32]) = match &self {
            UserControlEvent::StreamBegin(stream) => (0, &[*stream]),
            UserControlEvent::StreamEof(stream) => (1, &[*stream]),
            UserControlEvent::StreamDry(stream) => (2, &[*stream]),
            UserControlEvent::SetBufferLength(stream, millis) => (3, &[*stream, *millis]),
            UserControlEvent::StreamIsRecorded(stream) => (4, &[*stream]),
            UserControlEvent::PingRequest(time) => (6, &[*time]),
            UserControlEvent::PingResponse(time) => (7, &[*time]),
            UserControlEvent::Other(kind) => (*kind, &[]),
        };
        let numbers = numbers.iter().flat_map(|number| number.to_be_bytes());
        kind.to_be_bytes().into_iter().chain(numbers).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::amf0::tests::any_value;
    use super::*;

    proptest! {
        #[test]
        fn commands_are_read_as_they_are_written(
            name in "[a-zA-Z_]{1,20}",
            transaction in 0u32..100,
            arguments in proptest::collection::vec(any_value(), 0..4),
        ) {
            let transaction = transaction.into();
            let command = Command { name, transaction, arguments };
            let bytes = command.to_bytes();
            prop_assert_eq!(Command::parse(&bytes, false), Ok(command.clone()));
            let wrapped = [&[0][..], &bytes].concat();
            prop_assert_eq!(Command::parse(&wrapped, true), Ok(command));
        }

        #[test]
        fn events_are_read_as_they_are_written(kind in 0u16..40, one: u32, other: u32) {
            let payload = [&kind.to_be_bytes()[..], &one.to_be_bytes(), &other.to_be_bytes()].concat();
            let event = UserControlEvent::parse(&payload).expect("long enough");
            prop_assert_eq!(UserControlEvent::parse(&event.to_bytes()), Ok(event));
            prop_assert_eq!(UserControlEvent::parse(&payload[..1]), Err(Malformed::TooShort(4)));
        }
    }

    #[test]
    fn message_types_have_distinct_ids() {
        let known: Vec<u8> = (0..=255)
            .filter(|&number| MessageType::from_id(number).is_some())
            .collect();
        assert_eq!(known.len(), 13);
        for number in known {
            assert_eq!(
                MessageType::from_id(number).map(MessageType::id),
                Some(number)
            );
        }
    }

    #[test]
    fn command_needs_a_name() {
        for payload in [&[][..], &[5]] {
            assert_eq!(Command::parse(payload, false), Err(Malformed::Command));
        }
        let read = |payload: &[u8]| {
            let command = Command::parse(payload, false).expect("it has a name");
            (command.transaction, command.arguments)
        };
        // Without a transaction ID, with one, and truncated after it.
        assert_eq!(read(&[2, 0, 1, b'a', 5]), (0.0, vec![Value::Null]));
        let two = 2f64.to_be_bytes();
        let numbered = [&[2, 0, 1, b'a', 0][..], &two, &[5, 3, 0]].concat();
        assert_eq!(read(&numbered), (2.0, vec![Value::Null]));
        let status = Command {
            name: "onStatus".to_owned(),
            transaction: 0.0,
            arguments: vec![
                Value::Null,
                Value::Object(vec![(
                    "code".to_owned(),
                    Value::string("NetStream.Play.Start"),
                )]),
            ],
        };
        assert_eq!(
            status.information_property("code"),
            Some("NetStream.Play.Start")
        );
        assert_eq!(status.information_property("level"), None);
    }
}
