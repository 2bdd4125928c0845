//! `streamgauge report`: reports a run again from its run file, or a series from its folder.

use crate::args;
use crate::commands::play::report_file;
use crate::commands::series;
use crate::exit::{Exit, Failure};
use crate::output::Outputs;
use crate::output::overwrite::Force;
use crate::output::runs_folder::RunsFolder;
use crate::ui::console::Console;

/// Exits with 0 whatever the verdict: the command reports it and does not judge it.
pub(crate) fn report(arguments: &args::Report, console: Console) -> Result<Exit, Failure> {
    let runs = RunsFolder::of_environment();
    let run = match &arguments.run {
        Some(named) => runs.find(named),
        None => runs.newest()?,
    };
    let reports = &arguments.reports;
    let outputs = Outputs::claim(&reports.reports, Force::of(reports.force))?;
    if run.is_dir() {
        series::show(&run, outputs, console)?;
    } else {
        report_file(&run, outputs, console)?;
    }
    Ok(Exit::Pass)
}
