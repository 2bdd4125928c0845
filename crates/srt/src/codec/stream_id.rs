//! Stream ids, and the access control syntax in them (SRT, appendix B):
//! `#!::r=live/one,m=publish,u=me`.

use std::fmt;

use thiserror::Error;

use super::handshake::TEXT_MAX;

/// Text by which a caller tells a listener what it wants: 1 to 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(String);

/// Reason why a text is not a valid stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamIdError {
    #[error("the stream id is empty")]
    Empty,
    #[error("the stream id has {0} bytes, and SRT allows at most {TEXT_MAX}")]
    Long(usize),
    #[error("the stream id contains a zero byte")]
    Zero,
}

impl StreamId {
    /// Validates a stream id.
    ///
    /// # Errors
    /// The text is empty, too long, or contains a zero byte.
    pub fn new(text: impl Into<String>) -> Result<StreamId, StreamIdError> {
        let text = text.into();
        match text.len() {
            0 => Err(StreamIdError::Empty),
            long if long > TEXT_MAX => Err(StreamIdError::Long(long)),
            _ if text.contains('\0') => Err(StreamIdError::Zero),
            _ => Ok(StreamId(text)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prefix of a stream id with access control.
const PREFIX: &str = "#!::";

/// Parsed stream id with access control. Values cannot contain a comma.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// Requested resource (`r`).
    pub resource: Option<String>,
    /// Mode (`m`): `request` (the default), `publish` or `bidirectional`.
    pub mode: Option<String>,
    /// User name (`u`).
    pub user: Option<String>,
    /// Requested host name (`h`).
    pub host: Option<String>,
    /// Session id (`s`).
    pub session: Option<String>,
    /// Type (`t`): `stream` (the default), `file` or `auth`.
    pub kind: Option<String>,
    /// Other keys, unchanged.
    pub other: Vec<(String, String)>,
}

impl AccessControl {
    /// Parses a stream id. Returns `None` if it does not have this syntax. If a known key is
    /// repeated, the last value counts.
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

    /// True if the caller wants to publish.
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
    fn draft_examples_are_parsed() {
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
    fn invalid_stream_ids_are_rejected() {
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
        fn access_control_round_trips(
            known in proptest::collection::vec(proptest::option::of("[^,\\x00]{0,9}"), 6),
            other in proptest::collection::vec(("[a-z]{2,5}", "[^,\\x00]{0,9}"), 0..4),
        ) {
            let [resource, mode, user, host, session, kind] = known.try_into().unwrap();
            let said = AccessControl { resource, mode, user, host, session, kind, other };
            prop_assert_eq!(AccessControl::parse(&said.to_string()), Some(said));
        }
    }
}
