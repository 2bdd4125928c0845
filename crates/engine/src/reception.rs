//! By which path media over UDP is received, and why by that one.

use net::PortRange;
use net::ring::{Family, PacketRing, RingSettings};
use scenario::{Receive, Scenario};

use crate::error::EngineError;

/// How media over UDP is received in a run.
#[derive(Clone, Debug)]
pub(crate) struct Reception {
    path: Path,
}

#[derive(Clone, Copy, Debug)]
enum Path {
    /// None is.
    None,
    /// By each client's own sockets.
    Sockets,
    /// By a packet ring on each worker, of so many bytes.
    Ring(usize),
}

impl Reception {
    /// Chooses the path: sockets, or the packet ring where that is asked for.
    ///
    /// # Errors
    /// The ring is demanded and cannot be had.
    pub(crate) fn choose(scenario: &Scenario) -> Result<Reception, EngineError> {
        let (udp_ports, tester) = (scenario.describe().udp_ports, &scenario.tester);
        let by = |path| Reception { path };
        if udp_ports == 0 {
            return Ok(by(Path::None));
        }
        // A ring takes in what other programs on this machine receive on the same ports, and is then full
        // sooner: who asks for it knows that the ports are this run's alone.
        if tester.receive != Receive::Ring {
            return Ok(by(Path::Sockets));
        }
        let bytes = usize::try_from(tester.ring).unwrap_or(usize::MAX);
        // The port does not matter: that a ring can be had is what is looked at.
        match PacketRing::open(&settings(bytes, 0..=0)) {
            Ok(_) => Ok(by(Path::Ring(bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(EngineError::Reception(
                    "this process may not have one: it lacks CAP_NET_RAW, which `setcap \
                     cap_net_raw+ep` on the program would give it"
                        .to_owned(),
                ))
            }
            Err(error) => Err(EngineError::Reception(format!(
                "this machine gives none: {error}"
            ))),
        }
    }

    /// Its name in reports; none where nothing is received over UDP.
    pub(crate) fn name(&self) -> Option<&'static str> {
        match self.path {
            Path::None => None,
            Path::Sockets => Some("sockets"),
            Path::Ring(_) => Some("ring"),
        }
    }

    /// The ring of a worker that has those ports.
    pub(crate) fn ring(&self, ports: &PortRange) -> Option<RingSettings> {
        match self.path {
            Path::Ring(bytes) => Some(settings(bytes, ports.ports()?)),
            Path::None | Path::Sockets => None,
        }
    }
}

fn settings(bytes: usize, ports: std::ops::RangeInclusive<u16>) -> RingSettings {
    RingSettings {
        bytes,
        ..RingSettings::new(Family::V4, ports)
    }
}
