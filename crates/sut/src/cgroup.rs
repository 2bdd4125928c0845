//! A control group of the server's own: the kernel then adds up the processor time of every thread
//! and process in it, also of those that ended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::proc;

/// What the names of our groups begin with.
const PREFIX: &str = "streamgauge-";

/// How long clearing old groups may hold up a server's start.
const CLEAR_WITHIN: Duration = Duration::from_secs(2);

/// Which kind of control group counts the processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Version 1, controller cpuacct: `cpuacct.usage`, in nanoseconds.
    V1,
    /// Version 2: `usage_usec` in `cpu.stat`, which every group has without any controller.
    V2,
}

/// Processor time used in the group at `path`, in nanoseconds.
pub(crate) fn usage(kind: Kind, path: &Path) -> Option<u64> {
    match kind {
        Kind::V1 => fs::read_to_string(path.join("cpuacct.usage"))
            .ok()?
            .trim()
            .parse()
            .ok(),
        Kind::V2 => parse_cpu_stat(&fs::read_to_string(path.join("cpu.stat")).ok()?),
    }
}

/// Reads `usage_usec` out of `cpu.stat` and makes nanoseconds of it.
fn parse_cpu_stat(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    line.trim().parse::<u64>().ok()?.checked_mul(1000)
}

/// The processes in the group at `path`; none where it is gone.
pub(crate) fn processes(path: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(path.join("cgroup.procs")).ok()?;
    Some(
        text.lines()
            .filter_map(|line| line.trim().parse().ok())
            .filter(|&pid| pid != 0)
            .collect(),
    )
}

/// Removes the group at `path`. It stays busy for a moment after its last process ended.
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

/// The supervisor that a group belongs to, as the group's name says:
/// `streamgauge-PID-STARTED-SPACE-CLOCK`.
///
/// A process number alone could be that of another process by now. When that one started tells them
/// apart, but only within one namespace of process numbers and one of time: the kernel shifts the
/// start of every process by the clock of whoever reads it (time_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// In clock ticks since boot.
    started: u64,
    /// The inode of its namespace: of processes in another one nothing can be said here.
    space: u64,
    /// The inode of its time namespace; 0 where the kernel has none.
    clock: u64,
}

impl Owner {
    /// This process.
    fn own() -> Option<Owner> {
        let pid = std::process::id();
        Some(Owner {
            pid,
            started: proc::stat(pid)?.started,
            space: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
            clock: fs::metadata("/proc/self/ns/time").map_or(0, |file| file.ino()),
        })
    }

    fn name(self) -> String {
        let Owner {
            pid,
            started,
            space,
            clock,
        } = self;
        format!("{PREFIX}{pid}-{started}-{space}-{clock}")
    }

    fn parse(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let owner = Owner {
            pid: u32::try_from(number()?).ok()?,
            started: number()?,
            space: number()?,
            clock: number()?,
        };
        (parts.next().is_none() && owner.name() == name).then_some(owner)
    }
}

/// Takes the lock of the group at `path`, which its supervisor holds for as long as it lives: the
/// kernel releases it however that ends. None where another process has it.
fn lock(path: &Path) -> Option<File> {
    let folder = File::open(path).ok()?;
    folder.try_lock().ok()?;
    Some(folder)
}

/// Ends what is in the groups below `home` whose supervisor was killed together with streamgauge,
/// and removes them. Groups of supervisors that live, or that are in another namespace of process
/// numbers or of time, are left alone, and so are groups whose lock is held.
fn clear_stale(home: &Path) {
    let Some(own) = Owner::own() else {
        return;
    };
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let deadline = Instant::now() + CLEAR_WITHIN;
    for entry in entries {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(Owner::parse) else {
            continue;
        };
        // A supervisor without a thread that runs is as good as gone, though nobody waited for it.
        let comparable = owner.space == own.space && owner.clock == own.clock;
        if !comparable || proc::is_running(owner.pid, owner.started) {
            continue;
        }
        let path = entry.path();
        let Some(_lock) = lock(&path) else {
            continue;
        };
        loop {
            // Of version 2, and atomic: no process escapes by starting another.
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

/// A group that was made here, and the one this process was in before.
#[derive(Debug)]
pub(crate) struct Cgroup {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    home: PathBuf,
    /// Held for as long as this process lives, so that no other run takes the group for a dead
    /// one's.
    _lock: Option<File>,
}

impl Cgroup {
    /// Makes a group below the one this process is in, and enters it, so that a child started now
    /// is in it from its first instruction. Groups that dead supervisors left there are cleared
    /// first.
    pub(crate) fn enter() -> Result<Cgroup, String> {
        let name = Owner::own().ok_or("/proc/self cannot be read")?.name();
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut reason = "no control groups are mounted".to_owned();
        for (kind, home) in homes(&mounts, &own) {
            clear_stale(&home);
            match Cgroup::enter_below(kind, home.clone(), &name) {
                Ok(group) => return Ok(group),
                Err(error) => reason = format!("{}: {error}", home.display()),
            }
        }
        Err(reason)
    }

    fn enter_below(kind: Kind, home: PathBuf, name: &str) -> io::Result<Cgroup> {
        let path = home.join(name);
        fs::create_dir(&path)?;
        let group = Cgroup {
            kind,
            _lock: lock(&path),
            path,
            home,
        };
        let entered = if usage(kind, &group.path).is_some() {
            move_to(&group.path)
        } else {
            Err(io::Error::other(
                "it has no file that counts processor time",
            ))
        };
        if let Err(error) = entered {
            let _ = fs::remove_dir(&group.path);
            return Err(error);
        }
        Ok(group)
    }

    /// Goes back to where this process came from. Its children stay.
    pub(crate) fn leave(&self) -> io::Result<()> {
        move_to(&self.home)
    }
}

/// Moves this process, with all its threads, to the group at `path`.
fn move_to(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), std::process::id().to_string())
}

/// The folders in which this process may make a group that counts processor time, best first.
fn homes(mountinfo: &str, own: &str) -> Vec<(Kind, PathBuf)> {
    // In a container the group's name can be one of outside: then the mount itself is it.
    groups(mountinfo, own)
        .map(|(kind, mount, group)| (kind, group.unwrap_or(mount.point)))
        .collect()
}

/// Of each mount the group that a process is in, if that can be seen here.
fn groups<'a>(
    mountinfo: &'a str,
    membership: &'a str,
) -> impl Iterator<Item = (Kind, Mount, Option<PathBuf>)> + 'a {
    [Kind::V1, Kind::V2].into_iter().flat_map(move |kind| {
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

/// The groups that a process is in which can count or limit processor time, each behind the mount
/// below which it is; `membership` is its /proc/PID/cgroup.
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

/// Reads one line of mountinfo (proc(5)): the fields before ` - `, then type, source and options.
fn parse_mount(line: &str, kind: Kind) -> Option<Mount> {
    let (place, system) = line.split_once(" - ")?;
    let mut system = system.split(' ');
    let (name, _source, options) = (system.next()?, system.next()?, system.next()?);
    let fits = match kind {
        Kind::V1 => name == "cgroup" && options.split(',').any(|option| option == "cpuacct"),
        Kind::V2 => name == "cgroup2",
    };
    let mut place = place.split(' ').skip(3);
    let mount = Mount {
        root: PathBuf::from(unescape(place.next()?)),
        point: PathBuf::from(unescape(place.next()?)),
    };
    fits.then_some(mount)
}

/// Reads one line of /proc/self/cgroup: `4:cpu,cpuacct:/path`, or `0::/path` for version 2.
fn parse_membership(line: &str, kind: Kind) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let fits = match kind {
        Kind::V1 => controllers
            .split(',')
            .any(|controller| controller == "cpuacct"),
        Kind::V2 => number == "0" && controllers.is_empty(),
    };
    fits.then_some(path)
}

/// Undoes the octal escapes of mountinfo: `\040` is a blank.
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
    fn a_group_says_whose_it_is() {
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

    /// A folder stands for a group here: what counts is which are removed.
    #[test]
    fn only_groups_of_dead_supervisors_of_these_namespaces_are_cleared() {
        let home = tempfile::tempdir().unwrap();
        let own = Owner::own().unwrap();
        let reused = Owner {
            started: own.started + 1,
            ..own
        };
        let elsewhere = Owner {
            space: own.space + 1,
            ..reused
        };
        let of_another_clock = Owner {
            clock: own.clock + 1,
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
        // A child that another test has just forked holds it too, until it runs its program.
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
                (Kind::V1, PathBuf::from("/nowhere/cpu x")),
                (Kind::V2, PathBuf::from("/nowhere/unified")),
            ]
        );
    }

    #[test]
    fn membership_by_controller() {
        assert_eq!(
            parse_membership("4:cpu,cpuacct:/a:b", Kind::V1),
            Some("/a:b")
        );
        assert_eq!(parse_membership("4:cpu:/a", Kind::V1), None);
        assert_eq!(parse_membership("0::/x", Kind::V2), Some("/x"));
        assert_eq!(parse_membership("1:name=systemd:/x", Kind::V2), None);
        assert_eq!(parse_membership("", Kind::V2), None);
    }

    #[test]
    fn escapes() {
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
