//! Metrics of this process and its machine that no worker can measure, sampled once per window.

use std::fs;
use std::time::{Duration, Instant};

use measure::{Recorder, Window, tester};

/// Minimum CPU time of all processors together from which a steal share is computed: /proc/stat
/// counts in ticks of mostly 10 ms.
const TIME_ENOUGH: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Process {
    recorder: Recorder,
    cpu_nanos: u64,
    /// Dropped packets per processor; `None` if the kernel does not report them.
    softnet: Option<Vec<u32>>,
    /// Stolen time of all processors; `None` if the kernel does not report it.
    stolen: Option<Stolen>,
}

/// Time that a hypervisor took from the processors, and their number.
///
/// The share is relative to elapsed time, not to the sum of all kinds of CPU time: most kernels
/// sample busy time at timer ticks, which is far off for programs that wake by timers. Stolen time
/// is measured by a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stolen {
    at: Instant,
    processors: u32,
    ticks: u64,
}

impl Stolen {
    /// Share of time stolen since `before`. `None` if too little time has passed, or if the number
    /// of processors changed.
    fn share_since(&self, before: &Stolen, ticks_per_second: u64) -> Option<f64> {
        let passed = self.at.saturating_duration_since(before.at);
        let all = passed.checked_mul(self.processors)?;
        if self.processors != before.processors || all < TIME_ENOUGH {
            return None;
        }
        let ticks = self.ticks.saturating_sub(before.ticks) as f64;
        let share = ticks / ticks_per_second.max(1) as f64 / all.as_secs_f64();
        Some(share.min(1.0))
    }
}

impl Process {
    pub(crate) fn new() -> Process {
        Process {
            recorder: Recorder::new(tester::TESTER_CATALOGUE),
            cpu_nanos: net::clock::process_cpu_nanos(),
            softnet: softnet(),
            stolen: stolen(),
        }
    }

    /// Names of the counters that are unavailable on this machine: they are unknown rather than 0.
    pub(crate) fn unknown(&self) -> Vec<String> {
        match self.softnet {
            Some(_) => Vec::new(),
            None => vec!["softnet_drops".to_owned()],
        }
    }

    /// Resource use since the last call, and current memory.
    pub(crate) fn window(&mut self) -> Window {
        let cpu = net::clock::process_cpu_nanos();
        self.recorder
            .add(tester::CPU_NANOS, cpu.saturating_sub(self.cpu_nanos));
        self.cpu_nanos = cpu;
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = statm
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<f64>().ok());
        if let Some(pages) = resident {
            self.recorder
                .set(tester::RSS, pages * net::clock::page_size() as f64);
        }
        self.take_softnet();
        self.take_steal();
        self.recorder.take_window()
    }

    fn take_softnet(&mut self) {
        if let (Some(before), Some(now)) = (&self.softnet, softnet()) {
            self.recorder
                .add(tester::SOFTNET_DROPS, newly_dropped(before, &now));
            self.softnet = Some(now);
        }
    }

    fn take_steal(&mut self) {
        let now = stolen();
        match (self.stolen, now) {
            (Some(before), Some(now)) if now.processors == before.processors => {
                let ticks = net::clock::ticks_per_second();
                // Windows may be closed in quick succession.
                let Some(share) = now.share_since(&before, ticks) else {
                    return;
                };
                self.recorder.set(tester::STEAL, share);
            }
            _ => self.recorder.unset(tester::STEAL),
        }
        self.stolen = now;
    }
}

fn softnet() -> Option<Vec<u32>> {
    parse_softnet(&fs::read_to_string("/proc/net/softnet_stat").ok()?)
}

fn stolen() -> Option<Stolen> {
    let (ticks, processors) = parse_stolen(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(Stolen {
        at: Instant::now(),
        processors,
        ticks,
    })
}

/// Packets dropped because a processor's queue was full: the second, hexadecimal column of each
/// line.
fn parse_softnet(text: &str) -> Option<Vec<u32>> {
    let dropped = text.lines().map(|line| {
        let field = line.split_ascii_whitespace().nth(1)?;
        u32::from_str_radix(field, 16).ok()
    });
    dropped
        .collect::<Option<Vec<u32>>>()
        .filter(|lines| !lines.is_empty())
}

/// Number of drops between two samples. The kernel's counters are 32 bits wide and wrap. If the
/// number of processors changed, lines cannot be matched and nothing is counted.
fn newly_dropped(before: &[u32], now: &[u32]) -> u64 {
    if before.len() != now.len() {
        return 0;
    }
    before
        .iter()
        .zip(now)
        .map(|(&before, &now)| u64::from(now.wrapping_sub(before)))
        .sum()
}

/// Stolen time of all processors in clock ticks, and the number of processors. The first line is
/// the sum: user, nice, system, idle, iowait, irq, softirq, steal. One line per processor follows.
fn parse_stolen(text: &str) -> Option<(u64, u32)> {
    let mut lines = text.lines();
    let fields = lines.next()?.strip_prefix("cpu ")?;
    let stolen = fields.split_ascii_whitespace().nth(7)?.parse().ok()?;
    let of_one = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let processors = u32::try_from(lines.take_while(of_one).count()).ok()?;
    (processors > 0).then_some((stolen, processors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_summed_over_processors_and_survive_a_wrap() {
        let text = "0127f4ec 00000003 00000001\n01260e39 fffffffe 00000000\n";
        let before = parse_softnet(text).expect("two processors");
        assert_eq!(before, [3, u32::MAX - 1]);
        assert_eq!(newly_dropped(&before, &[5, 1]), 2 + 3);
        assert_eq!(newly_dropped(&before, &[5]), 0);
        for text in ["", "0127f4ec\n", "a xyz\n", "1 100000000\n"] {
            assert_eq!(parse_softnet(text), None, "{text}");
        }
    }

    #[test]
    fn stolen_time_is_the_eighth_field() {
        let text =
            "cpu  100 10 50 800 20 5 5 10 7 7\ncpu0 1 1 1 1 1 1 1 1\ncpu1 1 1\nintr 1\ncpu9 1\n";
        assert_eq!(parse_stolen(text), Some((10, 2)));
        for text in [
            "",
            "cpu  1 2 3\ncpu0 1",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu  1 2 3 4 5 6 7 x\ncpu0 1",
            "cpu  1 2 3 4 5 6 7 8",
        ] {
            assert_eq!(parse_stolen(text), None, "{text}");
        }
    }

    #[test]
    fn steal_share_is_relative_to_elapsed_time() {
        let begin = Instant::now();
        let stolen = |after: u64, processors, ticks| Stolen {
            at: begin + Duration::from_millis(after),
            processors,
            ticks,
        };
        let before = stolen(0, 2, 1000);
        let share = |now: Stolen| now.share_since(&before, 100);
        assert_eq!(share(stolen(1000, 2, 1050)), Some(0.25));
        assert_eq!(share(stolen(1000, 2, 1000)), Some(0.0));
        assert_eq!(share(stolen(1000, 2, 1300)), Some(1.0));
        assert_eq!(share(stolen(40, 2, 1001)), None, "too soon");
        assert_eq!(share(stolen(1000, 4, 1050)), None, "two more");
    }

    #[test]
    fn softnet_drops_and_steal_are_known_on_linux() {
        let process = Process::new();
        assert!(process.softnet.is_some());
        assert!(process.stolen.is_some());
        assert_eq!(process.unknown(), Vec::<&str>::new());
    }
}
