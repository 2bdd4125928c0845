//! The shares of all workers together carry out exactly the plan.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::Time;
use measure::load::{
    Action, Load, REJOIN_PAUSE, Shape, Share, Stage, divide, last_start, period, started, wanted,
};
use proptest::prelude::*;

fn closed(shape: Shape) -> Load {
    Load {
        shape,
        rejoin: false,
        after: Duration::ZERO,
    }
}

fn at(millis: u64) -> Time {
    Time::from_start(Duration::from_millis(millis))
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// All actions due until `end`, by following `next_due`. Stopped clients end at once.
fn run(load: &Load, worker: u32, workers: u32, end: Time) -> Vec<(Time, Action)> {
    carry_out_all(Share::new(load, worker, workers), end)
}

fn carry_out_all(mut share: Share, end: Time) -> Vec<(Time, Action)> {
    let mut done = Vec::new();
    while let Some(now) = share.next_due().filter(|due| *due <= end) {
        while let Some(action) = share.next_action(now) {
            if let Action::Stop { slot } = action {
                share.ended(slot, now);
            }
            done.push((now, action));
        }
    }
    done
}

fn starts(load: &Load, end: Time) -> Vec<(u64, u64)> {
    run(load, 0, 1, end)
        .into_iter()
        .filter_map(|(_, action)| match action {
            Action::Start { slot, due, .. } => Some((slot, due.as_nanos())),
            _ => None,
        })
        .collect()
}

/// Slots, each with a time in milliseconds.
type Slots = Vec<(u64, u64)>;

/// Carries out what is due by `end`. Stopped clients end at once. Returns the slots that started
/// and stopped, each with its time in milliseconds.
fn carry_out(share: &mut Share, end: Time) -> (Slots, Slots) {
    let (mut started, mut stopped) = (Vec::new(), Vec::new());
    while let Some(now) = share.next_due().filter(|due| *due <= end) {
        while let Some(action) = share.next_action(now) {
            match action {
                Action::Start { slot, due, .. } => started.push((slot, due.as_nanos() / 1_000_000)),
                Action::Stop { slot } => {
                    share.ended(slot, now);
                    stopped.push((slot, now.as_nanos() / 1_000_000));
                }
                Action::TurnAway { .. } => panic!("the model is closed"),
            }
        }
    }
    (started, stopped)
}

#[test]
fn open_plan_is_extended_while_it_runs() {
    let mut shares: Vec<Share> = (0..2)
        .map(|worker| Share::open(false, measure::load::Slots::every(worker, 2)))
        .collect();
    let mut all = |extend: Option<(u64, u64, u64)>, dead: &[u64], end: u64| {
        let mut found = (Vec::new(), Vec::new());
        for (worker, share) in shares.iter_mut().enumerate() {
            for slot in dead.iter().filter(|slot| *slot % 2 == worker as u64) {
                share.ended(*slot, at(end));
            }
            if let Some((begin, over, clients)) = extend {
                share.extend(at(begin), millis(over), clients);
            }
            let (started, stopped) = carry_out(share, at(end));
            found.0.extend(started);
            found.1.extend(stopped);
            assert!(!share.is_finished());
        }
        found.0.sort_unstable();
        found.1.sort_unstable();
        found
    };
    assert_eq!(all(None, &[], 900), (vec![], vec![]));
    let (started, _) = all(Some((1_000, 1_000, 4)), &[], 2_000);
    assert_eq!(started, [(0, 1_000), (1, 1_250), (2, 1_500), (3, 1_750)]);
    // A client that ends is not replaced before the next level.
    assert_eq!(all(None, &[1], 3_000), (vec![], vec![]));
    let (started, stopped) = all(Some((5_000, 0, 6)), &[], 6_000);
    assert_eq!(started, [(1, 5_000), (4, 5_000), (5, 5_000)]);
    assert_eq!(stopped, []);
    // Nor is one that the next level does not want.
    let (started, stopped) = all(Some((7_000, 1_000, 2)), &[4, 0], 9_000);
    assert_eq!(started, [(0, 7_000)]);
    let slots: Vec<u64> = stopped.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [2, 3, 5]);
    for share in &mut shares {
        share.close();
        for slot in 0..2 {
            share.ended(slot, at(9_500));
        }
        assert!(share.is_finished());
    }
}

#[test]
fn each_shape_starts_its_clients_on_the_nanosecond() {
    let end = at(100_000);
    let at_once = closed(Shape::AtOnce { clients: 3 });
    assert_eq!(starts(&at_once, end), [(0, 0), (1, 0), (2, 0)]);
    let ramp = closed(Shape::Ramp {
        clients: 3,
        over: Duration::from_secs(1),
    });
    assert_eq!(
        starts(&ramp, end),
        [(0, 0), (1, 333_333_333), (2, 666_666_666)]
    );
    let one_every = closed(Shape::OneEvery {
        clients: 3,
        every: Duration::from_secs(2),
    });
    assert_eq!(
        starts(&one_every, end),
        [(0, 0), (1, 2_000_000_000), (2, 4_000_000_000)]
    );
    let arrivals = closed(Shape::Arrivals {
        per_second: 3.0,
        max_clients: 10,
    });
    assert_eq!(
        starts(&arrivals, at(1_000)),
        [
            (0, 0),
            (1, 333_333_333),
            (2, 666_666_666),
            (3, 1_000_000_000)
        ]
    );
}

#[test]
fn long_plans_do_not_drift_and_stay_small() {
    let clients = 1_000_000;
    let over = Duration::from_secs(86_400);
    let load = closed(Shape::Ramp { clients, over });
    let mut share = Share::new(&load, 0, 1);
    let mut last = None;
    while let Some(action) = share.next_action(Time::from_start(over)) {
        last = Some(action);
    }
    assert_eq!(
        last,
        Some(Action::Start {
            slot: clients - 1,
            generation: 0,
            due: Time::from_nanos(86_400_000_000_000 - 86_400_000),
            rejoins: false
        })
    );
    assert_eq!(wanted(&load, Time::from_start(over)), clients);
    // Stages are evaluated lazily, so this takes neither time nor memory.
    let stages = (0..10_000).map(|n| Stage {
        clients: if n % 2 == 0 { 10_000_000 } else { 0 },
        over: Duration::from_secs(3600),
    });
    let huge = closed(Shape::Stages(stages.collect()));
    assert!(Share::new(&huge, 0, 1).next_due().is_some());
    assert_eq!(
        wanted(&huge, Time::from_start(Duration::from_secs(3600))),
        10_000_000
    );
}

#[test]
fn stages_go_up_and_down_linearly() {
    let load = closed(Shape::Stages(vec![
        Stage {
            clients: 4,
            over: millis(400),
        },
        Stage {
            clients: 4,
            over: millis(100),
        },
        Stage {
            clients: 1,
            over: millis(300),
        },
        Stage {
            clients: 3,
            over: Duration::ZERO,
        },
        Stage {
            clients: 0,
            over: Duration::ZERO,
        },
    ]));
    let levels: Vec<u64> = [0, 99, 100, 399, 400, 500, 599, 600, 699, 700, 799, 800]
        .map(|time| wanted(&load, at(time)))
        .to_vec();
    assert_eq!(levels, [1, 1, 2, 4, 4, 4, 4, 3, 3, 2, 2, 0]);
    let stops: Vec<(u64, u64)> = run(&load, 0, 1, at(1_000))
        .into_iter()
        .filter_map(|(now, action)| match action {
            Action::Stop { slot } => Some((slot, now.as_nanos() / 1_000_000)),
            _ => None,
        })
        .collect();
    assert_eq!(stops[..2], [(3, 600), (2, 700)]);
    assert_eq!(load.ends(), Some(millis(800)));
}

#[test]
fn client_at_the_bottom_of_a_valley_stays() {
    let load = closed(Shape::Stages(vec![
        Stage {
            clients: 2,
            over: Duration::ZERO,
        },
        Stage {
            clients: 1,
            over: millis(100),
        },
        Stage {
            clients: 2,
            over: millis(100),
        },
    ]));
    let actions = run(&load, 0, 1, at(1_000));
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert_eq!(wanted(&load, at(100)), 2);
}

#[test]
fn slot_is_reused_only_after_its_client_has_ended() {
    let load = closed(Shape::Stages(vec![
        Stage {
            clients: 1,
            over: Duration::ZERO,
        },
        Stage {
            clients: 0,
            over: millis(100),
        },
        Stage {
            clients: 0,
            over: millis(100),
        },
        Stage {
            clients: 1,
            over: Duration::ZERO,
        },
    ]));
    let mut share = Share::new(&load, 0, 1);
    assert!(matches!(
        share.next_action(at(0)),
        Some(Action::Start {
            slot: 0,
            generation: 0,
            ..
        })
    ));
    assert_eq!(share.next_action(at(100)), Some(Action::Stop { slot: 0 }));
    assert_eq!(share.next_action(at(200)), None);
    assert!(!share.is_finished());
    share.ended(0, at(2_000));
    assert_eq!(share.next_due(), Some(at(2_000)));
    assert_eq!(
        share.next_action(at(2_000)),
        Some(Action::Start {
            slot: 0,
            generation: 1,
            due: at(2_000),
            rejoins: false
        })
    );
    // Repeated calls, and calls for unknown slots, have no effect.
    share.ended(0, at(2_100));
    share.ended(0, at(2_200));
    share.ended(77, at(2_200));
    assert!(share.is_finished());
}

#[test]
fn rejoining_client_waits_for_the_pause() {
    let load = Load {
        shape: Shape::AtOnce { clients: 1 },
        rejoin: true,
        after: Duration::ZERO,
    };
    let mut share = Share::new(&load, 0, 1);
    assert!(share.next_action(at(0)).is_some());
    share.ended(0, at(1));
    assert_eq!(share.next_due(), Some(Time::ZERO + REJOIN_PAUSE));
    assert_eq!(share.next_action(at(999)), None);
    assert_eq!(
        share.next_action(at(1_000)),
        Some(Action::Start {
            slot: 0,
            generation: 1,
            due: at(1_000),
            rejoins: true
        })
    );
    share.ended(0, at(60_000));
    assert_eq!(share.next_due(), Some(at(60_000)));
    assert!(!share.is_finished());
    share.close();
    assert_eq!(share.next_due(), None);
    assert_eq!(share.next_action(at(99_000)), None);
    assert!(share.is_finished());
}

#[test]
fn without_rejoin_the_share_finishes_with_its_clients() {
    let load = closed(Shape::Ramp {
        clients: 2,
        over: millis(200),
    });
    let mut share = Share::new(&load, 0, 1);
    assert!(share.next_action(at(0)).is_some());
    share.ended(0, at(50));
    assert!(!share.is_finished());
    assert!(share.next_action(at(100)).is_some());
    assert_eq!(share.next_due(), None);
    assert!(!share.is_finished());
    share.ended(1, at(150));
    assert!(share.is_finished());
}

#[test]
fn arrivals_without_a_slot_are_turned_away_and_slots_reused() {
    let load = closed(Shape::Arrivals {
        per_second: 10.0,
        max_clients: 2,
    });
    let mut share = Share::new(&load, 0, 1);
    let actions: Vec<_> = std::iter::from_fn(|| share.next_action(at(300))).collect();
    assert_eq!(
        actions,
        [
            Action::Start {
                slot: 0,
                generation: 0,
                due: at(0),
                rejoins: false
            },
            Action::Start {
                slot: 1,
                generation: 0,
                due: at(100),
                rejoins: false
            },
            Action::TurnAway { due: at(200) },
            Action::TurnAway { due: at(300) },
        ]
    );
    share.ended(1, at(310));
    share.ended(0, at(320));
    assert_eq!(
        share.next_action(at(400)),
        Some(Action::Start {
            slot: 0,
            generation: 1,
            due: at(400),
            rejoins: false
        })
    );
    assert_eq!(share.active(), 1);
    share.close();
    assert!(!share.is_finished());
    share.ended(0, at(500));
    assert!(share.is_finished());
    // Three workers and two slots: the third worker neither starts nor turns away clients.
    let third = Share::new(&load, 2, 3);
    assert_eq!(third.next_due(), None);
    assert!(third.is_finished());
}

#[test]
fn rate_with_infinitely_many_digits_is_kept() {
    let shape: Shape =
        serde_json::from_str(r#"{"arrivals": "1000/h", "max_clients": 1}"#).expect("valid");
    let text = serde_json::to_string(&shape).expect("plain data");
    assert_eq!(serde_json::from_str::<Shape>(&text).expect("valid"), shape);
    // The 1000th client arrives just before the end of the hour, without drift.
    let load = closed(shape);
    let end = Time::from_start(Duration::from_secs(3600));
    let last = run(&load, 0, 1, end).pop().map(|(now, _)| now);
    assert!(
        last.is_some_and(|last| end.since(last) < Duration::from_millis(1)),
        "{last:?}"
    );
}

fn shape() -> impl Strategy<Value = Shape> {
    let clients = 1..60u64;
    let time = (0..4_000u64).prop_map(Duration::from_millis);
    prop_oneof![
        clients
            .clone()
            .prop_map(|clients| Shape::AtOnce { clients }),
        (clients.clone(), time.clone()).prop_map(|(clients, over)| Shape::Ramp { clients, over }),
        (
            clients.clone(),
            (0..200_000_007u64).prop_map(Duration::from_nanos)
        )
            .prop_map(|(clients, every)| Shape::OneEvery { clients, every }),
        proptest::collection::vec((0..40u64, time), 1..6).prop_map(|stages| Shape::Stages(
            stages
                .into_iter()
                .map(|(clients, over)| Stage { clients, over })
                .collect()
        )),
        (0.1..30.0f64, 1..20u64).prop_map(|(per_second, max_clients)| Shape::Arrivals {
            per_second,
            max_clients
        }),
    ]
}

/// Level after each moment at which an action is due.
fn levels(actions: &[(Time, Action)]) -> BTreeMap<Time, i64> {
    let mut levels = BTreeMap::new();
    let mut level = 0;
    for (now, action) in actions {
        level += match action {
            Action::Start { .. } => 1,
            Action::Stop { .. } => -1,
            Action::TurnAway { .. } => 0,
        };
        levels.insert(*now, level);
    }
    levels
}

proptest! {
    /// A held plan does the same as one that is not held, later by the duration of the hold; and
    /// nothing during the hold.
    #[test]
    fn a_held_plan_does_the_same_later(
        stages in proptest::collection::vec((0u64..20, 1u64..10_000), 1..5),
        from in 0u64..20_000,
        lasts in 0u64..10_000,
        workers in 1u32..4,
    ) {
        let stages = stages.into_iter().map(|(clients, over)| Stage { clients, over: millis(over) });
        let load = closed(Shape::Stages(stages.collect()));
        let (from, to) = (at(from), at(from) + millis(lasts));
        for worker in 0..workers {
            let mut share = Share::new(&load, worker, workers);
            let mut done = Vec::new();
            let mut work = |share: &mut Share, end: Time| {
                while let Some(now) = share.next_due().filter(|due| *due <= end) {
                    while let Some(action) = share.next_action(now) {
                        if let Action::Stop { slot } = action {
                            share.ended(slot, now);
                        }
                        done.push((now, action));
                    }
                }
            };
            // Workers are notified before the hold begins.
            share.hold(from);
            work(&mut share, to);
            share.resume(to);
            work(&mut share, at(1_000_000));
            let later = |time: Time| match time <= from {
                true => time,
                false => time + to.since(from),
            };
            let wanted = run(&load, worker, workers, at(1_000_000)).into_iter();
            let wanted = wanted.map(|(now, action)| {
                let action = match action {
                    Action::Start { slot, generation, due, rejoins } => {
                        Action::Start { slot, generation, due: later(due), rejoins }
                    }
                    other => other,
                };
                (later(now), action)
            });
            prop_assert_eq!(done, wanted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn shares_together_are_the_whole(
        shape in shape(),
        weights in proptest::collection::vec(1..4u32, 1..6),
        workers in 1..4u64,
    ) {
        let arrivals = matches!(shape, Shape::Arrivals { .. });
        let load = closed(shape);
        let end = at(20_000);
        let whole = run(&load, 0, 1, end);
        let mut parts: Vec<(Time, Action)> = Vec::new();
        let owners = divide(&weights, period(&weights));
        for (runner, worker) in (0..weights.len()).flat_map(|one| (0..workers).map(move |two| (one, two))) {
            let own = measure::load::Slots::of_owner(runner, &owners).split(worker, workers);
            let part = carry_out_all(Share::of(&load, own), end);
            for (_, action) in &part {
                if let Action::Start { slot, .. } | Action::Stop { slot } = action {
                    prop_assert_eq!(owners[*slot as usize % owners.len()], runner);
                }
            }
            parts.extend(part);
        }
        let key = |(now, action): &(Time, Action)| match *action {
            // The slot of an arrival depends on the number of workers; its time does not.
            _ if arrivals => (*now, 0, 0, 0),
            Action::Start { slot, generation, .. } => (*now, slot, 2 * generation, 0),
            Action::Stop { slot } => (*now, slot, 1, 0),
            Action::TurnAway { .. } => (*now, 0, 0, 1),
        };
        let sorted = |actions: &[(Time, Action)]| {
            let mut keys: Vec<_> = actions.iter().map(key).collect();
            keys.sort_unstable();
            keys
        };
        prop_assert_eq!(sorted(&parts), sorted(&whole));
        let most = |actions: &[(Time, Action)]| {
            actions.iter().filter(|(_, a)| matches!(a, Action::Start { .. })).count()
        };
        if arrivals {
            prop_assert_eq!(most(&parts), most(&whole));
        }
    }

    #[test]
    fn plan_level_equals_active_clients(shape in shape(), probes in proptest::collection::vec(0..20_000_000_000u64, 20)) {
        let load = closed(shape);
        let end = at(20_000);
        let levels = levels(&run(&load, 0, 1, end));
        let probes = probes
            .into_iter()
            .map(Time::from_nanos)
            // Exactly at each action, and 1 ns before it.
            .chain(levels.keys().copied())
            .chain(levels.keys().map(|time| Time::from_nanos(time.as_nanos().saturating_sub(1))));
        for probe in probes {
            let active = levels.range(..=probe).next_back().map_or(0, |(_, level)| *level);
            prop_assert_eq!(wanted(&load, probe) as i64, active, "at {:?}", probe);
        }
        prop_assert!(levels.values().all(|level| *level as u64 <= load.clients_max()));
    }

    #[test]
    fn coarse_ticks_miss_nothing(shape in shape(), tick in 1..7_000u64) {
        let load = closed(shape);
        let end = 21_000;
        let fine: Vec<Action> = run(&load, 0, 1, at(end)).into_iter().map(|(_, action)| action).collect();
        let mut share = Share::new(&load, 0, 1);
        let mut coarse = Vec::new();
        let mut now = 0;
        while now < end {
            now = (now + tick).min(end);
            while let Some(action) = share.next_action(at(now)) {
                if let Action::Stop { slot } = action {
                    share.ended(slot, at(now));
                }
                coarse.push(action);
            }
        }
        // A slot that is left and entered between two ticks is entered at the tick, so the numbers
        // of actions are compared, not their times.
        let count = |actions: &[Action]| {
            let mut slots: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
            let mut turned_away = 0;
            for action in actions {
                match action {
                    Action::Start { slot, .. } => slots.entry(*slot).or_default().0 += 1,
                    Action::Stop { slot } => slots.entry(*slot).or_default().1 += 1,
                    Action::TurnAway { .. } => turned_away += 1,
                }
            }
            (slots, turned_away)
        };
        prop_assert_eq!(count(&coarse), count(&fine));
    }

    #[test]
    fn later_begin_moves_the_whole_plan(shape in shape(), after in 0..100_000u64, workers in 1..4u32) {
        let now = closed(shape);
        let later = Load { after: millis(after), ..now.clone() };
        let end = at(20_000);
        let moved = |(due, action): (Time, Action)| match action {
            Action::Start { slot, generation, due: planned, rejoins } => {
                let due_later = planned + millis(after);
                (due + millis(after), Action::Start { slot, generation, due: due_later, rejoins })
            }
            Action::TurnAway { due: planned } => {
                (due + millis(after), Action::TurnAway { due: planned + millis(after) })
            }
            Action::Stop { slot } => (due + millis(after), Action::Stop { slot }),
        };
        for worker in 0..workers {
            let expected: Vec<_> = run(&now, worker, workers, end).into_iter().map(moved).collect();
            let done = run(&later, worker, workers, end + millis(after));
            prop_assert_eq!(done, expected);
        }
        for time in [0, 1, 999, 5_000, 20_000] {
            let moved = at(time) + millis(after);
            prop_assert_eq!(wanted(&later, moved), wanted(&now, at(time)));
            prop_assert_eq!(started(&later, moved), started(&now, at(time)));
        }
        if after > 0 {
            let before = at(after) - Duration::from_nanos(1);
            prop_assert_eq!((wanted(&later, before), started(&later, before)), (0, 0));
        }
        let ends = now.ends().map(|ends| ends + millis(after));
        prop_assert_eq!(later.ends(), ends);
        let last = last_start(&now).map(|last| last + millis(after));
        prop_assert_eq!(last_start(&later), last);
    }

    #[test]
    fn with_rejoin_the_level_comes_back(clients in 1..30u64, deaths in proptest::collection::vec((0..30u64, 0..5_000u64), 0..60)) {
        let load = Load { shape: Shape::AtOnce { clients }, rejoin: true, after: Duration::ZERO };
        let mut share = Share::new(&load, 0, 1);
        let mut deaths = deaths;
        deaths.sort_by_key(|(_, time)| *time);
        for (slot, time) in deaths {
            while share.next_action(at(time)).is_some() {}
            share.ended(slot, at(time));
            prop_assert!(share.active() <= clients);
            prop_assert!(!share.is_finished());
        }
        while share.next_action(at(10_000)).is_some() {}
        prop_assert_eq!(share.active(), clients);
    }

    #[test]
    fn loads_are_written_and_read_back(shape in shape(), rejoin: bool, after in 0..100_000u64) {
        prop_assume!(!matches!(&shape, Shape::Stages(stages) if stages.iter().all(|s| s.clients == 0)));
        let load = Load { shape, rejoin, after: millis(after) };
        let text = serde_json::to_string(&load).expect("plain data");
        let back: Load = serde_json::from_str(&text).expect("what was written");
        prop_assert_eq!(back, load);
    }
}
