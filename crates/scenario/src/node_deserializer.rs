//! Serde deserializer of the tree: each error has its position. A protocol's keys are read up to
//! the first error; with a [`Collector`] all keys are read and all errors are collected.

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use crate::collector::Collector;
use crate::error::Problem;
use crate::fields::{node_text, wrong_type};
use crate::node::{Entry, Node, Value, display_text};
use crate::origin::{Origin, SourceKind};
use measure::nearest::suggest;

/// Name by which [`NodeReader`] recognizes `section::Key`.
pub(crate) const KEY_TYPE_NAME: &str = "section::Key";

/// Message that follows `KEY: VALUE`.
pub(crate) const OUT_OF_RANGE: &str = "is out of range";

/// Error of a `Deserialize` implementation and its position.
#[derive(Debug)]
pub(crate) struct KeyError {
    kind: KeyErrorKind,
    /// Origin of the innermost value or key at fault.
    origin: Option<Origin>,
    /// Keys that lead to it, innermost first.
    keys: Vec<String>,
}

#[derive(Debug)]
enum KeyErrorKind {
    UnknownKey(String, &'static [&'static str]),
    Missing(&'static str),
    UnknownWord(String, &'static [&'static str]),
    /// Expected type, actual value, and help text.
    Type(String, String, &'static str),
    Other(String),
}

impl KeyError {
    fn new(kind: KeyErrorKind) -> KeyError {
        KeyError {
            kind,
            origin: None,
            keys: Vec::new(),
        }
    }

    fn or_origin(mut self, origin: &Origin) -> KeyError {
        self.origin.get_or_insert_with(|| origin.clone());
        self
    }

    fn below(mut self, key: &str) -> KeyError {
        self.keys.push(key.to_owned());
        self
    }

    /// Returns the key of the outermost mapping that is at fault.
    pub(crate) fn key(&self) -> Option<&str> {
        match (&self.kind, self.keys.last()) {
            (_, Some(key)) => Some(key),
            (KeyErrorKind::UnknownKey(key, _), None) => Some(key),
            _ => None,
        }
    }

    /// Returns the unknown key of the outermost mapping.
    pub(crate) fn unknown(&self) -> Option<&str> {
        match (&self.kind, self.keys.is_empty()) {
            (KeyErrorKind::UnknownKey(key, _), true) => Some(key),
            _ => None,
        }
    }

    /// Converts the error of a protocol's keys. `known` are further keys that may have been meant.
    pub(crate) fn problem(&self, path: &str, fallback: &Origin, known: &[&str]) -> Problem {
        let origin = self.origin.as_ref().unwrap_or(fallback);
        let mut full = path.to_owned();
        for key in self.keys.iter().rev() {
            full.push('.');
            full.push_str(key);
        }
        match &self.kind {
            KeyErrorKind::UnknownKey(..) if origin.source.kind == SourceKind::Option => {
                let option = &origin.source.name;
                let text = format!("`{option}` does not apply to clients of these URLs");
                Problem::new(origin, text)
                    .help("`--help` shows to which URLs each section of options applies")
            }
            KeyErrorKind::UnknownKey(key, own) => {
                let outer = if self.keys.is_empty() { known } else { &[] };
                let text = format!("unknown key `{}` in `{full}`", display_text(key));
                Problem::new(origin, text)
                    .label("not a key here")
                    .help(suggest(key, own.iter().chain(outer).copied()))
            }
            KeyErrorKind::Missing(key) => {
                Problem::new(origin, format!("`{key}` is missing in `{full}`"))
            }
            KeyErrorKind::UnknownWord(word, words) => Problem::new(
                origin,
                format!("`{full}` cannot be `{}`", display_text(word)),
            )
            .help(suggest(word, words.iter().copied())),
            KeyErrorKind::Type(..) | KeyErrorKind::Other(_) => {
                match self.to_string().split_once("; ") {
                    Some((message, help)) if message.starts_with("must be ") => {
                        Problem::new(origin, format!("`{full}`: {message}")).help(help)
                    }
                    Some((message, help)) => Problem::new(origin, message).help(help),
                    None => Problem::new(origin, format!("`{full}`: {self}")),
                }
            }
        }
    }

    /// Converts the error of the section key at `path`, whose value is `node`.
    pub(crate) fn section_problem(&self, path: &str, node: &Node) -> Problem {
        let origin = self.origin.as_ref().unwrap_or(&node.origin);
        match &self.kind {
            KeyErrorKind::Type(wanted, _, help) => {
                // Quantities describe their type as `KIND: SYNTAX`.
                let wanted = match wanted.contains(": ") {
                    true => "a number with its unit",
                    false => wanted,
                };
                wrong_type(node, path, wanted).help(*help)
            }
            KeyErrorKind::Other(message) => {
                let (message, help) = message.split_once("; ").unwrap_or((message, ""));
                let message = match message {
                    OUT_OF_RANGE => format!("`{path}: {}` {message}", node_text(node)),
                    _ => message.to_owned(),
                };
                Problem::new(origin, message).help(help)
            }
            _ => self.problem(path, origin, &[]),
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            KeyErrorKind::UnknownKey(key, _) => write!(f, "unknown key `{key}`"),
            KeyErrorKind::Missing(key) => write!(f, "`{key}` is missing"),
            KeyErrorKind::UnknownWord(word, _) => write!(f, "unknown word `{word}`"),
            KeyErrorKind::Type(wanted, found, _) => write!(f, "must be {wanted}, but is {found}"),
            KeyErrorKind::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for KeyError {}

impl de::Error for KeyError {
    fn custom<T: fmt::Display>(message: T) -> KeyError {
        KeyError::new(KeyErrorKind::Other(message.to_string()))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> KeyError {
        KeyError::new(KeyErrorKind::UnknownKey(field.to_owned(), expected))
    }

    fn missing_field(field: &'static str) -> KeyError {
        KeyError::new(KeyErrorKind::Missing(field))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> KeyError {
        KeyError::new(KeyErrorKind::UnknownWord(variant.to_owned(), expected))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> KeyError {
        let found = match found {
            Unexpected::Map => "a mapping".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Unit => "nothing".to_owned(),
            other => other.to_string(),
        };
        KeyError::new(KeyErrorKind::Type(expected.to_string(), found, ""))
    }
}

/// The error that ends the reading of a protocol's keys. The type of the keys is not known here, so
/// that an error loses all but its text wherever it passes through their `Deserialize`
/// implementation.
#[derive(Default)]
pub(crate) struct FirstError(RefCell<Option<KeyError>>);

impl FirstError {
    /// Returns the error of this text as it was before it lost anything.
    pub(crate) fn restore(&self, text: String) -> KeyError {
        let kept = self.0.take().filter(|kept| kept.to_string() == text);
        kept.unwrap_or_else(|| KeyError::new(KeyErrorKind::Other(text)))
    }

    /// Keeps an error that may have come through a `Deserialize` implementation, after `change`.
    /// Returns what is left of the error after the next one.
    fn keep(&self, error: KeyError, change: impl FnOnce(KeyError) -> KeyError) -> KeyError {
        let error = match error.kind {
            KeyErrorKind::Other(text) if error.origin.is_none() => self.restore(text),
            _ => error,
        };
        let error = change(error);
        let text = error.to_string();
        self.0.replace(Some(error));
        KeyError::new(KeyErrorKind::Other(text))
    }
}

/// Purpose of reading a node.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The section that it belongs to.
    Section(&'a Collector),
    /// The keys of a protocol.
    Protocol(&'a FirstError),
}

impl<'a> Purpose<'a> {
    fn section(self) -> Option<&'a Collector> {
        match self {
            Purpose::Section(section) => Some(section),
            Purpose::Protocol(_) => None,
        }
    }

    /// Changes an error on its way to the caller.
    fn pass(self, error: KeyError, change: impl FnOnce(KeyError) -> KeyError) -> KeyError {
        match self {
            Purpose::Section(_) => change(error),
            Purpose::Protocol(first) => first.keep(error, change),
        }
    }

    fn at(self, origin: &Origin) -> impl FnOnce(KeyError) -> KeyError {
        move |error| self.pass(error, |error| error.or_origin(origin))
    }

    fn at_value_of(self, entry: &Entry) -> impl FnOnce(KeyError) -> KeyError {
        move |error| {
            let located = |error: KeyError| error.or_origin(&entry.node.origin).below(&entry.key);
            self.pass(error, located)
        }
    }

    fn word(self, text: &'a str, origin: &'a Origin) -> Word<'a> {
        Word {
            text,
            origin,
            purpose: self,
        }
    }

    fn other(self, text: String, origin: &Origin) -> KeyError {
        self.at(origin)(KeyError::new(KeyErrorKind::Other(text)))
    }
}

/// Deserializer of a node.
#[derive(Clone, Copy)]
pub(crate) struct NodeReader<'a> {
    pub(crate) node: &'a Node,
    /// Origin of its key, if it is the value of a key.
    key: Option<&'a Origin>,
    purpose: Purpose<'a>,
    /// Help text of its type, if the section has one.
    help: &'static str,
}

impl<'a> NodeReader<'a> {
    pub(crate) fn new(node: &'a Node, purpose: Purpose<'a>) -> NodeReader<'a> {
        NodeReader {
            node,
            key: None,
            purpose,
            help: "",
        }
    }

    pub(crate) fn value(entry: &'a Entry, purpose: Purpose<'a>) -> NodeReader<'a> {
        NodeReader {
            key: Some(&entry.key_origin),
            ..NodeReader::new(&entry.node, purpose)
        }
    }

    /// Returns the value, or `None` after adding the problem to the section.
    pub(crate) fn read_or_report<T: DeserializeSeed<'a>>(self, seed: T) -> Option<T::Value> {
        let read = seed.deserialize(self).map_err(|error: KeyError| {
            if let Some(section) = self.purpose.section() {
                section.push(error.section_problem(&section.path(), self.node));
            }
        });
        read.ok()
    }

    fn parsed<T: std::str::FromStr>(self) -> Option<T> {
        self.node.text()?.parse().ok()
    }

    fn wrong_type(self, wanted: &str) -> KeyError {
        let (wanted, found) = (wanted.to_owned(), self.node.describe());
        let error = KeyError::new(KeyErrorKind::Type(wanted, found, self.help));
        self.purpose.at(&self.node.origin)(error)
    }
}

macro_rules! scalars {
    ($($name:ident $visit:ident $wanted:literal;)*) => { $(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
            match self.parsed() {
                Some(value) => visitor.$visit(value),
                None => Err(self.wrong_type($wanted)),
            }
        }
    )* };
}

impl<'de> Deserializer<'de> for NodeReader<'de> {
    type Error = KeyError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
            Value::Scalar { text, quoted } if *quoted || self.purpose.section().is_some() => {
                visitor.visit_borrowed_str(text)
            }
            Value::Scalar { text, .. } => match text.as_str() {
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                // Any other scalar as written: `1.50` must not become `1.5`.
                text => visitor.visit_borrowed_str(text),
            },
        }
    }

    scalars! {
        deserialize_bool visit_bool "`true` or `false`";
        deserialize_i8 visit_i64 "a whole number";
        deserialize_i16 visit_i64 "a whole number";
        deserialize_i32 visit_i64 "a whole number";
        deserialize_i64 visit_i64 "a whole number";
        deserialize_u8 visit_u64 "a whole number from 0";
        deserialize_u16 visit_u64 "a whole number from 0";
        deserialize_u32 visit_u64 "a whole number from 0";
        deserialize_u64 visit_u64 "a whole number from 0";
        deserialize_f32 visit_f64 "a number";
        deserialize_f64 visit_f64 "a number";
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match self.node.text() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => Err(self.wrong_type("a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        match self.purpose.section() {
            Some(_) if name == KEY_TYPE_NAME => visitor.visit_seq(OptionalValue(self)),
            Some(section) => visitor.visit_newtype_struct(NodeReader {
                help: section.form(name).1,
                ..self
            }),
            None => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match &self.node.value {
            Value::List(items) => visitor.visit_seq(Items {
                items: items.iter().enumerate(),
                purpose: self.purpose,
            }),
            _ if self.purpose.section().is_some() => Err(self.wrong_type("a list")),
            _ => {
                let text = format!(
                    "must be a list, but is {}; write each item on a line that begins with `- `",
                    self.node.describe()
                );
                Err(self.purpose.other(text, &self.node.origin))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match &self.node.value {
            Value::Map(entries) => visitor
                .visit_map(Entries {
                    entries: entries.iter(),
                    value: None,
                    purpose: self.purpose,
                    known: None,
                })
                .map_err(self.purpose.at(&self.node.origin)),
            _ => Err(self.wrong_type("a mapping")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        let Some(section) = self.purpose.section() else {
            if !matches!(self.node.value, Value::Map(_)) {
                let text = format!(
                    "must be a mapping, but is {}; write its keys below it: {}",
                    self.node.describe(),
                    fields.join(", ")
                );
                return Err(self.purpose.other(text, &self.node.origin));
            }
            return self.deserialize_map(visitor);
        };
        let (_, help, needs) = section.form(name);
        let Value::Map(entries) = &self.node.value else {
            return Err(NodeReader { help, ..self }.wrong_type("a mapping"));
        };
        section.report_missing_keys(self.node, needs, fields);
        let read = visitor.visit_map(Entries {
            entries: entries.iter(),
            value: None,
            purpose: self.purpose,
            known: Some(fields),
        });
        section.report_unknown_keys(self.node, fields);
        read
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        match &self.node.value {
            Value::Scalar { text, .. } => visitor
                .visit_enum(VariantName {
                    word: text,
                    of: self,
                })
                .map_err(self.purpose.at(&self.node.origin)),
            _ if self.purpose.section().is_some() => Err(self.wrong_type("a string")),
            Value::Map(entries) => match entries.as_slice() {
                [entry] => visitor.visit_enum(VariantEntry {
                    entry,
                    purpose: self.purpose,
                }),
                [] => {
                    let text = format!(
                        "must be one key with its value, but has none; there are: {}",
                        variants.join(", ")
                    );
                    Err(self.purpose.other(text, &self.node.origin))
                }
                several => {
                    let keys: Vec<&str> = several.iter().map(|entry| entry.key.as_str()).collect();
                    let list = display_text(&keys.join(", "));
                    let text = format!(
                        "must be one key with its value, but has {} ({list}); \
                         keep one, or write each on its own line that begins with `- ` if several are allowed",
                        several.len(),
                    );
                    Err(self.purpose.other(text, &self.node.origin))
                }
            },
            _ => Err(self.wrong_type("a word")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// Name of a key or of an enum's variant.
struct Word<'a> {
    text: &'a str,
    origin: &'a Origin,
    purpose: Purpose<'a>,
}

impl<'de> Deserializer<'de> for Word<'de> {
    type Error = KeyError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor
            .visit_borrowed_str(self.text)
            .map_err(self.purpose.at(self.origin))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    purpose: Purpose<'a>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, KeyError> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        let reader = NodeReader::new(node, self.purpose);
        match self.purpose.section() {
            Some(section) => section.with_key(&index.to_string(), || seed.deserialize(reader)),
            None => seed.deserialize(reader),
        }
        .map(Some)
        .map_err(self.purpose.at(&node.origin))
    }
}

/// Sequence of one value, or of none if the value is wrong; the section then has the problem.
struct OptionalValue<'a>(NodeReader<'a>);

impl<'de> SeqAccess<'de> for OptionalValue<'de> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, KeyError> {
        let NodeReader {
            node, key, purpose, ..
        } = self.0;
        Ok(match (&node.value, key, purpose.section()) {
            (Value::Null, Some(key), Some(section)) => {
                section.no_value(key);
                None
            }
            (_, _, Some(_)) => self.0.read_or_report(seed),
            _ => Some(seed.deserialize(self.0)?),
        })
    }
}

struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    purpose: Purpose<'a>,
    /// Keys to read. `None`: all keys.
    known: Option<&'static [&'static str]>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = KeyError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, KeyError> {
        let known = self.known;
        let read = |entry: &&Entry| known.is_none_or(|known| known.contains(&entry.key.as_str()));
        let Some(entry) = self.entries.find(read) else {
            return Ok(None);
        };
        self.value = Some(entry);
        seed.deserialize(self.purpose.word(&entry.key, &entry.key_origin))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, KeyError> {
        let entry = self
            .value
            .take()
            .ok_or_else(|| de::Error::custom("a value was requested before its key"))?;
        let reader = NodeReader::value(entry, self.purpose);
        if let Some(section) = self.purpose.section() {
            return section.with_key(&entry.key, || seed.deserialize(reader));
        }
        seed.deserialize(reader)
            .map_err(self.purpose.at_value_of(entry))
    }
}

/// Enum variant written as a word.
#[derive(Clone, Copy)]
struct VariantName<'a> {
    word: &'a str,
    of: NodeReader<'a>,
}

impl VariantName<'_> {
    fn has_no_value(self, value: &str) -> KeyError {
        let word = display_text(self.word);
        KeyError::new(KeyErrorKind::Other(format!(
            "`{word}` has no value; write `{word}: {value}`"
        )))
    }
}

impl<'de> EnumAccess<'de> for VariantName<'de> {
    type Error = KeyError;
    type Variant = VariantName<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, VariantName<'de>), KeyError> {
        let NodeReader { node, purpose, .. } = self.of;
        seed.deserialize(purpose.word(self.word, &node.origin))
            .map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for VariantName<'de> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, KeyError> {
        // A value that may be empty must be written as such, as in the schema.
        let empty = de::value::MapDeserializer::<_, KeyError>::new(std::iter::empty::<(
            &'static str,
            &'static str,
        )>());
        Err(match seed.deserialize(empty) {
            Ok(_) => self.has_no_value("{}"),
            Err(_) => self.has_no_value("VALUE"),
        })
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, KeyError> {
        Err(self.has_no_value("VALUE"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, KeyError> {
        Err(self.has_no_value("VALUE"))
    }
}

/// Enum variant written as a key with its value.
#[derive(Clone, Copy)]
struct VariantEntry<'a> {
    entry: &'a Entry,
    purpose: Purpose<'a>,
}

impl<'a> VariantEntry<'a> {
    fn value(self) -> NodeReader<'a> {
        NodeReader::new(&self.entry.node, self.purpose)
    }
}

impl<'de> EnumAccess<'de> for VariantEntry<'de> {
    type Error = KeyError;
    type Variant = VariantEntry<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, VariantEntry<'de>), KeyError> {
        let VariantEntry { entry, purpose } = self;
        seed.deserialize(purpose.word(&entry.key, &entry.key_origin))
            .map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for VariantEntry<'de> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        match self.entry.node.value {
            Value::Null => Ok(()),
            _ => Err(self.value().wrong_type("nothing")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, KeyError> {
        seed.deserialize(self.value())
            .map_err(self.purpose.at_value_of(self.entry))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.value().deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.value().deserialize_map(visitor)
    }
}
