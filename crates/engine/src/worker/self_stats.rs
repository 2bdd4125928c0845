//! What a worker measures of itself: its thread, its descriptors and ports, as the kernel has them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use measure::{Recorder, Time, tester};
use net::PortRange;

/// Over less than this no use of the processor is worked out: the figure would be chance.
const CPU_SPAN: Duration = Duration::from_millis(100);

/// What this thread used of a processor, and how long it waited for one.
pub(super) struct SelfStats {
    cpu_nanos: u64,
    /// What the kernel accounts for this very thread; none where it does not.
    schedstat: Option<File>,
    waited_nanos: Option<u64>,
    /// Up to when both have been taken up.
    at: Time,
}

impl SelfStats {
    /// The calling thread, as it stands now.
    pub(super) fn new() -> SelfStats {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        SelfStats {
            cpu_nanos: net::clock::thread_cpu_nanos(),
            waited_nanos: schedstat.as_ref().and_then(waited),
            schedstat,
            at: Time::ZERO,
        }
    }

    /// Takes up what was used and waited, and what the thread that sends for it used. Of windows
    /// that are closed late, one right after the other, each is given the same share.
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
                // Time of before the span may be accounted within it.
                let waited = share(now.saturating_sub(before)).min(1.0);
                recorder.set(tester::CPU_WAIT, waited);
            }
            _ => recorder.unset(tester::CPU_WAIT),
        }
        self.waited_nanos = waited;
    }

    /// Takes up how much of its descriptors and pairs of ports a worker has taken.
    pub(super) fn take_shares(sockets: usize, ports: &PortRange, recorder: &mut Recorder) {
        // Since Linux 6.2 the size of this folder is how many descriptors are open, at no cost;
        // before, it is 0, and reading the folder would cost milliseconds with thousands of
        // clients. Then what is known is the sockets.
        let open = std::fs::metadata("/proc/thread-self/fd").map_or(0, |folder| folder.len());
        let open = open.max(sockets as u64);
        recorder.set(tester::FILE_DESCRIPTORS, open as f64);
        let share = net::files::limit().map_or(0.0, |limit| open as f64 / limit.max(1) as f64);
        recorder.set(tester::FILE_DESCRIPTORS_SHARE, share);
        if ports.pairs() > 0 {
            let share = ports.pairs_taken() as f64 / ports.pairs() as f64;
            recorder.set(tester::PORTS_SHARE, share);
        }
    }
}

/// How long a thread could have run and waited for a processor: the second of three numbers (Linux,
/// Documentation/scheduler/sched-stats.rst). All three are 0 where the kernel keeps no account.
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
    fn what_the_kernel_does_not_account_for_is_unknown() {
        assert_eq!(parse_waited("808039 2421077 12\n"), Some(2_421_077));
        assert_eq!(parse_waited("0 0 0\n"), None);
        for text in ["", "5", "x y z", "5 -1 2"] {
            assert_eq!(parse_waited(text), None, "{text}");
        }
    }

    #[test]
    fn a_thread_that_works_is_seen_to() {
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
