//! `streamgauge servers`: lists the servers that can be launched, and which of them are installed
//! here.

use std::fmt::Write;
use std::path::PathBuf;

use scenario::{EntryReady, ServerEntry};
use serde_json::{Value, json};
use sut::catalogue::{self, CatalogueServer};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Lists all servers, or shows one.
pub(crate) fn servers(arguments: &args::Servers, console: Console) -> Result<Exit, Failure> {
    match &arguments.name {
        Some(name) => show(name, arguments, console),
        None => list(arguments, console),
    }
}

/// Installation of a server on this machine.
struct Installation {
    program: Option<PathBuf>,
    /// Version, or the reason why it is unknown.
    version: Result<Option<String>, String>,
}

impl Installation {
    fn of(entry: &ServerEntry) -> Installation {
        let program = catalogue::installed(entry);
        let version = match &program {
            Some(program) => catalogue::version(entry, program).map_err(|error| error.to_string()),
            None => Ok(None),
        };
        Installation { program, version }
    }

    fn version(&self) -> &str {
        match &self.version {
            Ok(Some(version)) => version,
            Ok(None) => "-",
            Err(_) => "?",
        }
    }
}

fn list(arguments: &args::Servers, console: Console) -> Result<Exit, Failure> {
    let all = catalogue::list().map_err(Failure::bad)?;
    let here = query_programs(&all);
    if arguments.json {
        let entries = all.iter().zip(&here);
        let entries = entries.map(|(listed, here)| json(listed, here.as_ref()));
        console.print_json(&entries.collect())?;
    } else {
        console.print(&table(&all, &here))?;
    }
    Ok(Exit::Pass)
}

/// Queries all programs at once, because each takes time to answer.
fn query_programs(all: &[CatalogueServer]) -> Vec<Option<Installation>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .iter()
            .map(|listed| scope.spawn(|| listed.entry.as_ref().ok().map(Installation::of)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("looking for a program does not panic"))
            .collect()
    })
}

fn table(all: &[CatalogueServer], here: &[Option<Installation>]) -> String {
    let mut rows = vec![["NAME", "PROTOCOLS", "VERSION", "INSTALLED", "WHAT"].map(str::to_owned)];
    let mut wrong = String::new();
    for (listed, here) in all.iter().zip(here) {
        match (&listed.entry, here) {
            (Ok(entry), Some(here)) => rows.push([
                listed.name.clone(),
                entry.protocols.join(", "),
                here.version().to_owned(),
                here.program
                    .as_ref()
                    .map_or_else(|| "no".to_owned(), |path| path.display().to_string()),
                entry.summary.clone(),
            ]),
            (Err(error), _) => {
                for problem in error.problems() {
                    let position = problem.position().unwrap_or_else(|| listed.name.clone());
                    let help = problem.help_text().map(|help| format!(": {help}"));
                    let help = help.unwrap_or_default();
                    let _ = writeln!(wrong, "  {position}: {}{help}", problem.message());
                }
            }
            (Ok(_), None) => {}
        }
    }
    let mut text = columns(&rows);
    if !wrong.is_empty() {
        let _ = write!(text, "\nThese cannot be used:\n{wrong}");
    }
    text.push_str(
        "\n`streamgauge servers NAME` shows how a server is started, and how to install it.\n",
    );
    text
}

/// Aligns the columns of these rows.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn show(name: &str, arguments: &args::Servers, console: Console) -> Result<Exit, Failure> {
    let mut listed = catalogue::find(name).map_err(Failure::bad)?;
    let entry = listed.entry.map_err(Failure::diagnostic)?;
    if arguments.yaml {
        console.print(&entry.text)?;
        return Ok(Exit::Pass);
    }
    let here = Installation::of(&entry);
    listed.entry = Ok(entry);
    match &listed.entry {
        Ok(_) if arguments.json => console.print_json(&json(&listed, Some(&here)))?,
        Ok(entry) => console.print(&in_full(&listed, entry, &here))?,
        Err(_) => {}
    }
    Ok(Exit::Pass)
}

fn in_full(listed: &CatalogueServer, entry: &ServerEntry, here: &Installation) -> String {
    let mut text = format!("{entry}\n\n");
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "  {key:<13} {value}");
    };
    line("protocols", &entry.protocols.join(", "));
    match &here.program {
        Some(program) => line("installed", &program.display().to_string()),
        None => line("installed", &format!("no: {}", entry.missing.trim_end())),
    }
    match &here.version {
        Ok(Some(version)) => line("version", version),
        Ok(None) => {}
        Err(error) => line("version", &format!("unknown: {error}")),
    }
    match &listed.file {
        Some(file) => line("entry", &file.display().to_string()),
        None => line("entry", "built into streamgauge"),
    }
    line("command", &entry.command.join(" "));
    for (name, value) in &entry.environment {
        line("environment", &format!("{name}={value}"));
    }
    match &entry.needs_root {
        Some(reason) => line("user", &format!("as streamgauge, because {reason}")),
        None => line("user", "65534 (nobody) if streamgauge is root"),
    }
    line("port", &entry.port.to_string());
    let ready = match &entry.ready {
        EntryReady::Port => "it owns its port, and the port accepts a connection".to_owned(),
        EntryReady::Urls => "it owns its port, and describes each of its URLs".to_owned(),
        EntryReady::Line(line) => format!("it owns its port, and has printed `{line}`"),
        EntryReady::Pattern(pattern) => {
            format!("it owns its port, and has printed a line that matches `{pattern}`")
        }
    };
    line("ready when", &ready);
    line("clips", entry.clips.name());
    line("groups", entry.groups.name());
    for url in &entry.urls {
        line("URL", url);
    }
    if let Some(config) = &entry.config {
        let _ = writeln!(text, "\n{}:\n", config.name);
        for line in config.text.lines() {
            let _ = writeln!(text, "{}", format!("    {line}").trim_end());
        }
    }
    if !entry.notes.is_empty() {
        text.push_str("\nNotes:\n");
        for note in &entry.notes {
            let _ = writeln!(text, "  - {}", note.trim_end());
        }
    }
    text
}

fn json(listed: &CatalogueServer, here: Option<&Installation>) -> Value {
    let file = listed.file.as_ref().map(|file| file.display().to_string());
    let entry = match &listed.entry {
        Ok(entry) => entry,
        Err(error) => {
            let problems: Vec<Value> = error
                .problems()
                .iter()
                .map(|problem| {
                    json!({ "place": problem.position(), "message": problem.message(), "help": problem.help_text() })
                })
                .collect();
            return json!({ "name": listed.name, "file": file, "problems": problems });
        }
    };
    let program = here.and_then(|here| here.program.as_ref());
    let version = here.and_then(|here| here.version.as_ref().ok()?.as_ref());
    json!({
        "name": listed.name,
        "file": file,
        "summary": entry.summary,
        "protocols": entry.protocols,
        "installed": program.map(|path| path.display().to_string()),
        "version": version,
        "missing": entry.missing.trim_end(),
        "command": entry.command,
        "port": entry.port,
        "clips": entry.clips.name(),
        "groups": entry.groups.name(),
        "urls": entry.urls,
        "config": entry.config.as_ref().map(|config| {
            json!({ "name": config.name, "text": config.text })
        }),
        "notes": entry.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "bé", ""], ["long", "b", "c"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "a     bé\nlong  b   c\n");
    }

    #[test]
    fn server_is_shown_with_its_command_and_template() {
        let listed = catalogue::find("tvgate").expect("it is built in");
        let entry = listed.entry.as_ref().expect("it is good");
        let here = Installation {
            program: None,
            version: Ok(None),
        };
        let text = in_full(&listed, entry, &here);
        for part in [
            "installed     no: build it from",
            "{program} -config={config}",
            "config.yaml:\n\n    server:\n      port: {port}\n",
            "http://{host}:{port}/{group_kind}/{group}:{group_port}",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
