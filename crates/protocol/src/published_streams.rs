//! Streams that clients publish to a reference server, and what of them is on its way to those that
//! play.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many streams can be published at a time.
const STREAMS_MAX: usize = 1000;
/// How many items of a stream are kept for players that have not taken them yet, how many bytes,
/// and how many bytes of all streams. A player that falls behind farther loses the oldest.
pub(crate) const ITEMS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;
const ALL_BYTES_MAX: usize = 256 << 20;
/// How many items players may need before the first that follows, such as metadata.
const BEFORE_MAX: usize = 3;

/// What is passed on.
pub(crate) trait Item: Clone {
    /// How many bytes it takes.
    fn bytes(&self) -> usize;
}

impl Item for bytes::Bytes {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A stream that is published.
#[derive(Debug)]
struct Stream<T> {
    /// Which of the streams that can be it is.
    index: usize,
    /// Which of all that ever were it is: who played the one before of that name is none of its
    /// players.
    serial: u64,
    /// What players need before the first item that follows.
    before: [Option<T>; BEFORE_MAX],
    /// How many play it. Nothing is kept for nobody.
    players: usize,
    items: VecDeque<T>,
    bytes: usize,
    /// The number of the first item that is kept.
    first: u64,
}

/// All streams, and how many bytes of them are kept.
#[derive(Debug)]
struct Streams<T> {
    all: BTreeMap<String, Stream<T>>,
    bytes: usize,
    /// How many there ever were.
    begun: u64,
}

/// Why a stream cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Somebody publishes it.
    Taken,
    /// There are as many as can be.
    Full,
}

/// What a player begins with.
#[derive(Clone, Debug)]
pub(crate) struct Joined<T> {
    /// What it needs first.
    pub(crate) before: Vec<T>,
    /// The number of the item that follows.
    pub(crate) next: u64,
    /// The number of the stream.
    pub(crate) index: usize,
    /// By which the player leaves it.
    pub(crate) serial: u64,
}

/// All streams that are published, by name.
#[derive(Debug)]
pub(crate) struct PublishedStreams<T>(Mutex<Streams<T>>);

impl<T> Default for PublishedStreams<T> {
    fn default() -> PublishedStreams<T> {
        PublishedStreams(Mutex::new(Streams {
            all: BTreeMap::new(),
            bytes: 0,
            begun: 0,
        }))
    }
}

impl<T: Item> PublishedStreams<T> {
    fn streams(&self) -> MutexGuard<'_, Streams<T>> {
        // Each change is whole in itself, so that one that panicked has left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream, if there is room and nobody else publishes it; returns its number.
    pub(crate) fn begin(&self, name: &str) -> Result<usize, Refusal> {
        let mut streams = self.streams();
        if streams.all.contains_key(name) {
            return Err(Refusal::Taken);
        }
        let used: BTreeSet<usize> = streams.all.values().map(|stream| stream.index).collect();
        let index = (0..STREAMS_MAX).find(|index| !used.contains(index));
        let index = index.ok_or(Refusal::Full)?;
        streams.begun += 1;
        let serial = streams.begun;
        let stream = Stream {
            index,
            serial,
            before: [const { None }; BEFORE_MAX],
            players: 0,
            items: VecDeque::new(),
            bytes: 0,
            first: 0,
        };
        streams.all.insert(name.to_owned(), stream);
        Ok(index)
    }

    /// A stream is published no more.
    pub(crate) fn end(&self, name: &str) {
        let mut streams = self.streams();
        if let Some(stream) = streams.all.remove(name) {
            streams.bytes -= stream.bytes;
        }
    }

    /// Adds an item of a stream. `before` says where players that begin later need it too. Says
    /// whether anybody plays it.
    pub(crate) fn push(&self, name: &str, item: T, before: Option<usize>) -> bool {
        let mut streams = self.streams();
        let streams = &mut *streams;
        let Some(stream) = streams.all.get_mut(name) else {
            return false;
        };
        if let Some(kept) = before.and_then(|place| stream.before.get_mut(place)) {
            *kept = Some(item.clone());
        }
        if stream.players == 0 {
            stream.first += 1;
            return false;
        }
        stream.bytes += item.bytes();
        streams.bytes += item.bytes();
        stream.items.push_back(item);
        while stream.items.len() > ITEMS_MAX
            || stream.bytes > BYTES_MAX
            || streams.bytes > ALL_BYTES_MAX
        {
            let Some(oldest) = stream.items.pop_front() else {
                break;
            };
            stream.bytes -= oldest.bytes();
            streams.bytes -= oldest.bytes();
            stream.first += 1;
        }
        true
    }

    /// Whether somebody publishes a stream.
    pub(crate) fn is_published(&self, name: &str) -> bool {
        self.streams().all.contains_key(name)
    }

    /// Somebody plays a stream from now on; none where nobody publishes it.
    pub(crate) fn join(&self, name: &str) -> Option<Joined<T>> {
        let mut streams = self.streams();
        let stream = streams.all.get_mut(name)?;
        stream.players += 1;
        Some(Joined {
            before: stream.before.iter().flatten().cloned().collect(),
            next: stream.first + stream.items.len() as u64,
            index: stream.index,
            serial: stream.serial,
        })
    }

    /// Somebody plays the stream no more that had that name and that serial number.
    pub(crate) fn leave(&self, name: &str, serial: u64) {
        let mut streams = self.streams();
        let streams = &mut *streams;
        let stream = streams.all.get_mut(name);
        let Some(stream) = stream.filter(|stream| stream.serial == serial) else {
            return;
        };
        stream.players = stream.players.saturating_sub(1);
        if stream.players == 0 {
            stream.first += stream.items.len() as u64;
            streams.bytes -= std::mem::take(&mut stream.bytes);
            stream.items.clear();
        }
    }

    /// The item of that number, or the oldest that is kept; and its number.
    pub(crate) fn get(&self, name: &str, number: u64) -> Option<(T, u64)> {
        let streams = self.streams();
        let stream = streams.all.get(name)?;
        let number = number.max(stream.first);
        let place = usize::try_from(number - stream.first).ok()?;
        Some((stream.items.get(place)?.clone(), number))
    }

    /// The items from that number on, and the number behind them. Those before that are not kept
    /// any more are missing.
    pub(crate) fn take(&self, name: &str, next: u64) -> (Vec<T>, u64) {
        let streams = self.streams();
        let Some(stream) = streams.all.get(name) else {
            return (Vec::new(), next);
        };
        let passed = usize::try_from(next.saturating_sub(stream.first)).unwrap_or(usize::MAX);
        let items = stream.items.iter().skip(passed).cloned().collect();
        let end = stream.first + stream.items.len() as u64;
        (items, end.max(next))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn item(bytes: &'static [u8]) -> Bytes {
        Bytes::from_static(bytes)
    }

    #[test]
    fn who_falls_behind_loses_the_oldest() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a"), Ok(0));
        assert_eq!(streams.begin("a"), Err(Refusal::Taken));
        assert_eq!(streams.begin("b"), Ok(1));
        assert!(!streams.push("a", item(b"0"), Some(1)));
        let joined = streams.join("a").expect("it is there");
        assert_eq!(
            (joined.before.concat(), joined.next, joined.index),
            (b"0".to_vec(), 1, 0)
        );
        assert!(streams.push("a", item(b"1"), None) && streams.push("a", item(b"2"), None));
        let (items, next) = streams.take("a", 1);
        assert_eq!((items.concat(), next), (b"12".to_vec(), 3));
        assert_eq!(streams.take("a", 3), (Vec::new(), 3));
        assert_eq!(streams.get("a", 2), Some((item(b"2"), 2)));
        for _ in 0..ITEMS_MAX {
            assert!(streams.push("a", item(b"3"), None));
        }
        assert_eq!(streams.get("a", 1), Some((item(b"3"), 3)));
        let (items, next) = streams.take("a", 1);
        assert_eq!((items.len(), next), (ITEMS_MAX, 3 + ITEMS_MAX as u64));
        // Nothing is kept for nobody, and numbers go on.
        streams.leave("a", joined.serial);
        assert_eq!(streams.take("a", next), (Vec::new(), next));
        assert_eq!(streams.join("a").map(|joined| joined.next), Some(next));
        streams.end("a");
        assert!(streams.join("a").is_none() && streams.get("a", next).is_none());
        assert_eq!(streams.streams().bytes, 0);
    }

    #[test]
    fn who_leaves_the_one_before_takes_nothing_from_who_plays_the_next() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a"), Ok(0));
        let old = streams.join("a").expect("it is there");
        streams.end("a");
        assert_eq!(streams.begin("a"), Ok(0));
        let new = streams.join("a").expect("it is there again");
        streams.leave("a", old.serial);
        assert!(streams.push("a", item(b"1"), None));
        assert_eq!(streams.get("a", new.next), Some((item(b"1"), new.next)));
        streams.leave("a", new.serial);
        assert!(!streams.push("a", item(b"2"), None));
    }

    #[test]
    fn bytes_are_bounded() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a"), Ok(0));
        assert!(streams.join("a").is_some());
        for _ in 0..20 {
            assert!(streams.push("a", Bytes::from(vec![0; 1 << 20]), None));
        }
        assert_eq!(streams.take("a", 0).0.len(), 8);
    }

    #[test]
    fn streams_are_bounded() {
        let streams = PublishedStreams::<Bytes>::default();
        for number in 0..STREAMS_MAX {
            assert_eq!(streams.begin(&number.to_string()), Ok(number));
        }
        assert_eq!(streams.begin("more"), Err(Refusal::Full));
    }
}
