//! Real browsers next to the simulated clients of a run: started before the run, told when it
//! begins and when to leave, and polled once per window for their figures.

mod page_server;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kit::browser::{self, BROWSER_CATALOGUE, Figures, PageCommand, PageState, PageTotals, metrics};
use kit::metrics::{ACTIVE, FAILED, PLAYING, STARTED, STOPPED};
use measure::{Recorder, Window};
use scenario::Scenario;
use sut::{Browser, BrowserProcess};

use crate::control::Control;
use crate::error::EngineError;
use crate::modes::receive::draw_secret;
use page_server::PageServer;

/// Time limit for opening all pages.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// Time limit for leaving. Pages poll for commands once per second.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

/// Interval between checks of the pages.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of consecutive windows without figures after which a page counts as failed.
const SILENT_MAX: u32 = 10;

/// Browsers of a run. Dropping them kills the processes.
#[derive(Default)]
pub(crate) struct Browsers {
    page_server: Option<PageServer>,
    each: Vec<RunningBrowser>,
}

/// One browser. Its index is the number of its page.
struct RunningBrowser {
    /// Subject of its metrics.
    subject: String,
    browser: Browser,
    recorder: Recorder,
    seen: PageTotals,
    newest: Figures,
    /// Consecutive windows without figures.
    silent: u32,
    begun: bool,
    /// PSS at the start of the run, used in the first window.
    pss: Option<u64>,
    /// True once its end has been counted.
    over: bool,
}

/// Entry for the event list.
pub(crate) struct BrowserEvent {
    pub(crate) subject: String,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Checks that the browsers of a scenario are available.
///
/// # Errors
/// No browser is installed.
pub(crate) fn check(scenario: &Scenario) -> Result<(), EngineError> {
    if scenario.golden().next().is_some() {
        Browser::program().map_err(EngineError::Browser)?;
    }
    Ok(())
}

impl Browsers {
    /// Starts the browsers of a scenario in the namespace of the calling thread. Their pages are
    /// open on return.
    ///
    /// # Errors
    /// A browser is missing, does not start, or does not open its page.
    pub(crate) fn start(scenario: &Scenario, control: &Control) -> Result<Browsers, EngineError> {
        let mut wanted = Vec::new();
        for (population, golden) in scenario.golden() {
            let urls = population.urls.iter().cycle();
            for url in urls.take(golden.chromium as usize) {
                let page = population.config.golden_page(url);
                let page = page.map_err(|message| EngineError::Golden {
                    population: population.name.clone(),
                    message,
                })?;
                wanted.push((browser::subject(&population.name), page));
            }
        }
        if wanted.is_empty() {
            return Ok(Browsers::default());
        }
        let failed = || EngineError::system("cannot serve the pages of browsers");
        let pages = wanted.iter().map(|(_, page)| page.html.clone()).collect();
        let secret = draw_secret()?;
        let page_server = PageServer::start(pages, secret).map_err(failed())?;
        let options = sut::Options {
            cancelled: control.stop_flag(),
            ..sut::Options::default()
        };
        let mut each = Vec::new();
        for (number, (subject, page)) in wanted.into_iter().enumerate() {
            let url = page_server.url(number);
            let browser = Browser::start(&url, page.is_insecure, &options);
            let browser = browser.map_err(|error| match error {
                sut::SutError::Cancelled => EngineError::Stopped,
                error => EngineError::Browser(error),
            })?;
            each.push(RunningBrowser {
                subject,
                browser,
                recorder: Recorder::new(BROWSER_CATALOGUE),
                seen: PageTotals::default(),
                newest: Figures::default(),
                silent: 0,
                begun: false,
                pss: None,
                over: false,
            });
        }
        let browsers = Browsers {
            page_server: Some(page_server),
            each,
        };
        browsers.wait(control)?;
        Ok(browsers)
    }

    fn wait(&self, control: &Control) -> Result<(), EngineError> {
        let until = Instant::now() + OPEN_WITHIN;
        let Some(page_server) = &self.page_server else {
            return Ok(());
        };
        for (number, one) in self.each.iter().enumerate() {
            while !page_server.runs(number) {
                if control.is_stopped() {
                    return Err(EngineError::Stopped);
                }
                let ended = one.browser.has_exited();
                if ended.is_some() || Instant::now() >= until {
                    let why = ended.unwrap_or_else(|| {
                        format!(
                            "it did not open its page within {} s",
                            OPEN_WITHIN.as_secs()
                        )
                    });
                    return Err(EngineError::BrowserUnusable {
                        why,
                        log: one.browser.log_tail(),
                    });
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Tells the pages that the run begins.
    pub(crate) fn begin(&mut self) {
        if let Some(page_server) = &self.page_server {
            page_server.tell(PageCommand::Begin);
        }
        for one in &mut self.each {
            // This call also excludes the CPU time of startup from the first window. The memory
            // value is kept for that window because PSS is sampled rarely.
            one.pss = one.browser.observe().pss;
        }
    }

    /// Tells the pages to leave the server at the end of the run.
    pub(crate) fn leave(&self) {
        if let Some(page_server) = &self.page_server {
            page_server.tell(PageCommand::Leave);
        }
    }

    /// Waits until all pages have left and reported their last figures.
    pub(crate) fn wait_until_left(&self) {
        let until = Instant::now() + LEAVE_WITHIN;
        let Some(page_server) = &self.page_server else {
            return;
        };
        for (number, one) in self.each.iter().enumerate() {
            while !page_server.is_done(number) && one.browser.has_exited().is_none() {
                if Instant::now() >= until {
                    return;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Window of each subject, and entries for the event list. After the last one nothing more is
    /// counted.
    pub(crate) fn window(
        &mut self,
        is_last: bool,
    ) -> (BTreeMap<String, Window>, Vec<BrowserEvent>) {
        let (mut windows, mut events) = (BTreeMap::<String, Window>::new(), Vec::new());
        let Some(page_server) = &self.page_server else {
            return (windows, events);
        };
        for (number, one) in self.each.iter_mut().enumerate() {
            let reports = page_server.take(number);
            let window = one.window(reports, is_last, &mut events);
            match windows.get_mut(&one.subject) {
                Some(sum) => sum.merge(&window, BROWSER_CATALOGUE),
                None => drop(windows.insert(one.subject.clone(), window)),
            }
        }
        (windows, events)
    }

    /// Stops all browsers.
    pub(crate) fn stop(self) {
        for one in self.each {
            one.browser.stop();
        }
    }
}

impl RunningBrowser {
    fn window(
        &mut self,
        reports: Vec<Figures>,
        is_last: bool,
        events: &mut Vec<BrowserEvent>,
    ) -> Window {
        if !std::mem::replace(&mut self.begun, true) {
            self.recorder.add(STARTED, 1);
        }
        self.silent += 1;
        for figures in reports {
            if self.seen.record(&figures, &mut self.recorder) {
                self.silent = 0;
                if !figures.text.is_empty() && figures.state != PageState::Failed {
                    events.push(self.event("browser_note", figures.text.clone()));
                }
                self.newest = figures;
            }
        }
        let streams = match self.silent {
            0 => PageTotals::streams(&self.newest),
            _ => 0.0,
        };
        self.recorder.set(metrics::STREAMS, streams);
        // A page reports a second after it has passed, and the first one a little later.
        if self.silent > 1 && !self.over {
            self.recorder.add(metrics::SILENT_SECONDS, 1);
        }
        self.sample_resources();
        self.count_end(is_last, events);
        let active = if self.over { 0.0 } else { 1.0 };
        let plays = !self.over && self.newest.state == PageState::Playing;
        self.recorder.set(ACTIVE, active);
        self.recorder.set(PLAYING, if plays { 1.0 } else { 0.0 });
        self.recorder.take_window()
    }

    fn sample_resources(&mut self) {
        let usage = self.browser.observe();
        let pss = usage.pss.or(self.pss.take());
        let cpu_of = |kind: BrowserProcess| {
            let cores = usage.cpu_of.get(&kind).copied().unwrap_or(0.0);
            (!usage.cpu_of.is_empty()).then_some(cores)
        };
        for (gauge, value) in [
            (metrics::CPU_RENDERER, cpu_of(BrowserProcess::Renderer)),
            (metrics::CPU_GPU, cpu_of(BrowserProcess::Gpu)),
            (metrics::CPU_UTILITY, cpu_of(BrowserProcess::Utility)),
            (metrics::CPU_MAIN, cpu_of(BrowserProcess::Main)),
            (metrics::CPU, usage.cpu),
            (metrics::PSS, pss.map(|bytes| bytes as f64)),
        ] {
            match value {
                Some(value) => self.recorder.set(gauge, value),
                None => self.recorder.unset(gauge),
            }
        }
    }

    /// Counts the end of the browser, once.
    fn count_end(&mut self, is_last: bool, events: &mut Vec<BrowserEvent>) {
        if self.over {
            return;
        }
        let ended = self.browser.has_exited();
        let failed = match (ended, self.newest.state) {
            (Some(how), _) => Some(("browser_ended", how)),
            (None, PageState::Failed) => Some(("page_failed", self.newest.text.clone())),
            (None, _) if self.silent > SILENT_MAX => {
                let text = format!("it reported nothing for {SILENT_MAX} s");
                Some(("page_silent", text))
            }
            (None, _) if is_last && !self.seen.has_media() => Some((
                "no_media",
                "it neither received nor sent any media".to_owned(),
            )),
            (None, _) => None,
        };
        match failed {
            Some((reason, text)) => {
                self.recorder.add(FAILED, 1);
                self.recorder.fail(reason);
                events.push(self.event(reason, text));
                self.over = true;
            }
            None if is_last => {
                self.recorder.add(STOPPED, 1);
                self.over = true;
            }
            None => {}
        }
    }

    fn event(&self, kind: &'static str, text: String) -> BrowserEvent {
        BrowserEvent {
            subject: self.subject.clone(),
            kind,
            text,
        }
    }
}
