//! Options of `compare`.

use std::path::PathBuf;

use clap::Args;
use measure::units::Ratio;

use super::{LaterReports, help};

#[derive(Debug, Args)]
#[command(after_long_help = help::COMPARE_EXAMPLES)]
pub(crate) struct Compare {
    /// Run file or folder of a series: what the other is compared with
    #[arg(value_name = "BASELINE")]
    pub(crate) a: PathBuf,
    /// Run file or folder of a series
    #[arg(value_name = "RUN")]
    pub(crate) b: PathBuf,
    /// Smallest relative difference that counts [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = min_effect)]
    pub(crate) min_effect: Option<f64>,
    /// Compare runs of different scenarios, media or machines, and invalid runs
    #[arg(long)]
    pub(crate) anyway: bool,
    #[command(flatten)]
    pub(crate) reports: LaterReports,
}

fn min_effect(text: &str) -> Result<f64, String> {
    let share: Ratio = text.parse().map_err(|error| format!("{error}"))?;
    match share.0 >= 0.001 && share.0 <= 1.0 {
        true => Ok(share.0),
        false => Err("write a share from 0.1% to 100%".to_owned()),
    }
}
