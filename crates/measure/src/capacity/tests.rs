//! Searches of simulated servers, 1,000 seeds for each model.

use std::fs;
use std::thread;

use super::*;

/// Time of a trial beyond its hold: start of the server, ramp, settling.
const OVERHEAD: Duration = Duration::from_secs(15);

const SEARCHES: u64 = 1_000;

/// A server whose capacity is known.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// Trials fail with a probability that is logistic in the logarithm of the load.
    Knee(f64),
    /// A knee of 1 %, and 5 % of the trials fail at any load.
    Lapses,
    /// Carries 10 % less after an overload, until it is restarted.
    Hysteresis,
    /// Carries 1 % less every minute.
    Leak,
    /// Collapses after 20 s above its capacity.
    SlowCollapse,
    /// From 90 % of its capacity on, a fifth of the trials fail; above it, all.
    Staircase,
    /// Carries any load.
    Unlimited,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

struct Simulation {
    server: Server,
    capacity: f64,
    /// Load above which the tester is unfit.
    tester_limit: f64,
    random: Random,
    overloaded: bool,
}

impl Simulation {
    fn verdict(&mut self, load: u64, hold: Duration, fresh: bool) -> Verdict {
        let load = load as f64;
        let capacity = self.capacity;
        self.overloaded &= !fresh;
        let random = self.random.next();
        let overload = |knee: f64| 1.0 / (1.0 + ((capacity.ln() - load.ln()) / knee).exp());
        let mut worsens = false;
        let fails = match self.server {
            Server::Knee(knee) => random < overload(knee),
            Server::Lapses => random < 0.05 + 0.95 * overload(0.01),
            Server::Hysteresis if self.overloaded => load > 0.9 * capacity,
            Server::Hysteresis => load > capacity,
            Server::Leak => {
                let left = |holds| 1.0 - 0.01 * holds * hold.as_secs_f64() / 60.0;
                // The slope reaches the threshold within ten holds.
                worsens = load > capacity * left(10.0);
                load > capacity * left(1.0)
            }
            Server::SlowCollapse => load > capacity && hold > Duration::from_secs(20),
            Server::Staircase if load > capacity => true,
            Server::Staircase => load > 0.9 * capacity && random < 0.2,
            Server::Unlimited => false,
        };
        self.overloaded |= fails;
        match (load > self.tester_limit, fails, worsens) {
            (true, ..) => Verdict::Invalid,
            (false, true, _) => Verdict::Failed,
            (false, false, true) => Verdict::GettingWorse,
            (false, false, false) => Verdict::Held,
        }
    }

    fn search(&mut self, settings: &Settings) -> (End, Search) {
        let cost = |_, hold| hold + OVERHEAD;
        let mut search = Search::new(settings.clone());
        loop {
            let (load, hold, fresh) = match search.next(cost) {
                Step::Try { load, hold, fresh } => (load, hold, fresh),
                Step::End(end) => return (end, search),
            };
            assert!((settings.min..=settings.max).contains(&load));
            let verdict = self.verdict(load, hold, fresh);
            search.record(Trial {
                load,
                hold,
                verdict,
                served: None,
                took: cost(load, hold),
                fresh,
            });
        }
    }
}

fn settings() -> Settings {
    Settings {
        from: 100,
        min: 1,
        max: 1_000_000,
        hold: Duration::from_secs(30),
        sure: 0.95,
        within: 0.1,
        budget: Duration::from_secs(30 * 60),
        method: Method::Interval,
        continuing: false,
    }
}

/// Simulates a search with a capacity from 60 to 1,500, and returns the capacity, too.
fn simulate(server: Server, tester: f64, seed: u64, settings: &Settings) -> (f64, End, Search) {
    let mut random = Random(seed * 7 + 1);
    let capacity = 60.0 * 25_f64.powf(random.next());
    let mut simulation = Simulation {
        server,
        capacity,
        tester_limit: capacity * tester,
        random: Random(seed),
        overloaded: false,
    };
    let (end, search) = simulation.search(settings);
    (capacity, end, search)
}

/// Shares of searches in per cent, and means.
#[derive(Debug, Default)]
struct Row {
    close: f64,
    contains: f64,
    ended: f64,
    width: f64,
    trials: f64,
    trials_max: usize,
}

impl Row {
    /// `truth` is the part of the capacity that the server carries for good.
    fn of(server: Server, truth: f64, settings: &Settings) -> Row {
        let mut row = Row::default();
        let share = 1.0 / SEARCHES as f64;
        for seed in 0..SEARCHES {
            let (capacity, end, search) = simulate(server, f64::INFINITY, seed, settings);
            let truth = capacity * truth;
            let answer = search.answer();
            let found = answer.capacity.expect("every server has one") as f64;
            let interval = answer.interval.expect("there were ten trials");
            // The answer is a whole number.
            let is_close = found >= (truth * 0.95).floor() && found <= truth * 1.05;
            let contains = interval.low.floor() <= truth && truth <= interval.high.ceil();
            row.close += 100.0 * share * f64::from(is_close);
            row.contains += 100.0 * share * f64::from(contains);
            row.ended += 100.0 * share * f64::from(end == End::Found);
            row.width += 100.0 * share * (interval.high - interval.low) / truth;
            row.trials += share * search.trials().len() as f64;
            row.trials_max = row.trials_max.max(search.trials().len());
            assert!(search.spent() <= settings.budget, "beyond the budget");
        }
        row
    }
}

/// Returns one row for each of these searches, made on all cores.
fn rows(models: &[(&'static str, Server, f64, Settings)]) -> Vec<Row> {
    thread::scope(|scope| {
        let started: Vec<_> = models
            .iter()
            .map(|(_, server, truth, settings)| scope.spawn(|| Row::of(*server, *truth, settings)))
            .collect();
        let ended = started.into_iter().map(|thread| thread.join());
        ended.map(|row| row.expect("it did not panic")).collect()
    })
}

#[test]
fn capacity_of_each_server_model_is_found_with_its_interval() {
    let continuing = Settings {
        continuing: true,
        ..settings()
    };
    let models = [
        ("sharp edge", Server::Knee(0.0005), 1.0, settings()),
        ("knee of 1 %", Server::Knee(0.01), 1.0, settings()),
        ("knee of 3 %", Server::Knee(0.03), 1.0, settings()),
        ("knee of 6 %", Server::Knee(0.06), 1.0, settings()),
        (
            "5 % of trials fail at any load",
            Server::Lapses,
            1.0,
            settings(),
        ),
        (
            "carries 10 % less after an overload, until its restart",
            Server::Hysteresis,
            1.0,
            settings(),
        ),
        (
            "the same, in one continuing run",
            Server::Hysteresis,
            1.0,
            continuing,
        ),
        (
            "leak: carries 1 % less each minute",
            Server::Leak,
            0.95,
            settings(),
        ),
        (
            "collapses after 20 s above its capacity",
            Server::SlowCollapse,
            1.0,
            settings(),
        ),
        (
            "a fifth of trials fail from 90 % of the capacity on",
            Server::Staircase,
            1.0,
            settings(),
        ),
    ];
    let rows = rows(&models);
    let mut table = String::new();
    for ((name, server, ..), row) in models.iter().zip(&rows) {
        table += &format!(
            "| {name} | {:.1} % | {:.1} % | {:.1} % | {:.0}, {} |\n",
            row.close, row.contains, row.width, row.trials, row.trials_max
        );
        let is_wide = matches!(server, Server::Knee(knee) if *knee > 0.03);
        assert!(row.close >= 95.0 || is_wide, "{name}: {row:?}");
        assert!(row.contains >= 93.0, "{name}: {row:?}");
        assert!(row.trials <= 35.0, "{name}: {row:?}");
    }
    assert_documented(&table);
}

/// Compares a table with docs/capacity.md. Another mathematical library may round other searches to
/// another load, so figures may differ by 1.
fn assert_documented(table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/capacity.md");
    let text = fs::read_to_string(path).expect("the document exists");
    for line in table.lines() {
        let name = line.split('|').nth(1).expect("it has cells");
        let documented = text
            .lines()
            .find(|other| other.split('|').nth(1) == Some(name));
        let documented = documented.unwrap_or_else(|| panic!("missing:\n{table}"));
        let (ours, theirs) = (numbers(line), numbers(documented));
        let are_close = ours.len() == theirs.len()
            && ours
                .iter()
                .zip(&theirs)
                .all(|(one, other)| (one - other).abs() <= 1.0);
        assert!(
            are_close,
            "docs/capacity.md is stale; its rows are:\n{table}"
        );
    }
}

fn numbers(line: &str) -> Vec<f64> {
    let words = line.split([' ', ',', '|']);
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn no_capacity_is_claimed_above_the_limit_of_the_tester() {
    let searches = |part: f64| {
        let (mut claims, mut ends) = (0, 0);
        for seed in 0..SEARCHES {
            let (capacity, end, search) = simulate(Server::Knee(0.01), part, seed, &settings());
            let limit = capacity * part;
            match (end, search.answer().capacity) {
                (End::TesterLimit, None) => ends += 1,
                (_, Some(found)) if found as f64 <= limit => claims += 1,
                other => panic!("{part} {capacity} {other:?}"),
            }
        }
        assert!(part > 0.99 || claims == 0, "{part}: {claims}");
        assert!(part < 2.0 || ends == 0, "{part}: {ends}");
    };
    thread::scope(|scope| {
        for part in [0.5, 0.9, 0.97, 1.0, 1.03, 1.1, 2.0] {
            scope.spawn(move || searches(part));
        }
    });
}

#[test]
fn load_that_fails_beyond_the_limit_of_the_tester_bounds_nothing() {
    // The server refuses most clients of 200, so the tester is fit again.
    let invalid = 120..180;
    for method in [Method::Quick, Method::Interval] {
        let mut search = Search::new(Settings {
            method,
            ..settings()
        });
        let end = loop {
            match search.next(|_, hold| hold) {
                Step::End(end) => break end,
                Step::Try { load, hold, fresh } => search.record(Trial {
                    load,
                    hold,
                    verdict: match load {
                        _ if invalid.contains(&load) => Verdict::Invalid,
                        ..180 => Verdict::Held,
                        _ => Verdict::Failed,
                    },
                    served: None,
                    took: hold,
                    fresh,
                }),
            }
        };
        let answer = search.answer();
        assert_eq!(
            (end, answer.capacity),
            (End::TesterLimit, None),
            "{method:?}"
        );
        assert!(answer.largest_held.is_some_and(|level| level.load < 120));
        assert!(search.trials().len() < 12, "{:?}", search.trials());
    }
    // A tester that is never fit.
    let mut search = Search::new(Settings {
        from: 200,
        method: Method::Quick,
        ..settings()
    });
    while let Step::Try { load, hold, fresh } = search.next(|_, hold| hold) {
        search.record(Trial {
            load,
            hold,
            verdict: Verdict::Invalid,
            served: None,
            took: hold,
            fresh,
        });
    }
    assert_eq!(search.next(|_, hold| hold), Step::End(End::TesterLimit));
}

#[test]
fn threshold_that_never_breaks_ends_at_the_maximum() {
    let (_, end, search) = simulate(Server::Unlimited, f64::INFINITY, 1, &settings());
    assert_eq!(end, End::AboveMax);
    assert_eq!(search.answer().capacity, None);
    assert_eq!(
        search.answer().largest_held.map(|level| level.load),
        Some(1_000_000)
    );
}

#[test]
fn smallest_load_that_fails_ends_the_search() {
    let settings = Settings {
        min: 5_000,
        from: 5_000,
        ..settings()
    };
    let (_, end, search) = simulate(Server::Knee(0.01), f64::INFINITY, 1, &settings);
    assert_eq!(end, End::BelowMin);
    // One failure may be a lapse.
    assert_eq!(search.trials().len(), 2);
}

#[test]
fn quick_search_finds_a_limit_of_37_in_eight_levels() {
    let mut simulation = Simulation {
        server: Server::Knee(0.0001),
        capacity: 37.5,
        tester_limit: f64::INFINITY,
        random: Random(1),
        overloaded: false,
    };
    let settings = Settings {
        from: 10,
        method: Method::Quick,
        ..settings()
    };
    let (end, search) = simulation.search(&settings);
    let answer = search.answer();
    assert_eq!((end, answer.capacity), (End::Found, Some(37)));
    assert!(search.trials().len() <= 8 && answer.interval.is_none());
}

#[test]
fn number_of_clients_that_a_full_server_serves_is_tried_next() {
    let trials = |method, max_levels: usize| {
        let mut search = Search::new(Settings {
            method,
            ..settings()
        });
        while let Step::Try { load, hold, fresh } = search.next(|_, hold| hold) {
            search.record(Trial {
                load,
                hold,
                verdict: if load > 1_037 {
                    Verdict::Failed
                } else {
                    Verdict::Held
                },
                served: (load > 1_037).then_some(1_037),
                took: hold,
                fresh,
            });
        }
        let loads: Vec<u64> = search.trials().iter().map(|trial| trial.load).collect();
        assert!(search.levels().len() <= max_levels, "{loads:?}");
        assert!(loads.contains(&1_037), "{loads:?}");
        search.answer().capacity
    };
    assert_eq!(trials(Method::Quick, 8), Some(1_037));
    let found = trials(Method::Interval, 15);
    assert!(
        found.is_some_and(|found| (1_000..=1_050).contains(&found)),
        "{found:?}"
    );
}

#[test]
fn first_passing_value_of_a_list_is_found_in_few_trials() {
    for values in 1_u64..40 {
        for capacity in 0..=values {
            let mut search = Search::new(Settings::of_list(values));
            let end = loop {
                match search.next(|_, hold| hold) {
                    Step::End(end) => break end,
                    Step::Try { load, hold, fresh } => {
                        let is_new = search.trials().iter().all(|trial| trial.load != load);
                        assert!(is_new, "{values} {capacity}: {load} again");
                        search.record(Trial {
                            load,
                            hold,
                            verdict: if load > capacity {
                                Verdict::Failed
                            } else {
                                Verdict::Held
                            },
                            served: None,
                            took: Duration::ZERO,
                            fresh,
                        });
                    }
                }
            };
            let largest = search.answer().largest_held.map_or(0, |level| level.load);
            assert_eq!(largest, capacity, "{values}");
            let expected = match capacity {
                0 => End::BelowMin,
                _ if capacity == values => End::AboveMax,
                _ => End::Found,
            };
            assert_eq!(end, expected, "{values} {capacity}");
            let most = 2 + values.ilog2() as usize;
            assert!(search.trials().len() <= most, "{values} {capacity}");
        }
    }
}

#[test]
fn level_that_gets_worse_is_held_twice_as_long_once() {
    let mut search = Search::new(settings());
    let hold = settings().hold;
    let mut record = |verdict, hold| {
        search.record(Trial {
            load: 100,
            hold,
            verdict,
            served: None,
            took: hold,
            fresh: true,
        });
        search.clone()
    };
    let next = record(Verdict::GettingWorse, hold).next(|_, hold| hold);
    let again = Step::Try {
        load: 100,
        hold: hold * 2,
        fresh: true,
    };
    assert_eq!(next, again);
    let failed = record(Verdict::GettingWorse, hold * 2);
    assert_eq!(failed.levels()[0].failed, 1);
}

#[test]
fn search_goes_on_from_the_trials_of_an_earlier_one() {
    let (_, end, search) = simulate(Server::Knee(0.03), f64::INFINITY, 3, &settings());
    let trials = search.trials();
    for done in 0..=trials.len() {
        let resumed = Search::resumed(settings(), &trials[..done]);
        let next = match trials.get(done) {
            Some(trial) => Step::Try {
                load: trial.load,
                hold: trial.hold,
                fresh: true,
            },
            None => Step::End(end),
        };
        assert_eq!(resumed.next(|_, hold| hold + OVERHEAD), next);
    }
}
