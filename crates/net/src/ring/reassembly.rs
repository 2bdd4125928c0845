//! Reassembly of fragmented datagrams. A datagram counts once, when its last missing fragment
//! arrives, because the kernel delivers it only then.
//!
//! As in Linux, a duplicate fragment is ignored, and a fragment that partly overlaps others
//! discards its datagram (RFC 5722; Linux does so for IPv4 as well). Memory is bounded by a number
//! of datagrams, a number of gaps in each, and a time.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use measure::Time;

use super::packet::{Fragment, FragmentKey, UDP_BYTES, UdpHeader, socket_address};

/// Maximum number of incomplete datagrams; beyond it the oldest is discarded.
pub(super) const DATAGRAMS_MAX: usize = 1024;

/// Reassembly timeout, as in Linux (`net.ipv4.ipfrag_time`).
pub(super) const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of separate ranges per datagram. Fragments in order, or in reverse order, form
/// one range.
const RANGES_MAX: usize = 16;

/// Bytes kept from the beginning of a datagram.
const KEPT_BYTES: usize = 128;

/// Length of the longest possible datagram (RFC 791).
const LENGTH_MAX: usize = 65_535;

/// Incomplete datagrams.
#[derive(Debug, Default)]
pub(super) struct Reassembler {
    unfinished: HashMap<FragmentKey, Unfinished>,
    /// Datagrams in the order of their first fragment. Those that are complete by now have another
    /// number in the map, or none.
    order: VecDeque<(FragmentKey, u64)>,
    began: u64,
    /// Discarded datagrams to our ports.
    pub(super) given_up: u64,
    /// Discarded datagrams whose first fragment was not seen, so that their port is unknown.
    pub(super) given_up_unknown: u64,
}

#[derive(Debug)]
struct Unfinished {
    number: u64,
    since: Time,
    /// Received ranges in order, separated by gaps.
    ranges: Vec<(u32, u32)>,
    /// Known from the last fragment.
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

/// A reassembled datagram.
#[derive(Debug)]
pub(super) struct ReassembledDatagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) length: usize,
    pub(super) overhead: usize,
    pub(super) interface: u32,
    bytes: [u8; KEPT_BYTES],
    kept: usize,
}

impl ReassembledDatagram {
    /// The first bytes of the payload.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.kept]
    }
}

/// Result of adding a fragment.
#[derive(Debug)]
pub(super) enum AddOutcome {
    /// The fragment completed its datagram.
    Whole(Box<ReassembledDatagram>),
    /// Other fragments are missing.
    Waiting,
    /// The datagram is for another port.
    Foreign,
    /// The fragment cannot be part of a datagram, or its datagram is invalid.
    Malformed,
}

impl Reassembler {
    /// Adds a fragment that arrived at `at`.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment<'_>,
        at: Time,
        ports: &RangeInclusive<u16>,
    ) -> AddOutcome {
        let Some((begin, end)) = fragment_range(fragment) else {
            return AddOutcome::Malformed;
        };
        let mut first = None;
        if begin == 0 {
            let Some(header) = UdpHeader::read(fragment.kept) else {
                return AddOutcome::Malformed;
            };
            if !ports.contains(&header.to) {
                // Other fragments, which contain no port, may have arrived before this one, and
                // more may follow.
                self.unfinished.remove(&fragment.key);
                return AddOutcome::Foreign;
            }
            first = Some(First::new(header, fragment));
        }
        let unfinished = self.entry(fragment.key, at);
        match unfinished.insert(begin, end, fragment.last) {
            Inserted::Known => AddOutcome::Waiting,
            Inserted::Inconsistent => {
                self.give_up(&fragment.key);
                AddOutcome::Waiting
            }
            Inserted::New => {
                unfinished.overhead += fragment.overhead;
                unfinished.first = unfinished.first.or(first);
                self.finish(&fragment.key)
            }
        }
    }

    /// Discards datagrams that have waited too long.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((key, number)) = self.order.front().copied() {
            match numbered(&self.unfinished, key, number) {
                Some(found) if found.since + REASSEMBLY_TIMEOUT > now => return,
                Some(_) => self.give_up(&key),
                None => {}
            }
            self.order.pop_front();
        }
    }

    /// Returns `true` if there is nothing to expire.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn entry(&mut self, key: FragmentKey, at: Time) -> &mut Unfinished {
        if !self.unfinished.contains_key(&key) {
            while self.unfinished.len() >= DATAGRAMS_MAX {
                let (oldest, number) = self.order.pop_front().expect("each one is in the order");
                if numbered(&self.unfinished, oldest, number).is_some() {
                    self.give_up(&oldest);
                }
            }
            if self.order.len() >= 2 * DATAGRAMS_MAX {
                let unfinished = &self.unfinished;
                self.order
                    .retain(|&(key, number)| numbered(unfinished, key, number).is_some());
            }
            self.began += 1;
            self.order.push_back((key, self.began));
        }
        self.unfinished.entry(key).or_insert_with(|| Unfinished {
            number: self.began,
            since: at,
            ranges: Vec::new(),
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

    fn finish(&mut self, key: &FragmentKey) -> AddOutcome {
        let Some(found) = self.unfinished.get(key) else {
            return AddOutcome::Waiting;
        };
        let (Some(end), Some(first)) = (found.end, found.first) else {
            return AddOutcome::Waiting;
        };
        if found.ranges != [(0, end)] {
            return AddOutcome::Waiting;
        }
        let overhead = found.overhead;
        self.unfinished.remove(key);
        let length = first.header.length.checked_sub(UDP_BYTES);
        let Some(length) = length.filter(|_| first.header.length <= end as usize) else {
            return AddOutcome::Malformed;
        };
        AddOutcome::Whole(Box::new(ReassembledDatagram {
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

/// Returns the datagram that has this number too, and is not just a later one with the same key.
fn numbered(
    unfinished: &HashMap<FragmentKey, Unfinished>,
    key: FragmentKey,
    number: u64,
) -> Option<&Unfinished> {
    unfinished.get(&key).filter(|found| found.number == number)
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

/// Returns the fragment's range in its datagram, or `None` if it cannot have one: a fragment is
/// within the longest datagram, not empty, and a multiple of 8 bytes unless it is the last.
fn fragment_range(fragment: &Fragment<'_>) -> Option<(u32, u32)> {
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
    Inconsistent,
}

impl Unfinished {
    fn insert(&mut self, begin: u32, end: u32, last: bool) -> Inserted {
        let index = self.ranges.partition_point(|&(_, before)| before < begin);
        // The first range that touches the fragment or comes after it.
        if let Some(&(first, until)) = self.ranges.get(index)
            && first <= begin
            && end <= until
        {
            return Inserted::Known;
        }
        let known_end = self.ranges.last().map_or(0, |&(_, until)| until);
        let beyond = self
            .end
            .is_some_and(|known| end > known || (last && end != known));
        if beyond || (last && known_end > end) {
            return Inserted::Inconsistent;
        }
        let joins_before = self
            .ranges
            .get(index)
            .is_some_and(|&(_, until)| until == begin);
        let after = index + usize::from(joins_before);
        let following = self.ranges.get(after).copied();
        if following.is_some_and(|(first, _)| first < end) {
            return Inserted::Inconsistent;
        }
        let joins_after = following.is_some_and(|(first, _)| first == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[index].1 = self.ranges[after].1;
                self.ranges.remove(after);
            }
            (true, false) => self.ranges[index].1 = end,
            (false, true) => self.ranges[after].0 = begin,
            (false, false) if self.ranges.len() < RANGES_MAX => {
                self.ranges.insert(index, (begin, end));
            }
            (false, false) => return Inserted::Inconsistent,
        }
        if last {
            self.end = Some(end);
        }
        Inserted::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::packet::tests::header;
    use proptest::prelude::*;

    const PORTS: RangeInclusive<u16> = 5000..=5000;

    fn key(id: u32) -> FragmentKey {
        FragmentKey {
            from: [10, 0, 0, 1].into(),
            to: [10, 0, 0, 2].into(),
            id,
        }
    }

    /// Returns the bytes of a datagram, its UDP header first.
    fn datagram(port: u16, payload: usize) -> Vec<u8> {
        let mut bytes = header(port, payload);
        bytes.extend((0..payload).map(|index| (index % 251) as u8));
        bytes
    }

    fn part(datagram: &[u8], id: u32, begin: usize, end: usize) -> Fragment<'_> {
        let end = end.min(datagram.len());
        Fragment {
            key: key(id),
            offset: begin,
            length: end - begin,
            last: end == datagram.len(),
            kept: &datagram[begin..end],
            overhead: 20,
            interface: 3,
        }
    }

    fn add(fragments: &mut Reassembler, fragment: &Fragment<'_>) -> Option<ReassembledDatagram> {
        match fragments.add(fragment, Time::default(), &PORTS) {
            AddOutcome::Whole(whole) => Some(*whole),
            _ => None,
        }
    }

    #[test]
    fn fragments_in_any_order_and_duplicated_reassemble() {
        let bytes = datagram(5000, 4992);
        let orders = [
            [0, 1, 2, 3, 4],
            [4, 3, 2, 1, 0],
            [2, 0, 4, 1, 3],
            [3, 1, 4, 2, 0],
        ];
        for (id, order) in (0..).zip(orders) {
            let mut fragments = Reassembler::default();
            for (count, index) in order.into_iter().enumerate() {
                let part = part(&bytes, id, index * 1000, (index + 1) * 1000);
                let whole = add(&mut fragments, &part);
                assert_eq!(whole.is_some(), count == 4, "{order:?}");
                if let Some(whole) = whole {
                    assert_eq!((whole.length, whole.overhead), (4992, 5 * 20 + 8));
                    assert_eq!(whole.bytes(), &bytes[8..8 + KEPT_BYTES]);
                    assert_eq!((whole.from.port(), whole.to.port()), (1234, 5000));
                } else {
                    assert!(add(&mut fragments, &part).is_none(), "a second copy");
                }
            }
            assert_eq!((fragments.given_up, fragments.given_up_unknown), (0, 0));
            assert!(fragments.unfinished.is_empty());
        }
    }

    #[test]
    fn overlapping_fragments_discard_their_datagram() {
        let bytes = datagram(5000, 4992);
        let mut fragments = Reassembler::default();
        assert!(add(&mut fragments, &part(&bytes, 1, 0, 1000)).is_none());
        assert!(add(&mut fragments, &part(&bytes, 1, 992, 5000)).is_none());
        assert_eq!(fragments.given_up, 1);
        // Beyond the known end.
        assert!(add(&mut fragments, &part(&bytes, 2, 4000, 5000)).is_none());
        let longer = datagram(5000, 6000);
        assert!(add(&mut fragments, &part(&longer, 2, 5000, 5504)).is_none());
        assert_eq!(fragments.given_up_unknown, 1);
        assert!(fragments.unfinished.is_empty());
    }

    #[test]
    fn foreign_and_malformed_fragments_are_distinguished() {
        let mut fragments = Reassembler::default();
        let other = datagram(5001, 4992);
        let mut add = |fragment: &Fragment<'_>| fragments.add(fragment, Time::default(), &PORTS);
        assert!(matches!(
            add(&part(&other, 1, 0, 1000)),
            AddOutcome::Foreign
        ));
        let bytes = datagram(5000, 4992);
        let mut odd = part(&bytes, 1, 0, 1001);
        assert!(matches!(add(&odd), AddOutcome::Malformed));
        odd = part(&bytes, 1, 4000, 5000);
        odd.offset = 65_528;
        assert!(matches!(add(&odd), AddOutcome::Malformed));
        odd = part(&bytes, 1, 0, 0);
        assert!(matches!(add(&odd), AddOutcome::Malformed));
        odd = part(&bytes, 1, 0, 1000);
        odd.kept = &odd.kept[..7];
        assert!(matches!(add(&odd), AddOutcome::Malformed));
        // The UDP length is longer than all fragments together.
        let mut long = datagram(5000, 2000);
        long.truncate(1600);
        assert!(matches!(add(&part(&long, 2, 0, 800)), AddOutcome::Waiting));
        assert!(matches!(
            add(&part(&long, 2, 800, 1600)),
            AddOutcome::Malformed
        ));
    }

    #[test]
    fn incomplete_datagrams_expire() {
        let mut fragments = Reassembler::default();
        let bytes = datagram(5000, 4992);
        let second = |seconds| Time::from_start(Duration::from_secs(seconds));
        fragments.add(&part(&bytes, 1, 0, 1000), second(1), &PORTS);
        fragments.add(&part(&bytes, 2, 1000, 2000), second(2), &PORTS);
        fragments.expire(second(30));
        assert_eq!((fragments.given_up, fragments.given_up_unknown), (0, 0));
        fragments.expire(second(31));
        assert_eq!((fragments.given_up, fragments.given_up_unknown), (1, 0));
        fragments.expire(second(32));
        assert_eq!((fragments.given_up, fragments.given_up_unknown), (1, 1));
        assert!(fragments.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut fragments = Reassembler::default();
        let bytes = datagram(5000, 60_000);
        for id in 0..5000 {
            add(&mut fragments, &part(&bytes, id, 0, 1000));
            assert!(fragments.unfinished.len() <= DATAGRAMS_MAX);
        }
        assert_eq!(fragments.given_up, 5000 - DATAGRAMS_MAX as u64);
        // Completed datagrams do not accumulate behind an incomplete one.
        let short = datagram(5000, 2000);
        for id in 10_000..20_000 {
            add(&mut fragments, &part(&short, id, 0, 1000));
            assert!(add(&mut fragments, &part(&short, id, 1000, 3000)).is_some());
            assert!(fragments.order.len() <= 2 * DATAGRAMS_MAX);
        }
        // Every second fragment only.
        for index in 0..30 {
            let begin = index * 2000;
            add(&mut fragments, &part(&bytes, 4999, begin, begin + 1000));
            let unfinished = fragments.unfinished.get(&key(4999));
            assert!(unfinished.is_none_or(|found| found.ranges.len() <= RANGES_MAX));
        }
    }

    proptest! {
        #[test]
        fn ranges_stay_ordered_and_separated(
            parts in prop::collection::vec((0usize..40, 1usize..10, any::<bool>()), 1..60),
        ) {
            let mut fragments = Reassembler::default();
            let bytes = datagram(5000, 1000);
            for (begin, length, last) in parts {
                let mut part = part(&bytes, 1, begin * 8, (begin + length) * 8);
                part.last = last;
                add(&mut fragments, &part);
                if let Some(found) = fragments.unfinished.get(&key(1)) {
                    for &(begin, end) in &found.ranges {
                        prop_assert!(begin < end);
                    }
                    for pair in found.ranges.windows(2) {
                        prop_assert!(pair[0].1 < pair[1].0);
                    }
                }
            }
        }
    }
}
