//! Stream ids, and the syntax of access control in them (SRT, appendix B):
//! `#!::r=live/one,m=publish,u=me`.

use std::fmt;

use thiserror::Error;

use super::handshake::TEXT_MAX;

/// What a caller says to a listener about what it wants: at most 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(String);

/// Why a text is no stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamIdError {
    /// It is empty.
    #[error("a stream id is empty")]
    Empty,
    /// It is longer than SRT has room for.
    #[error("a stream id of {0} bytes; SRT has room for {TEXT_MAX}")]
    Long(usize),
    /// It has a zero byte, which ends a text.
    #[error("a stream id with a zero byte")]
    Zero,
}

impl StreamId {
    /// That text.
    ///
    /// # Errors
    /// If it is empty, too long, or has a zero byte.
    pub fn new(text: impl Into<String>) -> Result<StreamId, StreamIdError> {
        let text = text.into();
        match text.len() {
            0 => Err(StreamIdError::Empty),
            long if long > TEXT_MAX => Err(StreamIdError::Long(long)),
            _ if text.contains('\0') => Err(StreamIdError::Zero),
            _ => Ok(StreamId(text)),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What begins a stream id with access control.
const PREFIX: &str = "#!::";

/// A stream id of access control, read. Values have no way to hold a comma.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// What is asked for (`r`).
    pub resource: Option<String>,
    /// `request` (the default), `publish` or `bidirectional` (`m`).
    pub mode: Option<String>,
    /// Who asks (`u`).
    pub user: Option<String>,
    /// The host that is asked (`h`).
    pub host: Option<String>,
    /// A session id (`s`).
    pub session: Option<String>,
    /// `stream` (the default), `file` or `auth` (`t`).
    pub kind: Option<String>,
    /// Others, as they stand.
    pub other: Vec<(String, String)>,
}

impl AccessControl {
    /// Reads the text of a stream id; none where it has not that form. Of a key that stands twice
    /// the last counts.
    pub fn parse(text: &str) -> Option<AccessControl> {
        let pairs = text.strip_prefix(PREFIX)?;
        let mut read = AccessControl::default();
        for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=')?;
            match read.field(key) {
                Some(field) => *field = Some(value.to_owned()),
                None => read.other.push((key.to_owned(), value.to_owned())),
            }
        }
        Some(read)
    }

    fn field(&mut self, key: &str) -> Option<&mut Option<String>> {
        Some(match key {
            "r" => &mut self.resource,
            "m" => &mut self.mode,
            "u" => &mut self.user,
            "h" => &mut self.host,
            "s" => &mut self.session,
            "t" => &mut self.kind,
            _ => return None,
        })
    }

    /// Whether the caller wants to send.
    pub fn publishes(&self) -> bool {
        self.mode.as_deref() == Some("publish")
    }
}

impl fmt::Display for AccessControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            ("r", &self.resource),
            ("m", &self.mode),
            ("u", &self.user),
            ("h", &self.host),
            ("s", &self.session),
            ("t", &self.kind),
        ];
        let known = known
            .into_iter()
            .filter_map(|(k, v)| Some((k, v.as_deref()?)));
        let other = self.other.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        f.write_str(PREFIX)?;
        for (place, (key, value)) in known.chain(other).enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_drafts_examples_are_read() {
        let read = AccessControl::parse("#!::u=admin,r=bluesbrothers1_hi").unwrap();
        assert_eq!(read.user.as_deref(), Some("admin"));
        assert_eq!(read.resource.as_deref(), Some("bluesbrothers1_hi"));
        assert!(!read.publishes());
        let read = AccessControl::parse("#!::u=johnny,t=file,m=publish,r=results.csv").unwrap();
        assert!(read.publishes());
        assert_eq!(read.kind.as_deref(), Some("file"));
        assert_eq!(AccessControl::parse("live/one"), None);
        assert_eq!(AccessControl::parse("#!::live"), None);
    }

    #[test]
    fn impossible_stream_ids_are_refused() {
        assert_eq!(StreamId::new(""), Err(StreamIdError::Empty));
        assert_eq!(
            StreamId::new("x".repeat(513)),
            Err(StreamIdError::Long(513))
        );
        assert_eq!(StreamId::new("a\0"), Err(StreamIdError::Zero));
        assert_eq!(StreamId::new("x".repeat(512)).unwrap().as_str().len(), 512);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            known in proptest::collection::vec(proptest::option::of("[^,\\x00]{0,9}"), 6),
            other in proptest::collection::vec(("[a-z]{2,5}", "[^,\\x00]{0,9}"), 0..4),
        ) {
            let [resource, mode, user, host, session, kind] = known.try_into().unwrap();
            let said = AccessControl { resource, mode, user, host, session, kind, other };
            prop_assert_eq!(AccessControl::parse(&said.to_string()), Some(said));
        }
    }
}
