#!/usr/bin/env python3
"""Builds the tests of the workspace once, and runs them side by side.

The settings of the build come from ./test, with which it also lints.

Usage: tests/workspace.py [--quick]
  --quick   leave out tests that need other programs and real servers

End-to-end tests mostly wait, so fourteen run at a time on two cores, next to unit tests. If other
programs already use the machine, only six do: next to two busy loops, sixteen tests kept 20 to 100
threads waiting for a processor, and servers fell behind by a second; the unit tests run afterwards.
The tests of `engine` and `net`, which compare times with the kernel's, run afterwards. They have
real-time priority if this user may set it, which would delay end-to-end tests by up to a second.
Tests of the tester's health run last: most have that priority too, and mostly wait. Next to both
run only tests that compute, with time that nothing else wants.

Prints the failures of each program that fails. Of the others, it prints the results and which tests
were skipped. Exit code 1 if a program fails.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = len(os.sched_getaffinity(0))
# Number of end-to-end tests at a time for each core. With eight, next to the tests of the page and
# those that compute, the processors were the limit: servers took more than 10 s to start, and it was
# no faster.
END_TO_END_PER_CORE = 7
# Settings of the kernel while the tests run, if this user may change them.
# - rcu_expedited: the kernel asks all cores to pass a quiet point (RCU) before it removes a packet
#   socket or a network namespace, and does not wait until they do. Otherwise a packet socket takes
#   up to two seconds to open while other tests create and remove namespaces.
# - sched_autogroup_enabled: the kernel shares the processors between all threads alike, not first
#   between sessions (sched(7), autogroup). Next to a session of a hundred threads with priority,
#   its own threads, such as ksoftirqd and rcu_preempt, and tests in other sessions waited up to 2 s
#   for a processor. Without priority, next to busy loops, all tests together would have a third.
SETTINGS = {
    pathlib.Path("/sys/kernel/rcu_expedited"): "1",
    pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled"): "0",
}
# Without these settings, fewer tests run at a time.
END_TO_END_PER_SLOW_CORE = 4
END_TO_END_PER_BUSY_CORE = 3
# Tests of health that load the machine wait for each other; three calibrations run side by side.
HEALTH_THREADS = 6
# Packages whose tests compare times of threads and of the kernel.
REAL_TIME = {"engine", "net"}
# Packages whose tests run next to those of the others.
PROTOCOLS = {
    "session", "kit", "rtsp", "rtmp", "srt", "http-ts", "hls", "messages", "webrtc", "proof",
    "protocols",
}
# Test programs that only compute: if they have time at all it is virtual, and they are never late.
# Those of one lane run one after the other.
COMPUTE = [
    ["webrtc/webrtc", "kit/kit", "kit/virtual_pair", "rtsp/rtsp", "rtmp/rtmp",
     "hls/hls", "hls/server_pair", "session/session"],
    ["streamgauge/layout", "srt/srt", "rtsp/pairs", "report/report", "scenario/scenario",
     "measure/measure", "http-ts/http_ts", "messages/messages", "proof/proof"],
]
# With real-time priority.
FIRST = ("chrt", "--rr", "1")
# Without the right to a higher priority than others. The senders and receivers of many tests would
# take it from the servers that they test, and from the kernel: ksoftirqd waited for a second.
ALIKE = ("setpriv", "--bounding-set", "-sys_nice")
# Where the tests keep their files, if it is in memory. On a disk that is busy with the files of a
# build, a server waited for seconds for its database, and a removed file for its last page.
MEMORY = pathlib.Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30
# Only with time that nothing else wants: the figures of tests beside it must be right.
LAST = ("chrt", "--idle", "0")
# Time-out: longer than any program takes, even on a busy machine.
LIMIT_SECONDS = 1800
# Lines printed even if the program passes.
TELLING = re.compile(r"^(test result: |left out: |Ran \d+ tests)")


class Program:
    """A test program and its result."""

    def __init__(self, name, words, folder=ROOT, threads=CORES):
        self.name, self.words, self.folder, self.threads = name, words, folder, threads
        self.output = tempfile.TemporaryFile("w+", errors="replace")
        self.process = None
        self.code = None

    def run(self):
        began = time.monotonic()
        environment = {
            **os.environ,
            "CARGO_MANIFEST_DIR": str(self.folder),
            "RUST_TEST_THREADS": str(self.threads),
        }
        self.process = subprocess.Popen(
            self.words,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            # A group of its own, so that it can be stopped.
            preexec_fn=lambda: os.setpgid(0, 0),
        )
        try:
            self.code = self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
            self.code = "none: it took too long"
        self.tell(time.monotonic() - began)

    def stop(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def tell(self, seconds):
        self.output.seek(0)
        lines = self.output.read().splitlines()
        if self.code == 0:
            lines = [line for line in dict.fromkeys(lines) if TELLING.match(line)]
        elif "failures:" in lines:
            lines = lines[lines.index("failures:") :]
        head = f"-- {self.name}: {seconds:.0f} s"
        if self.code != 0:
            head += f", FAILED with exit code {self.code}"
        print("\n".join([head, *lines]), flush=True)


def build():
    """Builds all tests; returns each program with its package and target."""
    words = ["cargo", "test", "--workspace", "--no-run", "--locked"]
    words.append("--message-format=json-render-diagnostics")
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    messages = map(json.loads, done.stdout.splitlines())
    built = [message for message in messages if message["reason"] == "compiler-artifact"]
    tests, command = [], None
    for artifact in built:
        if not artifact.get("executable"):
            continue
        folder = pathlib.Path(artifact["manifest_path"]).parent
        target = artifact["target"]["name"]
        if artifact["profile"]["test"]:
            tests.append((folder, target, artifact["executable"]))
        elif target == "streamgauge":
            command = artifact["executable"]
    return sorted(tests), command


def prefix(*words):
    """Command prefix that changes how a program runs; empty if this user may not change that."""
    try:
        may = subprocess.run([*words, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        may = False
    return list(words) if may else []


@contextlib.contextmanager
def kernel_settings():
    """Changes settings of the kernel while the tests run. Tells if this user may do so."""
    before, all_changed = {}, True
    for path, value in SETTINGS.items():
        try:
            before[path] = path.read_text()
            path.write_text(value)
        except FileNotFoundError:
            # This kernel does not share that way.
            pass
        except OSError:
            all_changed = False
    try:
        yield all_changed
    finally:
        for path, value in before.items():
            with contextlib.suppress(OSError):
                path.write_text(value)


def is_roomy(folder):
    """True if a folder is in memory, has room for the tests, and may hold programs."""
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    mounts = [line.split() for line in lines]
    kinds = [(kind, options.split(",")) for _, at, kind, options, *_ in mounts if at == str(folder)]
    if not kinds or kinds[-1][0] != "tmpfs" or "noexec" in kinds[-1][1]:
        return False
    available = re.search(r"MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    free = shutil.disk_usage(folder).free
    return min(free, int(available[1]) * 1024) >= MEMORY_BYTES_MIN


@contextlib.contextmanager
def folder_in_memory():
    """Lets the tests keep their temporary files in memory while they run, if there is room."""
    if "TMPDIR" in os.environ or not (os.access(MEMORY, os.W_OK) and is_roomy(MEMORY)):
        yield
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as folder:
        # Some servers run as another user, and open their files by the whole path.
        os.chmod(folder, 0o711)
        os.environ["TMPDIR"] = folder
        yield


def is_busy():
    """True if other programs use more than half of the processors."""

    def look():
        fields = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
        # proc(5): user, nice, system, idle, iowait, ...
        return fields[3] + fields[4], sum(fields)

    idle, total = look()
    time.sleep(1)
    idle_now, total_now = look()
    return idle_now - idle < (total_now - total) / 2


def one_after_the_other(programs):
    def run():
        for program in programs:
            program.run()

    return threading.Thread(target=run, daemon=True)


def end_to_end_threads(hurries, busy):
    """Number of end-to-end tests to run at a time."""
    per_core = END_TO_END_PER_CORE if hurries else END_TO_END_PER_SLOW_CORE
    return CORES * (END_TO_END_PER_BUSY_CORE if busy else per_core)


def main():
    quick = sys.argv[1:] == ["--quick"]
    if sys.argv[1:] and not quick:
        print(__doc__)
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with folder_in_memory(), kernel_settings() as hurries:
        return run(quick, hurries)


def run(quick, hurries):
    """Runs the tests; returns the exit code."""
    began = time.monotonic()
    tests, command = build()
    # Gigabytes of fresh files. Written during the tests, they would hold up whoever writes.
    os.sync()
    print(f"-- build: {time.monotonic() - began:.0f} s", flush=True)
    end_to_end, health, protocols, real_time, others = [], [], [], [], []
    priority, alike = prefix(*FIRST), prefix(*ALIKE)
    busy = is_busy()
    # On a busy machine, it would hardly get any time.
    last = [] if busy or quick else prefix(*LAST)
    compute = [[] for _ in COMPUTE]
    threads = end_to_end_threads(hurries, busy)
    for folder, target, executable in tests:
        name = f"{folder.name}/{target}"
        if target == "e2e":
            end_to_end.append(Program(name, [*alike, executable], folder, threads))
        elif target == "health":
            health.append(Program(name, [executable], folder, HEALTH_THREADS))
        elif folder.name in REAL_TIME:
            real_time.append(Program(name, [*priority, executable], folder))
        elif last and any(name in names for names in COMPUTE):
            lane = next(at for at, names in enumerate(COMPUTE) if name in names)
            compute[lane].append(Program(name, [*last, executable], folder))
        else:
            lane = protocols if folder.name in PROTOCOLS else others
            lane.append(Program(name, [executable], folder))
    scripts = ["test_truth.py", "test_bench.py", "test_kubernetes.py", "test_ci.py"]
    python = [
        Program(name, ["env", f"STREAMGAUGE={command}", sys.executable, f"tests/{name}"])
        for name in scripts
    ]
    # Programs of one lane run one after the other; lanes run in parallel.
    units = [others + python, protocols]
    if quick:
        os.environ["STREAMGAUGE_TEST_WITHOUT_TOOLS"] = "1"
        phases = [units, [real_time]]
    else:
        page = Program("test_html.py", [*alike, sys.executable, "tests/test_html.py", command])
        servers = [end_to_end, [page]]
        side_by_side = [servers, units] if busy else [servers + units]
        phases = [*side_by_side, [real_time + health, *compute]]
    programs = [program for lanes in phases for lane in lanes for program in lane]
    try:
        for lanes in phases:
            started = [one_after_the_other(lane) for lane in lanes]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
    finally:
        for program in programs:
            program.stop()
    failed = [program.name for program in programs if program.code != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
