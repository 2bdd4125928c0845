//! Stopping a run, and holding its plan, from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle by which another thread, or a signal handler's, ends a run or holds its plan. Clones are the same handle.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// Shared with the launching of the server, which gives up when it is set.
    stop: Arc<AtomicBool>,
    kill: AtomicBool,
    hold: AtomicBool,
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

    /// Holds the plan of how many clients there are to be: it stays where it is. Called again, it
    /// goes on. Either is heard of within a fifth of a second, and only while clients are at work.
    pub fn hold_or_go_on(&self) {
        self.0.hold.fetch_xor(true, Ordering::Relaxed);
    }

    /// Lets the plan go on, whatever was asked before.
    pub fn go_on(&self) {
        self.0.hold.store(false, Ordering::Relaxed);
    }

    /// Whether the plan is to be held.
    pub fn is_held(&self) -> bool {
        self.0.hold.load(Ordering::Relaxed)
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
