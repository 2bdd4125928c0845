//! ICE candidates (RFC 8839, 5.1).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Maximum length of a candidate, in bytes.
const LENGTH_MAX: usize = 1024;

/// Type of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CandidateKind {
    /// Address of a local interface.
    Host,
    /// Address seen by a STUN server.
    ServerReflexive,
    /// Address seen by the other peer.
    PeerReflexive,
    /// Address at a TURN server.
    Relayed,
}

impl CandidateKind {
    const NAMES: [(CandidateKind, &'static str); 4] = [
        (CandidateKind::Host, "host"),
        (CandidateKind::ServerReflexive, "srflx"),
        (CandidateKind::PeerReflexive, "prflx"),
        (CandidateKind::Relayed, "relay"),
    ];

    fn name(self) -> &'static str {
        let mut names = CandidateKind::NAMES.iter();
        names
            .find(|(kind, _)| *kind == self)
            .expect("all are there")
            .1
    }
}

/// Connection address of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CandidateAddress {
    Ip(IpAddr),
    /// A hostname, with which browsers hide addresses (`...local`). It is not resolved.
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The same for candidates with the same type and base.
    pub foundation: String,
    /// 1 for RTP, with RTCP multiplexed; 2 for RTCP alone.
    pub component: u16,
    /// `udp` or `tcp`, in lower case.
    pub transport: String,
    /// Higher values are preferred.
    pub priority: u32,
    pub address: CandidateAddress,
    pub port: u16,
    pub kind: CandidateKind,
    /// Related address.
    pub related: Option<(String, u16)>,
    /// `active`, `passive` or `so`, for TCP candidates.
    pub tcp_type: Option<String>,
    /// User fragment of the ICE session.
    pub ufrag: Option<String>,
}

impl Candidate {
    /// Creates the `number`th host candidate of this peer, over UDP.
    pub fn host(address: SocketAddr, number: u16) -> Candidate {
        // RFC 8445, 5.1.2.1: type preference, local preference, component.
        let priority = 126 << 24 | u32::from(u16::MAX - number) << 8 | 255;
        Candidate {
            foundation: (number + 1).to_string(),
            component: 1,
            transport: "udp".to_owned(),
            priority,
            address: CandidateAddress::Ip(address.ip()),
            port: address.port(),
            kind: CandidateKind::Host,
            related: None,
            tcp_type: None,
            ufrag: None,
        }
    }

    /// Creates the `number`th candidate of this peer, with an address at a TURN server. Its related
    /// address is hidden, as in browsers.
    pub fn relayed(address: SocketAddr, number: u16) -> Candidate {
        let hidden = if address.is_ipv4() { "0.0.0.0" } else { "::" };
        let host = Candidate::host(address, number);
        Candidate {
            // The type preference of relayed candidates is 0 (RFC 8445, 5.1.2.2).
            priority: host.priority & 0x00ff_ffff,
            kind: CandidateKind::Relayed,
            related: Some((hidden.to_owned(), 0)),
            ..host
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Candidate {
            foundation,
            component,
            transport,
            priority,
            port,
            ..
        } = self;
        write!(
            out,
            "candidate:{foundation} {component} {transport} {priority} "
        )?;
        match &self.address {
            CandidateAddress::Ip(ip) => write!(out, "{ip}")?,
            CandidateAddress::Name(name) => out.write_str(name)?,
        }
        write!(out, " {port} typ {}", self.kind.name())?;
        if let Some((address, port)) = &self.related {
            write!(out, " raddr {address} rport {port}")?;
        }
        if let Some(tcp_type) = &self.tcp_type {
            write!(out, " tcptype {tcp_type}")?;
        }
        if let Some(ufrag) = &self.ufrag {
            write!(out, " ufrag {ufrag}")?;
        }
        Ok(())
    }
}

/// Parse error of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an ICE candidate; example: `candidate:1 1 udp 2130706431 192.0.2.1 5000 typ host`")]
pub struct ParseCandidateError;

impl FromStr for Candidate {
    type Err = ParseCandidateError;

    /// Parses a candidate with or without a leading `a=` and `candidate:`.
    fn from_str(text: &str) -> Result<Candidate, ParseCandidateError> {
        if text.len() > LENGTH_MAX {
            return Err(ParseCandidateError);
        }
        let text = text.trim_ascii();
        let text = text.strip_prefix("a=").unwrap_or(text);
        let text = text.strip_prefix("candidate:").unwrap_or(text);
        let mut words = text.split_ascii_whitespace();
        let mut word = || words.next().ok_or(ParseCandidateError);
        fn number<N: FromStr>(word: &str) -> Result<N, ParseCandidateError> {
            word.parse().map_err(|_| ParseCandidateError)
        }
        let (foundation, component) = (word()?.to_owned(), number(word()?)?);
        let (transport, priority) = (word()?.to_ascii_lowercase(), number(word()?)?);
        let (address, port) = (word()?, number(word()?)?);
        if word()? != "typ" {
            return Err(ParseCandidateError);
        }
        let kind = word()?;
        let mut kinds = CandidateKind::NAMES.iter();
        let kind = kinds
            .find(|(_, name)| *name == kind)
            .ok_or(ParseCandidateError)?
            .0;
        let mut candidate = Candidate {
            foundation,
            component,
            transport,
            priority,
            address: match address.parse() {
                Ok(ip) => CandidateAddress::Ip(ip),
                Err(_) => CandidateAddress::Name(address.to_owned()),
            },
            port,
            kind,
            related: None,
            tcp_type: None,
            ufrag: None,
        };
        let mut related = None;
        // Extensions are pairs of name and value. A trailing name without a value is ignored.
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            match name {
                "raddr" => related = Some(value.to_owned()),
                "rport" => {
                    let port = number(value)?;
                    candidate.related = related.take().map(|address| (address, port));
                }
                "tcptype" => candidate.tcp_type = Some(value.to_owned()),
                "ufrag" => candidate.ufrag = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(candidate)
    }
}
