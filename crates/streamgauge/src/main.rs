//! The command: arguments in, exit codes out.

mod args;
mod commands;
mod console;
mod exit;
mod files;
mod output;
mod place;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, Serve};
use crate::console::Console;
use crate::exit::Exit;

fn main() -> ExitCode {
    // Before the arguments are taken apart: the command line of a server is not ours to read.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == sut::SUBCOMMAND)
    {
        let code = sut::supervise_main(arguments);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Where nobody reads it any more, there is nothing to be done about it.
            let _ = error.print();
            return exit_of(&error).into();
        }
    };
    let console = Console::new(cli.global);
    let outcome = match &cli.command {
        Command::Demo(arguments) => commands::demo::demo(arguments, console),
        Command::Load(arguments) => commands::load::load(arguments, console),
        Command::Run(arguments) => commands::run::run(arguments, console),
        Command::Calibrate(arguments) => commands::calibrate::calibrate(arguments, console),
        Command::Check(arguments) => commands::check::check(arguments, console),
        Command::Serve(Serve::Rtsp(arguments)) => commands::serve::rtsp(arguments, console),
        Command::Serve(Serve::HttpTs(arguments)) => commands::relay::http_ts(arguments, console),
        Command::Serve(Serve::Messages(arguments)) => {
            commands::message_server::messages(arguments, console)
        }
        Command::Send(arguments) => commands::send::send(arguments, console),
        Command::Receive(arguments) => commands::receive::receive(arguments, console),
        Command::Report(arguments) => commands::report::report(arguments, console),
        Command::Metrics(arguments) => commands::listings::metrics(arguments, console),
        Command::Servers(arguments) => commands::servers::servers(arguments, console),
        Command::Schema(arguments) => commands::listings::schema(arguments, console),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            console.fail(&failure);
            failure.exit.into()
        }
    }
}

/// Help and version were asked for; everything else is a wrong argument.
fn exit_of(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        Exit::Bad
    } else {
        Exit::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_end_with_104_and_help_with_0() {
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
}
