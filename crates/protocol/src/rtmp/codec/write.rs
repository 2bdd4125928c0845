//! Writes messages as chunks (RTMP, 5.3).

use super::message::{Command, Event, Kind};

/// The chunk stream of control messages (RTMP, 5.4).
pub const CONTROL: u8 = 2;
/// The chunk stream of commands, as most clients have it.
pub const COMMANDS: u8 = 3;
/// The chunk stream of sound and of metadata.
pub const AUDIO: u8 = 4;
/// The chunk stream of pictures.
pub const VIDEO: u8 = 6;

/// From this timestamp on it stands behind the header (RTMP, 5.3.1.3).
const EXTENDED: u32 = 0xff_ffff;

/// What stands before a message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its chunk stream, from 2 to 63.
    pub chunk_stream: u8,
    /// Its type.
    pub kind: Kind,
    /// Its timestamp in milliseconds.
    pub timestamp: u32,
    /// The message stream it belongs to.
    pub stream: u32,
}

impl Head {
    /// Adds the message with that payload, which is in parts that follow on each other, in chunks
    /// of that size, each with the header that it needs. Every message has a whole header, so that
    /// it can be read whatever was left out before.
    pub fn write(self, payload: &[&[u8]], chunk_size: u32, out: &mut Vec<u8>) {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let [_, a, b, c] = (length as u32).to_be_bytes();
        let extended = (self.timestamp >= EXTENDED).then(|| self.timestamp.to_be_bytes());
        let [_, x, y, z] = self.timestamp.min(EXTENDED).to_be_bytes();
        out.push(self.chunk_stream & 0x3f);
        out.extend_from_slice(&[x, y, z, a, b, c, self.kind.number()]);
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

    /// How many bytes the first chunk of a message has at most, with its header, and each further
    /// one.
    pub fn chunks(self, chunk_size: u32) -> (usize, usize) {
        let extended = if self.timestamp >= EXTENDED { 4 } else { 0 };
        let payload = (chunk_size as usize).max(1);
        (12 + extended + payload, 1 + extended + payload)
    }

    /// How many bytes a message with so long a payload takes.
    pub fn written(self, length: usize, chunk_size: u32) -> usize {
        let extended = if self.timestamp >= EXTENDED { 4 } else { 0 };
        let further = length.saturating_sub(1) / (chunk_size as usize).max(1);
        12 + extended + length + further * (1 + extended)
    }
}

fn control(kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    let head = Head {
        chunk_stream: CONTROL,
        kind,
        timestamp: 0,
        stream: 0,
    };
    // Control messages are shorter than any chunk size but the very smallest, which nobody sets.
    head.write(&[payload], super::chunk::FIRST_CHUNK_SIZE, out);
}

/// Adds the size of chunks that this side uses from then on (RTMP, 5.4.1).
pub fn set_chunk_size(size: u32, out: &mut Vec<u8>) {
    control(Kind::SetChunkSize, &size.to_be_bytes(), out);
}

/// Adds how many bytes have come (RTMP, 5.4.3).
pub fn acknowledgement(bytes: u32, out: &mut Vec<u8>) {
    control(Kind::Acknowledgement, &bytes.to_be_bytes(), out);
}

/// Adds after how many bytes this side wants an acknowledgement (RTMP, 5.4.4).
pub fn window_size(bytes: u32, out: &mut Vec<u8>) {
    control(Kind::WindowSize, &bytes.to_be_bytes(), out);
}

/// Adds how much the other side may send without an acknowledgement; it may be less if it is so
/// already (RTMP, 5.4.5: dynamic).
pub fn peer_bandwidth(bytes: u32, out: &mut Vec<u8>) {
    let [a, b, c, d] = bytes.to_be_bytes();
    control(Kind::PeerBandwidth, &[a, b, c, d, 2], out);
}

/// Adds a user control message (RTMP, 7.1.7).
pub fn event(event: Event, out: &mut Vec<u8>) {
    control(Kind::UserControl, &event.to_bytes(), out);
}

/// Adds a command (RTMP, 7.1.1) in chunks of that size.
pub fn command(command: &Command, stream: u32, chunk_size: u32, out: &mut Vec<u8>) {
    let head = Head {
        chunk_stream: COMMANDS,
        kind: Kind::Command,
        timestamp: 0,
        stream,
    };
    head.write(&[&command.to_bytes()], chunk_size, out);
}
