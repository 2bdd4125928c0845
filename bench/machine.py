"""Figures of the kernel for processes and for the whole machine."""

import os
import pathlib
import platform
import subprocess
import time

TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_clock(pid):
    """CPU time of a process including ended threads, in seconds; more precise than the 10 ms of /proc.

    The clock id of another process is computed from its process id, like clock_getcpuclockid(3) (CPUCLOCK_SCHED).
    """
    return time.clock_gettime(~pid << 3 | 2)


def ticks(pid):
    """User and system time of a process in seconds, with the precision of the kernel's ticks."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) * TICK, int(fields[12]) * TICK


def machine_times():
    """Total and idle time of all processors of the machine, in seconds.

    In /proc/stat only idle, iowait and steal are clocks. The kinds of busy time are samples of the timer tick, 100 to
    1,000 times a second. A program that wakes by a timer runs in step with the tick: if it uses a third of a core, the
    samples may show none, or two thirds.
    """
    at = time.monotonic()
    with open("/proc/stat", encoding="ascii") as file:
        values = [int(value) * TICK for value in file.readline().split()[1:]]
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    times = dict(zip(names, values))
    return {"passed": at * os.cpu_count(), "idle": times["idle"] + times["iowait"], "steal": times["steal"]}


def busy(before, after):
    """All time except idle, iowait and steal."""
    passed, idle, steal = (after[name] - before[name] for name in ("passed", "idle", "steal"))
    return passed - idle - steal


def udp_counters():
    with open("/proc/net/snmp", encoding="ascii") as file:
        lines = [line.split() for line in file if line.startswith("Udp:")]
    return dict(zip(lines[0][1:], map(int, lines[1][1:])))


def udp_drops(pids):
    """Datagrams dropped so far at the full sockets of these processes."""
    inodes = set()
    for pid in pids:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    drops = 0
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        if os.path.exists(table):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes:
                    drops += int(fields[12])
    return drops


def memory(pids):
    """Resident memory in bytes. `pss` counts a shared page once for all processes that share it."""
    total = {"pss": 0, "rss": 0}
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":")
            if name.lower() in total:
                total[name.lower()] += int(value.split()[0]) * 1024
    return total


class Moment:
    """All figures that are read at the beginning and at the end of a measurement.

    The receiver's counts are requested outside of the measured time, because the answer costs CPU time.
    """

    def __init__(self, server, pids, counts, last=False):
        if not last:
            self.counts, self.counted_at = counts(), time.monotonic()
        self.at = time.monotonic()
        self.machine = machine_times()
        self.own = sum(cpu_clock(pid) for pid in pids)
        self.server = cpu_clock(server)
        parts = [ticks(pid) for pid in pids]
        self.user, self.system = (sum(part[index] for part in parts) for index in (0, 1))
        self.bench = time.process_time()
        self.udp = udp_counters()
        if last:
            self.counts, self.counted_at = counts(), time.monotonic()


def between(before, after):
    """Differences between two moments, in seconds and counts."""
    own = after.own - before.own
    user, system = after.user - before.user, after.system - before.system
    share = user / (user + system) if user + system else 0.5
    whole = busy(before.machine, after.machine)
    server = after.server - before.server
    return {
        "seconds": after.at - before.at,
        "busy": whole,
        "own": own,
        "own_user": own * share,
        "own_system": own * (1 - share),
        "server": server,
        "steal": after.machine["steal"] - before.machine["steal"],
        # Time of other programs, and of interrupts on an idle processor.
        "elsewhere": whole - own - server - (after.bench - before.bench),
        "udp": {name: after.udp[name] - before.udp[name] for name in after.udp},
    }


def busy_elsewhere(seconds):
    """Share of one core that other programs use, before the benchmark starts its own."""
    before, at = machine_times(), time.monotonic()
    time.sleep(seconds)
    return busy(before, machine_times()) / (time.monotonic() - at)


def version(command):
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
    except OSError:
        return None
    return text.splitlines()[0].strip() if text else None


def describe(programs):
    model = None
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    versions = {"streamgauge": version([programs["streamgauge"], "--version"]), "rustc": version(["rustc", "--version"])}
    if "ffmpeg" in programs:
        versions["ffmpeg"] = " ".join((version([programs["ffmpeg"], "-version"]) or "").split()[:3])
    if "gortsplib" in programs:
        modules = subprocess.run(["go", "version", "-m", programs["gortsplib"]], capture_output=True, text=True, check=False) \
            if version(["go", "version"]) else None
        for line in modules.stdout.splitlines() if modules else []:
            fields = line.split()
            if fields[:2] == ["dep", "github.com/bluenviron/gortsplib/v5"]:
                versions["gortsplib"] = "gortsplib " + fields[2]
        versions["go"] = version(["go", "version"])
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "kernel": platform.release(),
        "receive_buffer_default": int(pathlib.Path("/proc/sys/net/core/rmem_default").read_text()),
        "versions": versions,
    }
