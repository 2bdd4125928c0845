//! The byte stream of a connection, taken apart.

use super::message::{Head, HeadError, parse_head};
use super::start_line::{self, LineEnd, Scan};
use super::{Item, MAX_BODY, MAX_HEAD, MAX_START_LINE, Malformed};
use mediagen::steps;

/// Why a connection can be used no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// A message is larger than is taken: what of it is too large. Where the next one begins is not
    /// known.
    TooLarge(&'static str),
    /// One read brought more than [`MESSAGES_A_READ`] messages.
    Messages,
    /// More than [`USELESS_BYTES`] were neither a message nor a packet.
    Useless,
}

/// The most messages that one read may bring. A peer that waits for answers sends a handful; each
/// costs as much as hundreds of packets, so a peer that sends more at once would keep all others of
/// its worker waiting.
pub const MESSAGES_A_READ: usize = 256;

/// How many bytes of garbage and of frames too short for a packet may come. A quarter of the bytes
/// that are of use makes up for as many that are not, so that a stream with faults in it is borne
/// for as long as it lasts.
pub const USELESS_BYTES: usize = 64 * 1024;

/// Takes the byte stream of one connection apart.
///
/// Frames that a read holds as a whole are handed out where they lie, without a copy. Of a packet
/// of RTP that two reads share only its beginning is kept, [`FRAME_KEPT`] bytes, and the rest is
/// counted past. Anything else that is not complete is kept, at most a head and a body of the
/// largest size taken, until it is. Between items the decoder holds at most [`LASTING`] bytes, so
/// that frames cost no allocation, and connections that wait little memory.
///
/// Whatever comes, and in whatever pieces, each byte is looked at a bounded number of times: what
/// was found out about a line is kept when its beginning turns out to be garbage, and when more of
/// it comes. A peer that sends too many messages at once, or hardly anything of use, is not decoded
/// any further: see [`Overflow`].
#[derive(Debug, Default)]
pub struct Decoder {
    /// From `begin` on the unfinished item; of a frame that is counted past its beginning.
    tail: Vec<u8>,
    /// What is before it has been handed out.
    begin: usize,
    /// How many bytes of the frame in `tail` are yet to be counted past, where that is done.
    ahead: Option<usize>,
    /// Whether the stream is lost: the last bytes were garbage.
    lost: bool,
    /// What is known of the line with which the unfinished item begins, unless that is a start
    /// line.
    first: Scan,
    /// How much of the unfinished item was searched for the end of its head.
    scanned: usize,
    /// Where in the unfinished item the line begins that was being searched; 0 as long as the first
    /// is no start line.
    line: usize,
    /// Head and lengths of the message whose body is not there yet.
    body: Option<Box<Awaited>>,
    /// Whether packets that two reads share are kept whole.
    whole: bool,
    /// How many messages the running read brought.
    messages: usize,
    /// How many bytes were of no use, less what was made up for.
    useless: usize,
    /// Set for good when too much came.
    overflow: Option<Overflow>,
    /// Whether any number of messages and any garbage is taken.
    #[cfg(test)]
    unbounded: bool,
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

/// How much of the payload of a cut frame with RTP is kept: the fixed header, 15 contributing
/// sources and the head of an extension (RFC 3550, 5.1 and 5.3.1), which is all that a header has;
/// and, of packets without them, a time code behind parameter sets.
pub const FRAME_KEPT: usize = 96;

/// How much memory a decoder keeps between items: enough for cut frames with RTCP or with padding.
pub const LASTING: usize = 2 * 1024;

impl Decoder {
    /// A decoder at the beginning of a connection.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// From now on keeps packets of RTP that two reads share as a whole, for who needs more of them
    /// than the beginning. It then holds up to 64 KiB between items.
    pub fn keep_frames_whole(&mut self) {
        self.whole = true;
    }

    /// Takes in what a read gave, and hands each item to `f`, in order.
    ///
    /// What one call is given is one read. After an error it takes nothing more in, and gives the
    /// same error again.
    pub fn feed(&mut self, bytes: &[u8], mut f: impl FnMut(Item<'_>)) -> Result<(), Overflow> {
        self.feed_with_ends(bytes, |item, _| f(item))
    }

    /// As [`Decoder::feed`]; `f` is told as well how many of the bytes there had to be for the item
    /// to be whole.
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
        self.take(bytes, &mut f)?;
        let of_use = bytes.len().saturating_sub(self.useless - useless);
        self.useless = self.useless.saturating_sub(of_use / 4);
        Ok(())
    }

    #[inline]
    fn take(&mut self, bytes: &[u8], f: &mut impl FnMut(Item<'_>, usize)) -> Result<(), Overflow> {
        let mut rest = bytes;
        // First the item that the reads before left unfinished.
        while self.begin < self.tail.len() {
            if let Some(ahead) = self.ahead {
                let passed = ahead.min(rest.len());
                rest = &rest[passed..];
                if passed < ahead {
                    self.ahead = Some(ahead - passed);
                    return Ok(());
                }
                self.hand_out_cut(bytes.len() - rest.len(), f);
                continue;
            }
            let tail = std::mem::take(&mut self.tail);
            let step = self.step(&tail[self.begin..]);
            self.tail = tail;
            let wanted = match step {
                Step::More(wanted) => wanted.min(rest.len()),
                Step::MoreLine => {
                    let most = rest.len().min(MAX_HEAD);
                    steps::find(&rest[..most], b'\n').map_or(most, |end| end + 1)
                }
                Step::Cut(ahead) => {
                    self.tail.truncate(self.begin + FRAME_HEAD + FRAME_KEPT);
                    self.ahead = Some(ahead);
                    continue;
                }
                done => {
                    let tail = std::mem::take(&mut self.tail);
                    let end = bytes.len() - rest.len();
                    let item = &tail[self.begin..];
                    let used = self.hand_out(done, item, |item, _| f(item, end))?;
                    self.tail = tail;
                    self.drop_beginning(used);
                    continue;
                }
            };
            if wanted == 0 {
                return Ok(());
            }
            self.make_room();
            steps::took(wanted);
            self.tail.extend_from_slice(&rest[..wanted]);
            rest = &rest[wanted..];
        }
        // Then whatever lies in the read as a whole.
        loop {
            rest = self.frames(rest, bytes.len(), f);
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
        self.tail.len() - self.begin
    }

    /// How many bytes of memory are held for items, in use or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.tail.capacity()
    }

    /// Hands out the whole frames that `data` begins with, and says what follows them. The hot path
    /// of media: where the stream is in order, there is little else in a read.
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
            steps::took(FRAME_HEAD);
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

    /// Hands out the beginning of the frame whose rest has been counted past.
    fn hand_out_cut(&mut self, end: usize, f: &mut impl FnMut(Item<'_>, usize)) {
        self.ahead = None;
        self.lost = false;
        self.first = Scan::default();
        let frame = &self.tail[self.begin..];
        let item = Item::Frame {
            channel: frame[1],
            payload: &frame[FRAME_HEAD..],
            length: usize::from(u16::from_be_bytes([frame[2], frame[3]])),
        };
        f(item, end);
        self.drop_beginning(self.tail.len() - self.begin);
    }

    /// Drops what has been handed out, and memory that only something large needed.
    fn drop_beginning(&mut self, used: usize) {
        self.begin += used;
        if self.begin == self.tail.len() {
            self.begin = 0;
            self.tail.clear();
            if self.tail.capacity() > LASTING {
                self.tail = Vec::new();
            }
        }
    }

    /// Gives the room back of what has been handed out, once it is as much as what would have to be
    /// moved for it: so all moving together costs no more than what was handed out.
    fn make_room(&mut self) {
        let left = self.tail.len() - self.begin;
        if self.begin >= left {
            steps::took(left);
            self.tail.drain(..self.begin);
            self.begin = 0;
        }
    }

    /// Keeps the beginning of an item.
    fn keep(&mut self, beginning: &[u8]) {
        steps::took(beginning.len());
        // Once, and not in small steps, what cut frames will go on needing.
        self.tail.reserve(FRAME_HEAD + FRAME_KEPT);
        self.tail.extend_from_slice(beginning);
    }

    /// Hands out what `step` found at the beginning of `data` with its length, and says how long it
    /// is.
    fn hand_out(
        &mut self,
        step: Step,
        data: &[u8],
        mut f: impl FnMut(Item<'_>, usize),
    ) -> Result<usize, Overflow> {
        steps::took(1);
        self.scanned = 0;
        self.line = 0;
        self.first = match step {
            Step::Garbage(bytes) => self.first.behind(bytes),
            _ => Scan::default(),
        };
        match step {
            Step::More(_) | Step::MoreLine | Step::Cut(_) => Ok(0),
            Step::Blank(bytes) => Ok(bytes),
            Step::Garbage(bytes) => {
                self.lost = true;
                f(Item::Garbage { bytes }, bytes);
                self.of_no_use(bytes)?;
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
                if length < SHORTEST_PACKET {
                    self.of_no_use(FRAME_HEAD + length)?;
                }
                Ok(FRAME_HEAD + length)
            }
            Step::Message(message) => {
                self.lost = false;
                let end = message.head_length + message.body_length;
                steps::took(end);
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
                self.one_message_more()?;
                Ok(end)
            }
            Step::Malformed(malformed, length) => {
                self.lost = false;
                f(Item::Malformed(malformed), length);
                self.one_message_more()?;
                Ok(length)
            }
            Step::Overflow(what) => Err(self.give_up(Overflow::TooLarge(what))),
        }
    }

    fn one_message_more(&mut self) -> Result<(), Overflow> {
        self.messages += 1;
        match self.messages > MESSAGES_A_READ && !self.is_unbounded() {
            true => Err(self.give_up(Overflow::Messages)),
            false => Ok(()),
        }
    }

    fn of_no_use(&mut self, bytes: usize) -> Result<(), Overflow> {
        self.useless += bytes;
        match self.useless > USELESS_BYTES && !self.is_unbounded() {
            true => Err(self.give_up(Overflow::Useless)),
            false => Ok(()),
        }
    }

    fn give_up(&mut self, overflow: Overflow) -> Overflow {
        self.overflow = Some(overflow);
        self.tail = Vec::new();
        self.begin = 0;
        overflow
    }

    /// A decoder that takes any number of messages, and any garbage.
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

    /// What stands at the beginning of `data`, which is not empty. When called again with the same
    /// beginning and more behind it, goes on where it stopped.
    fn step(&mut self, data: &[u8]) -> Step {
        if self.body.is_some() {
            return self.awaited(data);
        }
        match data[0] {
            b'$' => self.frame(data),
            b'\r' | b'\n' if !self.lost => {
                let others = data.iter().position(|b| !matches!(b, b'\r' | b'\n'));
                let blank = others.unwrap_or(data.len());
                steps::took(blank);
                Step::Blank(blank)
            }
            first if start_line::can_begin(first, self.lost) => self.message(data),
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
        if self.line == 0
            && let Err(step) = self.start_line(data)
        {
            return step;
        }
        loop {
            let Some(end) = steps::find(&data[self.scanned..], b'\n') else {
                self.scanned = data.len();
                return match data.len() > MAX_HEAD {
                    true => Step::Overflow("head too long"),
                    false => Step::MoreLine,
                };
            };
            let end = self.scanned + end;
            if end >= MAX_HEAD {
                return Step::Overflow("head too long");
            }
            if matches!(&data[self.line..end], b"" | b"\r") {
                return self.head(data, end + 1);
            }
            self.line = end + 1;
            self.scanned = end + 1;
        }
    }

    /// Takes a start line, after which the headers come; else says what is there instead.
    fn start_line(&mut self, data: &[u8]) -> Result<(), Step> {
        // Most of what is garbage is told by its first bytes.
        if !start_line::may_begin(data, self.lost) {
            return Err(Step::Garbage(self.skip(data)));
        }
        self.first.go_on(data);
        match self.first.end() {
            Some((LineEnd::Never, at)) if at <= MAX_START_LINE => {
                Err(Step::Garbage(self.skip(data)))
            }
            Some((LineEnd::Here(version), at)) if at < MAX_START_LINE => {
                if !start_line::is_one(&data[..at], version) {
                    return Err(Step::Garbage(self.skip(data)));
                }
                self.line = at + 1;
                self.scanned = at + 1;
                Ok(())
            }
            None if data.len() <= MAX_START_LINE => Err(Step::MoreLine),
            _ => Err(Step::Garbage(MAX_START_LINE)),
        }
    }

    fn head(&mut self, data: &[u8], head_length: usize) -> Step {
        steps::took(head_length);
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
        let skipped = (1..data.len())
            .find(|&at| data[at] == b'$' || start_line::may_be_known(&data[at..]))
            .unwrap_or(data.len());
        steps::took(skipped);
        skipped
    }
}

/// Whether a packet that begins with these bytes is one of RTP of which nothing behind its header
/// matters: it has no padding, whose length is its last byte (RFC 3550, 5.1), and is not of RTCP,
/// whose packet types fall into one range (RFC 5761, 4).
fn header_suffices(first: u8, second: u8) -> bool {
    first >> 6 == 2 && first & 0x20 == 0 && !matches!(second, 192..=223)
}
