//! A timer finer than the milliseconds of polling.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use measure::Time;

use crate::clock::Clock;

/// Becomes readable at a set time, with a precision of tens of microseconds.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    set: Time,
}

impl Timer {
    /// Returns a timer that is not set.
    pub fn new() -> io::Result<Timer> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        Ok(Timer {
            fd,
            set: Time::NEVER,
        })
    }

    /// Sets the time; a past time fires at once. Needs a system call only if the time changes.
    pub fn set(&mut self, time: Time, clock: &Clock) -> io::Result<()> {
        if time == self.set {
            return Ok(());
        }
        let nanos = if time == Time::NEVER {
            0
        } else {
            clock.to_monotonic_nanos(time).max(1)
        };
        let value = Timespec {
            tv_sec: nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        };
        let interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        timerfd_settime(
            self.fd.as_fd(),
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: interval,
                it_value: value,
            },
        )?;
        self.set = time;
        Ok(())
    }

    /// Clears the timer after it became readable, so that it can be set to the same time again.
    pub fn fired(&mut self) {
        // The read returns the number of expirations. Setting the timer clears it too, so a failed
        // read (not expired yet) is harmless.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        self.set = Time::NEVER;
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
