//! A scenario as a tree in which every piece knows where it was written.

use crate::source::Origin;

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// What YAML can say. What a scalar means is for the key to decide that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Scalar { text: String, quoted: bool },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_origin: Origin,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn scalar(text: impl Into<String>, origin: Origin) -> Node {
        Node {
            value: Value::Scalar {
                text: text.into(),
                quoted: false,
            },
            origin,
        }
    }

    pub(crate) fn list(items: Vec<Node>, origin: Origin) -> Node {
        Node {
            value: Value::List(items),
            origin,
        }
    }

    pub(crate) fn map(entries: Vec<Entry>, origin: Origin) -> Node {
        Node {
            value: Value::Map(entries),
            origin,
        }
    }

    /// A key of it with its value, where it is a mapping that has the key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// What it holds, where it is a mapping.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// What is written as the value of a key, where it is a mapping that has the key.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let node = &self.entry(key)?.node;
        (node.value != Value::Null).then_some(node)
    }

    /// What it is, in a sentence.
    pub(crate) fn kind(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Scalar { text, .. } => format!("`{}`", shown(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// How many nodes there are in it, itself included, and how many bytes of text.
    pub(crate) fn weight(&self) -> usize {
        match &self.value {
            Value::Null => 1,
            Value::Scalar { text, .. } => 1 + text.len() / 64,
            Value::List(items) => 1 + items.iter().map(Node::weight).sum::<usize>(),
            Value::Map(entries) => {
                1 + entries
                    .iter()
                    .map(|entry| 1 + entry.key.len() / 64 + entry.node.weight())
                    .sum::<usize>()
            }
        }
    }
}

impl Entry {
    pub(crate) fn new(key: impl Into<String>, key_origin: Origin, node: Node) -> Entry {
        Entry {
            key: key.into(),
            key_origin,
            node,
        }
    }
}

/// A text as it is shown in a message: one line, not too long.
pub(crate) fn shown(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(60)
        .collect();
    if text.chars().nth(60).is_some() {
        format!("{line}...")
    } else {
        line
    }
}
