//! Ctrl-C: the first stops gracefully, the second at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use engine::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::exit::{Exit, Failure};
use crate::live::progress::keys;

/// Handles signals until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    arrived: Arc<AtomicU32>,
    /// True if a signal asked the process to end, instead of only its run.
    ends_process: Arc<AtomicBool>,
}

impl Watch {
    /// Passes on to `control` every signal that asks the process to end.
    ///
    /// The first stops the run gracefully, the second at once. The third ends the process in any
    /// case.
    pub(crate) fn start(control: Control) -> Result<Watch, Failure> {
        let failed =
            |error: std::io::Error| Failure::bad(format_args!("cannot listen for Ctrl-C: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let handle = signals.handle();
        let arrived = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&arrived);
        let ends_process = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ends_process);
        let thread = std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal != SIGINT {
                        ends.store(true, Ordering::Relaxed);
                    }
                    match counter.fetch_add(1, Ordering::Relaxed) {
                        0 => control.stop(),
                        1 => control.kill(),
                        _ => {
                            keys::restore();
                            std::process::exit(i32::from(Exit::Stopped.code()));
                        }
                    }
                }
            })
            .map_err(failed)?;
        Ok(Watch {
            handle,
            thread: Some(thread),
            arrived,
            ends_process,
        })
    }

    /// Returns `true` if a signal has arrived.
    pub(crate) fn was_signalled(&self) -> bool {
        self.signals() > 0
    }

    /// Returns the number of signals that have arrived.
    pub(crate) fn signals(&self) -> u32 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Returns `true` if the process was asked to end (SIGTERM, SIGHUP). Ctrl-C ends a run, and the
    /// user is still there.
    pub(crate) fn ends_process(&self) -> bool {
        self.ends_process.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
