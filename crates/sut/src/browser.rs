//! A headless Chromium with one page. It is started like a server, so that none of its processes
//! outlives streamgauge, and is observed by process type.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use scenario::ServerLog;

use crate::catalogue::{find_program, server_files};
use crate::error::SutError;
use crate::launched::StopReport;
use crate::proc;
use crate::spec::{Launch, Origin, ServerSpec};
use crate::user::User;
use crate::{Options, Sut, WatchedLog};

/// Names of the program, in order of preference. The headless shell is smaller.
const PROGRAMS: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chrome",
];

/// Time limit after SIGTERM before the browser is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Arguments, in addition to the profile's folder and the page.
///
/// The sandbox is off, because it is not available everywhere; the browser therefore does not run
/// as root if possible. Pages may play media and use the fake camera without permission. The page
/// may read responses without CORS headers, and its candidates contain real addresses. A page in
/// the background is not throttled.
const ARGUMENTS: [&str; 17] = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-web-security",
    "--allow-loopback-in-peer-connection",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--disable-features=WebRtcHideLocalIpsWithMdns,LocalNetworkAccessChecks",
];

/// Type of a browser process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrowserProcess {
    /// A page: it decodes, encodes and encrypts.
    Renderer,
    /// The GPU process.
    Gpu,
    /// A service, such as the network.
    Utility,
    /// The first process, and the zygotes.
    Main,
}

/// Result of one observation of a browser.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrowserObservation {
    /// Processor time of all its processes since the last observation, in cores.
    pub cpu: Option<f64>,
    /// Processor time by process type, in cores; empty for the first observation.
    pub cpu_of: HashMap<BrowserProcess, f64>,
    /// Proportional set size in bytes; `None` if it was not measured this time.
    pub pss: Option<u64>,
}

/// A running browser. Dropping it kills it.
#[derive(Debug)]
pub struct Browser {
    sut: Sut,
    /// Type and processor time of each process at the last observation, the time in clock ticks.
    ticks: HashMap<u32, (BrowserProcess, u64)>,
    observed_at: Option<Instant>,
}

impl Browser {
    /// Returns the program that is installed here.
    ///
    /// # Errors
    /// If none is installed; the error says what to install.
    pub fn program() -> Result<PathBuf, SutError> {
        PROGRAMS
            .iter()
            .find_map(|name| find_program(name))
            .ok_or_else(|| SutError::Missing {
                what: "Chromium, which `golden` needs,".to_owned(),
                remedy: "apt-get install chromium".to_owned(),
            })
    }

    /// Starts the browser with a page. The page's request shows whether the browser could open it.
    ///
    /// # Errors
    /// If no browser is installed, or it cannot be started.
    pub fn start(url: &str, is_insecure: bool, options: &Options) -> Result<Browser, SutError> {
        let program = Browser::program()?;
        let user = User::unprivileged();
        let scratch = server_files::scratch()?;
        let home = server_files::home(scratch.path(), user.as_ref())?;
        let mut profile = OsString::from("--user-data-dir=");
        profile.push(home.join("profile"));
        let mut command: Vec<OsString> = vec![program.into()];
        command.extend(ARGUMENTS.map(OsString::from));
        if is_insecure {
            command.push("--ignore-certificate-errors".into());
        }
        command.extend([profile, url.into()]);
        let mut launch = Launch::new(command.clone());
        launch.environment = vec![("HOME".into(), home.into_os_string())];
        launch.directory = Some(scratch.path().to_owned());
        launch.user = user;
        launch.stop_within = STOP_TIMEOUT;
        let spec = ServerSpec::new(Origin::Command(command));
        let log = WatchedLog::new(&ServerLog::default(), scratch.path())?;
        let (urls, scratch) = (Vec::new(), Some(scratch));
        let sut = Sut::launch(&spec, &launch, urls, scratch, log, options, &|_| {})?;
        Ok(Browser {
            sut,
            ticks: HashMap::new(),
            observed_at: None,
        })
    }

    /// Observes the resource use. Called once per window.
    pub fn observe(&mut self) -> BrowserObservation {
        let seen = self.sut.observe();
        BrowserObservation {
            cpu: seen.cpu,
            cpu_of: self.by_kind(),
            pss: seen.pss,
        }
    }

    fn by_kind(&mut self) -> HashMap<BrowserProcess, f64> {
        let now = Instant::now();
        let before = std::mem::take(&mut self.ticks);
        let mut grown: HashMap<BrowserProcess, u64> = HashMap::new();
        for pid in self.sut.processes() {
            let Some(stat) = proc::stat(pid) else {
                continue;
            };
            let (kind, last) = match before.get(&pid) {
                Some(&(kind, last)) => (kind, last),
                None => (process_type(pid), 0),
            };
            *grown.entry(kind).or_default() += stat.ticks.saturating_sub(last);
            self.ticks.insert(pid, (kind, stat.ticks));
        }
        let Some(last) = self.observed_at.replace(now) else {
            return HashMap::new();
        };
        let seconds = now.duration_since(last).as_secs_f64();
        let a_second = rustix::param::clock_ticks_per_second() as f64;
        let grown = grown.into_iter().filter(|_| seconds > 0.0);
        grown
            .map(|(kind, ticks)| (kind, ticks as f64 / a_second / seconds))
            .collect()
    }

    /// Returns how the browser ended; `None` while it runs.
    pub fn has_exited(&self) -> Option<String> {
        self.sut.has_exited()
    }

    /// Returns the end of its output.
    pub fn log_tail(&self) -> String {
        self.sut.log_tail()
    }

    /// Ends the browser.
    pub fn stop(self) -> StopReport {
        self.sut.stop()
    }
}

/// Returns the type of a process, from its command line.
fn process_type(pid: u32) -> BrowserProcess {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    kind_in(&String::from_utf8_lossy(&line))
}

/// Parses a command line. Arguments end with NUL, or with spaces if the process rewrote its line.
fn kind_in(line: &str) -> BrowserProcess {
    let mut words = line.split(['\0', ' ']);
    match words.find_map(|word| word.strip_prefix("--type=")) {
        Some("renderer") => BrowserProcess::Renderer,
        Some("gpu-process") => BrowserProcess::Gpu,
        Some("utility") => BrowserProcess::Utility,
        _ => BrowserProcess::Main,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_type_follows_from_the_command_line() {
        for (line, kind) in [
            ("chromium\0--headless\0http://h/", BrowserProcess::Main),
            ("chromium\0--type=zygote\0", BrowserProcess::Main),
            ("chromium --type=renderer --x=1", BrowserProcess::Renderer),
            ("chromium\0--type=gpu-process\0", BrowserProcess::Gpu),
            (
                "chromium\0--type=utility\0--utility-sub-type=network",
                BrowserProcess::Utility,
            ),
            ("", BrowserProcess::Main),
        ] {
            assert_eq!(kind_in(line), kind, "{line}");
        }
    }
}
