//! By which path media over UDP is received, and why by that one.

use std::fmt;
use std::io;
use std::ops::{Range, RangeInclusive};

use net::ports::DEFAULT_RANGE;
use net::ring::{Brief, Family, PacketRing, RingSettings};
use net::{Claim, PortRange};
use protocol::session::{FIRST_BYTES, MORE_IF, WHOLE_IF};
use scenario::{PopulationPlan, Receive, Scenario, Tester};

use crate::error::EngineError;

/// How media over UDP is received in a run, and at which ports.
#[derive(Debug)]
pub(crate) struct Reception {
    path: Path,
    ports: Range<u16>,
    /// Keeps other runs from these ports.
    _claim: Option<Claim>,
    hint: Option<String>,
    /// Whether media comes in connections as well, whose segments a ring can show.
    segments: bool,
}

#[derive(Clone, Copy, Debug)]
enum Path {
    /// By each client's own sockets; whether over UDP at all.
    Sockets { udp: bool },
    /// By a packet ring on each worker, of so many bytes.
    Ring(usize),
}

impl Reception {
    /// Chooses the path: the packet ring where it can be had, unless sockets are asked for.
    ///
    /// # Errors
    /// The ring is demanded and cannot be had.
    pub(crate) fn choose(scenario: &Scenario) -> Result<Reception, EngineError> {
        let tester = &scenario.tester;
        let of = |plan: &PopulationPlan| match plan.udp_ports {
            0 => plan.clients_max,
            ports => ports,
        };
        // Where media comes in the connection, the ring shows when its segments came.
        let populations = scenario.describe().populations;
        let mut each = populations.iter();
        let segments = each.any(|plan| plan.udp_ports == 0 && !plan.multicast);
        let mut each = populations.iter();
        let udp = each.any(|plan| plan.udp_ports > 0 || plan.multicast);
        let all_multicast = populations.iter().all(|plan| plan.multicast);
        let ports = populations.iter().map(of).sum();
        let claim = claim(ports)?;
        let (path, hint) = match tester.receive {
            Receive::Sockets => (Path::Sockets { udp }, None),
            // A ring shows the ports of the clients' own, and a group's are the server's choice.
            Receive::Ring if all_multicast => {
                return Err(EngineError::Reception(
                    "media of multicast groups comes by sockets alone".to_owned(),
                ));
            }
            Receive::Auto if all_multicast => (Path::Sockets { udp }, None),
            Receive::Ring => match ring(tester) {
                Ok(ring) if claim.is_none() => (ring, Some(SHARED.to_owned())),
                Ok(ring) => (ring, None),
                Err(why_not) => return Err(EngineError::Reception(why_not.to_string())),
            },
            // A ring takes in what other programs on this machine receive on the same ports, and is full sooner.
            Receive::Auto if claim.is_none() => (
                Path::Sockets { udp },
                Some(format!("{SHARED}; so sockets are read")),
            ),
            Receive::Auto => match ring(tester) {
                Ok(ring) => (ring, None),
                Err(why_not) => (Path::Sockets { udp }, Some(why_not.in_passing())),
            },
        };
        Ok(Reception {
            path,
            ports: claim.as_ref().map_or(DEFAULT_RANGE, Claim::range),
            _claim: claim,
            hint,
            segments,
        })
    }

    /// At which ports the workers' clients receive media.
    pub(crate) fn ports(&self) -> Range<u16> {
        self.ports.clone()
    }

    /// What a better path would take, where there is one and it could not be chosen.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Its name in reports; none where media comes in connections alone, and no ring shows when.
    pub(crate) fn name(&self) -> Option<&'static str> {
        match self.path {
            Path::Sockets { udp } => udp.then_some("sockets"),
            Path::Ring(_) => Some("ring"),
        }
    }

    /// The ring of a worker that has those ports.
    pub(crate) fn ring(&self, ports: &PortRange) -> Option<RingSettings> {
        match self.path {
            Path::Ring(bytes) => Some(RingSettings {
                segments: self.segments,
                ..settings(bytes, ports.ports()?)
            }),
            Path::Sockets { .. } => None,
        }
    }
}

const SHARED: &str = "other runs on this machine leave no ports to this one alone, and a packet ring sees what is theirs too";

/// So many ports for this run alone, at least; none where there are not so many.
fn claim(ports: u64) -> Result<Option<Claim>, EngineError> {
    // Clients that leave hold theirs a moment longer, and some ports are other programs'.
    // And what a client may need is an upper bound: where that is more than there is, all is tried.
    let most = Claim::most(&DEFAULT_RANGE);
    let needed = (ports + ports / 16 + 64).min(most);
    // A port that was a client's should rest before it is another's.
    let wanted = (2 * ports).clamp(needed, most);
    let claimed = Claim::take(DEFAULT_RANGE, needed, wanted);
    claimed.map_err(EngineError::system("cannot claim ports"))
}

/// Why there is no packet ring.
enum WhyNot {
    NotAllowed,
    Refused(io::Error),
}

impl WhyNot {
    /// For a run that goes on without.
    fn in_passing(&self) -> String {
        match self {
            WhyNot::NotAllowed => format!(
                "a packet ring would take a fraction of the processor time: `sudo setcap cap_net_raw+ep {}` \
                 allows it",
                program()
            ),
            WhyNot::Refused(error) => {
                format!(
                    "a packet ring would take a fraction of the processor time; this machine gives none: {error}"
                )
            }
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::NotAllowed => write!(
                f,
                "this process may not have one: it lacks CAP_NET_RAW, which `sudo setcap cap_net_raw+ep {}` \
                 gives it",
                program()
            ),
            WhyNot::Refused(error) => write!(f, "this machine gives none: {error}"),
        }
    }
}

/// This program's path, as somebody would write it in a command.
fn program() -> String {
    std::env::current_exe().map_or_else(
        |_| "streamgauge".to_owned(),
        |path| path.display().to_string(),
    )
}

/// The packet ring, if this process may have one.
fn ring(tester: &Tester) -> Result<Path, WhyNot> {
    let bytes = usize::try_from(tester.ring).unwrap_or(usize::MAX);
    // The port does not matter: that a ring can be had is what is looked at.
    match PacketRing::open(&settings(bytes, 0..=0)) {
        Ok(_) => Ok(Path::Ring(bytes)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(WhyNot::NotAllowed),
        Err(error) => Err(WhyNot::Refused(error)),
    }
}

/// A ring that keeps of each packet what a receiver of media needs.
pub(crate) fn settings(bytes: usize, ports: RangeInclusive<u16>) -> RingSettings {
    RingSettings {
        bytes,
        whole_if: WHOLE_IF,
        brief: Some(Brief {
            unless: MORE_IF,
            bytes: FIRST_BYTES,
        }),
        ..RingSettings::new(Family::V4, ports)
    }
}
