//! Program for the tests of this crate: the supervisor, and a process that launches a server and is
//! then killed.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;

use sut::{Options, Origin, Ready, SUBCOMMAND, ServerSpec, Sut};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let status = match arguments.next() {
        Some(word) if word == SUBCOMMAND => sut::supervise_main(arguments),
        Some(word) if word == "hold" => hold(arguments.collect()),
        _ => 104,
    };
    std::process::exit(status);
}

/// Launches the command and waits until it prints `ready`. Then prints the IDs of the server's
/// processes, and stops the server at the end of standard input. `--no-group` before the command
/// means no control group, `--nobody` runs it as that user.
fn hold(mut command: Vec<OsString>) -> i32 {
    let mut asked_for = |option: &str| {
        let given = command.first().is_some_and(|word| word == option);
        if given {
            command.remove(0);
        }
        given
    };
    let options = Options {
        no_cgroup: asked_for("--no-group"),
        ..Options::default()
    };
    let user = asked_for("--nobody").then(|| "65534".to_owned());
    let mut spec = ServerSpec::new(Origin::Command(command));
    spec.user = user;
    spec.ready = Some(Ready::Text("ready".to_owned()));
    let sut = match Sut::start_with(&spec, Path::new(""), &options, &|_| ()) {
        Ok(sut) => sut,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            return 1;
        }
    };
    let numbers: Vec<String> = sut.processes().iter().map(u32::to_string).collect();
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{}", numbers.join(" ")).and_then(|()| out.flush());
    let _ = std::io::stdin().read(&mut [0]);
    i32::from(!sut.stop().left_over.is_empty())
}
