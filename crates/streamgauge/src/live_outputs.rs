//! Live views and exports of a run: `--metrics`, `--dashboard` and `--otlp`.

use std::path::Path;

use scenario::Scenario;

use crate::args::Results;
use crate::console::Console;
use crate::dashboard::Dashboard;
use crate::exit::Failure;
use crate::otlp::OtlpExporter;
use crate::scrape::PrometheusServer;
use crate::view_server::Token;

/// The requested live views and exports.
pub(crate) struct LiveOutputs {
    prometheus: Option<PrometheusServer>,
    dashboard: Option<Dashboard>,
    otlp: Option<OtlpExporter>,
    console: Console,
}

impl LiveOutputs {
    /// Starts them and prints their URLs. There is no run yet.
    pub(crate) fn start(results: &Results, console: Console) -> Result<LiveOutputs, Failure> {
        let token = Token::default();
        let metrics = results.metrics;
        let prometheus = metrics.map(|address| PrometheusServer::start(address, &token));
        let prometheus = prometheus.transpose()?;
        if let Some(prometheus) = &prometheus {
            console.say(&format!("metrics for Prometheus at {}", prometheus.url()));
        }
        let dashboard = results.dashboard;
        let dashboard = dashboard.map(|address| Dashboard::start(address, &token));
        let dashboard = dashboard.transpose()?;
        if let Some(dashboard) = &dashboard {
            console.say(&format!("dashboard at {}", dashboard.url()));
        }
        let otlp = results
            .otlp
            .as_deref()
            .map(OtlpExporter::start)
            .transpose()?;
        if let Some(otlp) = &otlp {
            console.say(&format!("pushing metrics to {}", otlp.url()));
        }
        Ok(LiveOutputs {
            prometheus,
            dashboard,
            otlp,
            console,
        })
    }

    /// Shows the run of this file from now on. The file may not exist yet.
    pub(crate) fn show(&self, run_file: &Path, scenario: &Scenario) {
        if let Some(prometheus) = &self.prometheus {
            prometheus.show(run_file);
        }
        if let Some(dashboard) = &self.dashboard {
            dashboard.show(run_file, scenario);
        }
        if let Some(otlp) = &self.otlp {
            otlp.show(run_file);
        }
    }

    /// Shows the end of the last run, and ends the live views and exports.
    pub(crate) fn finish(self) {
        drop((self.dashboard, self.prometheus));
        if let Some(text) = self.otlp.and_then(OtlpExporter::finish) {
            self.console.say(&format!("warning: {text}"));
        }
    }
}
