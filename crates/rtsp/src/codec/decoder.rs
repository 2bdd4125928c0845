//! Splits the byte stream of a connection into items.

use super::message::{Head, HeadError, parse_head};
use super::start_line::{self, LineEnd, LineScan};
use super::{Item, MAX_BODY, MAX_HEAD, MAX_START_LINE, Malformed, Request, Response};
use kit::mediagen::steps;

/// Reason why a connection cannot be decoded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// A message exceeds a limit, named by the string. The beginning of the next message is
    /// unknown.
    TooLarge(&'static str),
    /// More than [`MESSAGES_PER_READ_MAX`] messages in one read.
    Messages,
    /// More than [`USELESS_BYTES_MAX`] bytes that were neither a message nor a packet.
    Useless,
}

/// Maximum number of messages in one read. A peer that waits for answers sends a handful. Each
/// message costs as much as hundreds of packets, so a peer that sends more at once would delay all
/// other sessions of its worker.
pub const MESSAGES_PER_READ_MAX: usize = 256;

/// Maximum number of bytes of garbage and of frames too short for a packet. Every four useful bytes
/// offset one useless byte, so that a stream with occasional faults is decoded for as long as it
/// lasts.
pub const USELESS_BYTES_MAX: usize = 64 * 1024;

/// Splits the byte stream of one connection into items.
///
/// Frames that one read contains completely are handed out without a copy. Of an RTP packet that is
/// split between reads, only the first [`SPLIT_FRAME_KEPT`] bytes are kept, and the rest is
/// skipped. Any other incomplete item is buffered until it is complete: at most a head and a body
/// of maximum size. Between items, the decoder holds at most [`BUFFER_KEPT_MAX`] bytes, so that
/// frames cost no allocation and idle connections little memory.
///
/// Whatever arrives and however it is split, each byte is examined a bounded number of times: the
/// scan state of a line is kept when its beginning turns out to be garbage, and when more of it
/// arrives. Decoding stops if a peer sends too many messages at once, or mostly useless bytes: see
/// [`Overflow`].
#[derive(Debug, Default)]
pub struct Decoder {
    /// The unfinished item begins at `item_start`. Of a frame that is being skipped, only the
    /// beginning is kept.
    buffer: Vec<u8>,
    /// Offset of the unfinished item in `buffer`. The bytes before it were handed out.
    item_start: usize,
    /// Number of bytes still to be skipped of the frame in `buffer`. `None` if none is being
    /// skipped.
    skip_remaining: Option<usize>,
    /// True if the stream is out of sync: the last bytes were garbage.
    out_of_sync: bool,
    /// Scan state of the first line of the unfinished item, unless it is a start line.
    line_scan: LineScan,
    /// Number of bytes of the unfinished item that were searched for the end of its head.
    scanned: usize,
    /// Offset in the unfinished item of the line being searched. 0 until the start line is
    /// recognised.
    line_start: usize,
    /// Head and lengths of the message whose body is incomplete.
    pending_message: Option<Box<PendingMessage>>,
    /// True if RTP packets that are split between reads are kept whole.
    keep_frames_whole: bool,
    /// Number of messages in the current read.
    messages: usize,
    /// Number of useless bytes, less those that useful bytes have offset.
    useless: usize,
    /// Set permanently once a limit is exceeded.
    overflow: Option<Overflow>,
    /// Disables the limits on messages and garbage.
    #[cfg(test)]
    unbounded: bool,
}

#[derive(Debug)]
struct PendingMessage {
    head: Head,
    head_length: usize,
    body_length: usize,
}

/// Result of examining the beginning of the remaining bytes.
enum Step {
    /// Undecided: at least this many more bytes are needed.
    NeedBytes(usize),
    /// Undecided until the line is complete.
    NeedLine,
    /// Blank lines between messages: number of bytes.
    Blank(usize),
    /// Garbage: number of bytes.
    Garbage(usize),
    /// A complete frame: channel and payload length.
    Frame(u8, usize),
    /// The beginning of a frame whose rest is skipped: number of bytes still to come.
    SplitFrame(usize),
    /// A complete message.
    Message(Box<PendingMessage>),
    /// An invalid head, and its length.
    Malformed(Malformed, usize),
    /// A limit is exceeded.
    Overflow(&'static str),
}

/// Length of a frame's header: `$`, the channel and the payload length.
const FRAME_HEAD: usize = 4;
/// Minimum length of an RTP or RTCP packet.
const SHORTEST_PACKET: usize = 8;

/// Number of payload bytes kept of an RTP frame that is split between reads. Covers the longest RTP
/// header: the fixed header, 15 contributing sources and the head of an extension (RFC 3550, 5.1
/// and 5.3.1). In packets without these, also covers a time code that follows parameter sets.
pub const SPLIT_FRAME_KEPT: usize = 96;

/// Maximum number of bytes that a decoder holds between items: enough for split frames with RTCP or
/// with padding.
pub const BUFFER_KEPT_MAX: usize = 2 * 1024;

impl Decoder {
    /// Returns a decoder for a new connection.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// From now on, keeps RTP packets that are split between reads whole, for callers that need
    /// more than their beginning. The decoder then buffers up to 64 KiB between reads.
    pub fn keep_frames_whole(&mut self) {
        self.keep_frames_whole = true;
    }

    /// Decodes the bytes of one read and passes each item to `f`, in order.
    ///
    /// Each call counts as one read. After an error, the decoder accepts no more bytes and returns
    /// the same error again.
    pub fn feed(&mut self, bytes: &[u8], mut f: impl FnMut(Item<'_>)) -> Result<(), Overflow> {
        self.feed_with_ends(bytes, |item, _| f(item))
    }

    /// Like [`Decoder::feed`], but also passes to `f` the offset in `bytes` at which the item was
    /// complete.
    #[inline]
    pub fn feed_with_ends(
        &mut self,
        bytes: &[u8],
        mut f: impl FnMut(Item<'_>, usize),
    ) -> Result<(), Overflow> {
        if let Some(overflow) = self.overflow {
            return Err(overflow);
        }
        self.messages = 0;
        let useless = self.useless;
        self.decode(bytes, &mut f)?;
        let of_use = bytes.len().saturating_sub(self.useless - useless);
        self.useless = self.useless.saturating_sub(of_use / 4);
        Ok(())
    }

    #[inline]
    fn decode(
        &mut self,
        bytes: &[u8],
        f: &mut impl FnMut(Item<'_>, usize),
    ) -> Result<(), Overflow> {
        let mut rest = bytes;
        // First, the item that earlier reads left unfinished.
        while self.item_start < self.buffer.len() {
            if let Some(ahead) = self.skip_remaining {
                let passed = ahead.min(rest.len());
                rest = &rest[passed..];
                if passed < ahead {
                    self.skip_remaining = Some(ahead - passed);
                    return Ok(());
                }
                self.emit_split_frame(bytes.len() - rest.len(), f);
                continue;
            }
            let buffer = std::mem::take(&mut self.buffer);
            let step = self.step(&buffer[self.item_start..]);
            self.buffer = buffer;
            let wanted = match step {
                Step::NeedBytes(wanted) => wanted.min(rest.len()),
                Step::NeedLine => {
                    let limit = rest.len().min(MAX_HEAD);
                    steps::find(&rest[..limit], b'\n').map_or(limit, |end| end + 1)
                }
                Step::SplitFrame(ahead) => {
                    self.buffer
                        .truncate(self.item_start + FRAME_HEAD + SPLIT_FRAME_KEPT);
                    self.skip_remaining = Some(ahead);
                    continue;
                }
                done => {
                    let buffer = std::mem::take(&mut self.buffer);
                    let end = bytes.len() - rest.len();
                    let item = &buffer[self.item_start..];
                    let used = self.emit(done, item, |item, _| f(item, end))?;
                    self.buffer = buffer;
                    self.consume(used);
                    continue;
                }
            };
            if wanted == 0 {
                return Ok(());
            }
            self.compact();
            steps::count_bytes(wanted);
            self.buffer.extend_from_slice(&rest[..wanted]);
            rest = &rest[wanted..];
        }
        // Then the items that begin in this read.
        loop {
            rest = self.emit_frames(rest, bytes.len(), f);
            if rest.is_empty() {
                break;
            }
            match self.step(rest) {
                Step::NeedBytes(_) | Step::NeedLine => {
                    self.buffer_start(rest);
                    break;
                }
                Step::SplitFrame(ahead) => {
                    self.buffer_start(&rest[..FRAME_HEAD + SPLIT_FRAME_KEPT]);
                    self.skip_remaining = Some(ahead);
                    break;
                }
                done => {
                    let begin = bytes.len() - rest.len();
                    let used = self.emit(done, rest, |item, length| f(item, begin + length))?;
                    rest = &rest[used..];
                }
            }
        }
        Ok(())
    }

    /// Returns the number of bytes buffered for an incomplete item.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.item_start
    }

    /// Returns the number of bytes allocated for items, in use or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Hands out the complete frames at the beginning of `data` and returns the rest. This is the
    /// hot path of media: a read of a stream in sync contains little else.
    #[inline]
    fn emit_frames<'a>(
        &self,
        mut data: &'a [u8],
        end: usize,
        f: &mut impl FnMut(Item<'_>, usize),
    ) -> &'a [u8] {
        while let [b'$', channel, high, low, behind @ ..] = data
            && !self.out_of_sync
        {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            steps::count_bytes(FRAME_HEAD);
            if length < SHORTEST_PACKET {
                break;
            }
            let Some((payload, behind)) = behind.split_at_checked(length) else {
                break;
            };
            let item = Item::Frame {
                channel: *channel,
                payload,
                length,
            };
            f(item, end - behind.len());
            data = behind;
        }
        data
    }

    /// Hands out the beginning of the frame whose rest was skipped.
    fn emit_split_frame(&mut self, end: usize, f: &mut impl FnMut(Item<'_>, usize)) {
        self.skip_remaining = None;
        self.out_of_sync = false;
        self.line_scan = LineScan::default();
        let frame = &self.buffer[self.item_start..];
        let item = Item::Frame {
            channel: frame[1],
            payload: &frame[FRAME_HEAD..],
            length: usize::from(u16::from_be_bytes([frame[2], frame[3]])),
        };
        f(item, end);
        self.consume(self.buffer.len() - self.item_start);
    }

    /// Drops the bytes that were handed out, and memory that only a large item needed.
    fn consume(&mut self, used: usize) {
        self.item_start += used;
        if self.item_start == self.buffer.len() {
            self.item_start = 0;
            self.buffer.clear();
            if self.buffer.capacity() > BUFFER_KEPT_MAX {
                self.buffer = Vec::new();
            }
        }
    }

    /// Reclaims the space of items that were handed out, once it is at least as large as the part
    /// to be moved. All moves together therefore cost no more than the bytes handed out.
    fn compact(&mut self) {
        let left = self.buffer.len() - self.item_start;
        if self.item_start >= left {
            steps::count_bytes(left);
            self.buffer.drain(..self.item_start);
            self.item_start = 0;
        }
    }

    /// Buffers the beginning of an item.
    fn buffer_start(&mut self, beginning: &[u8]) {
        steps::count_bytes(beginning.len());
        // Reserves at once what split frames will need, instead of growing in small steps.
        self.buffer.reserve(FRAME_HEAD + SPLIT_FRAME_KEPT);
        self.buffer.extend_from_slice(beginning);
    }

    /// Hands out the item that `step` found at the beginning of `data` and returns its length. `f`
    /// receives the same length.
    fn emit(
        &mut self,
        step: Step,
        data: &[u8],
        mut f: impl FnMut(Item<'_>, usize),
    ) -> Result<usize, Overflow> {
        steps::count_bytes(1);
        self.scanned = 0;
        self.line_start = 0;
        self.line_scan = match step {
            Step::Garbage(bytes) => self.line_scan.after(bytes),
            _ => LineScan::default(),
        };
        match step {
            Step::NeedBytes(_) | Step::NeedLine | Step::SplitFrame(_) => Ok(0),
            Step::Blank(bytes) => Ok(bytes),
            Step::Garbage(bytes) => {
                self.out_of_sync = true;
                f(Item::Garbage { bytes }, bytes);
                self.count_useless(bytes)?;
                Ok(bytes)
            }
            Step::Frame(channel, length) => {
                self.out_of_sync = false;
                let item = Item::Frame {
                    channel,
                    payload: &data[FRAME_HEAD..FRAME_HEAD + length],
                    length,
                };
                f(item, FRAME_HEAD + length);
                if length < SHORTEST_PACKET {
                    self.count_useless(FRAME_HEAD + length)?;
                }
                Ok(FRAME_HEAD + length)
            }
            Step::Message(message) => {
                self.out_of_sync = false;
                let end = message.head_length + message.body_length;
                steps::count_bytes(end);
                let body = data[message.head_length..end].to_vec();
                let item = match message.head {
                    Head::Request(request) => Item::Request(Request { body, ..request }),
                    Head::Response(response) => Item::Response(Response { body, ..response }),
                };
                f(item, end);
                self.count_message()?;
                Ok(end)
            }
            Step::Malformed(malformed, length) => {
                self.out_of_sync = false;
                f(Item::Malformed(malformed), length);
                self.count_message()?;
                Ok(length)
            }
            Step::Overflow(what) => Err(self.fail(Overflow::TooLarge(what))),
        }
    }

    fn count_message(&mut self) -> Result<(), Overflow> {
        self.messages += 1;
        self.check(self.messages <= MESSAGES_PER_READ_MAX, Overflow::Messages)
    }

    fn count_useless(&mut self, bytes: usize) -> Result<(), Overflow> {
        self.useless += bytes;
        self.check(self.useless <= USELESS_BYTES_MAX, Overflow::Useless)
    }

    fn check(&mut self, is_within_limit: bool, overflow: Overflow) -> Result<(), Overflow> {
        match is_within_limit || self.is_unbounded() {
            true => Ok(()),
            false => Err(self.fail(overflow)),
        }
    }

    fn fail(&mut self, overflow: Overflow) -> Overflow {
        self.overflow = Some(overflow);
        self.buffer = Vec::new();
        self.item_start = 0;
        overflow
    }

    /// Returns a decoder without limits on messages and garbage.
    #[cfg(test)]
    pub(super) fn unbounded() -> Decoder {
        Decoder {
            unbounded: true,
            ..Decoder::default()
        }
    }

    #[cfg(test)]
    fn is_unbounded(&self) -> bool {
        self.unbounded
    }

    #[cfg(not(test))]
    fn is_unbounded(&self) -> bool {
        false
    }

    /// Examines the beginning of `data`, which is not empty. If called again with the same
    /// beginning and more bytes, continues where it stopped.
    fn step(&mut self, data: &[u8]) -> Step {
        if self.pending_message.is_some() {
            return self.take_complete(data);
        }
        match data[0] {
            b'$' => self.frame(data),
            b'\r' | b'\n' if !self.out_of_sync => {
                let others = data.iter().position(|b| !matches!(b, b'\r' | b'\n'));
                let blank = others.unwrap_or(data.len());
                steps::count_bytes(blank);
                Step::Blank(blank)
            }
            first if start_line::can_begin_with(first, self.out_of_sync) => self.message(data),
            _ => Step::Garbage(self.garbage_length(data)),
        }
    }

    fn frame(&mut self, data: &[u8]) -> Step {
        if data.len() < FRAME_HEAD {
            return Step::NeedBytes(FRAME_HEAD - data.len());
        }
        let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
        if self.out_of_sync {
            // Any byte of garbage may be a `$`. An RTP or RTCP packet begins with version 2
            // (RFC 3550, 5.1 and 6.4.1).
            if length < SHORTEST_PACKET {
                return Step::Garbage(self.garbage_length(data));
            }
            match data.get(FRAME_HEAD) {
                None => return Step::NeedBytes(1),
                Some(first) if first >> 6 != 2 => return Step::Garbage(self.garbage_length(data)),
                Some(_) => {}
            }
        }
        let missing = match (FRAME_HEAD + length).checked_sub(data.len()) {
            None | Some(0) => return Step::Frame(data[1], length),
            Some(missing) => missing,
        };
        if self.keep_frames_whole || length <= SPLIT_FRAME_KEPT {
            return Step::NeedBytes(missing);
        }
        match data[FRAME_HEAD..] {
            [] => Step::NeedBytes(2),
            [_] => Step::NeedBytes(1),
            [first, second, ..] if header_suffices(first, second) => {
                match (FRAME_HEAD + SPLIT_FRAME_KEPT).checked_sub(data.len()) {
                    None | Some(0) => Step::SplitFrame(missing),
                    Some(missing) => Step::NeedBytes(missing),
                }
            }
            _ => Step::NeedBytes(missing),
        }
    }

    fn message(&mut self, data: &[u8]) -> Step {
        if self.line_start == 0
            && let Err(step) = self.start_line(data)
        {
            return step;
        }
        loop {
            let Some(end) = steps::find(&data[self.scanned..], b'\n') else {
                self.scanned = data.len();
                return match data.len() > MAX_HEAD {
                    true => Step::Overflow("head too long"),
                    false => Step::NeedLine,
                };
            };
            let end = self.scanned + end;
            if end >= MAX_HEAD {
                return Step::Overflow("head too long");
            }
            if matches!(&data[self.line_start..end], b"" | b"\r") {
                return self.head(data, end + 1);
            }
            self.line_start = end + 1;
            self.scanned = end + 1;
        }
    }

    /// Recognises a start line, which headers follow. Returns the step for any other bytes as an
    /// error.
    fn start_line(&mut self, data: &[u8]) -> Result<(), Step> {
        // Most garbage is recognised by its first bytes.
        if !start_line::may_begin(data, self.out_of_sync) {
            return Err(Step::Garbage(self.garbage_length(data)));
        }
        self.line_scan.advance(data);
        match self.line_scan.end() {
            Some((LineEnd::InvalidByte, at)) if at <= MAX_START_LINE => {
                Err(Step::Garbage(self.garbage_length(data)))
            }
            Some((LineEnd::LineFeed(version), at)) if at < MAX_START_LINE => {
                if !start_line::is_start_line(&data[..at], version) {
                    return Err(Step::Garbage(self.garbage_length(data)));
                }
                self.line_start = at + 1;
                self.scanned = at + 1;
                Ok(())
            }
            None if data.len() <= MAX_START_LINE => Err(Step::NeedLine),
            _ => Err(Step::Garbage(MAX_START_LINE)),
        }
    }

    fn head(&mut self, data: &[u8], head_length: usize) -> Step {
        steps::count_bytes(head_length);
        match parse_head(&data[..head_length]) {
            Ok((head, body_length)) => {
                debug_assert!(body_length <= MAX_BODY, "parse_head checks it");
                self.pending_message = Some(Box::new(PendingMessage {
                    head,
                    head_length,
                    body_length,
                }));
                self.take_complete(data)
            }
            Err(HeadError::Malformed(malformed)) => Step::Malformed(malformed, head_length),
            Err(HeadError::TooLarge(what)) => Step::Overflow(what),
        }
    }

    fn take_complete(&mut self, data: &[u8]) -> Step {
        match self.pending_message.take() {
            Some(body) if data.len() >= body.head_length + body.body_length => Step::Message(body),
            Some(body) => {
                let missing = body.head_length + body.body_length - data.len();
                self.pending_message = Some(body);
                Step::NeedBytes(missing)
            }
            None => Step::NeedBytes(1),
        }
    }

    /// Returns the number of bytes to skip from the beginning of `data` to the next possible
    /// beginning of an item.
    fn garbage_length(&self, data: &[u8]) -> usize {
        let skipped = (1..data.len())
            .find(|&at| data[at] == b'$' || start_line::may_begin_known(&data[at..]))
            .unwrap_or(data.len());
        steps::count_bytes(skipped);
        skipped
    }
}

/// Returns whether a packet that begins with these bytes is an RTP packet of which only the header
/// matters: it has no padding, whose length would be its last byte (RFC 3550, 5.1), and is not
/// RTCP, whose packet types are in one range (RFC 5761, 4).
fn header_suffices(first: u8, second: u8) -> bool {
    first >> 6 == 2 && first & 0x20 == 0 && !matches!(second, 192..=223)
}
