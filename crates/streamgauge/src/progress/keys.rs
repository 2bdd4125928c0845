//! Keys while a run goes: `q` ends it in order, as Ctrl-C does, and `h` holds its ramp or lets it go
//! on.
//!
//! The terminal hands keys over at once and shows none of them. Ctrl-C and Ctrl-Z stay what they
//! are. Where the process is not in the foreground, the terminal is left alone: reading from it
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

/// How the terminal was before.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// How long to wait for a key before it is looked whether the run is over.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Listens for keys until it is dropped.
pub(super) struct Keys {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    /// Begins to listen; none where there is no terminal to listen to.
    pub(super) fn start(control: &Control) -> Option<Keys> {
        if !isatty(io::stdin()) || !is_in_front() {
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
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
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

/// Leaves the terminal as it was before. Where it is another's meanwhile, it is left alone: to set
/// it would stop the process, and the shell sets it anew.
pub(crate) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before.filter(|_| is_in_front()) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|front| front == getpgrp())
}

fn listen(over: &AtomicBool, control: &Control) {
    let mut asked = false;
    while !over.load(Ordering::Relaxed) {
        // A wait goes on where it was when the process is put into the background; a read there would
        // stop it again. So only what is there already is read.
        let stdin = io::stdin();
        let mut there = [PollFd::new(&stdin, PollFlags::IN)];
        let any = poll(&mut there, Some(&WAIT)).unwrap_or(0) > 0;
        if !is_in_front() {
            thread::park_timeout(Duration::from_millis(200));
            continue;
        }
        if !any {
            continue;
        }
        let mut key = [0];
        match rustix::io::read(io::stdin(), &mut key) {
            // A second one would end the run at once: that is for Ctrl-C alone.
            Ok(1) if key[0] == b'q' && !asked => {
                asked = true;
                let _ = kill_process(getpid(), Signal::INT);
            }
            Ok(1) if key[0] == b'h' => control.hold_or_go_on(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
