//! Datagrams that come in parts: they count once, when the last missing part is there, as the kernel
//! would deliver them only then.
//!
//! As Linux does, a part that is there already is passed over, and one that overlaps others in part
//! spoils its datagram (RFC 5722; Linux does so for IPv4 as well). What is kept is bounded: a number
//! of datagrams, a number of gaps in each, and a time.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use measure::Time;

use super::packet::{Fragment, FragmentKey, UDP_BYTES, UdpHeader, socket_address};

/// How many unfinished datagrams are kept; the oldest gives way.
pub(super) const DATAGRAMS_MAX: usize = 1024;

/// How long parts are waited for: what Linux does (`net.ipv4.ipfrag_time`).
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How many separate stretches of one datagram are kept track of. Parts in order, or in reverse order,
/// make one.
const STRETCHES_MAX: usize = 16;

/// How much of a datagram's beginning is kept.
const KEPT_BYTES: usize = 128;

/// The longest datagram that there can be (RFC 791).
const LENGTH_MAX: usize = 65_535;

/// Unfinished datagrams.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    unfinished: HashMap<FragmentKey, Unfinished>,
    /// In the order in which they began. Those that are finished by now have another number in the map, or
    /// none.
    order: VecDeque<(FragmentKey, u64)>,
    began: u64,
    /// Datagrams to our ports that were given up.
    pub(super) given_up: u64,
    /// Datagrams given up whose first part was not seen: nobody knows for which port they were.
    pub(super) given_up_unknown: u64,
}

#[derive(Debug)]
struct Unfinished {
    number: u64,
    since: Time,
    /// What is there: in order, apart from each other.
    stretches: Vec<(u32, u32)>,
    /// Known from the last part.
    end: Option<u32>,
    overhead: usize,
    first: Option<First>,
}

#[derive(Clone, Copy, Debug)]
struct First {
    header: UdpHeader,
    interface: u32,
    bytes: [u8; KEPT_BYTES],
    kept: usize,
}

/// A datagram of which all parts are there.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) length: usize,
    pub(super) overhead: usize,
    pub(super) interface: u32,
    bytes: [u8; KEPT_BYTES],
    kept: usize,
}

impl Whole {
    /// The payload's first bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.kept]
    }
}

/// What became of a fragment.
#[derive(Debug)]
pub(super) enum Added {
    /// It was the last that was missing.
    Whole(Box<Whole>),
    /// Others are missing.
    Waiting,
    /// Its datagram is for a port of somebody else.
    Foreign,
    /// It cannot be part of a datagram.
    Malformed,
}

impl Fragments {
    /// Takes in a fragment that arrived at `at`.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment<'_>,
        at: Time,
        ports: &RangeInclusive<u16>,
    ) -> Added {
        let Some((begin, end)) = place(fragment) else {
            return Added::Malformed;
        };
        let mut first = None;
        if begin == 0 {
            let Some(header) = UdpHeader::read(fragment.kept) else {
                return Added::Malformed;
            };
            if !ports.contains(&header.to) {
                // Its other parts, which tell no port, may have come before it, and more may come.
                self.unfinished.remove(&fragment.key);
                return Added::Foreign;
            }
            first = Some(First::new(header, fragment));
        }
        let unfinished = self.entry(fragment.key, at);
        match unfinished.insert(begin, end, fragment.last) {
            Inserted::Known => Added::Waiting,
            Inserted::Spoiled => {
                self.give_up(&fragment.key);
                Added::Waiting
            }
            Inserted::New => {
                unfinished.overhead += fragment.overhead;
                unfinished.first = unfinished.first.or(first);
                self.finish(&fragment.key)
            }
        }
    }

    /// Gives up what has waited too long.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((key, number)) = self.order.front().copied() {
            match self
                .unfinished
                .get(&key)
                .filter(|found| found.number == number)
            {
                Some(found) if found.since + PATIENCE > now => return,
                Some(_) => self.give_up(&key),
                None => {}
            }
            self.order.pop_front();
        }
    }

    /// Whether nothing is waited for.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn entry(&mut self, key: FragmentKey, at: Time) -> &mut Unfinished {
        if !self.unfinished.contains_key(&key) {
            while self.unfinished.len() >= DATAGRAMS_MAX {
                let (oldest, number) = self.order.pop_front().expect("each one is in the order");
                if self
                    .unfinished
                    .get(&oldest)
                    .is_some_and(|found| found.number == number)
                {
                    self.give_up(&oldest);
                }
            }
            if self.order.len() >= 2 * DATAGRAMS_MAX {
                let unfinished = &self.unfinished;
                self.order.retain(|(key, number)| {
                    unfinished
                        .get(key)
                        .is_some_and(|found| found.number == *number)
                });
            }
            self.began += 1;
            self.order.push_back((key, self.began));
        }
        self.unfinished.entry(key).or_insert_with(|| Unfinished {
            number: self.began,
            since: at,
            stretches: Vec::new(),
            end: None,
            overhead: UDP_BYTES,
            first: None,
        })
    }

    fn give_up(&mut self, key: &FragmentKey) {
        match self.unfinished.remove(key) {
            Some(Unfinished { first: Some(_), .. }) => self.given_up += 1,
            Some(_) => self.given_up_unknown += 1,
            None => {}
        }
    }

    fn finish(&mut self, key: &FragmentKey) -> Added {
        let Some(found) = self.unfinished.get(key) else {
            return Added::Waiting;
        };
        let (Some(end), Some(first)) = (found.end, found.first) else {
            return Added::Waiting;
        };
        if found.stretches != [(0, end)] {
            return Added::Waiting;
        }
        let overhead = found.overhead;
        self.unfinished.remove(key);
        let Some(length) = first.header.length.checked_sub(UDP_BYTES) else {
            return Added::Malformed;
        };
        if first.header.length > end as usize {
            return Added::Malformed;
        }
        Added::Whole(Box::new(Whole {
            from: socket_address(key.from, first.header.from, first.interface),
            to: socket_address(key.to, first.header.to, first.interface),
            length,
            overhead,
            interface: first.interface,
            bytes: first.bytes,
            kept: first.kept.min(length),
        }))
    }
}

impl First {
    fn new(header: UdpHeader, fragment: &Fragment<'_>) -> First {
        let payload = &fragment.kept[UDP_BYTES..];
        let kept = payload.len().min(KEPT_BYTES);
        let mut bytes = [0; KEPT_BYTES];
        bytes[..kept].copy_from_slice(&payload[..kept]);
        First {
            header,
            interface: fragment.interface,
            bytes,
            kept,
        }
    }
}

/// The fragment's place, if it can have one: within the longest datagram, not empty, and in whole units of
/// 8 bytes but for the last.
fn place(fragment: &Fragment<'_>) -> Option<(u32, u32)> {
    let end = fragment.offset + fragment.length;
    let sound = fragment.length > 0
        && end <= LENGTH_MAX
        && (fragment.last || fragment.length.is_multiple_of(8));
    let number = |value: usize| u32::try_from(value).ok();
    sound.then_some((number(fragment.offset)?, number(end)?))
}

enum Inserted {
    New,
    Known,
    Spoiled,
}

impl Unfinished {
    fn insert(&mut self, begin: u32, end: u32, last: bool) -> Inserted {
        let index = self
            .stretches
            .partition_point(|&(_, before)| before < begin);
        // The first that touches or comes after.
        if let Some(&(first, until)) = self.stretches.get(index)
            && first <= begin
            && end <= until
        {
            return Inserted::Known;
        }
        let known_end = self.stretches.last().map_or(0, |&(_, until)| until);
        let beyond = self
            .end
            .is_some_and(|known| end > known || (last && end != known));
        if beyond || (last && known_end > end) {
            return Inserted::Spoiled;
        }
        let joins_before = self
            .stretches
            .get(index)
            .is_some_and(|&(_, until)| until == begin);
        let after = index + usize::from(joins_before);
        let following = self.stretches.get(after).copied();
        if following.is_some_and(|(first, _)| first < end) {
            return Inserted::Spoiled;
        }
        let joins_after = following.is_some_and(|(first, _)| first == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.stretches[index].1 = self.stretches[after].1;
                self.stretches.remove(after);
            }
            (true, false) => self.stretches[index].1 = end,
            (false, true) => self.stretches[after].0 = begin,
            (false, false) if self.stretches.len() < STRETCHES_MAX => {
                self.stretches.insert(index, (begin, end));
            }
            (false, false) => return Inserted::Spoiled,
        }
        if last {
            self.end = Some(end);
        }
        Inserted::New
    }
}
