//! What sessions say of their streams, for their clients' rows in the run file.

use std::any::Any;
use std::fmt;

use serde::Serialize;

/// What one stream of a session has come to, in a type of its protocol's own. In the run file it is
/// an object with the columns that the protocol's descriptor declares.
#[derive(Debug)]
pub struct StreamRow(Box<dyn Row>);

/// What can be a [`StreamRow`].
trait Row: Any + fmt::Debug + Send {
    fn to_json(&self) -> serde_json::Value;
}

impl<T: Any + fmt::Debug + Send + Serialize> Row for T {
    fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("rows are plain data with words for keys")
    }
}

impl StreamRow {
    /// A row of that type.
    pub fn new<T: Any + fmt::Debug + Send + Serialize>(row: T) -> StreamRow {
        StreamRow(Box::new(row))
    }

    /// What it is, where it is of that type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let row: &dyn Any = &*self.0;
        row.downcast_ref()
    }

    /// The object as it stands in the run file.
    pub fn to_json(&self) -> serde_json::Value {
        self.0.to_json()
    }
}
