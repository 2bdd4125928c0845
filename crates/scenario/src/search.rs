//! Which of the values of a key are tried to find the first with which a run passes.

/// A search by halves, in values of which it is taken that all behind one that passes pass, too.
#[derive(Clone, Debug)]
pub struct Search {
    /// Of each value whether a run with it passed, where there was one.
    tried: Vec<Option<bool>>,
}

impl Search {
    /// A search in so many values.
    pub fn new(values: usize) -> Search {
        Search {
            tried: vec![None; values],
        }
    }

    /// The value that is to be tried next; none once all is known. The last is the first, because
    /// nothing is to be found where it does not pass.
    pub fn next(&self) -> Option<usize> {
        let last = self.tried.len().checked_sub(1)?;
        match self.tried[last] {
            None => return Some(last),
            Some(false) => return None,
            Some(true) => {}
        }
        let passes = self.tried.iter().position(|tried| *tried == Some(true))?;
        let fails = self.tried[..passes]
            .iter()
            .rposition(|tried| *tried == Some(false));
        let from = fails.map_or(0, |at| at + 1);
        (from < passes).then(|| from + (passes - from - 1) / 2)
    }

    /// A run with that value passed, or did not.
    pub fn came(&mut self, value: usize, passed: bool) {
        if let Some(place) = self.tried.get_mut(value) {
            *place = Some(passed);
        }
    }

    /// Whether a value was tried.
    pub fn was_tried(&self, value: usize) -> bool {
        self.tried.get(value).is_some_and(Option::is_some)
    }

    /// The first value with which a run passed.
    pub fn found(&self) -> Option<usize> {
        self.tried.iter().position(|tried| *tried == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_that_passes_is_found_in_few_runs() {
        for values in 1..40 {
            for first in 0..=values {
                let mut search = Search::new(values);
                let mut runs = 0;
                while let Some(value) = search.next() {
                    assert!(!search.was_tried(value));
                    search.came(value, value >= first);
                    runs += 1;
                }
                assert_eq!(search.found(), (first < values).then_some(first));
                assert!(
                    runs <= 2 + values.ilog2() as usize,
                    "{values} {first}: {runs}"
                );
            }
        }
        assert_eq!(Search::new(0).next(), None);
    }
}
