//! Sections of a scenario and of a server's entry: structs that serde reads, each key a [`Key`], so
//! that every mistake in a section is found, and not the first one alone.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Display};
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, SeqAccess, Unexpected, Visitor,
};
use serde_json::Value as Json;

use crate::error::Problem;
use crate::fields::unknown_keys;
use crate::keys::{KeyError, Reader};
use crate::node::{Node, Value};
use crate::source::{Origin, Source, SourceKind};

/// How the value of a type is written: the type's name in the code, the help, and the keys that it
/// must have, each with how it is written.
pub(crate) type Form = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// What is known and found while a section is read.
pub(crate) struct Section {
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

/// Reads the value of the key at `path`. Nothing where it cannot be read at all; a key of it that
/// cannot be is as one that is not there.
pub(crate) fn read<T: DeserializeOwned>(
    node: &Node,
    path: &str,
    forms: &'static [Form],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    Section::new(path, forms, false).read(node, problems)
}

/// The same of a mapping that has keys of others beside its own.
pub(crate) fn read_open<T: DeserializeOwned>(
    node: &Node,
    path: &str,
    forms: &'static [Form],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    Section::new(path, forms, true).read(node, problems)
}

/// Reads the value of a key of a mapping at `path`, which may be left out.
pub(crate) fn value_of<T: DeserializeOwned>(
    (map, key): (&Node, &str),
    path: &str,
    forms: &'static [Form],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let (entry, path) = (map.entry(key)?, join(path, key));
    if entry.node.value == Value::Null {
        problems.push(no_value(&entry.key_origin, &path));
        return None;
    }
    read(&entry.node, &path, forms, problems)
}

/// The problem that the key at `path` has no value.
fn no_value(key: &Origin, path: &str) -> Problem {
    Problem::new(key, format!("`{path}` has no value"))
        .help("write one after the colon, or take the key out")
}

/// The keys of a section, in their order.
pub(crate) fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let source = Source::new(SourceKind::File, "", "");
    let empty = Node::map(Vec::new(), Origin::whole(&source));
    let section = Section::new("", &[], false);
    section.attempt(PhantomData::<T>, Reader::new(&empty, Some(&section)));
    section.keys.get()
}

/// Joins the lines of what is said of a section and of each of its keys.
pub(crate) fn one_line(schema: &mut Schema) {
    if let Some(Json::Object(keys)) = schema.get_mut("properties") {
        for key in keys.values_mut().flat_map(<&mut Schema>::try_from) {
            join_lines(key);
        }
    }
    join_lines(schema);
}

fn join_lines(schema: &mut Schema) {
    if let Some(Json::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

impl Section {
    fn new(path: &str, forms: &'static [Form], open: bool) -> Section {
        Section {
            forms,
            path: RefCell::new(path.to_owned()),
            outermost: path.len(),
            problems: RefCell::default(),
            open,
            keys: Cell::default(),
        }
    }

    /// How a value of the type of that name is written.
    pub(crate) fn form(&self, name: &str) -> Form {
        let found = self.forms.iter().find(|form| form.0 == name);
        found.copied().unwrap_or_default()
    }

    fn read<T: DeserializeOwned>(self, node: &Node, problems: &mut Vec<Problem>) -> Option<T> {
        let value = self.attempt(PhantomData, Reader::new(node, Some(&self)));
        problems.append(&mut self.problems.into_inner());
        value
    }

    fn push(&self, problem: Problem) {
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

    /// The value, or nothing and a problem more.
    pub(crate) fn attempt<'de, T: DeserializeSeed<'de>>(
        &self,
        seed: T,
        reader: Reader<'de>,
    ) -> Option<T::Value> {
        seed.deserialize(reader)
            .map_err(|error: KeyError| {
                self.push(error.section_problem(&self.path.borrow(), reader.node));
            })
            .ok()
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

/// How [`Key`] is known to [`Reader`].
pub(crate) const KEY: &str = "section::Key";

/// A message that is said of "`KEY: VALUE`".
pub(crate) const OUT_OF_RANGE: &str = "is out of range";

/// The value of a key, or nothing where it was left out or is wrong.
#[derive(Debug, JsonSchema)]
#[schemars(inline, description = "", bound = "T: JsonSchema")]
pub(crate) struct Key<T>(#[schemars(with = "T")] pub(crate) Option<T>);

impl<T> Default for Key<T> {
    fn default() -> Key<T> {
        Key(None)
    }
}

impl<T> Key<T> {
    pub(crate) fn or(self, default: T) -> T {
        self.0.unwrap_or(default)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Key<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<T>, D::Error> {
        struct Attempt<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Attempt<T> {
            type Value = Key<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Key<T>, A::Error> {
                values.next_element().map(Key)
            }
        }

        deserializer.deserialize_newtype_struct(KEY, Attempt(PhantomData))
    }
}

/// A value that is read by other means.
#[derive(Debug, Default)]
pub(crate) struct Raw;

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Raw)
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<const MIN: u64, const MAX: u64> Visitor<'_> for Whole<MIN, MAX> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN}")?;
        match MAX {
            u64::MAX => Ok(()),
            _ => write!(f, " to {MAX}"),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self, E> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(E::invalid_type(Unexpected::Str(text), &self));
        }
        match text.parse() {
            Ok(value) if (MIN..=MAX).contains(&value) => Ok(Whole(value)),
            _ => {
                let wanted: &dyn serde::de::Expected = &self;
                Err(E::custom(format!("{OUT_OF_RANGE}; write {wanted}")))
            }
        }
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Whole(0))
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Whole_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        match MAX {
            u64::MAX => json_schema!({ "type": "integer", "minimum": MIN }),
            _ => json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX }),
        }
    }
}

/// The values that a quantity may have, from one to another.
pub(crate) trait Range {
    type Value: DeserializeOwned + JsonSchema + PartialOrd + Display;
    const LEAST: Self::Value;
    const MOST: Self::Value;

    /// What is said of another value; after a semicolon how it is mended.
    fn refusal(_value: &Self::Value) -> String {
        let (least, most) = (Self::LEAST, Self::MOST);
        format!("{OUT_OF_RANGE}; write one from {least} to {most}")
    }
}

/// A quantity that is in its range.
#[derive(JsonSchema)]
#[schemars(inline, description = "", bound = "")]
pub(crate) struct Within<R: Range>(pub(crate) R::Value);

impl<'de, R: Range> Deserialize<'de> for Within<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = R::Value::deserialize(deserializer)?;
        match value >= R::LEAST && value <= R::MOST {
            true => Ok(Within(value)),
            false => Err(D::Error::custom(R::refusal(&value))),
        }
    }
}

/// The words of an enum without data, each by the name that serde gives it.
macro_rules! words {
    ($Word:ident: $count:literal { $($Variant:ident = $name:literal),* }) => {
        impl $Word {
            /// All there are.
            pub const ALL: [$Word; $count] = [$($Word::$Variant),*];

            /// As the file writes it.
            pub const fn name(self) -> &'static str {
                match self { $($Word::$Variant => $name),* }
            }
        }

        impl schemars::JsonSchema for $Word {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Word).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "enum": [$($name),*] })
            }
        }
    };
}

pub(crate) use words;
