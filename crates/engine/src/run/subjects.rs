//! The subjects of a run and their metrics.

use kit::browser::{BROWSER_CATALOGUE, KIND as BROWSER};
use kit::registry;
use measure::link::{DOWNLINK, LINK_CATALOGUE, UPLINK};
use measure::{Catalogue, server, tester};

/// Metrics of a kind of subject: `server`, `tester`, `uplink`, `downlink`, `browser`, or the name
/// of a protocol for its populations. Reports use it to read run files.
pub fn catalogue_of(kind: &str) -> Option<Catalogue> {
    match kind {
        "server" => Some(server::SERVER_CATALOGUE),
        "tester" => Some(tester::TESTER_CATALOGUE),
        UPLINK | DOWNLINK => Some(LINK_CATALOGUE),
        BROWSER => Some(BROWSER_CATALOGUE),
        _ => registry::find(kind).map(|protocol| protocol.catalogue),
    }
}
