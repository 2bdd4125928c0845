"""The server and the compared receivers: how each is started, queried and ended."""

import ctypes
import dataclasses
import json
import os
import pathlib
import selectors
import signal
import subprocess
import time

import machine

NAMES = ["drop", "recvmmsg", "ring", "sockets", "tcp", "gortsplib-udp", "gortsplib-tcp", "ffmpeg"]
# Maximum number of ffmpeg processes.
MOST_PROCESSES = 100
# Time-out from the start of streamgauge to the beginning of its run, in seconds.
STARTS_WITHIN = 0.5
# Time-out for a program to end, in seconds.
PATIENCE = 60.0


class PeerError(Exception):
    """A receiver or the server did not behave as expected."""


@dataclasses.dataclass
class Context:
    """Start parameters of a receiver."""

    url: str
    clients: int
    ramp: float
    scratch: pathlib.Path
    cores: list


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def launch(command, cores=None, **streams):
    """Starts a program that ends with this process, however it ends."""

    def prepare():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if cores:
            os.sched_setaffinity(0, cores)

    return subprocess.Popen(command, preexec_fn=prepare, **streams)


def end(process):
    """Waits for the end of a process that was asked to end, and kills it after the time-out."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


class Lines:
    """Reads lines from a pipe with a deadline."""

    def __init__(self, pipe):
        self.pipe, self.rest = pipe, b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(pipe, selectors.EVENT_READ)

    def next(self, deadline):
        while b"\n" not in self.rest:
            if not self.selector.select(max(0.0, deadline - time.monotonic())):
                raise PeerError("it said nothing in time")
            part = os.read(self.pipe.fileno(), 65536)
            if not part:
                raise PeerError("it ended before its time")
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


def pictures_a_second(rate):
    """Returns the frame rate. Below 100 kb/s a picture is one packet, so fewer packets are fewer pictures."""
    return max(1, min(25, rate // 4000))


def packets_about(rate):
    """Returns the approximate number of packets a second of a stream with that bit rate."""
    return pictures_a_second(rate) + rate / 8 / 1388


class Server:
    """The reference server, for one turn of a receiver."""

    def __init__(self, program, rate, scratch, cores):
        pictures = pictures_a_second(rate)
        self.report = scratch / "server.jsonl"
        self.report.unlink(missing_ok=True)
        self.process = launch(
            # A key picture each second, so that every second has the same number of packets.
            [program, "--quiet", "serve", "rtsp", "--port", "0", "--bitrate", f"{rate}bps", "--fps", str(pictures),
             "--gop", str(pictures), "--session-timeout", "600s", "--report", str(self.report)],
            cores, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        try:
            line = Lines(self.process.stdout).next(time.monotonic() + 20)
            self.url = line.split()[-1] + "bench"
        except PeerError as error:
            self.process.kill()
            told = self.process.communicate()[1].decode().strip()
            raise PeerError(f"the server does not start: {told or error}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def finish(self):
        """Ends the server. Returns the total number of sent packets."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise PeerError("the server does not end") from None
        with open(self.report, encoding="utf-8") as file:
            # The last line has the totals of the server.
            return sum(json.loads(line).get("sent", 0) for line in file)


class Peer:
    """A running receiver."""

    def __init__(self, processes):
        self.processes = processes
        self.pids = [process.pid for process in processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def wait_until_playing(self, deadline):
        """Returns whether all clients play, as far as that is known before the end."""
        raise NotImplementedError

    def counts(self):
        """Counts of received packets so far, if known."""
        return None

    def finish(self, before, after):
        """Ends the receiver. Returns packets, offered, lost, playing, set-up delays, and the transport."""
        raise NotImplementedError


class LinePeer(Peer):
    """One of the peers of this repository, which answers on its standard output."""

    def __init__(self, command, context, transport, counts_lost=True):
        super().__init__([launch(command, context.cores, stdin=subprocess.PIPE, stdout=subprocess.PIPE)])
        self.transport, self.counts_lost = transport, counts_lost
        self.lines = Lines(self.processes[0].stdout)
        self.playing = None

    def event(self, name, deadline):
        while True:
            line = json.loads(self.lines.next(deadline))
            if line["event"] == name:
                return line

    def wait_until_playing(self, deadline):
        try:
            self.playing = self.event("playing", deadline)
        except PeerError:
            if self.processes[0].poll() is not None:
                raise
            return False
        return self.playing["failed"] == 0

    def counts(self):
        self.processes[0].stdin.write(b"\n")
        self.processes[0].stdin.flush()
        return self.event("counts", time.monotonic() + PATIENCE)

    def finish(self, before, after):
        self.processes[0].stdin.close()
        done = self.event("done", time.monotonic() + PATIENCE)
        if end(self.processes[0]) != 0:
            raise PeerError("it did not end well")
        between = (after.at - before.at) / (after.counted_at - before.counted_at)
        packets = (after.counts["packets"] - before.counts["packets"]) * between
        lost = max(0, after.counts["lost"] - before.counts["lost"])
        media = after.counts.get("media_seconds", 0) - before.counts.get("media_seconds", 0)
        return {
            "transport": self.transport,
            "packets": packets,
            "offered": packets + lost * between,
            "lost": lost,
            "lost_in_all": done["lost"],
            "expected_in_all": done["packets"] + done["lost"],
            "playing": after.counts["playing"],
            "failed": after.counts["failed"],
            "setup_p50": done["setup_p50"],
            "setup_p95": done["setup_p95"],
            # Seconds of media received in a second: 1 if the server keeps to its schedule.
            "pace": media / (after.counted_at - before.counted_at) if media else None,
        }


class Tester(Peer):
    """streamgauge itself. Its report has the received packets, in windows of a second."""

    def __init__(self, program, context, options):
        self.context = context
        self.options = options
        self.report = context.scratch / "tester.json"
        self.report.unlink(missing_ok=True)
        run = context.scratch / "tester.run"
        run.unlink(missing_ok=True)
        self.log = open(context.scratch / "tester.log", "w+", encoding="utf-8")
        super().__init__([launch(
            [program, "--quiet", "load", context.url, "-c", str(context.clients), "--ramp", f"{context.ramp}s",
             "-d", "10m", "--json", str(self.report), "--out", str(run), *options],
            context.cores, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)])
        self.began = time.monotonic()

    def __exit__(self, *_):
        super().__exit__()
        self.log.close()

    def wait_until_playing(self, deadline):
        # Known only afterwards: see finish.
        return None

    def windows(self, report, before, after):
        """The windows of the report within the measured time."""
        first, last = before.at - self.began, after.at - self.began
        # The clock of the report begins later, so a window that seems to end with the measurement ends when the run stops.
        inside = [window for window in report["windows"]
                  if window["start"] >= first and window["start"] + window["seconds"] <= last - STARTS_WITHIN]
        if not inside:
            raise PeerError("no window of it lies within the measured time")
        return inside

    def finish(self, before, after):
        # Like Ctrl-C: streamgauge tears down its sessions and writes its report.
        self.processes[0].send_signal(signal.SIGINT)
        status = end(self.processes[0])
        if not self.report.exists() or not self.report.stat().st_size:
            self.log.seek(0)
            raise PeerError(f"exit {status}: " + self.log.read().strip().replace("\n", " ")[-300:])
        report = json.loads(self.report.read_text(encoding="utf-8"))
        metrics = report["populations"]["viewers"]["metrics"]
        inside = self.windows(report, before, after)
        seconds = sum(window["seconds"] for window in inside)
        seen = [window["populations"]["viewers"]["metrics"] for window in inside]
        received, expected = (sum(window[name] for window in seen) for name in ("received", "expected"))
        whole = (after.at - before.at) / seconds
        delay = metrics["startup_delay"] or {"p50": None, "p95": None}
        return {
            "transport": "tcp" if "tcp" in self.options else "udp",
            "packets": received * whole,
            "offered": expected * whole,
            "lost": max(0, expected - received),
            "lost_in_all": metrics["lost"],
            "expected_in_all": metrics["expected"],
            "playing": min(window["playing"] for window in seen),
            "failed": metrics["failed"],
            "setup_p50": delay["p50"],
            "setup_p95": delay["p95"],
            "receive_path": report["tester"]["receive_path"],
            "overflow": report["tester"]["overflow"],
            "verdict": report["verdict"],
            "windows": len(inside),
        }


class Ffmpegs(Peer):
    """One ffmpeg process for each client. ffmpeg does not report received packets, so the kernel's counts are used.

    The count of read datagrams covers the whole machine, so other users of UDP distort it; drops are those of ffmpeg's sockets.
    """

    def __init__(self, program, context):
        self.context = context
        self.logs = [context.scratch / f"ffmpeg-{number}.log" for number in range(context.clients)]
        self.started, self.delays = [], [None] * context.clients
        processes = []
        begin = time.monotonic()
        for number, log in enumerate(self.logs):
            time.sleep(max(0.0, begin + context.ramp * number / context.clients - time.monotonic()))
            with open(log, "wb") as file:
                self.started.append(time.monotonic())
                processes.append(launch(
                    [program, "-nostdin", "-hide_banner", "-nostats", "-rtsp_transport", "udp", "-i", context.url, "-c", "copy",
                     "-f", "null", "-"],
                    context.cores, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file))
        super().__init__(processes)

    def wait_until_playing(self, deadline):
        while time.monotonic() < deadline:
            for number, log in enumerate(self.logs):
                if self.delays[number] is None and b"Output #0" in log.read_bytes():
                    self.delays[number] = time.monotonic() - self.started[number]
            if None not in self.delays:
                return True
            time.sleep(0.02)
        return False

    def counts(self):
        return machine.udp_drops(self.pids)

    def finish(self, before, after):
        alive = sum(process.poll() is None for process in self.processes)
        for process in self.processes:
            process.send_signal(signal.SIGINT)
        for process in self.processes:
            end(process)
        known = sorted(delay for delay in self.delays if delay is not None)
        packets = after.udp["InDatagrams"] - before.udp["InDatagrams"]
        lost = after.counts - before.counts
        return {
            "transport": "udp",
            "packets": packets,
            "offered": packets + lost,
            "lost": lost,
            "expected_in_all": None,
            "playing": min(alive, len(known)),
            "failed": self.context.clients - alive,
            "setup_p50": known[len(known) // 2] if known else None,
            "setup_p95": known[min(len(known) - 1, int(len(known) * 0.95))] if known else None,
        }


@dataclasses.dataclass
class Receiver:
    """A row of the table."""

    name: str
    make: object
    # Number of descriptors that one process needs for each client.
    descriptors: int = 3
    most: int = 1_000_000
    limit: int = 1024

    def start(self, programs, context):
        return self.make(programs, context)

    def fits(self, clients):
        return clients <= self.most and clients * self.descriptors + 200 <= self.limit

    def why_not(self, clients):
        if clients > self.most:
            return f"at most {self.most} processes"
        return f"{clients * self.descriptors} file descriptors are needed, {self.limit} allowed (ulimit -Hn)"


def recvmmsg(*more):
    def make(programs, context):
        return LinePeer([programs["recvmmsg"], "--url", context.url, "--clients", str(context.clients), "--ramp-ms",
                         str(int(context.ramp * 1000)), *more], context, "udp")
    return make


def gortsplib(transport):
    def make(programs, context):
        return LinePeer([programs["gortsplib"], "--url", context.url, "--clients", str(context.clients), "--ramp",
                         f"{context.ramp}s", "--transport", transport], context, transport)
    return make


def tester(*options):
    return lambda programs, context: Tester(programs["streamgauge"], context, options)


def available(programs, missing, names, limit):
    """Returns the available receivers, in the order of the table, and the reason for each of the others."""
    options = subprocess.run([programs["streamgauge"], "load", "--help"], capture_output=True, text=True, check=False).stdout
    forced = "--receive" in options
    found, left_out = [], {}
    for name in NAMES:
        if name not in names:
            continue
        program = {"drop": "recvmmsg", "recvmmsg": "recvmmsg", "gortsplib-udp": "gortsplib", "gortsplib-tcp": "gortsplib",
                   "ffmpeg": "ffmpeg"}.get(name)
        if program and program not in programs:
            left_out[name] = missing[program]
            continue
        if name == "ring" and not forced:
            left_out[name] = "this streamgauge has no --receive"
            continue
        found.append({
            "drop": Receiver(name, recvmmsg("--drop")),
            "recvmmsg": Receiver(name, recvmmsg()),
            "ring": Receiver(name, tester("--receive", "ring")),
            "sockets": Receiver(name, tester("--receive", "sockets") if forced else tester()),
            "tcp": Receiver(name, tester("--transport", "tcp"), 1),
            "gortsplib-udp": Receiver(name, gortsplib("udp")),
            "gortsplib-tcp": Receiver(name, gortsplib("tcp"), 1),
            "ffmpeg": Receiver(name, lambda programs, context: Ffmpegs(programs["ffmpeg"], context), 0, MOST_PROCESSES),
        }[name])
        found[-1].limit = limit
    return found, left_out
