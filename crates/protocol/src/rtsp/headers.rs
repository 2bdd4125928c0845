//! Header values of RTSP, parsed as real servers and clients write them, and written as RFC 2326
//! says.

use std::fmt;

use super::codec::Method;

mod range;
mod rtp_info;
mod transport;

pub use range::{NptStart, Range};
pub use rtp_info::RtpInfo;
pub use transport::{Cast, Lower, Ports, Transport};

/// `CSeq` (RFC 2326, 12.17). Blanks around it and a fraction behind it are let go.
pub fn parse_cseq(value: &str) -> Option<u32> {
    let value = value.trim();
    let end = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    value[..end].parse().ok()
}

/// `Public` or `Allow`: the methods listed (RFC 2326, 12.28 and 12.4).
pub fn parse_methods(value: &str) -> Vec<Method> {
    value
        .split([',', ' '])
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .take(64)
        .map(|name| Method::from_name(&name.to_ascii_uppercase()))
        .collect()
}

/// The value of `Public` for these methods.
pub fn write_methods(methods: &[Method]) -> String {
    let names: Vec<&str> = methods.iter().map(Method::name).collect();
    names.join(", ")
}

/// `Session` (RFC 2326, 12.37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The identifier, to be sent back as it is.
    pub id: String,
    /// After how many seconds without a sign of life the server lets the session go; 60 where it
    /// does not say.
    pub timeout: Option<u32>,
}

impl Session {
    /// The session that a header value names; `None` where it names none.
    pub fn parse(value: &str) -> Option<Session> {
        let mut parts = value.split(';');
        let id = parts.next().unwrap_or_default().trim();
        if id.is_empty() {
            return None;
        }
        let timeout = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("timeout")
                .then(|| parse_cseq(value))?
        });
        Some(Session {
            id: id.to_owned(),
            timeout,
        })
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        match self.timeout {
            Some(timeout) => write!(f, ";timeout={timeout}"),
            None => Ok(()),
        }
    }
}

/// Splits at `separator` where it stands outside of quotation marks.
pub(crate) fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        if c == '"' {
            quoted = !quoted;
        }
        c == separator && !quoted
    })
}

/// Takes blanks, then quotation marks, off both ends.
pub(crate) fn unquote(text: &str) -> &str {
    text.trim().trim_matches('"').trim()
}

#[cfg(test)]
mod tests;
