//! Streams that clients publish, and the payloads on their way to those that play.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// How many streams can be published at a time.
const LIVES_MAX: usize = 1000;
/// How many payloads of a stream are kept for players that have not taken them yet, how many bytes
/// of all streams. Who falls behind farther loses the oldest.
const PAYLOADS_MAX: usize = 4096;
const ALL_BYTES_MAX: usize = 256 << 20;

/// A stream that is published.
#[derive(Debug, Default)]
struct Live {
    /// Which of the streams that can be it is.
    index: usize,
    /// How many play it. Nothing is kept for nobody.
    players: usize,
    payloads: VecDeque<Bytes>,
    /// The number of the first payload that is kept.
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

/// All streams that are published, by name.
#[derive(Debug, Default)]
pub(super) struct PublishedStreams(Mutex<Lives>);

/// The topic on which it is said that a stream has more, or is over.
pub(super) fn topic(index: usize) -> String {
    format!("srt-server/{index}")
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
            lives.bytes -= live.payloads.iter().map(Bytes::len).sum::<usize>();
        }
    }

    /// Adds a payload of a stream. Says whether anybody plays it.
    pub(super) fn push(&self, name: &str, payload: &[u8]) -> bool {
        let mut lives = self.lives();
        let lives = &mut *lives;
        let Some(live) = lives.all.get_mut(name) else {
            return false;
        };
        if live.players == 0 {
            live.first += 1;
            return false;
        }
        lives.bytes += payload.len();
        live.payloads.push_back(Bytes::copy_from_slice(payload));
        while live.payloads.len() > PAYLOADS_MAX || lives.bytes > ALL_BYTES_MAX {
            let Some(oldest) = live.payloads.pop_front() else {
                break;
            };
            lives.bytes -= oldest.len();
            live.first += 1;
        }
        true
    }

    /// Somebody plays a stream from now on: the number of the payload that follows, and the number
    /// of the stream; none where nobody publishes it.
    pub(super) fn join(&self, name: &str) -> Option<(u64, usize)> {
        let mut lives = self.lives();
        let live = lives.all.get_mut(name)?;
        live.players += 1;
        Some((live.first + live.payloads.len() as u64, live.index))
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
            live.first += live.payloads.len() as u64;
            lives.bytes -= live.payloads.iter().map(Bytes::len).sum::<usize>();
            live.payloads.clear();
        }
    }

    /// The payloads from that number on, and the number behind them. Those before that are not kept
    /// any more are missing.
    pub(super) fn take(&self, name: &str, next: u64) -> (Vec<Bytes>, u64) {
        let lives = self.lives();
        let Some(live) = lives.all.get(name) else {
            return (Vec::new(), next);
        };
        let passed = usize::try_from(next.saturating_sub(live.first)).unwrap_or(usize::MAX);
        let payloads = live.payloads.iter().skip(passed).cloned().collect();
        let end = live.first + live.payloads.len() as u64;
        (payloads, end.max(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_falls_behind_loses_the_oldest() {
        let streams = PublishedStreams::default();
        assert_eq!(streams.begin("a"), Ok(0));
        assert_eq!(streams.begin("a"), Err(Refusal::Taken));
        assert_eq!(streams.begin("b"), Ok(1));
        assert!(!streams.push("a", b"0"));
        assert_eq!(streams.join("a"), Some((1, 0)));
        assert!(streams.push("a", b"1") && streams.push("a", b"2"));
        let (payloads, next) = streams.take("a", 1);
        assert_eq!((payloads.concat(), next), (b"12".to_vec(), 3));
        assert_eq!(streams.take("a", 3), (Vec::new(), 3));
        for _ in 0..PAYLOADS_MAX {
            assert!(streams.push("a", b"3"));
        }
        let (payloads, next) = streams.take("a", 1);
        assert_eq!(payloads.len(), PAYLOADS_MAX);
        assert_eq!(next, 3 + PAYLOADS_MAX as u64);
        // Nothing is kept for nobody, and numbers go on.
        streams.leave("a", 0);
        assert_eq!(streams.take("a", next), (Vec::new(), next));
        streams.end("a");
        assert_eq!(streams.join("a"), None);
        assert_eq!(streams.lives().bytes, 0);
    }
}
