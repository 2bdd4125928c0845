//! The run file that is being written.

use measure::{ThresholdResult, Verdict};
use runfile::{ClientRow, EventRow, Noted, RunFile, RunFileError, WindowRow};

/// The run file of a run, or of the current level of a continuing run. There is none before the
/// first level and after the last one; what is written then is dropped.
pub(crate) struct Recording(pub(crate) Option<RunFile>);

impl Recording {
    pub(crate) fn note(&self, noted: Noted) {
        if let Some(file) = &self.0 {
            file.note(noted);
        }
    }

    pub(crate) fn event(&self, row: EventRow) {
        if let Some(file) = &self.0 {
            file.event(row);
        }
    }

    pub(crate) fn client(&self, row: ClientRow) {
        if let Some(file) = &self.0 {
            file.client(row);
        }
    }

    pub(crate) fn window(&self, row: WindowRow) {
        if let Some(file) = &self.0 {
            file.window(row);
        }
    }

    pub(crate) fn verdict(&self, verdict: &Verdict, thresholds: &[ThresholdResult]) {
        if let Some(file) = &self.0 {
            file.verdict(verdict, thresholds);
        }
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
