//! Reports, comparisons and series of synthetic run files.

mod compare;
mod contest;
mod document;
mod hostile;
mod html;
mod links;
mod messages;
mod metrics_page;
mod search;
mod series;

use measure::{Catalogue, LINK_CATALOGUE, SERVER_CATALOGUE, TESTER_CATALOGUE};

/// Returns the metrics of a kind of subject, as the command does for a run file.
fn catalogue_of(kind: &str) -> Option<Catalogue> {
    match kind {
        "server" => Some(SERVER_CATALOGUE),
        "tester" => Some(TESTER_CATALOGUE),
        "uplink" | "downlink" => Some(LINK_CATALOGUE),
        name => {
            protocols::install();
            kit::registry::find(name).map(|protocol| protocol.catalogue)
        }
    }
}
