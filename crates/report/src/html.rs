//! HTML report: a single file that loads nothing.
//!
//! All statements are computed here and embedded in the page as one block of data, and one more for
//! each run of a series. The scripts in `assets/` draw the data and decide nothing. Figures are
//! formatted as in the terminal.

mod cards;
mod charts;
mod clients;
mod comparison;
mod downsample;
mod heat_map;
mod live;
mod overview;
mod page;
mod positions;
mod run;
mod series;
mod time_series;
mod verdict;

pub use live::{Live, write_live};
pub use page::{FIRST_LINES, sanitized};
pub use run::write;
pub use series::write_series;
