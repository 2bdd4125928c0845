//! What a worker says for the list of events.

use std::collections::HashMap;

use crossbeam_channel::Sender;
use measure::Time;

use crate::messages::WorkerReport;

/// How many notes of a kind are passed on one by one; the others are told of together, at the end.
const NOTES_OF_A_KIND: u64 = 100;

/// The notes of a worker, bounded by kind.
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

    /// Passes a note on, as long as there were not too many of its kind.
    pub(super) fn add(
        &mut self,
        at: Time,
        kind: &'static str,
        subject: Option<&str>,
        text: String,
    ) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= NOTES_OF_A_KIND {
            self.report(at, kind, subject.map(str::to_owned), text);
        }
    }

    /// Says how many were left out.
    pub(super) fn tell_of_left_out(&mut self, at: Time, worker: u32) {
        for (kind, count) in std::mem::take(&mut self.counts) {
            if let Some(more @ 1..) = count.checked_sub(NOTES_OF_A_KIND) {
                let text = format!("{more} more of this kind on worker {worker}");
                self.report(at, kind, None, text);
            }
        }
    }

    fn report(&self, at: Time, kind: &'static str, subject: Option<String>, text: String) {
        // Without a coordinator nobody wants to know: it is gone only after it has let us end.
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
    fn notes_beyond_the_bound_of_their_kind_are_told_of_together() {
        let (reports, said) = crossbeam_channel::unbounded();
        let mut notes = Notes::new(reports);
        for _ in 0..NOTES_OF_A_KIND + 3 {
            notes.add(Time::ZERO, "many", Some("players"), "one".to_owned());
        }
        notes.add(Time::ZERO, "few", None, "one".to_owned());
        notes.tell_of_left_out(Time::ZERO, 7);
        let texts: Vec<_> = said
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
        assert_eq!(texts.len() as u64, NOTES_OF_A_KIND + 2);
        assert_eq!(texts[0].1.as_deref(), Some("players"));
        let last = texts.last().expect("some");
        assert_eq!(
            (last.0, &*last.2),
            ("many", "3 more of this kind on worker 7")
        );
    }
}
