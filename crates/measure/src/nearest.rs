//! Suggestions for misspelt names.

/// Returns a hint for an unknown key: the nearest of `known`, or else all of them.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None => format!("expected one of: {}", known.join(", ")),
    }
}

/// Returns the nearest of `known` if at most a third of its letters differ. Case is ignored, and
/// `-` equals `_`.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    let name: Vec<char> = name.chars().take(64).collect();
    known
        .into_iter()
        .map(|candidate| (distance(&name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count().max(3)) / 3)
        // Swapped letters are a more usual slip than a missing one.
        .min_by_key(|(distance, candidate)| {
            let letters = candidate.chars().count();
            (*distance, letters.abs_diff(name.len()), *candidate)
        })
        .map(|(_, candidate)| candidate)
}

/// Edit distance with insertions, deletions, replacements and swaps of neighbours (optimal string
/// alignment).
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut best = (above[j] + usize::from(a != b))
                .min(above[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = above;
        above = row;
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_suggest_the_key_but_other_words_do_not() {
        let keys = ["transport", "urls", "load", "leave", "rejoin", "warm_up"];
        assert_eq!(nearest("tranport", keys), Some("transport"));
        assert_eq!(nearest("transprot", keys), Some("transport"));
        assert_eq!(nearest("warm-up", keys), Some("warm_up"));
        assert_eq!(nearest("url", keys), Some("urls"));
        assert_eq!(nearest("color", keys), None);
        assert_eq!(nearest("", keys), None);
    }

    #[test]
    fn edit_distance_counts_swaps_as_one() {
        let between = |a: &str, b| distance(&a.chars().collect::<Vec<_>>(), b);
        for (a, b, expected) in [
            ("", "", 0),
            ("loss", "", 4),
            ("loss", "los", 1),
            ("delay", "dealy", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(between(a, b), expected, "{a} {b}");
            assert_eq!(between(b, a), expected, "{b} {a}");
        }
    }
}
