//! A server on another machine, observed through Prometheus exporters there: node_exporter for the
//! machine, process-exporter for the server's processes.
//!
//! A thread queries them once a second and keeps the newest answer; the run never waits for it.
//! Processor time is the difference between two answers, divided by the time between their
//! arrivals: a late answer makes one figure slightly wrong, but not their sum.

mod text;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use crate::error::SutError;
use crate::observe::{Observation, RemoteServer};
use text::samples;

#[cfg(any(test, fuzzing))]
pub use text::read_any;

/// Interval between queries.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of an answer. Slower ones are counted as failed.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum size of an answer, in bytes. Those of node_exporter have about 100 KiB.
const ANSWER_MAX: u64 = 16 << 20;

/// Exporters on a server's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporters {
    /// URL of node_exporter, such as `http://10.0.0.5:9100/metrics`.
    pub node: Option<String>,
    /// URL of process-exporter, such as `http://10.0.0.5:9256/metrics`.
    pub process: Option<String>,
    /// Process group of the server (label `groupname`). Default: the only one.
    pub group: Option<String>,
}

/// Values of one round of answers.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    /// Processor time of the group, in seconds.
    group_cpu: Option<f64>,
    /// Processor time of the machine that was idle, waiting for disks, or taken by its hypervisor,
    /// of all cores together, in seconds.
    ///
    /// On most kernels only these are clocks. The kernel samples busy time by kind at the timer's
    /// tick, and programs that wake by timers run in step with it. Busy time is therefore the rest
    /// of the elapsed time.
    machine_unused: Option<f64>,
    /// The machine's own clock at that time, in seconds.
    machine_time: Option<f64>,
    cores: Option<u64>,
    pss: Option<f64>,
    rss: Option<f64>,
    threads: Option<f64>,
    file_descriptors: Option<f64>,
    /// Open descriptors as a share of the limit, of the process in the group that is nearest to its
    /// limit.
    descriptors_share: Option<f64>,
    udp_memory: Option<f64>,
    receive_errors: Option<f64>,
}

/// Results of the querying thread.
#[derive(Debug, Default)]
struct PollState {
    /// The newest answer, with its number and arrival time.
    newest: Option<(u64, Instant, Answer)>,
    failed: u64,
}

/// Queries exporters and converts their answers to observations.
#[derive(Debug)]
pub(crate) struct ExporterPoller {
    state: Arc<Mutex<PollState>>,
    /// The last answer that was used.
    used: Option<(u64, Instant, Answer)>,
    failed: u64,
    description: String,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ExporterPoller {
    /// Queries once, and then continuously in a thread.
    ///
    /// # Errors
    /// If an exporter does not answer, or does not know the process group.
    pub(crate) fn start(exporters: &Exporters) -> Result<ExporterPoller, SutError> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(QUERY_TIMEOUT))
            .build()
            .into();
        let mut exporters = exporters.clone();
        if let Some(url) = &exporters.process {
            let text = fetch(&agent, url)?;
            exporters.group = Some(find_group(&text, exporters.group.as_deref(), url)?);
        }
        let first = query(&agent, &exporters)?;
        let description = match (&exporters.group, &exporters.process, &exporters.node) {
            (Some(group), Some(url), _) => format!("{group} ({url})"),
            (_, _, Some(url)) => url.clone(),
            _ => String::new(),
        };
        let state = Arc::new(Mutex::new(PollState {
            newest: Some((0, Instant::now(), first)),
            failed: 0,
        }));
        let (stop, stopped) = bounded(1);
        let thread = {
            let state = state.clone();
            std::thread::Builder::new()
                .name("exporters".to_owned())
                .spawn(move || {
                    for number in 1.. {
                        // Only a stop wakes the thread.
                        if stopped.recv_timeout(QUERY_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                            return;
                        }
                        let answer = query(&agent, &exporters);
                        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                        match answer {
                            Ok(answer) => state.newest = Some((number, Instant::now(), answer)),
                            Err(_) => state.failed += 1,
                        }
                    }
                })
                .map_err(|error| SutError::Supervisor(error.to_string()))?
        };
        Ok(ExporterPoller {
            state,
            used: None,
            failed: 0,
            description,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Describes the observed server.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }
}

impl RemoteServer for ExporterPoller {
    /// Returns the values of the newest answer, if it was not used before.
    fn observe(&mut self) -> Observation {
        let (newest, failed) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.newest.clone(), state.failed)
        };
        let mut observation = Observation {
            scrapes_failed: failed - std::mem::replace(&mut self.failed, failed),
            ..Observation::default()
        };
        let Some((number, at, answer)) = newest else {
            return observation;
        };
        let before = self.used.replace((number, at, answer.clone()));
        if matches!(before, Some((before, ..)) if before == number) {
            return observation;
        }
        let whole = |figure: Option<f64>| figure.map(|figure| figure.max(0.0) as u64);
        observation.pss = whole(answer.pss);
        observation.rss = whole(answer.rss);
        observation.threads = whole(answer.threads);
        observation.file_descriptors = whole(answer.file_descriptors);
        observation.file_descriptors_share = answer.descriptors_share;
        observation.udp_memory = whole(answer.udp_memory);
        observation.machine_cores = answer.cores;
        if let Some((_, then, before)) = before {
            let seconds = at.duration_since(then).as_secs_f64();
            // A count that decreased was reset, together with the server or its machine.
            let used = answer.group_cpu.zip(before.group_cpu);
            observation.cpu = used
                .map(|(now, before)| (now - before) / seconds)
                .filter(|cores| cores.is_finite() && *cores >= 0.0);
            observation.machine_cpu = machine_cpu(&answer, &before, seconds);
            if let (Some(now), Some(before)) = (answer.receive_errors, before.receive_errors) {
                observation.udp_receive_errors = (now - before).max(0.0) as u64;
            }
        }
        observation
    }
}

/// Returns how many cores the machine kept busy between two answers that arrived `seconds` apart.
fn machine_cpu(now: &Answer, before: &Answer, seconds: f64) -> Option<f64> {
    let cores = now.cores.filter(|cores| before.cores == Some(*cores))? as f64;
    // The machine's own clock does not include the delays of the answers. It is not used if it was
    // set in between.
    let passed = now.machine_time.zip(before.machine_time);
    let passed = passed
        .map(|(now, before)| now - before)
        .filter(|passed| (passed - seconds).abs() <= seconds / 2.0)
        .unwrap_or(seconds);
    let unused = now.machine_unused? - before.machine_unused?;
    // The time waiting for disks may decrease a little. A larger decrease is a reset.
    if unused < -1.0 || passed <= 0.0 {
        return None;
    }
    Some((cores - unused.max(0.0) / passed).clamp(0.0, cores))
}

impl Drop for ExporterPoller {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn fetch(agent: &ureq::Agent, url: &str) -> Result<String, SutError> {
    let failed = |error: ureq::Error| SutError::Exporter {
        url: url.to_owned(),
        reason: error.to_string(),
    };
    let mut answer = agent.get(url).call().map_err(failed)?;
    let body = answer.body_mut().with_config().limit(ANSWER_MAX);
    body.read_to_string().map_err(failed)
}

/// Returns the process group that is the server.
fn find_group(text: &str, wanted: Option<&str>, url: &str) -> Result<String, SutError> {
    let groups: BTreeSet<String> = samples(text)
        .filter(|sample| sample.name == "namedprocess_namegroup_num_procs" && sample.value > 0.0)
        .filter_map(|sample| sample.label("groupname"))
        .collect();
    let unknown = |reason: String| SutError::Exporter {
        url: url.to_owned(),
        reason,
    };
    let known = || {
        let names: Vec<&str> = groups.iter().take(20).map(String::as_str).collect();
        names.join(", ")
    };
    match wanted {
        Some(wanted) if groups.contains(wanted) => Ok(wanted.to_owned()),
        Some(wanted) => Err(unknown(format!(
            "it has no process group `{wanted}`; its groups: {}",
            known()
        ))),
        None if groups.len() == 1 => Ok(groups.into_iter().next().unwrap_or_default()),
        None => Err(unknown(format!(
            "it has {} process groups: choose the server's with `group`; its groups: {}",
            groups.len(),
            known()
        ))),
    }
}

fn query(agent: &ureq::Agent, exporters: &Exporters) -> Result<Answer, SutError> {
    let mut answer = Answer::default();
    if let (Some(url), Some(group)) = (&exporters.process, &exporters.group) {
        read_process(&fetch(agent, url)?, group, &mut answer);
    }
    if let Some(url) = &exporters.node {
        read_node(&fetch(agent, url)?, &mut answer);
    }
    Ok(answer)
}

fn read_process(text: &str, group: &str, answer: &mut Answer) {
    let add = |sum: &mut Option<f64>, value: f64| *sum = Some(sum.unwrap_or(0.0) + value);
    for sample in samples(text) {
        let Some(name) = sample.name.strip_prefix("namedprocess_namegroup_") else {
            continue;
        };
        if sample.label("groupname").as_deref() != Some(group) {
            continue;
        }
        match (name, sample.label("memtype").as_deref()) {
            ("cpu_seconds_total", _) => add(&mut answer.group_cpu, sample.value),
            ("memory_bytes", Some("resident")) => answer.rss = Some(sample.value),
            ("memory_bytes", Some("proportionalResident")) => answer.pss = Some(sample.value),
            ("num_threads", _) => answer.threads = Some(sample.value),
            ("worst_fd_ratio", _) => answer.descriptors_share = Some(sample.value),
            ("open_filedesc", _) => answer.file_descriptors = Some(sample.value),
            _ => {}
        }
    }
}

fn read_node(text: &str, answer: &mut Answer) {
    let mut cores = BTreeSet::new();
    for sample in samples(text) {
        match sample.name {
            "node_cpu_seconds_total" => {
                if let Some(core) = sample.label("cpu") {
                    cores.insert(core);
                }
                let mode = sample.label("mode").unwrap_or_default();
                if matches!(mode.as_str(), "idle" | "iowait" | "steal") {
                    answer.machine_unused =
                        Some(answer.machine_unused.unwrap_or(0.0) + sample.value);
                }
            }
            "node_time_seconds" => answer.machine_time = Some(sample.value),
            "node_sockstat_UDP_mem_bytes" => answer.udp_memory = Some(sample.value),
            "node_netstat_Udp_RcvbufErrors" => answer.receive_errors = Some(sample.value),
            _ => {}
        }
    }
    answer.cores = (!cores.is_empty()).then_some(cores.len() as u64);
}

#[cfg(test)]
mod tests;
