//! This process and its machine, looked at once a window: what no worker can see of itself.

use std::fs;

use measure::{Recorder, Window, tester};

/// Fewer clock ticks than this tell no share.
const TICKS_ENOUGH: u64 = 10;

/// This process, and what the kernel says of its machine.
#[derive(Debug)]
pub(crate) struct Process {
    recorder: Recorder,
    cpu_nanos: u64,
    /// Dropped packets of each processor; none where the kernel does not tell.
    softnet: Option<Vec<u32>>,
    /// Clock ticks of all processors, in all and stolen; none where the kernel does not tell.
    ticks: Option<Ticks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Process {
    pub(crate) fn new() -> Process {
        Process {
            recorder: Recorder::new(tester::TESTER_CATALOGUE),
            cpu_nanos: net::clock::process_cpu_nanos(),
            softnet: softnet(),
            ticks: ticks(),
        }
    }

    /// The names of the counters that cannot be had on this machine, and so are no zero but unknown.
    pub(crate) fn unknown(&self) -> Vec<&'static str> {
        match self.softnet {
            Some(_) => Vec::new(),
            None => vec!["softnet_drops"],
        }
    }

    /// What it used since the last look, and holds now.
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
        match (self.ticks, ticks()) {
            (Some(before), Some(now)) => {
                let all = now.all.saturating_sub(before.all);
                // Windows may be closed one right after the other.
                if all >= TICKS_ENOUGH {
                    let stolen = now.stolen.saturating_sub(before.stolen);
                    let share = stolen as f64 / all as f64;
                    self.recorder.set(tester::STEAL, share.min(1.0));
                    self.ticks = Some(now);
                }
            }
            (_, now) => {
                self.recorder.unset(tester::STEAL);
                self.ticks = now;
            }
        }
    }
}

fn softnet() -> Option<Vec<u32>> {
    parse_softnet(&fs::read_to_string("/proc/net/softnet_stat").ok()?)
}

fn ticks() -> Option<Ticks> {
    parse_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// The second column of each processor's line, hexadecimal: packets dropped because its queue was full.
fn parse_softnet(text: &str) -> Option<Vec<u32>> {
    let dropped = text.lines().map(|line| {
        let field = line.split_ascii_whitespace().nth(1)?;
        u32::from_str_radix(field, 16).ok()
    });
    dropped
        .collect::<Option<Vec<u32>>>()
        .filter(|lines| !lines.is_empty())
}

/// How many were dropped between two looks. The kernel's counters are 32 bits wide and wrap. Where
/// processors came or went the lines cannot be told apart: then nothing is counted.
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

/// The line of all processors: user, nice, system, idle, iowait, irq, softirq, steal. What follows is
/// contained in user and nice.
fn parse_ticks(text: &str) -> Option<Ticks> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line
        .split_ascii_whitespace()
        .take(8)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    let stolen = *fields.get(7)?;
    let all = fields
        .iter()
        .fold(0u64, |sum, field| sum.saturating_add(*field));
    Some(Ticks { all, stolen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_counted_over_all_processors_and_a_wrap() {
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
        let text = "cpu  100 10 50 800 20 5 5 10 7 7\ncpu0 1 1 1 1 1 1 1 1\n";
        let ticks = parse_ticks(text).expect("it is a line of the kernel's");
        assert_eq!(
            ticks,
            Ticks {
                all: 1000,
                stolen: 10
            }
        );
        for text in [
            "",
            "cpu  1 2 3",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu  1 2 3 4 5 6 7 x",
        ] {
            assert_eq!(parse_ticks(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_tells_what_linux_tells() {
        let process = Process::new();
        assert!(process.softnet.is_some());
        assert!(process.ticks.is_some());
        assert_eq!(process.unknown(), Vec::<&str>::new());
    }
}
