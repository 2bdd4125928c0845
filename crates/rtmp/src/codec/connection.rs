//! Connection handling that both sides share after the handshake: reading messages, answering
//! pings, acknowledging received bytes.

use super::Malformed;
use super::amf0::{self, Value};
use super::chunk::{ChunkReader, MediaMessage, ReadMessage};
use super::message::{Command, MessageType, UserControlEvent};
use super::write;

/// Acknowledgement window in bytes if the peer sets none: the value of most servers and encoders.
pub const DEFAULT_ACK_WINDOW: u32 = 2_500_000;

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    reader: ChunkReader,
    /// Acknowledgement window set by the peer; `None` until it has set one.
    peer_window: Option<u32>,
    /// Number of bytes received and acknowledged. Both wrap around.
    received: u32,
    acknowledged: u32,
    /// Acknowledgement window that this side has set.
    own_window: Option<u32>,
    acknowledgements: u64,
}

/// A received message.
#[derive(Debug)]
pub enum Received<'a> {
    Media(MediaMessage<'a>),
    /// Command or response, with its message stream ID.
    Command(u32, Command),
    /// Metadata: timestamp and unparsed payload.
    Data(u32, Vec<u8>),
    /// User control event.
    Event(UserControlEvent),
    /// Command that cannot be parsed.
    Unreadable,
    /// Message that is handled here, or has no meaning for the session.
    Other,
}

impl Connection {
    /// Creates a connection that buffers media, or skips it.
    pub fn new(keeps_media: bool) -> Connection {
        Connection {
            reader: ChunkReader::new(keeps_media),
            peer_window: None,
            received: 0,
            acknowledged: 0,
            own_window: None,
            acknowledgements: 0,
        }
    }

    /// Number of acknowledgements sent.
    pub fn acknowledgements(&self) -> u64 {
        self.acknowledgements
    }

    /// Heap memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.reader.memory()
    }

    /// Appends the acknowledgement window that the peer must observe.
    pub fn set_window(&mut self, bytes: u32, out: &mut Vec<u8>) {
        self.own_window = Some(bytes);
        write::window_size(bytes, out);
    }

    /// Returns the next message of `input` from offset `at` on. Appends answers to `out`.
    ///
    /// # Errors
    /// The bytes are not valid RTMP.
    #[inline]
    pub fn next<'a>(
        &'a mut self,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Received<'a>>, Malformed> {
        let message = match self.reader.next_message(input, at)? {
            None => return Ok(None),
            Some(ReadMessage::Media(media)) => return Ok(Some(Received::Media(media))),
            Some(ReadMessage::Message(message)) => message,
        };
        let received = match MessageType::from_id(message.type_id) {
            Some(kind @ (MessageType::Command | MessageType::CommandAmf3)) => {
                match Command::parse(&message.payload, kind == MessageType::CommandAmf3) {
                    Ok(command) => Received::Command(message.message_stream, command),
                    // Most commands need no answer, and the connection remains usable.
                    Err(Malformed::Command | Malformed::Amf) => Received::Unreadable,
                    Err(malformed) => return Err(malformed),
                }
            }
            Some(MessageType::Data | MessageType::DataAmf3) => {
                Received::Data(message.timestamp, message.payload)
            }
            Some(MessageType::UserControl) => match UserControlEvent::parse(&message.payload)? {
                UserControlEvent::PingRequest(time) => {
                    write::event(UserControlEvent::PingResponse(time), out);
                    Received::Other
                }
                event => Received::Event(event),
            },
            Some(MessageType::WindowSize) => {
                self.peer_window = Some(message.first_u32()?);
                Received::Other
            }
            Some(MessageType::PeerBandwidth) => {
                // RTMP, 5.4.5: the answer is an acknowledgement window of the same size.
                let bytes = message.first_u32()?;
                if self.own_window.replace(bytes) != Some(bytes) {
                    write::window_size(bytes, out);
                }
                Received::Other
            }
            _ => Received::Other,
        };
        Ok(Some(received))
    }

    /// Counts received bytes, and appends an acknowledgement if one is due (RTMP, 5.4.3): at half
    /// of the window, so that the peer need not wait.
    pub fn count_received(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.received = self.received.wrapping_add(bytes as u32);
        let due = self.peer_window.unwrap_or(DEFAULT_ACK_WINDOW) / 2;
        if self.received.wrapping_sub(self.acknowledged) >= due.max(1) {
            self.acknowledged = self.received;
            self.acknowledgements += 1;
            write::acknowledgement(self.received, out);
        }
    }
}

/// Returns the metadata of `onMetaData`, also if it follows `@setDataFrame`; `None` for other data.
pub fn parse_metadata(payload: &[u8]) -> Option<Value> {
    let bytes = payload.strip_prefix(&[0]).unwrap_or(payload);
    let values = amf0::read_all(bytes).ok()?;
    let mut values = values.into_iter();
    match values.next()?.as_str()? {
        "@setDataFrame" => values.nth(1),
        "onMetaData" => values.next(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages of `bytes`, and the answers to them.
    fn hear(connection: &mut Connection, bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
        let (mut received, mut out, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = connection
            .next(bytes, &mut at, &mut out)
            .expect("it is RTMP")
        {
            received.push(format!("{next:?}"));
        }
        connection.count_received(bytes.len(), &mut out);
        (received, out)
    }

    #[test]
    fn pings_are_answered_and_bytes_acknowledged() {
        let mut connection = Connection::new(false);
        let mut bytes = Vec::new();
        write::event(UserControlEvent::PingRequest(7), &mut bytes);
        write::event(UserControlEvent::StreamBegin(1), &mut bytes);
        write::window_size(200, &mut bytes);
        write::peer_bandwidth(900, &mut bytes);
        write::peer_bandwidth(900, &mut bytes);
        let (received, out) = hear(&mut connection, &bytes);
        assert_eq!(
            received,
            ["Other", "Event(StreamBegin(1))", "Other", "Other", "Other"]
        );
        let mut expected = Vec::new();
        write::event(UserControlEvent::PingResponse(7), &mut expected);
        write::window_size(900, &mut expected);
        assert_eq!(out, expected);
        let mut more = Vec::new();
        write::event(UserControlEvent::StreamEof(1), &mut more);
        write::event(UserControlEvent::StreamEof(1), &mut more);
        let (_, out) = hear(&mut connection, &more);
        let mut expected = Vec::new();
        write::acknowledgement((bytes.len() + more.len()) as u32, &mut expected);
        assert_eq!((out, connection.acknowledgements()), (expected, 1));
    }

    #[test]
    fn metadata_is_read_with_and_without_its_command() {
        let all = Value::EcmaArray(vec![("width".to_owned(), Value::Number(1280.0))]);
        for before in [&["onMetaData"][..], &["@setDataFrame", "onMetaData"]] {
            let mut payload = Vec::new();
            before
                .iter()
                .for_each(|text| Value::string(*text).write(&mut payload));
            all.write(&mut payload);
            assert_eq!(parse_metadata(&payload), Some(all.clone()));
        }
        assert_eq!(parse_metadata(&[2, 0, 1, b'x']), None);
        assert_eq!(parse_metadata(&[]), None);
    }
}
