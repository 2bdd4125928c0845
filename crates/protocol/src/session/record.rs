//! What sessions say for the reports of whoever runs them.

use std::any::Any;
use std::fmt;

/// What a session did, in a type of its protocol's own: a reference server's for a line of its
/// report, a source's for what it sent. The engine passes it on without knowing what it is.
#[derive(Debug)]
pub struct Record(Box<dyn Anything>);

/// What can be a [`Record`].
trait Anything: Any + fmt::Debug + Send {}

impl<T: Any + fmt::Debug + Send> Anything for T {}

impl Record {
    /// A record of that type.
    pub fn new<T: Any + fmt::Debug + Send>(record: T) -> Record {
        Record(Box::new(record))
    }

    /// What it is, where it is of that type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let record: &dyn Any = &*self.0;
        record.downcast_ref()
    }

    /// The same, taken out; none where it is of another type.
    pub fn take<T: Any>(self) -> Option<Box<T>> {
        let record: Box<dyn Any> = self.0;
        record.downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_its_own_type_alone() {
        let record = Record::new("text".to_owned());
        assert_eq!(record.get::<String>().map(String::as_str), Some("text"));
        assert_eq!(record.get::<u8>(), None);
        assert_eq!(format!("{record:?}"), "Record(\"text\")");
        assert_eq!(record.take::<String>().as_deref().map(String::len), Some(4));
        assert_eq!(Record::new(5).take::<String>(), None);
    }
}
