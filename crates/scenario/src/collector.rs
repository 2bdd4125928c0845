//! State of reading a section, with the problems found so far.

use std::cell::{Cell, RefCell};

use crate::error::Problem;
use crate::fields::{misspelt, unknown_keys};
use crate::node::Node;
use crate::origin::Origin;

/// Syntax of a type's values: the type's name in the code, the help text, and the required keys,
/// each with its help text.
pub(crate) type TypeSyntax = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// State of reading a section.
pub(crate) struct Collector {
    forms: &'static [TypeSyntax],
    /// Dotted path of the value being read.
    path: RefCell<String>,
    problems: RefCell<Vec<Problem>>,
    /// Length of the section's own path.
    section_path_len: usize,
    /// True if other readers handle further keys of the outermost mapping.
    has_foreign_keys: bool,
    /// Keys of the outermost mapping.
    keys: Cell<&'static [&'static str]>,
}

impl Collector {
    pub(crate) fn new(
        path: &str,
        forms: &'static [TypeSyntax],
        has_foreign_keys: bool,
    ) -> Collector {
        Collector {
            forms,
            path: RefCell::new(path.to_owned()),
            section_path_len: path.len(),
            problems: RefCell::default(),
            has_foreign_keys,
            keys: Cell::default(),
        }
    }

    /// Returns the dotted path of the value being read.
    pub(crate) fn path(&self) -> String {
        self.path.borrow().clone()
    }

    /// Returns the keys of the outermost mapping, once it has been read.
    pub(crate) fn keys(&self) -> &'static [&'static str] {
        self.keys.get()
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    /// Returns the syntax of the type of that name.
    pub(crate) fn form(&self, name: &str) -> TypeSyntax {
        let found = self.forms.iter().find(|form| form.0 == name);
        found.copied().unwrap_or_default()
    }

    pub(crate) fn push(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Calls `read` with the path extended by `key`.
    pub(crate) fn with_key<T>(&self, key: &str, read: impl FnOnce() -> T) -> T {
        let length = self.path.borrow().len();
        self.path.replace_with(|path| join_path(path, key));
        let value = read();
        self.path.borrow_mut().truncate(length);
        value
    }

    pub(crate) fn no_value(&self, key: &Origin) {
        self.push(no_value(key, &self.path.borrow()));
    }

    /// Reports required keys that a mapping lacks. One that is only misspelt is an unknown key, and
    /// is reported as such.
    pub(crate) fn report_missing_keys(&self, node: &Node, needs: &[(&str, &str)], known: &[&str]) {
        for (key, how) in needs {
            if node.entry(key).is_none() && misspelt(node, key, known).is_none() {
                let text = match self.path.borrow().as_str() {
                    "" => format!("`{key}` is missing"),
                    path => format!("`{key}` is missing in `{path}`"),
                };
                let problem = Problem::new(&node.origin, text).label(format!("has no `{key}`"));
                self.push(problem.help(*how));
            }
        }
    }

    /// Reports every key that is not in `known`.
    pub(crate) fn report_unknown_keys(&self, node: &Node, known: &'static [&'static str]) {
        if self.path.borrow().len() == self.section_path_len {
            self.keys.set(known);
            if self.has_foreign_keys {
                return;
            }
        }
        unknown_keys(
            node,
            &self.path.borrow(),
            known,
            &mut self.problems.borrow_mut(),
        );
    }
}

/// Joins a path and a key with a dot; the outermost path is empty.
pub(crate) fn join_path(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// Returns the problem of a key without a value.
pub(crate) fn no_value(key: &Origin, path: &str) -> Problem {
    Problem::new(key, format!("`{path}` has no value"))
        .help("write one after the colon, or remove the key")
}
