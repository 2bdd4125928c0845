//! Description of the machine on which the tester runs.

use std::time::Duration;

use net::Clock;
use runfile::Machine;

/// Describes this machine. Unknown values are empty or 0.
pub(crate) fn describe() -> Machine {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()
        })
        .map_or(0, |kib: u64| kib * 1024);
    Machine {
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        // A server may have processors of its own, which this program is kept from.
        cores: u32::try_from(net::thread::processors_without_affinity()).unwrap_or(u32::MAX),
        memory,
    }
}

/// Start of the run as a duration since 1970 (Unix time).
pub(crate) fn since_1970(clock: &Clock) -> Duration {
    Duration::from_nanos(u64::try_from(clock.started_at()).unwrap_or(0))
}
