//! Live view of a run on a terminal, with everything that is needed to draw it again.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Phase, Progress};
use report::paint::Paint;
use scenario::Scenario;

use super::block::Block;
use super::history::History;
use super::keys::Request;
use super::lines::View;

/// Live view of a run.
pub(super) struct Screen {
    block: Block,
    history: History,
    /// Last progress. `None` before the first.
    progress: Option<Progress>,
    /// Duration that was planned when the run began, if known.
    planned: Option<Duration>,
    /// URLs of each population, without secrets.
    urls: BTreeMap<String, String>,
    /// True if keys are handled.
    pub(super) obeys_keys: bool,
    shows_keys: bool,
}

impl Screen {
    pub(super) fn new(paint: Paint, scenario: &Scenario, planned: Option<Duration>) -> Screen {
        Screen {
            block: Block::new(paint),
            history: History::default(),
            progress: None,
            planned,
            urls: urls(scenario),
            obeys_keys: false,
            shows_keys: false,
        }
    }

    /// Shows this progress.
    pub(super) fn update(&mut self, progress: &Progress) {
        if let Phase::Warning(text) = &progress.phase {
            self.block.write_above(&format!("warning: {text}"));
            return;
        }
        self.history.add(progress);
        self.progress = Some(progress.clone());
        self.draw();
    }

    /// Handles a request and draws again.
    pub(super) fn obey(&mut self, request: Request) {
        match request {
            Request::ToggleKeys => self.shows_keys = !self.shows_keys,
            Request::Redraw => {}
        }
        self.draw();
    }

    fn draw(&mut self) {
        let Some(progress) = &self.progress else {
            return;
        };
        let view = View {
            progress,
            history: &self.history,
            planned: self.planned,
            urls: &self.urls,
            obeys_keys: self.obeys_keys,
            shows_keys: self.shows_keys,
        };
        self.block.draw(|size| view.lines(size));
    }

    pub(super) fn clear(&mut self) {
        self.block.clear();
    }
}

/// Returns the URLs of each population as a line.
fn urls(scenario: &Scenario) -> BTreeMap<String, String> {
    let secrets = scenario.secrets();
    let populations = scenario.populations.iter().filter_map(|population| {
        let (first, more) = population.urls.split_first()?;
        let text = match more.len() {
            0 => first.clone(),
            more => format!("{first} and {more} more"),
        };
        Some((population.name.clone(), secrets.mask(&text)))
    });
    populations.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_passwords() {
        protocols::install();
        let text = "clients:\n  one: {urls: ['rtsp://me:secret@h/a'], load: {clients: 1}}\n  \
                    many: {urls: ['rtsp://h/a{1..3}'], load: {clients: 3}}\nduration: 5s\n";
        let scenario = Scenario::parse("test", text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"));
        let urls = urls(&scenario);
        assert_eq!(urls["one"], "rtsp://me:***@h/a");
        assert_eq!(urls["many"], "rtsp://h/a1 and 2 more");
    }
}
