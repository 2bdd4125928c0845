//! Negotiated PeerConnections: those that wait for their first datagram, and the IDs by which HTTP
//! finds all of them.

use std::collections::{HashMap, VecDeque};

use measure::Time;
use slab::Slab;

/// A PeerConnection of the server.
#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) slot: usize,
    pub(super) number: u64,
    /// The client's user fragment.
    pub(super) remote_ufrag: String,
    pub(super) id: String,
    pub(super) ufrag: String,
    pub(super) pwd: String,
    /// Data to start the PeerConnection with. `None` once it has started.
    pub(super) pending: Option<W>,
}

/// Result of an ICE check for a pending PeerConnection.
#[derive(Debug)]
pub(super) enum Claim<W> {
    /// No PeerConnection is pending under this user fragment.
    Unknown,
    /// The sender does not know the password.
    Unauthentic,
    /// The PeerConnection in this slot starts, with this password.
    Accepted(usize, String, W),
}

/// Result of [`Registry::remove`].
#[derive(Debug)]
pub(super) enum Removed<W> {
    /// The PeerConnection had not started.
    Pending(W),
    /// The PeerConnection with this slot and number has started, and must be notified.
    Started(usize, u64),
}

/// All PeerConnections. `W` is the data that a PeerConnection starts with.
#[derive(Debug)]
pub(super) struct Registry<W> {
    peers_max: usize,
    entries: Slab<Entry<W>>,
    by_id: HashMap<String, usize>,
    by_ufrag: HashMap<String, usize>,
    /// Pending PeerConnections, in the order of their expiry.
    expiry_queue: VecDeque<(Time, usize, u64)>,
}

impl<W> Registry<W> {
    /// Creates a registry for at most `peers_max` PeerConnections.
    pub(super) fn new(peers_max: usize) -> Registry<W> {
        Registry {
            peers_max,
            entries: Slab::new(),
            by_id: HashMap::new(),
            by_ufrag: HashMap::new(),
            expiry_queue: VecDeque::new(),
        }
    }

    /// Returns true if another PeerConnection can be added.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.peers_max
    }

    /// Slot of the next PeerConnection to be added.
    pub(super) fn next_slot(&self) -> usize {
        self.entries.vacant_key()
    }

    /// Adds a PeerConnection that waits for its first datagram, in the next slot. It is removed at
    /// `expires_at` unless it has started.
    pub(super) fn add(&mut self, expires_at: Time, new: Entry<W>) {
        let (slot, number) = (new.slot, new.number);
        self.by_id.insert(new.id.clone(), slot);
        self.by_ufrag.insert(new.ufrag.clone(), slot);
        self.expiry_queue.push_back((expires_at, slot, number));
        let inserted = self.entries.insert(new);
        debug_assert_eq!(inserted, slot, "it is the next one");
    }

    /// Removes the PeerConnections that waited too long, and returns their data.
    pub(super) fn purge(&mut self, now: Time) -> Vec<W> {
        let mut expired = Vec::new();
        while let Some(&(until, slot, number)) = self.expiry_queue.front() {
            let entry = self.entries.get(slot);
            let is_pending = entry.is_some_and(|own| own.number == number && own.pending.is_some());
            if is_pending && until > now {
                break;
            }
            self.expiry_queue.pop_front();
            if is_pending {
                expired.extend(self.take(slot).and_then(|entry| entry.pending));
            }
        }
        expired
    }

    /// Finds a PeerConnection by its HTTP ID.
    pub(super) fn find(&self, id: &str) -> Option<&Entry<W>> {
        Some(&self.entries[*self.by_id.get(id)?])
    }

    /// Returns the data of a pending PeerConnection by its HTTP ID. `None` once it has started.
    pub(super) fn pending(&mut self, id: &str) -> Option<&mut W> {
        let slot = *self.by_id.get(id)?;
        self.entries[slot].pending.as_mut()
    }

    /// Ends a PeerConnection by its HTTP ID, which is then unknown.
    pub(super) fn remove(&mut self, id: &str) -> Option<Removed<W>> {
        let slot = self.by_id.remove(id)?;
        let entry = &self.entries[slot];
        if entry.pending.is_none() {
            return Some(Removed::Started(slot, entry.number));
        }
        let entry = self.take(slot)?;
        entry.pending.map(Removed::Pending)
    }

    /// Handles an ICE check for a user fragment. The PeerConnection starts if `is_authentic`
    /// returns true for its password.
    pub(super) fn claim(
        &mut self,
        ufrag: &str,
        is_authentic: impl FnOnce(&str) -> bool,
    ) -> Claim<W> {
        let Some(&slot) = self.by_ufrag.get(ufrag) else {
            return Claim::Unknown;
        };
        let entry = &mut self.entries[slot];
        if entry.pending.is_some() && !is_authentic(&entry.pwd) {
            return Claim::Unauthentic;
        }
        match entry.pending.take() {
            None => Claim::Unknown,
            Some(waiting) => Claim::Accepted(slot, entry.pwd.clone(), waiting),
        }
    }

    /// Removes a PeerConnection that had started.
    pub(super) fn remove_started(&mut self, slot: usize, number: u64) {
        let entry = self.entries.get(slot);
        if entry.is_some_and(|own| own.number == number) {
            self.take(slot);
        }
    }

    fn take(&mut self, slot: usize) -> Option<Entry<W>> {
        let entry = self.entries.try_remove(slot)?;
        self.by_id.remove(&entry.id);
        self.by_ufrag.remove(&entry.ufrag);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn add(registry: &mut Registry<u64>, number: u64, until: u64) {
        let entry = Entry {
            slot: registry.next_slot(),
            number,
            remote_ufrag: "theirs".to_owned(),
            id: format!("id{number}"),
            ufrag: format!("ufrag{number}"),
            pwd: format!("pwd{number}"),
            pending: Some(number),
        };
        registry.add(at(until), entry);
    }

    #[test]
    fn peer_starts_once_with_its_password_and_stays_until_it_ends() {
        let mut registry = Registry::new(2);
        add(&mut registry, 7, 10);
        assert!(registry.has_room());
        assert!(matches!(registry.claim("other", |_| true), Claim::Unknown));
        let claim = registry.claim("ufrag7", |pwd| pwd == "guessed");
        assert!(matches!(claim, Claim::Unauthentic));
        let claim = registry.claim("ufrag7", |pwd| pwd == "pwd7");
        let Claim::Accepted(slot, _, 7) = claim else {
            panic!("{claim:?}");
        };
        assert!(matches!(registry.claim("ufrag7", |_| true), Claim::Unknown));
        // A started PeerConnection does not expire.
        assert!(registry.purge(at(99)).is_empty());
        assert_eq!(registry.find("id7").map(|known| known.number), Some(7));
        add(&mut registry, 8, 200);
        assert!(!registry.has_room());
        let removed = registry.remove("id7");
        assert!(matches!(removed, Some(Removed::Started(_, 7))));
        assert!(registry.remove("id7").is_none() && registry.find("id7").is_none());
        registry.remove_started(slot, 6);
        assert!(!registry.has_room());
        registry.remove_started(slot, 7);
        assert!(registry.has_room());
        let removed = registry.remove("id8");
        assert!(matches!(removed, Some(Removed::Pending(8))));
        assert!(matches!(registry.claim("ufrag8", |_| true), Claim::Unknown));
    }

    #[test]
    fn peers_that_never_start_expire() {
        let mut registry = Registry::new(9);
        for number in 0..3 {
            add(&mut registry, number, 10 + number);
        }
        assert!(registry.remove("id0").is_some());
        // Another PeerConnection reuses its slot.
        add(&mut registry, 9, 50);
        assert_eq!(registry.purge(at(11)), [1]);
        assert_eq!(registry.purge(at(12)), [2]);
        assert!(registry.find("id9").is_some() && registry.find("id1").is_none());
        assert!(registry.by_ufrag.len() == 1 && registry.entries.len() == 1);
    }
}
