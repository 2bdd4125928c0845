//! Resource usage of a worker as the kernel reports it: processor time, descriptors and ports.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use measure::{Recorder, Time, tester};
use net::PortRange;

/// Minimum time over which processor usage is computed. The figure would be random over less.
const CPU_SPAN: Duration = Duration::from_millis(100);

/// Processor usage of this thread, and its waiting time for a processor.
pub(super) struct SelfStats {
    cpu_nanos: u64,
    /// The kernel's scheduler statistics of this thread; `None` if unavailable.
    schedstat: Option<File>,
    waited_nanos: Option<u64>,
    /// Time of the last sample of both.
    at: Time,
}

impl SelfStats {
    /// Creates statistics of the calling thread, starting now.
    pub(super) fn new() -> SelfStats {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        SelfStats {
            cpu_nanos: net::clock::thread_cpu_nanos(),
            waited_nanos: schedstat.as_ref().and_then(waited),
            schedstat,
            at: Time::ZERO,
        }
    }

    /// Records the processor time and waiting time of this thread and the processor time of its
    /// pacer since the last sample. Windows that are closed late, one right after the other, get
    /// the same share.
    pub(super) fn take_cpu(
        &mut self,
        now: Time,
        pacer: impl FnOnce() -> u64,
        recorder: &mut Recorder,
    ) {
        let span = now.since(self.at);
        if span < CPU_SPAN {
            return;
        }
        self.at = now;
        let share = |nanos: u64| nanos as f64 / span.as_nanos() as f64;
        let cpu = net::clock::thread_cpu_nanos();
        let own = share(cpu.saturating_sub(self.cpu_nanos));
        let pacer = share(pacer());
        self.cpu_nanos = cpu;
        recorder.set(tester::CPU, own + pacer);
        recorder.set(tester::CPU_HOTTEST_WORKER, own.max(pacer));
        let waited = self.schedstat.as_ref().and_then(waited);
        match (waited, self.waited_nanos) {
            (Some(now), Some(before)) => {
                // The kernel may account time within the interval that was spent before it.
                let waited = share(now.saturating_sub(before)).min(1.0);
                recorder.set(tester::CPU_WAIT, waited);
            }
            _ => recorder.unset(tester::CPU_WAIT),
        }
        self.waited_nanos = waited;
    }

    /// Records which share of descriptors and port pairs the worker uses.
    pub(super) fn take_shares(sockets: usize, ports: &PortRange, recorder: &mut Recorder) {
        // Since Linux 6.2 the size of this directory is the number of open descriptors, at no cost.
        // Before, it is 0, and reading the directory would take milliseconds with thousands of
        // clients; then the number of sockets is used.
        let open = std::fs::metadata("/proc/thread-self/fd").map_or(0, |folder| folder.len());
        let open = open.max(sockets as u64);
        recorder.set(tester::FILE_DESCRIPTORS, open as f64);
        let share = net::descriptors::open_files_limit()
            .map_or(0.0, |limit| open as f64 / limit.max(1) as f64);
        recorder.set(tester::FILE_DESCRIPTORS_SHARE, share);
        if ports.pairs() > 0 {
            let share = ports.pairs_taken() as f64 / ports.pairs() as f64;
            recorder.set(tester::PORTS_SHARE, share);
        }
    }
}

/// Returns the time that a thread was runnable but waited for a processor: the second of three
/// numbers (Linux, Documentation/scheduler/sched-stats.rst). All three are 0 if the kernel does not
/// keep scheduler statistics.
fn waited(schedstat: &File) -> Option<u64> {
    let mut text = [0; 96];
    let length = schedstat.read_at(&mut text, 0).ok()?;
    parse_waited(str::from_utf8(&text[..length]).ok()?)
}

fn parse_waited(text: &str) -> Option<u64> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (ran > 0).then_some(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_time_is_unknown_without_scheduler_statistics() {
        assert_eq!(parse_waited("808039 2421077 12\n"), Some(2_421_077));
        assert_eq!(parse_waited("0 0 0\n"), None);
        for text in ["", "5", "x y z", "5 -1 2"] {
            assert_eq!(parse_waited(text), None, "{text}");
        }
    }

    #[test]
    fn busy_thread_has_cpu_usage() {
        let clock = net::Clock::start();
        let mut stats = SelfStats::new();
        let mut recorder = Recorder::new(measure::TESTER_CATALOGUE);
        while clock.now() < Time::ZERO + 2 * CPU_SPAN {
            std::hint::spin_loop();
        }
        stats.take_cpu(clock.now(), || 0, &mut recorder);
        let window = recorder.take_window();
        let gauge = |id: measure::GaugeId| window.gauges[usize::from(id.0)];
        assert!(gauge(tester::CPU) > Some(0.0));
        if std::path::Path::new("/proc/thread-self/schedstat").exists() {
            let waited = gauge(tester::CPU_WAIT).expect("this kernel tells");
            assert!((0.0..=1.0).contains(&waited), "{waited}");
        }
    }
}
