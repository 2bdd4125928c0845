//! Comparison of two variants of a scenario (`compare`), and repeated runs (`repeat`).

use measure::comparison::MIN_EFFECT;
use measure::units::Ratio;

use crate::axes::{Axis, AxisValue, read_assignments};
use crate::error::Problem;
use crate::fields::wrong_type;
use crate::node::{Entry, Value, display_text};
use crate::section::{self, BoundedInteger, ValueRange, Within};
use crate::series_keys::{COMPARE, MAX_REPEAT};

/// Default number of runs of each variant.
pub(crate) const DEFAULT_REPEAT: usize = 6;

const FORM: &str = "write the two variants, each with the keys that it sets, such as `compare: {old: {server.launch: \
                    mediamtx}, new: {server.launch: ./mediamtx-new}}`";

/// How two variants are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Smallest relative difference that counts, such as 0.05.
    pub min_effect: f64,
    /// True if the first pair begins with the second variant. Pairs alternate.
    pub(crate) begins_with_second: bool,
}

struct MinEffect;

impl ValueRange for MinEffect {
    type Value = Ratio;
    const MIN: Ratio = Ratio(0.001);
    const MAX: Ratio = Ratio(1.0);
}

/// Reads the two variants.
pub(crate) fn read_variants(entry: &Entry, problems: &mut Vec<Problem>) -> Option<Axis> {
    let variants = match &entry.node.value {
        Value::Map(variants) if variants.len() == 2 => variants,
        Value::Map(variants) => {
            let text = match variants.len() {
                0 | 1 => "`compare` needs two variants".to_owned(),
                more => format!("`compare` has {more} variants, and compares two"),
            };
            problems.push(Problem::new(&entry.key_origin, text).help(FORM));
            return None;
        }
        _ => {
            problems.push(wrong_type(&entry.node, COMPARE, "a mapping of two variants").help(FORM));
            return None;
        }
    };
    let values = variants.iter().map(|variant| {
        let path = format!("{COMPARE}.{}", display_text(&variant.key));
        let assignments = read_assignments(variant, &path, FORM, problems);
        AxisValue {
            node: variant.node.clone(),
            name: Some(variant.key.clone()),
            assignments,
        }
    });
    Some(Axis {
        values: values.collect(),
        key: COMPARE.to_owned(),
        origin: entry.key_origin.clone(),
    })
}

/// Reads how often each run is made. Default: 6 with `compare`, else 1.
pub(crate) fn read_repeat(
    entry: Option<&Entry>,
    compares: bool,
    problems: &mut Vec<Problem>,
) -> usize {
    let default = match compares {
        true => DEFAULT_REPEAT,
        false => 1,
    };
    let read = entry.and_then(|entry| {
        section::read::<BoundedInteger<1, MAX_REPEAT>>(&entry.node, "repeat", &[], problems)
    });
    read.map_or(default, |repeat| {
        usize::try_from(repeat.0).unwrap_or(default)
    })
}

/// Reads the smallest difference that counts. Default 5 %.
pub(crate) fn read_min_effect(
    entry: Option<&Entry>,
    compares: bool,
    problems: &mut Vec<Problem>,
) -> f64 {
    if let (Some(entry), false) = (entry, compares) {
        let text = "`min_effect` is the smallest difference that counts in a comparison";
        problems.push(
            Problem::new(&entry.key_origin, text).help("add `compare`, or remove `min_effect`"),
        );
    }
    let read = entry.and_then(|entry| {
        section::read::<Within<MinEffect>>(&entry.node, "min_effect", &[], problems)
    });
    read.map_or(MIN_EFFECT, |least| least.0.0)
}
