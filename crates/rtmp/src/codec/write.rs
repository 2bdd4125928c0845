//! Writes messages as chunks (RTMP, 5.3).

use super::chunk::EXTENDED_TIMESTAMP;
use super::message::{Command, MessageType, UserControlEvent};

/// Chunk stream of control messages (RTMP, 5.4).
pub const CONTROL: u8 = 2;
/// Chunk stream of commands, as most clients use it.
pub const COMMANDS: u8 = 3;
/// Chunk stream of audio and metadata.
pub const AUDIO: u8 = 4;
/// Chunk stream of video.
pub const VIDEO: u8 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// Chunk stream ID, from 2 to 63.
    pub chunk_stream: u8,
    pub kind: MessageType,
    /// Timestamp in milliseconds.
    pub timestamp: u32,
    /// Message stream ID.
    pub stream: u32,
}

impl MessageHeader {
    fn extended_timestamp(self) -> Option<[u8; 4]> {
        (self.timestamp >= EXTENDED_TIMESTAMP).then(|| self.timestamp.to_be_bytes())
    }

    /// Appends the message in chunks. `payload` consists of consecutive parts. Every message has a
    /// full header (type 0), so that it can be read whatever was dropped before it.
    pub fn write(self, payload: &[&[u8]], chunk_size: u32, out: &mut Vec<u8>) {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let [_, a, b, c] = (length as u32).to_be_bytes();
        let extended = self.extended_timestamp();
        let [_, x, y, z] = self.timestamp.min(EXTENDED_TIMESTAMP).to_be_bytes();
        out.push(self.chunk_stream & 0x3f);
        out.extend_from_slice(&[x, y, z, a, b, c, self.kind.id()]);
        out.extend_from_slice(&self.stream.to_le_bytes());
        out.extend(extended.iter().flatten());
        let chunk_size = (chunk_size as usize).max(1);
        let mut room = chunk_size;
        for part in payload {
            let mut rest = *part;
            while !rest.is_empty() {
                if room == 0 {
                    out.push(3 << 6 | self.chunk_stream & 0x3f);
                    out.extend(extended.iter().flatten());
                    room = chunk_size;
                }
                let (now, later) = rest.split_at(rest.len().min(room));
                out.extend_from_slice(now);
                room -= now.len();
                rest = later;
            }
        }
    }

    /// Returns the maximum size of a message's first chunk and of each further chunk, including
    /// headers.
    pub fn chunk_bytes_max(self, chunk_size: u32) -> (usize, usize) {
        let extended = self.extended_timestamp().map_or(0, |field| field.len());
        let payload = (chunk_size as usize).max(1);
        (12 + extended + payload, 1 + extended + payload)
    }

    /// Returns the size on the wire of a message with this payload length.
    pub fn wire_bytes(self, length: usize, chunk_size: u32) -> usize {
        let extended = self.extended_timestamp().map_or(0, |field| field.len());
        let further = length.saturating_sub(1) / (chunk_size as usize).max(1);
        12 + extended + length + further * (1 + extended)
    }
}

fn control_message(kind: MessageType, payload: &[u8], out: &mut Vec<u8>) {
    let head = MessageHeader {
        chunk_stream: CONTROL,
        kind,
        timestamp: 0,
        stream: 0,
    };
    // Control messages are shorter than any chunk size in use, except for tiny ones that nobody
    // sets.
    head.write(&[payload], super::chunk::INITIAL_CHUNK_SIZE, out);
}

/// Appends Set Chunk Size, which applies to all that this side sends after it (RTMP, 5.4.1).
pub fn set_chunk_size(size: u32, out: &mut Vec<u8>) {
    control_message(MessageType::SetChunkSize, &size.to_be_bytes(), out);
}

/// Appends an Acknowledgement of all bytes received so far (RTMP, 5.4.3).
pub fn acknowledgement(bytes: u32, out: &mut Vec<u8>) {
    control_message(MessageType::Acknowledgement, &bytes.to_be_bytes(), out);
}

/// Appends Window Acknowledgement Size: this side expects an acknowledgement after that many bytes
/// (RTMP, 5.4.4).
pub fn window_size(bytes: u32, out: &mut Vec<u8>) {
    control_message(MessageType::WindowSize, &bytes.to_be_bytes(), out);
}

/// Appends Set Peer Bandwidth: the number of bytes that the peer may send without an
/// acknowledgement. The limit type is dynamic (RTMP, 5.4.5).
pub fn peer_bandwidth(bytes: u32, out: &mut Vec<u8>) {
    let [a, b, c, d] = bytes.to_be_bytes();
    control_message(MessageType::PeerBandwidth, &[a, b, c, d, 2], out);
}

/// Appends a user control message (RTMP, 7.1.7).
pub fn event(event: UserControlEvent, out: &mut Vec<u8>) {
    control_message(MessageType::UserControl, &event.to_bytes(), out);
}

/// Appends a command (RTMP, 7.1.1).
pub fn command(command: &Command, stream: u32, chunk_size: u32, out: &mut Vec<u8>) {
    let head = MessageHeader {
        chunk_stream: COMMANDS,
        kind: MessageType::Command,
        timestamp: 0,
        stream,
    };
    head.write(&[&command.to_bytes()], chunk_size, out);
}
