//! SDP fragments with candidates (RFC 8840), the body of a PATCH in WHIP and WHEP.

use std::fmt::{Display, Formatter, Result as FmtResult};

use super::candidate::Candidate;

/// Maximum number of lines that are parsed.
const LINES_MAX: usize = 500;

/// SDP fragment (`application/trickle-ice-sdpfrag`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SdpFragment {
    /// User fragment of the ICE session, or the new one after an ICE restart.
    pub ufrag: Option<String>,
    pub pwd: Option<String>,
    /// Media section of the candidates.
    pub mid: Option<String>,
    pub candidates: Vec<Candidate>,
    /// No more candidates follow.
    pub end_of_candidates: bool,
}

impl SdpFragment {
    /// Parses a fragment. Unknown lines, malformed candidates and lines after the 500th are
    /// ignored.
    pub fn parse(text: &str) -> SdpFragment {
        let mut fragment = SdpFragment::default();
        for line in text.lines().take(LINES_MAX) {
            let Some(attribute) = line.trim_ascii_end().strip_prefix("a=") else {
                continue;
            };
            let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
            match name {
                "ice-ufrag" => fragment.ufrag = Some(value.to_owned()),
                "ice-pwd" => fragment.pwd = Some(value.to_owned()),
                "mid" => {
                    fragment.mid.get_or_insert_with(|| value.to_owned());
                }
                "candidate" => fragment.candidates.extend(value.parse().ok()),
                "end-of-candidates" => fragment.end_of_candidates = true,
                _ => {}
            }
        }
        fragment
    }
}

impl Display for SdpFragment {
    fn fmt(&self, out: &mut Formatter<'_>) -> FmtResult {
        if let Some(ufrag) = &self.ufrag {
            write!(out, "a=ice-ufrag:{ufrag}\r\n")?;
        }
        if let Some(pwd) = &self.pwd {
            write!(out, "a=ice-pwd:{pwd}\r\n")?;
        }
        // The media kind of the section has no meaning here (RFC 8840, 9).
        if let Some(mid) = &self.mid {
            write!(out, "m=audio 9 RTP/AVP 0\r\na=mid:{mid}\r\n")?;
        }
        for candidate in &self.candidates {
            write!(out, "a={candidate}\r\n")?;
        }
        match self.end_of_candidates {
            true => out.write_str("a=end-of-candidates\r\n"),
            false => Ok(()),
        }
    }
}
