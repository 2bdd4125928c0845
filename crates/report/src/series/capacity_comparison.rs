//! Comparison of two capacities, from their distributions.

use measure::comparison::CONFIDENCE;
use schemars::JsonSchema;

use super::search::{CapacityResult, LoadValue, Probability};
use super::{Series, comparison::COMPARE};
use measure::comparison::Word;

/// Comparison of two capacities, with all other values equal.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct CapacityComparison {
    /// Other varied values, by key.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Name of the first search, with which the second one is compared.
    pub a: String,
    /// Name of the second search.
    pub b: String,
    /// Capacity of A; null if it is unknown.
    pub capacity_a: Option<LoadValue>,
    /// Capacity of B; null if it is unknown.
    pub capacity_b: Option<LoadValue>,
    /// Smallest relative difference that counts.
    pub min_effect: f64,
    /// Probability that the capacity of B is smaller than that of A by at least this difference;
    /// null without distributions.
    pub smaller: Option<f64>,
    /// Probability that the capacity of A is smaller than that of B by at least this difference;
    /// null without distributions.
    pub larger: Option<f64>,
    /// Differences between the scenarios and the machines of A and B, apart from the server.
    pub differences: Vec<String>,
    /// Result: a word with a probability of at least 95 %.
    pub result: Word,
}

/// Compares the searches of two variants, for each combination of the other values.
pub(super) fn of(
    series: &Series,
    min_effect: f64,
    differences: &[String],
) -> Vec<CapacityComparison> {
    let variant = |found: &CapacityResult| -> Option<String> {
        let mut with = found.with.iter();
        Some(with.find(|(key, _)| key == COMPARE)?.1.clone())
    };
    let others = |found: &CapacityResult| -> Vec<(String, String)> {
        let with = found.with.iter().filter(|(key, _)| key != COMPARE);
        with.cloned().collect()
    };
    let Some([a, b]) = &series.variants else {
        return Vec::new();
    };
    let firsts = series.searches.iter();
    let firsts = firsts.filter(|found| variant(found).as_ref() == Some(a));
    let pairs = firsts.filter_map(|first| {
        let mut all = series.searches.iter();
        let second =
            all.find(|found| variant(found).as_ref() == Some(b) && others(found) == others(first))?;
        Some(compare(
            (first, a),
            (second, b),
            others(first),
            min_effect,
            differences,
        ))
    });
    pairs.collect()
}

/// Compares the two searches of a series that varied one key between two values.
pub(super) fn of_two(series: &Series, min_effect: f64) -> Vec<CapacityComparison> {
    let [first, second] = series.searches.as_slice() else {
        return Vec::new();
    };
    let name = |found: &CapacityResult| {
        let values = found.with.iter().map(|(_, value)| value.clone());
        values.collect::<Vec<_>>().join(", ")
    };
    vec![compare(
        (first, &name(first)),
        (second, &name(second)),
        Vec::new(),
        min_effect,
        &[],
    )]
}

fn compare(
    (first, a): (&CapacityResult, &str),
    (second, b): (&CapacityResult, &str),
    with: Vec<(String, String)>,
    min_effect: f64,
    differences: &[String],
) -> CapacityComparison {
    let (one, other) = (&first.distribution, &second.distribution);
    let is_known = first.capacity.is_some() && second.capacity.is_some();
    let is_known = is_known && !one.is_empty() && !other.is_empty();
    let share = 1.0 - min_effect;
    let smaller = is_known.then(|| probability_below(other, one, share));
    let larger = is_known.then(|| probability_below(one, other, share));
    let result = match smaller.zip(larger) {
        Some((smaller, _)) if smaller >= CONFIDENCE => Word::Worse,
        Some((_, larger)) if larger >= CONFIDENCE => Word::Better,
        Some((smaller, larger)) if 1.0 - smaller - larger >= CONFIDENCE => Word::Same,
        _ => Word::CannotTell,
    };
    CapacityComparison {
        with,
        a: a.to_owned(),
        b: b.to_owned(),
        capacity_a: first.capacity.clone(),
        capacity_b: second.capacity.clone(),
        min_effect,
        smaller,
        larger,
        differences: differences.to_vec(),
        result,
    }
}

/// Returns the probability that one capacity is below this share of another.
fn probability_below(one: &[Probability], other: &[Probability], share: f64) -> f64 {
    let sum = |all: &[Probability]| all.iter().map(|point| point.probability).sum::<f64>();
    let pairs = one.iter().map(|low| {
        let above = other.iter().filter(|high| low.value < share * high.value);
        low.probability * above.map(|high| high.probability).sum::<f64>()
    });
    // Points with hardly any probability are left out of a distribution.
    pairs.sum::<f64>() / (sum(one) * sum(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(middle: f64) -> Vec<Probability> {
        let points = (0..=80).map(|at| {
            let distance = f64::from(at - 40) / 10.0;
            Probability {
                value: middle * (1.0 + 0.01 * distance),
                probability: (-distance * distance / 2.0).exp(),
            }
        });
        points.collect()
    }

    #[test]
    fn probability_of_a_smaller_capacity_is_that_of_the_normal_distribution() {
        let below = |one: f64, other: f64| probability_below(&around(one), &around(other), 0.95);
        // Both have a deviation of 1 %: a difference of 5 % of 100 is 0 deviations away.
        assert!((below(95.0, 100.0) - 0.5).abs() < 0.03);
        // 10 % less: five of 100, which are 3.7 deviations of the difference.
        assert!(below(90.0, 100.0) > 0.999);
        assert!(below(100.0, 100.0) < 0.001);
        assert!(below(100.0, 90.0) < 1e-6);
    }
}
