//! Server's own counts in words.

use crate::human::count;
use crate::metrics::Metrics;

/// Texts of the server's own counts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnCounts {
    /// Packets that the server sent.
    pub(crate) out: String,
    /// Other counts, and the number of unanswered queries.
    pub(crate) rest: String,
}

impl OwnCounts {
    /// Returns `None` if the server was never queried.
    pub(crate) fn of(server: &Metrics) -> Option<OwnCounts> {
        let value = |name: &str| server.value(name).unwrap_or(0.0);
        let (read, failed) = (value("counts_read"), value("counts_failed"));
        let silent = match failed > 0.0 {
            true => format!("; unanswered queries: {}", count(failed)),
            false => String::new(),
        };
        if read > 0.0 {
            let own = |name: &str| count(value(name));
            return Some(OwnCounts {
                out: own("counted_packets_out"),
                rest: format!(
                    "packets out, {} in; {} lost on the way in, {} on the way out{silent}",
                    own("counted_packets_in"),
                    own("counted_lost_in"),
                    own("counted_lost_out"),
                ),
            });
        }
        (failed > 0.0).then(|| OwnCounts {
            out: "-".to_owned(),
            rest: format!("nothing is known{silent}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use measure::metric::Unit;

    use super::*;
    use crate::metrics::{MetricFigures, NamedFigures};

    fn server(values: &[(&'static str, f64)]) -> Metrics {
        let named = values.iter().map(|&(name, value)| NamedFigures {
            name,
            unit: Unit::Count,
            figures: MetricFigures::Value(Some(value)),
        });
        Metrics(named.collect())
    }

    #[test]
    fn unanswered_queries_are_reported() {
        assert_eq!(OwnCounts::of(&server(&[])), None);
        let asked = [("counts_read", 2.0), ("counts_failed", 0.0)];
        assert_eq!(OwnCounts::of(&server(&asked[1..])), None);
        let mut values = asked.to_vec();
        values.extend([("counted_packets_out", 50_015.0), ("counted_lost_in", 3.0)]);
        let found = OwnCounts::of(&server(&values)).expect("it was asked");
        assert_eq!(found.out, "50,015");
        assert_eq!(
            found.rest,
            "packets out, 0 in; 3 lost on the way in, 0 on the way out"
        );
        values[1].1 = 4.0;
        let found = OwnCounts::of(&server(&values)).expect("it was asked");
        assert!(found.rest.ends_with("; unanswered queries: 4"));
        let found = OwnCounts::of(&server(&[("counts_failed", 1.0)]));
        assert_eq!(found.map(|found| found.out), Some("-".to_owned()));
    }
}
