//! Two runs or series that were made separately, as one series with two variants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use measure::Catalogue;
use serde_json::Value;

use super::comparison::{self, Basis, COMPARE, REPEAT};
use super::{CapacityResult, Row, Series, best, capacity_comparison, read_run};
use crate::ReportError;
use crate::model::Report;
use crate::source::open;

/// Keys of a scenario that may differ between comparable runs: names, judgements, and what is
/// compared.
const IGNORED: [&str; 6] = [
    "name",
    "seed",
    "server",
    "thresholds",
    "varied",
    "stop_timeout",
];

/// Maximum number of differences that are listed.
const DIFFERENCES_MAX: usize = 8;

/// Maximum length of a value in a difference, in characters.
const VALUE_MAX: usize = 40;

/// Error of comparing two runs or series.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// One of them cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A series that has two variants.
    #[error(
        "{}: this series compares two variants itself: `streamgauge report {}` shows the result", .0.display(), .0.display()
    )]
    TwoVariants(PathBuf),
    /// A search for a capacity and something else.
    #[error(
        "{} is a search for a capacity, and {} is not: compare two of a kind", .0.display(), .1.display()
    )]
    Kinds(PathBuf, PathBuf),
    /// Series over other keys.
    #[error(
        "{} and {} vary other keys ({} and {}): compare series that vary the same keys",
        .a.display(), .b.display(), .keys_a, .keys_b
    )]
    Keys {
        a: PathBuf,
        b: PathBuf,
        keys_a: String,
        keys_b: String,
    },
    /// No run can be trusted.
    #[error(
        "{}: no run in it can be trusted ({}); repeat it, or use `--anyway`", .path.display(), .why
    )]
    Invalid { path: PathBuf, why: String },
}

/// One of the two.
struct Side {
    series: Series,
    /// Scenario of the first run, flattened; its media and its machine.
    about: BTreeMap<String, String>,
}

/// Opens two runs or series, and compares the second with the first. `min_effect` is the smallest
/// relative difference that counts. With `anyway`, invalid runs count as well.
///
/// # Errors
/// One of them cannot be read, or they are of different kinds.
pub fn side_by_side(
    a: &Path,
    b: &Path,
    min_effect: f64,
    anyway: bool,
    catalogue: impl Fn(&str) -> Option<Catalogue> + Copy,
) -> Result<Series, CompareError> {
    let sides = [
        Side::open(a, anyway, catalogue)?,
        Side::open(b, anyway, catalogue)?,
    ];
    let [first, second] = &sides;
    let keys = |side: &Side| side.keys().join(", ");
    let searches = sides.iter().map(|side| !side.series.searches.is_empty());
    let searches: Vec<bool> = searches.collect();
    if searches[0] != searches[1] {
        let (search, other) = match searches[0] {
            true => (a, b),
            false => (b, a),
        };
        return Err(CompareError::Kinds(search.to_owned(), other.to_owned()));
    }
    if first.keys() != second.keys() {
        return Err(CompareError::Keys {
            a: a.to_owned(),
            b: b.to_owned(),
            keys_a: keys(first),
            keys_b: keys(second),
        });
    }
    let differences = differences(first, second);
    let names = labels(a, b);
    let mut varied = vec![COMPARE.to_owned()];
    varied.extend(first.keys());
    let name = format!("{} against {}", names[1], names[0]);
    let mut whole = Series {
        streamgauge: Some(env!("CARGO_PKG_VERSION").to_owned()),
        variants: Some(names.clone()),
        is_of_files: true,
        ..Series::empty(name, varied, Path::new(""))
    };
    for (side, name) in sides.iter().zip(&names) {
        let before = whole.runs.len();
        whole.runs.extend(side.rows(name));
        whole.searches.extend(side.searches(name, before));
    }
    best::mark(&mut whole.runs);
    if searches[0] {
        whole.capacity_comparisons = capacity_comparison::of(&whole, min_effect, &differences);
    } else {
        let basis = Basis {
            paired: false,
            min_effect,
            with_invalid: anyway,
            differences: &differences,
        };
        whole.comparisons = comparison::of(&whole, basis);
    }
    Ok(whole)
}

impl Side {
    fn open(
        path: &Path,
        anyway: bool,
        catalogue: impl Fn(&str) -> Option<Catalogue> + Copy,
    ) -> Result<Side, CompareError> {
        let series = match path.is_dir() {
            true => Series::open(path, catalogue)?,
            false => of_run(path, catalogue)?,
        };
        if series.varied.iter().any(|key| key == COMPARE) {
            return Err(CompareError::TwoVariants(path.to_owned()));
        }
        let is_trusted = |row: &Row| row.outcome.is_trusted();
        if !anyway && !series.runs.iter().any(is_trusted) {
            let reasons = series.runs.iter().flat_map(|row| &row.reasons);
            let why = reasons.map(String::as_str).next();
            return Err(CompareError::Invalid {
                path: path.to_owned(),
                why: why.unwrap_or("it has no run").to_owned(),
            });
        }
        let readable = series.runs.iter().filter(|row| row.figures.is_some());
        let first = readable.map(|row| series.folder.join(&row.file)).next();
        let about = match first {
            Some(file) => about(&file, &series, catalogue)?,
            None => BTreeMap::new(),
        };
        Ok(Side { series, about })
    }

    /// Returns the varied keys without the number of a repetition.
    fn keys(&self) -> Vec<String> {
        let keys = self.series.varied.iter().filter(|key| *key != REPEAT);
        keys.cloned().collect()
    }

    /// Returns the runs as those of a variant.
    fn rows(&self, name: &str) -> impl Iterator<Item = Row> {
        let repeat = self.series.varied.iter().position(|key| key == REPEAT);
        self.series.runs.iter().map(move |row| {
            let values = row.values.iter().enumerate();
            let values = values.filter(|(at, _)| Some(*at) != repeat);
            let mut all = vec![name.to_owned()];
            all.extend(values.map(|(_, value)| value.clone()));
            let file = self.series.folder.join(&row.file);
            Row {
                values: all,
                file: file.to_string_lossy().into_owned(),
                ..row.clone()
            }
        })
    }

    /// Returns the searches as those of a variant, whose runs begin at `before`.
    fn searches(&self, name: &str, before: usize) -> impl Iterator<Item = CapacityResult> {
        self.series.searches.iter().map(move |found| {
            let mut found = found.clone();
            found.with.insert(0, (COMPARE.to_owned(), name.to_owned()));
            for trial in &mut found.trials {
                trial.run += before;
            }
            found
        })
    }
}

/// Returns a run as a series of one run.
fn of_run(
    path: &Path,
    catalogue: impl Fn(&str) -> Option<Catalogue> + Copy,
) -> Result<Series, ReportError> {
    let (run, mut row) = read_run(path, catalogue)?;
    row.file = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    // A run of a series is compared without its varied values.
    row.values = Vec::new();
    Ok(Series {
        runs: vec![row],
        ..Series::empty(run.name, Vec::new(), path.parent().unwrap_or(Path::new("")))
    })
}

/// Returns the names of two paths: their last parts, or as much as distinguishes them.
fn labels(a: &Path, b: &Path) -> [String; 2] {
    let stem = |path: &Path| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let short = name.strip_suffix(".run").or(name.strip_suffix(".series"));
        short.unwrap_or(&name).to_owned()
    };
    let whole = |path: &Path| path.to_string_lossy().into_owned();
    let names = [stem(a), stem(b)];
    if names[0] != names[1] {
        return names;
    }
    match a == b {
        false => [whole(a), whole(b)],
        true => [names[0].clone(), format!("{} again", names[1])],
    }
}

/// Returns what must be equal in comparable runs: scenario, media and machine, each value with its
/// path.
fn about(
    file: &Path,
    series: &Series,
    catalogue: impl Fn(&str) -> Option<Catalogue>,
) -> Result<BTreeMap<String, String>, ReportError> {
    let reader = open(file, catalogue)?;
    let header = reader.header();
    let mut found = BTreeMap::new();
    let mut scenario = header.scenario.clone();
    if let Some(keys) = scenario.as_object_mut() {
        keys.retain(|key, _| !IGNORED.contains(&key.as_str()));
        if !series.searches.is_empty() {
            // The trials of a search differ in them.
            keys.retain(|key, _| !["duration", "warm_up"].contains(&key.as_str()));
        }
    }
    let searched: Vec<&str> = series
        .searches
        .iter()
        .map(|found| found.key.as_str())
        .collect();
    flatten(&named_populations(scenario), "", &mut found);
    found.retain(|key, _| {
        let is_url = key.split('.').any(|part| part == "url" || part == "urls");
        let is_load = searched.iter().any(|load| {
            key.starts_with(load.rsplit_once('.').map_or(*load, |(section, _)| section))
        });
        let is_varied = series
            .varied
            .iter()
            .any(|varied| key.starts_with(varied.as_str()));
        !is_url && !is_load && !is_varied
    });
    let report = Report::from_run(&reader)?;
    for (at, described) in report.media.urls.iter().enumerate() {
        if let Some(description) = &described.description {
            let value = serde_json::to_value(description).unwrap_or_default();
            let name = format!("media of {}, URL {}", described.population, at + 1);
            flatten(&value, &name, &mut found);
        }
    }
    let machine = &header.machine;
    found.insert("machine: kernel".to_owned(), machine.kernel.clone());
    found.insert("machine: cores".to_owned(), machine.cores.to_string());
    found.insert("machine: memory".to_owned(), machine.memory.to_string());
    found.insert("streamgauge".to_owned(), header.version.clone());
    Ok(found)
}

/// Replaces the list of populations by an object with their names, as in a scenario file.
fn named_populations(mut scenario: Value) -> Value {
    let Some(keys) = scenario.as_object_mut() else {
        return scenario;
    };
    if let Some(Value::Array(populations)) = keys.remove("populations") {
        let named = populations.into_iter().enumerate().map(|(at, population)| {
            let name = population.get("name").and_then(Value::as_str);
            let name = name.map_or_else(|| at.to_string(), str::to_owned);
            (name, population)
        });
        keys.insert("clients".to_owned(), Value::Object(named.collect()));
    }
    scenario
}

fn flatten(value: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    let within = |key: &str| match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    };
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                flatten(field, &within(key), found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                flatten(item, &within(&at.to_string()), found);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            found.insert(path.to_owned(), text.clone());
        }
        other => {
            found.insert(path.to_owned(), other.to_string());
        }
    }
}

/// Lists the differences between the scenarios, the media and the machines.
fn differences(a: &Side, b: &Side) -> Vec<String> {
    let keys = a
        .about
        .keys()
        .chain(b.about.keys().filter(|key| !a.about.contains_key(*key)));
    let mut all: Vec<String> = keys
        .filter(|key| a.about.get(*key) != b.about.get(*key))
        .map(|key| {
            let value = |side: &Side| match side.about.get(key) {
                Some(value) => crate::terminal::truncate(value, VALUE_MAX),
                None => "nothing".to_owned(),
            };
            format!(
                "{key}: {} in the first, {} in the second",
                value(a),
                value(b)
            )
        })
        .collect();
    let more = all.len().saturating_sub(DIFFERENCES_MAX);
    if more > 0 {
        all.truncate(DIFFERENCES_MAX);
        all.push(format!("{more} more"));
    }
    all
}
