//! Progress display of a run: on a terminal, a block that is redrawn once a second; otherwise a
//! plain line every few seconds.

mod block;
mod curves;
pub(crate) mod keys;
mod line;
mod lines;

use std::cell::RefCell;
use std::time::Duration;

use engine::{Control, Phase, Progress};

use crate::console::Console;
use block::{Block, Size};
use keys::Keys;
use line::ScreenLine;
use lines::{History, View};

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
    Block {
        block: Block,
        history: History,
        /// Kept for its `Drop`.
        keys: Option<Keys>,
    },
    Plain {
        last: Option<Duration>,
        phase: Option<Phase>,
    },
}

impl Display {
    /// Creates the display of a run. `planned` is its planned duration, if known. The keys of the
    /// display control the run through `control`.
    pub(crate) fn new(console: Console, planned: Option<Duration>, control: &Control) -> Display {
        let shown = if console.quiet {
            Shown::Nothing
        } else if console.live() {
            Shown::Block {
                block: Block::new(console.paint_stderr()),
                history: History::default(),
                keys: Keys::start(control),
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
            Shown::Block {
                block,
                history,
                keys,
            } => {
                if let Phase::Warning(text) = &progress.phase {
                    block.write_above(&format!("warning: {text}"));
                    return;
                }
                history.add(progress);
                let view = View {
                    progress,
                    history,
                    planned: self.planned,
                    obeys_keys: keys.is_some(),
                };
                block.draw(|size| view.lines(size));
            }
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

    /// Removes the block to make room for the summary.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Shown::Block { block, .. } = &mut self.shown {
            block.clear();
        }
    }
}

/// A status line that is redrawn on a terminal. Without a terminal nothing is shown.
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

    /// Removes the line.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if let Some(block) = &self.0 {
            block.borrow_mut().clear();
        }
    }
}
