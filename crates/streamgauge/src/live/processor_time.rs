//! Processor time of a piece of work.

use std::time::Duration;

/// Does some work. Returns its result, and the processor time that it took: on a busy machine, much
/// less than the time that passed.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = net::clock::thread_cpu_nanos();
    let done = work();
    let spent = net::clock::thread_cpu_nanos().saturating_sub(begun);
    (done, Duration::from_nanos(spent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_processor_does_not_count() {
        let wait = Duration::from_millis(300);
        let ((), spent) = timed(|| std::thread::park_timeout(wait));
        assert!(spent < wait / 2, "{spent:?}");
        let until = net::clock::thread_cpu_nanos() + 5_000_000;
        let ((), spent) = timed(|| while net::clock::thread_cpu_nanos() < until {});
        assert!(spent >= Duration::from_millis(4), "{spent:?}");
    }
}
