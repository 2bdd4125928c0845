//! Values of AMF0, and of AMF3 as far as it occurs within AMF0.

/// Named values, in order.
pub type Properties = Vec<(String, Value)>;

/// An AMF0 value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(f64),
    Boolean(bool),
    /// Invalid UTF-8 is replaced.
    String(String),
    Object(Properties),
    Null,
    Undefined,
    /// Index of a complex value of the message. It is not resolved.
    Reference(u16),
    /// Associative array, as in metadata.
    EcmaArray(Properties),
    /// Strict array.
    Array(Vec<Value>),
    /// Milliseconds since 1970.
    Date(f64),
    /// Value of a type that the sender could not encode.
    Unsupported,
    Xml(String),
    /// Object with a class name.
    Typed(String, Properties),
}

/// Reads a text. Invalid UTF-8 is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
