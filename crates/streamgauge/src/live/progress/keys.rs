//! Keys during a run: `q` stops the run gracefully, as Ctrl-C does, `h` holds its ramp or resumes
//! it, and `?` shows the keys. The same thread notices a new size of the terminal (SIGWINCH).
//!
//! The terminal delivers keys immediately and does not echo them. Ctrl-C and Ctrl-Z keep their
//! meaning. The terminal is not touched if the process is not in the foreground: reading from it
//! would stop the process.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr,
};
use signal_hook::SigId;
use signal_hook::consts::SIGWINCH;

/// Returns the settings of the terminal before the run.
fn saved_terminal() -> MutexGuard<'static, Option<Termios>> {
    static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
    SAVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time to wait for a key before checking whether the run has ended.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Request to the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Shows the keys, or hides them.
    ToggleKeys,
    /// Draws again, because the terminal has another size.
    Redraw,
}

/// Handles keys until it is dropped.
pub(super) struct Keys {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Registration for the signal of a new size.
    resized: Option<SigId>,
    /// True if keys have an effect.
    pub(super) are_obeyed: bool,
}

impl Keys {
    /// Starts to handle keys, if standard input is a terminal and the process is in its foreground,
    /// and new sizes of the terminal. `tell` passes requests on to the display.
    pub(super) fn start(control: &Control, tell: impl FnMut(Request) + Send + 'static) -> Keys {
        let are_obeyed = deliver_at_once(OptionalActions::Now);
        let (resized, resizes) = watch_size().unzip();
        let over = Arc::new(AtomicBool::new(false));
        let mut listener = Listener {
            over: Arc::clone(&over),
            control: control.clone(),
            reads_keys: are_obeyed,
            resizes,
            stop_requested: false,
            tell,
        };
        let thread = thread::Builder::new().name("keys".to_owned());
        let thread = thread.spawn(move || listener.listen()).ok();
        if thread.is_none() {
            restore();
        }
        Keys {
            over,
            are_obeyed: are_obeyed && thread.is_some(),
            thread,
            resized,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(resized) = self.resized.take() {
            signal_hook::low_level::unregister(resized);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore();
    }
}

/// Sets the terminal to deliver keys immediately, without an echo. Returns `false` if standard
/// input is not a terminal, or the process is not in its foreground.
fn deliver_at_once(when: OptionalActions) -> bool {
    if !can_be_read() {
        return false;
    }
    let Ok(before) = tcgetattr(io::stdin()) else {
        return false;
    };
    let mut during = before.clone();
    during
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    during.special_codes[SpecialCodeIndex::VMIN] = 0;
    during.special_codes[SpecialCodeIndex::VTIME] = 0;
    if tcsetattr(io::stdin(), when, &during).is_err() {
        return false;
    }
    *saved_terminal() = Some(before);
    true
}

/// Returns a socket that becomes readable when the terminal changes its size.
fn watch_size() -> Option<(SigId, UnixStream)> {
    let (reader, writer) = UnixStream::pair().ok()?;
    reader.set_nonblocking(true).ok()?;
    let id = signal_hook::low_level::pipe::register(SIGWINCH, writer).ok()?;
    Some((id, reader))
}

/// Returns `true` if the user can press keys: standard input is a terminal and the process is in
/// its foreground.
pub(crate) fn can_be_read() -> bool {
    isatty(io::stdin()) && is_foreground()
}

/// Waits for a key after the run.
pub(crate) struct KeyWait {
    /// True if keys can be pressed: standard input is a terminal, and the process is in its
    /// foreground.
    pub(crate) reads_keys: bool,
}

impl KeyWait {
    /// Prepares the terminal. Keys that were pressed before do not count.
    pub(crate) fn start() -> KeyWait {
        KeyWait {
            reads_keys: deliver_at_once(OptionalActions::Flush),
        }
    }

    /// Waits until a key is pressed or `is_over`.
    pub(crate) fn wait(self, is_over: impl Fn() -> bool) {
        let stdin = io::stdin();
        while !is_over() {
            if !self.reads_keys || !is_foreground() {
                thread::park_timeout(Duration::from_millis(200));
                continue;
            }
            let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
            let any = poll(&mut descriptors, Some(&WAIT)).unwrap_or(0) > 0;
            if !any || !is_foreground() {
                continue;
            }
            let mut key = [0];
            match rustix::io::read(io::stdin(), &mut key) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

impl Drop for KeyWait {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the settings of the terminal. If another process is in the foreground now, they are not
/// touched: setting them would stop this process, and the shell restores them itself.
pub(crate) fn restore() {
    let before = saved_terminal().take();
    if let Some(before) = before.filter(|_| is_foreground()) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|front| front == getpgrp())
}

/// Thread that waits for keys and new sizes.
struct Listener<T> {
    over: Arc<AtomicBool>,
    control: Control,
    reads_keys: bool,
    resizes: Option<UnixStream>,
    stop_requested: bool,
    tell: T,
}

impl<T: FnMut(Request)> Listener<T> {
    fn listen(&mut self) {
        while !self.over.load(Ordering::Relaxed) {
            if !self.reads_keys && self.resizes.is_none() {
                return;
            }
            // A wait continues after the process was put into the background, but a read would stop
            // the process there. So bytes are only read if they are already available.
            let stdin = io::stdin();
            let keys = self.reads_keys.then_some(stdin.as_fd());
            let resizes = self.resizes.as_ref().map(UnixStream::as_fd);
            let all = keys.into_iter().chain(resizes);
            let mut descriptors: Vec<PollFd<'_>> = all
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            let _ = poll(&mut descriptors, Some(&WAIT));
            let mut ready = descriptors.iter().map(|one| !one.revents().is_empty());
            let has_key = self.reads_keys && ready.next().unwrap_or(false);
            let is_resized = self.resizes.is_some() && ready.next().unwrap_or(false);
            if is_resized {
                self.take_resizes();
                (self.tell)(Request::Redraw);
            }
            if self.reads_keys && !is_foreground() {
                thread::park_timeout(Duration::from_millis(200));
            } else if has_key {
                self.read_key();
            }
        }
    }

    /// Takes the bytes of all signals so far.
    fn take_resizes(&mut self) {
        let mut bytes = [0; 64];
        if let Some(resizes) = &mut self.resizes {
            while resizes.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
    }

    fn read_key(&mut self) {
        let mut key = [0];
        match rustix::io::read(io::stdin(), &mut key) {
            // A second signal would end the run at once, which only Ctrl-C may do.
            Ok(1) if key[0] == b'q' && !self.stop_requested => {
                self.stop_requested = true;
                let _ = kill_process(getpid(), Signal::INT);
            }
            Ok(1) if key[0] == b'h' => self.control.toggle_hold(),
            Ok(1) if key[0] == b'?' => (self.tell)(Request::ToggleKeys),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => self.reads_keys = false,
        }
    }
}
