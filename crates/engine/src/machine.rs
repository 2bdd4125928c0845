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
        cores: std::thread::available_parallelism()
            .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        memory,
    }
}

/// Start of the run as a duration since 1970 (Unix time).
pub(crate) fn since_1970(clock: &Clock) -> Duration {
    Duration::from_nanos(u64::try_from(clock.started_at()).unwrap_or(0))
}
