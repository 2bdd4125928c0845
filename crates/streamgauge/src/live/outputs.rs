//! Live views and exports of a run: `--metrics`, `--dashboard` and `--otlp`.

use std::path::Path;
use std::time::{Instant, SystemTime};

use measure::units::TimeSpan;
use scenario::Scenario;

use crate::args::Results;
use crate::exit::Failure;
use crate::live::dashboard::{Dashboard, End, Stay};
use crate::live::otlp::OtlpExporter;
use crate::live::progress::keys::{self, KeyWait};
use crate::live::scrape::PrometheusServer;
use crate::live::view_server::Token;
use crate::ui::console::Console;
use crate::ui::signals::Watch;

/// The requested live views and exports.
pub(crate) struct LiveOutputs {
    prometheus: Option<PrometheusServer>,
    dashboard: Option<Dashboard>,
    otlp: Option<OtlpExporter>,
    /// Whether the dashboard stays after the end of the last run, and for how long at most.
    linger: Option<Option<TimeSpan>>,
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
            console.say(&format!("pushing metrics to {}", otlp.url));
        }
        Ok(LiveOutputs {
            prometheus,
            dashboard,
            otlp,
            linger: results.dashboard_linger,
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

    /// Shows the end of the last run, which `kept` has, and ends the live views and exports. They
    /// do not read its run file any more. If the user wants it and the run has ended in order
    /// (`has_ended`), the dashboard stays until the next signal.
    pub(crate) fn finish(
        self,
        kept: Option<&Path>,
        has_ended: bool,
        watch: &Watch,
    ) -> Option<LingeringDashboard> {
        // Before anybody is told that the run has ended.
        let signals = watch.signals();
        let may_stay = has_ended && !watch.ends_process();
        drop(self.prometheus);
        let time = self.linger.flatten().map(|time| time.0);
        let stay = Stay {
            until_key: keys::can_be_read(),
            until: time.and_then(|time| SystemTime::now().checked_add(time)),
        };
        let end = End {
            kept: kept.map(Path::to_owned),
            stay: (self.linger.is_some() && may_stay).then_some(stay),
        };
        let lingering = self.dashboard.and_then(|dashboard| {
            let lingers = end.stay.is_some();
            dashboard.end(end);
            lingers.then(|| LingeringDashboard {
                until: time.and_then(|time| Instant::now().checked_add(time)),
                signals,
                dashboard,
            })
        });
        if let Some(text) = self.otlp.and_then(OtlpExporter::finish) {
            self.console.say(&format!("warning: {text}"));
        }
        lingering
    }
}

/// A dashboard after the end of the last run.
pub(crate) struct LingeringDashboard {
    dashboard: Dashboard,
    until: Option<Instant>,
    /// Number of signals before the end.
    signals: u32,
}

impl LingeringDashboard {
    /// Waits for a key, a signal or the end of the time, and closes the dashboard.
    pub(crate) fn wait(self, watch: &Watch, console: Console) {
        let keys = KeyWait::start();
        let ends = match keys.reads_keys {
            true => "press a key to end it",
            false => "Ctrl-C or SIGTERM ends it",
        };
        let url = self.dashboard.url();
        console.say(&format!("the dashboard stays at {url}; {ends}"));
        keys.wait(|| {
            let is_late = self.until.is_some_and(|until| Instant::now() >= until);
            is_late || watch.signals() > self.signals || watch.ends_process()
        });
    }
}
