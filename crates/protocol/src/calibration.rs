//! What a protocol declares of its proof: clients against its reference server, and which of their
//! figures are compared with what that server says it did. Whoever runs a trial knows no protocol.

use std::collections::BTreeMap;

use serde_json::Value;

/// Clients against one reference server, which does wrong what it is told to.
#[derive(Debug)]
pub struct Trial {
    /// The flags that the server is started with, beside where it listens and where its report
    /// goes. `{length}` stands for the length of the media.
    pub server: &'static [&'static str],
    /// The link between clients and server. None: the loopback interface. Trials without a link
    /// are run together.
    pub link: Option<TrialLink>,
    /// Thresholds in place of what is demanded of every run, where faults break that.
    pub thresholds: &'static [&'static str],
    /// The populations of clients.
    pub clients: &'static [TrialClients],
    /// What is compared.
    pub checks: &'static [Check],
}

/// An emulated link that loses nothing and passes any number of bits per second, so that its delay
/// alone matters. Delays are one way, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialLink {
    /// From the clients to the server.
    pub up: u32,
    /// From the server to the clients.
    pub down: u32,
}

/// A population of clients. It ends by itself, with the media or by `leave`.
#[derive(Debug)]
pub struct TrialClients {
    /// Its name: different from all others of the protocol.
    pub name: &'static str,
    /// How many there are.
    pub number: u32,
    /// The URL, in which `{address}` stands for the server's address and port.
    pub url: &'static str,
    /// Its keys as a scenario has them, one a line: `time_codes: true`. `{length}` stands for the
    /// length of the media.
    pub keys: &'static [&'static str],
}

/// A figure that is compared.
#[derive(Debug)]
pub struct Check {
    /// Of which population.
    pub clients: &'static str,
    /// Of which metric.
    pub metric: &'static str,
    /// Which figure of it.
    pub figure: Figure,
    /// What it should be.
    pub truth: Truth,
    /// By how much it may be off.
    pub tolerance: Tolerance,
}

/// A figure of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The value of a counter.
    Value,
    /// The mean of a distribution.
    Mean,
    /// The largest value of a distribution.
    Max,
    /// How many values a distribution has.
    Count,
}

impl Figure {
    /// What stands behind the name of the metric.
    pub fn suffix(self) -> &'static str {
        match self {
            Figure::Value => "",
            Figure::Mean => ".mean",
            Figure::Max => ".max",
            Figure::Count => ".count",
        }
    }
}

/// How the true value is found.
#[derive(Clone, Copy, Debug)]
pub enum Truth {
    /// The numbers at these places (JSON pointers, RFC 6901) of each line of the server's report,
    /// added up. Of no place: 0.
    Sum(&'static [&'static str]),
    /// Worked out; none where it cannot be.
    Known(fn(&Evidence) -> Option<Known>),
}

/// By how much a figure may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Not at all.
    Exact,
    /// By so much, in the figure's unit.
    Absolute(f64),
    /// By this share of the true value, or by so much in the figure's unit, whichever is more.
    ShareOr(f64, f64),
}

/// Delays: 1 ms.
pub const DELAY: Tolerance = Tolerance::Absolute(1e-3);

impl Tolerance {
    /// By how much a figure of this true value may be off, in its unit.
    pub fn of(self, truth: f64) -> f64 {
        match self {
            Tolerance::Exact => 0.0,
            Tolerance::Absolute(most) => most,
            Tolerance::ShareOr(share, most) => (truth.abs() * share).max(most),
        }
    }
}

impl Check {
    /// A counter that is the sum of these places of the report, exactly.
    pub const fn count(
        clients: &'static str,
        metric: &'static str,
        places: &'static [&'static str],
    ) -> Check {
        Check {
            clients,
            metric,
            figure: Figure::Value,
            truth: Truth::Sum(places),
            tolerance: Tolerance::Exact,
        }
    }

    /// A counter of what did not happen.
    pub const fn none(clients: &'static str, metric: &'static str) -> Check {
        Check::count(clients, metric, &[])
    }

    /// The mean of a distribution of delays.
    pub const fn delay(
        clients: &'static str,
        metric: &'static str,
        truth: fn(&Evidence) -> Option<Known>,
    ) -> Check {
        Check {
            clients,
            metric,
            figure: Figure::Mean,
            truth: Truth::Known(truth),
            tolerance: DELAY,
        }
    }
}

/// A figure, and how well it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// The figure.
    pub value: f64,
    /// By so much it may be off: whoever says it was interrupted between reading the clock and
    /// doing what the time is of.
    pub unsure: f64,
}

impl Known {
    /// A figure that is known exactly.
    pub const fn exactly(value: f64) -> Known {
        Known { value, unsure: 0.0 }
    }
}

impl std::ops::Add for Known {
    type Output = Known;

    fn add(self, other: Known) -> Known {
        Known {
            value: self.value + other.value,
            unsure: self.unsure + other.unsure,
        }
    }
}

/// What is known after a trial of what was done.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The lines of the server's report.
    pub served: Vec<Value>,
    /// When the run began, in nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine
    /// share.
    pub began_nanos: f64,
    /// How much later than the one before it each client of a population is due, in nanoseconds.
    pub one_every_nanos: f64,
    /// How long a packet takes from the clients to the server, in seconds, and how late the link
    /// itself was. 0 over the loopback interface.
    pub up: Known,
    /// The same from the server to the clients.
    pub down: Known,
    /// The means of distributions that clients measured, in seconds, by population and metric: for
    /// what has to agree with itself.
    pub means: BTreeMap<(String, &'static str), f64>,
}

impl Evidence {
    /// The mean of a distribution that a population measured; none where it holds nothing.
    pub fn measured(&self, clients: &str, metric: &'static str) -> Option<f64> {
        self.means.get(&(clients.to_owned(), metric)).copied()
    }

    /// The numbers at a place of each line that has it.
    pub fn numbers<'a>(&'a self, place: &'a str) -> impl Iterator<Item = f64> + 'a {
        self.served
            .iter()
            .filter_map(move |line| line.pointer(place)?.as_f64())
    }

    /// The numbers at a place added up; none where no line has it.
    pub fn sum(&self, place: &str) -> Option<f64> {
        let mut numbers = self.numbers(place).peekable();
        numbers.peek()?;
        Some(numbers.sum())
    }

    /// Their mean; none where no line has it.
    pub fn mean(&self, place: &str) -> Option<f64> {
        Some(self.sum(place)? / self.numbers(place).count() as f64)
    }
}

impl Truth {
    /// The true value; none where it cannot be told.
    pub fn of(self, evidence: &Evidence) -> Option<Known> {
        match self {
            Truth::Known(truth) => truth(evidence),
            Truth::Sum(places) => {
                let sums = places.iter().map(|place| evidence.sum(place));
                sums.sum::<Option<f64>>().map(Known::exactly)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::reference::Flags;
    use crate::registry::PROTOCOLS;

    #[test]
    fn what_trials_name_is_there() {
        for protocol in PROTOCOLS {
            let mut names = BTreeSet::new();
            for trial in protocol.trials {
                for clients in trial.clients {
                    assert!(names.insert(clients.name), "{} twice", clients.name);
                    let url = clients.url.replace("{address}", "127.0.0.1:9");
                    assert_eq!(protocol.check_url(&url), Ok(()), "{url}");
                }
                for check in trial.checks {
                    let mut clients = trial.clients.iter();
                    assert!(
                        clients.any(|clients| clients.name == check.clients),
                        "{check:?}"
                    );
                    let mut metrics = protocol.catalogue.metrics();
                    assert!(
                        metrics.any(|metric| metric.name == check.metric),
                        "{check:?}"
                    );
                }
                let server = protocol.server.expect("what is calibrated has a server");
                let flags = Flags::usual(server.flags);
                for word in trial.server.iter().filter_map(|w| w.strip_prefix("--")) {
                    let mut known = server.flags.iter();
                    assert!(known.any(|flag| flag.name == word), "--{word}");
                }
                let faults = trial.server.windows(2).filter(|pair| pair[0] == "--fault");
                let faults: Vec<String> = faults.map(|pair| pair[1].to_owned()).collect();
                (server.read)(&flags.with("fault", faults)).expect("they are good");
            }
        }
    }

    #[test]
    fn sums_are_over_the_lines_that_have_the_place() {
        let evidence = Evidence {
            served: vec![
                json!({ "sent": { "frames": 3 } }),
                json!({ "sent": { "frames": 4 }, "lost": 1 }),
                json!({ "served": 7 }),
            ],
            ..Evidence::default()
        };
        let sum = |places| Truth::Sum(places).of(&evidence);
        assert_eq!(sum(&["/sent/frames", "/lost"]), Some(Known::exactly(8.0)));
        assert_eq!(sum(&[]), Some(Known::exactly(0.0)));
        assert_eq!(evidence.mean("/sent/frames"), Some(3.5));
        // A place that no line has is a mistake, and no 0.
        assert_eq!(sum(&["/sent/frames", "/sent/lost"]), None);
    }
}
