//! Views and exports of a run that goes on: terminal, dashboard, metrics.

pub(crate) mod current_run_file;
pub(crate) mod dashboard;
pub(crate) mod http;
pub(crate) mod otlp;
pub(crate) mod outputs;
pub(crate) mod own_address;
pub(crate) mod processor_time;
pub(crate) mod progress;
pub(crate) mod scrape;
pub(crate) mod view_server;
