//! Schedule of the next messages of many connections. Pure: it reads no clock.
//!
//! All connections of a population on a worker share one schedule, so that the worker has a single
//! time to wake for.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use crate::seeds::derive_seed;

/// Plan by which messages are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Rounds of one message on each connection in turn, with a sleep of this length after each
    /// round. The rate depends on the machine.
    RoundThenSleep(Duration),
    /// Rounds of one message on each connection in turn. Rounds are planned at this interval,
    /// however long one takes.
    RoundEvery(Duration),
    /// One message on each connection, planned at this interval. Connections start at random,
    /// evenly distributed offsets.
    Rate(Duration),
    /// Nothing is planned: messages are sent as answers arrive.
    OnAnswer,
}

/// Position of a connection that is not in the order.
const NOT_IN_ORDER: u32 = u32::MAX;

/// Next step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A round begins that was planned for this time.
    RoundBegins(Time),
    /// A connection sends a message that was planned for this time.
    Send(u32, Time),
    /// The round that began at this time has served all connections.
    RoundEnded(Time),
}

/// Schedule of a population's connections on one worker. Connections have small numbers.
#[derive(Debug)]
pub struct Schedule {
    pace: Pace,
    /// In rounds: the connections in the order of sending.
    order: Vec<u32>,
    /// By connection number. In rounds: position in `order`. By rate: number of times the number
    /// was released.
    positions: Vec<u32>,
    /// By rate: due time of each connection's next message, the earliest first, with the
    /// connection's number and how often that number had been released.
    queue: VecDeque<(Time, u32, u32)>,
    /// Current round.
    round: Option<Round>,
    next_round: Time,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    planned: Time,
    began: Time,
    next: usize,
    end: usize,
}

impl Schedule {
    /// A schedule without connections.
    pub fn new(pace: Pace) -> Schedule {
        Schedule {
            pace,
            order: Vec::new(),
            positions: Vec::new(),
            queue: VecDeque::new(),
            round: None,
            next_round: Time::ZERO,
        }
    }

    /// Adds a connection. With [`Pace::Rate`], `seed` decides the offset of its messages within the
    /// interval.
    pub fn add(&mut self, number: u32, now: Time, seed: u64) {
        let index = number as usize;
        match self.pace {
            Pace::RoundThenSleep(_) | Pace::RoundEvery(_) => {
                if self.positions.len() <= index {
                    self.positions.resize(index + 1, NOT_IN_ORDER);
                }
                if self.order.is_empty() && self.round.is_none() {
                    self.next_round = self.next_round.max(now);
                }
                self.positions[index] =
                    u32::try_from(self.order.len()).expect("numbers are as large");
                self.order.push(number);
            }
            Pace::Rate(every) => {
                if self.positions.len() <= index {
                    self.positions.resize(index + 1, 0);
                }
                let share = derive_seed(&[seed, 3]) as f64 / u64::MAX as f64;
                self.plan(now + every.mul_f64(share), number);
            }
            Pace::OnAnswer => {}
        }
    }

    /// Removes a connection.
    pub fn remove(&mut self, number: u32) {
        let Some(position) = self.positions.get_mut(number as usize) else {
            return;
        };
        match self.pace {
            Pace::RoundThenSleep(_) | Pace::RoundEvery(_) => {
                let at = std::mem::replace(position, NOT_IN_ORDER);
                if at != NOT_IN_ORDER {
                    self.remove_at(at as usize);
                }
            }
            Pace::Rate(_) => *position = position.wrapping_add(1),
            Pace::OnAnswer => {}
        }
    }

    /// Removes the connection at position `at` so that no other connection misses its turn or gets
    /// two in the current round.
    fn remove_at(&mut self, mut at: usize) {
        if let Some(round) = &mut self.round {
            let mut borders = [0; 2];
            if at < round.next {
                round.next -= 1;
                borders[0] = round.next;
            } else {
                borders[0] = at;
            }
            if at < round.end {
                round.end -= 1;
                borders[1] = round.end;
            } else {
                borders[1] = borders[0];
            }
            for border in borders {
                self.order.swap(at, border);
                self.update_position(at);
                at = border;
            }
        }
        self.order.swap_remove(at);
        self.update_position(at);
    }

    fn update_position(&mut self, at: usize) {
        if let Some(&number) = self.order.get(at)
            && self.positions[number as usize] != NOT_IN_ORDER
        {
            self.positions[number as usize] = u32::try_from(at).expect("numbers are as large");
        }
    }

    fn plan(&mut self, at: Time, number: u32) {
        let serial = self.positions[number as usize];
        // Nearly always the end, because all connections have one interval.
        let position = match self.queue.back() {
            Some((last, ..)) if *last > at => self.queue.partition_point(|(due, ..)| *due <= at),
            _ => self.queue.len(),
        };
        self.queue.insert(position, (at, number, serial));
    }

    /// Returns `true` if messages are sent in rounds.
    pub fn is_in_rounds(&self) -> bool {
        matches!(self.pace, Pace::RoundThenSleep(_) | Pace::RoundEvery(_))
    }

    /// Delays the next round until `until`, after a round in which nothing could be sent. Rounds at
    /// planned times are not delayed.
    pub fn delay_next_round(&mut self, until: Time) {
        if let Pace::RoundThenSleep(_) = self.pace {
            self.next_round = self.next_round.max(until);
        }
    }

    /// Time of the next step; [`Time::ZERO`] while a round is under way, [`Time::NEVER`] if nothing
    /// is planned.
    #[inline]
    pub fn next_due(&self) -> Time {
        match self.pace {
            Pace::RoundThenSleep(_) | Pace::RoundEvery(_) => match self.round {
                Some(_) => Time::ZERO,
                None if self.order.is_empty() => Time::NEVER,
                None => self.next_round,
            },
            Pace::Rate(_) => self.queue.front().map_or(Time::NEVER, |(due, ..)| *due),
            Pace::OnAnswer => Time::NEVER,
        }
    }

    /// Returns the next step, or `None` if nothing is due.
    #[inline]
    pub fn next(&mut self, now: Time) -> Option<Step> {
        match self.pace {
            Pace::RoundThenSleep(_) | Pace::RoundEvery(_) => self.next_of_round(now),
            Pace::Rate(every) => loop {
                let &(due, number, serial) = self.queue.front().filter(|(due, ..)| *due <= now)?;
                self.queue.pop_front();
                if self.positions[number as usize] == serial {
                    self.plan(due + every, number);
                    return Some(Step::Send(number, due));
                }
            },
            Pace::OnAnswer => None,
        }
    }

    #[inline]
    fn next_of_round(&mut self, now: Time) -> Option<Step> {
        let Some(round) = &mut self.round else {
            if self.order.is_empty() || now < self.next_round {
                return None;
            }
            let planned = self.next_round;
            self.round = Some(Round {
                planned,
                began: now,
                next: 0,
                end: self.order.len(),
            });
            return Some(Step::RoundBegins(planned));
        };
        if round.next < round.end {
            round.next += 1;
            return Some(Step::Send(self.order[round.next - 1], round.planned));
        }
        let (planned, began) = (round.planned, round.began);
        self.round = None;
        self.next_round = match self.pace {
            Pace::RoundEvery(every) => planned + every,
            Pace::RoundThenSleep(sleep) => now + sleep,
            Pace::Rate(_) | Pace::OnAnswer => Time::NEVER,
        };
        Some(Step::RoundEnded(began))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn all(schedule: &mut Schedule, now: Time) -> Vec<Step> {
        std::iter::from_fn(|| schedule.next(now)).collect()
    }

    #[test]
    fn rounds_serve_each_connection_once_and_keep_their_pace() {
        let span = Duration::from_millis(100);
        for (pace, second) in [
            (Pace::RoundThenSleep(span), ms(130)),
            (Pace::RoundEvery(span), ms(110)),
        ] {
            let mut schedule = Schedule::new(pace);
            assert_eq!(schedule.next_due(), Time::NEVER);
            for number in [4, 2, 9] {
                schedule.add(number, ms(10), 0);
            }
            assert_eq!(schedule.next_due(), ms(10));
            let sends = [4, 2, 9].map(|number| Step::Send(number, ms(10)));
            assert_eq!(schedule.next(ms(20)), Some(Step::RoundBegins(ms(10))));
            assert_eq!(schedule.next(ms(20)), Some(sends[0]));
            // The round is under way: a connection that joins now is served in the next.
            schedule.add(5, ms(25), 0);
            assert!(schedule.next_due() <= ms(20));
            assert_eq!(
                all(&mut schedule, ms(30)),
                [sends[1], sends[2], Step::RoundEnded(ms(20))]
            );
            assert_eq!(schedule.next_due(), second);
            assert_eq!(all(&mut schedule, second).len(), 6);
        }
    }

    #[test]
    fn rate_keeps_planned_times_and_spreads_connections() {
        let mut schedule = Schedule::new(Pace::Rate(Duration::from_millis(100)));
        for number in 0..100 {
            schedule.add(number, ms(0), u64::from(number));
        }
        let first = all(&mut schedule, ms(99));
        let half = all(&mut schedule, ms(150)).len();
        assert!(
            first.len() <= 100 && (120..180).contains(&(first.len() + half)),
            "{half}"
        );
        let mut sends = vec![0; 100];
        for turn in all(&mut schedule, ms(1150)) {
            let Step::Send(number, _) = turn else {
                panic!("{turn:?}")
            };
            sends[number as usize] += 1;
        }
        assert!(sends.iter().all(|&sends| sends == 10), "{sends:?}");
        schedule.remove(7);
        schedule.add(7, ms(1150), 1);
        let sevens = |turn: &&Step| matches!(turn, Step::Send(7, _));
        assert_eq!(
            all(&mut schedule, ms(2150)).iter().filter(sevens).count(),
            10
        );
    }

    proptest! {
        #[test]
        fn each_connection_sends_once_per_round_despite_leavers(
            count in 1u32..40,
            leaving in prop::collection::vec((0u32..40, 0usize..40), 0..30),
            joining in prop::collection::vec(0usize..40, 0..5),
        ) {
            let mut schedule = Schedule::new(Pace::RoundEvery(Duration::from_millis(100)));
            for number in 0..count {
                schedule.add(number, ms(0), 0);
            }
            let mut there: std::collections::BTreeSet<u32> = (0..count).collect();
            let mut expected = there.clone();
            let mut newcomers = 0;
            for round in 0..3 {
                let now = ms(100 * round);
                prop_assert_eq!(schedule.next(now), Some(Step::RoundBegins(now)));
                let mut sent = Vec::new();
                loop {
                    for _ in joining.iter().filter(|&&at| round == 0 && at == sent.len()) {
                        schedule.add(100 + newcomers, now, 0);
                        there.insert(100 + newcomers);
                        newcomers += 1;
                    }
                    for &(number, _) in leaving.iter().filter(|&&(_, at)| round == 1 && at == sent.len()) {
                        schedule.remove(number);
                        there.remove(&number);
                        if !sent.contains(&number) {
                            expected.remove(&number);
                        }
                    }
                    match schedule.next(now) {
                        Some(Step::Send(number, _)) => sent.push(number),
                        Some(Step::RoundEnded(_)) => break,
                        other => panic!("{other:?}"),
                    }
                    if sent.len() > 200 {
                        break;
                    }
                }
                sent.sort_unstable();
                prop_assert_eq!(&sent, &expected.iter().copied().collect::<Vec<_>>());
                expected = there.clone();
                if there.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}
