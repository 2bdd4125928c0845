//! The tree of a scenario, in which every node knows its origin.

use crate::origin::Origin;

/// A value and its origin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// A YAML value. The key that reads a scalar decides on its type.
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

    pub(crate) fn null(origin: Origin) -> Node {
        Node {
            value: Value::Null,
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

    /// Returns the entry of a key; `None` if this is not a mapping with that key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// Returns the entry of a key, to be changed; `None` if this is not a mapping with that key.
    pub(crate) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        match &mut self.value {
            Value::Map(entries) => entries.iter_mut().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// Removes the entry of a key, and returns it.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Entry> {
        let Value::Map(entries) = &mut self.value else {
            return None;
        };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    /// Returns the entries of a mapping; none for any other value.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list, or the values of a mapping.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Node> {
        let items = match &self.value {
            Value::List(items) => items.as_slice(),
            _ => &[],
        };
        let values = self.entries().iter().map(|entry| &entry.node);
        items.iter().chain(values)
    }

    /// Returns the value of a key; `None` if this is not a mapping with that key, or the value is
    /// null.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let node = &self.entry(key)?.node;
        (node.value != Value::Null).then_some(node)
    }

    /// Returns the text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the items of a list, or a scalar as the only one.
    pub(crate) fn items(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Scalar { .. } => Some(std::slice::from_ref(self)),
            Value::Null | Value::Map(_) => None,
        }
    }

    /// Describes the value in a message.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Scalar { text, .. } => format!("`{}`", display_text(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// Returns the number of nodes in the tree. Long texts count as several.
    pub(crate) fn node_count(&self) -> usize {
        let count = |text: &str| 1 + text.len() / 64;
        let keys = self.entries().iter().map(|entry| count(&entry.key));
        let inner = keys.chain(self.children().map(Node::node_count));
        count(self.text().unwrap_or("")) + inner.sum::<usize>()
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

/// Formats a text for a message: one line of at most 60 characters.
pub(crate) fn display_text(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(60)
        .collect();
    match text.chars().nth(60) {
        Some(_) => format!("{line}..."),
        None => line,
    }
}
