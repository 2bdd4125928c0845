//! Keys of the network of a run.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::collector::TypeSyntax;
use crate::error::Problem;
use crate::network::Network;
use crate::node::{Node, Value};
use crate::section::{self, Key, one_line};

const FORM: &str = "write `network: veth`, or `network: {kind: veth, congestion: bbr}`";

const FORMS: &[TypeSyntax] = &[("NetworkKeys", FORM, &[])];

/// Maximum length of the name of a congestion control (linux/tcp.h, `TCP_CA_NAME_MAX`).
const MAX_NAME: usize = 15;

/// A network created for the run, and TCP's behaviour in it.
#[derive(Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line)]
struct NetworkKeys {
    /// Kind of network. Default `veth`.
    kind: Key<Network>,
    /// TCP congestion control of clients and server: `cubic`, `reno`, `bbr` or another one of the
    /// kernel. Default: the kernel's.
    congestion: Key<Congestion>,
}

/// Name of a congestion control.
struct Congestion(String);

impl<'de> Deserialize<'de> for Congestion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Congestion, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Congestion;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a congestion control")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Congestion, E> {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
                match !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(plain) {
                    true => Ok(Congestion(name.to_owned())),
                    false => Err(E::custom(
                        "this is not a valid name of a congestion control; write one such as `cubic`, `reno` \
                         or `bbr`",
                    )),
                }
            }
        }
        deserializer.deserialize_any(Name)
    }
}

impl JsonSchema for Congestion {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Congestion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,15}$" })
    }
}

/// Reads the network of a scenario and TCP's congestion control in it. `usual` is the default
/// network.
pub(crate) fn read(
    root: &Node,
    usual: Network,
    problems: &mut Vec<Problem>,
) -> (Network, Option<String>) {
    let Some(entry) = root.entry("network") else {
        return (usual, None);
    };
    if !matches!(entry.node.value, Value::Map(_)) {
        let network = section::value_of(root, "network", "", FORMS, problems);
        return (network.unwrap_or(usual), None);
    }
    let keys: NetworkKeys =
        section::read(&entry.node, "network", FORMS, problems).unwrap_or_default();
    let network = keys.kind.or(Network::Veth);
    if let (Network::Own, Some(congestion)) = (network, entry.node.entry("congestion")) {
        let text = "`congestion` cannot be set in this machine's own network";
        Problem::new(&congestion.key_origin, text)
            .help("choose a `kind` that is created for the run: `veth` or `loopback`")
            .report(problems);
    }
    (network, keys.congestion.0.map(|name| name.0))
}

/// Returns the JSON Schema of the values that [`read`] accepts.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let word = Network::json_schema(generator);
    let keys = NetworkKeys::json_schema(generator);
    json_schema!({ "anyOf": [word, keys] })
}
