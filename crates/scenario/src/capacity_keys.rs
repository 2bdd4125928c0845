//! Keys of `capacity`.

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::collector::TypeSyntax;
use crate::section::{Deferred, Key, ValueRange, Within, one_line};

/// Search for the largest load at which all thresholds hold: a series of runs, each with another
/// load.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line)]
pub(crate) struct CapacityKeys {
    /// Dotted key of the load, such as `clients.viewers.load.clients`: a whole number, or a
    /// quantity such as `4Mbps`. Default: the number of clients of the only population.
    #[schemars(with = "String")]
    of: Key<Deferred>,
    /// First load. Default: the value that the scenario has, or 1 client.
    #[schemars(schema_with = "load_schema")]
    from: Key<Deferred>,
    /// Smallest load. Default 1, or a thousandth of the first load.
    #[schemars(schema_with = "load_schema")]
    min: Key<Deferred>,
    /// Largest load. Default 10,000,000 clients, or a million times the first load.
    #[schemars(schema_with = "load_schema")]
    max: Key<Deferred>,
    /// Time for which each load is judged, after the ramp and 5 s of settling. Default 30s.
    pub(crate) hold: Key<Within<Hold>>,
    /// Probability with which the interval contains the capacity. Default 95%.
    pub(crate) sure: Key<Within<Sure>>,
    /// Width of the interval at which the search ends, as a share of the capacity. Default 10%.
    pub(crate) within: Key<Within<Width>>,
    /// Maximum duration of the search. Default 30m.
    pub(crate) budget: Key<TimeSpan>,
    /// True: one trial for each of at most eight loads, without an interval. Default false.
    pub(crate) quick: Key<bool>,
    /// True: clients join and leave a server that continues from trial to trial. False: each trial
    /// starts the server and all clients. Default false.
    #[serde(rename = "continue")]
    pub(crate) continuing: Key<bool>,
}

fn load_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "string"] })
}

pub(crate) const FORM: TypeSyntax = (
    "CapacityKeys",
    "write `capacity: {of: clients.viewers.load.clients, from: 50}`, or `capacity: {}` for the clients of the only \
     population",
    &[],
);

pub(crate) struct Hold;

impl ValueRange for Hold {
    type Value = TimeSpan;
    /// A shorter one may contain no whole window.
    const MIN: TimeSpan = TimeSpan(Duration::from_secs(2));
    const MAX: TimeSpan = TimeSpan(Duration::from_secs(24 * 3600));
}

pub(crate) struct Sure;

impl ValueRange for Sure {
    type Value = Ratio;
    const MIN: Ratio = Ratio(0.5);
    const MAX: Ratio = Ratio(0.999);
}

pub(crate) struct Width;

impl ValueRange for Width {
    type Value = Ratio;
    const MIN: Ratio = Ratio(0.01);
    const MAX: Ratio = Ratio(1.0);
}
