//! Merging the windows of several workers.

use std::collections::BTreeMap;

use measure::{Catalogue, Time, Window};

/// Merges the windows of all workers and returns them in order, each as soon as it is complete.
///
/// Buffers as many windows as the fastest worker is ahead of the slowest.
#[derive(Debug)]
pub(crate) struct WindowMerger {
    catalogues: Vec<Catalogue>,
    tester: Catalogue,
    /// Number of windows that each worker has sent; `None` once it has ended.
    sent: Vec<Option<u64>>,
    open: BTreeMap<u64, MergedWindow>,
    next: u64,
}

/// A window of the run, merged over workers.
#[derive(Clone, Debug)]
pub(crate) struct MergedWindow {
    pub(crate) index: u64,
    pub(crate) begins: Time,
    pub(crate) seconds: f64,
    pub(crate) populations: Vec<Window>,
    pub(crate) tester: Window,
}

impl WindowMerger {
    pub(crate) fn new(
        workers: usize,
        catalogues: Vec<Catalogue>,
        tester: Catalogue,
    ) -> WindowMerger {
        WindowMerger {
            catalogues,
            tester,
            sent: vec![Some(0); workers],
            open: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds one worker's part of a window.
    pub(crate) fn add(&mut self, worker: u32, part: MergedWindow) {
        if let Some(Some(sent)) = self.sent.get_mut(worker as usize) {
            *sent = part.index + 1;
        }
        let index = part.index;
        match self.open.get_mut(&index) {
            None => {
                self.open.insert(index, part);
            }
            Some(whole) => {
                whole.seconds = whole.seconds.max(part.seconds);
                let parts = whole.populations.iter_mut().zip(&part.populations);
                for ((ours, theirs), &catalogue) in parts.zip(&self.catalogues) {
                    ours.merge(theirs, catalogue);
                }
                whole.tester.merge(&part.tester, self.tester);
            }
        }
    }

    /// Marks a worker as ended: it sends no more windows.
    pub(crate) fn worker_ended(&mut self, worker: u32) {
        if let Some(sent) = self.sent.get_mut(worker as usize) {
            *sent = None;
        }
    }

    /// Returns the next window once all running workers have sent their part of it.
    pub(crate) fn take(&mut self) -> Option<MergedWindow> {
        let complete = self.sent.iter().flatten().all(|&sent| sent > self.next);
        if !complete {
            return None;
        }
        let window = self.open.remove(&self.next)?;
        self.next += 1;
        Some(window)
    }

    /// True if all workers have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.sent.iter().all(Option::is_none)
    }

    /// Workers that have not ended.
    pub(crate) fn running_workers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.sent)
            .filter(|(_, sent)| sent.is_some())
            .map(|(worker, _)| worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::tester::{SOCKET_OVERFLOW, TESTER_CATALOGUE};

    fn part(index: u64, overflow: u64, seconds: f64) -> MergedWindow {
        let mut recorder = measure::Recorder::new(TESTER_CATALOGUE);
        recorder.add(SOCKET_OVERFLOW, overflow);
        MergedWindow {
            index,
            begins: Time::from_nanos(index),
            seconds,
            populations: Vec::new(),
            tester: recorder.take_window(),
        }
    }

    #[test]
    fn window_waits_for_slow_workers_but_not_for_ended_ones() {
        let mut assembly = WindowMerger::new(3, Vec::new(), TESTER_CATALOGUE);
        assembly.add(0, part(0, 1, 1.0));
        assembly.add(0, part(1, 2, 1.0));
        assembly.add(1, part(0, 4, 1.0));
        assert!(assembly.take().is_none());
        assembly.add(2, part(0, 8, 0.5));
        assembly.worker_ended(2);
        let first = assembly.take().expect("complete");
        assert_eq!((first.index, first.seconds), (0, 1.0));
        assert_eq!(first.tester.counters[usize::from(SOCKET_OVERFLOW.0)], 13);
        assert!(assembly.take().is_none());
        assembly.worker_ended(1);
        assert_eq!(assembly.take().expect("worker 0's alone").index, 1);
        assert!(assembly.take().is_none());
        assert!(!assembly.is_over());
        assembly.worker_ended(0);
        assert!(assembly.is_over());
    }
}
