//! `streamgauge report`: a run again, out of its run file, or a series out of its folder.

use crate::args;
use crate::commands::play::report_file;
use crate::commands::series;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::output::{Force, Outputs};

/// Ends with 0 whatever the run came to: the question is what it was, not whether it passed.
pub(crate) fn report(arguments: &args::Report, console: Console) -> Result<Exit, Failure> {
    let (json, html) = (arguments.json.as_deref(), arguments.html.as_deref());
    let outputs = Outputs::claim(json, html, Force::Unknown)?;
    if arguments.run.is_dir() {
        series::show(&arguments.run, outputs, console)?;
    } else {
        report_file(&arguments.run, outputs, console)?;
    }
    Ok(Exit::Pass)
}
