//! What is known while a section is read, and what was found wrong in it.

use std::cell::{Cell, RefCell};

use crate::error::Problem;
use crate::fields::unknown_keys;
use crate::node::Node;
use crate::source::Origin;

/// How the value of a type is written: the type's name in the code, the help, and the keys that it
/// must have, each with how it is written.
pub(crate) type Form = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// What is known and found while a section is read.
pub(crate) struct Collector {
    forms: &'static [Form],
    /// The dotted path of the value that is being read.
    path: RefCell<String>,
    problems: RefCell<Vec<Problem>>,
    /// How long that of the whole section is.
    outermost: usize,
    /// Whether other keys of the outermost mapping are somebody else's.
    open: bool,
    /// The keys of the outermost mapping.
    keys: Cell<&'static [&'static str]>,
}

impl Collector {
    pub(crate) fn new(path: &str, forms: &'static [Form], open: bool) -> Collector {
        Collector {
            forms,
            path: RefCell::new(path.to_owned()),
            outermost: path.len(),
            problems: RefCell::default(),
            open,
            keys: Cell::default(),
        }
    }

    /// The dotted path of the value that is being read.
    pub(crate) fn path(&self) -> String {
        self.path.borrow().clone()
    }

    /// The keys of the outermost mapping, once it was read.
    pub(crate) fn keys(&self) -> &'static [&'static str] {
        self.keys.get()
    }

    /// What was found wrong.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    /// How a value of the type of that name is written.
    pub(crate) fn form(&self, name: &str) -> Form {
        let found = self.forms.iter().find(|form| form.0 == name);
        found.copied().unwrap_or_default()
    }

    pub(crate) fn push(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Reads the value of a key.
    pub(crate) fn inside<T>(&self, key: &str, read: impl FnOnce() -> T) -> T {
        let length = self.path.borrow().len();
        self.path.replace_with(|path| join(path, key));
        let value = read();
        self.path.borrow_mut().truncate(length);
        value
    }

    pub(crate) fn no_value(&self, key: &Origin) {
        self.push(no_value(key, &self.path.borrow()));
    }

    /// Reports what a mapping needs and has not.
    pub(crate) fn needs(&self, node: &Node, needs: &[(&str, &str)]) {
        for (key, how) in needs {
            if node.entry(key).is_none() {
                let text = match self.path.borrow().as_str() {
                    "" => format!("`{key}` is missing"),
                    path => format!("`{key}` is missing in `{path}`"),
                };
                let problem = Problem::new(&node.origin, text).label(format!("has no `{key}`"));
                self.push(problem.help(*how));
            }
        }
    }

    /// Reports every key that is none of `known`.
    pub(crate) fn unknown(&self, node: &Node, known: &'static [&'static str]) {
        if self.path.borrow().len() == self.outermost {
            self.keys.set(known);
            if self.open {
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

/// The dotted path of a key in a mapping; the path of the outermost is empty.
pub(crate) fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// The problem that the key at `path` has no value.
pub(crate) fn no_value(key: &Origin, path: &str) -> Problem {
    Problem::new(key, format!("`{path}` has no value"))
        .help("write one after the colon, or take the key out")
}
