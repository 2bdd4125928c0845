//! AMF0 (Adobe, "Action Message Format -- AMF 0", 2007): values in commands and metadata.

use super::amf_value::text;
pub use super::amf_value::{Properties, Value};
use super::{Malformed, amf3};

/// Maximum nesting depth of values.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of values in a message, not counting property names.
pub const VALUES_MAX: usize = 4096;

const NUMBER: u8 = 0;
const BOOLEAN: u8 = 1;
const STRING: u8 = 2;
const OBJECT: u8 = 3;
const NULL: u8 = 5;
const UNDEFINED: u8 = 6;
const REFERENCE: u8 = 7;
const ECMA_ARRAY: u8 = 8;
const OBJECT_END: u8 = 9;
const STRICT_ARRAY: u8 = 10;
const DATE: u8 = 11;
const LONG_STRING: u8 = 12;
const UNSUPPORTED: u8 = 13;
const XML: u8 = 15;
const TYPED_OBJECT: u8 = 16;
const AVM_PLUS: u8 = 17;

impl Value {
    /// Creates a string value.
    pub fn string(text: impl Into<String>) -> Value {
        Value::String(text.into())
    }

    /// Creates an object with these properties.
    pub fn object<const N: usize>(properties: [(&str, Value); N]) -> Value {
        let named = properties.map(|(name, value)| (name.to_owned(), value));
        Value::Object(named.into())
    }

    /// Returns the string, or `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, or `None` for other types.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the property with this name, or `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let properties = match self {
            Value::Object(properties)
            | Value::EcmaArray(properties)
            | Value::Typed(_, properties) => properties,
            _ => return None,
        };
        let mut properties = properties.iter();
        properties
            .find(|(own, _)| own == name)
            .map(|(_, value)| value)
    }

    /// Appends the encoded value. Names that are too long are truncated; strings never are.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Number(number) => {
                out.push(NUMBER);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Boolean(yes) => out.extend_from_slice(&[BOOLEAN, u8::from(*yes)]),
            Value::String(text) => write_string(text, out),
            Value::Object(properties) => {
                out.push(OBJECT);
                write_properties(properties, out);
            }
            Value::Null => out.push(NULL),
            Value::Undefined => out.push(UNDEFINED),
            Value::Reference(number) => {
                out.push(REFERENCE);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::EcmaArray(properties) => {
                out.push(ECMA_ARRAY);
                out.extend_from_slice(&(properties.len() as u32).to_be_bytes());
                write_properties(properties, out);
            }
            Value::Array(values) => {
                out.push(STRICT_ARRAY);
                out.extend_from_slice(&(values.len() as u32).to_be_bytes());
                values.iter().for_each(|value| value.write(out));
            }
            Value::Date(millis) => {
                out.push(DATE);
                out.extend_from_slice(&millis.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
            }
            Value::Unsupported => out.push(UNSUPPORTED),
            Value::Xml(text) => {
                out.push(XML);
                write_long_string(text, out);
            }
            Value::Typed(class, properties) => {
                out.push(TYPED_OBJECT);
                write_name(class, out);
                write_properties(properties, out);
            }
        }
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    match u16::try_from(text.len()) {
        Ok(length) => {
            out.push(STRING);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Err(_) => {
            out.push(LONG_STRING);
            write_long_string(text, out);
        }
    }
}

fn write_long_string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    let mut length = name.len().min(usize::from(u16::MAX));
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.extend_from_slice(&name.as_bytes()[..length]);
}

fn write_properties(properties: &Properties, out: &mut Vec<u8>) {
    for (name, value) in properties {
        write_name(name, out);
        value.write(out);
    }
    out.extend_from_slice(&[0, 0, OBJECT_END]);
}

/// Reads the values of a message one after another.
#[derive(Debug)]
pub struct Amf0Reader<'a> {
    bytes: &'a [u8],
    values: usize,
}

impl<'a> Amf0Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Amf0Reader<'a> {
        Amf0Reader { bytes, values: 0 }
    }

    /// Returns the next value, or `None` at the end.
    ///
    /// # Errors
    /// [`Malformed::Amf`], [`Malformed::AmfTooDeep`] or [`Malformed::AmfTooMany`].
    pub fn next_value(&mut self) -> Result<Option<Value>, Malformed> {
        match self.bytes.is_empty() {
            true => Ok(None),
            false => self.value(0).map(Some),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        if depth >= DEPTH_MAX {
            return Err(Malformed::AmfTooDeep);
        }
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(Malformed::AmfTooMany);
        }
        let [marker] = self.array()?;
        Ok(match marker {
            NUMBER => Value::Number(self.number()?),
            BOOLEAN => Value::Boolean(self.array::<1>()? != [0]),
            STRING => Value::String(self.short_string()?),
            OBJECT => Value::Object(self.properties(depth)?),
            NULL => Value::Null,
            UNDEFINED => Value::Undefined,
            REFERENCE => Value::Reference(u16::from_be_bytes(self.array()?)),
            ECMA_ARRAY => {
                // The stated count is ignored, because not all encoders know it.
                self.array::<4>()?;
                Value::EcmaArray(self.properties(depth)?)
            }
            STRICT_ARRAY => {
                let count = u32::from_be_bytes(self.array()?);
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(depth + 1)?);
                }
                Value::Array(values)
            }
            DATE => {
                let millis = self.number()?;
                self.array::<2>()?;
                Value::Date(millis)
            }
            LONG_STRING => Value::String(self.long_string()?),
            UNSUPPORTED => Value::Unsupported,
            XML => Value::Xml(self.long_string()?),
            TYPED_OBJECT => {
                let class = self.short_string()?;
                Value::Typed(class, self.properties(depth)?)
            }
            AVM_PLUS => {
                let (value, rest) = amf3::read_scalar(self.bytes)?;
                self.bytes = rest;
                value
            }
            _ => return Err(Malformed::Amf),
        })
    }

    fn properties(&mut self, depth: usize) -> Result<Properties, Malformed> {
        let mut properties = Vec::new();
        loop {
            if let [0, 0, OBJECT_END, rest @ ..] = self.bytes {
                self.bytes = rest;
                return Ok(properties);
            }
            let name = self.short_string()?;
            properties.push((name, self.value(depth + 1)?));
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Malformed::Amf)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Malformed::Amf)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<f64, Malformed> {
        self.array().map(f64::from_be_bytes)
    }

    fn short_string(&mut self) -> Result<String, Malformed> {
        let length = u16::from_be_bytes(self.array()?);
        self.take(usize::from(length)).map(text)
    }

    fn long_string(&mut self) -> Result<String, Malformed> {
        let length = u32::from_be_bytes(self.array()?);
        let length = usize::try_from(length).map_err(|_| Malformed::Amf)?;
        self.take(length).map(text)
    }
}

/// Reads all values of a message.
///
/// # Errors
/// See [`Amf0Reader::next_value`].
pub fn read_all(bytes: &[u8]) -> Result<Vec<Value>, Malformed> {
    let mut reader = Amf0Reader::new(bytes);
    let mut values = Vec::new();
    while let Some(value) = reader.next_value()? {
        values.push(value);
    }
    Ok(values)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(|number| Value::Number(number.into())),
            any::<bool>().prop_map(Value::Boolean),
            ".{0,20}".prop_map(Value::String),
            Just(Value::Null),
            Just(Value::Undefined),
            any::<u16>().prop_map(Value::Reference),
            any::<i32>().prop_map(|number| Value::Date(number.into())),
            Just(Value::Unsupported),
            ".{0,20}".prop_map(Value::Xml),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            // An empty property name before an object's end would be read as that end.
            let properties = || proptest::collection::vec(("[a-zA-Zä]{1,8}", inner.clone()), 0..5);
            prop_oneof![
                properties().prop_map(Value::Object),
                properties().prop_map(Value::EcmaArray),
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                ("[a-z.]{0,9}", properties()).prop_map(|(class, all)| Value::Typed(class, all)),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(values in proptest::collection::vec(any_value(), 0..4)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| value.write(&mut bytes));
            prop_assert_eq!(read_all(&bytes), Ok(values));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(0u8..20, 0..300)) {
            let _ = read_all(&bytes);
        }
    }

    #[test]
    fn long_strings_use_the_long_string_type() {
        let value = Value::string("ä".repeat(40_000));
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        assert_eq!(bytes[0], LONG_STRING);
        assert_eq!(read_all(&bytes), Ok(vec![value]));
        let mut bytes = Vec::new();
        Value::Object(vec![("ä".repeat(40_000), Value::Null)]).write(&mut bytes);
        let read = read_all(&bytes).expect("the name is cut");
        let cut = "ä".repeat(32_767);
        assert_eq!(read[0].get(&cut), Some(&Value::Null));
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let nested = |depth: usize| {
            let mut bytes = [OBJECT, 0, 1, b'a'].repeat(depth);
            bytes.push(NULL);
            bytes.extend([0, 0, OBJECT_END].repeat(depth));
            read_all(&bytes).map(|values| values.len())
        };
        assert_eq!(nested(DEPTH_MAX - 1), Ok(1));
        assert_eq!(nested(DEPTH_MAX), Err(Malformed::AmfTooDeep));
        assert_eq!(nested(1000), Err(Malformed::AmfTooDeep));
        assert_eq!(
            read_all(&[NULL; VALUES_MAX]).map(|all| all.len()),
            Ok(VALUES_MAX)
        );
        assert_eq!(
            read_all(&[NULL; VALUES_MAX + 1]),
            Err(Malformed::AmfTooMany)
        );
        // A claimed count of four billion values allocates nothing.
        let claim = [STRICT_ARRAY, 255, 255, 255, 255, NULL];
        assert_eq!(read_all(&claim), Err(Malformed::Amf));
        for cut in [
            &[STRING, 0, 2, b'a'][..],
            &[LONG_STRING, 255, 0, 0, 0],
            &[NUMBER, 0],
            &[99],
        ] {
            assert_eq!(read_all(cut), Err(Malformed::Amf));
        }
    }

    #[test]
    fn amf3_scalars_are_read() {
        let bytes = [
            &[17, 4, 0x7f][..],
            &[17, 4, 0xff, 0xff, 0xff, 0xff],
            &[17, 5, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0],
            &[17, 6, 5, b'h', b'i'],
            &[17, 0, 17, 1, 17, 2, 17, 3, 5],
        ]
        .concat();
        let expected = vec![
            Value::Number(127.0),
            Value::Number(-1.0),
            Value::Number(1.0),
            Value::string("hi"),
            Value::Undefined,
            Value::Null,
            Value::Boolean(false),
            Value::Boolean(true),
            Value::Null,
        ];
        assert_eq!(read_all(&bytes), Ok(expected));
    }

    #[test]
    fn truncated_or_unknown_amf3_is_rejected() {
        for bytes in [
            &[17][..],
            &[17, 9, 1],
            &[17, 6, 4],
            &[17, 6, 9, b'a'],
            &[17, 4, 0x80],
        ] {
            assert_eq!(read_all(bytes), Err(Malformed::Amf), "{bytes:?}");
        }
    }
}
