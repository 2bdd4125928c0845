//! Results of sessions' streams, for their clients' rows in the run file.

use std::any::Any;
use std::fmt;

use serde::Serialize;

/// Results of one stream of a session, in a type of its protocol. In the run file it is an object
/// with the columns that the protocol's descriptor declares.
#[derive(Debug)]
pub struct StreamRow(Box<dyn Row>);

/// Types that can be a [`StreamRow`].
trait Row: Any + fmt::Debug + Send {
    fn to_json(&self) -> serde_json::Value;
}

impl<T: Any + fmt::Debug + Send + Serialize> Row for T {
    fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("rows are plain data with words for keys")
    }
}

impl StreamRow {
    /// Wraps a value.
    pub fn new<T: Any + fmt::Debug + Send + Serialize>(row: T) -> StreamRow {
        StreamRow(Box::new(row))
    }

    /// Returns the value, or `None` if it has another type.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        let row: &dyn Any = &*self.0;
        row.downcast_ref()
    }

    /// Returns the row as a JSON object, as in the run file.
    pub fn to_json(&self) -> serde_json::Value {
        self.0.to_json()
    }
}
