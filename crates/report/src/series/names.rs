//! Names of the varied keys in tables and charts.

/// Shortens each key to its last part, and to as many parts before it as make it unique.
pub(crate) fn short_names(keys: &[String]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = keys.iter().map(|key| key.split('.').collect()).collect();
    let last = |at: usize, number: usize| {
        let parts = &parts[at];
        parts[parts.len().saturating_sub(number)..].join(".")
    };
    (0..keys.len())
        .map(|at| {
            let unlike = |number: &usize| {
                (0..keys.len())
                    .all(|other| other == at || last(other, *number) != last(at, *number))
            };
            let number = (1..=parts[at].len()).find(unlike);
            last(at, number.unwrap_or(parts[at].len()))
        })
        .collect()
}
