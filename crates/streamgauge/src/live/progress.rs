//! Progress display of a run: on a terminal, a block that is redrawn once a second, and at once
//! when the terminal changes its size; otherwise a plain line every few seconds.

mod block;
mod curves;
mod history;
pub(crate) mod keys;
mod line;
mod lines;
mod populations;
mod roles;
mod runner_lines;
mod screen;
mod thresholds;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{Control, Phase, Progress};
use scenario::Scenario;

use crate::ui::console::Console;
use block::{Block, Size};
use keys::Keys;
use line::ScreenLine;
use screen::Screen;

/// Interval between plain lines without a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Progress display of a run. Dropping it removes its block from the terminal.
pub(crate) struct Display {
    console: Console,
    planned: Option<Duration>,
    shown: Shown,
}

enum Shown {
    Nothing,
    Screen {
        screen: Arc<Mutex<Screen>>,
        /// `None` once the display ends.
        keys: Option<Keys>,
    },
    Plain {
        last: Option<Duration>,
        phase: Option<Phase>,
    },
}

impl Display {
    /// Creates the display of a run of `scenario`. `planned` is its planned duration, if known. The
    /// keys of the display control the run through `control`.
    pub(crate) fn new(
        console: Console,
        scenario: &Scenario,
        planned: Option<Duration>,
        control: &Control,
    ) -> Display {
        let shown = if console.quiet {
            Shown::Nothing
        } else if console.live() {
            let screen = Screen::new(console.paint_stderr(), scenario, planned);
            let screen = Arc::new(Mutex::new(screen));
            let theirs = Arc::clone(&screen);
            let keys = Keys::start(control, move |request| locked(&theirs).obey(request));
            locked(&screen).obeys_keys = keys.are_obeyed;
            Shown::Screen {
                screen,
                keys: Some(keys),
            }
        } else {
            Shown::Plain {
                last: None,
                phase: None,
            }
        };
        Display {
            console,
            planned,
            shown,
        }
    }

    /// Shows this progress.
    pub(crate) fn update(&mut self, progress: &Progress) {
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Screen { screen, .. } => locked(screen).update(progress),
            Shown::Plain { last, phase } => {
                let due = last.is_none_or(|last| progress.elapsed >= last + PLAIN_INTERVAL);
                let phase_changed = phase.as_ref() != Some(&progress.phase);
                if due || phase_changed {
                    *last = Some(progress.elapsed);
                    *phase = Some(progress.phase.clone());
                    self.console.say(&lines::plain(progress, self.planned));
                }
            }
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Shown::Screen { screen, keys } = &mut self.shown {
            // First: nothing may be drawn after the end.
            drop(keys.take());
            locked(screen).clear();
        }
    }
}

fn locked(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A status line that is redrawn on a terminal. Without a terminal nothing is shown. Dropping it
/// removes the line.
pub(crate) struct Status(Option<RefCell<Block>>);

impl Status {
    pub(crate) fn new(console: Console) -> Status {
        let shown = !console.quiet && console.live();
        Status(shown.then(|| RefCell::new(Block::new(console.paint_stderr()))))
    }

    /// Shows this text.
    pub(crate) fn update(&self, text: &str) {
        if let Some(block) = &self.0 {
            let line = |size: Size| vec![ScreenLine::plain(text).cut(size.columns)];
            block.borrow_mut().draw(line);
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if let Some(block) = &self.0 {
            block.borrow_mut().clear();
        }
    }
}
