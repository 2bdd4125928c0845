//! `streamgauge check`: what a scenario will need and do, without any traffic.

use scenario::Plan;

use crate::args;
use crate::commands::{run, series};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::files;

pub(crate) fn check(arguments: &args::Check, console: Console) -> Result<Exit, Failure> {
    let plan = run::load(&arguments.scenario, &arguments.set, None, Vec::new())?;
    let (mut lines, first) = match &plan {
        Plan::Run(scenario) => (Vec::new(), scenario.as_ref().clone()),
        Plan::Series(series) => {
            let mut lines = series.lines();
            lines.push("the first of them:".to_owned());
            (lines, series.scenario(0).map_err(Failure::diagnostic)?)
        }
    };
    if !console.quiet {
        lines.extend_from_slice(first.describe().lines());
        let mut text = lines.join("\n");
        text.push('\n');
        console.print(&text)?;
    }
    match &plan {
        Plan::Run(scenario) => files::check(scenario)?,
        Plan::Series(series) => series::check(series)?,
    }
    console.say("the scenario is good");
    Ok(Exit::Pass)
}
