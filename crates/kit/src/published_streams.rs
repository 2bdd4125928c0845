//! Streams that clients publish to a reference server, with the items that players have not taken
//! yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of concurrently published streams.
const STREAMS_MAX: usize = 1000;
/// Maximum number of queued items of a stream, of bytes of a stream, and of bytes of all streams. A
/// player that falls further behind loses the oldest items.
pub(crate) const ITEMS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;
const ALL_BYTES_MAX: usize = 256 << 20;
/// Maximum number of items that a player needs before the others, such as metadata.
const INIT_ITEMS_MAX: usize = 3;

/// An item that is relayed.
pub trait RelayedItem: Clone {
    /// Size in bytes.
    fn bytes(&self) -> usize;
}

impl RelayedItem for bytes::Bytes {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A published stream.
#[derive(Debug)]
struct Stream<T> {
    /// Index among the streams that can exist, below [`STREAMS_MAX`].
    index: usize,
    /// Number among all streams since the start. It tells players of an earlier stream of the same
    /// name apart.
    serial: u64,
    /// Items that players need before the others.
    init_items: [Option<T>; INIT_ITEMS_MAX],
    /// Number of players. Without players no item is queued.
    players: usize,
    items: VecDeque<T>,
    bytes: usize,
    /// Number of the first queued item.
    first: u64,
}

/// All streams, and the number of their queued bytes.
#[derive(Debug)]
struct Streams<T> {
    all: BTreeMap<String, Stream<T>>,
    bytes: usize,
    /// Number of streams since the start.
    begun: u64,
}

/// Reason why a stream cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another client publishes it.
    Taken,
    /// The maximum number of streams is reached.
    Full,
}

/// Starting point of a player.
#[derive(Clone, Debug)]
pub struct JoinedPlayer<T> {
    /// Items that it needs first.
    pub init_items: Vec<T>,
    /// Number of the next item.
    pub next: u64,
    /// Index of the stream.
    pub index: usize,
    /// Serial number for [`PublishedStreams::leave`].
    pub serial: u64,
}

/// All published streams by name.
#[derive(Debug)]
pub struct PublishedStreams<T>(Mutex<Streams<T>>);

impl<T> Default for PublishedStreams<T> {
    fn default() -> PublishedStreams<T> {
        PublishedStreams(Mutex::new(Streams {
            all: BTreeMap::new(),
            bytes: 0,
            begun: 0,
        }))
    }
}

impl<T: RelayedItem> PublishedStreams<T> {
    fn streams(&self) -> MutexGuard<'_, Streams<T>> {
        // Each change is atomic, so a panic leaves no inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a stream if there is room and no other client publishes it. Returns its index.
    pub fn begin(&self, name: &str) -> Result<usize, Refusal> {
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
            init_items: [const { None }; INIT_ITEMS_MAX],
            players: 0,
            items: VecDeque::new(),
            bytes: 0,
            first: 0,
        };
        streams.all.insert(name.to_owned(), stream);
        Ok(index)
    }

    /// Ends a stream.
    pub fn end(&self, name: &str) {
        let mut streams = self.streams();
        if let Some(stream) = streams.all.remove(name) {
            streams.bytes -= stream.bytes;
        }
    }

    /// Adds an item to a stream. `before` is its position among the items that new players need
    /// first. Returns `true` if the stream has players.
    pub fn push(&self, name: &str, item: T, before: Option<usize>) -> bool {
        let mut streams = self.streams();
        let streams = &mut *streams;
        let Some(stream) = streams.all.get_mut(name) else {
            return false;
        };
        if let Some(kept) = before.and_then(|index| stream.init_items.get_mut(index)) {
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

    /// Returns `true` if the stream is published.
    pub fn is_published(&self, name: &str) -> bool {
        self.streams().all.contains_key(name)
    }

    /// Adds a player. Returns `None` if the stream is not published.
    pub fn join(&self, name: &str) -> Option<JoinedPlayer<T>> {
        let mut streams = self.streams();
        let stream = streams.all.get_mut(name)?;
        stream.players += 1;
        Some(JoinedPlayer {
            init_items: stream.init_items.iter().flatten().cloned().collect(),
            next: stream.first + stream.items.len() as u64,
            index: stream.index,
            serial: stream.serial,
        })
    }

    /// Removes a player from the stream with this name and serial number.
    pub fn leave(&self, name: &str, serial: u64) {
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

    /// Returns the item of this number, or the oldest queued one after it, with its number.
    pub fn get(&self, name: &str, number: u64) -> Option<(T, u64)> {
        let streams = self.streams();
        let stream = streams.all.get(name)?;
        let number = number.max(stream.first);
        let index = usize::try_from(number - stream.first).ok()?;
        Some((stream.items.get(index)?.clone(), number))
    }

    /// Returns the queued items from number `next` on, and the number after them. Items that are no
    /// longer queued are missing.
    pub fn items_from(&self, name: &str, next: u64) -> (Vec<T>, u64) {
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
    fn slow_player_loses_the_oldest_items() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a"), Ok(0));
        assert_eq!(streams.begin("a"), Err(Refusal::Taken));
        assert_eq!(streams.begin("b"), Ok(1));
        assert!(!streams.push("a", item(b"0"), Some(1)));
        let joined = streams.join("a").expect("the stream is published");
        assert_eq!(
            (joined.init_items.concat(), joined.next, joined.index),
            (b"0".to_vec(), 1, 0)
        );
        assert!(streams.push("a", item(b"1"), None) && streams.push("a", item(b"2"), None));
        let (items, next) = streams.items_from("a", 1);
        assert_eq!((items.concat(), next), (b"12".to_vec(), 3));
        assert_eq!(streams.items_from("a", 3), (Vec::new(), 3));
        assert_eq!(streams.get("a", 2), Some((item(b"2"), 2)));
        for _ in 0..ITEMS_MAX {
            assert!(streams.push("a", item(b"3"), None));
        }
        assert_eq!(streams.get("a", 1), Some((item(b"3"), 3)));
        let (items, next) = streams.items_from("a", 1);
        assert_eq!((items.len(), next), (ITEMS_MAX, 3 + ITEMS_MAX as u64));
        // Without players no item is queued, and numbers continue.
        streams.leave("a", joined.serial);
        assert_eq!(streams.items_from("a", next), (Vec::new(), next));
        assert_eq!(streams.join("a").map(|joined| joined.next), Some(next));
        streams.end("a");
        assert!(streams.join("a").is_none() && streams.get("a", next).is_none());
        assert_eq!(streams.streams().bytes, 0);
    }

    #[test]
    fn leaving_an_old_stream_does_not_affect_its_successor() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a"), Ok(0));
        let old = streams.join("a").expect("the stream is published");
        streams.end("a");
        assert_eq!(streams.begin("a"), Ok(0));
        let new = streams.join("a").expect("the stream returned");
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
        assert_eq!(streams.items_from("a", 0).0.len(), 8);
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
