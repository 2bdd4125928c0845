//! Scenario files: a file, a one-line command and `--set` become one validated [`Scenario`].
//!
//! All forms build the same tree, in which every node knows its origin: file, line and column, an
//! argument, or an environment variable. Settings are applied to the tree, then it is decoded.
//! Problems are reported at their position, and several at once if they are independent. The keys
//! of a protocol are read through its entry in [`kit::registry`], because only the protocol
//! knows them.

mod apply;
mod axes;
mod capacity_goal;
mod capacity_keys;
mod capacity_search;
mod collector;
mod comparison;
mod csv;
mod data_files;
mod decode;
mod describe;
mod emulated_link;
mod entry;
mod error;
mod fields;
mod golden;
mod group;
mod link_keys;
mod masking;
mod model;
mod names;
mod network;
mod network_keys;
mod node;
mod node_deserializer;
mod one_liner;
mod open;
mod origin;
mod overrides;
mod placed_links;
mod plan;
mod population;
mod portable;
mod schema;
mod scheme_help;
mod secrets;
mod section;
mod series_keys;
mod server;
mod shell_variables;
mod sources;
mod tester;
mod tree;
mod urls;
mod vary;
mod waiting;
mod warnings;
mod words;
mod yaml;

use std::path::Path;

pub use capacity_search::CapacitySearch;
pub use comparison::Comparison;
pub use describe::{Description, PopulationPlan};
pub use emulated_link::{DEFAULT_MTU, Link};
pub use entry::{
    ConfigFile, EntryReady, FilledEntry, PlaceholderValues, Requirement, ServerEntry, Version,
};
pub use error::{Problem, ScenarioError};
pub use group::Group;
pub use masking::{MASK, is_secret_name, mask_text};
pub use model::{
    Clips, DEFAULT_READY_TIMEOUT, DEFAULT_RECEIVE_BUFFER, DEFAULT_RING, DEFAULT_STOP_TIMEOUT,
    Leave, MulticastSource, Pick, Population, Priority, Ready, Receive, Scenario, Server,
    ServerLog, ServerStart, Setting, StopAt, Tester, Threshold,
};
pub use network::{Network, VETH_CLIENTS, VETH_SERVER, VETH_SERVER_ADDRESS, VETH_SOURCES};
pub use one_liner::{
    ONE_LINER_POPULATION, ONE_LINER_PUBLISHERS, ONE_LINER_SENDERS, OneLiner, capacity_thresholds,
    one_liner_population,
};
pub use overrides::{ENVIRONMENT_PREFIX, OptionSetting, Overrides};
pub use placed_links::PlacedLink;
pub use plan::Plan;
pub use portable::PortableScenario;
pub use schema::schema;
pub use secrets::Secrets;
pub use urls::expand_urls;
pub use vary::{DEFAULT_SETTLE, Series};

use crate::node::Node;

impl Scenario {
    /// Reads the scenario file at `path`, which must describe a single run: see [`Plan::load`].
    /// Paths relative to the file are resolved.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
        let (shown, text) = open::read(path)?;
        let (root, name) = open::tree(&shown, &text)?;
        let mut scenario = decode(root, &name, overrides, path.parent())?;
        scenario.resolve(path.parent());
        Ok(scenario)
    }

    /// Resolves paths that are relative to the scenario file's folder.
    fn resolve(&mut self, folder: Option<&Path>) {
        if let (Some(server), Some(folder)) = (&mut self.server, folder) {
            if let Some(clips) = &mut server.clips {
                clips.directory = folder.join(&clips.directory);
            }
            if let Some(directory) = &mut server.directory {
                *directory = folder.join(&*directory);
            }
            if let ServerStart::Launch { name, .. } = &mut server.start
                && server::is_path(name)
            {
                *name = folder.join(&*name).to_string_lossy().into_owned();
                // The name must stay a path, even if the scenario's folder is empty.
                if !name.contains('/') {
                    name.insert_str(0, "./");
                }
            }
            if let Some(file) = &mut server.log.file {
                *file = folder.join(&*file);
            }
        }
        for source in &mut self.sources {
            if let (Some(file), Some(folder)) = (&mut source.file, folder) {
                *file = folder.join(&*file);
            }
        }
        let own = self.populations.iter_mut();
        let links = own.filter_map(|population| population.link.as_mut());
        for link in links.chain(&mut self.link) {
            if let (Some(trace), Some(folder)) = (&mut link.trace, folder) {
                *trace = folder.join(&*trace);
            }
        }
        for population in &mut self.populations {
            for path in population.config.paths_mut() {
                if let Some(folder) = folder {
                    *path = folder.join(&*path);
                }
            }
        }
    }

    /// Reads a scenario from a string. `source_name` is its name in messages; a scenario without a
    /// `name` is named after it.
    pub fn parse(
        source_name: &str,
        text: &str,
        overrides: &Overrides,
    ) -> Result<Scenario, ScenarioError> {
        let (root, name) = open::tree(source_name, text)?;
        decode(root, &name, overrides, None)
    }

    /// Builds a scenario from a one-line command.
    pub fn from_one_liner(
        line: &OneLiner,
        overrides: &Overrides,
    ) -> Result<Scenario, ScenarioError> {
        let (root, name) = line.named_tree()?;
        decode(root, &name, overrides, None)
    }
}

fn decode(
    mut root: Node,
    name: &str,
    overrides: &Overrides,
    folder: Option<&Path>,
) -> Result<Scenario, ScenarioError> {
    let mut problems = Vec::new();
    overrides.apply(&mut root, &mut problems);
    data_files::inline(&mut root, folder)?;
    decode::decode(&root, name, overrides, problems)
}
