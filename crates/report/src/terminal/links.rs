//! Emulated links in the summary.

use super::Screen;
use crate::link::lines;
use crate::model::Report;

impl Screen {
    /// Writes each link, with the packets of both directions.
    pub(super) fn links(&mut self, report: &Report) {
        let mut asked = None;
        for link in &report.links {
            // Both directions are configured together.
            let (name, direction) = match link.name.rsplit_once('_') {
                Some((population, direction)) => (format!("link of {population}"), direction),
                None => ("link".to_owned(), link.name.as_str()),
            };
            if asked.as_ref() != Some(&name) {
                self.heading(&name, &link.link);
                asked = Some(name);
            }
            let [packets, times] = lines(&link.metrics);
            self.row(direction, &packets);
            if !times.is_empty() {
                self.row("", &times);
            }
        }
    }
}
