//! Merging the windows of several members: of the workers of a runner, or of the runners of a run.

use std::collections::BTreeMap;

use measure::{Catalogue, GaugeId, Time, Window, tester};

/// Merges the windows of all members and returns them in order, each as soon as it is complete.
///
/// Buffers as many windows as the fastest member is ahead of the slowest.
#[derive(Debug)]
pub struct WindowMerger<T> {
    catalogues: Vec<Catalogue>,
    /// Number of windows that each member has sent; `None` once it has ended.
    sent: Vec<Option<u64>>,
    open: BTreeMap<u64, MergedWindow<T>>,
    next: u64,
}

/// Figures of one window, merged over members.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedWindow<T> {
    /// Number of the window, from 0.
    pub index: u64,
    /// Start of the window.
    pub begins: Time,
    /// Length of the window. The last one of a member may be shorter than a second.
    pub seconds: f64,
    /// Figures of the clients, by population.
    pub populations: Vec<Window>,
    /// Figures of each member itself.
    pub testers: Vec<TesterPart<T>>,
}

/// Figures of a member itself in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct TesterPart<T> {
    /// Number of the member.
    pub member: u32,
    /// Length of its window, which may be shorter than that of others.
    pub seconds: f64,
    pub figures: T,
}

impl MergedWindow<Window> {
    /// Figures of the tester, merged over workers.
    pub(crate) fn tester(&self) -> Window {
        merge_testers(self.testers.iter().map(|part| &part.figures))
    }
}

/// Level of a gauge in a window; `None` if it was not sampled.
pub(crate) fn gauge_of(window: &Window, gauge: GaugeId) -> Option<f64> {
    window.gauges.get(usize::from(gauge.0)).copied().flatten()
}

/// Merges windows of the tester.
pub(crate) fn merge_testers<'a>(windows: impl IntoIterator<Item = &'a Window>) -> Window {
    let mut windows = windows.into_iter();
    let Some(first) = windows.next() else {
        return Window::empty(tester::TESTER_CATALOGUE);
    };
    let mut merged = first.clone();
    for window in windows {
        merged.merge(window, tester::TESTER_CATALOGUE);
    }
    merged
}

impl<T> WindowMerger<T> {
    /// Creates a merger for `members` members, whose populations have these catalogues.
    pub fn new(members: usize, catalogues: Vec<Catalogue>) -> WindowMerger<T> {
        WindowMerger {
            catalogues,
            sent: vec![Some(0); members],
            open: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds one member's part of a window.
    pub fn add(&mut self, member: u32, part: MergedWindow<T>) {
        if let Some(Some(sent)) = self.sent.get_mut(member as usize) {
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
                whole.testers.extend(part.testers);
            }
        }
    }

    /// Number of windows that a member has sent; 0 once it has ended.
    pub fn sent_by(&self, member: u32) -> u64 {
        let sent = self.sent.get(member as usize).copied().flatten();
        sent.unwrap_or(0)
    }

    /// Marks a member as ended: it sends no more windows.
    pub fn member_ended(&mut self, member: u32) {
        if let Some(sent) = self.sent.get_mut(member as usize) {
            *sent = None;
        }
    }

    /// Returns the next window once all running members have sent their part of it.
    pub fn take(&mut self) -> Option<MergedWindow<T>> {
        let complete = self.sent.iter().flatten().all(|&sent| sent > self.next);
        if !complete {
            return None;
        }
        let window = self.open.remove(&self.next)?;
        self.next += 1;
        Some(window)
    }

    /// True if all members have ended.
    pub fn is_over(&self) -> bool {
        self.sent.iter().all(Option::is_none)
    }

    /// Members that have not ended.
    pub fn running_members(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.sent)
            .filter(|(_, sent)| sent.is_some())
            .map(|(member, _)| member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::tester::{SOCKET_OVERFLOW, TESTER_CATALOGUE};

    fn part(index: u64, overflow: u64, seconds: f64) -> MergedWindow<Window> {
        let mut recorder = measure::Recorder::new(TESTER_CATALOGUE);
        recorder.add(SOCKET_OVERFLOW, overflow);
        MergedWindow {
            index,
            begins: Time::from_nanos(index),
            seconds,
            populations: Vec::new(),
            testers: vec![TesterPart {
                member: 0,
                seconds,
                figures: recorder.take_window(),
            }],
        }
    }

    #[test]
    fn window_waits_for_slow_workers_but_not_for_ended_ones() {
        let mut assembly = WindowMerger::new(3, Vec::new());
        assembly.add(0, part(0, 1, 1.0));
        assembly.add(0, part(1, 2, 1.0));
        assembly.add(1, part(0, 4, 1.0));
        assert!(assembly.take().is_none());
        assembly.add(2, part(0, 8, 0.5));
        assembly.member_ended(2);
        let first = assembly.take().expect("complete");
        assert_eq!((first.index, first.seconds), (0, 1.0));
        assert_eq!(first.tester().counters[usize::from(SOCKET_OVERFLOW.0)], 13);
        assert!(assembly.take().is_none());
        assembly.member_ended(1);
        assert_eq!(assembly.take().expect("worker 0's alone").index, 1);
        assert!(assembly.take().is_none());
        assert!(!assembly.is_over());
        assembly.member_ended(0);
        assert!(assembly.is_over());
    }
}
