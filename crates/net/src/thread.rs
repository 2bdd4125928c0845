//! Threads: timer precision, priority, and processor time.

use std::io;
use std::num::NonZeroU64;

use crate::options::check;

/// Sets the timer slack of the calling thread to one nanosecond, so that it wakes as exactly as the
/// kernel can. By default a thread may wake 50 µs late, so that several wake together
/// (`PR_SET_TIMERSLACK`, prctl(2)).
pub fn minimize_timer_slack() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// Raises the priority of the calling thread over others that want the same processor. Needs
/// CAP_SYS_NICE or a limit that allows it (RLIMIT_NICE; setpriority(2), where Linux accepts a
/// thread's number).
pub fn raise_priority() -> io::Result<()> {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), RAISED_NICE)?;
    Ok(())
}

/// Gives the calling thread priority over all threads without real-time priority (`SCHED_FIFO`,
/// sched(7)). Needs CAP_SYS_NICE or a limit that allows it (RLIMIT_RTPRIO). For threads that work
/// in short bursts: such a thread gives up its processor only by waiting, and the kernel takes it
/// away for at most 50 ms per second.
pub fn set_realtime_priority() -> io::Result<()> {
    let this_thread: libc::c_long = 0;
    // The kernel's `sched_param` is this number.
    let priority: libc::c_int = 1;
    // Not `libc::sched_setscheduler`: that of musl always fails.
    // SAFETY: the number is valid for the read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            this_thread,
            libc::c_long::from(libc::SCHED_FIFO),
            &raw const priority,
        )
    };
    check(result as libc::c_int)
}

/// Number of processors that this program could use if nothing but its control group limited it:
/// its own affinity (taskset(1)) does not count. Takes a short-lived thread.
pub fn processors_without_affinity() -> usize {
    let count = || {
        let mut all = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        // The kernel leaves out those that the machine or the control group does not have. If it
        // refuses, the affinity stays.
        let _ = rustix::thread::sched_setaffinity(None, &all);
        std::thread::available_parallelism().map_or(1, usize::from)
    };
    std::thread::spawn(count).join().unwrap_or(1)
}

/// Nice value: about nine times the share of a thread at 0 (sched(7)), and so usually enough to
/// preempt it.
const RAISED_NICE: i32 = -10;

/// Processor time of one thread, readable by other threads of the process.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// Returns the clock of the calling thread.
    pub fn of_this_thread() -> io::Result<CpuClock> {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is valid for the one write.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        match result {
            0 => Ok(CpuClock(clock)),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Processor time used so far, in nanoseconds. `None` if the thread has ended.
    pub fn nanos(self) -> Option<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for the one write; the clock of an ended thread returns an error.
        let result = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        let nanos = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        (result == 0).then(|| u64::try_from(nanos).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::thread_cpu_nanos;

    #[test]
    fn affinity_of_this_program_does_not_change_the_number_of_processors() {
        let count = || std::thread::available_parallelism().map_or(1, usize::from);
        let pinned = std::thread::spawn(move || {
            let before = count();
            let mut one = rustix::thread::CpuSet::new();
            let own = rustix::thread::sched_getaffinity(None).expect("linux has it");
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| own.is_set(cpu));
            one.set(first.expect("it runs on one"));
            rustix::thread::sched_setaffinity(None, &one).expect("linux has it");
            (before, count(), processors_without_affinity())
        });
        let (before, pinned, all) = pinned.join().expect("no panic");
        assert_eq!(pinned, 1);
        assert!(all >= before, "{all} {before}");
    }

    #[test]
    fn cpu_clock_is_readable_from_another_thread() {
        let (told, tell) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            minimize_timer_slack().expect("linux can");
            let clock = CpuClock::of_this_thread().expect("it runs");
            let before = thread_cpu_nanos();
            while thread_cpu_nanos() < before + 5_000_000 {}
            told.send((clock, thread_cpu_nanos())).expect("heard");
            let _ = ended.recv();
        });
        let (clock, used) = tell.recv().expect("it works");
        let read = clock.nanos().expect("it lives");
        assert!(read >= used && read < used + 1_000_000_000);
        drop(end);
        thread.join().expect("it ends");
        // Joining a thread returns a moment before the kernel has removed it.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while clock.nanos().is_some() {
            assert!(std::time::Instant::now() < deadline, "its clock goes on");
        }
    }
}
