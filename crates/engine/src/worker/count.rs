//! Number of workers of a scenario, and of file descriptors per worker.

use scenario::{Description, Scenario};

/// Clients per worker before another worker is started, if the scenario does not set `workers`. One
/// core serves some thousands of clients, and a second worker would take a core that the server may
/// need.
const CLIENTS_A_WORKER: u64 = 1000;

/// Descriptors in a table other than those of clients: the run file and the observation of the
/// server, or the poll, timer and wakers of a worker.
const OWN_FILES: u64 = 64;

/// Maximum number of workers that are started only for their descriptors.
const WORKERS_MAX: u64 = 16;

/// Number of workers of a scenario.
///
/// The value of `workers` if it is set, otherwise one per thousand clients, up to the number of
/// cores. More are started only if the descriptor limit, which applies to each worker separately,
/// would be exceeded.
pub fn workers(scenario: &Scenario) -> u32 {
    workers_for(scenario, &scenario.describe())
}

/// Number of workers of a runner that plays a part of the clients.
pub(crate) fn workers_for(scenario: &Scenario, description: &Description) -> u32 {
    if let Some(workers) = scenario.workers {
        return workers.max(1);
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let by_clients = description.clients_max.div_ceil(CLIENTS_A_WORKER);
    let by_clients = by_clients.clamp(1, cores);
    let by_files = net::descriptors::open_files_limit().map_or(1, |limit| {
        workers_by_files(description.file_descriptors, limit)
    });
    u32::try_from(by_clients.max(by_files)).unwrap_or(1)
}

/// Number of workers that keeps each within the descriptor limit. Returns 1 if a worker's own
/// descriptors exceed the limit. If more than [`WORKERS_MAX`] would be needed, the descriptors are
/// spread evenly over that number.
fn workers_by_files(files: u64, limit: u64) -> u64 {
    let Some(for_clients) = limit.checked_sub(OWN_FILES).filter(|&left| left > 0) else {
        return 1;
    };
    let each = files.div_ceil(WORKERS_MAX).max(for_clients).max(1);
    files.div_ceil(each)
}

/// Maximum number of descriptors that the busiest worker of a scenario has open at a time. The
/// limit of the process must allow it.
pub fn files_needed(scenario: &Scenario) -> u64 {
    files_needed_for(scenario, &scenario.describe())
}

/// [`files_needed`] for a runner that plays a part of the clients.
pub(crate) fn files_needed_for(scenario: &Scenario, description: &Description) -> u64 {
    let workers = workers_for(scenario, description);
    let clients = description.file_descriptors;
    clients
        .div_ceil(u64::from(workers))
        .saturating_add(OWN_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_only_if_they_help() {
        // One worker is enough.
        assert_eq!(workers_by_files(60, 1024), 1);
        assert_eq!(workers_by_files(60, 80), 4);
        // A worker's own descriptors exceed the limit.
        assert_eq!(workers_by_files(60, 40), 1);
        assert_eq!(workers_by_files(60, OWN_FILES), 1);
        // Raising the limit to the number needed does not change the number of workers.
        for limit in [65, 66, 70, 100] {
            for files in [20, 60, 3000, 90_000] {
                let workers = workers_by_files(files, limit);
                assert!((1..=WORKERS_MAX).contains(&workers), "{files} {limit}");
                let need = files.div_ceil(workers) + OWN_FILES;
                if need > limit {
                    assert_eq!(workers_by_files(files, need), workers, "{files} {limit}");
                }
            }
        }
    }
}
