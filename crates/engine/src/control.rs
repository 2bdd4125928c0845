//! Stopping a run and holding its load plan from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Handle for stopping a run, or holding its plan, from another thread or a signal handler. Clones
/// share the same state.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// Shared with the launch of the server, which gives up once it is set.
    stop: Arc<AtomicBool>,
    kill: AtomicBool,
    hold: AtomicBool,
}

impl Control {
    pub fn new() -> Control {
        Control::default()
    }

    /// Stops the run gracefully: sessions shut down and the report is written.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Stops the run at once: sessions are dropped without shutdown. The report is still written.
    pub fn kill(&self) {
        self.stop();
        self.0.kill.store(true, Ordering::Relaxed);
    }

    /// Holds the load plan at its current number of clients, or resumes it if it is held.
    /// Noticed within 200 ms, and only while clients are active.
    pub fn toggle_hold(&self) {
        self.0.hold.fetch_xor(true, Ordering::Relaxed);
    }

    /// Resumes the load plan if it is held.
    pub fn resume(&self) {
        self.0.hold.store(false, Ordering::Relaxed);
    }

    /// True if a hold of the plan is requested.
    pub fn is_held(&self) -> bool {
        self.0.hold.load(Ordering::Relaxed)
    }

    /// True if a stop is requested.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// True if an immediate stop is requested.
    pub fn is_killed(&self) -> bool {
        self.0.kill.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.0.stop.clone()
    }
}
