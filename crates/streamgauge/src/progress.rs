//! Shows how a run goes: one block that is redrawn once a second in a terminal, else one plain line
//! now and then.

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

/// How often a plain line is written where nobody watches.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows how a run goes. What it shows in a terminal is removed when it is dropped.
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
        /// Held for what it does when it is dropped.
        keys: Option<Keys>,
    },
    Plain {
        last: Option<Duration>,
        phase: Option<Phase>,
    },
}

impl Display {
    /// A display of a run that is planned to last so long, where that is known. Its keys steer the
    /// run by `control`.
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

    /// Shows how it stands.
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
                let due = last.is_none_or(|last| progress.elapsed >= last + PLAIN_EVERY);
                let news = phase.as_ref() != Some(&progress.phase);
                if due || news {
                    *last = Some(progress.elapsed);
                    *phase = Some(progress.phase.clone());
                    self.console.say(&lines::plain(progress, self.planned));
                }
            }
        }
    }

    /// Removes the block, to make room for the summary.
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

/// One line that says how something stands, redrawn in a terminal; nothing where there is none.
pub(crate) struct Status(Option<RefCell<Block>>);

impl Status {
    pub(crate) fn new(console: Console) -> Status {
        let shown = !console.quiet && console.live();
        Status(shown.then(|| RefCell::new(Block::new(console.paint_stderr()))))
    }

    /// Shows how it stands.
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
