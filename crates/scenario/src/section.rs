//! Sections of a scenario and of a server entry: structs that serde reads. Each field is a [`Key`],
//! so that all mistakes of a section are found, not only the first.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde_json::Value as Json;

use crate::collector::{Collector, TypeSyntax, join_path, no_value};
use crate::error::Problem;
use crate::node::{Node, Value};
use crate::node_deserializer::{KEY_TYPE_NAME, NodeReader, OUT_OF_RANGE, Purpose};
use crate::origin::{Origin, SourceKind, SourceText};

/// Reads the value of the key at `path`. Returns `None` if its type is wrong. A nested key with a
/// wrong value is reported and read as absent.
pub(crate) fn read<T: DeserializeOwned>(
    node: &Node,
    path: &str,
    forms: &'static [TypeSyntax],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    collect(node, Collector::new(path, forms, false), problems)
}

/// Reads a mapping that also has keys of other readers.
pub(crate) fn read_with_foreign_keys<T: DeserializeOwned>(
    node: &Node,
    path: &str,
    forms: &'static [TypeSyntax],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    collect(node, Collector::new(path, forms, true), problems)
}

/// Reads the value of an optional key of the mapping at `path`.
pub(crate) fn value_of<T: DeserializeOwned>(
    map: &Node,
    key: &str,
    path: &str,
    forms: &'static [TypeSyntax],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let (entry, path) = (map.entry(key)?, join_path(path, key));
    if entry.node.value == Value::Null {
        problems.push(no_value(&entry.key_origin, &path));
        return None;
    }
    read(&entry.node, &path, forms, problems)
}

/// Returns the keys of a section, in their order.
pub(crate) fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let source = SourceText::new(SourceKind::File, "", "");
    let empty = Node::map(Vec::new(), Origin::whole(&source));
    let collector = Collector::new("", &[], false);
    NodeReader::new(&empty, Purpose::Section(&collector)).read_or_report(PhantomData::<T>);
    collector.keys()
}

fn collect<T: DeserializeOwned>(
    node: &Node,
    collector: Collector,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let value = NodeReader::new(node, Purpose::Section(&collector)).read_or_report(PhantomData);
    problems.append(&mut collector.into_problems());
    value
}

/// Joins the lines of the descriptions of a section and of its keys.
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

/// The value of a key; `None` if it is absent or wrong.
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

impl<const MIN: u64, const MAX: u64> Key<BoundedInteger<MIN, MAX>> {
    /// Returns the number as another type, into which `MAX` fits.
    pub(crate) fn number<T: TryFrom<u64>>(self) -> Option<T> {
        T::try_from(self.0?.0).ok()
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

        deserializer.deserialize_newtype_struct(KEY_TYPE_NAME, Attempt(PhantomData))
    }
}

/// A value that another function reads.
#[derive(Debug, Default)]
pub(crate) struct Deferred;

impl<'de> Deserialize<'de> for Deferred {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Deferred, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Deferred)
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundedInteger<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<const MIN: u64, const MAX: u64> Visitor<'_> for BoundedInteger<MIN, MAX> {
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
            Ok(value) if (MIN..=MAX).contains(&value) => Ok(BoundedInteger(value)),
            _ => {
                let wanted: &dyn serde::de::Expected = &self;
                Err(E::custom(format!("{OUT_OF_RANGE}; write {wanted}")))
            }
        }
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for BoundedInteger<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundedInteger(0))
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for BoundedInteger<MIN, MAX> {
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

/// Range of the valid values of a quantity.
pub(crate) trait ValueRange {
    type Value: DeserializeOwned + JsonSchema + PartialOrd + Display;
    const MIN: Self::Value;
    const MAX: Self::Value;

    /// Returns the message about another value, with advice after a semicolon.
    fn out_of_range_message(_value: &Self::Value) -> String {
        let (least, most) = (Self::MIN, Self::MAX);
        format!("{OUT_OF_RANGE}; write one from {least} to {most}")
    }
}

/// A quantity within its range.
#[derive(JsonSchema)]
#[schemars(inline, description = "", bound = "")]
pub(crate) struct Within<R: ValueRange>(pub(crate) R::Value);

impl<'de, R: ValueRange> Deserialize<'de> for Within<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = R::Value::deserialize(deserializer)?;
        match value >= R::MIN && value <= R::MAX {
            true => Ok(Within(value)),
            false => Err(D::Error::custom(R::out_of_range_message(&value))),
        }
    }
}
