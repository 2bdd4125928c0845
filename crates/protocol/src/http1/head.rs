//! The head of an answer: status line and header fields (RFC 9112, 4 and 5).

use super::{MAX_HEADERS, Malformed, Version, is_token};

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The version that the server speaks.
    pub version: Version,
    /// The status, from 100 to 999.
    pub status: u16,
    /// What the server says of the status, in words.
    pub reason: String,
    /// The header fields.
    pub headers: Headers,
}

/// Header fields, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of the first field of that name, whichever case it is written in.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        let found = fields.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    /// The values of all fields of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self
            .0
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        own.map(|(_, value)| value.as_str())
    }
}

impl Head {
    /// Reads a head, without the empty line at its end.
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, Malformed> {
        let mut lines = bytes
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.is_empty());
        let (version, status, reason) = status_line(lines.next().unwrap_or_default())?;
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines {
            let line = String::from_utf8_lossy(line);
            if line.starts_with([' ', '\t']) {
                // A folded line goes on with the value before (RFC 9112, 5.2).
                let (_, value) = fields.last_mut().ok_or(Malformed::HeaderField)?;
                let more = line.trim();
                if !value.is_empty() && !more.is_empty() {
                    value.push(' ');
                }
                value.push_str(more);
                continue;
            }
            let (name, value) = line.split_once(':').ok_or(Malformed::HeaderField)?;
            let name = name.trim_end();
            if !is_token(name) {
                return Err(Malformed::HeaderField);
            }
            if fields.len() >= MAX_HEADERS {
                return Err(Malformed::HeadTooLong);
            }
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(Head {
            version,
            status,
            reason,
            headers: Headers(fields),
        })
    }
}

fn status_line(line: &[u8]) -> Result<(Version, u16, String), Malformed> {
    let line = String::from_utf8_lossy(line);
    let mut parts = line.splitn(3, ' ');
    let version = match parts.next().unwrap_or_default() {
        "HTTP/1.0" => Version::Http10,
        // A higher minor number is understood as the highest that is known (RFC 9110, 2.5).
        name if name.strip_prefix("HTTP/1.").is_some_and(is_digit) => Version::Http11,
        _ => return Err(Malformed::StatusLine),
    };
    let status = parts.next().unwrap_or_default();
    let number = status.parse::<u16>().ok();
    let number = number.filter(|number| status.len() == 3 && (100..1000).contains(number));
    let status = number.ok_or(Malformed::StatusLine)?;
    let reason = parts.next().unwrap_or_default().trim().to_owned();
    Ok((version, status, reason))
}

fn is_digit(text: &str) -> bool {
    matches!(text.as_bytes(), [digit] if digit.is_ascii_digit())
}
