//! Streams that clients publish, and the messages on their way to those that play.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::rtmp::codec::message::Kind;
use crate::rtmp::flow::What;

/// How many streams can be published at a time.
const LIVES_MAX: usize = 64;
/// How many messages of a stream are kept for players that have not taken them yet, and how many
/// bytes. Who falls behind farther loses the oldest.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

/// A message that is passed on.
#[derive(Clone, Debug)]
pub(super) struct Relayed {
    pub(super) kind: Kind,
    pub(super) what: What,
    pub(super) timestamp: u32,
    pub(super) payload: Bytes,
}

/// A stream that is published.
#[derive(Debug, Default)]
struct Live {
    /// Which of the streams that can be it is.
    index: usize,
    /// What players need before the first frame: metadata, of video, of audio.
    before: [Option<Relayed>; 3],
    messages: VecDeque<Relayed>,
    bytes: usize,
    /// The number of the first message that is kept.
    first: u64,
}

/// All streams that are published, by application and name.
#[derive(Debug, Default)]
pub(super) struct PublishedStreams(Mutex<BTreeMap<String, Live>>);

/// The topic on which it is said that a stream has more, or is over.
pub(super) fn topic(index: usize) -> String {
    format!("rtmp-server/{index}")
}

impl PublishedStreams {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        // Each change is whole in itself, so that one that panicked has left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream in, where there is room for it and nobody else publishes it; gives its number.
    pub(super) fn begin(&self, name: &str) -> Option<usize> {
        let mut all = self.all();
        let free = |index: &usize| all.values().all(|live| live.index != *index);
        let index = (0..LIVES_MAX).find(free)?;
        if all.contains_key(name) {
            return None;
        }
        let live = Live {
            index,
            ..Live::default()
        };
        all.insert(name.to_owned(), live);
        Some(index)
    }

    /// A stream is published no more.
    pub(super) fn end(&self, name: &str) {
        self.all().remove(name);
    }

    /// Adds a message of a stream. `before` says where players that begin later need it too.
    pub(super) fn push(&self, name: &str, message: Relayed, before: Option<usize>) {
        let mut all = self.all();
        let Some(live) = all.get_mut(name) else {
            return;
        };
        if let Some(kept) = before.and_then(|place| live.before.get_mut(place)) {
            *kept = Some(message.clone());
        }
        live.bytes += message.payload.len();
        live.messages.push_back(message);
        while live.messages.len() > MESSAGES_MAX || live.bytes > BYTES_MAX {
            let Some(oldest) = live.messages.pop_front() else {
                break;
            };
            live.bytes -= oldest.payload.len();
            live.first += 1;
        }
    }

    /// What a player needs first, the number of the message that follows, and the number of the
    /// stream; none where nobody publishes it.
    pub(super) fn join(&self, name: &str) -> Option<(Vec<Relayed>, u64, usize)> {
        let all = self.all();
        let live = all.get(name)?;
        let next = live.first + live.messages.len() as u64;
        Some((
            live.before.iter().flatten().cloned().collect(),
            next,
            live.index,
        ))
    }

    /// The message of that number, or the oldest that is kept; and its number.
    pub(super) fn get(&self, name: &str, number: u64) -> Option<(Relayed, u64)> {
        let all = self.all();
        let live = all.get(name)?;
        let number = number.max(live.first);
        let place = usize::try_from(number - live.first).ok()?;
        Some((live.messages.get(place)?.clone(), number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(timestamp: u32, length: usize) -> Relayed {
        Relayed {
            kind: Kind::Video,
            what: What::Video,
            timestamp,
            payload: vec![0; length].into(),
        }
    }

    #[test]
    fn who_falls_behind_loses_the_oldest() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a/b"), Some(0));
        assert_eq!(streams.begin("a/b"), None);
        assert_eq!(streams.begin("a/c"), Some(1));
        streams.push("a/b", message(0, 10), Some(1));
        let (before, next, index) = streams.join("a/b").expect("it is there");
        assert_eq!((before.len(), next, index), (1, 1, 0));
        for timestamp in 1..20 {
            streams.push("a/b", message(timestamp, 1 << 20), None);
        }
        let (first, number) = streams.get("a/b", next).expect("it is there");
        assert_eq!((first.timestamp, number), (12, 12));
        assert!(streams.get("a/b", 20).is_none());
        streams.end("a/b");
        assert!(streams.join("a/b").is_none() && streams.get("a/b", 19).is_none());
    }

    #[test]
    fn streams_are_bounded() {
        let streams = PublishedStreams::default();
        for number in 0..LIVES_MAX {
            assert!(streams.begin(&number.to_string()).is_some());
        }
        assert_eq!(streams.begin("more"), None);
    }
}
