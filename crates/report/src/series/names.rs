//! What a table and a chart call the keys that are varied.

/// What the columns of the varied keys are called: their last part, and as much before it as tells
/// them apart.
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
