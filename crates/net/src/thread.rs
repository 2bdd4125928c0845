//! Of threads: how exactly they wake, and what they cost.

use std::io;
use std::num::NonZeroU64;

/// Lets the calling thread wake within a nanosecond of when it asked to, as far as that is the
/// kernel's choice. By default it may be 50 µs late, so that several wake together
/// (`PR_SET_TIMERSLACK`, prctl(2)).
pub fn wake_exactly() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// Lets the calling thread go before others that want the same processor, as far as this process
/// may do that: it takes CAP_SYS_NICE or a limit that allows it (RLIMIT_NICE; setpriority(2), where
/// Linux takes a thread's number).
pub fn go_first() -> io::Result<()> {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), FIRST)?;
    Ok(())
}

/// Lets the calling thread go before all that are not in real time as well (`SCHED_FIFO`,
/// sched(7)), as far as this process may do that: it takes CAP_SYS_NICE, or a limit that allows it
/// (RLIMIT_RTPRIO). For who works for moments at a time: such a thread gives its processor up to
/// nobody but by waiting, and the kernel takes it away for 50 ms of a second at most.
pub fn go_before_all() -> io::Result<()> {
    let wanted = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is valid for the read, and 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// About nine times the share of a thread at 0 (sched(7)), and so mostly the right to interrupt it.
const FIRST: i32 = -10;

/// The processor time of one thread, for other threads of the process to read.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// That of the calling thread.
    pub fn of_this_thread() -> io::Result<CpuClock> {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is valid for the one write.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        match result {
            0 => Ok(CpuClock(clock)),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// What the thread has used so far, in nanoseconds. None when it has ended.
    pub fn nanos(self) -> Option<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for the one write; a clock of a thread that has ended is an
        // error.
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
    fn another_thread_reads_what_one_has_used() {
        let (told, tell) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            wake_exactly().expect("linux can");
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
        // Who waits for a thread is let go a moment before the kernel has forgotten it.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while clock.nanos().is_some() {
            assert!(std::time::Instant::now() < deadline, "its clock goes on");
        }
    }
}
