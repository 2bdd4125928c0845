//! The real browsers beside the clients of a run: started before it, told when it begins and when
//! to leave, and asked once a window what they saw.

mod site;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use measure::{Recorder, Window};
use protocol::browser::{self, BROWSER_CATALOGUE, Figures, Seen, State, Word, metrics};
use protocol::metrics::{ACTIVE, FAILED, PLAYING, STARTED, STOPPED};
use scenario::Scenario;
use sut::{Browser, BrowserProcess};

use crate::control::Control;
use crate::error::EngineError;
use crate::receive::draw_secret;
use site::Site;

/// How long browsers may take to open their pages.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// How long they may take to leave when they are told to: they hear of it within a second.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// After so many windows in which a page told nothing it has failed.
const SILENT_MAX: u32 = 10;

/// Browsers of a run. Dropping them kills them.
#[derive(Default)]
pub(crate) struct Browsers {
    site: Option<Site>,
    each: Vec<One>,
}

/// One of them. Its place is the number of its page.
struct One {
    /// Whose record its figures go to.
    subject: String,
    browser: Browser,
    recorder: Recorder,
    seen: Seen,
    newest: Figures,
    /// Windows on end of which it told nothing.
    silent: u32,
    begun: bool,
    /// Memory, as it was when the run began, for the first window.
    pss: Option<u64>,
    /// Whether it has been counted how it ended.
    over: bool,
}

/// Something for the list of events.
pub(crate) struct News {
    pub(crate) subject: String,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Makes sure that the browsers of a scenario can be had.
///
/// # Errors
/// None is installed.
pub(crate) fn check(scenario: &Scenario) -> Result<(), EngineError> {
    if scenario.golden().next().is_some() {
        Browser::program().map_err(EngineError::Browser)?;
    }
    Ok(())
}

impl Browsers {
    /// Starts those of a scenario where the calling thread is; they have opened their pages when
    /// this returns.
    ///
    /// # Errors
    /// One is missing, does not start, or does not open its page.
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
        let site = Site::start(pages, secret).map_err(failed())?;
        let options = sut::Options {
            cancelled: control.stop_flag(),
            ..sut::Options::default()
        };
        let mut each = Vec::new();
        for (number, (subject, page)) in wanted.into_iter().enumerate() {
            let url = site.url(number);
            let browser = Browser::start(&url, page.is_insecure, &options);
            let browser = browser.map_err(|error| match error {
                sut::SutError::Cancelled => EngineError::Stopped,
                error => EngineError::Browser(error),
            })?;
            each.push(One {
                subject,
                browser,
                recorder: Recorder::new(BROWSER_CATALOGUE),
                seen: Seen::default(),
                newest: Figures::default(),
                silent: 0,
                begun: false,
                pss: None,
                over: false,
            });
        }
        let browsers = Browsers {
            site: Some(site),
            each,
        };
        browsers.wait(control)?;
        Ok(browsers)
    }

    fn wait(&self, control: &Control) -> Result<(), EngineError> {
        let until = Instant::now() + OPEN_WITHIN;
        let Some(site) = &self.site else {
            return Ok(());
        };
        for (number, one) in self.each.iter().enumerate() {
            while !site.runs(number) {
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
                    return Err(EngineError::BrowserIdle {
                        why,
                        log: one.browser.log_tail(),
                    });
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    /// The run begins.
    pub(crate) fn begin(&mut self) {
        if let Some(site) = &self.site {
            site.tell(Word::Begin);
        }
        for one in &mut self.each {
            // What they spent on their start is none of the first window's. What memory they have
            // is, because that is not looked at often.
            one.pss = one.browser.look().pss;
        }
    }

    /// The run is over: they leave the server.
    pub(crate) fn leave(&self) {
        if let Some(site) = &self.site {
            site.tell(Word::Leave);
        }
    }

    /// Waits until all have left, and have told what they saw until then.
    pub(crate) fn wait_until_left(&self) {
        let until = Instant::now() + LEAVE_WITHIN;
        let Some(site) = &self.site else {
            return;
        };
        for (number, one) in self.each.iter().enumerate() {
            while !site.is_done(number) && one.browser.has_exited().is_none() {
                if Instant::now() >= until {
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// What each subject's browsers saw in the window that is over, and what is worth an event.
    /// After the last one nothing more is counted.
    pub(crate) fn window(&mut self, is_last: bool) -> (BTreeMap<String, Window>, Vec<News>) {
        let (mut windows, mut news) = (BTreeMap::<String, Window>::new(), Vec::new());
        let Some(site) = &self.site else {
            return (windows, news);
        };
        for (number, one) in self.each.iter_mut().enumerate() {
            let told = site.take(number);
            let window = one.window(told, is_last, &mut news);
            match windows.get_mut(&one.subject) {
                Some(sum) => sum.merge(&window, BROWSER_CATALOGUE),
                None => drop(windows.insert(one.subject.clone(), window)),
            }
        }
        (windows, news)
    }

    /// Ends them.
    pub(crate) fn stop(self) {
        for one in self.each {
            one.browser.stop();
        }
    }
}

impl One {
    fn window(&mut self, told: Vec<Figures>, is_last: bool, news: &mut Vec<News>) -> Window {
        if !std::mem::replace(&mut self.begun, true) {
            self.recorder.add(STARTED, 1);
        }
        self.silent += 1;
        for figures in told {
            if self.seen.record(&figures, &mut self.recorder) {
                self.silent = 0;
                if !figures.text.is_empty() && figures.state != State::Failed {
                    news.push(self.news("browser_note", figures.text.clone()));
                }
                self.newest = figures;
            }
        }
        let streams = match self.silent {
            0 => Seen::streams(&self.newest),
            _ => 0.0,
        };
        self.recorder.set(metrics::STREAMS, streams);
        // A page tells of a second when it is over, and the first one a little after that.
        if self.silent > 1 && !self.over {
            self.recorder.add(metrics::SILENT_SECONDS, 1);
        }
        self.look();
        self.note_the_end(is_last, news);
        let active = if self.over { 0.0 } else { 1.0 };
        let plays = !self.over && self.newest.state == State::Playing;
        self.recorder.set(ACTIVE, active);
        self.recorder.set(PLAYING, if plays { 1.0 } else { 0.0 });
        self.recorder.take_window()
    }

    fn look(&mut self) {
        let look = self.browser.look();
        let pss = look.pss.or(self.pss.take());
        let kinds = [
            (metrics::CPU_RENDERER, BrowserProcess::Renderer),
            (metrics::CPU_GPU, BrowserProcess::Gpu),
            (metrics::CPU_UTILITY, BrowserProcess::Utility),
            (metrics::CPU_MAIN, BrowserProcess::Main),
        ];
        for (gauge, kind) in kinds {
            match look.cpu_of.is_empty() {
                true => self.recorder.unset(gauge),
                false => {
                    let cores = look.cpu_of.get(&kind).copied().unwrap_or(0.0);
                    self.recorder.set(gauge, cores);
                }
            }
        }
        for (gauge, value) in [
            (metrics::CPU, look.cpu),
            (metrics::PSS, pss.map(|bytes| bytes as f64)),
        ] {
            match value {
                Some(value) => self.recorder.set(gauge, value),
                None => self.recorder.unset(gauge),
            }
        }
    }

    /// Counts how it ended, once.
    fn note_the_end(&mut self, is_last: bool, news: &mut Vec<News>) {
        if self.over {
            return;
        }
        let ended = self.browser.has_exited();
        let failed = match (ended, self.newest.state) {
            (Some(how), _) => Some(("browser_ended", how)),
            (None, State::Failed) => Some(("page_failed", self.newest.text.clone())),
            (None, _) if self.silent > SILENT_MAX => {
                let text = format!("it has told nothing for {SILENT_MAX} s");
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
                news.push(self.news(reason, text));
                self.over = true;
            }
            None if is_last => {
                self.recorder.add(STOPPED, 1);
                self.over = true;
            }
            None => {}
        }
    }

    fn news(&self, kind: &'static str, text: String) -> News {
        News {
            subject: self.subject.clone(),
            kind,
            text,
        }
    }
}
