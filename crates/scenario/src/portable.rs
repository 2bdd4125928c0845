//! The portable form of a scenario, from which a runner on another machine makes the same clients.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::decode::decode;
use crate::error::ScenarioError;
use crate::model::Scenario;
use crate::node::{Entry, Node, Value};
use crate::origin::{Origin, SourceKind, SourceText};
use crate::overrides::Overrides;

/// Keys of a scenario that only its coordinator needs. They may contain secrets of the server.
const COORDINATORS: [&str; 3] = ["server", "sources", "thresholds"];

/// Name of the scenario in messages of a runner.
const SOURCE: &str = "the scenario of the coordinator";

/// A scenario in transfer, without the keys that only its coordinator needs: the server, multicast
/// sources and thresholds. It contains the secrets of the clients.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PortableScenario {
    name: String,
    seed: u64,
    starts_in_warm_up: bool,
    tree: PortableNode,
}

/// Without the tree, which may contain secrets.
impl fmt::Debug for PortableScenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PortableScenario({})", self.name)
    }
}

/// A node without its origin.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PortableNode {
    Null,
    Plain(String),
    Quoted(String),
    List(Vec<PortableNode>),
    Map(Vec<(String, PortableNode)>),
}

impl From<&Node> for PortableNode {
    fn from(node: &Node) -> PortableNode {
        match &node.value {
            Value::Null => PortableNode::Null,
            Value::Scalar { text, quoted } => match quoted {
                false => PortableNode::Plain(text.clone()),
                true => PortableNode::Quoted(text.clone()),
            },
            Value::List(items) => PortableNode::List(items.iter().map(Into::into).collect()),
            Value::Map(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|entry| (entry.key.clone(), (&entry.node).into()));
                PortableNode::Map(entries.collect())
            }
        }
    }
}

impl PortableNode {
    fn into_node(self, origin: &Origin) -> Node {
        let value = match self {
            PortableNode::Null => Value::Null,
            PortableNode::Plain(text) => Value::Scalar {
                text,
                quoted: false,
            },
            PortableNode::Quoted(text) => Value::Scalar { text, quoted: true },
            PortableNode::List(items) => {
                let items = items.into_iter();
                Value::List(items.map(|item| item.into_node(origin)).collect())
            }
            PortableNode::Map(entries) => {
                let entries = entries.into_iter().map(|(key, node)| {
                    let node = node.into_node(origin);
                    Entry::new(key, origin.clone(), node)
                });
                Value::Map(entries.collect())
            }
        };
        Node {
            value,
            origin: origin.clone(),
        }
    }
}

impl Scenario {
    /// Returns the scenario in the form for runners on other machines.
    pub fn portable(&self) -> PortableScenario {
        let mut root = self.tree.root();
        if let Value::Map(entries) = &mut root.value {
            entries.retain(|entry| !COORDINATORS.contains(&entry.key.as_str()));
        }
        PortableScenario {
            name: self.name.clone(),
            seed: self.seed,
            starts_in_warm_up: self.starts_in_warm_up,
            tree: (&root).into(),
        }
    }

    /// Returns the paths of all files that the clients read, in a fixed order.
    pub fn client_files_mut(&mut self) -> Vec<&mut PathBuf> {
        let populations = self.populations.iter_mut();
        populations
            .flat_map(|population| population.config.paths_mut())
            .collect()
    }
}

impl PortableScenario {
    /// Decodes the scenario. Relative paths are as written.
    ///
    /// # Errors
    /// It is no scenario of this version.
    pub fn decode(self) -> Result<Scenario, ScenarioError> {
        let source = SourceText::new(SourceKind::File, SOURCE, "");
        let root = self.tree.into_node(&Origin::whole(&source));
        let overrides = Overrides {
            default_seed: self.seed,
            ..Overrides::default()
        };
        let mut scenario = decode(&root, &self.name, &overrides, Vec::new())?;
        scenario.name = self.name;
        scenario.seed = self.seed;
        scenario.starts_in_warm_up = self.starts_in_warm_up;
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
name: 'yes'
server: {command: [server, --password, hidden], ready: {port: 1}}
clients:
  viewers:
    urls: ['rtsp://user:secret@127.0.0.1:1/a', 'rtsp://127.0.0.1:1/b']
    pick: in_turn
    load: {clients: 20, ramp: 5s}
    rejoin: true
  senders:
    urls: ['rtsp://127.0.0.1:1/c']
    publish: {file: clip.mp4}
    load: {clients: 1}
thresholds: ['viewers.loss < 1%', 'server.cpu < 50%']
duration: 30s
workers: 2
";

    #[test]
    fn portable_scenario_has_the_same_clients_and_not_the_server() {
        protocols::install();
        let overrides = Overrides {
            set: vec!["clients.viewers.load.clients=40".to_owned()],
            default_seed: 9,
            ..Overrides::default()
        };
        let own = Scenario::parse("test.yaml", TEXT, &overrides);
        let own = own.unwrap_or_else(|error| panic!("{error:?}"));
        let sent = serde_json::to_string(&own.portable()).expect("plain data");
        assert!(
            sent.contains("secret") && !sent.contains("hidden"),
            "{sent}"
        );
        let came: PortableScenario = serde_json::from_str(&sent).expect("as written");
        assert!(!format!("{came:?}").contains("secret"));
        let mut came = came.decode().unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(came.populations, own.populations);
        assert_eq!(came.client_files_mut(), [&PathBuf::from("clip.mp4")]);
        let expected = Scenario {
            server: None,
            thresholds: Vec::new(),
            ..own
        };
        assert_eq!(came, expected);
    }
}
