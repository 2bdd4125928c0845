//! Comparisons of known values, and of simulated servers, 200 of each kind.

use std::fs;

use super::*;

fn ratio(pairs: &[(f64, f64)]) -> Comparison {
    compare(Sample::Pairs(pairs), false, MIN_EFFECT).expect("there are values")
}

fn word(comparison: Comparison, larger_is_better: bool) -> Word {
    words(&[(comparison, larger_is_better)])[0]
}

#[test]
fn paired_test_has_the_known_interval() {
    // Differences of 0.10, 0.12, 0.08, 0.11, 0.09: mean 0.1, deviation 0.0158, t(4) = 2.776.
    let pairs = [0.10, 0.12, 0.08, 0.11, 0.09].map(|d: f64| (100.0, 100.0 * d.exp()));
    let found = ratio(&pairs);
    assert_eq!(found.scale, Scale::Ratio);
    assert!((found.effect - 0.1_f64.exp()).abs() < 1e-9, "{found:?}");
    let (low, high) = found.interval.expect("there are five pairs");
    assert!((low.ln() - (0.1 - 0.019_63)).abs() < 1e-4, "{found:?}");
    assert!((high.ln() - (0.1 + 0.019_63)).abs() < 1e-4, "{found:?}");
    // t = 14.14 with four degrees of freedom.
    let p = found.p_value.expect("they vary");
    assert!((p - 0.000_145).abs() < 1e-5, "{p}");
    assert_eq!(word(found.clone(), true), Word::Better);
    assert_eq!(word(found, false), Word::Worse);
}

#[test]
fn separate_runs_are_judged_by_welch() {
    // The logarithms are 1 to 5 and 3, 5, 7, 9: means 3 and 6, errors 0.5 and 5/3, freedom 4.75.
    let a = [1.0, 2.0, 3.0, 4.0, 5.0].map(f64::exp);
    let b = [3.0, 5.0, 7.0, 9.0].map(f64::exp);
    let found = compare(Sample::Separate(&a, &b), false, MIN_EFFECT).expect("there are values");
    assert!((found.effect.ln() - 3.0).abs() < 1e-9, "{found:?}");
    // t = 3 / sqrt(0.5 + 1.6667) = 2.0381.
    let p = found.p_value.expect("they vary");
    assert!((p - 0.1004).abs() < 2e-3, "{p}");
    assert_eq!(word(found, true), Word::CannotTell);
}

#[test]
fn few_runs_give_the_difference_but_no_word() {
    for pairs in [&[(100.0, 50.0)][..], &[(100.0, 50.0), (100.0, 51.0)]] {
        let found = ratio(pairs);
        assert!((found.effect - 0.5).abs() < 0.01, "{found:?}");
        assert_eq!((found.interval, found.p_value), (None, None));
        assert_eq!(word(found, true), Word::CannotTell);
    }
    assert_eq!(compare(Sample::Pairs(&[]), false, MIN_EFFECT), None);
    assert_eq!(
        compare(Sample::Separate(&[1.0], &[]), false, MIN_EFFECT),
        None
    );
}

#[test]
fn shares_are_compared_in_percentage_points() {
    let share = |pairs: &[(f64, f64)]| {
        compare(Sample::Pairs(pairs), true, MIN_EFFECT).expect("there are values")
    };
    // Five times the loss, but of almost nothing.
    let little = share(&[(0.0001, 0.0005); 6]);
    assert_eq!(little.scale, Scale::Difference);
    assert_eq!(word(little, false), Word::Same);
    let more = share(&[(0.0, 0.021), (0.001, 0.02), (0.0, 0.019)]);
    assert!((more.effect - 0.0197).abs() < 1e-4, "{more:?}");
    assert_eq!(word(more, false), Word::Worse);
    assert_eq!(word(share(&[(0.0, 0.0); 6]), false), Word::Same);
    // Every run alike.
    assert_eq!(word(share(&[(0.0, 0.1); 6]), false), Word::Worse);
}

#[test]
fn zero_has_no_ratio() {
    // Counts of which some are zero: compared with 5 % of the mean of A, which is 2.5.
    let stalls = [(2.0, 0.0), (3.0, 0.0), (2.0, 0.0), (3.0, 1.0)];
    let found = ratio(&stalls);
    assert_eq!(found.scale, Scale::Difference);
    assert!((found.min_effect - 0.125).abs() < 1e-9, "{found:?}");
    assert_eq!(word(found, false), Word::Better);
    assert_eq!(word(ratio(&[(0.0, 0.0); 6]), false), Word::Same);
    assert_eq!(word(ratio(&[(0.0, 3.0); 6]), false), Word::Worse);
    // From zero, any difference counts, but chance does not.
    let once = [(0.0, 0.0), (0.0, 5.0), (0.0, 0.0), (0.0, 0.0)];
    assert_eq!(word(ratio(&once), false), Word::CannotTell);
}

#[test]
fn one_spoiled_pair_is_left_out_but_never_makes_servers_the_same() {
    let slower = [0.90, 0.91, 0.89, 0.90, 0.45, 0.91].map(|b| (1.0, b));
    let found = ratio(&slower);
    assert_eq!(found.spoiled, [4]);
    assert_eq!(word(found, true), Word::Worse);
    let alike = [1.0, 1.01, 0.99, 1.0, 0.5, 1.01].map(|b| (1.0, b));
    let found = ratio(&alike);
    assert_eq!(found.spoiled, [4]);
    assert_eq!(word(found, true), Word::CannotTell);
    // Two of six are no accident.
    let often = [1.0, 0.5, 0.99, 1.0, 0.5, 1.01].map(|b| (1.0, b));
    assert!(ratio(&often).spoiled.is_empty());
    // With few pairs nobody knows which one is spoiled.
    assert!(ratio(&alike[2..]).spoiled.is_empty());
}

#[test]
fn absurd_values_have_no_word() {
    let huge = [0.0, 1e200, 2e200];
    let tiny = [0.0, 1e-200, 2e-200];
    let most = [f64::MAX, f64::MAX, 1.0];
    for all in [huge, tiny, most] {
        let pairs: Vec<(f64, f64)> = all.into_iter().zip([1.0, 3.0, 2.0]).collect();
        let separate = Sample::Separate(&all, &[1.0, 3.0, 2.0]);
        for sample in [Sample::Pairs(&pairs), separate] {
            for is_share in [false, true] {
                let found = compare(sample, is_share, MIN_EFFECT).expect("there are values");
                let _ = word(found, true);
            }
        }
    }
    let found = compare(Sample::Separate(&huge, &huge), false, MIN_EFFECT);
    assert_eq!(
        word(found.expect("there are values"), true),
        Word::CannotTell
    );
}

#[test]
fn many_metrics_need_more_evidence() {
    // Significant alone, with p between 0.01 and 0.05.
    let doubtful = ratio(&[0.80, 0.95, 0.98, 0.85, 0.93, 0.97].map(|b| (1.0, b)));
    let p = doubtful.p_value.expect("they vary");
    assert!((0.01..0.05).contains(&p), "{p}");
    let clear = ratio(&[0.80, 0.81, 0.79, 0.80, 0.82, 0.80].map(|b| (1.0, b)));
    let noise = ratio(&[0.9, 1.2, 1.0, 1.1, 0.8, 1.05].map(|b| (1.0, b)));
    assert_eq!(word(doubtful.clone(), true), Word::Worse);
    let together = [(doubtful.clone(), true), (clear, true), (noise, true)];
    let found = words(&together);
    // Holm: the smallest p-value counts three times, the second twice.
    assert_eq!(found[1], Word::Worse);
    let expected = match p * 2.0 < 0.05 {
        true => Word::Worse,
        false => Word::CannotTell,
    };
    assert_eq!(found[0], expected);
    assert_eq!(found[2], Word::CannotTell);
    let many: Vec<(Comparison, bool)> = (0..6).map(|_| (doubtful.clone(), true)).collect();
    assert!(words(&many).iter().all(|word| *word == Word::CannotTell));
    // Metrics without a difference in any run are no tests.
    let constant = ratio(&[(5.0, 5.0); 6]);
    let mut others: Vec<(Comparison, bool)> = (0..9).map(|_| (constant.clone(), true)).collect();
    others.push((doubtful, true));
    assert_eq!(words(&others)[9], Word::Worse);
}

/// SplitMix64, with normal numbers by the method of Box and Muller.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// A simulated server, and the machine that it runs on. All spreads are of logarithms.
#[derive(Clone, Copy)]
struct Server {
    /// Correlation of neighbouring windows.
    phi: f64,
    /// Spread between runs.
    between: f64,
    /// Step of the machine's random walk from run to run.
    drift: f64,
    /// Loss of speed in half of the runs.
    mode: f64,
    /// True if one of all runs takes twice as long.
    is_spoiled: bool,
}

const WINDOWS: usize = 60;
const SPREAD_WITHIN: f64 = 0.05;

/// Returns the mean of the windows of a run, as a logarithm.
fn simulated_run(server: Server, random: &mut Random) -> f64 {
    let (mut window, mut sum) = (random.normal(), 0.0);
    for _ in 0..WINDOWS {
        window = server.phi * window + (1.0 - server.phi.powi(2)).sqrt() * random.normal();
        sum += window;
    }
    let slow = match random.uniform() < 0.5 {
        true => (1.0 - server.mode).ln(),
        false => 0.0,
    };
    SPREAD_WITHIN * sum / WINDOWS as f64 + server.between * random.normal() + slow
}

/// Compares a server with another one that has `speed` of it. Runs alternate AB BA AB.
fn simulated(server: Server, pairs: usize, speed: f64, seed: u64) -> Word {
    let mut random = Random(seed);
    let spoiled = (random.uniform() * (2 * pairs) as f64) as usize;
    let mut machine = 0.0;
    let pairs: Vec<(f64, f64)> = (0..pairs)
        .map(|pair| {
            let mut values = [0.0; 2];
            for place in 0..2 {
                let which = (place + pair) % 2;
                machine += server.drift * random.normal();
                let mut log = machine + simulated_run(server, &mut random);
                if which == 1 {
                    log += speed.ln();
                }
                if server.is_spoiled && 2 * pair + which == spoiled {
                    log += 0.5_f64.ln();
                }
                values[which] = 100.0 * log.exp();
            }
            (values[0], values[1])
        })
        .collect();
    word(ratio(&pairs), true)
}

#[test]
fn identical_servers_are_the_same_and_slower_ones_are_found() {
    const COMPARISONS: u64 = 200;
    let usual = Server {
        phi: 0.8,
        between: 0.02,
        drift: 0.0,
        mode: 0.0,
        is_spoiled: false,
    };
    let cells = [
        ("windows independent", Server { phi: 0.0, ..usual }),
        ("correlation of windows 0.8", usual),
        ("correlation 0.95", Server { phi: 0.95, ..usual }),
        (
            "machine drifts by 1 % a run",
            Server {
                drift: 0.01,
                ..usual
            },
        ),
        (
            "half of the runs 5 % slower",
            Server {
                mode: 0.05,
                ..usual
            },
        ),
        (
            "one run takes twice as long",
            Server {
                is_spoiled: true,
                ..usual
            },
        ),
    ];
    let mut table = String::new();
    for (name, server) in cells {
        let mut cells = Vec::new();
        for pairs in [6, 12] {
            let count = |speed: f64, wanted: &[Word]| {
                let found = (0..COMPARISONS)
                    .filter(|seed| wanted.contains(&simulated(server, pairs, speed, seed * 7_919)));
                100.0 * found.count() as f64 / COMPARISONS as f64
            };
            let different = count(1.0, &[Word::Better, Word::Worse]);
            let same = count(1.0, &[Word::Same]);
            let slower = count(0.9, &[Word::Worse]);
            assert!(different <= 2.0, "{name}, {pairs}: {different}");
            assert!(slower >= 95.0, "{name}, {pairs}: {slower}");
            // Six pairs are too few for "same" if runs differ by more than the minimum effect.
            let can_be_same = !server.is_spoiled && (pairs == 12 || server.noise() < 0.035);
            assert!(same >= 60.0 || !can_be_same, "{name}, {pairs}: {same}");
            cells.push(format!("{different:.1} % | {same:.0} % | {slower:.1} %"));
        }
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.md");
    let text = fs::read_to_string(path).expect("the document exists");
    assert!(
        text.contains(&table),
        "docs/compare.md is stale; its rows are:\n{table}"
    );
}

impl Server {
    /// Standard deviation of a run.
    fn noise(self) -> f64 {
        let windows = SPREAD_WITHIN.powi(2) * (1.0 + self.phi) / (1.0 - self.phi) / WINDOWS as f64;
        (windows + self.between.powi(2) + self.mode.powi(2) / 4.0).sqrt()
    }
}
