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

use std::path::{Path, PathBuf};

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
        let (shown, text) = open::read(path, "scenario")?;
        let (root, name) = open::tree(&shown, &text)?;
        let mut scenario = decode(root, &name, overrides, path.parent())?;
        scenario.resolve(path.parent());
        Ok(scenario)
    }

    /// Resolves paths that are relative to the scenario file's folder.
    fn resolve(&mut self, folder: Option<&Path>) {
        let Some(folder) = folder else {
            return;
        };
        let resolve = |path: &mut PathBuf| *path = folder.join(&*path);
        if let Some(server) = &mut self.server {
            let clips = server.clips.iter_mut().map(|clips| &mut clips.directory);
            let paths = clips.chain(&mut server.directory);
            paths.chain(&mut server.log.file).for_each(resolve);
            if let ServerStart::Launch { name, .. } = &mut server.start
                && server::is_path(name)
            {
                *name = folder.join(&*name).to_string_lossy().into_owned();
                // The name must stay a path, even if the scenario's folder is empty.
                if !name.contains('/') {
                    name.insert_str(0, "./");
                }
            }
        }
        let sources = self.sources.iter_mut();
        sources
            .filter_map(|source| source.file.as_mut())
            .for_each(resolve);
        for population in &mut self.populations {
            let trace = population.link.iter_mut().flat_map(|link| &mut link.trace);
            trace.for_each(resolve);
            population.config.paths_mut().into_iter().for_each(resolve);
        }
        let trace = self.link.iter_mut().flat_map(|link| &mut link.trace);
        trace.for_each(resolve);
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
