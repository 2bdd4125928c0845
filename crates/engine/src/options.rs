//! Options of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use measure::{Build, Window};

use crate::network::target_filter::TargetFilter;

/// Options of a run that are not part of the scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Path of the run file.
    pub run_file: PathBuf,
    /// Whether an existing run file may be replaced.
    pub overwrite: bool,
    /// Program version for the run file.
    pub version: String,
    /// Program build for the run file. Default: unknown.
    pub build: Option<Build>,
    /// Clients to trace, such as `viewers/17`, or `17` if there is only one population; at most 8.
    /// Trace files are written next to the run file. Default: none.
    pub trace: Vec<String>,
    /// Whether to ask the servers for media descriptions of all URLs before the run begins.
    /// Default: no.
    pub describe: bool,
    /// Command line that repeats the run; its secrets are masked in the run file. If empty, none is
    /// stored.
    pub command: String,
    /// For a run that goes on after the end of its coordinator: figures of the server in each
    /// window that the first one had kept. Default: the run begins here.
    pub earlier: Option<BTreeMap<u64, Window>>,
    /// Targets that the clients may send to. Default: any.
    pub targets: TargetFilter,
}
