//! Resource use of the server, observed once per window.
//!
//! An observation costs the tester, and partly the server. Readings whose cost grows with the
//! number of threads and descriptors are taken less often once they take long. Each of them uses
//! at most 1 % of one core.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kit::descriptor::Transport;
use measure::Recorder;
use measure::server;

use crate::HeldResources;
use crate::allowance;
use crate::cgroup::{self, CgroupVersion};
use crate::complaints::{LogCount, LogLine};
use crate::groups;
use crate::ports;
use crate::proc;

/// Minimum interval between readings of USS and PSS: the kernel walks the server's page tables.
const MEMORY_EVERY: Duration = Duration::from_secs(5);

/// Minimum interval between readings of the processors that the server may use. They seldom change.
const ALLOWED_EVERY: Duration = Duration::from_secs(5);

/// Minimum interval, as a multiple of the cost of a reading.
const COST_SHARE: u32 = 100;

/// Source of the server's processor time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// A control group of its own, version 1 (cpuacct): exact, ended threads and children included.
    CgroupV1,
    /// A control group of its own, version 2 (cpu.stat): exact, ended threads and children
    /// included.
    CgroupV2,
    /// User and system time of the processes of the tree and of children that they waited for, in
    /// clock ticks (mostly of 10 ms). Used if no control group can be created, and for a server
    /// that is only observed.
    ProcessTimes {
        /// Reason why there is no control group.
        reason: String,
    },
    /// An exporter on the server's machine.
    Exporter,
    /// A runner on the server's machine, which reads the times of the processes.
    Observer {
        /// Name of the runner.
        runner: String,
    },
}

/// Result of one observation. `None`: not measured this time, or not readable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Processor time since the last observation, in cores.
    pub cpu: Option<f64>,
    /// Processor time of the busiest thread since the last observation, in cores.
    pub cpu_hottest_thread: Option<f64>,
    /// Number of cores that the processes may use.
    pub cpu_allowed: Option<f64>,
    /// Unique set size, bytes.
    pub uss: Option<u64>,
    /// Proportional set size, bytes.
    pub pss: Option<u64>,
    /// Resident set size, bytes.
    pub rss: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
    /// Number of open file descriptors.
    pub file_descriptors: Option<u64>,
    /// Open file descriptors as a share of the limit, of the process that is nearest to its limit.
    pub file_descriptors_share: Option<f64>,
    /// Number of watched multicast groups that are joined.
    pub groups: Option<u64>,
    /// UDP memory of the machine, bytes.
    pub udp_memory: Option<u64>,
    /// Datagrams dropped at the server's sockets since the last observation.
    pub socket_drops: u64,
    /// Processor time of the server's whole machine since the last observation, in cores. Only for
    /// another machine.
    pub machine_cpu: Option<f64>,
    /// Cores of that machine.
    pub machine_cores: Option<u64>,
    /// Datagrams dropped by that machine at full receive queues since the last observation.
    pub udp_receive_errors: u64,
    /// Complaints in the log since the last observation.
    pub log_complaints: u64,
    /// Number of times that an exporter there did not answer since the last observation.
    pub scrapes_failed: u64,
}

impl Observation {
    /// Records the figures.
    pub fn record(&self, recorder: &mut Recorder) {
        let number = |count: Option<u64>| count.map(|count| count as f64);
        let gauges = [
            (server::CPU, self.cpu),
            (server::CPU_HOTTEST_THREAD, self.cpu_hottest_thread),
            (server::CPU_ALLOWED, self.cpu_allowed),
            (server::USS, number(self.uss)),
            (server::PSS, number(self.pss)),
            (server::RSS, number(self.rss)),
            (server::THREADS, number(self.threads)),
            (server::FILE_DESCRIPTORS, number(self.file_descriptors)),
            (server::FILE_DESCRIPTORS_SHARE, self.file_descriptors_share),
            (server::MULTICAST_GROUPS, number(self.groups)),
            (server::UDP_MEMORY, number(self.udp_memory)),
            (server::MACHINE_CPU, self.machine_cpu),
            (server::MACHINE_CORES, number(self.machine_cores)),
        ];
        for (gauge, value) in gauges {
            match value {
                Some(value) => recorder.set(gauge, value),
                None => recorder.unset(gauge),
            }
        }
        recorder.add(server::SOCKET_DROPS, self.socket_drops);
        recorder.add(server::UDP_RECEIVE_ERRORS, self.udp_receive_errors);
        recorder.add(server::LOG_COMPLAINTS, self.log_complaints);
        recorder.add(server::SCRAPES_FAILED, self.scrapes_failed);
    }
}

/// A server on another machine, and who observes it there.
pub trait RemoteServer: std::fmt::Debug + Send {
    /// Returns what is known since the last call.
    fn observe(&mut self) -> Observation;

    /// Begins to count: what came before is dropped.
    fn begin(&mut self) {}

    /// Returns the complaints in the log since the last call.
    fn take_log_lines(&mut self) -> Vec<LogLine> {
        Vec::new()
    }

    /// Returns the complaints in the log by pattern, and whether some of it exceeded the limits.
    fn log_counts(&self) -> (Vec<LogCount>, bool) {
        (Vec::new(), false)
    }

    /// Returns how the server ended; `None` while it runs, or if that is not known.
    fn has_exited(&self) -> Option<String> {
        None
    }
}

/// Source of the processor time.
#[derive(Clone, Debug)]
pub(crate) enum Meter {
    Group(CgroupVersion, PathBuf),
    Times,
}

/// Schedule of a costly reading.
#[derive(Debug)]
struct ReadingSchedule {
    min_interval: Duration,
    next: Option<Instant>,
}

impl ReadingSchedule {
    fn every(min_interval: Duration) -> ReadingSchedule {
        ReadingSchedule {
            min_interval,
            next: None,
        }
    }

    /// Takes the reading if it is due, and schedules the next one by its cost.
    fn run<T>(&mut self, now: Instant, work: impl FnOnce() -> T) -> Option<T> {
        // A window may begin a little early.
        let latest = now + Duration::from_millis(50);
        if self.next.is_some_and(|next| latest < next) {
            return None;
        }
        let began = Instant::now();
        let result = work();
        let rest = began.elapsed().saturating_mul(COST_SHARE);
        self.next = Some(now + self.min_interval.max(rest));
        Some(result)
    }
}

/// Last reading of a value that only grows.
#[derive(Debug)]
struct Reading<T> {
    at: Instant,
    value: T,
}

/// Observes a process tree.
#[derive(Debug)]
pub(crate) struct Observer {
    meter: Meter,
    page: u64,
    ticks_per_second: f64,
    used: Option<Reading<u64>>,
    ticks: Option<u64>,
    ticks_used: u64,
    threads: Option<Reading<HashMap<(u32, u32), u64>>>,
    drops: Drops,
    /// Multicast groups to look for.
    pub(crate) watched: BTreeSet<IpAddr>,
    /// Last reading of the number of cores that the processes may use.
    allowed: Option<f64>,
    allowed_schedule: ReadingSchedule,
    hottest_schedule: ReadingSchedule,
    memory_schedule: ReadingSchedule,
    descriptors_schedule: ReadingSchedule,
    drops_schedule: ReadingSchedule,
    groups_schedule: ReadingSchedule,
}

impl Observer {
    pub(crate) fn new(meter: Meter) -> Observer {
        Observer {
            meter,
            page: rustix::param::page_size() as u64,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            used: None,
            ticks: None,
            ticks_used: 0,
            threads: None,
            drops: Drops::default(),
            watched: BTreeSet::new(),
            allowed: None,
            allowed_schedule: ReadingSchedule::every(ALLOWED_EVERY),
            hottest_schedule: ReadingSchedule::every(Duration::ZERO),
            memory_schedule: ReadingSchedule::every(MEMORY_EVERY),
            descriptors_schedule: ReadingSchedule::every(Duration::ZERO),
            drops_schedule: ReadingSchedule::every(Duration::ZERO),
            groups_schedule: ReadingSchedule::every(Duration::ZERO),
        }
    }

    /// Takes the first reading of all values that are counted between observations.
    pub(crate) fn begin(&mut self, tree: &[u32]) {
        let stats: Vec<proc::Stat> = tree.iter().filter_map(|&pid| proc::stat(pid)).collect();
        self.cpu(&stats);
        self.hottest(tree, Instant::now());
        self.drops.read(tree);
    }

    /// Observes the processes of `tree`.
    pub(crate) fn observe(&mut self, tree: &[u32]) -> Observation {
        let stats: Vec<proc::Stat> = tree.iter().filter_map(|&pid| proc::stat(pid)).collect();
        let alive = !stats.is_empty();
        let sum = |value: fn(&proc::Stat) -> u64| alive.then(|| stats.iter().map(value).sum());
        let now = Instant::now();
        let descriptors = self.descriptors_schedule.run(now, || descriptors(tree));
        let (file_descriptors, file_descriptors_share) = descriptors.unwrap_or_default();
        let watched = &self.watched;
        let groups = self.groups_schedule.run(now, || joined(tree, watched));
        Observation {
            cpu: self.cpu(&stats),
            cpu_hottest_thread: self.hottest(tree, now),
            cpu_allowed: self.allowed(tree, now),
            threads: sum(|stat| stat.threads),
            rss: sum(|stat| stat.resident).map(|pages| pages.saturating_mul(self.page)),
            file_descriptors,
            file_descriptors_share,
            groups: groups.flatten().map(|groups| groups.len() as u64),
            udp_memory: fs::read_to_string("/proc/net/sockstat")
                .ok()
                .and_then(|text| proc::parse_udp_memory(&text, self.page)),
            // The next reading counts the drops of skipped ones.
            socket_drops: self
                .drops_schedule
                .run(now, || self.drops.read(tree))
                .unwrap_or(0),
            ..self.memory(tree, now)
        }
    }

    /// Returns the watched groups that are joined in the processes' network namespace; `None` if no
    /// group is watched.
    pub(crate) fn groups(&self, tree: &[u32]) -> Option<BTreeSet<IpAddr>> {
        joined(tree, &self.watched)
    }

    /// Returns the processor time since the last call, in cores; `None` for the first call.
    fn cpu(&mut self, stats: &[proc::Stat]) -> Option<f64> {
        let (value, unit) = match &self.meter {
            Meter::Group(kind, path) => (cgroup::usage(*kind, path)?, 1e-9),
            Meter::Times => (self.count_ticks(stats), 1.0 / self.ticks_per_second),
        };
        let at = Instant::now();
        let last = self.used.replace(Reading { at, value })?;
        let seconds = at.duration_since(last.at).as_secs_f64();
        (seconds > 0.0).then(|| value.saturating_sub(last.value) as f64 * unit / seconds)
    }

    /// Adds up the ticks of the tree. A process that ended has passed its time on to the parent
    /// that waited for it. Without such a parent, its time is missing from this step only.
    fn count_ticks(&mut self, stats: &[proc::Stat]) -> u64 {
        let now = stats.iter().map(|stat| stat.ticks).sum();
        let before = self.ticks.replace(now).unwrap_or(now);
        self.ticks_used += u64::saturating_sub(now, before);
        self.ticks_used
    }

    fn hottest(&mut self, tree: &[u32], now: Instant) -> Option<f64> {
        let readings = self.hottest_schedule.run(now, || {
            let mut readings = HashMap::new();
            for &pid in tree {
                readings.extend(proc::threads(pid).map(|(thread, nanos)| ((pid, thread), nanos)));
            }
            readings
        })?;
        let at = Instant::now();
        // A new thread used all of its time since the last reading.
        let last = self.threads.replace(Reading {
            at,
            value: readings,
        })?;
        let seconds = at.duration_since(last.at).as_secs_f64();
        let readings = &self.threads.as_ref()?.value;
        let max_nanos = readings
            .iter()
            .map(|(thread, nanos)| {
                nanos.saturating_sub(last.value.get(thread).copied().unwrap_or(0))
            })
            .max()?;
        (seconds > 0.0).then(|| max_nanos as f64 / 1e9 / seconds)
    }

    fn allowed(&mut self, tree: &[u32], now: Instant) -> Option<f64> {
        if let Some(found) = self.allowed_schedule.run(now, || allowance::cores(tree)) {
            self.allowed = found;
        }
        self.allowed
    }

    fn memory(&mut self, tree: &[u32], now: Instant) -> Observation {
        let memories: Vec<proc::Memory> = self
            .memory_schedule
            .run(now, || {
                tree.iter().filter_map(|&pid| proc::memory(pid)).collect()
            })
            .unwrap_or_default();
        Observation {
            uss: total(memories.iter().map(|memory| memory.uss)),
            pss: total(memories.iter().map(|memory| memory.pss)),
            ..Observation::default()
        }
    }
}

/// Returns the resources that the processes hold, except groups.
pub(crate) fn held_resources(tree: &[u32]) -> HeldResources {
    let memory = tree.iter().filter_map(|&pid| proc::memory(pid));
    HeldResources {
        groups: None,
        file_descriptors: total(tree.iter().filter_map(|&pid| proc::descriptors(pid))),
        uss: total(memory.map(|memory| memory.uss)),
    }
}

fn joined(tree: &[u32], watched: &BTreeSet<IpAddr>) -> Option<BTreeSet<IpAddr>> {
    if watched.is_empty() {
        return None;
    }
    tree.iter().find_map(|&pid| groups::joined(pid, watched))
}

/// Returns the total number of open file descriptors, and their share of the limit in the process
/// that is nearest to its limit.
fn descriptors(tree: &[u32]) -> (Option<u64>, Option<f64>) {
    let open: Vec<(u32, u64)> = tree
        .iter()
        .filter_map(|&pid| Some((pid, proc::descriptors(pid)?)))
        .collect();
    let shares = open.iter().filter_map(|&(pid, open)| {
        let limit = proc::descriptors_limit(pid).filter(|&limit| limit > 0)?;
        Some(open as f64 / limit as f64)
    });
    let worst = shares.reduce(f64::max);
    (total(open.iter().map(|&(_, count)| count)), worst)
}

/// Returns the sum; `None` if there are no values.
fn total(values: impl Iterator<Item = u64>) -> Option<u64> {
    values.fold(None, |sum: Option<u64>, value| {
        Some(sum.unwrap_or(0).saturating_add(value))
    })
}

/// Drops at the UDP sockets of the tree.
#[derive(Debug, Default)]
struct Drops {
    /// Last reading of every UDP socket. The sockets of the server are determined when one has
    /// dropped something.
    last: HashMap<u64, u64>,
    ours: HashSet<u64>,
    others: HashSet<u64>,
    begun: bool,
}

impl Drops {
    fn read(&mut self, tree: &[u32]) -> u64 {
        let rows = ports::rows(Transport::Udp, tree.first().copied());
        let mut current = HashMap::with_capacity(rows.len());
        let mut grown = Vec::new();
        for row in &rows {
            current.insert(row.inode, row.drops);
            let last = match self.last.get(&row.inode) {
                Some(&last) => last,
                // All drops of a socket that is new since the last reading happened since then.
                None if self.begun => 0,
                None => row.drops,
            };
            // The kernel's counter has 32 bits.
            if row.drops != last {
                grown.push((row.inode, (row.drops as u32).wrapping_sub(last as u32)));
            }
        }
        self.last = current;
        self.begun = true;
        self.ours.retain(|inode| self.last.contains_key(inode));
        self.others.retain(|inode| self.last.contains_key(inode));
        let unknown = |inode: &u64| !self.ours.contains(inode) && !self.others.contains(inode);
        if grown.iter().any(|(inode, _)| unknown(inode)) {
            let tree: HashSet<u64> = tree
                .iter()
                .filter_map(|&pid| proc::sockets(pid))
                .flatten()
                .collect();
            for inode in self.last.keys() {
                if tree.contains(inode) {
                    self.ours.insert(*inode);
                } else {
                    self.others.insert(*inode);
                }
            }
        }
        grown
            .iter()
            .filter(|(inode, _)| self.ours.contains(inode))
            .map(|&(_, drops)| u64::from(drops))
            .sum()
    }
}
