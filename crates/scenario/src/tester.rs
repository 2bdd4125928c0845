//! The tester itself: how it receives, and within which bounds it trusts its figures.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use measure::HealthBounds;
use measure::units::{QuantityError, Ratio, Size, TimeSpan};
use schemars::SchemaGenerator;
use serde_json::{Value as Json, json};

use crate::error::Problem;
use crate::fields::{Fields, node_text, text};
use crate::model::{DEFAULT_RECEIVE_BUFFER, DEFAULT_RING, Priority, Receive, Tester};
use crate::nearest::suggest;
use crate::node::{Node, shown};

/// The keys of the tester.
pub(crate) const KEYS: [&str; 5] = ["receive", "receive_buffer", "ring", "priority", "health"];

/// The keys of its health.
pub(crate) const HEALTH_KEYS: [&str; 12] = [
    "overflow",
    "kernel_drops",
    "lag_p99",
    "longest_stall",
    "send_lateness_p99",
    "worker_cpu",
    "cpu_wait",
    "steal",
    "file_descriptors",
    "ports",
    "late_clients",
    "windows",
];

const FORM: &str =
    "write `tester: {receive: sockets, receive_buffer: 1MiB, health: {lag_p99: 100ms}}`";

const HEALTH_FORM: &str =
    "write the bounds that are to be others, such as `health: {lag_p99: 100ms, windows: 5%}`";

/// Below the least the kernel would grant more than was asked for.
const RECEIVE_BUFFER_RANGE: [Size; 2] = [Size(4 << 10), Size(1 << 30)];

/// Less holds no block of packets, and more than a GiB is a mistake.
const RING_RANGE: [Size; 2] = [Size(256 << 10), Size(1 << 30)];

/// Shorter bounds would be crossed by the clock's own grain, longer ones by nothing.
const BOUND_RANGE: [TimeSpan; 2] = [
    TimeSpan(Duration::from_millis(1)),
    TimeSpan(Duration::from_secs(3600)),
];

pub(crate) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Tester> {
    let mut fields = Fields::of(node, "tester", FORM, problems)?;
    let default = Tester::default();
    let tester = Tester {
        receive: fields
            .get("receive", problems)
            .and_then(|node| {
                one_of(
                    node,
                    "tester.receive",
                    Receive::ALL,
                    Receive::name,
                    problems,
                )
            })
            .unwrap_or(default.receive),
        receive_buffer: within(
            &mut fields,
            "receive_buffer",
            RECEIVE_BUFFER_RANGE,
            problems,
        )
        .map_or(default.receive_buffer, |size| size.0),
        ring: within(&mut fields, "ring", RING_RANGE, problems).map_or(default.ring, |size| size.0),
        priority: fields
            .get("priority", problems)
            .and_then(|node| {
                one_of(
                    node,
                    "tester.priority",
                    Priority::ALL,
                    Priority::name,
                    problems,
                )
            })
            .unwrap_or(default.priority),
        health: fields
            .get("health", problems)
            .and_then(|node| health(node, problems))
            .unwrap_or(default.health),
    };
    fields.finish(&KEYS, problems);
    Some(tester)
}

/// One of some words.
fn one_of<T: Copy, const N: usize>(
    node: &Node,
    path: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let word = text(node, path, problems)?;
    let found = all.into_iter().find(|&one| name(one) == word);
    if found.is_none() {
        problems.push(
            Problem::new(
                &node.origin,
                format!("`{path}` cannot be `{}`", shown(&word)),
            )
            .help(suggest(&word, all.map(name))),
        );
    }
    found
}

fn health(node: &Node, problems: &mut Vec<Problem>) -> Option<HealthBounds> {
    let mut fields = Fields::of(node, "tester.health", HEALTH_FORM, problems)?;
    let mut bounds = HealthBounds::default();
    let times = [
        ("lag_p99", &mut bounds.lag_p99),
        ("longest_stall", &mut bounds.longest_stall),
        ("send_lateness_p99", &mut bounds.send_lateness_p99),
    ];
    for (key, bound) in times {
        if let Some(time) = within(&mut fields, key, BOUND_RANGE, problems) {
            *bound = time.0;
        }
    }
    let shares = [
        ("overflow", &mut bounds.overflow),
        ("kernel_drops", &mut bounds.kernel_drops),
        ("worker_cpu", &mut bounds.worker_cpu),
        ("cpu_wait", &mut bounds.cpu_wait),
        ("steal", &mut bounds.steal),
        ("file_descriptors", &mut bounds.file_descriptors),
        ("ports", &mut bounds.ports),
        ("late_clients", &mut bounds.late_clients),
        ("windows", &mut bounds.windows),
    ];
    for (key, bound) in shares {
        if let Some(share) = fields.quantity::<Ratio>(key, problems) {
            *bound = share.0;
        }
    }
    fields.finish(&HEALTH_KEYS, problems);
    Some(bounds)
}

/// A quantity from the first of `range` to the second.
fn within<Q>(
    fields: &mut Fields<'_>,
    key: &str,
    range: [Q; 2],
    problems: &mut Vec<Problem>,
) -> Option<Q>
where
    Q: FromStr<Err = QuantityError> + PartialOrd + Display,
{
    let value = fields.quantity::<Q>(key, problems)?;
    let [least, most] = &range;
    if (value < *least || value > *most)
        && let Some(entry) = fields.entry(key)
    {
        problems.push(
            Problem::new(
                &entry.node.origin,
                format!(
                    "`{}: {}` is out of range",
                    fields.path_of(key),
                    node_text(&entry.node)
                ),
            )
            .help(format!("write one from {least} to {most}")),
        );
        return None;
    }
    Some(value)
}

/// The section in the JSON Schema of the scenario file.
pub(crate) fn schema(duration: &Json, generator: &mut SchemaGenerator) -> Json {
    let size = generator.subschema_for::<Size>().to_value();
    let share = generator.subschema_for::<Ratio>().to_value();
    let bounds = HealthBounds::default();
    let described = |schema: &Json, text: String| {
        let mut schema = schema.clone();
        schema["description"] = Json::from(text);
        schema
    };
    let time = |text: &str, default: Duration| {
        described(duration, format!("{text} Default {}.", TimeSpan(default)))
    };
    let part =
        |text: &str, default: f64| described(&share, format!("{text} Default {}.", Ratio(default)));
    let health = json!({
        "overflow": part("The share of all packets that the tester's own ring and sockets may lose over the run.", bounds.overflow),
        "kernel_drops": part("The share of all packets that this machine's kernel may lose over the run, before any socket.", bounds.kernel_drops),
        "lag_p99": time("The 99th percentile of a worker's event-loop lag in a window.", bounds.lag_p99),
        "longest_stall": time("The longest stand-still of a worker, in however few windows.", bounds.longest_stall),
        "send_lateness_p99": time("The 99th percentile of the lateness of what was sent in a window.", bounds.send_lateness_p99),
        "worker_cpu": part("The share of a core that the busiest worker may take in a window.", bounds.worker_cpu),
        "cpu_wait": part("The share of a window in which a thread may wait for a processor.", bounds.cpu_wait),
        "steal": part("The share of a window's processor time that the hypervisor may give to others.", bounds.steal),
        "file_descriptors": part("The share of the file descriptors that may be in use.", bounds.file_descriptors),
        "ports": part("The share of the UDP ports that may be in use.", bounds.ports),
        "late_clients": part("The share of all clients that may begin more than 1 s late.", bounds.late_clients),
        "windows": part("The share of the windows in which a bound may be crossed.", bounds.windows)
    });
    json!({
        "type": "object",
        "additionalProperties": false,
        "description": "The tester itself: how it receives, and within which bounds it trusts its figures.",
        "properties": {
            "receive": {
                "enum": Receive::ALL.map(Receive::name),
                "description": "How media over UDP is received: from a packet `ring` of each worker (needs CAP_NET_RAW) or from the clients' `sockets`. Default `auto`: the ring where it can be had."
            },
            "receive_buffer": described(&size, format!("The receive buffer of each media socket; the kernel grants at most net.core.rmem_max. With 1 MiB and more a socket is read twenty times a second instead of at each datagram, at half of the cost. Default {}.", Size(DEFAULT_RECEIVE_BUFFER))),
            "priority": {
                "enum": Priority::ALL.map(Priority::name),
                "description": "Whether the tester's workers go before other threads of the machine: `raised` (a nice value of -10; needs CAP_SYS_NICE) keeps a tester fit beside a server that takes all cores. Default `normal`."
            },
            "ring": described(&size, format!("The packet ring of each worker. Default {}.", Size(DEFAULT_RING))),
            "health": {
                "type": "object",
                "additionalProperties": false,
                "description": "The bounds past which the measurement is invalid.",
                "properties": health
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_and_the_reader_know_the_same_bounds() {
        let mut generator = SchemaGenerator::default();
        let schema = schema(&json!({}), &mut generator);
        let keys = |pointer: &str| -> Vec<String> {
            let object = schema.pointer(pointer).and_then(Json::as_object);
            let mut keys: Vec<String> = object.expect("it is there").keys().cloned().collect();
            keys.sort();
            keys
        };
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(keys("/properties"), sorted(&KEYS));
        assert_eq!(keys("/properties/health/properties"), sorted(&HEALTH_KEYS));
        let bounds = serde_json::to_value(HealthBounds::default()).expect("plain data");
        let mut fields: Vec<String> = bounds
            .as_object()
            .expect("a struct")
            .keys()
            .cloned()
            .collect();
        fields.sort();
        assert_eq!(fields, sorted(&HEALTH_KEYS));
    }
}
