//! Capacities of several combinations, one below the other, with bars.

use std::fmt::Write;

use super::names::short_names;
use super::search::CapacityResult;
use super::search_words;
use crate::terminal::{Layout, one_line, truncate};

/// Maximum width of the names of a combination.
const NAMES_MAX: usize = 32;

/// Length of the bar of the largest capacity.
const BAR: usize = 30;

/// Formats the capacities. Empty for a single search: its answer says everything.
pub(super) fn capacities(searches: &[CapacityResult], layout: Layout) -> String {
    let mut text = String::new();
    let Some(first) = searches.first().filter(|_| searches.len() > 1) else {
        return text;
    };
    let keys: Vec<String> = first.with.iter().map(|(key, _)| key.clone()).collect();
    let heading = format!("capacity, by {}", short_names(&keys).join(", "));
    let _ = writeln!(text, "\n{}", layout.paint.strong(&one_line(&heading)));
    let name = |found: &CapacityResult| {
        let values = found.with.iter().map(|(_, value)| one_line(value));
        truncate(&values.collect::<Vec<_>>().join(", "), NAMES_MAX)
    };
    let names: Vec<String> = searches.iter().map(name).collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let value = |found: &CapacityResult| found.capacity.as_ref().map_or(0.0, |load| load.value);
    let most = searches.iter().map(value).fold(0.0, f64::max);
    for (found, name) in searches.iter().zip(&names) {
        let share = if most > 0.0 { value(found) / most } else { 0.0 };
        let length = (share * BAR as f64).round() as usize;
        let shown = match found.capacity {
            Some(_) => search_words::short_answer(found),
            None => search_words::answer_alone(found),
        };
        let bar = "█".repeat(length);
        let gap = if length > 0 { " " } else { "" };
        let _ = writeln!(text, "  {name:<width$}  {bar}{gap}{shown}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::search::{LoadValue, SearchState};

    fn found(transport: &str, capacity: Option<u64>) -> CapacityResult {
        CapacityResult {
            with: vec![("clients.viewers.transport".to_owned(), transport.to_owned())],
            key: "clients.viewers.load.clients".to_owned(),
            state: SearchState::TesterLimit,
            capacity: capacity.map(|clients| LoadValue {
                value: clients as f64,
                text: clients.to_string(),
            }),
            low: None,
            high: None,
            sure: 0.95,
            quick: true,
            largest_held: None,
            smallest_failed: None,
            broke: Vec::new(),
            limits: Vec::new(),
            served: None,
            bitrate: None,
            trials: Vec::new(),
            distribution: Vec::new(),
            spent: 0.0,
            budget: 1.0,
        }
    }

    #[test]
    fn bars_compare_the_capacities_of_combinations() {
        let one = [found("udp", Some(400))];
        assert_eq!(capacities(&one, Layout::default()), "");
        let [one] = one;
        let all = [one, found("tcp", Some(200)), found("http", None)];
        let text = capacities(&all, Layout::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "capacity, by transport");
        assert_eq!(lines[2], format!("  udp   {} 400", "█".repeat(30)));
        assert_eq!(lines[3], format!("  tcp   {} 200", "█".repeat(15)));
        assert_eq!(lines[4], "  http  unknown: the tester ends here");
    }
}
