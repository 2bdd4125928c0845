//! Information about processes in /proc. If a process has ended, its values are `None`.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal};

/// Fields of /proc/PID/stat that are needed here (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// utime + stime + cutime + cstime, in clock ticks: its own time and that of children it waited
    /// for.
    pub(crate) ticks: u64,
    pub(crate) threads: u64,
    /// Pages in memory, including shared ones: the same figure as in statm.
    pub(crate) resident: u64,
    /// Start time in clock ticks since boot: distinguishes processes with the same ID.
    pub(crate) started: u64,
}

impl Stat {
    /// Returns `true` if no thread of the process runs any more. Threads can outlive the first one,
    /// which alone is a zombie then.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == 'X' || self.state == 'Z' && self.threads <= 1
    }
}

/// Returns `true` if the process with this ID and start time lives.
pub(crate) fn is_running(pid: u32, started: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.started == started && !stat.is_dead())
}

/// Returns the processes that exist, each with its start time.
pub(crate) fn identified(pids: &[u32]) -> Vec<(u32, u64)> {
    pids.iter()
        .filter_map(|&pid| Some((pid, stat(pid)?.started)))
        .collect()
}

/// Sends SIGKILL to these processes.
pub(crate) fn kill(pids: &[u32]) {
    signal(pids, Signal::KILL);
}

/// Sends a signal to these processes. Processes that have ended are skipped.
pub(crate) fn signal(pids: &[u32], signal: Signal) {
    let numbers = pids.iter().filter_map(|&pid| i32::try_from(pid).ok());
    for pid in numbers.filter_map(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Parses /proc/PID/stat. The name may contain spaces and brackets: the last bracket ends it.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let name = text.get(open + 1..close)?.to_owned();
    let rest: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    // Field numbers as in proc(5), where the state is field 3.
    let number = |field: usize| -> Option<u64> { rest.get(field - 3)?.parse().ok() };
    // The kernel prints cutime and cstime as signed numbers.
    let signed = |field: usize| -> Option<u64> {
        let value: i64 = rest.get(field - 3)?.parse().ok()?;
        Some(u64::try_from(value).unwrap_or(0))
    };
    Some(Stat {
        pid: text.get(..open)?.trim().parse().ok()?,
        name,
        state: rest.first()?.chars().next()?,
        parent: u32::try_from(number(4)?).ok()?,
        ticks: number(14)?
            .saturating_add(number(15)?)
            .saturating_add(signed(16)?)
            .saturating_add(signed(17)?),
        threads: signed(20)?,
        started: number(22)?,
        resident: signed(24)?,
    })
}

/// Reads /proc/PID/stat.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    // Names are bytes, not always UTF-8.
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// Returns the name of a process as `ps` shows it; `?` if it cannot be read.
pub(crate) fn name(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/comm"))
        .map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned())
        .unwrap_or_else(|_| "?".to_owned())
}

/// Returns the entries of a /proc folder whose names are numbers.
fn numbers(path: impl AsRef<Path>) -> impl Iterator<Item = u32> {
    fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// Returns all descendants of `root`, without `root` itself and without dead processes.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for stat in processes().filter_map(stat) {
        if !stat.is_dead() {
            children.entry(stat.parent).or_default().push(stat.pid);
        }
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

/// Returns `true` if `pid` is this process or an ancestor of it.
pub(crate) fn is_own_or_ancestor(pid: u32) -> bool {
    let mut seen = HashSet::new();
    let mut at = std::process::id();
    // The first process of a PID namespace has the parent 0.
    while at != 0 && seen.insert(at) {
        if at == pid {
            return true;
        }
        at = stat(at).map_or(0, |stat| stat.parent);
    }
    false
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Pages that no other process shares: the memory that its end would free.
    pub(crate) uss: u64,
    /// USS, plus its part of each shared page.
    pub(crate) pss: u64,
}

/// Parses smaps_rollup: lines such as `Pss:   1234 kB`.
pub(crate) fn parse_rollup(text: &str) -> Option<Memory> {
    let mut memory = Memory::default();
    let mut any = false;
    for line in text.lines() {
        let Some((key, rest)) = line.split_once(':') else {
            continue;
        };
        let number = rest.split_ascii_whitespace().next();
        let Some(kib) = number.and_then(|number| number.parse::<u64>().ok()) else {
            continue;
        };
        let bytes = kib.saturating_mul(1024);
        match key {
            "Pss" => (memory.pss, any) = (bytes, true),
            "Private_Clean" | "Private_Dirty" => memory.uss += bytes,
            _ => {}
        }
    }
    any.then_some(memory)
}

/// Reads the memory of a process. This costs the process, because the kernel walks its page tables.
pub(crate) fn memory(pid: u32) -> Option<Memory> {
    parse_rollup(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

/// Returns the threads of a process, each with its running time in nanoseconds.
pub(crate) fn threads(pid: u32) -> impl Iterator<Item = (u32, u64)> {
    numbers(format!("/proc/{pid}/task")).filter_map(move |thread| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        Some((thread, text.split_ascii_whitespace().next()?.parse().ok()?))
    })
}

/// Returns the number of open file descriptors.
pub(crate) fn descriptors(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/fd");
    // Since Linux 6.2 the folder's size is their number.
    match fs::metadata(&path).ok()?.len() {
        0 => Some(fs::read_dir(path).ok()?.count() as u64),
        count => Some(count),
    }
}

/// Returns the limit of open file descriptors; `None` if there is no limit, or it cannot be read.
pub(crate) fn descriptors_limit(pid: u32) -> Option<u64> {
    parse_descriptors_limit(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// Parses /proc/PID/limits, in which the soft limit comes first.
pub(crate) fn parse_descriptors_limit(text: &str) -> Option<u64> {
    let values = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    values.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the inodes of a process's sockets; `None` if this user may not see them.
pub(crate) fn sockets(pid: u32) -> Option<HashSet<u64>> {
    sockets_in(&format!("/proc/{pid}/fd"))
}

/// Returns the inodes of the sockets of a process's threads. Each thread may have its own
/// descriptor table (unshare(2), `CLONE_FILES`).
pub(crate) fn sockets_of_threads(pid: u32) -> HashSet<u64> {
    numbers(format!("/proc/{pid}/task"))
        .filter_map(|thread| sockets_in(&format!("/proc/{pid}/task/{thread}/fd")))
        .flatten()
        .collect()
}

fn sockets_in(folder: &str) -> Option<HashSet<u64>> {
    let inodes = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    });
    Some(inodes.collect())
}

/// Parses the UDP memory of the whole machine, in bytes, in /proc/net/sockstat, which counts pages.
pub(crate) fn parse_udp_memory(sockstat: &str, page: u64) -> Option<u64> {
    let line = sockstat.lines().find(|line| line.starts_with("UDP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|&word| word == "mem")?;
    Some(words.next()?.parse::<u64>().ok()?.saturating_mul(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_brackets_and_blanks() {
        let text =
            "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 3 4 20 0 9 0 5555 99999 12 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(
            stat,
            Stat {
                pid: 42,
                name: "a) b (c)".to_owned(),
                state: 'S',
                parent: 7,
                ticks: 37,
                threads: 9,
                started: 5555,
                resident: 12,
            }
        );
    }

    #[test]
    fn truncated_stat_is_not_parsed() {
        let text = "42 (x) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 3 4 20 0 9 0 5555 99999 12";
        assert!(parse_stat(text).is_some());
        for end in 0..text.len() - "12".len() {
            assert_eq!(parse_stat(&text[..end]), None, "{}", &text[..end]);
        }
        assert_eq!(parse_stat(")("), None);
    }

    #[test]
    fn own_process_is_found() {
        let own = stat(std::process::id()).unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.threads >= 1);
        assert!(memory(own.pid).unwrap().uss > 0);
        assert!(descriptors(own.pid).unwrap() >= 3);
        assert!(threads(own.pid).count() >= 1);
        assert!(!name(own.pid).is_empty());
    }

    #[test]
    fn reads_a_rollup() {
        let text = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nPss:  500 kB\nPss_Dirty: 1 kB\n\
                    Shared_Clean: 7 kB\nPrivate_Clean:  30 kB\nPrivate_Dirty:  100 kB\n";
        let memory = parse_rollup(text).unwrap();
        assert_eq!(
            memory,
            Memory {
                uss: 130 * 1024,
                pss: 500 * 1024
            }
        );
        assert_eq!(parse_rollup(""), None);
    }

    #[test]
    fn reads_the_limit_on_descriptors() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max core file size        unlimited            unlimited            bytes     \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(parse_descriptors_limit(text), Some(1024));
        let unlimited = text.replace("1024  ", "unlimited");
        assert_eq!(parse_descriptors_limit(&unlimited), None);
        assert_eq!(parse_descriptors_limit("Max open files"), None);
        assert!(descriptors_limit(std::process::id()) >= Some(3));
    }

    #[test]
    fn reads_udp_memory() {
        let text = "sockets: used 200\nTCP: inuse 10 orphan 0 tw 0 alloc 12 mem 3\nUDP: inuse 4 mem 17\nUDPLITE: inuse 0\n";
        assert_eq!(parse_udp_memory(text, 4096), Some(17 * 4096));
        assert_eq!(parse_udp_memory("UDP: inuse 4", 4096), None);
    }
}
