//! Output for the user: results go to standard output, everything else to standard error.
//!
//! All output passes [`report::sanitize`], so text from servers, scenarios and run files cannot
//! control the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use miette::{GraphicalReportHandler, GraphicalTheme, ThemeCharacters, ThemeStyles};
use report::paint::Paint;
use report::{Layout, sanitize};

use crate::args::{ColorMode, Global};
use crate::exit::{Failure, Message};
use crate::ui::wrap;

/// Output settings of the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    may_be_live: bool,
    colours: ColorPolicy,
}

/// The streams on which colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColorPolicy {
    Everywhere,
    OnTerminals,
    Nowhere,
}

impl ColorPolicy {
    /// Returns the choice of the option. With `Auto`, the environment decides:
    /// <https://no-color.org> first, then <https://bixense.com/clicolors>.
    fn new(when: ColorMode, environment: impl Fn(&str) -> Option<OsString>) -> ColorPolicy {
        let is_set = |name| environment(name).is_some_and(|value| !value.is_empty());
        match when {
            ColorMode::Always => ColorPolicy::Everywhere,
            ColorMode::Never => ColorPolicy::Nowhere,
            ColorMode::Auto if is_set("NO_COLOR") => ColorPolicy::Nowhere,
            ColorMode::Auto
                if is_set("CLICOLOR_FORCE")
                    && environment("CLICOLOR_FORCE").is_none_or(|value| value != "0") =>
            {
                ColorPolicy::Everywhere
            }
            ColorMode::Auto if environment("TERM").is_some_and(|value| value == "dumb") => {
                ColorPolicy::Nowhere
            }
            ColorMode::Auto => ColorPolicy::OnTerminals,
        }
    }

    fn paint(self, to: impl IsTerminal) -> Paint {
        Paint {
            colour: match self {
                ColorPolicy::Everywhere => true,
                ColorPolicy::OnTerminals => to.is_terminal(),
                ColorPolicy::Nowhere => false,
            },
        }
    }
}

impl Console {
    pub(crate) fn new(global: Global) -> Console {
        Console {
            quiet: global.quiet,
            verbose: global.verbose,
            may_be_live: !global.no_live,
            colours: ColorPolicy::new(global.color(), |name| std::env::var_os(name)),
        }
    }

    /// Returns `true` if standard error is a terminal that may show the live view.
    pub(crate) fn live(self) -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        self.may_be_live && io::stderr().is_terminal() && !dumb
    }

    pub(crate) fn paint_stdout(self) -> Paint {
        self.colours.paint(io::stdout())
    }

    pub(crate) fn paint_stderr(self) -> Paint {
        self.colours.paint(io::stderr())
    }

    /// Prints a message that is no result. A closed standard error is ignored.
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            let text = sanitize::multi_line(text, self.paint_stderr().colour);
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Prints a result to standard output.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        let text = sanitize::multi_line(text, self.paint_stdout().colour);
        let mut out = io::stdout().lock();
        to_stdout(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// Prints a result of several lines. On a terminal, long lines are wrapped between words, and
    /// their continuations are indented by `hanging` more columns. Elsewhere lines stay whole, for
    /// programs that search them.
    pub(crate) fn print_wrapped(self, text: &str, hanging: usize) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            return self.print(&wrap::lines(text, width(io::stdout()), hanging));
        }
        self.print(text)
    }

    /// Prints a result as JSON.
    pub(crate) fn print_json(self, value: &serde_json::Value) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).map_err(Failure::bad)?;
        self.print(&(sanitize::json(&text).into_owned() + "\n"))
    }

    /// Prints a result that is laid out for its reader: to standard output, or to standard error if
    /// another result goes to standard output.
    pub(crate) fn show(
        self,
        to_stderr: bool,
        text: impl FnOnce(Layout) -> String,
    ) -> Result<(), Failure> {
        let layout = |width, paint| Layout {
            width,
            paint,
            verbose: self.verbose,
        };
        if to_stderr {
            let layout = layout(width(io::stderr()), self.paint_stderr());
            let _ = writeln!(io::stderr(), "{}", text(layout).trim_end());
            return Ok(());
        }
        let layout = layout(width(io::stdout()), self.paint_stdout());
        self.print(&text(layout))
    }

    /// Prints the message of a failure.
    pub(crate) fn fail(self, failure: &Failure) {
        let paint = self.paint_stderr();
        let mut text = String::new();
        match &failure.message {
            Message::Plain(message) => {
                // The message may contain foreign text, which must not set colours either.
                let message = sanitize::multi_line(message, false);
                text = format!("{} {message}\n", paint.bad("error:"));
            }
            Message::Diagnostic(diagnostic) => {
                let mut theme = match (paint.colour, io::stderr().is_terminal()) {
                    // Colours that the gate lets through.
                    (true, _) => GraphicalTheme {
                        characters: ThemeCharacters::unicode(),
                        styles: ThemeStyles::ansi(),
                    },
                    (false, true) => GraphicalTheme::unicode_nocolor(),
                    (false, false) => GraphicalTheme::none(),
                };
                theme.characters.error = "error:".to_owned();
                let mut handler = GraphicalReportHandler::new_themed(theme).with_break_words(false);
                if io::stderr().is_terminal() {
                    handler = handler.with_width(width(io::stderr()));
                }
                if handler
                    .render_report(&mut text, diagnostic.as_ref())
                    .is_err()
                {
                    text = format!("{} {diagnostic}\n", paint.bad("error:"));
                }
            }
        }
        let text = sanitize::multi_line(&text, paint.colour);
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Returns the result of writing to standard output.
pub(crate) fn to_stdout(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        // The reader has closed the pipe: it has what it wanted, such as the first lines.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| {
            Failure::bad(format_args!(
                "cannot write to standard output: {}; redirect it elsewhere",
                report::io_reason(&error)
            ))
        }),
    }
}

/// Returns the columns of a terminal, at most 120. Returns 80 if there are fewer than 40 or no
/// terminal.
pub(crate) fn width(of: impl std::os::fd::AsFd) -> usize {
    rustix::termios::tcgetwinsize(of)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|&columns| columns >= 40)
        .unwrap_or(80)
        .min(120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_overrides_no_color_overrides_clicolor_force() {
        use ColorPolicy::{Everywhere, Nowhere, OnTerminals};
        for (when, environment, colours) in [
            (ColorMode::Auto, &[][..], OnTerminals),
            (ColorMode::Auto, &[("NO_COLOR", "")], OnTerminals),
            (ColorMode::Auto, &[("NO_COLOR", "0")], Nowhere),
            (ColorMode::Auto, &[("CLICOLOR_FORCE", "1")], Everywhere),
            (ColorMode::Auto, &[("CLICOLOR_FORCE", "0")], OnTerminals),
            (ColorMode::Auto, &[("CLICOLOR_FORCE", "")], OnTerminals),
            (
                ColorMode::Auto,
                &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")],
                Nowhere,
            ),
            (ColorMode::Auto, &[("TERM", "dumb")], Nowhere),
            (
                ColorMode::Auto,
                &[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")],
                Everywhere,
            ),
            (ColorMode::Always, &[("NO_COLOR", "1")], Everywhere),
            (ColorMode::Never, &[("CLICOLOR_FORCE", "1")], Nowhere),
        ] {
            let found = ColorPolicy::new(when, |name| {
                let set = environment.iter().find(|(key, _)| *key == name);
                set.map(|(_, value)| OsString::from(value))
            });
            assert_eq!(found, colours, "{when:?} {environment:?}");
        }
    }
}
