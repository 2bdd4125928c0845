//! The rest of a resource that a hint names without its end (rfc8216bis, 4.4.5.3): the parts of a
//! segment, one after the other as they are made. Where one of them ends is only known once the
//! playlist lists it, so the bytes of parts to come are kept until then.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use super::hints::count_wasted;
use super::{Track, Wanted, WantedPiece};
use crate::config::ClientConfig;
use crate::metrics as m;
use crate::playlist::{Extent, Hint, HintKind, Piece, Segment};
use session::Context;

/// Maximum number of bytes that are kept.
const BYTES_MAX: usize = 4 << 20;

/// Maximum number of arrival times that are kept. Bytes beyond them have the time of the last.
const TIMES_MAX: usize = 256;

/// The rest of a resource, as far as it has arrived and belongs to no part yet.
#[derive(Debug)]
pub(in crate::client) struct OpenRange {
    uri: Box<str>,
    /// Offset of the first byte that is kept.
    offset: u64,
    bytes: Vec<u8>,
    /// Lengths of the bytes that had arrived at a time, from the first byte that is kept.
    times: VecDeque<(usize, Time)>,
    /// Time of the request, until its first part is taken.
    requested_at: Option<Time>,
}

/// A part that has arrived and that the playlist lists.
#[derive(Debug)]
pub(in crate::client) struct ArrivedPart {
    pub(in crate::client) piece: WantedPiece,
    pub(in crate::client) bytes: Vec<u8>,
    /// Arrival of its last byte.
    pub(in crate::client) at: Time,
    /// Time from its first byte to its last one.
    pub(in crate::client) took: Duration,
    /// Time of the request, for its first part.
    pub(in crate::client) requested_at: Option<Time>,
}

/// Use of the bytes that are kept, according to the playlist.
#[derive(Debug)]
pub(in crate::client) enum Listed {
    /// The next part is not listed yet, or has not arrived to its end.
    NotYet,
    Part(Box<ArrivedPart>),
    /// The bytes do not belong to what is next.
    Useless,
}

impl OpenRange {
    /// Begins the range of a hint; `None` if the hint states its end.
    fn new(hint: &Hint, now: Time) -> Option<Box<OpenRange>> {
        let Extent::From(offset) = hint.extent else {
            return None;
        };
        Some(Box::new(OpenRange {
            uri: hint.uri.clone(),
            offset,
            bytes: Vec::new(),
            times: VecDeque::new(),
            requested_at: Some(now),
        }))
    }

    /// Number of bytes that are kept.
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Takes bytes, the last of which arrived at `at`. Returns `false` if they are too many.
    fn extend(&mut self, bytes: &[u8], at: Time) -> bool {
        if self.bytes.len() + bytes.len() > BYTES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(bytes);
        let is_full = self.times.len() == TIMES_MAX;
        match self.times.back_mut() {
            Some(last) if last.1 == at || is_full => {
                *last = (self.bytes.len(), at);
            }
            _ => self.times.push_back((self.bytes.len(), at)),
        }
        true
    }

    /// True if this part of a segment begins with the first byte that is kept.
    fn begins(&self, part: &Segment) -> bool {
        let offset = part.range.map(|range| range.offset);
        *self.uri == *part.uri && offset == Some(self.offset)
    }

    /// Takes this number of bytes from the beginning. Returns them with the arrival times of the
    /// first and the last.
    fn take(&mut self, length: usize) -> (Vec<u8>, Time, Time) {
        let rest = self.bytes.split_off(length);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        self.offset = self.offset.saturating_add(length as u64);
        let first = self.times.front().map_or(Time::ZERO, |(_, at)| *at);
        while self.times.front().is_some_and(|(end, _)| *end < length) {
            self.times.pop_front();
        }
        let last = self.times.front().map_or(first, |(_, at)| *at);
        self.times.retain(|(end, _)| *end > length);
        self.times.iter_mut().for_each(|(end, _)| *end -= length);
        (bytes, first, last)
    }
}

impl Track {
    /// Takes bytes of the body if its end is not stated. `arrived` returns when the first of them,
    /// up to a number, had arrived. Returns the number of bytes taken: others are too many.
    pub(in crate::client) fn extend_open_range(
        &mut self,
        bytes: &[u8],
        arrived: impl Fn(usize) -> Time,
    ) -> usize {
        let Some(open) = &mut self.open_range else {
            return bytes.len();
        };
        let mut taken = 0;
        while taken < bytes.len() {
            // Those that arrived together with the next one.
            let at = arrived(taken + 1);
            let (mut end, mut above) = (taken + 1, bytes.len() + 1);
            while end + 1 < above {
                let middle = usize::midpoint(end, above);
                match arrived(middle) == at {
                    true => end = middle,
                    false => above = middle,
                }
            }
            if !open.extend(&bytes[taken..end], at) {
                break;
            }
            taken = end;
        }
        taken
    }

    /// Begins to keep bytes if the request is for the rest of a resource.
    pub(in crate::client) fn begin_open_range(&mut self, wanted: &Wanted, now: Time) {
        self.open_range = match wanted {
            Wanted::Hint(hint) => OpenRange::new(hint, now),
            Wanted::Map(_) | Wanted::Piece(_) | Wanted::Key(_) => None,
        };
    }

    /// Gives up what is kept, and counts it as wasted. Returns `false` if nothing was to be kept.
    pub(in crate::client) fn waste_open_range(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(open) = self.open_range.take() else {
            return false;
        };
        match open.requested_at {
            Some(_) => count_wasted(cx, open.len()),
            // Parts of the response were used.
            None => cx.recorder.add(m::BYTES_WASTED, open.len()),
        }
        true
    }

    /// True if bytes of the rest of a resource are kept, or will be.
    pub(in crate::client) fn keeps_open_range(&self) -> bool {
        self.open_range.is_some()
    }

    /// True if the response is the rest of a resource.
    pub(in crate::client) fn receives_open_range(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|wanted| matches!(wanted, Wanted::Hint(hint) if hint.is_open()))
    }

    /// Compares the bytes that are kept with what the playlist lists. `None` if there are none, and
    /// none will come.
    pub(in crate::client) fn match_open_range(&mut self, config: &ClientConfig) -> Option<Listed> {
        let is_requested = self.receives_open_range();
        self.open_range
            .take_if(|open| !is_requested && open.bytes.is_empty());
        let open = self.open_range.as_ref()?;
        let kept = open.bytes.len();
        let Some((place, piece)) = self.piece(self.is_in_parts(config)) else {
            let is_over = self.playlist.as_ref().is_some_and(|own| own.is_ended);
            return Some(match is_over {
                true => Listed::Useless,
                false => Listed::NotYet,
            });
        };
        let media = piece.media();
        let has_map = media.map.as_ref().is_none_or(|map| self.has_map(map));
        // A key would have to be requested on the connection of the response.
        let is_plain = media.key.is_none();
        let is_next = matches!(piece, Piece::Part(_)) && !media.is_gap && open.begins(media);
        let length = media.range.map_or(u64::MAX, |range| range.length);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if !is_next || !has_map || !is_plain || kept < length && !is_requested {
            return Some(Listed::Useless);
        }
        if kept < length {
            return Some(Listed::NotYet);
        }
        let piece = WantedPiece::new(place, piece, true);
        let open = self.open_range.as_mut()?;
        let requested_at = open.requested_at.take();
        let (bytes, first, at) = open.take(length);
        if let Some(Wanted::Hint(hint)) = &mut self.wanted
            && is_requested
        {
            hint.extent = Extent::From(open.offset);
        }
        Some(Listed::Part(Box::new(ArrivedPart {
            piece,
            bytes,
            at,
            took: at.since(first),
            requested_at,
        })))
    }

    /// True if the complete response, the rest of a resource, held anything.
    pub(super) fn open_range_held_bytes(&self) -> bool {
        let open = self.open_range.as_ref();
        open.is_some_and(|open| open.requested_at.is_none() || !open.bytes.is_empty())
    }
}

impl Hint {
    /// True if it does not state where the part ends.
    pub(in crate::client) fn is_open(&self) -> bool {
        self.kind == HintKind::Part && matches!(self.extent, Extent::From(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playlist::Playlist;
    use kit::http1::Url;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    fn hint() -> Hint {
        Hint {
            kind: HintKind::Part,
            uri: "a".into(),
            extent: Extent::From(8),
        }
    }

    #[test]
    fn bytes_are_taken_with_their_arrival_times() {
        let mut open = OpenRange::new(&hint(), at(0)).expect("it has no end");
        for (bytes, milliseconds) in [("aa", 1), ("aa", 1), ("bb", 2), ("ccc", 3)] {
            assert!(open.extend(bytes.as_bytes(), at(milliseconds)));
        }
        assert_eq!(open.times.len(), 3);
        let mut take = |length| {
            let (bytes, first, last) = open.take(length);
            (String::from_utf8(bytes).expect("it is text"), first, last)
        };
        assert_eq!(take(4), ("aaaa".to_owned(), at(1), at(1)));
        assert_eq!(take(1), ("b".to_owned(), at(2), at(2)));
        assert_eq!(take(3), ("bcc".to_owned(), at(2), at(3)));
        assert_eq!(take(1), ("c".to_owned(), at(3), at(3)));
        assert_eq!((open.offset, open.len(), open.times.len()), (17, 0, 0));
    }

    #[test]
    fn offsets_end_with_the_largest_number() {
        let extent = Extent::From(u64::MAX);
        let mut open = OpenRange::new(&Hint { extent, ..hint() }, at(0)).expect("it has no end");
        assert!(open.extend(b"aaa", at(1)));
        open.take(2);
        assert_eq!((open.offset, open.len()), (u64::MAX, 1));
    }

    #[test]
    fn kept_bytes_and_times_are_bounded() {
        let mut open = OpenRange::new(&hint(), at(0)).expect("it has no end");
        let count = 2 * TIMES_MAX as u64;
        for milliseconds in 1..=count {
            assert!(open.extend(b"a", at(milliseconds)));
        }
        assert_eq!(open.times.len(), TIMES_MAX);
        let rest = vec![0; BYTES_MAX - open.bytes.len()];
        assert!(open.extend(&rest, at(count)));
        assert!(!open.extend(b"a", at(count)));
        assert_eq!(open.take(BYTES_MAX).1, at(1));
    }

    /// A track that has received 10 bytes from offset 8 of `a`, the first one at 5 ms and the last
    /// one at 7 ms, with a playlist of `lines`.
    fn track(lines: &str, is_requested: bool) -> Track {
        let text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=1\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=3\n{lines}"
        );
        let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes(), None) else {
            panic!("it is one");
        };
        let mut own = Track::new(Url::parse("http://h/a.m3u8").expect("a URL"));
        own.playlist = Some(*playlist);
        let wanted = Wanted::Hint(hint());
        own.begin_open_range(&wanted, at(0));
        own.wanted = is_requested.then_some(wanted);
        let arrived = |end: usize| if end <= 5 { at(5) } else { at(7) };
        assert_eq!(own.extend_open_range(&[b'a'; 10], arrived), 10);
        own
    }

    #[test]
    fn bytes_are_of_use_if_the_next_part_begins_with_them() {
        let part = |uri: &str, range: &str| {
            format!("#EXT-X-PART:DURATION=1,URI=\"{uri}\",BYTERANGE=\"{range}\"\n")
        };
        let own = part("a", "10@8");
        let (key, section) = ("METHOD=AES-128,URI=\"k\"", "URI=\"m\"");
        // Lines of the playlist, whether the request is under way, what is to happen.
        for (lines, is_requested, expected) in [
            (own.clone(), true, "part"),
            (own.clone(), false, "part"),
            (part("a", "9@8"), false, "part"),
            (String::new(), true, "wait"),
            (String::new(), false, "wait"),
            (part("a", "11@8"), true, "wait"),
            (part("a", "11@8"), false, "useless"),
            (part("a", "10@9"), true, "useless"),
            (part("b", "10@8"), true, "useless"),
            ("#EXT-X-ENDLIST\n".to_owned(), true, "useless"),
            (
                "#EXTINF:1,\n#EXT-X-BYTERANGE:10@8\na\n".to_owned(),
                true,
                "useless",
            ),
            (own.replace("\"\n", "\",GAP=YES\n"), true, "useless"),
            (format!("#EXT-X-KEY:{key}\n{own}"), true, "useless"),
            (
                format!("#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\"\n{own}"),
                true,
                "useless",
            ),
            (format!("#EXT-X-MAP:{section}\n{own}"), true, "useless"),
        ] {
            let mut track = track(&lines, is_requested);
            let found = match track.match_open_range(&ClientConfig::default()) {
                Some(Listed::Part(part)) => {
                    let both = (part.at, part.took);
                    assert_eq!(both, (at(7), Duration::from_millis(2)), "{lines}");
                    "part"
                }
                Some(Listed::NotYet) => "wait",
                Some(Listed::Useless) => "useless",
                None => "nothing",
            };
            assert_eq!(found, expected, "{lines}, {is_requested}");
        }
    }
}
