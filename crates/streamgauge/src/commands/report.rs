//! `streamgauge report`: a run again, out of its run file, or a series out of its folder.

use crate::args;
use crate::commands::play::report_file;
use crate::commands::series;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::force::Force;
use crate::output::Outputs;

/// Ends with 0 whatever the run came to: the question is what it was, not whether it passed.
pub(crate) fn report(arguments: &args::Report, console: Console) -> Result<Exit, Failure> {
    let outputs = Outputs::claim(&arguments.reports, Force::Unknown)?;
    if arguments.run.is_dir() {
        series::show(&arguments.run, outputs, console)?;
    } else {
        report_file(&arguments.run, outputs, console)?;
    }
    Ok(Exit::Pass)
}
