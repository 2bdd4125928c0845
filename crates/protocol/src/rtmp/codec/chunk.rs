//! Chunks (RTMP, 5.3): takes messages out of a connection's bytes, cut anywhere.
//!
//! The payload of media is passed over, not copied, but for its first bytes. Other messages are
//! short and kept as a whole. Nothing is allocated for a message of media.

use super::Malformed;
use super::message::{Kind, Message};

/// How many chunk streams are looked after at a time. Servers use four or five.
pub const STREAMS_MAX: usize = 64;
/// How many bytes of each message of media are kept: what says how it is coded, and a time code
/// behind parameter sets.
pub const HEAD: usize = 128;
/// The longest message that is kept, media apart.
pub const MESSAGE_MAX: u32 = 64 * 1024;
/// The longest message of media that is kept, where media is.
pub const MEDIA_MAX: u32 = 4 << 20;
/// How many bytes of messages that have begun are kept of a connection without media.
const KEPT_MAX: usize = 256 * 1024;
/// The same of one whose media is kept.
const KEPT_WITH_MEDIA_MAX: usize = 8 << 20;

/// The size of chunks that both sides begin with (RTMP, 5.4.1).
pub const FIRST_CHUNK_SIZE: u32 = 128;
/// From this timestamp on it stands behind the header (RTMP, 5.3.1.3).
const EXTENDED: u32 = 0xff_ffff;
/// The longest header: of a basic header of three bytes, with an extended timestamp.
const HEADER_MAX: usize = 3 + 11 + 4;
/// The header of each part of an aggregate, as in FLV, and what follows the part (RTMP, 7.1.6).
const PART_HEADER: usize = 11;
const PART_END: usize = 4;

/// A message that has come as a whole.
#[derive(Debug)]
pub enum Item<'a> {
    /// Audio or video.
    Media(Media<'a>),
    /// Anything else. Of types that mean nothing here it has no payload.
    Message(Message),
}

/// A message of audio or video.
#[derive(Debug)]
pub struct Media<'a> {
    /// Whether it is video.
    pub video: bool,
    /// Its timestamp in milliseconds.
    pub timestamp: u32,
    /// The message stream it belongs to.
    pub stream: u32,
    /// How many bytes of payload it has.
    pub length: u32,
    /// How many it took on the wire, with the headers of its chunks.
    pub wire: u32,
    /// The first bytes of its payload.
    pub head: &'a [u8],
    /// All of it, where media is kept.
    pub body: Vec<u8>,
}

/// Takes messages out of what one side sends.
#[derive(Debug)]
pub struct ChunkReader {
    keeps_media: bool,
    chunk_size: u32,
    streams: Vec<ChunkStream>,
    /// The chunk stream of the chunk under way, and how much of that chunk is to come.
    current: usize,
    chunk_left: u32,
    /// The beginning of a header that is cut off.
    carried: [u8; HEADER_MAX],
    carried_length: usize,
    /// How many bytes of messages under way are kept.
    kept: usize,
    extended: Extended,
}

/// What is known of a chunk stream.
#[derive(Debug)]
struct ChunkStream {
    id: u32,
    timestamp: u32,
    /// By how much the timestamp grows with a message without a header of its own.
    delta: u32,
    /// What stands in the extended timestamp; none where there is none.
    extended: Option<u32>,
    length: u32,
    kind: u8,
    stream: u32,
    /// How much of the message under way is to come.
    left: u32,
    /// Bytes on the wire since the last item.
    wire: u32,
    head: [u8; HEAD],
    head_length: usize,
    body: Vec<u8>,
    /// Of an aggregate: how far it is.
    part: Option<Box<Part>>,
}

/// The part of an aggregate that is under way.
#[derive(Debug, Default)]
struct Part {
    header: [u8; PART_HEADER],
    header_length: usize,
    /// What is to come of its payload, once its header is whole.
    left: u32,
    /// What is to come behind it.
    end_left: usize,
    /// What is added to the timestamps of parts, once the first is known.
    shift: Option<u32>,
}

/// A header of a chunk.
#[derive(Clone, Copy, Debug)]
struct Header {
    format: u8,
    id: u32,
    /// Timestamp or difference, length and type, message stream: as far as the format has them.
    time: u32,
    length: u32,
    kind: u8,
    stream: u32,
    extended: Option<u32>,
    /// Whether the extended timestamp is left out, though there is one.
    leaves_out: bool,
    bytes: usize,
}

/// Extended timestamps of the other side in chunks without a message header (RTMP, 5.3.1.3), as its
/// first such chunk shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extended {
    /// No such chunk arrived yet.
    Unknown,
    /// Present, with any value, as ffmpeg and librtmp expect.
    Stands,
    /// Absent.
    LeftOut,
}

/// What has come to its end.
#[derive(Clone, Copy, Debug)]
enum Done {
    Message,
    Part,
}

impl ChunkReader {
    /// A reader that keeps media, or passes it over.
    pub fn new(keeps_media: bool) -> ChunkReader {
        ChunkReader {
            keeps_media,
            chunk_size: FIRST_CHUNK_SIZE,
            streams: Vec::new(),
            current: 0,
            chunk_left: 0,
            carried: [0; HEADER_MAX],
            carried_length: 0,
            kept: 0,
            extended: Extended::Unknown,
        }
    }

    /// The size of chunks that the other side has set.
    pub fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// How many bytes of memory it holds, itself not counted.
    pub fn memory(&self) -> usize {
        self.streams.capacity() * size_of::<ChunkStream>() + self.kept
    }

    /// The next message out of `input`, of which the first `at` bytes have been taken; none where
    /// all of it has been. What concerns chunks alone (RTMP, 5.4.1 and 5.4.2) is done and passed
    /// on.
    ///
    /// # Errors
    /// What came is no RTMP; nothing more can be read then.
    pub fn next<'a>(
        &'a mut self,
        input: &[u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, Malformed> {
        let Some(done) = self.advance(input, at)? else {
            return Ok(None);
        };
        self.item(done)
    }

    /// Reads until a message is whole.
    fn advance(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Done>, Malformed> {
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
                let (taken, done) = self.payload(&rest[..count])?;
                *at += taken;
                // No more than the chunk has was offered.
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

    /// The next chunk's header, once all of it has come.
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
            // Shorter than the longest header, else it would have been whole.
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
            // An extended timestamp was expected, and the bytes carried for it are payload.
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

    /// Takes in payload of the chunk under way out of bytes that were carried as a header's.
    fn carried_payload(&mut self) -> Result<Option<Done>, Malformed> {
        let count = self.carried_length.min(self.chunk_left as usize);
        let carried = self.carried;
        let (taken, done) = self.payload(&carried[..count])?;
        self.chunk_left -= taken as u32;
        self.drop_carried(taken);
        Ok(done)
    }

    /// The first `count` of the carried bytes are used up.
    fn drop_carried(&mut self, count: usize) {
        self.carried.copy_within(count..self.carried_length, 0);
        self.carried_length -= count;
    }

    /// The header at the beginning of `bytes`; none where more of them are needed.
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
            _ => (time == EXTENDED).then_some(0),
        };
        let (mut extended, mut leaves_out) = (None, false);
        if let Some(known) = known {
            let Some((field, after)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            let field = u32::from_be_bytes(*field);
            // In chunks without a message header, most servers repeat it, some write zero, and some
            // omit it. Then these bytes are payload, which may look like a timestamp.
            let stands = match self.extended {
                Extended::Unknown => field == 0 || field == known,
                Extended::Stands => true,
                Extended::LeftOut => field == known,
            };
            if format < 3 || stands {
                extended = Some(field);
                rest = after;
            } else {
                leaves_out = true;
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
            leaves_out,
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
    fn turn_to(&mut self, header: &Header) -> Result<&mut ChunkStream, Malformed> {
        let id = header.id;
        let is_current = |stream: &ChunkStream| stream.id == id;
        if !self.streams.get(self.current).is_some_and(is_current) {
            self.current = match self.streams.iter().position(is_current) {
                Some(place) => place,
                // The first is to have a whole header. (librtmp begins one without the stream's
                // number, which is then that of control messages.)
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

    /// Takes a chunk's header in; says where its message has no payload.
    #[inline]
    fn begin_chunk(&mut self, header: Header) -> Result<Option<Done>, Malformed> {
        let chunk_size = self.chunk_size;
        if header.format == 3 && self.extended == Extended::Unknown {
            self.extended = match (header.extended, header.leaves_out) {
                (Some(_), _) => Extended::Stands,
                (None, true) => Extended::LeftOut,
                (None, false) => Extended::Unknown,
            };
        }
        let stream = self.turn_to(&header)?;
        stream.wire = stream.wire.saturating_add(header.bytes as u32);
        if stream.left == 0 {
            stream.begin_message(&header);
            let (kind, length) = (stream.kind, stream.length);
            if self.keeps(kind) && length > self.longest(kind) {
                return Err(Malformed::TooLong { kind, length });
            }
            if length == 0 {
                return Ok(Some(Done::Message));
            }
            self.chunk_left = length.min(chunk_size);
        } else if header.format < 3 {
            return Err(Malformed::Interrupted(header.id));
        } else {
            self.chunk_left = stream.left.min(chunk_size);
        }
        Ok(None)
    }

    /// Whether messages of that type are kept as a whole.
    fn keeps(&self, kind: u8) -> bool {
        match Kind::of(kind) {
            Some(Kind::Audio | Kind::Video) => self.keeps_media,
            Some(Kind::Aggregate) | None => false,
            Some(_) => true,
        }
    }

    fn longest(&self, kind: u8) -> u32 {
        match Kind::of(kind) {
            Some(Kind::Audio | Kind::Video) => MEDIA_MAX,
            _ => MESSAGE_MAX,
        }
    }

    /// Takes in payload of the chunk under way; how much of it, and what that has made whole.
    fn payload(&mut self, bytes: &[u8]) -> Result<(usize, Option<Done>), Malformed> {
        let keeps = {
            let kind = self
                .streams
                .get(self.current)
                .map_or(0, |stream| stream.kind);
            self.keeps(kind)
        };
        let kept_max = match self.keeps_media {
            true => KEPT_WITH_MEDIA_MAX,
            false => KEPT_MAX,
        };
        let keeps_media = self.keeps_media;
        let Some(stream) = self.streams.get_mut(self.current) else {
            return Ok((bytes.len(), None));
        };
        let before = stream.body.len();
        let result = if Kind::of(stream.kind) == Some(Kind::Aggregate) {
            stream.aggregate(bytes, keeps_media)?
        } else {
            stream.keep_head(bytes);
            if keeps {
                stream.body.extend_from_slice(bytes);
            }
            stream.pass(bytes.len());
            (bytes.len(), (stream.left == 0).then_some(Done::Message))
        };
        self.kept += stream.body.len() - before;
        if self.kept > kept_max {
            let (kind, length) = (stream.kind, stream.length);
            return Err(Malformed::TooLong { kind, length });
        }
        Ok(result)
    }

    /// What has come to its end on the current chunk stream.
    fn item(&mut self, done: Done) -> Result<Option<Item<'_>>, Malformed> {
        let Some(stream) = self.streams.get_mut(self.current) else {
            return Ok(None);
        };
        let wire = std::mem::take(&mut stream.wire);
        let body = std::mem::take(&mut stream.body);
        let (kind, timestamp, length) = match (done, &mut stream.part) {
            (Done::Part, Some(part)) => {
                let (kind, length) = (part.kind(), part.length());
                let timestamp = part.timestamp(stream.timestamp);
                part.next();
                (kind, timestamp, length)
            }
            _ => (stream.kind, stream.timestamp, stream.length),
        };
        self.kept = self.kept.saturating_sub(body.len());
        let own = Kind::of(kind);
        let number = stream.stream;
        if !matches!(own, Some(Kind::Audio | Kind::Video)) {
            let message = Message {
                kind,
                timestamp,
                stream: number,
                wire,
                payload: body,
            };
            if matches!(done, Done::Message) {
                match own {
                    Some(Kind::SetChunkSize) => self.set_chunk_size(message.field()?)?,
                    Some(Kind::Abort) => self.abort(message.field()?),
                    _ => {}
                }
            }
            return Ok(Some(Item::Message(message)));
        }
        let stream = self.streams.get(self.current);
        let head = stream.and_then(|stream| stream.head.get(..stream.head_length));
        Ok(Some(Item::Media(Media {
            video: own == Some(Kind::Video),
            timestamp,
            stream: number,
            length,
            wire,
            head: head.unwrap_or_default(),
            body,
        })))
    }

    fn set_chunk_size(&mut self, size: u32) -> Result<(), Malformed> {
        // RTMP, 5.4.1: the first bit is zero, and a chunk has a byte at least.
        if size == 0 || size > i32::MAX as u32 {
            return Err(Malformed::ChunkSize(size));
        }
        self.chunk_size = size;
        Ok(())
    }

    /// The message under way on that chunk stream is not to be completed (RTMP, 5.4.2).
    fn abort(&mut self, id: u32) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            self.kept = self.kept.saturating_sub(stream.body.len());
            stream.body = Vec::new();
            stream.part = None;
            stream.left = 0;
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
            left: 0,
            wire: 0,
            head: [0; HEAD],
            head_length: 0,
            body: Vec::new(),
            part: None,
        }
    }

    /// A message begins.
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
            // Behind a whole header, a message without one has its timestamp as the difference
            // (RTMP, 5.3.1.2.4).
            _ => self.timestamp = self.timestamp.wrapping_add(self.delta),
        }
        if header.format <= 1 {
            self.length = header.length;
            self.kind = header.kind;
        }
        self.left = self.length;
        self.head_length = 0;
        self.part = None;
    }

    #[inline]
    fn keep_head(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(HEAD - self.head_length);
        if count > 0 {
            let end = self.head_length + count;
            self.head[self.head_length..end].copy_from_slice(&bytes[..count]);
            self.head_length = end;
        }
    }

    /// So many bytes of the message have come.
    #[inline]
    fn pass(&mut self, count: usize) {
        // No more than the message has is ever taken.
        self.left -= count as u32;
        self.wire = self.wire.saturating_add(count as u32);
    }

    /// Takes in payload of an aggregate (RTMP, 7.1.6).
    fn aggregate(
        &mut self,
        bytes: &[u8],
        keeps_media: bool,
    ) -> Result<(usize, Option<Done>), Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let part = self.part.get_or_insert_default();
            if part.end_left > 0 {
                let count = rest.len().min(part.end_left);
                part.end_left -= count;
                at += count;
                self.pass(count);
                continue;
            }
            if part.header_length < PART_HEADER {
                let count = rest.len().min(PART_HEADER - part.header_length);
                let end = part.header_length + count;
                part.header[part.header_length..end].copy_from_slice(&rest[..count]);
                part.header_length = end;
                at += count;
                let whole = end == PART_HEADER;
                if whole {
                    part.left = part.length();
                    self.head_length = 0;
                }
                self.pass(count);
                let part_left = self.part.as_ref().map_or(0, |part| part.left);
                if whole && part_left > self.left {
                    return Err(Malformed::Aggregate);
                }
                if whole && part_left == 0 {
                    return Ok((at, Some(Done::Part)));
                }
                continue;
            }
            let count = rest.len().min(part.left as usize);
            part.left -= count as u32;
            let (whole, kind) = (part.left == 0, part.kind());
            self.keep_head(&rest[..count]);
            if keeps_media && matches!(Kind::of(kind), Some(Kind::Audio | Kind::Video)) {
                if self.body.len() + count > MEDIA_MAX as usize {
                    return Err(Malformed::Aggregate);
                }
                self.body.extend_from_slice(&rest[..count]);
            }
            at += count;
            self.pass(count);
            if whole {
                return Ok((at, Some(Done::Part)));
            }
        }
        Ok((at, (self.left == 0).then_some(Done::Message)))
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

    /// The part's timestamp. That of the first is the aggregate's own.
    fn timestamp(&mut self, of_aggregate: u32) -> u32 {
        let [_, _, _, _, a, b, c, high, ..] = self.header;
        let own = u32::from_be_bytes([high, a, b, c]);
        let shift = *self
            .shift
            .get_or_insert_with(|| of_aggregate.wrapping_sub(own));
        own.wrapping_add(shift)
    }

    /// The next part follows.
    fn next(&mut self) {
        self.header_length = 0;
        self.end_left = PART_END;
    }
}

#[cfg(test)]
mod tests;
