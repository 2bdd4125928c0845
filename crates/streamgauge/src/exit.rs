//! Exit codes, and the error message of a failed command.

use std::fmt::Display;
use std::process::ExitCode;

use measure::verdict;

/// Result of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Passed, or did what was asked.
    Pass,
    /// A threshold failed.
    Failed,
    /// The scenario, an argument or the launch of the server is wrong.
    Bad,
    /// Stopped by the user.
    Stopped,
    /// The measurement is invalid.
    Invalid,
    /// Exit code of the program that the command ran.
    Program(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Pass => verdict::EXIT_PASS,
            Exit::Failed => verdict::EXIT_FAIL,
            Exit::Bad => verdict::EXIT_BAD_SCENARIO,
            Exit::Stopped => verdict::EXIT_STOPPED,
            Exit::Invalid => verdict::EXIT_INVALID,
            Exit::Program(code) => code,
        }
    }

    /// Returns the result of a run for which several may hold: stopped before invalid before
    /// failed.
    pub(crate) fn of_run(stopped: bool, invalid: bool, failed: bool) -> Exit {
        match (stopped, invalid, failed) {
            (true, _, _) => Exit::Stopped,
            (_, true, _) => Exit::Invalid,
            (_, _, true) => Exit::Failed,
            _ => Exit::Pass,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Reason why a command could not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: Message,
}

/// Message of a failure.
#[derive(Debug)]
pub(crate) enum Message {
    /// Plain text.
    Plain(String),
    /// A message that points to its place in a file.
    Diagnostic(Box<dyn miette::Diagnostic + Send + Sync>),
}

impl Failure {
    /// Returns a failure with a plain message.
    pub(crate) fn new(exit: Exit, message: impl Display) -> Failure {
        Failure {
            exit,
            message: Message::Plain(message.to_string()),
        }
    }

    /// Returns a failure because of wrong input.
    pub(crate) fn bad(message: impl Display) -> Failure {
        Failure::new(Exit::Bad, message)
    }

    /// Returns the message without its place in a file.
    pub(crate) fn text(&self) -> String {
        match &self.message {
            Message::Plain(text) => text.clone(),
            Message::Diagnostic(diagnostic) => diagnostic.to_string(),
        }
    }

    /// Returns a failure because of wrong input at a place in a file, which the message shows.
    pub(crate) fn diagnostic(error: impl miette::Diagnostic + Send + Sync + 'static) -> Failure {
        Failure {
            exit: Exit::Bad,
            message: Message::Diagnostic(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_exits_with_the_gravest_result() {
        assert_eq!(Exit::of_run(true, true, true).code(), 105);
        assert_eq!(Exit::of_run(false, true, true).code(), 110);
        assert_eq!(Exit::of_run(false, false, true).code(), 99);
        assert_eq!(Exit::of_run(false, false, false).code(), 0);
    }
}
