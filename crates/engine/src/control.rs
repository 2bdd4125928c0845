//! Stopping a run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle by which another thread, or a signal handler's, ends a run. Clones are the same handle.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// Shared with the launching of the server, which gives up when it is set.
    stop: Arc<AtomicBool>,
    kill: AtomicBool,
}

impl Control {
    /// A run that goes on.
    pub fn new() -> Control {
        Control::default()
    }

    /// Ends the run in order: every session says goodbye, the report is written.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run at once: sessions are dropped where they stand; the report is still written.
    pub fn kill(&self) {
        self.stop();
        self.0.kill.store(true, Ordering::Relaxed);
    }

    /// Whether the run is to end.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// Whether it is to end at once.
    pub fn is_killed(&self) -> bool {
        self.0.kill.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.0.stop.clone()
    }
}
