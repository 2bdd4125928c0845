//! `capacity`: the search for the largest load at which all thresholds hold.

use std::time::Duration;

use measure::capacity::{Method, Scale, Settings, ValueKind};
use measure::load::MAX_CLIENTS;
use measure::units::TimeSpan;

use crate::apply::{PathKey, keys_at};
use crate::axes::{self, Axis};
use crate::capacity_keys::{CapacityKeys, FORM};
use crate::error::Problem;
use crate::node::{Entry, Node, Value, display_text};
use crate::section;

/// Time between the start of the last client of a level and the begin of its judgement.
pub(crate) const SETTLING: Duration = Duration::from_secs(5);

const DEFAULT_HOLD: Duration = Duration::from_secs(30);
const DEFAULT_BUDGET: Duration = Duration::from_secs(30 * 60);
const DEFAULT_SURE: f64 = 0.95;
const DEFAULT_WITHIN: f64 = 0.1;

/// Largest load that is not a number of clients, as a multiple of the first one.
const MAX_FACTOR: u64 = 1_000_000;

/// Largest load of any search.
const LOAD_MAX: u64 = 1_000_000_000_000_000;

/// Fewest trials that the budget must suffice for.
const TRIALS_MIN: u32 = 3;

/// Goal of a capacity search.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// Dotted key of the load.
    pub(crate) key: String,
    pub(crate) path: Vec<PathKey>,
    pub(crate) scale: Scale,
    pub(crate) settings: Settings,
    /// Explicit bounds, to be validated.
    pub(crate) bounds: Vec<u64>,
    /// The section, for messages.
    pub(crate) entry: Entry,
}

impl Goal {
    /// Returns the value of a load as a node of the tree.
    pub(crate) fn node(&self, load: u64) -> Node {
        Node::scalar(self.scale.text(load), self.entry.node.origin.clone())
    }
}

/// Reads the section. `root` is the scenario without it.
pub(crate) fn read(
    entry: &Entry,
    root: &Node,
    axes: &[Axis],
    problems: &mut Vec<Problem>,
) -> Option<Goal> {
    let found = problems.len();
    let node = match entry.node.value {
        // `capacity:` alone.
        Value::Null => Node::map(Vec::new(), entry.node.origin.clone()),
        _ => entry.node.clone(),
    };
    let keys: CapacityKeys = section::read(&node, "capacity", &[FORM], problems)?;
    if !root.get("thresholds").is_some_and(has_items) {
        let text = "a capacity needs thresholds: it is the largest load at which they hold";
        Problem::new(&entry.key_origin, text)
            .help("add `thresholds: [\"viewers.loss < 1%\", \"viewers.startup_delay.p95 < 2s\"]`")
            .report(problems);
    }
    let (of, path) = path_of(&node, entry, root, problems)?;
    let key = axes::dotted(&path);
    if let Some(axis) = axes.iter().find(|axis| axis.sets(&key)) {
        let text = format!(
            "`{}` is the load of the search, and is also varied",
            display_text(&key)
        );
        Problem::new(&of.origin, text)
            .with_second_position(&axis.origin, "varied here")
            .help("remove it from `vary`: the search itself chooses its values")
            .report(problems);
    }
    let is_clients = key.starts_with("clients.") && key.ends_with(".load.clients");
    let (scale, from) = first_load(&node, &key, &path, is_clients, root, problems)?;
    let own = |name: &str, problems: &mut Vec<Problem>| -> Option<u64> {
        let bound = node.get(name)?;
        let load = bound.text().and_then(|text| scale.load(text));
        if load.is_none() {
            problems.push(not_alike(name, bound, &scale.text(from)));
        }
        load
    };
    let (min, max) = (own("min", problems), own("max", problems));
    let usual_max = match scale.kind {
        _ if is_clients => MAX_CLIENTS,
        ValueKind::Ratio => scale.load("100%").unwrap_or(from),
        _ => from.saturating_mul(MAX_FACTOR).min(LOAD_MAX),
    };
    let bounds = (min.unwrap_or(1).max(1), max.unwrap_or(usual_max));
    check_bounds(&node, entry, scale, from, bounds, problems);
    let from = match node.get("from") {
        None if bounds.0 <= bounds.1 => from.clamp(bounds.0, bounds.1),
        _ => from,
    };
    let settings = Settings {
        from,
        min: bounds.0,
        max: bounds.1,
        hold: keys.hold.0.map_or(DEFAULT_HOLD, |hold| hold.0.0),
        sure: keys.sure.0.map_or(DEFAULT_SURE, |sure| sure.0.0),
        within: keys.within.0.map_or(DEFAULT_WITHIN, |within| within.0.0),
        budget: keys.budget.0.map_or(DEFAULT_BUDGET, |budget| budget.0),
        method: match keys.quick.or(false) {
            true => Method::Quick,
            false => Method::Interval,
        },
        continuing: keys.continuing.or(false),
    };
    if settings.continuing && !is_clients {
        let origin = node
            .get("continue")
            .map_or(&entry.key_origin, |own| &own.origin);
        let text = format!(
            "a run continues by adding clients, and `{}` is not a number of clients",
            display_text(&key)
        );
        Problem::new(origin, text)
            .help("remove `continue`, or search for the clients of a population")
            .report(problems);
    }
    (problems.len() == found).then(|| Goal {
        key,
        path,
        scale,
        settings,
        bounds: min.into_iter().chain(max).collect(),
        entry: entry.clone(),
    })
}

/// Returns the problem of a budget that does not suffice for three trials of this duration.
pub(crate) fn short_budget(goal: &Goal, trial: Duration) -> Option<Problem> {
    let budget = goal.settings.budget;
    let origin = match goal.entry.node.get("budget") {
        Some(node) => &node.origin,
        None => &goal.entry.key_origin,
    };
    (budget < trial * TRIALS_MIN).then(|| {
        let text = format!(
            "a budget of {} is too short: a trial takes {}, with ramp, settling and hold",
            TimeSpan(budget),
            TimeSpan(trial)
        );
        let least = TimeSpan(trial * TRIALS_MIN);
        Problem::new(origin, text).help(format!(
            "three trials need at least {least}: raise `budget`, or lower `hold`"
        ))
    })
}

fn has_items(node: &Node) -> bool {
    match &node.value {
        Value::List(items) => !items.is_empty(),
        _ => true,
    }
}

/// Returns the key of the load, and its parts.
fn path_of(
    node: &Node,
    entry: &Entry,
    root: &Node,
    problems: &mut Vec<Problem>,
) -> Option<(Node, Vec<PathKey>)> {
    if let Some(of) = node.get("of") {
        let text: String = section::read(of, "capacity.of", &[], problems)?;
        let entry = Entry::new(text, of.origin.clone(), of.clone());
        let path = axes::split_key(&entry);
        let is_chosen = ["duration", "warm_up"].contains(&path[0].key.as_str());
        if is_chosen {
            let text = format!("`{}` is chosen by the search", path[0].key);
            Problem::new(&of.origin, text)
                .help("name another key; `hold` sets how long each load is judged")
                .report(problems);
        }
        let is_refused = is_chosen || axes::is_series_key(&path, problems);
        return (!is_refused).then(|| (of.clone(), path));
    }
    let populations = root.get("clients").map_or(&[][..], Node::entries);
    let [population] = populations else {
        // Without clients, the scenario itself has a problem.
        if populations.len() > 1 {
            let names = populations.iter().map(|entry| display_text(&entry.key));
            let names = names.collect::<Vec<_>>().join(", ");
            let text =
                format!("the load is unclear: the scenario has several populations ({names})");
            Problem::new(&entry.key_origin, text)
                .help(format!(
                    "name the key of the load: `of: clients.{}.load.clients`",
                    populations[0].key
                ))
                .report(problems);
        }
        return None;
    };
    let text = format!("clients.{}.load.clients", population.key);
    let origin = &entry.key_origin;
    let path = keys_at(&text, origin);
    Some((Node::scalar(&text, origin.clone()), path))
}

/// Returns the scale of the key, and the first load on it.
fn first_load(
    node: &Node,
    key: &str,
    path: &[PathKey],
    is_clients: bool,
    root: &Node,
    problems: &mut Vec<Problem>,
) -> Option<(Scale, u64)> {
    let (name, from) = match (node.get("from"), axes::value_at(root, path)) {
        (Some(from), _) => ("capacity.from", from.clone()),
        (None, Some(value)) if value.value != Value::Null => (key, value.clone()),
        _ if is_clients => (key, Node::scalar("1", node.origin.clone())),
        _ => {
            let origin = node.get("of").map_or(&node.origin, |of| &of.origin);
            let text = format!(
                "the scenario has no value of `{}` to begin with",
                display_text(key)
            );
            problems.push(Problem::new(origin, text).help("add the first load: `from: 50`"));
            return None;
        }
    };
    let scale = from.text().and_then(Scale::of);
    let load = scale
        .and_then(|scale| scale.load(from.text()?))
        .filter(|load| *load > 0);
    let Some(found) = scale.zip(load) else {
        let text = format!(
            "`{}` is {}, which is not a number or a quantity above zero",
            display_text(name),
            from.describe()
        );
        problems.push(Problem::new(&from.origin, text).help(
            "name a key whose value is a number, such as `of: clients.viewers.load.clients` or \
             `of: clients.viewers.load.arrivals`",
        ));
        return None;
    };
    Some(found)
}

/// Returns the problem of a bound of another kind than the first load.
fn not_alike(name: &str, bound: &Node, from: &str) -> Problem {
    let text = format!(
        "`capacity.{name}` is {}, which cannot be compared with the first load, {from}",
        bound.describe()
    );
    Problem::new(&bound.origin, text)
        .help(format!("write it like the first load: `{name}: {from}`"))
}

fn check_bounds(
    node: &Node,
    entry: &Entry,
    scale: Scale,
    from: u64,
    (min, max): (u64, u64),
    problems: &mut Vec<Problem>,
) {
    let at = |name: &str| match node.get(name) {
        Some(bound) => &bound.origin,
        None => &entry.key_origin,
    };
    let text = |load| scale.text(load);
    if min > max {
        let message = format!(
            "the smallest load, {}, is above the largest, {}",
            text(min),
            text(max)
        );
        Problem::new(at("min"), message)
            .with_second_position(at("max"), "the largest")
            .help("exchange `min` and `max`")
            .report(problems);
    } else if node.get("from").is_some() && !(min..=max).contains(&from) {
        let message = format!(
            "the first load, {}, is not between {} and {}",
            text(from),
            text(min),
            text(max)
        );
        Problem::new(at("from"), message)
            .help(format!("add `from: {}`", text(from.clamp(min, max))))
            .report(problems);
    }
}
