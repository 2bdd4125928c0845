//! Live views and exports of a run: `--metrics`, `--dashboard` and `--otlp`.

use std::path::Path;

use scenario::Scenario;

use crate::args::Results;
use crate::console::Console;
use crate::dashboard::Dashboard;
use crate::exit::Failure;
use crate::otlp::Pushed;
use crate::scrape::Scraped;

/// The requested live views and exports.
pub(crate) struct Outlets {
    scraped: Option<Scraped>,
    dashboard: Option<Dashboard>,
    pushed: Option<Pushed>,
    console: Console,
}

impl Outlets {
    /// Starts them and prints their URLs. There is no run yet.
    pub(crate) fn start(results: &Results, console: Console) -> Result<Outlets, Failure> {
        let scraped = results.metrics.map(Scraped::start).transpose()?;
        if let Some(scraped) = &scraped {
            console.say(&format!("metrics for Prometheus at {}", scraped.url()));
        }
        let dashboard = results.dashboard.map(Dashboard::start).transpose()?;
        if let Some(dashboard) = &dashboard {
            console.say(&format!("dashboard at {}", dashboard.url()));
        }
        let pushed = results.otlp.as_deref().map(Pushed::start).transpose()?;
        if let Some(pushed) = &pushed {
            console.say(&format!("pushing metrics to {}", pushed.url()));
        }
        Ok(Outlets {
            scraped,
            dashboard,
            pushed,
            console,
        })
    }

    /// Shows the run of this file from now on. The file may not exist yet.
    pub(crate) fn show(&self, run_file: &Path, scenario: &Scenario) {
        if let Some(scraped) = &self.scraped {
            scraped.show(run_file);
        }
        if let Some(dashboard) = &self.dashboard {
            dashboard.show(run_file, scenario);
        }
        if let Some(pushed) = &self.pushed {
            pushed.show(run_file);
        }
    }

    /// Shows the end of the last run, and ends the live views and exports.
    pub(crate) fn finish(self) {
        drop((self.dashboard, self.scraped));
        if let Some(text) = self.pushed.and_then(Pushed::finish) {
            self.console.say(&format!("warning: {text}"));
        }
    }
}
