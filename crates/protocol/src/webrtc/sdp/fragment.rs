//! Candidates on their own (RFC 8840): what WHIP's and WHEP's PATCH carries.

use std::fmt::{Display, Formatter, Result as FmtResult};

use super::candidate::Candidate;

/// The most lines of a fragment.
const LINES_MAX: usize = 500;

/// A fragment of a description (`application/trickle-ice-sdpfrag`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The user fragment that it belongs to, or the new one of a restart.
    pub ufrag: Option<String>,
    /// The password that goes with it.
    pub pwd: Option<String>,
    /// The section that the candidates are of.
    pub mid: Option<String>,
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// No more follow.
    pub end_of_candidates: bool,
}

impl Fragment {
    /// Reads one; lines that say nothing of this are left out, as are candidates that cannot be
    /// read, and what is behind the 500th line.
    pub fn parse(text: &str) -> Fragment {
        let mut fragment = Fragment::default();
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

impl Display for Fragment {
    fn fmt(&self, out: &mut Formatter<'_>) -> FmtResult {
        if let Some(ufrag) = &self.ufrag {
            write!(out, "a=ice-ufrag:{ufrag}\r\n")?;
        }
        if let Some(pwd) = &self.pwd {
            write!(out, "a=ice-pwd:{pwd}\r\n")?;
        }
        // Which kind of media the section is of means nothing here (RFC 8840, 9).
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
