//! Notes of a worker for the run's list of events.

use std::collections::HashMap;

use crossbeam_channel::Sender;
use measure::Time;

use crate::messages::WorkerReport;

/// Maximum number of notes of one kind that are reported individually. The rest is summed up at the
/// end.
const NOTES_PER_KIND_MAX: u64 = 100;

/// Notes of a worker, limited by kind.
pub(super) struct Notes {
    reports: Sender<WorkerReport>,
    counts: HashMap<&'static str, u64>,
}

impl Notes {
    pub(super) fn new(reports: Sender<WorkerReport>) -> Notes {
        Notes {
            reports,
            counts: HashMap::new(),
        }
    }

    /// Reports a note unless there were too many of its kind.
    pub(super) fn add(
        &mut self,
        at: Time,
        kind: &'static str,
        subject: Option<&str>,
        text: String,
    ) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= NOTES_PER_KIND_MAX {
            self.report(at, kind, subject.map(str::to_owned), text);
        }
    }

    /// Reports how many notes of each kind were omitted.
    pub(super) fn report_omitted(&mut self, at: Time, worker: u32) {
        for (kind, count) in std::mem::take(&mut self.counts) {
            if let Some(more @ 1..) = count.checked_sub(NOTES_PER_KIND_MAX) {
                let text = format!("{more} more of this kind on worker {worker}");
                self.report(at, kind, None, text);
            }
        }
    }

    fn report(&self, at: Time, kind: &'static str, subject: Option<String>, text: String) {
        // The coordinator ends only after it has ended its workers, so a report that cannot be sent
        // is not needed.
        let _ = self.reports.send(WorkerReport::Event {
            at,
            kind,
            subject,
            text,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_beyond_the_limit_of_their_kind_are_summed_up() {
        let (reports, sent_reports) = crossbeam_channel::unbounded();
        let mut notes = Notes::new(reports);
        for _ in 0..NOTES_PER_KIND_MAX + 3 {
            notes.add(Time::ZERO, "many", Some("players"), "one".to_owned());
        }
        notes.add(Time::ZERO, "few", None, "one".to_owned());
        notes.report_omitted(Time::ZERO, 7);
        let texts: Vec<_> = sent_reports
            .try_iter()
            .map(|report| match report {
                WorkerReport::Event {
                    kind,
                    subject,
                    text,
                    ..
                } => (kind, subject, text),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts.len() as u64, NOTES_PER_KIND_MAX + 2);
        assert_eq!(texts[0].1.as_deref(), Some("players"));
        let last = texts.last().expect("some");
        assert_eq!(
            (last.0, &*last.2),
            ("many", "3 more of this kind on worker 7")
        );
    }
}
