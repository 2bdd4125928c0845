//! `--dashboard`: a live page of the current run for browsers, made from its run file.
//!
//! One thread answers requests; another reads the run file and sends updates to every browser
//! (server-sent events). Both only read, so they share nothing with the measurement. Nothing is
//! read while no browser is connected. Reading takes at most a twentieth of one core, at a low
//! priority.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use measure::HealthBounds;
use report::html::{Live, write_live};
use report::{Reader, ReportError, io_reason};
use scenario::Scenario;
use serde_json::json;

use crate::exit::Failure;
use crate::live::current_run_file::CurrentRunFile;
use crate::live::http::{Head, write_until};
use crate::live::processor_time::timed;
use crate::live::view_server::{HEADERS, NICE, ServiceName, Token, ViewServer, refuse, respond};

/// Default address.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:9106";
/// Interval between updates to browsers. After the end of the run, that between checks of which of
/// them are still there.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum pause between updates, as a multiple of the processor time that reading the last one
/// took.
const PAUSE_FACTOR: u32 = 20;
/// Time limit for sending an update to a browser.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of connected browsers.
const VIEWERS_MAX: usize = 8;
const SERVICE: ServiceName = ServiceName {
    what: "the dashboard",
    option: "--dashboard=ADDRESS",
    thread: "dashboard",
};

/// Serves the page of the current run until it is dropped.
pub(crate) struct Dashboard {
    shared: Arc<Shared>,
    server: Option<ViewServer>,
    sender: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals a new browser, a new run, or the end.
    changed: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
struct State {
    run: Option<Run>,
    viewers: Vec<Viewer>,
    /// Number of further browsers, to which an update is being sent.
    receiving_update: usize,
    /// Set at the end of the last run.
    end: Option<End>,
    /// True once the run file is not read any more.
    released: bool,
}

/// End of the last run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Run file or folder of the series, if it is kept.
    pub(crate) kept: Option<PathBuf>,
    /// `None` if the page goes away at once.
    pub(crate) stay: Option<Stay>,
}

/// Time for which the page stays after the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    /// True if a key ends it.
    pub(crate) until_key: bool,
    /// Time at which it ends at the latest.
    pub(crate) until: Option<SystemTime>,
}

impl State {
    fn viewer_count(&self) -> usize {
        self.viewers.len() + self.receiving_update
    }
}

/// Run that the page shows.
#[derive(Clone, PartialEq)]
struct Run {
    run_file: CurrentRunFile,
    thresholds: Vec<String>,
    bounds: HealthBounds,
}

struct Viewer {
    stream: TcpStream,
    /// True if the browser has received the definitions of metrics and the run so far.
    initialized: bool,
}

/// A run file that is being read.
struct OpenRun {
    run: Run,
    reader: Reader,
    live: Live,
    end_sent: bool,
}

impl Dashboard {
    /// Starts listening. There is no run yet.
    pub(crate) fn start(address: SocketAddr, token: &Token) -> Result<Dashboard, Failure> {
        let shared = Arc::<Shared>::default();
        let theirs = shared.clone();
        let answer = move |stream: TcpStream, head: &Head| answer(stream, head, &theirs);
        let server = ViewServer::start(address, SERVICE, token, answer)?;
        let theirs = shared.clone();
        let sender = thread::Builder::new().name(SERVICE.thread.to_owned());
        let sender = sender
            .spawn(move || send_updates(&theirs))
            .map_err(|error| {
                Failure::bad(format_args!(
                    "cannot serve the dashboard: {}",
                    io_reason(&error)
                ))
            })?;
        Ok(Dashboard {
            shared,
            server: Some(server),
            sender: Some(sender),
        })
    }

    /// Returns the URL for people.
    pub(crate) fn url(&self) -> String {
        let server = self.server.as_ref();
        server.map_or_else(String::new, |server| server.url("/"))
    }

    /// Shows the run of this file from now on. The file may not exist yet.
    pub(crate) fn show(&self, run_file: &Path, scenario: &Scenario) {
        let thresholds = scenario.thresholds.iter();
        self.shared.state().run = Some(Run {
            run_file: CurrentRunFile::new(run_file),
            thresholds: thresholds.map(|one| one.text.clone()).collect(),
            bounds: scenario.tester.health.clone(),
        });
        self.shared.changed.notify_all();
    }

    /// Shows the end of the last run, and does not read its run file any more. Returns once all
    /// browsers know.
    pub(crate) fn end(&self, end: End) {
        let mut state = self.shared.state();
        state.end = Some(end);
        self.shared.changed.notify_all();
        let is_running = || self.sender.as_ref().is_some_and(|one| !one.is_finished());
        while !state.released && is_running() {
            let waited = self.shared.changed.wait_timeout(state, UPDATE_INTERVAL);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        {
            // The lock is needed: without it, the flag could be set between a check of it and the
            // wait for a change.
            let _state = self.shared.state();
            self.shared.stopping.store(true, Ordering::Release);
        }
        self.shared.changed.notify_all();
        drop(self.server.take());
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

fn answer(mut stream: TcpStream, head: &Head, shared: &Shared) -> io::Result<()> {
    match head.path.as_str() {
        "/" => {
            let mut page = Vec::new();
            write_live(&mut page).map_err(io::Error::other)?;
            respond(&mut stream, "200 OK", "text/html; charset=utf-8", &page)
        }
        "/events" => {
            if shared.state().viewer_count() >= VIEWERS_MAX {
                return refuse(&mut stream, "503 Service Unavailable", "too many viewers");
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}\
                 Connection: close\r\n\r\nretry: 2000\n\n"
            );
            stream.write_all(head.as_bytes())?;
            shared.state().viewers.push(Viewer {
                stream,
                initialized: false,
            });
            shared.changed.notify_all();
            Ok(())
        }
        _ => refuse(&mut stream, "404 Not Found", "the page is at /"),
    }
}

/// Sends updates to all browsers until the dashboard ends. The last update is sent then, or at the
/// end of the run.
fn send_updates(shared: &Shared) {
    let _ = rustix::process::nice(NICE);
    let mut open = None;
    loop {
        let end = shared.state().end.clone();
        let is_last = end.is_some() || shared.is_over();
        // Those that come later see it too.
        let forced = end.as_ref().is_some_and(|end| end.stay.is_some());
        // A run file that cannot be read now may be readable a second later. The time for sending
        // does not count: it depends on the browsers.
        let (events, spent) = timed(|| next_update(shared, &mut open, forced).unwrap_or_default());
        if let Some(events) = &events {
            send(shared, events);
        }
        if let Some(end) = end {
            drop(open.take());
            linger(shared, events, &end);
            return;
        }
        if is_last {
            return;
        }
        wait_for_update(shared, (spent * PAUSE_FACTOR).max(UPDATE_INTERVAL));
    }
}

/// Tells all browsers about the end of the run, and those that come later about the run as well,
/// until the dashboard ends.
fn linger(shared: &Shared, last: Option<Events>, end: &End) {
    let mut events = last.unwrap_or_default();
    // The others have received the run already.
    events.definitions += &std::mem::take(&mut events.run);
    let end = event("end", &end_value(end));
    events.run.clone_from(&end);
    send(shared, &events);
    events.definitions += &end;
    // A comment, which fails if the browser has left.
    events.run = ":\n\n".to_owned();
    shared.state().released = true;
    shared.changed.notify_all();
    while !shared.is_over() {
        wait_for_update(shared, UPDATE_INTERVAL);
        send(shared, &events);
    }
}

/// Returns the end of the run for the page.
fn end_value(end: &End) -> serde_json::Value {
    let until = end.stay.and_then(|stay| stay.until);
    let until = until.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let value = json!({
        "kept": end.kept.as_ref().map(|path| path.to_string_lossy()),
        "stays": end.stay.is_some(),
        "until_key": end.stay.is_some_and(|stay| stay.until_key),
        "until": until.map(|since| since.as_secs_f64()),
    });
    report::html::sanitized(value)
}

/// Waits for `pause`, or until a browser connects if that takes longer. Ends at once with the run
/// or the dashboard.
fn wait_for_update(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    let mut state = shared.state();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ends = state.end.is_some() && !state.released;
        if shared.is_over() || ends || left.is_zero() && !state.viewers.is_empty() {
            return;
        }
        let left = if left.is_zero() {
            UPDATE_INTERVAL
        } else {
            left
        };
        let waited = shared.changed.wait_timeout(state, left);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
}

/// An update for browsers.
#[derive(Default)]
struct Events {
    /// Sent first to browsers that have received nothing yet: the definitions of metrics.
    definitions: String,
    run: String,
}

/// Returns the update that browsers need, if any. With `forced`, it is made in any case.
fn next_update(
    shared: &Shared,
    open: &mut Option<OpenRun>,
    forced: bool,
) -> Result<Option<Events>, ReportError> {
    let (run, viewers) = {
        let state = shared.state();
        (state.run.clone(), state.viewers.len())
    };
    let Some(run) = run.filter(|_| viewers > 0 || forced) else {
        return Ok(None);
    };
    if open.as_ref().is_none_or(|open| open.run != run) {
        *open = None;
        let Some(reader) = run.run_file.open()? else {
            return Ok(None);
        };
        let live = Live::new(&reader, &run.thresholds, run.bounds.clone())?;
        *open = Some(OpenRun {
            run,
            reader,
            live,
            end_sent: false,
        });
        for viewer in &mut shared.state().viewers {
            viewer.initialized = false;
        }
    }
    let Some(open) = open else {
        return Ok(None);
    };
    let changed = open.live.update(&open.reader)?;
    let ends = open.reader.is_finished()? && !open.end_sent;
    // Before the first second, every figure would be 0 or unknown.
    if !open.live.has_windows() && !open.reader.is_finished()? {
        return Ok(None);
    }
    let is_new = |viewer: &Viewer| !viewer.initialized;
    let somebody_new = shared.state().viewers.iter().any(is_new);
    if !changed && !ends && !somebody_new && !forced {
        return Ok(None);
    }
    open.end_sent |= ends;
    Ok(Some(Events {
        run: event("run", &open.live.value(&open.reader)?),
        definitions: event("definitions", &Live::definitions(&open.reader)),
    }))
}

/// Sends an update to all browsers and disconnects those that take too long. The lock is free
/// meanwhile, because the end of the run waits for it.
fn send(shared: &Shared, events: &Events) {
    let mut viewers = {
        let mut state = shared.state();
        let viewers = std::mem::take(&mut state.viewers);
        state.receiving_update = viewers.len();
        viewers
    };
    viewers.retain_mut(|viewer| {
        let until = Instant::now() + SEND_TIMEOUT;
        let mut sent = Ok(());
        if !std::mem::replace(&mut viewer.initialized, true) {
            sent = write_until(&mut viewer.stream, events.definitions.as_bytes(), until);
        }
        sent.and_then(|()| write_until(&mut viewer.stream, events.run.as_bytes(), until))
            .is_ok()
    });
    let mut state = shared.state();
    state.receiving_update = 0;
    state.viewers.append(&mut viewers);
}

/// Formats a server-sent event. The JSON has no line breaks.
fn event(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
