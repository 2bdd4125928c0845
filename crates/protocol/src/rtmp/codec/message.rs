//! Messages (RTMP, 5.4, 6 and 7): their types, and what is in those that are no media.

use super::Malformed;
use super::amf0::{Reader, Value};

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RTMP, 5.4.1.
    SetChunkSize,
    /// RTMP, 5.4.2.
    Abort,
    /// RTMP, 5.4.3.
    Acknowledgement,
    /// RTMP, 6.2 and 7.1.7.
    UserControl,
    /// RTMP, 5.4.4.
    WindowSize,
    /// RTMP, 5.4.5.
    PeerBandwidth,
    /// RTMP, 7.1.4.
    Audio,
    /// RTMP, 7.1.5.
    Video,
    /// Metadata in AMF3 (RTMP, 7.1.2).
    DataAmf3,
    /// A command in AMF3 (RTMP, 7.1.1).
    CommandAmf3,
    /// Metadata in AMF0 (RTMP, 7.1.2).
    Data,
    /// A command in AMF0 (RTMP, 7.1.1).
    Command,
    /// Messages in one (RTMP, 7.1.6).
    Aggregate,
}

impl Kind {
    /// The type of that number; none where it means nothing here.
    #[inline]
    pub const fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::SetChunkSize,
            2 => Kind::Abort,
            3 => Kind::Acknowledgement,
            4 => Kind::UserControl,
            5 => Kind::WindowSize,
            6 => Kind::PeerBandwidth,
            8 => Kind::Audio,
            9 => Kind::Video,
            15 => Kind::DataAmf3,
            17 => Kind::CommandAmf3,
            18 => Kind::Data,
            20 => Kind::Command,
            22 => Kind::Aggregate,
            _ => return None,
        })
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        match self {
            Kind::SetChunkSize => 1,
            Kind::Abort => 2,
            Kind::Acknowledgement => 3,
            Kind::UserControl => 4,
            Kind::WindowSize => 5,
            Kind::PeerBandwidth => 6,
            Kind::Audio => 8,
            Kind::Video => 9,
            Kind::DataAmf3 => 15,
            Kind::CommandAmf3 => 17,
            Kind::Data => 18,
            Kind::Command => 20,
            Kind::Aggregate => 22,
        }
    }
}

/// A message that is no media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of its type.
    pub kind: u8,
    /// Its timestamp in milliseconds.
    pub timestamp: u32,
    /// The message stream it belongs to.
    pub stream: u32,
    /// How many bytes it took on the wire, with the headers of its chunks.
    pub wire: u32,
    /// What it says; empty where its type means nothing here.
    pub payload: Vec<u8>,
}

impl Message {
    /// The first four bytes as a number, which is what most control messages are.
    ///
    /// # Errors
    /// [`Malformed::TooShort`].
    pub fn field(&self) -> Result<u32, Malformed> {
        let field = self.payload.first_chunk();
        let field = field.ok_or(Malformed::TooShort(self.kind))?;
        Ok(u32::from_be_bytes(*field))
    }
}

/// A command, or an answer to one (RTMP, 7.1.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Its name, such as `connect` or `_result`.
    pub name: String,
    /// The number that an answer repeats; 0 where none is to come.
    pub transaction: f64,
    /// What follows: the command object first, [`Value::Null`] where there is none.
    pub arguments: Vec<Value>,
}

impl Command {
    /// Reads a command, of AMF0 or of AMF3, where a byte stands before it. Without a number, as in
    /// what needs no answer, its number is 0. Arguments from the first on that cannot be read are
    /// left out.
    ///
    /// # Errors
    /// [`Malformed::Command`] without a name, [`Malformed::Amf`] if it cannot be read,
    /// [`Malformed::AmfTooDeep`] or [`Malformed::AmfTooMany`].
    pub fn read(payload: &[u8], amf3: bool) -> Result<Command, Malformed> {
        let bytes = match payload {
            [0, rest @ ..] if amf3 => rest,
            bytes => bytes,
        };
        let mut reader = Reader::new(bytes);
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

    /// Its payload in AMF0.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        Value::String(self.name.clone()).write(&mut out);
        Value::Number(self.transaction).write(&mut out);
        self.arguments
            .iter()
            .for_each(|value| value.write(&mut out));
        out
    }

    /// The property of that name in the information object, which is the last argument that has
    /// properties.
    pub fn information(&self, name: &str) -> Option<&str> {
        let mut arguments = self.arguments.iter().rev();
        arguments.find_map(|value| value.get(name)?.as_str())
    }

    /// The URL to which a refusal of `connect` sends the client: `redirect` in `ex`, an object in
    /// the information object, with `code` 302. Adobe's access plug-ins and Wowza send it.
    pub fn redirect(&self) -> Option<&str> {
        let mut arguments = self.arguments.iter().rev();
        arguments.find_map(|value| value.get("ex")?.get("redirect")?.as_str())
    }
}

/// What a user control message tells (RTMP, 7.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A stream can be used.
    StreamBegin(u32),
    /// A stream has come to its end.
    StreamEof(u32),
    /// A stream has nothing more to send for now.
    StreamDry(u32),
    /// How many milliseconds of a stream the client buffers.
    SetBufferLength(u32, u32),
    /// A stream is a recorded one.
    StreamIsRecorded(u32),
    /// An answer with the same time is wanted.
    PingRequest(u32),
    /// That answer.
    PingResponse(u32),
    /// Anything else.
    Other(u16),
}

impl Event {
    /// Reads one.
    ///
    /// # Errors
    /// [`Malformed::TooShort`].
    pub fn read(payload: &[u8]) -> Result<Event, Malformed> {
        let short = || Malformed::TooShort(Kind::UserControl.number());
        let (kind, rest) = payload.split_first_chunk().ok_or_else(short)?;
        let kind = u16::from_be_bytes(*kind);
        let number = |at: usize| {
            let bytes = rest.get(at..).and_then(|bytes| bytes.first_chunk());
            bytes
                .map(|bytes| u32::from_be_bytes(*bytes))
                .ok_or_else(short)
        };
        Ok(match kind {
            0 => Event::StreamBegin(number(0)?),
            1 => Event::StreamEof(number(0)?),
            2 => Event::StreamDry(number(0)?),
            3 => Event::SetBufferLength(number(0)?, number(4)?),
            4 => Event::StreamIsRecorded(number(0)?),
            6 => Event::PingRequest(number(0)?),
            7 => Event::PingResponse(number(0)?),
            other => Event::Other(other),
        })
    }

    /// Its payload; of what is none of these, its number alone.
    pub fn to_bytes(self) -> Vec<u8> {
        let (kind, numbers): (u16, &[u32]) = match &self {
            Event::StreamBegin(stream) => (0, &[*stream]),
            Event::StreamEof(stream) => (1, &[*stream]),
            Event::StreamDry(stream) => (2, &[*stream]),
            Event::SetBufferLength(stream, millis) => (3, &[*stream, *millis]),
            Event::StreamIsRecorded(stream) => (4, &[*stream]),
            Event::PingRequest(time) => (6, &[*time]),
            Event::PingResponse(time) => (7, &[*time]),
            Event::Other(kind) => (*kind, &[]),
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
            prop_assert_eq!(Command::read(&bytes, false), Ok(command.clone()));
            let wrapped = [&[0][..], &bytes].concat();
            prop_assert_eq!(Command::read(&wrapped, true), Ok(command));
        }

        #[test]
        fn events_are_read_as_they_are_written(kind in 0u16..40, one: u32, other: u32) {
            let payload = [&kind.to_be_bytes()[..], &one.to_be_bytes(), &other.to_be_bytes()].concat();
            let event = Event::read(&payload).expect("long enough");
            prop_assert_eq!(Event::read(&event.to_bytes()), Ok(event));
            prop_assert_eq!(Event::read(&payload[..1]), Err(Malformed::TooShort(4)));
        }
    }

    #[test]
    fn types_have_numbers_of_their_own() {
        let known: Vec<u8> = (0..=255)
            .filter(|&number| Kind::of(number).is_some())
            .collect();
        assert_eq!(known.len(), 13);
        for number in known {
            assert_eq!(Kind::of(number).map(Kind::number), Some(number));
        }
    }

    #[test]
    fn a_command_has_a_name() {
        for payload in [&[][..], &[5]] {
            assert_eq!(Command::read(payload, false), Err(Malformed::Command));
        }
        let read = |payload: &[u8]| {
            let command = Command::read(payload, false).expect("it has a name");
            (command.transaction, command.arguments)
        };
        // Without a number, with one, and cut off behind it.
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
                    Value::text("NetStream.Play.Start"),
                )]),
            ],
        };
        assert_eq!(status.information("code"), Some("NetStream.Play.Start"));
        assert_eq!(status.information("level"), None);
    }
}
