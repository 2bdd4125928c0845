//! The `RTP-Info` header (RFC 2326, 12.33).

use std::fmt;

/// Statement of a server about the first packet of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtpInfo {
    /// Control URL of the stream, absolute or relative, as the server wrote it.
    pub url: String,
    /// Sequence number of the first packet.
    pub seq: Option<u16>,
    /// RTP timestamp that corresponds to the start of the range.
    pub rtptime: Option<u32>,
}

impl RtpInfo {
    /// Parses the streams of a header value, at most 64.
    ///
    /// A URL may contain commas and semicolons and is often not quoted: text after such a separator
    /// that is not a known field belongs to the URL. The first entry may lack a URL, as for a
    /// single stream.
    pub fn parse_all(value: &str) -> Vec<RtpInfo> {
        let mut infos: Vec<RtpInfo> = Vec::new();
        let mut in_url = false;
        for (separator, part) in Parts(value) {
            let (name, field) = match part.trim().split_once('=') {
                Some((name, field)) => (name.trim().to_ascii_lowercase(), field.trim()),
                None => (String::new(), ""),
            };
            match (name.as_str(), infos.last_mut()) {
                ("url", _) => {
                    if infos.len() == 64 {
                        break;
                    }
                    infos.push(RtpInfo {
                        url: field.to_owned(),
                        ..RtpInfo::default()
                    });
                    in_url = true;
                    continue;
                }
                ("seq" | "rtptime" | "ssrc", None) => infos.push(RtpInfo::default()),
                ("seq" | "rtptime" | "ssrc", Some(_)) => {}
                (_, Some(info)) if in_url => {
                    info.url.push(separator);
                    info.url.push_str(part);
                    continue;
                }
                _ => continue,
            }
            in_url = false;
            let Some(info) = infos.last_mut() else {
                continue;
            };
            match name.as_str() {
                // Some servers write these values signed or too wide: the low bits count.
                "seq" => info.seq = parse_integer(field).map(|seq| seq as u16),
                "rtptime" => info.rtptime = parse_integer(field).map(|time| time as u32),
                _ => {}
            }
        }
        for info in &mut infos {
            // Quotation marks and blanks may occur in any order.
            let around = |c: char| c == '"' || c.is_whitespace();
            let url = info.url.trim_matches(around);
            if url.len() != info.url.len() {
                info.url = url.to_owned();
            }
        }
        infos
    }
}

fn parse_integer(field: &str) -> Option<i64> {
    field.trim().trim_matches('"').parse().ok()
}

/// Parts of a value between commas and semicolons, each with the separator before it.
struct Parts<'a>(&'a str);

impl<'a> Iterator for Parts<'a> {
    type Item = (char, &'a str);

    fn next(&mut self) -> Option<(char, &'a str)> {
        if self.0.is_empty() {
            return None;
        }
        let (separator, rest) = match self.0.as_bytes()[0] {
            b',' => (',', &self.0[1..]),
            b';' => (';', &self.0[1..]),
            _ => (',', self.0),
        };
        let end = rest.find([',', ';']).unwrap_or(rest.len());
        self.0 = &rest[end..];
        Some((separator, &rest[..end]))
    }
}

impl fmt::Display for RtpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "url={}", self.url)?;
        if let Some(seq) = self.seq {
            write!(f, ";seq={seq}")?;
        }
        if let Some(rtptime) = self.rtptime {
            write!(f, ";rtptime={rtptime}")?;
        }
        Ok(())
    }
}
