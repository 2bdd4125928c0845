//! The tester: how it receives, and its health bounds.

use std::time::Duration;

use measure::HealthBounds;
use measure::units::{Ratio, Size, TimeSpan};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::collector::TypeSyntax;
use crate::model::{Priority, Receive, Tester};
use crate::section::{BoundedInteger, Key, ValueRange, Within, one_line};

/// The tester: how it receives, and its health bounds.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line)]
pub(crate) struct TesterKeys {
    /// How media over UDP is received: from a packet `ring` of each worker (needs CAP_NET_RAW) or
    /// from the clients' `sockets`. Default `auto`: the ring if it is available.
    receive: Key<Receive>,
    /// Receive buffer of each media socket; the kernel grants at most net.core.rmem_max. With 1 MiB
    /// and more a socket is read twenty times a second instead of for each datagram, at half the
    /// cost. Default 1MiB.
    receive_buffer: Key<Within<ReceiveBuffer>>,
    /// Packet ring of each worker; four times as large if packets are kept whole, as for SRT.
    /// Default 8MiB.
    ring: Key<Within<Ring>>,
    /// Scheduling priority of the workers: `raised` (nice value -10; needs CAP_SYS_NICE) keeps a
    /// tester healthy on the machine of a server that takes all cores. Default `normal`.
    priority: Key<Priority>,
    /// With `--runners`: number of runners that may be lost. The run then ends when one is lost,
    /// and is judged by the seconds in which all were present. Default 0: the run is invalid.
    may_lose: Key<BoundedInteger<0, 255>>,
    health: Key<HealthKeys>,
}

/// Bounds beyond which the measurement is invalid.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line)]
pub(crate) struct HealthKeys {
    /// The share of all packets that the tester's own ring and sockets may lose over the run.
    /// Default 0.001%.
    overflow: Key<Ratio>,
    /// The share of all packets that this machine's kernel may lose over the run, before any
    /// socket. Default 0.001%.
    kernel_drops: Key<Ratio>,
    /// The 99th percentile of a worker's event-loop lag in a window. Default 100ms.
    lag_p99: Key<Within<Bound>>,
    /// The longest stall of a worker in any window. Default 1s.
    longest_stall: Key<Within<Bound>>,
    /// The 99th percentile of the delay of clients' feedback in a window. Default 20ms.
    feedback_delay_p99: Key<Within<Bound>>,
    /// The 99th percentile of the send lateness in a window. Default 100ms.
    send_lateness_p99: Key<Within<Bound>>,
    /// The 99th percentile of the lateness of packets at an emulated link in a window. Default 1ms.
    link_lateness_p99: Key<Within<Bound>>,
    /// The share of a core that the busiest worker may take in a window. Default 90%.
    worker_cpu: Key<Ratio>,
    /// The share of a window in which a thread may wait for a processor. Default 50%.
    cpu_wait: Key<Ratio>,
    /// The share of a window's processor time that the hypervisor may give to others. Default 80%.
    steal: Key<Ratio>,
    /// The share of the file descriptors that may be in use. Default 95%.
    file_descriptors: Key<Ratio>,
    /// The share of the UDP ports that may be in use. Default 95%.
    ports: Key<Ratio>,
    /// The share of all clients that may begin more than 1 s late. Default 5%.
    late_clients: Key<Ratio>,
    /// The share of the windows in which a bound may be crossed. Default 5%.
    windows: Key<Ratio>,
}

pub(crate) const FORM: TypeSyntax = (
    "TesterKeys",
    "write `tester: {receive: sockets, receive_buffer: 1MiB, health: {lag_p99: 100ms}}`",
    &[],
);

pub(crate) const HEALTH_FORM: TypeSyntax = (
    "HealthKeys",
    "write the bounds to change, such as `health: {lag_p99: 100ms, windows: 5%}`",
    &[],
);

struct ReceiveBuffer;

impl ValueRange for ReceiveBuffer {
    type Value = Size;
    /// For a smaller size the kernel grants more than requested.
    const MIN: Size = Size(4 << 10);
    const MAX: Size = Size(1 << 30);
}

struct Ring;

impl ValueRange for Ring {
    type Value = Size;
    /// A smaller ring holds no block of packets.
    const MIN: Size = Size(256 << 10);
    /// A larger ring is most likely a mistake.
    const MAX: Size = Size(1 << 30);
}

struct Bound;

impl ValueRange for Bound {
    type Value = TimeSpan;
    /// The resolution of the clock would exceed shorter bounds.
    const MIN: TimeSpan = TimeSpan(Duration::from_millis(1));
    /// Longer bounds would never be exceeded.
    const MAX: TimeSpan = TimeSpan(Duration::from_secs(3600));
}

impl From<TesterKeys> for Tester {
    fn from(keys: TesterKeys) -> Tester {
        let usual = Tester::default();
        Tester {
            receive: keys.receive.or(usual.receive),
            receive_buffer: keys
                .receive_buffer
                .0
                .map_or(usual.receive_buffer, |size| size.0.0),
            ring: keys.ring.0.map_or(usual.ring, |size| size.0.0),
            priority: keys.priority.or(usual.priority),
            may_lose: keys.may_lose.number().unwrap_or(usual.may_lose),
            health: keys.health.or(HealthKeys::default()).into(),
        }
    }
}

impl From<HealthKeys> for HealthBounds {
    fn from(keys: HealthKeys) -> HealthBounds {
        let usual = HealthBounds::default();
        let share = |key: Key<Ratio>, usual| key.0.map_or(usual, |share| share.0);
        let time = |key: Key<Within<Bound>>, usual| key.0.map_or(usual, |time| time.0.0);
        HealthBounds {
            overflow: share(keys.overflow, usual.overflow),
            kernel_drops: share(keys.kernel_drops, usual.kernel_drops),
            lag_p99: time(keys.lag_p99, usual.lag_p99),
            longest_stall: time(keys.longest_stall, usual.longest_stall),
            feedback_delay_p99: time(keys.feedback_delay_p99, usual.feedback_delay_p99),
            send_lateness_p99: time(keys.send_lateness_p99, usual.send_lateness_p99),
            link_lateness_p99: time(keys.link_lateness_p99, usual.link_lateness_p99),
            worker_cpu: share(keys.worker_cpu, usual.worker_cpu),
            cpu_wait: share(keys.cpu_wait, usual.cpu_wait),
            steal: share(keys.steal, usual.steal),
            file_descriptors: share(keys.file_descriptors, usual.file_descriptors),
            ports: share(keys.ports, usual.ports),
            late_clients: share(keys.late_clients, usual.late_clients),
            windows: share(keys.windows, usual.windows),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::SchemaGenerator;

    use super::*;
    use crate::section;

    #[test]
    fn schema_and_reader_have_the_same_bounds() {
        let known = section::keys::<HealthKeys>();
        let schema = HealthKeys::json_schema(&mut SchemaGenerator::default()).to_value();
        let bounds = serde_json::to_value(HealthBounds::default()).expect("plain data");
        let mut fields = 0;
        for (key, value) in bounds.as_object().expect("a struct") {
            assert!(known.contains(&key.as_str()), "{key}");
            // The default in the schema is the actual one.
            let text = schema["properties"][key]["description"].as_str();
            let documented = text
                .and_then(|text| text.rsplit_once("Default "))
                .expect("it says");
            let usual = match value {
                serde_json::Value::Number(share) => {
                    Ratio(share.as_f64().expect("a share")).to_string()
                }
                time => time.as_str().expect("a time").to_owned(),
            };
            assert_eq!(documented.1, format!("{usual}."), "{key}");
            fields += 1;
        }
        assert_eq!(known.len(), fields);
    }
}
