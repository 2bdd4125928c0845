//! The tree that a scenario was decoded from.

use std::fmt;
use std::sync::Arc;

use crate::node::Node;

/// The tree that a scenario was decoded from, with all settings applied.
///
/// Scenarios are compared by what they mean, so their trees are not: any two are equal.
#[derive(Clone)]
pub(crate) struct Tree(Arc<Node>);

impl Tree {
    pub(crate) fn new(root: &Node) -> Tree {
        Tree(Arc::new(root.clone()))
    }

    pub(crate) fn root(&self) -> Node {
        Node::clone(&self.0)
    }
}

impl PartialEq for Tree {
    fn eq(&self, _: &Tree) -> bool {
        true
    }
}

/// Without its contents, which may be secret.
impl fmt::Debug for Tree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tree")
    }
}
