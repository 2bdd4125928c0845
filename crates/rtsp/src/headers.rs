//! RTSP header values. Parsing accepts what real servers and clients write; writing follows
//! RFC 2326.

use std::fmt;

use super::codec::Method;

mod rtp_info;
mod transport;

pub use kit::media::play_range::{NptStart, Range};
pub use rtp_info::RtpInfo;
pub use transport::{Delivery, LowerTransport, Ports, Transport};

/// Parses `CSeq` (RFC 2326, 12.17). Ignores surrounding blanks and anything after the digits.
pub fn parse_cseq(value: &str) -> Option<u32> {
    let value = value.trim();
    let end = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    value[..end].parse().ok()
}

/// Parses `Public` or `Allow`: a list of methods (RFC 2326, 12.28 and 12.4).
pub fn parse_methods(value: &str) -> Vec<Method> {
    value
        .split([',', ' '])
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .take(64)
        .map(|name| Method::from_name(&name.to_ascii_uppercase()))
        .collect()
}

/// Formats the value of `Public`.
pub fn write_methods(methods: &[Method]) -> String {
    let names: Vec<&str> = methods.iter().map(Method::name).collect();
    names.join(", ")
}

/// Formats a number with at most this many digits after the point, and at least one.
pub(crate) fn format_number(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    match text.trim_end_matches('0') {
        whole if whole.ends_with('.') => format!("{whole}0"),
        short => short.to_owned(),
    }
}

/// The `Session` header (RFC 2326, 12.37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeader {
    /// Session identifier, sent back unchanged.
    pub id: String,
    /// Session timeout in seconds: the server ends the session if no keep-alive arrives for this
    /// long. `None` if the server states none; the default is 60.
    pub timeout: Option<u32>,
}

impl SessionHeader {
    /// Parses a header value. Returns `None` if it contains no identifier.
    pub fn parse(value: &str) -> Option<SessionHeader> {
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
        Some(SessionHeader {
            id: id.to_owned(),
            timeout,
        })
    }
}

impl fmt::Display for SessionHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        match self.timeout {
            Some(timeout) => write!(f, ";timeout={timeout}"),
            None => Ok(()),
        }
    }
}

/// Splits at each `separator` outside quotation marks.
pub(crate) fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        if c == '"' {
            quoted = !quoted;
        }
        c == separator && !quoted
    })
}

/// Removes blanks and quotation marks from both ends.
pub(crate) fn unquote(text: &str) -> &str {
    text.trim().trim_matches('"').trim()
}

#[cfg(test)]
mod tests;
