//! Number of cores that a process may use, given its affinity (taskset) and the quota of its
//! container.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::cgroup;

/// Upper bound of processor numbers (the kernel's `NR_CPUS` is at most this).
const PROCESSORS_MAX: u32 = 8192;

/// Returns how many cores these processes may use together; `None` if nothing can be read. It is
/// the number of processors that the first thread of any process may run on, limited by the quota
/// of the first process's control group.
pub(crate) fn cores(tree: &[u32]) -> Option<f64> {
    let mut processors = BTreeSet::new();
    for pid in tree {
        if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
            processors.extend(parse_affinity(&status).unwrap_or_default());
        }
    }
    let cores = (!processors.is_empty()).then_some(processors.len() as f64)?;
    let quota = tree.first().and_then(|&pid| quota(pid));
    Some(quota.unwrap_or(cores).min(cores))
}

/// Parses the processors in /proc/PID/status (proc(5)), such as `Cpus_allowed_list: 0-2,7`.
fn parse_affinity(status: &str) -> Option<BTreeSet<u32>> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut processors = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= PROCESSORS_MAX {
            return None;
        }
        processors.extend(first..=last);
    }
    Some(processors)
}

/// Returns the lowest quota in cores of the control groups of a process, from its own up to the
/// highest that is visible here.
fn quota(pid: u32) -> Option<f64> {
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let quotas = cgroup::groups_of(&membership)
        .into_iter()
        .flat_map(|(top, path)| {
            let groups = path.ancestors().take_while(|group| group.starts_with(&top));
            groups.filter_map(group_quota).collect::<Vec<_>>()
        });
    quotas.reduce(f64::min)
}

/// Returns the quota of a control group in cores; `None` if there is no limit.
fn group_quota(group: &Path) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    match read("cpu.max") {
        Some(text) => parse_quota(&text),
        None => {
            let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
            parse_quota(&format!("{} {}", quota.trim(), period.trim()))
        }
    }
}

/// Parses `cpu.max` (cgroups(7)): quota and period in microseconds. `max` and, in version 1, a
/// negative quota mean no limit.
fn parse_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (i64, i64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_lists_and_ranges_are_parsed() {
        let parse = |list: &str| {
            let processors = parse_affinity(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n"))?;
            Some(processors.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(parse("3-1"), Some(vec![]));
        for wrong in ["", "x", "1-", "0-4294967295", "8192"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse_affinity("Name:\tx\n"), None);
    }

    #[test]
    fn quotas_of_both_versions_are_parsed() {
        assert_eq!(parse_quota("50000 100000\n"), Some(0.5));
        assert_eq!(parse_quota("300000 100000"), Some(3.0));
        for none in ["max 100000\n", "-1 100000", "0 100000", "1 0", "", "7"] {
            assert_eq!(parse_quota(none), None, "{none}");
        }
    }

    #[test]
    fn affinity_limits_the_cores() {
        let all = cores(&[std::process::id()]).expect("this process lives");
        let mut child = std::process::Command::new("taskset")
            .args(["-c", &first_of_ours().to_string(), "cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("taskset is there");
        // Once `cat` answers, taskset has executed it.
        let mut answer = [0];
        let input = child.stdin.as_mut().expect("it was asked for");
        std::io::Write::write_all(input, b"x").expect("it listens");
        let output = child.stdout.as_mut().expect("it was asked for");
        std::io::Read::read_exact(output, &mut answer).expect("it answers");
        let one = cores(&[child.id()]);
        let both = cores(&[child.id(), std::process::id()]);
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        assert_eq!(one, Some(all.min(1.0)));
        assert_eq!(both, Some(all));
        assert_eq!(cores(&[child.id()]), None, "it is gone");
    }

    fn first_of_ours() -> u32 {
        let status = fs::read_to_string("/proc/self/status").expect("it can be read");
        let ours = parse_affinity(&status).expect("it says so");
        *ours.first().expect("it runs on some")
    }
}
