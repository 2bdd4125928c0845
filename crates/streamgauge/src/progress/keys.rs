//! Keys during a run: `q` stops the run gracefully, as Ctrl-C does, and `h` holds its ramp or
//! resumes it.
//!
//! The terminal delivers keys immediately and does not echo them. Ctrl-C and Ctrl-Z keep their
//! meaning. The terminal is not touched if the process is not in the foreground: reading from it
//! would stop the process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr,
};

/// Settings of the terminal before the run.
static SAVED_TERMINAL: Mutex<Option<Termios>> = Mutex::new(None);

/// Time to wait for a key before checking whether the run has ended.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Handles keys until it is dropped.
pub(super) struct Keys {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    /// Starts to handle keys. Returns `None` if standard input is not a terminal, or the process is
    /// not in its foreground.
    pub(super) fn start(control: &Control) -> Option<Keys> {
        if !isatty(io::stdin()) || !is_foreground() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok()?;
        let mut during = before.clone();
        during
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        during.special_codes[SpecialCodeIndex::VMIN] = 0;
        during.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &during).ok()?;
        *SAVED_TERMINAL
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(before);
        let over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&over);
        let control = control.clone();
        let thread = thread::Builder::new().name("keys".to_owned());
        let Ok(thread) = thread.spawn(move || listen(&theirs, &control)) else {
            restore();
            return None;
        };
        Some(Keys {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore();
    }
}

/// Restores the settings of the terminal. If another process is in the foreground now, they are not
/// touched: setting them would stop this process, and the shell restores them itself.
pub(crate) fn restore() {
    let before = SAVED_TERMINAL
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(before) = before.filter(|_| is_foreground()) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|front| front == getpgrp())
}

fn listen(over: &AtomicBool, control: &Control) {
    let mut stop_requested = false;
    while !over.load(Ordering::Relaxed) {
        // A wait continues after the process was put into the background, but a read would stop the
        // process there. So bytes are only read if they are already available.
        let stdin = io::stdin();
        let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
        let any = poll(&mut descriptors, Some(&WAIT)).unwrap_or(0) > 0;
        if !is_foreground() {
            thread::park_timeout(Duration::from_millis(200));
            continue;
        }
        if !any {
            continue;
        }
        let mut key = [0];
        match rustix::io::read(io::stdin(), &mut key) {
            // A second signal would end the run at once, which only Ctrl-C may do.
            Ok(1) if key[0] == b'q' && !stop_requested => {
                stop_requested = true;
                let _ = kill_process(getpid(), Signal::INT);
            }
            Ok(1) if key[0] == b'h' => control.toggle_hold(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
