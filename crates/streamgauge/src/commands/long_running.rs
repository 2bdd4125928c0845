//! Common part of the commands that serve or send until stopped: raises the limit of open files,
//! handles Ctrl-C, prints the addresses that the command listens on, and shows its status.

use std::time::Duration;

use engine::{Control, EngineError};

use crate::exit::Failure;
use crate::live::progress::Status;
use crate::ui::console::Console;
use crate::ui::descriptor_limit;
use crate::ui::signals::Watch;

/// Time that sessions get to end after a stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A command that runs until it is stopped.
pub(crate) struct LongRunning {
    console: Console,
    control: Control,
    _watch: Watch,
    status: Status,
    /// Result of printing the addresses. `None` before that.
    announced: Option<Result<(), Failure>>,
}

impl LongRunning {
    /// Prepares the process. Must be called before the command starts.
    pub(crate) fn start(console: Console) -> Result<LongRunning, Failure> {
        descriptor_limit::raise();
        let control = Control::new();
        let watch = Watch::start(control.clone())?;
        Ok(LongRunning {
            console,
            control,
            _watch: watch,
            status: Status::new(console),
            announced: None,
        })
    }

    /// Returns the handle that stops the command.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Prints, once, lines with the addresses that the command listens on. Programs that start this
    /// process wait for these lines and read the ports from them.
    pub(crate) fn announce(&mut self, lines: impl IntoIterator<Item = String>) {
        let console = self.console;
        self.announced.get_or_insert_with(|| {
            let mut lines = lines.into_iter();
            lines.try_for_each(|line| console.print(&(line + "\n")))
        });
    }

    /// Updates the status line.
    pub(crate) fn update_status(&mut self, so_far: &str) {
        self.status.update(so_far);
    }

    /// Ends the status line and returns the result of the command.
    pub(crate) fn finish<T>(self, finished: Result<T, EngineError>) -> Result<T, Failure> {
        drop(self.status);
        let finished = finished.map_err(Failure::bad)?;
        self.announced.unwrap_or(Ok(()))?;
        Ok(finished)
    }
}
