//! Streams that clients publish, and the messages on their way to those that play.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use measure::Time;

use crate::rtmp::codec::message::Kind;
use crate::rtmp::flow::What;

/// How many streams can be published at a time.
const LIVES_MAX: usize = 1000;
/// How many messages of a stream are kept for players that have not taken them yet, how many bytes,
/// and how many of all streams. Who falls behind farther loses the oldest.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;
const ALL_BYTES_MAX: usize = 256 << 20;

/// A message that is passed on.
#[derive(Clone, Debug)]
pub(super) struct Relayed {
    pub(super) kind: Kind,
    pub(super) what: What,
    /// When its last byte came.
    pub(super) at: Time,
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
    /// How many play it. Nothing is kept for nobody.
    players: usize,
    messages: VecDeque<Relayed>,
    bytes: usize,
    /// The number of the first message that is kept.
    first: u64,
}

/// All streams, and how many bytes of them are kept.
#[derive(Debug, Default)]
struct Lives {
    all: BTreeMap<String, Live>,
    bytes: usize,
}

/// Why a stream cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Somebody publishes it.
    Taken,
    /// There are as many as can be.
    Full,
}

/// All streams that are published, by application and name.
#[derive(Debug, Default)]
pub(super) struct PublishedStreams(Mutex<Lives>);

/// The topic on which it is said that a stream has more, or is over.
pub(super) fn topic(index: usize) -> String {
    format!("rtmp-server/{index}")
}

impl PublishedStreams {
    fn lives(&self) -> MutexGuard<'_, Lives> {
        // Each change is whole in itself, so that one that panicked has left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream in, where there is room for it and nobody else publishes it; gives its number.
    pub(super) fn begin(&self, name: &str) -> Result<usize, Refusal> {
        let mut lives = self.lives();
        if lives.all.contains_key(name) {
            return Err(Refusal::Taken);
        }
        let used: BTreeSet<usize> = lives.all.values().map(|live| live.index).collect();
        let index = (0..LIVES_MAX).find(|index| !used.contains(index));
        let index = index.ok_or(Refusal::Full)?;
        let live = Live {
            index,
            ..Live::default()
        };
        lives.all.insert(name.to_owned(), live);
        Ok(index)
    }

    /// A stream is published no more.
    pub(super) fn end(&self, name: &str) {
        let mut lives = self.lives();
        if let Some(live) = lives.all.remove(name) {
            lives.bytes -= live.bytes;
        }
    }

    /// Adds a message of a stream. `before` says where players that begin later need it too. Says
    /// whether anybody plays it.
    pub(super) fn push(&self, name: &str, message: Relayed, before: Option<usize>) -> bool {
        let mut lives = self.lives();
        let lives = &mut *lives;
        let Some(live) = lives.all.get_mut(name) else {
            return false;
        };
        if let Some(kept) = before.and_then(|place| live.before.get_mut(place)) {
            *kept = Some(message.clone());
        }
        if live.players == 0 {
            live.first += 1;
            return false;
        }
        live.bytes += message.payload.len();
        lives.bytes += message.payload.len();
        live.messages.push_back(message);
        while live.messages.len() > MESSAGES_MAX
            || live.bytes > BYTES_MAX
            || lives.bytes > ALL_BYTES_MAX
        {
            let Some(oldest) = live.messages.pop_front() else {
                break;
            };
            live.bytes -= oldest.payload.len();
            lives.bytes -= oldest.payload.len();
            live.first += 1;
        }
        true
    }

    /// Somebody plays a stream from now on: what is needed first, the number of the message that
    /// follows, and the number of the stream; none where nobody publishes it.
    pub(super) fn join(&self, name: &str) -> Option<(Vec<Relayed>, u64, usize)> {
        let mut lives = self.lives();
        let live = lives.all.get_mut(name)?;
        live.players += 1;
        let next = live.first + live.messages.len() as u64;
        let before = live.before.iter().flatten().cloned().collect();
        Some((before, next, live.index))
    }

    /// Somebody plays the stream of that name and number no more.
    pub(super) fn leave(&self, name: &str, index: usize) {
        let mut lives = self.lives();
        let lives = &mut *lives;
        let live = lives.all.get_mut(name);
        let Some(live) = live.filter(|live| live.index == index) else {
            return;
        };
        live.players = live.players.saturating_sub(1);
        if live.players == 0 {
            live.first += live.messages.len() as u64;
            lives.bytes -= std::mem::take(&mut live.bytes);
            live.messages.clear();
        }
    }

    /// The message of that number, or the oldest that is kept; and its number.
    pub(super) fn get(&self, name: &str, number: u64) -> Option<(Relayed, u64)> {
        let lives = self.lives();
        let live = lives.all.get(name)?;
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
            at: Time::ZERO,
            timestamp,
            payload: vec![0; length].into(),
        }
    }

    #[test]
    fn who_falls_behind_loses_the_oldest() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a/b"), Ok(0));
        assert_eq!(streams.begin("a/b"), Err(Refusal::Taken));
        assert_eq!(streams.begin("a/c"), Ok(1));
        assert!(!streams.push("a/b", message(0, 10), Some(1)));
        let (before, next, index) = streams.join("a/b").expect("it is there");
        assert_eq!((before.len(), next, index), (1, 1, 0));
        for timestamp in 1..20 {
            assert!(streams.push("a/b", message(timestamp, 1 << 20), None));
        }
        let (first, number) = streams.get("a/b", next).expect("it is there");
        assert_eq!((first.timestamp, number), (12, 12));
        assert!(streams.get("a/b", 20).is_none());
        // Nothing is kept for nobody, and numbers go on.
        streams.leave("a/b", 0);
        assert!(streams.get("a/b", 12).is_none());
        assert_eq!(streams.join("a/b").map(|joined| joined.1), Some(20));
        streams.end("a/b");
        assert!(streams.join("a/b").is_none() && streams.get("a/b", 19).is_none());
    }

    #[test]
    fn streams_are_bounded() {
        let streams = PublishedStreams::default();
        for number in 0..LIVES_MAX {
            assert_eq!(streams.begin(&number.to_string()), Ok(number));
        }
        assert_eq!(streams.begin("more"), Err(Refusal::Full));
    }
}
