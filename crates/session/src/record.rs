//! Records that sessions leave for reports.

use std::any::Any;
use std::fmt;

/// A record of what a session did, in a type of its protocol. A reference server's session reports
/// its requests, a source what it sent. The engine passes the record on without knowing its type.
#[derive(Debug)]
pub struct Record(Box<dyn AnyRecord>);

/// Types that can be a [`Record`].
trait AnyRecord: Any + fmt::Debug + Send {}

impl<T: Any + fmt::Debug + Send> AnyRecord for T {}

impl Record {
    /// Wraps a value.
    pub fn new<T: Any + fmt::Debug + Send>(record: T) -> Record {
        Record(Box::new(record))
    }

    /// Returns the value, or `None` if it has another type.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        let record: &dyn Any = &*self.0;
        record.downcast_ref()
    }

    /// Extracts the value. Returns `None` if it has another type.
    pub fn downcast<T: Any>(self) -> Option<Box<T>> {
        let record: Box<dyn Any> = self.0;
        record.downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_downcasts_only_to_its_own_type() {
        let record = Record::new("text".to_owned());
        assert_eq!(
            record.downcast_ref::<String>().map(String::as_str),
            Some("text")
        );
        assert_eq!(record.downcast_ref::<u8>(), None);
        assert_eq!(format!("{record:?}"), "Record(\"text\")");
        assert_eq!(
            record.downcast::<String>().as_deref().map(String::len),
            Some(4)
        );
        assert_eq!(Record::new(5).downcast::<String>(), None);
    }
}
