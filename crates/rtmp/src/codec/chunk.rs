//! Chunks (RTMP, 5.3): reassembles messages from a connection's bytes, split at arbitrary
//! positions.
//!
//! Media payload is skipped except for its first bytes, unless the reader keeps media. Other
//! messages are short and buffered whole. A skipped media message allocates nothing.

use super::Malformed;
use super::message::{Message, MessageType};

/// Maximum number of chunk streams. Servers use four or five.
pub const STREAMS_MAX: usize = 64;
/// Number of payload bytes kept of each media message: the codec header, and a time code after
/// parameter sets.
pub const HEAD_BYTES_MAX: usize = 128;
/// Maximum length of a buffered message other than media.
pub const MESSAGE_BYTES_MAX: u32 = 64 * 1024;
/// Maximum length of a buffered media message.
pub const MEDIA_BYTES_MAX: u32 = 4 << 20;
/// Maximum number of bytes of incomplete messages if media is skipped.
const BUFFERED_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of bytes of incomplete messages if media is buffered.
const BUFFERED_WITH_MEDIA_BYTES_MAX: usize = 8 << 20;

/// Initial chunk size of both sides (RTMP, 5.4.1).
pub const INITIAL_CHUNK_SIZE: u32 = 128;
/// Timestamps from this one on use the extended timestamp field (RTMP, 5.3.1.3).
pub(super) const EXTENDED_TIMESTAMP: u32 = 0xff_ffff;
/// Longest chunk header: a basic header of three bytes, and an extended timestamp.
const HEADER_MAX: usize = 3 + 11 + 4;
/// Length of the FLV tag header before each part of an aggregate message, and of the back pointer
/// after it (RTMP, 7.1.6).
const PART_HEADER_BYTES: usize = 11;
const BACK_POINTER_BYTES: usize = 4;

/// A complete message.
#[derive(Debug)]
pub enum ReadMessage<'a> {
    Media(MediaMessage<'a>),
    /// Any other message. It has no payload if its type is unknown.
    Message(Message),
}

/// An audio or video message.
#[derive(Debug)]
pub struct MediaMessage<'a> {
    /// True for video, false for audio.
    pub video: bool,
    /// Timestamp in milliseconds.
    pub timestamp: u32,
    /// Message stream ID.
    pub stream: u32,
    /// Payload length in bytes.
    pub length: u32,
    /// Size on the wire in bytes, including chunk headers.
    pub wire: u32,
    /// First bytes of the payload, at most [`HEAD_BYTES_MAX`].
    pub head: &'a [u8],
    /// Whole payload; empty if media is skipped.
    pub body: Vec<u8>,
}

/// Reassembles the messages that one side sends.
#[derive(Debug)]
pub struct ChunkReader {
    buffers_media: bool,
    chunk_size: u32,
    streams: Vec<ChunkStream>,
    /// Index of the current chunk's stream, and number of bytes missing from that chunk.
    current: usize,
    chunk_left: u32,
    /// Beginning of an incomplete header.
    carried: [u8; HEADER_MAX],
    carried_length: usize,
    /// Number of buffered bytes of incomplete messages.
    buffered_bytes: usize,
    extended: ExtendedTimestamps,
}

/// State of a chunk stream.
#[derive(Debug)]
struct ChunkStream {
    id: u32,
    timestamp: u32,
    /// Timestamp delta that a message with a type 3 header inherits.
    delta: u32,
    /// Last extended timestamp; `None` if the last header had none.
    extended: Option<u32>,
    length: u32,
    kind: u8,
    stream: u32,
    /// Number of bytes missing from the current message.
    bytes_left: u32,
    /// Bytes on the wire since the last item.
    wire: u32,
    head: [u8; HEAD_BYTES_MAX],
    head_length: usize,
    body: Vec<u8>,
    /// Progress within an aggregate message.
    part: Option<Box<Part>>,
}

/// Current part of an aggregate message.
#[derive(Debug, Default)]
struct Part {
    header: [u8; PART_HEADER_BYTES],
    header_length: usize,
    /// Number of bytes missing from its payload, once its header is complete.
    left: u32,
    /// Number of bytes missing from the back pointer after it.
    back_pointer_left: usize,
    /// Offset added to the timestamps of parts, once the first is known.
    shift: Option<u32>,
}

/// A chunk header.
#[derive(Clone, Copy, Debug)]
struct Header {
    format: u8,
    id: u32,
    /// Timestamp or delta, length and type, message stream ID: 0 if the format lacks them.
    time: u32,
    length: u32,
    kind: u8,
    stream: u32,
    extended: Option<u32>,
    /// True if the extended timestamp is omitted, although one is in use.
    omits_extended: bool,
    bytes: usize,
}

/// Use of extended timestamps in the peer's type 3 chunks (RTMP, 5.3.1.3), known from the first
/// such chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtendedTimestamps {
    /// Not known yet.
    Unknown,
    /// Present, with any value, as ffmpeg and librtmp expect.
    Present,
    /// Absent.
    Omitted,
}

/// Kind of item that is complete.
#[derive(Clone, Copy, Debug)]
enum Completed {
    Message,
    Part,
}

impl ChunkReader {
    /// Creates a reader that buffers media, or skips it.
    pub fn new(keeps_media: bool) -> ChunkReader {
        ChunkReader {
            buffers_media: keeps_media,
            chunk_size: INITIAL_CHUNK_SIZE,
            streams: Vec::new(),
            current: 0,
            chunk_left: 0,
            carried: [0; HEADER_MAX],
            carried_length: 0,
            buffered_bytes: 0,
            extended: ExtendedTimestamps::Unknown,
        }
    }

    /// Chunk size that the peer has set.
    pub fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// Heap memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.streams.capacity() * size_of::<ChunkStream>() + self.buffered_bytes
    }

    /// Returns the next complete message of `input` from offset `at` on, or `None` if all bytes are
    /// consumed. Set Chunk Size and Abort (RTMP, 5.4.1 and 5.4.2) are carried out, and returned
    /// too.
    ///
    /// # Errors
    /// The bytes are not valid RTMP. Nothing more can be read after that.
    pub fn next_message<'a>(
        &'a mut self,
        input: &[u8],
        at: &mut usize,
    ) -> Result<Option<ReadMessage<'a>>, Malformed> {
        let Some(done) = self.advance(input, at)? else {
            return Ok(None);
        };
        self.completed_item(done)
    }

    /// Reads until a message is complete.
    fn advance(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Completed>, Malformed> {
        loop {
            if self.chunk_left > 0 {
                if self.carried_length > 0 {
                    if let Some(done) = self.carried_payload()? {
                        return Ok(Some(done));
                    }
                    continue;
                }
                let rest = input.get(*at..).unwrap_or_default();
                if rest.is_empty() {
                    return Ok(None);
                }
                let count = rest.len().min(self.chunk_left as usize);
                let (taken, done) = self.consume_payload(&rest[..count])?;
                *at += taken;
                // Only the rest of the chunk was offered.
                self.chunk_left -= taken as u32;
                if done.is_some() {
                    return Ok(done);
                }
                continue;
            }
            let Some(header) = self.header(input, at)? else {
                return Ok(None);
            };
            if let Some(done) = self.begin_chunk(header)? {
                return Ok(Some(done));
            }
        }
    }

    /// Returns the next chunk's header, once it is complete.
    #[inline]
    fn header(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Header>, Malformed> {
        let rest = input.get(*at..).unwrap_or_default();
        if self.carried_length == 0 {
            if rest.is_empty() {
                return Ok(None);
            }
            if let Some(header) = self.parse(rest)? {
                *at += header.bytes;
                return Ok(Some(header));
            }
            // Shorter than the longest header; otherwise it would have been complete.
            self.carried[..rest.len()].copy_from_slice(rest);
            self.carried_length = rest.len();
            *at += rest.len();
            return Ok(None);
        }
        let before = self.carried_length;
        let more = rest.len().min(HEADER_MAX - before);
        let whole = before + more;
        self.carried[before..whole].copy_from_slice(&rest[..more]);
        let carried = self.carried;
        match self.parse(&carried[..whole])? {
            // An extended timestamp was expected, but the bytes carried for it are payload.
            Some(header) if header.bytes < before => {
                self.drop_carried(header.bytes);
                Ok(Some(header))
            }
            Some(header) => {
                self.carried_length = 0;
                *at += header.bytes - before;
                Ok(Some(header))
            }
            None => {
                self.carried_length = whole;
                *at += more;
                Ok(None)
            }
        }
    }

    /// Consumes payload of the current chunk from bytes that were carried as part of a header.
    fn carried_payload(&mut self) -> Result<Option<Completed>, Malformed> {
        let count = self.carried_length.min(self.chunk_left as usize);
        let carried = self.carried;
        let (taken, done) = self.consume_payload(&carried[..count])?;
        self.chunk_left -= taken as u32;
        self.drop_carried(taken);
        Ok(done)
    }

    /// Removes the first `count` carried bytes.
    fn drop_carried(&mut self, count: usize) {
        self.carried.copy_within(count..self.carried_length, 0);
        self.carried_length -= count;
    }

    /// Parses the header at the beginning of `bytes`. Returns `None` if it is incomplete.
    #[inline]
    fn parse(&self, bytes: &[u8]) -> Result<Option<Header>, Malformed> {
        let [first, rest @ ..] = bytes else {
            return Ok(None);
        };
        let format = first >> 6;
        // RTMP, 5.3.1.1.
        let (id, mut rest) = match (first & 0x3f, rest) {
            (0, [low, rest @ ..]) => (64 + u32::from(*low), rest),
            (1, [low, high, rest @ ..]) => (64 + u32::from(*low) + u32::from(*high) * 256, rest),
            (0 | 1, _) => return Ok(None),
            (id, rest) => (u32::from(id), rest),
        };
        // RTMP, 5.3.1.2.
        let (mut time, mut length, mut kind, mut stream) = (0, 0, 0, 0);
        if format <= 2 {
            let [a, b, c, after @ ..] = rest else {
                return Ok(None);
            };
            time = u32::from_be_bytes([0, *a, *b, *c]);
            rest = after;
        }
        if format <= 1 {
            let [a, b, c, own, after @ ..] = rest else {
                return Ok(None);
            };
            length = u32::from_be_bytes([0, *a, *b, *c]);
            kind = *own;
            rest = after;
        }
        if format == 0 {
            let Some((own, after)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            stream = u32::from_le_bytes(*own);
            rest = after;
        }
        let known = match format {
            3 => self.find(id).and_then(|stream| stream.extended),
            _ => (time == EXTENDED_TIMESTAMP).then_some(0),
        };
        let (mut extended, mut omits_extended) = (None, false);
        if let Some(known) = known {
            let Some((field, after)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            let field = u32::from_be_bytes(*field);
            // In type 3 chunks, most servers repeat the extended timestamp, some write zero, and
            // some omit it. In the last case these bytes are payload, which may look like a
            // timestamp.
            let is_present = match self.extended {
                ExtendedTimestamps::Unknown => field == 0 || field == known,
                ExtendedTimestamps::Present => true,
                ExtendedTimestamps::Omitted => field == known,
            };
            if format < 3 || is_present {
                extended = Some(field);
                rest = after;
            } else {
                omits_extended = true;
            }
        }
        Ok(Some(Header {
            format,
            id,
            time,
            length,
            kind,
            stream,
            extended,
            omits_extended,
            bytes: bytes.len() - rest.len(),
        }))
    }

    #[inline]
    fn find(&self, id: u32) -> Option<&ChunkStream> {
        let current = self.streams.get(self.current);
        current
            .filter(|stream| stream.id == id)
            .or_else(|| self.streams.iter().find(|stream| stream.id == id))
    }

    /// Makes the chunk stream of a header the current one.
    fn select_chunk_stream(&mut self, header: &Header) -> Result<&mut ChunkStream, Malformed> {
        let id = header.id;
        let is_current = |stream: &ChunkStream| stream.id == id;
        if !self.streams.get(self.current).is_some_and(is_current) {
            self.current = match self.streams.iter().position(is_current) {
                Some(place) => place,
                // The first header must have a length and a type. (librtmp omits the message stream
                // ID, which is then that of control messages.)
                None if header.format > 1 => return Err(Malformed::NoHeader(id)),
                None if self.streams.len() >= STREAMS_MAX => return Err(Malformed::ChunkStreams),
                None => {
                    self.streams.push(ChunkStream::new(id));
                    self.streams.len() - 1
                }
            };
        }
        self.streams
            .get_mut(self.current)
            .ok_or(Malformed::NoHeader(id))
    }

    /// Processes a chunk header. Returns an item if its message has no payload.
    #[inline]
    fn begin_chunk(&mut self, header: Header) -> Result<Option<Completed>, Malformed> {
        let chunk_size = self.chunk_size;
        if header.format == 3 && self.extended == ExtendedTimestamps::Unknown {
            self.extended = match (header.extended, header.omits_extended) {
                (Some(_), _) => ExtendedTimestamps::Present,
                (None, true) => ExtendedTimestamps::Omitted,
                (None, false) => ExtendedTimestamps::Unknown,
            };
        }
        let stream = self.select_chunk_stream(&header)?;
        stream.wire = stream.wire.saturating_add(header.bytes as u32);
        if stream.bytes_left == 0 {
            stream.begin_message(&header);
            let (kind, length) = (stream.kind, stream.length);
            if self.buffers(kind) && length > self.length_max(kind) {
                return Err(Malformed::TooLong { kind, length });
            }
            if length == 0 {
                return Ok(Some(Completed::Message));
            }
            self.chunk_left = length.min(chunk_size);
        } else if header.format < 3 {
            return Err(Malformed::Interrupted(header.id));
        } else {
            self.chunk_left = stream.bytes_left.min(chunk_size);
        }
        Ok(None)
    }

    /// Returns true if messages of this type are buffered.
    fn buffers(&self, kind: u8) -> bool {
        match MessageType::from_id(kind) {
            Some(MessageType::Audio | MessageType::Video) => self.buffers_media,
            Some(MessageType::Aggregate) | None => false,
            Some(_) => true,
        }
    }

    fn length_max(&self, kind: u8) -> u32 {
        match MessageType::from_id(kind) {
            Some(MessageType::Audio | MessageType::Video) => MEDIA_BYTES_MAX,
            _ => MESSAGE_BYTES_MAX,
        }
    }

    /// Consumes payload of the current chunk. Returns the number of bytes consumed, and the item
    /// that is now complete.
    fn consume_payload(&mut self, bytes: &[u8]) -> Result<(usize, Option<Completed>), Malformed> {
        let keeps = {
            let kind = self
                .streams
                .get(self.current)
                .map_or(0, |stream| stream.kind);
            self.buffers(kind)
        };
        let kept_max = match self.buffers_media {
            true => BUFFERED_WITH_MEDIA_BYTES_MAX,
            false => BUFFERED_BYTES_MAX,
        };
        let keeps_media = self.buffers_media;
        let Some(stream) = self.streams.get_mut(self.current) else {
            return Ok((bytes.len(), None));
        };
        let before = stream.body.len();
        let result = if MessageType::from_id(stream.kind) == Some(MessageType::Aggregate) {
            stream.consume_aggregate(bytes, keeps_media)?
        } else {
            stream.keep_head(bytes);
            if keeps {
                stream.body.extend_from_slice(bytes);
            }
            stream.count_consumed(bytes.len());
            (
                bytes.len(),
                (stream.bytes_left == 0).then_some(Completed::Message),
            )
        };
        self.buffered_bytes += stream.body.len() - before;
        if self.buffered_bytes > kept_max {
            let (kind, length) = (stream.kind, stream.length);
            return Err(Malformed::TooLong { kind, length });
        }
        Ok(result)
    }

    /// Returns the item that is complete on the current chunk stream.
    fn completed_item(&mut self, done: Completed) -> Result<Option<ReadMessage<'_>>, Malformed> {
        let Some(stream) = self.streams.get_mut(self.current) else {
            return Ok(None);
        };
        let wire = std::mem::take(&mut stream.wire);
        let body = std::mem::take(&mut stream.body);
        let (kind, timestamp, length) = match (done, &mut stream.part) {
            (Completed::Part, Some(part)) => {
                let (kind, length) = (part.kind(), part.length());
                let timestamp = part.timestamp(stream.timestamp);
                part.start_next();
                (kind, timestamp, length)
            }
            _ => (stream.kind, stream.timestamp, stream.length),
        };
        self.buffered_bytes = self.buffered_bytes.saturating_sub(body.len());
        let own = MessageType::from_id(kind);
        let number = stream.stream;
        if !matches!(own, Some(MessageType::Audio | MessageType::Video)) {
            let message = Message {
                type_id: kind,
                timestamp,
                message_stream: number,
                wire_bytes: wire,
                payload: body,
            };
            if matches!(done, Completed::Message) {
                match own {
                    Some(MessageType::SetChunkSize) => self.set_chunk_size(message.first_u32()?)?,
                    Some(MessageType::Abort) => self.abort(message.first_u32()?),
                    _ => {}
                }
            }
            return Ok(Some(ReadMessage::Message(message)));
        }
        let stream = self.streams.get(self.current);
        let head = stream.and_then(|stream| stream.head.get(..stream.head_length));
        Ok(Some(ReadMessage::Media(MediaMessage {
            video: own == Some(MessageType::Video),
            timestamp,
            stream: number,
            length,
            wire,
            head: head.unwrap_or_default(),
            body,
        })))
    }

    fn set_chunk_size(&mut self, size: u32) -> Result<(), Malformed> {
        // RTMP, 5.4.1: the first bit is zero, and a chunk has at least one byte.
        if size == 0 || size > i32::MAX as u32 {
            return Err(Malformed::ChunkSize(size));
        }
        self.chunk_size = size;
        Ok(())
    }

    /// Discards the incomplete message of a chunk stream (RTMP, 5.4.2).
    fn abort(&mut self, id: u32) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            self.buffered_bytes = self.buffered_bytes.saturating_sub(stream.body.len());
            stream.body = Vec::new();
            stream.part = None;
            stream.bytes_left = 0;
        }
    }
}

impl ChunkStream {
    fn new(id: u32) -> ChunkStream {
        ChunkStream {
            id,
            timestamp: 0,
            delta: 0,
            extended: None,
            length: 0,
            kind: 0,
            stream: 0,
            bytes_left: 0,
            wire: 0,
            head: [0; HEAD_BYTES_MAX],
            head_length: 0,
            body: Vec::new(),
            part: None,
        }
    }

    /// Starts a message.
    #[inline]
    fn begin_message(&mut self, header: &Header) {
        if header.format < 3 {
            let time = header.extended.unwrap_or(header.time);
            self.extended = header.extended;
            self.delta = time;
        }
        match header.format {
            0 => {
                self.timestamp = self.delta;
                self.stream = header.stream;
            }
            // After a type 0 header, the delta of a type 3 message is the timestamp itself (RTMP,
            // 5.3.1.2.4).
            _ => self.timestamp = self.timestamp.wrapping_add(self.delta),
        }
        if header.format <= 1 {
            self.length = header.length;
            self.kind = header.kind;
        }
        self.bytes_left = self.length;
        self.head_length = 0;
        self.part = None;
    }

    #[inline]
    fn keep_head(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(HEAD_BYTES_MAX - self.head_length);
        if count > 0 {
            let end = self.head_length + count;
            self.head[self.head_length..end].copy_from_slice(&bytes[..count]);
            self.head_length = end;
        }
    }

    /// Counts consumed bytes of the message.
    #[inline]
    fn count_consumed(&mut self, count: usize) {
        // Callers never consume more than the message has.
        self.bytes_left -= count as u32;
        self.wire = self.wire.saturating_add(count as u32);
    }

    /// Consumes payload of an aggregate message (RTMP, 7.1.6).
    fn consume_aggregate(
        &mut self,
        bytes: &[u8],
        keeps_media: bool,
    ) -> Result<(usize, Option<Completed>), Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let part = self.part.get_or_insert_default();
            if part.back_pointer_left > 0 {
                let count = rest.len().min(part.back_pointer_left);
                part.back_pointer_left -= count;
                at += count;
                self.count_consumed(count);
                continue;
            }
            if part.header_length < PART_HEADER_BYTES {
                let count = rest.len().min(PART_HEADER_BYTES - part.header_length);
                let end = part.header_length + count;
                part.header[part.header_length..end].copy_from_slice(&rest[..count]);
                part.header_length = end;
                at += count;
                let whole = end == PART_HEADER_BYTES;
                if whole {
                    part.left = part.length();
                    self.head_length = 0;
                }
                self.count_consumed(count);
                let part_left = self.part.as_ref().map_or(0, |part| part.left);
                if whole && part_left > self.bytes_left {
                    return Err(Malformed::Aggregate);
                }
                if whole && part_left == 0 {
                    return Ok((at, Some(Completed::Part)));
                }
                continue;
            }
            let count = rest.len().min(part.left as usize);
            part.left -= count as u32;
            let (whole, kind) = (part.left == 0, part.kind());
            self.keep_head(&rest[..count]);
            if keeps_media
                && matches!(
                    MessageType::from_id(kind),
                    Some(MessageType::Audio | MessageType::Video)
                )
            {
                if self.body.len() + count > MEDIA_BYTES_MAX as usize {
                    return Err(Malformed::Aggregate);
                }
                self.body.extend_from_slice(&rest[..count]);
            }
            at += count;
            self.count_consumed(count);
            if whole {
                return Ok((at, Some(Completed::Part)));
            }
        }
        Ok((at, (self.bytes_left == 0).then_some(Completed::Message)))
    }
}

impl Part {
    fn kind(&self) -> u8 {
        self.header[0]
    }

    fn length(&self) -> u32 {
        let [_, a, b, c, ..] = self.header;
        u32::from_be_bytes([0, a, b, c])
    }

    /// Returns the part's timestamp. The first part has that of the aggregate.
    fn timestamp(&mut self, of_aggregate: u32) -> u32 {
        let [_, _, _, _, a, b, c, high, ..] = self.header;
        let own = u32::from_be_bytes([high, a, b, c]);
        let shift = *self
            .shift
            .get_or_insert_with(|| of_aggregate.wrapping_sub(own));
        own.wrapping_add(shift)
    }

    /// Prepares for the next part.
    fn start_next(&mut self) {
        self.header_length = 0;
        self.back_pointer_left = BACK_POINTER_BYTES;
    }
}

#[cfg(test)]
mod tests;
