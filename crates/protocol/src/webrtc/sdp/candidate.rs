//! Addresses at which a peer can perhaps be reached (RFC 8839, 5.1).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Longest text of a candidate.
const LENGTH_MAX: usize = 1024;

/// How a candidate came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CandidateKind {
    /// An address of the peer's machine.
    Host,
    /// What a STUN server saw.
    ServerReflexive,
    /// What the other peer saw.
    PeerReflexive,
    /// An address at a TURN server.
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

/// Where a candidate is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CandidateAddress {
    /// An address.
    Ip(IpAddr),
    /// A name, which browsers put for addresses that they hide (`...local`). It is not looked up.
    Name(String),
}

/// A candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Alike for candidates of one kind and base.
    pub foundation: String,
    /// 1 is RTP, and RTCP with it; 2 is RTCP alone.
    pub component: u16,
    /// `udp` or `tcp`, in small letters.
    pub transport: String,
    /// Higher is better.
    pub priority: u32,
    /// Where.
    pub address: CandidateAddress,
    /// Port.
    pub port: u16,
    /// How it came about.
    pub kind: CandidateKind,
    /// The address that it stands for.
    pub related: Option<(String, u16)>,
    /// `active`, `passive` or `so`, of those over TCP.
    pub tcp_type: Option<String>,
    /// The user fragment it belongs to.
    pub ufrag: Option<String>,
}

impl Candidate {
    /// An address of this machine over UDP, the `number`th of this peer.
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

    /// An address at a TURN server, the `number`th of this peer. What it stands for is not told, as
    /// browsers do.
    pub fn relayed(address: SocketAddr, number: u16) -> Candidate {
        let hidden = if address.is_ipv4() { "0.0.0.0" } else { "::" };
        let host = Candidate::host(address, number);
        Candidate {
            // The type preference of relayed ones is 0 (RFC 8445, 5.1.2.2).
            priority: host.priority & 0x00ff_ffff,
            kind: CandidateKind::Relayed,
            related: Some((hidden.to_owned(), 0)),
            ..host
        }
    }

    /// Its address, if it is one over UDP for media.
    pub fn udp(&self) -> Option<SocketAddr> {
        match (&self.address, &self.transport[..], self.component) {
            (CandidateAddress::Ip(ip), "udp", 1) => Some(SocketAddr::new(*ip, self.port)),
            _ => None,
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

/// Not a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no ICE candidate: it is `candidate:1 1 udp 2130706431 192.0.2.1 5000 typ host`")]
pub struct BadCandidate;

impl FromStr for Candidate {
    type Err = BadCandidate;

    /// With or without `a=` and `candidate:` before it.
    fn from_str(text: &str) -> Result<Candidate, BadCandidate> {
        if text.len() > LENGTH_MAX {
            return Err(BadCandidate);
        }
        let text = text.trim_ascii();
        let text = text.strip_prefix("a=").unwrap_or(text);
        let text = text.strip_prefix("candidate:").unwrap_or(text);
        let mut words = text.split_ascii_whitespace();
        let mut word = || words.next().ok_or(BadCandidate);
        fn number<N: FromStr>(word: &str) -> Result<N, BadCandidate> {
            word.parse().map_err(|_| BadCandidate)
        }
        let (foundation, component) = (word()?.to_owned(), number(word()?)?);
        let (transport, priority) = (word()?.to_ascii_lowercase(), number(word()?)?);
        let (address, port) = (word()?, number(word()?)?);
        if word()? != "typ" {
            return Err(BadCandidate);
        }
        let kind = word()?;
        let mut kinds = CandidateKind::NAMES.iter();
        let kind = kinds.find(|(_, name)| *name == kind).ok_or(BadCandidate)?.0;
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
        // Extensions: pairs of a name and a value. A last name without a value is left out.
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
