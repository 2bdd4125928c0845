//! The HTML report: one file to look at, which loads nothing.
//!
//! What it says is worked out here and put into the page as one block of data, and one for each run
//! of a series; the scripts under `assets/` draw it and decide nothing. Figures in words are those
//! of the terminal.

mod charts;
mod clients;
mod course;
mod head;
mod heat;
mod live;
mod page;
mod run;
mod series;
mod spots;
mod thin;

pub use live::{Live, write_live};
pub use page::BEGINS;
pub use run::write;
pub use series::write_series;
