//! `--metrics`: serves the figures of the current run to Prometheus, from its run file.
//!
//! The run file is read as by any report, so nothing is shared with the measurement.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use report::live_figures::LiveFigures;
use report::prometheus::{self, CONTENT_TYPE};
use report::{Reader, ReportError};

use crate::exit::Failure;
use crate::live::current_run_file::CurrentRunFile;
use crate::live::http::Head;
use crate::live::view_server::{ServiceName, Token, ViewServer, refuse, respond};

const SERVICE: ServiceName = ServiceName {
    what: "metrics",
    option: "--metrics",
    thread: "metrics",
};

/// Serves the figures of a run until it is dropped.
pub(crate) struct PrometheusServer {
    run_file: Arc<Mutex<Option<CurrentRunFile>>>,
    server: ViewServer,
}

/// A run file that is being read.
struct Open {
    followed: CurrentRunFile,
    reader: Reader,
    figures: LiveFigures,
}

impl PrometheusServer {
    /// Starts listening. There is no run yet.
    pub(crate) fn start(address: SocketAddr, token: &Token) -> Result<PrometheusServer, Failure> {
        let run_file = Arc::<Mutex<Option<CurrentRunFile>>>::default();
        let theirs = run_file.clone();
        let mut open = None;
        let answer = move |stream: TcpStream, head: &Head| {
            let followed = locked(&theirs).clone();
            answer(stream, head, followed, &mut open)
        };
        let server = ViewServer::start(address, SERVICE, token, answer)?;
        Ok(PrometheusServer { run_file, server })
    }

    /// Returns the URL for people.
    pub(crate) fn url(&self) -> String {
        self.server.url("/metrics")
    }

    /// Serves the run of this file from now on. The file may not exist yet.
    pub(crate) fn show(&self, run_file: &Path) {
        *locked(&self.run_file) = Some(CurrentRunFile::new(run_file));
    }
}

fn locked(run_file: &Mutex<Option<CurrentRunFile>>) -> MutexGuard<'_, Option<CurrentRunFile>> {
    run_file.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(
    mut stream: TcpStream,
    head: &Head,
    followed: Option<CurrentRunFile>,
    open: &mut Option<Open>,
) -> io::Result<()> {
    if head.path != "/metrics" {
        return refuse(&mut stream, "404 Not Found", "the figures are at /metrics");
    }
    let unavailable =
        |stream: &mut TcpStream, text: &str| refuse(stream, "503 Service Unavailable", text);
    match figures(followed, open) {
        Ok(Some(text)) => respond(&mut stream, "200 OK", CONTENT_TYPE, text.as_bytes()),
        Ok(None) => unavailable(&mut stream, "the run has not begun"),
        Err(error) => unavailable(&mut stream, &error.to_string()),
    }
}

/// Returns the figures of the current run. `None` if it has no run file yet.
fn figures(
    followed: Option<CurrentRunFile>,
    open: &mut Option<Open>,
) -> Result<Option<String>, ReportError> {
    let Some(followed) = followed else {
        return Ok(None);
    };
    if open.as_ref().is_none_or(|open| open.followed != followed) {
        *open = None;
        let Some(reader) = followed.open()? else {
            return Ok(None);
        };
        let figures = LiveFigures::new(&reader);
        *open = Some(Open {
            followed,
            reader,
            figures,
        });
    }
    let Some(open) = open else {
        return Ok(None);
    };
    open.figures.update(&open.reader, |_| {})?;
    Ok(Some(prometheus::write(&open.figures)))
}
