//! The command: parses arguments and returns exit codes.

mod args;
mod commands;
mod exit;
mod live;
mod output;
mod runners;
mod ui;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, CommandFactory, FromArgMatches};

use crate::args::{Cli, Command};
use crate::exit::Exit;
use crate::ui::console::Console;

/// Exits with 110, like an overloaded tester, if memory runs out.
#[global_allocator]
static MEMORY: net::allocator::ExitOnOutOfMemory = net::allocator::ExitOnOutOfMemory(110);

fn main() -> ExitCode {
    // Comes before the parsing of arguments: the command line of a supervised server is not for
    // streamgauge.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == sut::SUBCOMMAND)
    {
        let code = sut::supervise_main(arguments);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    // Before there are other threads, which inherit it.
    net::capability::raise_net_raw();
    protocols::install();
    let mut command = Cli::command().color(colour_of_help(std::env::args_os().skip(1)));
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::DisplayVersion => {
            return print_version();
        }
        Err(error) => {
            let arguments = std::env::args_os().skip(1);
            let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
            let error = match negative_value(&error, &arguments.collect::<Vec<_>>(), &command) {
                Some(message) => command.error(ErrorKind::InvalidValue, message),
                None => error.format(&mut command),
            };
            // A closed output is ignored: nobody reads it.
            let _ = error.print();
            return exit_of(&error).into();
        }
    };
    let console = Console::new(cli.global);
    let outcome = match cli.command {
        Command::Demo(arguments) => commands::demo::demo(&arguments, console),
        Command::Load(arguments) => commands::load::load(&arguments, console),
        Command::Capacity(arguments) => commands::capacity::capacity(&arguments, console),
        Command::Run(arguments) => commands::run::run(&arguments, console),
        Command::Calibrate(arguments) => commands::calibrate::calibrate(&arguments, console),
        Command::Check(arguments) => commands::check::check(&arguments, console),
        Command::Serve(arguments) => commands::serve::serve(arguments, console),
        Command::Send(arguments) => commands::send::send(&arguments, console),
        Command::Receive(arguments) => commands::receive::receive(&arguments, console),
        Command::Runner(arguments) => commands::runner::runner(&arguments, console),
        Command::Cluster(arguments) => commands::cluster::cluster(&arguments, console),
        Command::Link(arguments) => commands::link::link(&arguments, console),
        Command::Report(arguments) => commands::report::report(&arguments, console),
        Command::Compare(arguments) => commands::compare::compare(&arguments, console),
        Command::Metrics(arguments) => commands::listings::metrics(&arguments, console),
        Command::Servers(arguments) => commands::servers::servers(&arguments, console),
        Command::Schema(arguments) => commands::listings::schema(&arguments, console),
        Command::Completions(arguments) => commands::manual::completions(&arguments, console),
        Command::Man(arguments) => commands::manual::man(&arguments, console),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            console.fail(&failure);
            failure.exit.into()
        }
    }
}

fn print_version() -> ExitCode {
    // A closed output is ignored: nobody reads it.
    let _ = io::stdout().write_all(ui::version::text().as_bytes());
    Exit::Pass.into()
}

/// Returns whether help and errors of arguments have colours, which must be known before the
/// arguments are parsed.
fn colour_of_help(arguments: impl Iterator<Item = std::ffi::OsString>) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut is_value = false;
    for argument in arguments.take_while(|argument| argument != "--") {
        let text = argument.to_string_lossy();
        let value = match text.strip_prefix("--color") {
            Some("") => {
                is_value = true;
                continue;
            }
            Some(rest) => rest.strip_prefix('='),
            None if text == "--no-color" => Some("never"),
            None => is_value.then_some(text.as_ref()),
        };
        is_value = false;
        choice = match value {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            Some("auto") => ColorChoice::Auto,
            _ => choice,
        };
    }
    choice
}

/// Returns what to say of a negative value such as `-3s`, which the parser takes for a flag.
fn negative_value(
    error: &clap::Error,
    arguments: &[String],
    command: &clap::Command,
) -> Option<String> {
    let is_negative = |argument: &str| {
        let digits = argument.strip_prefix('-');
        digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    let wrong = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(wrong) if is_negative(wrong) => wrong,
        _ => return None,
    };
    let mut pairs = arguments.windows(2);
    let pair = pairs.find(|pair| {
        pair[1].starts_with(wrong.as_str()) && is_option_with_value(&pair[0], arguments, command)
    })?;
    Some(format!(
        "`{} {}`: the value must not be negative",
        pair[0], pair[1]
    ))
}

/// Returns `true` if the commands that the arguments name have this option, and it takes a value.
fn is_option_with_value(option: &str, arguments: &[String], command: &clap::Command) -> bool {
    let named = std::iter::successors(Some(command), |at| {
        arguments.iter().find_map(|name| at.find_subcommand(name))
    });
    let mut options = named.flat_map(clap::Command::get_arguments);
    options.any(|one| {
        let is_long = |name: &str| one.get_long() == Some(name);
        let is_short = |name: &str| one.get_short().is_some_and(|c| name == c.to_string());
        let is_named = match option.strip_prefix("--") {
            Some(long) => is_long(long),
            None => option.strip_prefix('-').is_some_and(is_short),
        };
        is_named && one.get_action().takes_values()
    })
}

/// Help and version are results; every other error is a wrong argument.
fn exit_of(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        Exit::Bad
    } else {
        Exit::Pass
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn help_follows_the_colour_options() {
        for (line, choice) in [
            ("run --help", ColorChoice::Auto),
            ("--color always --help", ColorChoice::Always),
            ("run --color=never --help", ColorChoice::Never),
            ("--color always run --no-color", ColorChoice::Never),
            ("serve rtsp -- --color never", ColorChoice::Auto),
        ] {
            let arguments = line.split(' ').map(std::ffi::OsString::from);
            assert_eq!(colour_of_help(arguments), choice, "{line}");
        }
    }

    #[test]
    fn wrong_arguments_exit_with_104_and_help_with_0() {
        for (line, code) in [
            ("streamgauge --help", 0),
            ("streamgauge load --help", 0),
            ("streamgauge --version", 0),
            ("streamgauge", 104),
            ("streamgauge lod", 104),
            ("streamgauge run", 104),
            ("streamgauge load", 104),
            ("streamgauge demo -c 0", 104),
            ("streamgauge demo -c many", 104),
            ("streamgauge demo -d 8", 104),
            ("streamgauge demo -q -v", 104),
            ("streamgauge serve rtsp --port 70000", 104),
            ("streamgauge serve rtsp --bitrate 1", 104),
            ("streamgauge send", 104),
            ("streamgauge serve http-ts --max-clients 0", 104),
            ("streamgauge send udp://239.81.0.1:4056 --ttl 0", 104),
            ("streamgauge receive --listen 10.0.0.1", 104),
            ("streamgauge receive --ports 40001..", 104),
            ("streamgauge servers --yaml", 104),
            ("streamgauge serve rtsp --fps 0", 104),
            (
                "streamgauge load rtsp://h/a --ramp 2s --arrivals 5/s -c 9",
                104,
            ),
            ("streamgauge load rtsp://h/a --pid 1 --launch vlc", 104),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err("it parses to no command");
            assert_eq!(exit_of(&error).code(), code, "{line}: {error}");
        }
    }

    #[test]
    fn negative_value_is_not_taken_for_a_flag() {
        let said = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            protocols::install();
            let mut command = Cli::command();
            let all = std::iter::once("streamgauge".to_owned()).chain(arguments.clone());
            let error = command
                .try_get_matches_from_mut(all)
                .expect_err("it is wrong");
            negative_value(&error, &arguments, &command)
        };
        let refused = |text| Some(format!("`{text}`: the value must not be negative"));
        assert_eq!(said("load -d -3s rtsp://h/a"), refused("-d -3s"));
        assert_eq!(said("load rtsp://h/a --ramp -.5s"), refused("--ramp -.5s"));
        for line in [
            "load rtsp://h/a -q -3",
            "load rtsp://h/a -x",
            "load rtsp://h/a --none -3",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
