//! The only thread with an async runtime: it owns the connection to NATS.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread that runs futures. They end with it.
#[derive(Debug)]
pub(crate) struct Background {
    runtime: Handle,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A future did not end in time, or the wait for it was ended.
#[derive(Debug)]
pub(crate) struct TimedOut;

/// Interval between checks whether a wait is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Background {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Background> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = bounded(1);
        let thread = std::thread::Builder::new().name("cluster".to_owned());
        let thread = thread.spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let _ = ready.send(Ok(runtime.handle().clone()));
            // Ends when the sender is dropped.
            let _ = runtime.block_on(stopped);
        })?;
        let ended = || io::Error::other("the thread ended");
        let runtime = is_ready.recv().map_err(|_| ended())??;
        Ok(Background {
            runtime,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Runs a future without waiting for it.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Runs a future and waits for its result, at most for `within`.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        within: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TimedOut> {
        self.wait_unless(&|| false, within, future)
    }

    /// Runs a future and waits for its result, at most for `within`, and until `stop` returns
    /// `true`.
    pub(crate) fn wait_unless<T: Send + 'static>(
        &self,
        stop: &dyn Fn() -> bool,
        within: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TimedOut> {
        let (result, answer) = bounded(1);
        let task = self.runtime.spawn(async move {
            let _ = result.send(future.await);
        });
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left.min(CHECK_INTERVAL)) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) if !left.is_zero() && !stop() => {}
                Err(_) => {
                    task.abort();
                    return Err(TimedOut);
                }
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn future_is_awaited_only_for_the_time_given() {
        let background = Background::start().expect("a thread");
        let second = Duration::from_secs(10);
        assert_eq!(background.wait(second, async { 7 }).ok(), Some(7));
        let never = std::future::pending::<()>();
        assert!(background.wait(Duration::from_millis(5), never).is_err());
    }
}
