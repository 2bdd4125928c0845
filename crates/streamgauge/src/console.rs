//! What is said to the user, and where: everything on standard error but what was asked for by name.
//!
//! All of it goes through [`report::gate`]: what servers, scenarios and run files say cannot steer the terminal.

use std::io::{self, IsTerminal, Write};

use miette::{GraphicalReportHandler, GraphicalTheme, ThemeCharacters, ThemeStyles};
use report::paint::Paint;
use report::{Layout, gate};

use crate::args::Global;
use crate::exit::{Failure, Message};

/// How to speak to the user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    no_color: bool,
}

impl Console {
    pub(crate) fn new(global: Global) -> Console {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Console {
            quiet: global.quiet,
            verbose: global.verbose,
            no_color: global.no_color || no_color || dumb,
        }
    }

    /// Whether someone reads standard error as it comes.
    pub(crate) fn live(self) -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        io::stderr().is_terminal() && !dumb
    }

    pub(crate) fn paint_stdout(self) -> Paint {
        Paint {
            colour: !self.no_color && io::stdout().is_terminal(),
        }
    }

    pub(crate) fn paint_stderr(self) -> Paint {
        Paint {
            colour: !self.no_color && io::stderr().is_terminal(),
        }
    }

    /// A line for the user that is no result. Where nobody reads it any more, that is no error.
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            let text = gate::lines(text, self.paint_stderr().colour);
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// A result: what was asked for.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        let text = gate::lines(text, self.paint_stdout().colour);
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader has what it wanted, such as the first lines.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::bad(format_args!(
                "cannot write to standard output: {}; send it to another place",
                report::io_reason(&error)
            ))),
            Ok(()) => Ok(()),
        }
    }

    /// A result that is laid out for whoever reads it: on standard output, unless something else goes there. Nothing
    /// where the user wants quiet.
    pub(crate) fn show(
        self,
        to_stderr: bool,
        text: impl FnOnce(Layout) -> String,
    ) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        self.show_always(to_stderr, text)
    }

    /// The same, also where the user wants quiet.
    pub(crate) fn show_always(
        self,
        to_stderr: bool,
        text: impl FnOnce(Layout) -> String,
    ) -> Result<(), Failure> {
        let layout = |width, paint| Layout {
            width,
            paint,
            everything: self.verbose,
        };
        if to_stderr {
            let layout = layout(width(io::stderr()), self.paint_stderr());
            let _ = writeln!(io::stderr(), "{}", text(layout).trim_end());
            return Ok(());
        }
        let layout = layout(width(io::stdout()), self.paint_stdout());
        self.print(&text(layout))
    }

    /// The message of a failure.
    pub(crate) fn fail(self, failure: &Failure) {
        let paint = self.paint_stderr();
        let mut text = String::new();
        match &failure.message {
            Message::Plain(message) => {
                text = format!("{} {message}\n", paint.bad("error:"));
            }
            Message::Diagnostic(diagnostic) => {
                let mut theme = match (paint.colour, io::stderr().is_terminal()) {
                    // The colours that pass the gate.
                    (true, _) => GraphicalTheme {
                        characters: ThemeCharacters::unicode(),
                        styles: ThemeStyles::ansi(),
                    },
                    (false, true) => GraphicalTheme::unicode_nocolor(),
                    (false, false) => GraphicalTheme::none(),
                };
                theme.characters.error = "error:".to_owned();
                let handler = GraphicalReportHandler::new_themed(theme);
                if handler
                    .render_report(&mut text, diagnostic.as_ref())
                    .is_err()
                {
                    text = format!("{} {diagnostic}\n", paint.bad("error:"));
                }
            }
        }
        let text = gate::lines(&text, paint.colour);
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Columns of the terminal that the summary goes to; 80 where there is none.
pub(crate) fn width(of: impl std::os::fd::AsFd) -> usize {
    rustix::termios::tcgetwinsize(of)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|&columns| columns >= 40)
        .unwrap_or(80)
        .min(120)
}
