//! `streamgauge completions` and `streamgauge man`: generated from the command-line arguments.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use report::io_reason;

use crate::args::{self, Cli};
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Prints a completion script for a shell.
pub(crate) fn completions(
    arguments: &args::Completions,
    console: Console,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Cli::command(),
        "streamgauge",
        &mut script,
    );
    console.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Pass)
}

/// Prints the manual page, or writes the page of every command to a folder.
pub(crate) fn man(arguments: &args::Man, console: Console) -> Result<Exit, Failure> {
    let command = Cli::command();
    let Some(folder) = &arguments.folder else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.map_err(|error| Failure::bad(io_reason(&error)))?;
        console.print(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Pass);
    };
    fs::create_dir_all(folder).map_err(|error| refused(folder, &error))?;
    clap_mangen::generate_to(command, folder).map_err(|error| refused(folder, &error))?;
    Ok(Exit::Pass)
}

fn refused(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::bad(format_args!(
        "{}: pages cannot be written there: {}; name another folder",
        folder.display(),
        io_reason(error)
    ))
}
