//! What all commands do that serve or send until they are stopped: they raise the limit of open
//! files, listen for Ctrl-C, say where they listen, and how it goes.

use std::time::Duration;

use engine::{Control, EngineError};

use crate::console::Console;
use crate::exit::Failure;
use crate::files;
use crate::progress::Status;
use crate::signals::Watch;

/// How long sessions get to end when it is stopped.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A command that goes on until it is stopped.
pub(crate) struct Attended {
    console: Console,
    control: Control,
    _watch: Watch,
    status: Status,
    /// How saying where it listens went, once it was tried.
    announced: Option<Result<(), Failure>>,
}

impl Attended {
    /// To be called before it begins.
    pub(crate) fn begin(console: Console) -> Result<Attended, Failure> {
        files::raise();
        let control = Control::new();
        let watch = Watch::start(control.clone())
            .map_err(|error| Failure::bad(format_args!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Attended {
            console,
            control,
            _watch: watch,
            status: Status::new(console),
            announced: None,
        })
    }

    /// By what it is stopped.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Says once where it listens. Whoever starts it waits for these lines, and reads the ports off
    /// them.
    pub(crate) fn listens(&mut self, urls: impl IntoIterator<Item = String>) {
        let console = self.console;
        self.announced.get_or_insert_with(|| {
            let mut lines = urls.into_iter().map(|url| format!("listening on {url}\n"));
            lines.try_for_each(|line| console.print(&line))
        });
    }

    /// Says how it goes.
    pub(crate) fn goes_on(&mut self, so_far: &str) {
        self.status.update(so_far);
    }

    /// It has ended: gives what came of it.
    pub(crate) fn end<T>(self, finished: Result<T, EngineError>) -> Result<T, Failure> {
        self.status.finish();
        let finished = finished.map_err(Failure::bad)?;
        self.announced.unwrap_or(Ok(()))?;
        Ok(finished)
    }
}
