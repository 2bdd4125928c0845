//! The server's own control group. The kernel adds up the processor time of all threads and
//! processes in it, including those that ended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::proc;

/// Prefix of the names of our groups.
const PREFIX: &str = "streamgauge-";

/// Maximum time that the removal of old groups may delay the start of a server.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(2);

/// Kind of the control group that counts the processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupVersion {
    /// Version 1, controller cpuacct: `cpuacct.usage`, in nanoseconds.
    V1,
    /// Version 2: `usage_usec` in `cpu.stat`, which every group has without any controller.
    V2,
}

/// Returns the processor time used in the group at `path`, in nanoseconds.
pub(crate) fn usage(kind: CgroupVersion, path: &Path) -> Option<u64> {
    let read = |file| fs::read_to_string(path.join(file)).ok();
    match kind {
        CgroupVersion::V1 => read("cpuacct.usage")?.trim().parse().ok(),
        CgroupVersion::V2 => parse_cpu_stat(&read("cpu.stat")?),
    }
}

/// Parses `usage_usec` in `cpu.stat` and converts it to nanoseconds.
fn parse_cpu_stat(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("usage_usec "))?;
    line.trim().parse::<u64>().ok()?.checked_mul(1000)
}

/// Returns the processes in the group at `path`; `None` if the group is gone.
pub(crate) fn processes(path: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(path.join("cgroup.procs")).ok()?;
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    Some(pids.filter(|&pid| pid != 0).collect())
}

/// Removes the group at `path`, with retries: it stays busy for a moment after its last process.
pub(crate) fn remove(path: &Path, within: Duration) -> io::Result<()> {
    let deadline = Instant::now() + within;
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The supervisor that a group belongs to, encoded in the group's name:
/// `streamgauge-PID-STARTED-PIDNAMESPACE-TIMENAMESPACE`.
///
/// A process ID alone may have been reused. The start time distinguishes processes, but only within
/// one PID namespace and one time namespace: the kernel shifts the start time of every process by
/// the clock of the reader (time_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// Start time in clock ticks since boot.
    started: u64,
    /// Inode of its PID namespace. Processes of another PID namespace are not visible here.
    pid_namespace: u64,
    /// Inode of its time namespace; 0 if the kernel has none.
    time_namespace: u64,
}

impl Owner {
    /// Returns the owner for this process.
    fn own() -> Option<Owner> {
        let pid = std::process::id();
        Some(Owner {
            pid,
            started: proc::stat(pid)?.started,
            pid_namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
            time_namespace: fs::metadata("/proc/self/ns/time").map_or(0, |file| file.ino()),
        })
    }

    fn name(self) -> String {
        let (pid, started) = (self.pid, self.started);
        let namespaces = format!("{}-{}", self.pid_namespace, self.time_namespace);
        format!("{PREFIX}{pid}-{started}-{namespaces}")
    }

    fn parse(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let owner = Owner {
            pid: u32::try_from(number()?).ok()?,
            started: number()?,
            pid_namespace: number()?,
            time_namespace: number()?,
        };
        (parts.next().is_none() && owner.name() == name).then_some(owner)
    }
}

/// Takes the lock of the group at `path`. The group's supervisor holds the lock for as long as it
/// lives; the kernel releases it however the supervisor ends. Returns `None` if another process
/// holds it.
fn lock(path: &Path) -> Option<File> {
    let folder = File::open(path).ok()?;
    folder.try_lock().ok()?;
    Some(folder)
}

/// Kills the processes in groups below `parent` whose supervisor was killed together with
/// streamgauge, and removes these groups. A group stays if its supervisor lives or is in another
/// PID or time namespace, or if its lock is held.
fn clear_stale(parent: &Path) {
    let Some(own) = Owner::own() else {
        return;
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let deadline = Instant::now() + CLEAR_TIMEOUT;
    for entry in entries {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(Owner::parse) else {
            continue;
        };
        // A supervisor without a running thread is dead, even if its parent has not waited for it.
        let comparable =
            owner.pid_namespace == own.pid_namespace && owner.time_namespace == own.time_namespace;
        if !comparable || proc::is_running(owner.pid, owner.started) {
            continue;
        }
        let path = entry.path();
        let Some(_lock) = lock(&path) else {
            continue;
        };
        loop {
            // Version 2 only. It is atomic: no process escapes by a fork.
            let kill = fs::OpenOptions::new()
                .write(true)
                .open(path.join("cgroup.kill"));
            let _ = kill.and_then(|mut kill| kill.write_all(b"1"));
            proc::kill(&processes(&path).unwrap_or_default());
            if fs::remove_dir(&path).is_ok() || !path.is_dir() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A group created by this process, and the group that this process was in before.
#[derive(Debug)]
pub(crate) struct Cgroup {
    pub(crate) kind: CgroupVersion,
    pub(crate) path: PathBuf,
    parent: PathBuf,
    /// Held for as long as this process lives, so that no other run removes the group.
    _lock: Option<File>,
}

impl Cgroup {
    /// Creates a group below the current one and enters it, so that a child started now is in it
    /// from its first instruction. Removes the groups of dead supervisors first.
    pub(crate) fn enter() -> Result<Cgroup, String> {
        let name = Owner::own().ok_or("/proc/self cannot be read")?.name();
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut reason = "no control groups are mounted".to_owned();
        for (kind, parent) in homes(&mounts, &own) {
            clear_stale(&parent);
            match Cgroup::enter_below(kind, parent.clone(), &name) {
                Ok(group) => return Ok(group),
                Err(error) => reason = format!("{}: {error}", parent.display()),
            }
        }
        Err(reason)
    }

    fn enter_below(kind: CgroupVersion, parent: PathBuf, name: &str) -> io::Result<Cgroup> {
        let path = parent.join(name);
        fs::create_dir(&path)?;
        let group = Cgroup {
            kind,
            _lock: lock(&path),
            path,
            parent,
        };
        let uncounted = "it has no file that counts processor time";
        let entered = match usage(kind, &group.path) {
            Some(_) => move_to(&group.path),
            None => Err(io::Error::other(uncounted)),
        };
        if let Err(error) = entered {
            let _ = fs::remove_dir(&group.path);
            return Err(error);
        }
        Ok(group)
    }

    /// Returns to the previous group. Children stay.
    pub(crate) fn leave(&self) -> io::Result<()> {
        move_to(&self.parent)
    }
}

/// Moves this process, with all its threads, to the group at `path`.
fn move_to(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), std::process::id().to_string())
}

/// Returns the folders in which this process may create a group that counts processor time, best
/// first.
fn homes(mountinfo: &str, own: &str) -> Vec<(CgroupVersion, PathBuf)> {
    // In a container the path of the group can be that of the host. The mount is the group then.
    groups(mountinfo, own)
        .map(|(kind, mount, group)| (kind, group.unwrap_or(mount.point)))
        .collect()
}

/// Returns for each mount the group of a process, if it is visible here.
fn groups<'a>(
    mountinfo: &'a str,
    membership: &'a str,
) -> impl Iterator<Item = (CgroupVersion, Mount, Option<PathBuf>)> + 'a {
    [CgroupVersion::V1, CgroupVersion::V2]
        .into_iter()
        .flat_map(move |kind| {
            let group = membership
                .lines()
                .find_map(move |line| parse_membership(line, kind));
            let mounts = mountinfo
                .lines()
                .filter_map(move |line| parse_mount(line, kind));
            mounts.map(move |mount| {
                let inside = group
                    .and_then(|group| Path::new(group).strip_prefix(&mount.root).ok())
                    .map(|group| mount.point.join(group))
                    .filter(|path| path.is_dir());
                (kind, mount, inside)
            })
        })
}

/// Returns the groups of a process that can count or limit processor time, each after the mount
/// that contains it. `membership` is the content of its /proc/PID/cgroup.
pub(crate) fn groups_of(membership: &str) -> Vec<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    groups(&mounts, membership)
        .map(|(_, mount, group)| (mount.point.clone(), group.unwrap_or(mount.point)))
        .collect()
}

struct Mount {
    root: PathBuf,
    point: PathBuf,
}

/// Parses a line of mountinfo (proc(5)): the fields before ` - `, then type, source and options.
fn parse_mount(line: &str, kind: CgroupVersion) -> Option<Mount> {
    let (mount_fields, system) = line.split_once(" - ")?;
    let mut system = system.split(' ');
    let (name, _source, options) = (system.next()?, system.next()?, system.next()?);
    let fits = match kind {
        CgroupVersion::V1 => {
            name == "cgroup" && options.split(',').any(|option| option == "cpuacct")
        }
        CgroupVersion::V2 => name == "cgroup2",
    };
    let mut mount_fields = mount_fields.split(' ').skip(3);
    let mount = Mount {
        root: PathBuf::from(unescape(mount_fields.next()?)),
        point: PathBuf::from(unescape(mount_fields.next()?)),
    };
    fits.then_some(mount)
}

/// Parses a line of /proc/self/cgroup: `4:cpu,cpuacct:/path`, or `0::/path` for version 2.
fn parse_membership(line: &str, kind: CgroupVersion) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let fits = match kind {
        CgroupVersion::V1 => controllers.split(',').any(|one| one == "cpuacct"),
        CgroupVersion::V2 => number == "0" && controllers.is_empty(),
    };
    fits.then_some(path)
}

/// Decodes the octal escapes of mountinfo: `\040` is a space.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(char::from(code));
                rest = &rest[at + 4..];
            }
            _ => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /nowhere/unified rw,relatime shared:5 - cgroup2 cgroup2 rw
31 24 0:27 / /nowhere/cpu\\040x rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /nowhere/memory rw,relatime - cgroup cgroup rw,memory
";

    #[test]
    fn group_name_identifies_its_owner() {
        let own = Owner::own().unwrap();
        assert!(proc::is_running(own.pid, own.started));
        assert_eq!(Owner::parse(&own.name()), Some(own));
        for foreign in [
            "streamgauge-1",
            "streamgauge-1-2",
            "streamgauge-1-2-3",
            "streamgauge-1-2-3-4-5",
            "streamgauge-01-2-3-4",
            "streamgauge-x-2-3-4",
            "other-1-2-3-4",
        ] {
            assert_eq!(Owner::parse(foreign), None, "{foreign}");
        }
    }

    /// The groups are plain folders here: the test is about which ones are removed.
    #[test]
    fn only_groups_of_dead_local_supervisors_are_cleared() {
        let home = tempfile::tempdir().unwrap();
        let own = Owner::own().unwrap();
        let reused = Owner {
            started: own.started + 1,
            ..own
        };
        let elsewhere = Owner {
            pid_namespace: own.pid_namespace + 1,
            ..reused
        };
        let of_another_clock = Owner {
            time_namespace: own.time_namespace + 1,
            ..reused
        };
        let locked = Owner {
            started: own.started + 2,
            ..own
        };
        for owner in [own, reused, elsewhere, of_another_clock, locked] {
            fs::create_dir(home.path().join(owner.name())).unwrap();
        }
        let held = lock(&home.path().join(locked.name())).unwrap();
        fs::create_dir(home.path().join("streamgauge-1")).unwrap();
        clear_stale(home.path());
        let there = |name: &str| home.path().join(name).is_dir();
        assert!(there(&own.name()), "its supervisor lives");
        assert!(
            !there(&reused.name()),
            "its number is another process's now"
        );
        assert!(there(&elsewhere.name()), "it cannot be seen from here");
        assert!(
            there(&of_another_clock.name()),
            "when it started cannot be compared"
        );
        assert!(there(&locked.name()), "somebody holds its lock");
        assert!(there("streamgauge-1"), "not one of ours");
        drop(held);
        // A child that another test has just forked also holds the lock, until its exec.
        let deadline = Instant::now() + Duration::from_secs(10);
        while there(&locked.name()) && Instant::now() < deadline {
            clear_stale(home.path());
            std::thread::yield_now();
        }
        assert!(!there(&locked.name()), "nobody holds its lock any more");
    }

    #[test]
    fn version_1_comes_first_and_an_absent_group_is_the_mount() {
        let homes = homes(MOUNTS, "4:cpu,cpuacct:/a\n0::/b\n");
        assert_eq!(
            homes,
            [
                (CgroupVersion::V1, PathBuf::from("/nowhere/cpu x")),
                (CgroupVersion::V2, PathBuf::from("/nowhere/unified")),
            ]
        );
    }

    #[test]
    fn membership_is_parsed_by_controller() {
        assert_eq!(
            parse_membership("4:cpu,cpuacct:/a:b", CgroupVersion::V1),
            Some("/a:b")
        );
        assert_eq!(parse_membership("4:cpu:/a", CgroupVersion::V1), None);
        assert_eq!(parse_membership("0::/x", CgroupVersion::V2), Some("/x"));
        assert_eq!(
            parse_membership("1:name=systemd:/x", CgroupVersion::V2),
            None
        );
        assert_eq!(parse_membership("", CgroupVersion::V2), None);
    }

    #[test]
    fn mountinfo_escapes_are_decoded() {
        assert_eq!(unescape("a\\040b\\"), "a b\\");
        assert_eq!(unescape("\\9"), "\\9");
        assert_eq!(unescape("\\777é"), "\\777é");
    }

    #[test]
    fn microseconds_become_nanoseconds() {
        assert_eq!(parse_cpu_stat("usage_usec 12\nuser_usec 7\n"), Some(12_000));
        assert_eq!(parse_cpu_stat("user_usec 7\n"), None);
    }
}
