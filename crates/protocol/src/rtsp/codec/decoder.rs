//! The byte stream of a connection, taken apart.

use super::message::{Head, HeadError, Verdict, parse_head, start_line};
use super::{Item, MAX_BODY, MAX_HEAD, MAX_START_LINE, Malformed, Method};

/// A message is larger than is taken. Where the next one begins is not known, so the connection can
/// be used no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// What is too large.
    pub what: &'static str,
}

/// Takes the byte stream of one connection apart.
///
/// Frames that a read holds as a whole are handed out where they lie, without a copy. Of a packet of
/// RTP that two reads share only its beginning is kept, [`FRAME_KEPT`] bytes, and the rest is counted
/// past. Anything else that is not complete is kept, at most a head and a body of the largest size
/// taken, until it is. Between items the decoder holds at most [`LASTING`] bytes, so that frames cost
/// no allocation, and connections that wait little memory.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The unfinished item, from its first byte; of a frame that is counted past its beginning.
    tail: Vec<u8>,
    /// How many bytes of the frame in `tail` are yet to be counted past, where that is done.
    ahead: Option<usize>,
    /// Whether the stream is lost: the last bytes were garbage.
    lost: bool,
    /// How much of the unfinished item was searched for the end of its head.
    scanned: usize,
    /// Where in the unfinished item the line begins that was being searched.
    line: usize,
    /// Head and lengths of the message whose body is not there yet.
    body: Option<Box<Awaited>>,
    /// Whether packets that two reads share are kept whole.
    whole: bool,
    /// Set for good when a message was too large.
    overflow: Option<Overflow>,
}

#[derive(Debug)]
struct Awaited {
    head: Head,
    head_length: usize,
    body_length: usize,
}

/// What the beginning of some bytes is.
enum Step {
    /// Nothing that could be told yet: so many more bytes are needed at least.
    More(usize),
    /// Nothing that could be told before the line is at its end.
    MoreLine,
    /// Blank lines between messages.
    Blank(usize),
    /// Garbage.
    Garbage(usize),
    /// A frame: the channel and the length of its payload.
    Frame(u8, usize),
    /// The beginning of a frame, as much as is wanted of it, and how much of it is yet to come.
    Cut(usize),
    /// A whole message: its head, and the lengths of head and body.
    Message(Box<Awaited>),
    /// A head that cannot be trusted, and its length.
    Malformed(Malformed, usize),
    /// Too large.
    Overflow(&'static str),
}

/// The bytes before the payload of a frame: `$`, the channel, the length.
const FRAME_HEAD: usize = 4;
/// No RTP or RTCP packet is shorter.
const SHORTEST_PACKET: usize = 8;

/// How much of the payload of a cut frame with RTP is kept: the fixed header, 15 contributing sources and
/// the head of an extension (RFC 3550, 5.1 and 5.3.1), which is all that a header has; and, of packets without them, a
/// time code behind parameter sets.
pub const FRAME_KEPT: usize = 96;

/// How much memory a decoder keeps between items: enough for cut frames with RTCP or with padding.
pub const LASTING: usize = 2 * 1024;

impl Decoder {
    /// A decoder at the beginning of a connection.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// From now on keeps packets of RTP that two reads share as a whole, for who needs more of them than the beginning.
    /// It then holds up to 64 KiB between items.
    pub fn keep_frames_whole(&mut self) {
        self.whole = true;
    }

    /// Takes in what a read gave, and hands each item to `f`, in order.
    ///
    /// After an error it takes nothing more in, and gives the same error again.
    pub fn feed(&mut self, bytes: &[u8], mut f: impl FnMut(Item<'_>)) -> Result<(), Overflow> {
        self.feed_with_ends(bytes, |item, _| f(item))
    }

    /// As [`Decoder::feed`]; `f` is told as well how many of the bytes there had to be for the item to be whole.
    #[inline]
    pub fn feed_with_ends(
        &mut self,
        bytes: &[u8],
        mut f: impl FnMut(Item<'_>, usize),
    ) -> Result<(), Overflow> {
        if let Some(overflow) = self.overflow {
            return Err(overflow);
        }
        let mut rest = bytes;
        // First the item that the reads before left unfinished.
        while !self.tail.is_empty() {
            if let Some(ahead) = self.ahead {
                let passed = ahead.min(rest.len());
                rest = &rest[passed..];
                if passed < ahead {
                    self.ahead = Some(ahead - passed);
                    return Ok(());
                }
                self.hand_out_cut(bytes.len() - rest.len(), &mut f);
                continue;
            }
            let tail = std::mem::take(&mut self.tail);
            let step = self.step(&tail);
            self.tail = tail;
            let wanted = match step {
                Step::More(wanted) => wanted.min(rest.len()),
                Step::MoreLine => rest
                    .iter()
                    .position(|&b| b == b'\n')
                    .map_or(rest.len(), |end| end + 1)
                    .min(MAX_HEAD),
                Step::Cut(ahead) => {
                    self.tail.truncate(FRAME_HEAD + FRAME_KEPT);
                    self.ahead = Some(ahead);
                    continue;
                }
                done => {
                    let tail = std::mem::take(&mut self.tail);
                    let end = bytes.len() - rest.len();
                    let used = self.hand_out(done, &tail, |item, _| f(item, end))?;
                    self.tail = tail;
                    self.drop_beginning(used);
                    continue;
                }
            };
            if wanted == 0 {
                return Ok(());
            }
            self.tail.extend_from_slice(&rest[..wanted]);
            rest = &rest[wanted..];
        }
        // Then whatever lies in the read as a whole.
        loop {
            rest = self.frames(rest, bytes.len(), &mut f);
            if rest.is_empty() {
                break;
            }
            match self.step(rest) {
                Step::More(_) | Step::MoreLine => {
                    self.keep(rest);
                    break;
                }
                Step::Cut(ahead) => {
                    self.keep(&rest[..FRAME_HEAD + FRAME_KEPT]);
                    self.ahead = Some(ahead);
                    break;
                }
                done => {
                    let begin = bytes.len() - rest.len();
                    let used = self.hand_out(done, rest, |item, length| f(item, begin + length))?;
                    rest = &rest[used..];
                }
            }
        }
        Ok(())
    }

    /// How many bytes are kept for an item that is not complete.
    pub fn kept(&self) -> usize {
        self.tail.len()
    }

    /// How many bytes of memory are held for items, in use or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.tail.capacity()
    }

    /// Hands out the whole frames that `data` begins with, and says what follows them. The hot path of
    /// media: where the stream is in order, there is little else in a read.
    #[inline]
    fn frames<'a>(
        &self,
        mut data: &'a [u8],
        end: usize,
        f: &mut impl FnMut(Item<'_>, usize),
    ) -> &'a [u8] {
        while let [b'$', channel, high, low, behind @ ..] = data
            && !self.lost
        {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
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

    /// Hands out the beginning of the frame whose rest has been counted past.
    fn hand_out_cut(&mut self, end: usize, f: &mut impl FnMut(Item<'_>, usize)) {
        self.ahead = None;
        self.lost = false;
        let item = Item::Frame {
            channel: self.tail[1],
            payload: &self.tail[FRAME_HEAD..],
            length: usize::from(u16::from_be_bytes([self.tail[2], self.tail[3]])),
        };
        f(item, end);
        self.drop_beginning(self.tail.len());
    }

    /// Drops what has been handed out, and memory that only something large needed.
    fn drop_beginning(&mut self, used: usize) {
        self.tail.drain(..used);
        if self.tail.is_empty() && self.tail.capacity() > LASTING {
            self.tail = Vec::new();
        }
    }

    /// Keeps the beginning of an item.
    fn keep(&mut self, beginning: &[u8]) {
        // Once, and not in small steps, what cut frames will go on needing.
        self.tail.reserve(FRAME_HEAD + FRAME_KEPT);
        self.tail.extend_from_slice(beginning);
    }

    /// Hands out what `step` found at the beginning of `data` with its length, and says how long it is.
    fn hand_out(
        &mut self,
        step: Step,
        data: &[u8],
        mut f: impl FnMut(Item<'_>, usize),
    ) -> Result<usize, Overflow> {
        self.scanned = 0;
        self.line = 0;
        match step {
            Step::More(_) | Step::MoreLine | Step::Cut(_) => Ok(0),
            Step::Blank(bytes) => Ok(bytes),
            Step::Garbage(bytes) => {
                self.lost = true;
                f(Item::Garbage { bytes }, bytes);
                Ok(bytes)
            }
            Step::Frame(channel, length) => {
                self.lost = false;
                let item = Item::Frame {
                    channel,
                    payload: &data[FRAME_HEAD..FRAME_HEAD + length],
                    length,
                };
                f(item, FRAME_HEAD + length);
                Ok(FRAME_HEAD + length)
            }
            Step::Message(message) => {
                self.lost = false;
                let end = message.head_length + message.body_length;
                let body = data[message.head_length..end].to_vec();
                let item = match message.head {
                    Head::Request(mut request) => {
                        request.body = body;
                        Item::Request(request)
                    }
                    Head::Response(mut response) => {
                        response.body = body;
                        Item::Response(response)
                    }
                };
                f(item, end);
                Ok(end)
            }
            Step::Malformed(malformed, length) => {
                self.lost = false;
                f(Item::Malformed(malformed), length);
                Ok(length)
            }
            Step::Overflow(what) => {
                let overflow = Overflow { what };
                self.overflow = Some(overflow);
                self.tail = Vec::new();
                Err(overflow)
            }
        }
    }

    /// What stands at the beginning of `data`, which is not empty. When called again with the same
    /// beginning and more behind it, goes on where it stopped.
    fn step(&mut self, data: &[u8]) -> Step {
        if self.body.is_some() {
            return self.awaited(data);
        }
        match data[0] {
            b'$' => self.frame(data),
            b'\r' | b'\n' if !self.lost => Step::Blank(
                data.iter()
                    .position(|b| !matches!(b, b'\r' | b'\n'))
                    .unwrap_or(data.len()),
            ),
            first if can_begin(first, self.lost) => self.message(data),
            _ => Step::Garbage(self.skip(data)),
        }
    }

    fn frame(&mut self, data: &[u8]) -> Step {
        if data.len() < FRAME_HEAD {
            return Step::More(FRAME_HEAD - data.len());
        }
        let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
        if self.lost {
            // Any byte of garbage may be a `$`. A packet of RTP or RTCP begins with version 2
            // (RFC 3550, 5.1 and 6.4.1).
            if length < SHORTEST_PACKET {
                return Step::Garbage(self.skip(data));
            }
            match data.get(FRAME_HEAD) {
                None => return Step::More(1),
                Some(first) if first >> 6 != 2 => return Step::Garbage(self.skip(data)),
                Some(_) => {}
            }
        }
        let missing = match (FRAME_HEAD + length).checked_sub(data.len()) {
            None | Some(0) => return Step::Frame(data[1], length),
            Some(missing) => missing,
        };
        if self.whole || length <= FRAME_KEPT {
            return Step::More(missing);
        }
        match data[FRAME_HEAD..] {
            [] => Step::More(2),
            [_] => Step::More(1),
            [first, second, ..] if header_suffices(first, second) => {
                match (FRAME_HEAD + FRAME_KEPT).checked_sub(data.len()) {
                    None | Some(0) => Step::Cut(missing),
                    Some(missing) => Step::More(missing),
                }
            }
            _ => Step::More(missing),
        }
    }

    fn message(&mut self, data: &[u8]) -> Step {
        loop {
            let end = data[self.scanned..].iter().position(|&b| b == b'\n');
            let Some(end) = end.map(|end| self.scanned + end) else {
                self.scanned = data.len();
                if self.line == 0 {
                    let known = start_line(data, false, self.lost);
                    if known == Verdict::No {
                        return Step::Garbage(self.skip(data));
                    }
                    if data.len() > MAX_START_LINE {
                        return Step::Garbage(MAX_START_LINE);
                    }
                } else if data.len() > MAX_HEAD {
                    return Step::Overflow("head too long");
                }
                return Step::MoreLine;
            };
            let line = &data[self.line..end];
            if self.line == 0 {
                if end >= MAX_START_LINE {
                    // Unless its first bytes say already that it is none.
                    let beginning = &data[..=MAX_START_LINE];
                    return Step::Garbage(match start_line(beginning, false, self.lost) {
                        Verdict::No => self.skip(data),
                        _ => MAX_START_LINE,
                    });
                }
                if start_line(line, true, self.lost) != Verdict::Yes {
                    return Step::Garbage(self.skip(data));
                }
            } else if end >= MAX_HEAD {
                return Step::Overflow("head too long");
            } else if matches!(line, b"" | b"\r") {
                return self.head(data, end + 1);
            }
            self.line = end + 1;
            self.scanned = end + 1;
        }
    }

    fn head(&mut self, data: &[u8], head_length: usize) -> Step {
        match parse_head(&data[..head_length]) {
            Ok((head, body_length)) => {
                debug_assert!(body_length <= MAX_BODY, "parse_head checks it");
                self.body = Some(Box::new(Awaited {
                    head,
                    head_length,
                    body_length,
                }));
                self.awaited(data)
            }
            Err(HeadError::Malformed(malformed)) => Step::Malformed(malformed, head_length),
            Err(HeadError::TooLarge(what)) => Step::Overflow(what),
        }
    }

    fn awaited(&mut self, data: &[u8]) -> Step {
        match self.body.take() {
            Some(body) if data.len() >= body.head_length + body.body_length => Step::Message(body),
            Some(body) => {
                let missing = body.head_length + body.body_length - data.len();
                self.body = Some(body);
                Step::More(missing)
            }
            None => Step::More(1),
        }
    }

    /// How many bytes to skip from the beginning of `data` to the next that may begin an item.
    fn skip(&self, data: &[u8]) -> usize {
        (1..data.len())
            .find(|&at| data[at] == b'$' || may_be_known(&data[at..]))
            .unwrap_or(data.len())
    }
}

/// Whether a packet that begins with these bytes is one of RTP of which nothing behind its header matters:
/// it has no padding, whose length is its last byte (RFC 3550, 5.1), and is not of RTCP, whose packet
/// types fall into one range (RFC 5761, 4).
fn header_suffices(first: u8, second: u8) -> bool {
    first >> 6 == 2 && first & 0x20 == 0 && !matches!(second, 192..=223)
}

/// Whether a known message may begin here, as far as the bytes go.
fn may_be_known(data: &[u8]) -> bool {
    let agrees = |name: &[u8]| {
        let common = name.len().min(data.len());
        name[..common] == data[..common]
    };
    can_begin(data[0], true)
        && (agrees(b"RTSP/")
            || Method::KNOWN
                .iter()
                .any(|known| agrees(known.name().as_bytes())))
}

/// Whether a message can begin with this byte; where the stream is lost, only a known one.
fn can_begin(byte: u8, lost: bool) -> bool {
    if lost {
        // The first letters of RTSP and of every known method.
        matches!(byte, b'A' | b'D' | b'G' | b'O' | b'P' | b'R' | b'S' | b'T')
    } else {
        byte.is_ascii_alphabetic()
    }
}
