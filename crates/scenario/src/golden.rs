//! Golden browsers: real browsers that run together with the clients of a population.

use kit::browser::{self, Golden};

use crate::error::Problem;
use crate::model::{Population, Scenario};
use crate::node::Node;

impl Scenario {
    /// Returns the populations that have golden browsers, with the settings of the browsers.
    pub fn golden(&self) -> impl Iterator<Item = (&Population, Golden)> {
        golden_populations(&self.populations)
    }
}

fn golden_populations(populations: &[Population]) -> impl Iterator<Item = (&Population, Golden)> {
    let own = populations.iter();
    own.filter_map(|population| Some((population, population.config.facts().golden?)))
}

/// Returns the names of the golden browsers in thresholds.
pub(crate) fn subjects(populations: &[Population]) -> Vec<String> {
    let own = golden_populations(populations);
    own.map(|(population, _)| browser::subject(&population.name))
        .collect()
}

/// Refuses golden browsers that cannot do what their population does, and populations with the name
/// of another population's browsers.
pub(crate) fn check(populations: &[Population], root: &Node, problems: &mut Vec<Problem>) {
    let taken = subjects(populations);
    for entry in root.get("clients").into_iter().flat_map(Node::entries) {
        if taken.contains(&entry.key) {
            let text = format!(
                "`{}` is the name of the browsers of another population",
                entry.key
            );
            Problem::new(&entry.key_origin, text)
                .help("thresholds use that name for the browsers: choose another")
                .report(problems);
        }
        let own =
            golden_populations(populations).find(|(population, _)| population.name == entry.key);
        let (Some((population, _)), Some(golden)) = (own, entry.node.entry("golden")) else {
            continue;
        };
        let mut urls = population.urls.iter();
        if let Some(message) = urls.find_map(|url| population.config.golden_page(url).err()) {
            Problem::new(&golden.key_origin, message)
                .help("remove `golden`, or move it to another population")
                .report(problems);
        }
    }
}
