//! The run file that is being written.

use std::path::Path;

use measure::{ThresholdResult, Time, Verdict};
use net::Clock;
use runfile::{ClientRow, EventRow, Header, Noted, RunFile, RunFileError, WindowRow, fact};

use crate::machine::since_1970;

/// The run file of a run, or of the current level of a continuing run. There is none before the
/// first level and after the last one; what is written then is dropped.
pub(crate) struct Recording(pub(crate) Option<RunFile>);

/// Methods that call the run file's method of the same name, if there is a run file.
macro_rules! forward {
    ($($method:ident($($value:ident: $type:ty),*);)*) => {$(
        pub(crate) fn $method(&self, $($value: $type),*) {
            if let Some(file) = &self.0 {
                file.$method($($value),*);
            }
        }
    )*};
}

impl Recording {
    /// Creates a run file. An existing one is an error, unless it may be overwritten.
    pub(crate) fn create(
        path: &Path,
        overwrite: bool,
        header: &Header,
    ) -> Result<Recording, RunFileError> {
        let file = match overwrite {
            true => RunFile::create_over(path, header)?,
            false => RunFile::create(path, header)?,
        };
        Ok(Recording(Some(file)))
    }

    /// Notes the begin of the recording, which is a time of the run.
    pub(crate) fn note_begin(&self, clock: &Clock, begin: Time) {
        // CLOCK_MONOTONIC is the same in all processes of the machine, so their times can be
        // compared.
        let monotonic = clock.to_monotonic_nanos(begin);
        let started_at = since_1970(clock) + begin.since_start();
        self.note(fact::CLOCK_MONOTONIC_NANOS.of(&monotonic));
        self.note(fact::STARTED_AT.of(&started_at.as_secs_f64()));
    }

    forward! {
        note(noted: Noted);
        event(row: EventRow);
        client(row: ClientRow);
        window(row: WindowRow);
        verdict(verdict: &Verdict, thresholds: &[ThresholdResult]);
    }

    /// Returns the error that ended writing, if any.
    pub(crate) fn error(&self) -> Option<RunFileError> {
        self.0.as_ref().and_then(RunFile::error)
    }

    /// Removes the run file of a run that could not begin.
    pub(crate) fn discard(self) {
        if let Some(file) = self.0 {
            file.discard();
        }
    }

    /// Closes the run file as a complete one.
    pub(crate) fn finish(&mut self) -> Option<RunFileError> {
        self.0.take().and_then(|file| file.finish().err())
    }
}
