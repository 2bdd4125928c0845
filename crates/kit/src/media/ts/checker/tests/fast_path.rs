//! The fast path that most packets take has the same results as the general path.

use measure::ArrivalRun;

use super::*;

const SOUND: u16 = 0x101;
const BEFORE: [u8; 4] = [239, 81, 0, 9];

/// One packet of a datagram.
#[derive(Clone, Copy, Debug)]
enum Part {
    Null,
    Video,
    Sound,
    Lost(u64),
    Start,
    Clock(u8),
    Association,
    Map,
    /// Arbitrary header after the sync byte, and arbitrary start of an adaptation field.
    Odd([u8; 5]),
    NoSync,
    /// A stamp in the middle.
    Stamp,
}

/// Fate of a datagram.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Sent,
    Lost(u64),
    Repeated,
    Swapped,
    Foreign,
    OldChannel,
    OtherSource(u8),
    Spoilt(usize),
    Cut(usize),
    /// The stamp states another number of packets.
    Says(u8),
    /// The stamp has another header.
    OddStamp(u8),
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        6 => Just(Part::Null),
        12 => Just(Part::Video),
        4 => Just(Part::Sound),
        1 => (1u64..16).prop_map(Part::Lost),
        1 => Just(Part::Start),
        1 => any::<u8>().prop_map(Part::Clock),
        1 => Just(Part::Association),
        1 => Just(Part::Map),
        1 => any::<[u8; 5]>().prop_map(Part::Odd),
        1 => prop_oneof![4 => Just(Part::Video), 1 => Just(Part::NoSync), 1 => Just(Part::Stamp)],
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Sent),
        1 => prop_oneof![1u64..6, Just(5000), Just(20_000_000)].prop_map(Fate::Lost),
        1 => Just(Fate::Repeated),
        1 => Just(Fate::Swapped),
        1 => Just(Fate::Foreign),
        1 => Just(Fate::OldChannel),
        1 => (1u8..120).prop_map(Fate::OtherSource),
        1 => any::<usize>().prop_map(Fate::Spoilt),
        1 => any::<usize>().prop_map(Fate::Cut),
        1 => (0u8..12).prop_map(Fate::Says),
        1 => any::<u8>().prop_map(Fate::OddStamp),
    ]
}

/// A source, and a path to the client with all these faults.
#[derive(Default)]
struct Path {
    bytes: Vec<u8>,
    held_back: Vec<u8>,
    number: u64,
    video: u64,
    sound: u64,
}

impl Path {
    fn stamp(&self, packets: usize, check: u32) -> Stamp {
        Stamp {
            packets: packets as u8,
            group: group(),
            source: 5,
            number: self.number,
            due: WALL_CLOCK.as_nanos() as u64 + self.number * 30_000,
            check,
        }
    }

    fn packet(&mut self, part: Part) -> [u8; PACKET_LEN] {
        let mut video = |by: u64| {
            self.video += by;
            self.video
        };
        match part {
            Part::Null => plain(NULL_PID, 3, false, &[]),
            Part::Video => plain(VIDEO, video(1), false, &[7; 40]),
            Part::Lost(count) => plain(VIDEO, video(1 + count), false, &[]),
            Part::Start => plain(VIDEO, video(1), true, &[0, 0, 1, 0xe0, 0, 0, 1, 0x67]),
            Part::Clock(flags) => clock(video(1), flags, self.number * 800),
            Part::Sound => {
                self.sound += 1;
                plain(SOUND, self.sound, self.sound.is_multiple_of(9), &[])
            }
            Part::Association => pat(),
            Part::Map => pmt(),
            Part::Odd([a, b, c, d, e]) => {
                let mut packet = plain(VIDEO, 0, false, &[]);
                packet[1..6].copy_from_slice(&[a, b, c, d, e]);
                packet
            }
            Part::NoSync => [0x48; PACKET_LEN],
            Part::Stamp => self.stamp(3, 1).write(),
        }
    }

    fn datagram(&mut self, parts: &[Part], fate: Fate) {
        let body: Vec<u8> = parts.iter().flat_map(|&part| self.packet(part)).collect();
        let mut stamp = self.stamp(parts.len() + 1, crc32fast::hash(&body));
        let mut copies = 1;
        match fate {
            Fate::Foreign => stamp.group.set_port(9),
            Fate::OldChannel => stamp.group.set_ip(BEFORE.into()),
            Fate::Says(packets) => stamp.packets = packets,
            Fate::OtherSource(times) => {
                stamp.source = 6;
                copies = times;
            }
            Fate::Repeated => copies = 2,
            _ => {}
        }
        let mut all = [&stamp.write()[..], &body].concat();
        match fate {
            Fate::Spoilt(offset) => {
                let offset = offset % all.len();
                all[offset] ^= 0x10;
            }
            Fate::Cut(offset) => all.truncate(offset % all.len()),
            Fate::OddStamp(flags) => all[3] = flags,
            Fate::Lost(count) => {
                self.number += count;
                all.clear();
            }
            Fate::Swapped => std::mem::swap(&mut self.held_back, &mut all),
            _ => {}
        }
        self.number += 1;
        for _ in 0..copies {
            self.bytes.extend_from_slice(&all);
        }
        if !matches!(fate, Fate::Swapped) {
            self.bytes.append(&mut self.held_back);
        }
    }
}

/// All results of a checker.
fn results(bench: &Bench) -> impl PartialEq + std::fmt::Debug + use<> {
    let checker = &bench.checker;
    (
        *checker.counts(),
        checker.datagrams().copied(),
        checker.pids().collect::<Vec<_>>(),
        (checker.first_arrival(), checker.last_arrival()),
        (checker.longest_gap(), checker.random_access()),
        (checker.group(), checker.synced, checker.held.clone()),
    )
}

fn bench(named: bool, changed: bool) -> Bench {
    let mut bench = Bench::new();
    bench.checker = TsChecker::new(&TsCheckerConfig {
        due: ms(0),
        group: named.then(group),
        previous_channel: changed.then(|| PreviousChannel {
            group: Some(SocketAddr::from((BEFORE, group().port()))),
        }),
        wall_clock: Some(WALL_CLOCK),
        playout_buffer: Duration::from_secs(1),
    });
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn fast_path_matches_general_path(
        (named, changed) in any::<(bool, bool)>(),
        datagrams in prop::collection::vec((prop::collection::vec(part(), 0..9), fate()), 1..60),
        reads in prop::collection::vec(1usize..9000, 1..12),
        segments in prop::collection::vec((1usize..3000, 0u64..2_000_000, any::<bool>()), 1..12),
    ) {
        let mut path = Path::default();
        for (parts, fate) in &datagrams {
            path.datagram(parts, *fate);
        }
        let (mut usual, mut long) = (bench(named, changed), bench(named, changed));
        long.checker.general_path_only = true;
        let (mut reads, mut segments) = (reads.into_iter().cycle(), segments.into_iter().cycle());
        let (mut rest, mut now) = (&path.bytes[..], 0);
        while !rest.is_empty() {
            let (read, after) = rest.split_at(reads.next().expect("endless").min(rest.len()));
            rest = after;
            let (mut runs, mut end) = (Vec::new(), 0);
            while end < read.len() {
                let (length, later, exact) = segments.next().expect("endless");
                end += length;
                now += later;
                runs.push(ArrivalRun { end, at: Time::from_nanos(now), exact });
            }
            for bench in [&mut usual, &mut long] {
                let mut times = ArrivalTimes::new(&runs, Time::from_nanos(now));
                bench.checker.feed(read, 0, &mut times, &mut bench.recorder);
            }
            prop_assert_eq!(results(&usual), results(&long));
        }
        usual.checker.finish(&mut usual.recorder);
        long.checker.finish(&mut long.recorder);
        prop_assert_eq!(results(&usual), results(&long));
        prop_assert_eq!(usual.recorder.take_window(), long.recorder.take_window());
    }
}

#[test]
fn next_datagram_takes_the_fast_path() {
    let mut bench = bench(true, false);
    bench.feed(&[pat(), pmt()].concat(), ms(1));
    for number in 0..3 {
        bench.feed(&datagram(5, number, ms(0)), ms(2));
    }
    let bytes = datagram(5, 3, ms(0));
    let mut times = ArrivalTimes::new(&[], ms(3));
    let (checker, recorder) = (&mut bench.checker, &mut bench.recorder);
    let rest = checker.take_datagram(&bytes, 0, &mut times, recorder);
    assert_eq!(rest.map(<[u8]>::len), Some(0));
    assert!(checker.pids.continues(VIDEO, (4 * 6) % 16));
}
