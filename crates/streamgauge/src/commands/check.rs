//! `streamgauge check`: what a scenario will need and do, without any traffic.

use crate::args;
use crate::commands::run;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::files;

pub(crate) fn check(arguments: &args::Check, console: Console) -> Result<Exit, Failure> {
    let scenario = run::load(&arguments.scenario, &arguments.set, None, Vec::new())?;
    if !console.quiet {
        let mut text = scenario.describe().lines().join("\n");
        text.push('\n');
        console.print(&text)?;
    }
    files::check(&scenario)?;
    console.say("the scenario is good");
    Ok(Exit::Pass)
}
