//! What the tester's own process and machine are like.

use measure::{Recorder, Window, tester};
use runfile::Machine;

/// The machine that this process runs on. What cannot be found out is empty or 0.
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

/// This process, looked at once a window.
#[derive(Debug)]
pub(crate) struct Process {
    recorder: Recorder,
    cpu_nanos: u64,
}

impl Process {
    pub(crate) fn new() -> Process {
        Process {
            recorder: Recorder::new(tester::TESTER_CATALOGUE),
            cpu_nanos: net::clock::process_cpu_nanos(),
        }
    }

    /// What it used since the last look, and holds now.
    pub(crate) fn window(&mut self) -> Window {
        let cpu = net::clock::process_cpu_nanos();
        self.recorder
            .add(tester::CPU_NANOS, cpu.saturating_sub(self.cpu_nanos));
        self.cpu_nanos = cpu;
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.recorder
                .set(tester::FILE_DESCRIPTORS, files.count() as f64);
        }
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = statm
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<f64>().ok());
        if let Some(pages) = resident {
            self.recorder
                .set(tester::RSS, pages * net::clock::page_size() as f64);
        }
        self.recorder.take_window()
    }
}
