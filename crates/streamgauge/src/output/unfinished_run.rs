//! A run whose coordinator has ended, from its unfinished run file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cluster::{RUN_STATE, RunState};
use measure::Window;
use runfile::{RunFile, fact};

use crate::exit::Failure;

/// A run that can go on.
pub(crate) struct UnfinishedRun {
    pub(crate) path: PathBuf,
    pub(crate) state: RunState,
    /// Figures of the server in each window that was kept.
    pub(crate) server: BTreeMap<u64, Window>,
}

impl UnfinishedRun {
    /// Reads what the run file of an unfinished run has.
    pub(crate) fn open(path: &Path) -> Result<UnfinishedRun, Failure> {
        let bad = |why: &dyn std::fmt::Display| {
            Failure::bad(format_args!("--resume {}: {why}", path.display()))
        };
        let reader = report::open(path, engine::catalogue_of).map_err(|error| bad(&error))?;
        if reader.is_finished().map_err(|error| bad(&error))? {
            return Err(bad(&"the run has ended, and its run file is complete"));
        }
        // A coordinator that lives has locked it.
        RunFile::check(path, true).map_err(|error| bad(&error))?;
        let held = reader.fact(&fact::HELD).map_err(|error| bad(&error))?;
        if held.is_some() {
            return Err(bad(&"a user has held its plan, which is not repeated"));
        }
        let stopped_at = reader.fact(&fact::STOPPED_AT);
        if stopped_at.map_err(|error| bad(&error))?.is_some() {
            return Err(bad(
                &"the run was ending already: `streamgauge report` shows what it has",
            ));
        }
        let state = reader.fact(&RUN_STATE).map_err(|error| bad(&error))?;
        let state = state.ok_or_else(|| {
            bad(&"it is no run over runners (`--runners` with `--at`), or it had not begun")
        })?;
        let mut server = BTreeMap::new();
        for row in reader.windows() {
            let mut row = row.map_err(|error| bad(&error))?;
            if let Some(window) = row.subjects.remove("server") {
                server.insert(row.index, window);
            }
        }
        Ok(UnfinishedRun {
            path: path.to_owned(),
            state,
            server,
        })
    }
}
