//! How many workers play a scenario, and how many file descriptors each takes.

use scenario::Scenario;

/// How many clients one worker is given before another is started, where the scenario names no
/// number. One core stands for some thousands; a second worker takes a core that the server may
/// want.
const CLIENTS_A_WORKER: u64 = 1000;

/// Descriptors that a table has open beside those of clients: the run file and the server's
/// observation, or a worker's poll, timer and wakers.
const OWN_FILES: u64 = 64;

/// Most workers that are started for lack of descriptors alone.
const WORKERS_MAX: u64 = 16;

/// How many workers play the scenario's clients: as many as it says, else one for each
/// thousand clients, up to the machine's cores; and more than that only where the limit on file
/// descriptors, which each worker has to itself, would else not do.
pub fn workers(scenario: &Scenario) -> u32 {
    if let Some(workers) = scenario.workers {
        return workers.max(1);
    }
    let description = scenario.describe();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let by_clients = description.clients_max.div_ceil(CLIENTS_A_WORKER);
    let by_clients = by_clients.clamp(1, cores);
    let by_files = net::files::limit().map_or(1, |limit| {
        workers_by_files(description.file_descriptors, limit)
    });
    u32::try_from(by_clients.max(by_files)).unwrap_or(1)
}

/// How many workers it takes so that each stays within the limit on file descriptors. Where none
/// would do, because a worker's own are more than the limit, it is 1; where too many would have to
/// be started, those that share the descriptors evenly.
fn workers_by_files(files: u64, limit: u64) -> u64 {
    let Some(for_clients) = limit.checked_sub(OWN_FILES).filter(|&left| left > 0) else {
        return 1;
    };
    let each = files.div_ceil(WORKERS_MAX).max(for_clients).max(1);
    files.div_ceil(each)
}

/// How many file descriptors the busiest worker of a scenario takes at most at one time: what the
/// process's limit has to allow.
pub fn files_needed(scenario: &Scenario) -> u64 {
    let clients = scenario.describe().file_descriptors;
    clients
        .div_ceil(u64::from(workers(scenario)))
        .saturating_add(OWN_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_only_where_they_help() {
        // Enough for all in one.
        assert_eq!(workers_by_files(60, 1024), 1);
        assert_eq!(workers_by_files(60, 80), 4);
        // A worker's own are more than that.
        assert_eq!(workers_by_files(60, 40), 1);
        assert_eq!(workers_by_files(60, OWN_FILES), 1);
        // With the limit raised to what is then needed, it is the same number.
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
