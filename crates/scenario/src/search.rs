//! Search for the first value of a key with which a run passes.

/// A binary search. It assumes that all values after a passing one pass, too.
#[derive(Clone, Debug)]
pub struct Search {
    /// Result of each value: whether its run passed; `None` if it was not tried.
    results: Vec<Option<bool>>,
}

impl Search {
    /// Creates a search over a number of values.
    pub fn new(values: usize) -> Search {
        Search {
            results: vec![None; values],
        }
    }

    /// Returns the next value to try, or `None` if the search is complete. The last value is tried
    /// first, because there is nothing to find if it fails.
    pub fn next(&self) -> Option<usize> {
        let last = self.results.len().checked_sub(1)?;
        match self.results[last] {
            None => return Some(last),
            Some(false) => return None,
            Some(true) => {}
        }
        let passes = self.results.iter().position(|tried| *tried == Some(true))?;
        let fails = self.results[..passes]
            .iter()
            .rposition(|tried| *tried == Some(false));
        let from = fails.map_or(0, |at| at + 1);
        (from < passes).then(|| from + (passes - from - 1) / 2)
    }

    /// Records whether the run with a value passed.
    pub fn record(&mut self, value: usize, passed: bool) {
        if let Some(result) = self.results.get_mut(value) {
            *result = Some(passed);
        }
    }

    /// Returns `true` if a value was tried.
    pub fn was_tried(&self, value: usize) -> bool {
        self.results.get(value).is_some_and(Option::is_some)
    }

    /// Returns the first value with which a run passed.
    pub fn first_passing(&self) -> Option<usize> {
        self.results.iter().position(|tried| *tried == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_passing_value_is_found_in_few_runs() {
        for values in 1..40 {
            for first in 0..=values {
                let mut search = Search::new(values);
                let mut runs = 0;
                while let Some(value) = search.next() {
                    assert!(!search.was_tried(value));
                    search.record(value, value >= first);
                    runs += 1;
                }
                assert_eq!(search.first_passing(), (first < values).then_some(first));
                assert!(
                    runs <= 2 + values.ilog2() as usize,
                    "{values} {first}: {runs}"
                );
            }
        }
        assert_eq!(Search::new(0).next(), None);
    }
}
