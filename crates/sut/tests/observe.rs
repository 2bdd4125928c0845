//! Measured resource use of a server, compared with its own figures.

mod common;

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{alone, options, python, runs, script, start, until};
use measure::Recorder;
use measure::server::{CPU, SERVER_CATALOGUE, SOCKET_DROPS, THREADS, USS};
use rustix::process::{Pid, Signal, kill_process};
use sut::{CpuSource, Options, Sut, SutError};

/// Waits for SIGUSR1, then uses processor time in itself, in children that it waits for, and in
/// grandchildren, and prints the time that the kernel charged.
const BUSY: &str = "
import os, resource, signal, time
go = {signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, go)
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
def child(work):
    if os.fork() == 0:
        work()
        os._exit(0)
    os.wait()
print('ready', flush=True)
signal.sigwait(go)
before = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
burn(0.2)
child(lambda: (burn(0.2), child(lambda: burn(0.3))))
after = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
used = sum(a.ru_utime + a.ru_stime - b.ru_utime - b.ru_stime for a, b in zip(after, before))
print('used', used, '.')
time.sleep(1000)
";

/// Returns the source of the processor time, the least and the most time that was seen, and the
/// time that was used.
fn cpu_of_a_busy_tree(options: &Options) -> (CpuSource, (f64, f64), f64) {
    let _alone = alone();
    let mut sut = Sut::start_with(&python(BUSY), "".as_ref(), options, &|_| ()).unwrap();
    // On a busy machine this thread may wait before and after each observation.
    let before = Instant::now();
    sut.observe();
    let begun = Instant::now();
    let server = sut.pid().and_then(|pid| Pid::from_raw(pid as i32));
    kill_process(server.unwrap(), Signal::USR1).unwrap();
    let mut used = None;
    until("it has burnt", || {
        let log = sut.log_tail();
        used = log
            .split_once("used ")
            .and_then(|(_, rest)| rest.split_once(" ."))
            .map(|(figure, _)| figure.parse::<f64>().unwrap());
        used.is_some()
    });
    let shortest = begun.elapsed().as_secs_f64();
    let cores = sut.observe().cpu.unwrap();
    let longest = before.elapsed().as_secs_f64();
    (
        sut.cpu_source().clone(),
        (cores * shortest, cores * longest),
        used.unwrap(),
    )
}

fn assert_seen((least, most): (f64, f64), used: f64, tolerance: f64) {
    let range = least - tolerance..most + tolerance;
    assert!(range.contains(&used), "seen {least} to {most}, used {used}");
}

#[test]
fn cpu_from_a_control_group_counts_grandchildren_that_ended() {
    let (source, seen, used) = cpu_of_a_busy_tree(&options());
    if std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_none()
        && rustix::process::geteuid().is_root()
    {
        assert!(
            matches!(source, CpuSource::CgroupV1 | CpuSource::CgroupV2),
            "{source:?}"
        );
    }
    assert!((0.69..5.0).contains(&used), "{used}");
    assert_seen(seen, used, 0.02);
}

#[test]
fn cpu_from_process_times_counts_grandchildren_that_ended() {
    let (source, seen, used) = cpu_of_a_busy_tree(&Options {
        no_cgroup: true,
        ..options()
    });
    assert_eq!(
        source,
        CpuSource::ProcessTimes {
            reason: "switched off".to_owned()
        }
    );
    // Clock ticks are coarse.
    assert_seen(seen, used, 0.1);
}

#[test]
fn a_window_is_recorded() {
    let mut sut = start(&python("import time\nprint('ready')\nblock = bytearray(b'x' * 50_000_000)\nprint('big')\ntime.sleep(1000)")).unwrap();
    until("it has its memory", || sut.log_tail().contains("big"));
    let mut recorder = Recorder::new(SERVER_CATALOGUE);
    sut.sample(&mut recorder);
    let window = recorder.take_window();
    let gauge = |id: measure::GaugeId| window.gauges[usize::from(id.0)];
    assert!(gauge(CPU).unwrap() >= 0.0);
    assert_eq!(gauge(THREADS), Some(1.0));
    let uss = gauge(USS).unwrap();
    assert!((50e6..90e6).contains(&uss), "{uss}");
    assert_eq!(window.counters[usize::from(SOCKET_DROPS.0)], 0);
    // Memory is not read again so soon, and the figure is not repeated.
    sut.sample(&mut recorder);
    assert_eq!(recorder.take_window().gauges[usize::from(USS.0)], None);
}

#[test]
fn figures_of_the_tree_are_sums() {
    let mut sut = start(&script(
        "tail -f /dev/null & tail -f /dev/null & echo ready; wait",
    ))
    .unwrap();
    until("all three run", || sut.processes().len() == 3);
    let seen = sut.observe();
    assert_eq!(seen.threads, Some(3));
    assert!(seen.file_descriptors.unwrap() >= 9);
    assert!(seen.pss.unwrap() >= seen.uss.unwrap());
    assert!(seen.rss.unwrap() >= seen.pss.unwrap() / 2);
    assert!(seen.udp_memory.is_some());
}

#[test]
fn the_hottest_thread_is_the_one_that_works() {
    let _alone = alone();
    let busy = "import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(1000,)).start()\n\
                print('ready')\nwhile True: pass";
    let mut sut = start(&python(busy)).unwrap();
    let began = Instant::now();
    let mut seen = sut::Observation::default();
    until("a while has passed", || {
        began.elapsed() > Duration::from_millis(300)
    });
    // The threads are read less often if reading takes long.
    until("the threads are read", || {
        seen = sut.observe();
        seen.cpu_hottest_thread.is_some()
    });
    let (cpu, hottest) = (seen.cpu.unwrap(), seen.cpu_hottest_thread.unwrap());
    assert_eq!(seen.threads, Some(4));
    assert!(
        cpu > 0.1 && hottest <= cpu * 1.1 && hottest >= cpu * 0.8,
        "{cpu} {hottest}"
    );
}

#[test]
fn drops_of_its_sockets_are_counted_exactly() {
    const SENT: u64 = 3000;
    let server = "
import signal, socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
s.bind(('127.0.0.1', 0))
s.setblocking(False)
def drain(*_):
    count = 0
    try:
        while s.recv(2000): count += 1
    except BlockingIOError:
        print('got', count, '.')
signal.signal(signal.SIGUSR1, drain)
print('port', s.getsockname()[1], '.')
print('ready')
while True: signal.pause()
";
    let number = |log: &str, word: &str| -> Option<u64> {
        log.split_once(word)?
            .1
            .split_once(" .")?
            .0
            .trim()
            .parse()
            .ok()
    };
    let mut sut = start(&python(server)).unwrap();
    let port = u16::try_from(number(&sut.log_tail(), "port ").unwrap()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..SENT {
        socket.send_to(&[7; 1000], ("127.0.0.1", port)).unwrap();
    }
    let drops = sut.observe().socket_drops;
    let pid = Pid::from_raw(
        sut.pid()
            .expect("it is on this machine")
            .try_into()
            .unwrap(),
    )
    .unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    until("it has drained its socket", || {
        number(&sut.log_tail(), "got ").is_some()
    });
    let got = number(&sut.log_tail(), "got ").unwrap();
    assert!(got > 0 && got < SENT);
    assert_eq!(drops, SENT - got);
    assert_eq!(sut.observe().socket_drops, 0);
}

#[test]
fn observed_process_keeps_running() {
    let mut child = Command::new("sh")
        .args(["-c", "tail -f /dev/null & wait"])
        .stdin(Stdio::null())
        .process_group_leader()
        .spawn()
        .unwrap();
    let mut sut = Sut::observe_pid(child.id()).unwrap();
    until("its child runs", || sut.processes().len() == 2);
    let grandchild = sut.processes()[1];
    assert!(matches!(sut.cpu_source(), CpuSource::ProcessTimes { .. }));
    assert_eq!(sut.observe().threads, Some(2));
    assert!(sut.description().contains(&child.id().to_string()));
    assert_eq!(sut.has_exited(), None);
    sut.stop();
    assert!(runs(child.id()));
    let sut = Sut::observe_pid(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(sut.has_exited().is_some());
    assert!(sut.processes().is_empty());
    kill_process(
        Pid::from_raw(grandchild.try_into().unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    assert!(matches!(
        Sut::observe_pid(child.id()),
        Err(SutError::NoSuchProcess { .. })
    ));
}

trait OwnGroup {
    fn process_group_leader(&mut self) -> &mut Command;
}

impl OwnGroup for Command {
    fn process_group_leader(&mut self) -> &mut Command {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

/// Forks a child for each of its jobs, like a relay for each client, without waiting for them. Each
/// child uses processor time and ends; the times that they report are added up.
const FORKING: &str = "
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def job(seconds):
    inlet, outlet = os.pipe()
    if os.fork() == 0:
        began = time.process_time()
        while time.process_time() - began < seconds: pass
        os.write(outlet, repr(time.process_time()).encode())
        os._exit(0)
    os.close(outlet)
    text = os.read(inlet, 64)
    os.close(inlet)
    return float(text)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready')
signal.sigwait([signal.SIGUSR1])
used = time.process_time()
began = time.monotonic()
used = sum(job(0.02) for _ in range(30)) + time.process_time() - used
print('jobs', used, time.monotonic() - began, '.')
time.sleep(1000)
";

#[test]
fn cpu_of_children_without_a_wait_is_counted() {
    let _alone = alone();
    let mut sut = start(&python(FORKING)).unwrap();
    if matches!(sut.cpu_source(), CpuSource::ProcessTimes { .. }) {
        // Without a control group this is unknown, and the report says that there is none.
        return;
    }
    // The start does not count.
    sut.observe();
    let pid = i32::try_from(sut.pid().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::USR1).unwrap();
    let (mut seconds, mut peak) = (0.0, 0.0_f64);
    let mut printed = None;
    let mut last = Instant::now();
    until("all jobs are done", || {
        let log = sut.log_tail();
        printed = log
            .split_once("jobs ")
            .and_then(|(_, rest)| rest.split_once(" ."))
            .map(|(figures, _)| figures.to_owned());
        if printed.is_some() || last.elapsed() > Duration::from_millis(150) {
            let cpu = sut.observe().cpu.unwrap();
            seconds += cpu * last.elapsed().as_secs_f64();
            last = Instant::now();
            peak = peak.max(cpu);
        }
        printed.is_some()
    });
    let printed = printed.unwrap();
    let figures: Vec<f64> = printed
        .split(' ')
        .map(|figure| figure.parse().unwrap())
        .collect();
    let (used, took) = (figures[0], figures[1]);
    assert!((0.6..3.0).contains(&used), "{printed}");
    // Forking and ending also take time, which a process cannot see for itself.
    assert!(
        seconds > used * 0.98 && seconds < used * 1.25 + 0.05,
        "seen {seconds}, used {used}"
    );
    assert!(peak >= used / took * 0.9, "peak {peak} of {used} in {took}");
}

#[test]
fn memory_includes_that_of_children() {
    let parent = "import os, time\nif os.fork() == 0:\n  block = bytearray(b'x' * 30_000_000)\n  print('ready')\n  time.sleep(1000)\nos.wait()";
    let mut sut = start(&python(parent)).unwrap();
    let seen = sut.observe();
    assert_eq!(sut.processes().len(), 2);
    assert!(seen.uss.unwrap() > 30_000_000, "{seen:?}");
}

#[test]
fn streamgauge_and_its_ancestors_are_not_observed() {
    let own = std::process::id();
    let parent = rustix::process::getppid().map(Pid::as_raw_pid).unwrap();
    let parent = u32::try_from(parent).unwrap();
    for (pid, words) in [
        (
            own,
            "is streamgauge itself, so streamgauge would measure itself",
        ),
        (parent, "is an ancestor of streamgauge itself"),
    ] {
        let error = Sut::observe_pid(pid).unwrap_err();
        assert!(matches!(error, SutError::Ourselves { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("process {pid} {words}")),
            "{text}"
        );
        assert!(text.ends_with("name the server's own process"), "{text}");
    }
}
