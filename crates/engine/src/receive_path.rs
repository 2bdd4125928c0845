//! By which path media over UDP is received, and why by that one.

use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use net::ports::DEFAULT_RANGE;
use net::ring::{BLOCK_BYTES_MIN, Brief, Family, PacketRing, RingSettings};
use net::{Claim, PortRange};
use protocol::remote_receiver::{NEEDS, Ports};
use protocol::session::Needs;
use scenario::{PopulationPlan, Receive, Scenario, Tester};

use crate::error::EngineError;
use crate::team_size::workers;
use crate::worker::RingPlan;

/// How media over UDP is received in a run, and at which ports.
#[derive(Debug)]
pub(crate) struct ReceivePath {
    path: Path,
    ports: Range<u16>,
    /// Keeps other runs from these ports.
    _claim: Option<Claim>,
    hint: Option<String>,
    /// Whether media comes in datagrams.
    datagrams: bool,
    /// Whether media comes in connections as well, whose segments a ring can show.
    segments: bool,
    /// How much of a datagram is read; none where no media comes in datagrams.
    needs: Option<Needs>,
    /// Whether the beginnings of payloads are looked at, for time codes.
    time_codes: bool,
}

#[derive(Clone, Copy, Debug)]
enum Path {
    /// By each client's own sockets; whether over UDP at all.
    Sockets { udp: bool },
    /// By a packet ring on each worker, of so many bytes.
    Ring(usize),
}

impl ReceivePath {
    /// Chooses the path: the packet ring where it can be had, unless sockets are asked for.
    ///
    /// # Errors
    /// The ring is demanded and cannot be had.
    pub(crate) fn choose(scenario: &Scenario) -> Result<ReceivePath, EngineError> {
        let tester = &scenario.tester;
        let of = |plan: &PopulationPlan| match plan.udp_ports {
            0 if plan.by_sockets => 0,
            0 if !plan.media => 0,
            0 => plan.clients_max,
            ports => ports,
        };
        // Where media comes in the connection, the ring shows when its segments came.
        let populations = scenario.describe().populations;
        let mut each = populations.iter();
        let unseen = |plan: &PopulationPlan| plan.multicast || plan.by_sockets;
        let segments = each.any(|plan| plan.media && plan.udp_ports == 0 && !unseen(plan));
        let mut each = populations.iter();
        let udp = each.any(|plan| plan.udp_ports > 0 || unseen(plan));
        let all_unseen = populations.iter().all(unseen);
        let no_media = populations.iter().all(|plan| !plan.media);
        let ports = populations.iter().map(of).sum();
        let named = named_ports(scenario)?;
        let claim = match named {
            Some(_) => None,
            None => claim(ports)?,
        };
        // Ports that the scenario names are taken to be this run's.
        let shared = claim.is_none() && named.is_none();
        let (path, hint) = match tester.receive {
            Receive::Sockets => (Path::Sockets { udp }, None),
            // A ring shows the ports of the clients' own, and a group's are the server's choice.
            Receive::Ring if all_unseen => {
                return Err(EngineError::ReceivePath(
                    "media of multicast groups, and the datagrams of clients that publish, come by \
                     sockets alone"
                        .to_owned(),
                ));
            }
            Receive::Auto if all_unseen || no_media => (Path::Sockets { udp }, None),
            Receive::Ring => match ring(tester) {
                Ok(ring) if shared => (ring, Some(SHARED.to_owned())),
                Ok(ring) => (ring, None),
                Err(why_not) => return Err(EngineError::ReceivePath(why_not.to_string())),
            },
            // A ring takes in what other programs on this machine receive on the same ports, and is
            // full sooner.
            Receive::Auto if shared => (
                Path::Sockets { udp },
                Some(format!("{SHARED}; so sockets are read")),
            ),
            Receive::Auto => match ring(tester) {
                Ok(ring) => (ring, None),
                Err(why_not) => (Path::Sockets { udp }, Some(why_not.in_passing())),
            },
        };
        Ok(ReceivePath {
            path,
            ports: match named {
                Some(named) => needed_of(named, ports, workers(scenario)),
                None => claim.as_ref().map_or(DEFAULT_RANGE, Claim::range),
            },
            _claim: claim,
            hint,
            datagrams: udp,
            segments,
            needs: scenario
                .populations
                .iter()
                .filter_map(|population| population.config.datagrams())
                .reduce(Needs::and),
            time_codes: scenario
                .populations
                .iter()
                .any(|population| population.config.brings_time_codes()),
        })
    }

    /// The same for a receiver of others' media: of so many streams at most, at `ports` or at any
    /// that no run here has.
    ///
    /// # Errors
    /// The ring is demanded and cannot be had.
    pub(crate) fn for_others(
        tester: &Tester,
        ports: Option<Ports>,
        streams: u64,
    ) -> Result<ReceivePath, EngineError> {
        let claim = match ports {
            Some(_) => None,
            None => claim(2 * streams)?,
        };
        let shared = claim.is_none() && ports.is_none();
        let path = match (tester.receive, ring(tester)) {
            (Receive::Sockets, _) => Path::Sockets { udp: true },
            (Receive::Auto, _) if shared => Path::Sockets { udp: true },
            (_, Ok(ring)) => ring,
            (Receive::Auto, Err(_)) => Path::Sockets { udp: true },
            (Receive::Ring, Err(why_not)) => {
                return Err(EngineError::ReceivePath(why_not.to_string()));
            }
        };
        Ok(ReceivePath {
            path,
            ports: match ports {
                Some(ports) => ports.range(),
                None => claim.as_ref().map_or(DEFAULT_RANGE, Claim::range),
            },
            _claim: claim,
            hint: None,
            datagrams: true,
            segments: false,
            needs: Some(NEEDS),
            time_codes: false,
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
    pub(crate) fn ring(&self, ports: &PortRange) -> Option<RingPlan> {
        match self.path {
            Path::Ring(bytes) => {
                let usual = settings(bytes, ports.ports()?, self.needs, self.time_codes);
                let settings = RingSettings {
                    segments: self.segments,
                    block_timeout: if self.datagrams {
                        usual.block_timeout
                    } else {
                        SEGMENTS_TIMEOUT
                    },
                    ..usual
                };
                let within = self.needs.and_then(|needs| needs.within);
                Some(RingPlan {
                    settings,
                    wakes: within.is_some(),
                })
            }
            Path::Sockets { .. } => None,
        }
    }
}

/// When a ring that shows the segments of connections alone hands over a block that is not full.
/// What it has not shown waits, read, until it has, and has left the caches by then: of one
/// connection of 400 Mb/s, read whenever 320 KiB are there, that was most of it with 10 ms. If a
/// ring like this runs over, times are lost, and no media; it is the tester's overflow all the
/// same.
const SEGMENTS_TIMEOUT: Duration = Duration::from_millis(6);

/// How many times as large a ring of whole packets is: a usual packet takes six times the room.
const WHOLE_TIMES: usize = 4;

/// When a ring of whole packets hands over a block that is not full. What comes by it may have to
/// be acknowledged, or asked for again, some milliseconds later.
const WHOLE_TIMEOUT: Duration = Duration::from_millis(4);

const SHARED: &str = "other runs on this machine leave no ports to this one alone, and a packet ring sees what is theirs too";

/// The ports that the scenario names. One run has one range of ports, which its workers share out.
fn named_ports(scenario: &Scenario) -> Result<Option<Ports>, EngineError> {
    let mut named: Option<(&str, Ports)> = None;
    for population in &scenario.populations {
        // A receiver's ports are of another machine.
        let media = population.config.media();
        let Some(media) = media.filter(|media| media.receiver.is_none()) else {
            continue;
        };
        if let Some(address) = media.address {
            UdpSocket::bind((address, 0)).map_err(|error| EngineError::Media {
                population: population.name.clone(),
                message: format!("media cannot be received at {address}: {error}"),
            })?;
        }
        match (media.ports, named) {
            (Some(ports), Some((other, before))) if ports != before => {
                return Err(EngineError::Media {
                    population: population.name.clone(),
                    message: format!(
                        "`ports: {ports}`, and {before} of `{other}`; a run receives on one range of ports, which its \
                         populations share: name the same one"
                    ),
                });
            }
            (Some(ports), None) => named = Some((&population.name, ports)),
            _ => {}
        }
    }
    Ok(named.map(|(_, ports)| ports))
}

/// Of ports without an end as many as are needed, so that those of several workers follow on each
/// other; one worker goes on as long as there are any.
fn needed_of(named: Ports, ports: u64, workers: u32) -> Range<u16> {
    let range = named.range();
    if named.ends() || workers == 1 {
        return range;
    }
    let needed = u16::try_from(needed(ports)).unwrap_or(u16::MAX);
    range.start..range.start.saturating_add(needed).min(range.end)
}

/// So many ports for clients that need so many at a time: those that leave hold theirs a moment
/// longer, and some ports are other programs'.
fn needed(ports: u64) -> u64 {
    ports + ports / 16 + 64
}

/// So many ports for this run alone, at least; none where there are not so many.
fn claim(ports: u64) -> Result<Option<Claim>, EngineError> {
    // What a client may need is an upper bound: where that is more than there is, all is tried.
    let most = Claim::most(&DEFAULT_RANGE);
    let needed = needed(ports).min(most);
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
    match PacketRing::open(&settings(bytes, 0..=0, None, false)) {
        Ok(_) => Ok(Path::Ring(bytes)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(WhyNot::NotAllowed),
        Err(error) => Err(WhyNot::Refused(error)),
    }
}

/// Timeout of blocks if packets have to be counted `within` a time: half of it, in whole
/// milliseconds, at least 1 ms.
fn block_timeout(within: Duration) -> Duration {
    let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis((millis / 2).max(1))
}

/// A ring that keeps of each packet what the sinks need: of nearly all the header alone, unless
/// `time_codes` are looked for, which stand at the beginnings of payloads, or they need all.
pub(crate) fn settings(
    bytes: usize,
    ports: RangeInclusive<u16>,
    needs: Option<Needs>,
    time_codes: bool,
) -> RingSettings {
    let usual = RingSettings::new(Family::V4, ports);
    // A short timeout hands over blocks that are nearly empty, so there have to be more of them.
    let usual = match needs.and_then(|needs| needs.within) {
        Some(within) => RingSettings {
            block_bytes: BLOCK_BYTES_MIN,
            block_timeout: usual.block_timeout.min(block_timeout(within)),
            ..usual
        },
        None => usual,
    };
    if needs.is_some_and(|needs| needs.all) {
        return RingSettings {
            bytes: bytes.saturating_mul(WHOLE_TIMES),
            snapshot: usize::MAX,
            block_timeout: usual.block_timeout.min(WHOLE_TIMEOUT),
            ..usual
        };
    }
    RingSettings {
        bytes,
        whole_if: needs.map_or(0, |needs| needs.whole_if),
        whole_sample: needs.and_then(|needs| needs.whole_sample),
        brief: needs.filter(|_| !time_codes).map(|needs| Brief {
            unless: needs.more_if,
            bytes: needs.first,
        }),
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_segments_alone_hands_over_sooner() {
        let ring = |datagrams: bool| {
            let receive_path = ReceivePath {
                path: Path::Ring(8 << 20),
                ports: 40_000..40_100,
                _claim: None,
                hint: None,
                datagrams,
                segments: true,
                needs: None,
                time_codes: false,
            };
            receive_path
                .ring(&PortRange::new(40_000..40_100))
                .expect("it has ports")
                .settings
        };
        let (mixed, alone) = (ring(true), ring(false));
        assert!(alone.block_timeout < mixed.block_timeout);
        let timeout = mixed.block_timeout;
        assert_eq!(
            RingSettings {
                block_timeout: timeout,
                ..alone
            },
            mixed,
            "nothing else differs"
        );
    }

    #[test]
    fn ring_of_feedback_hands_over_in_time_and_holds_half_a_second() {
        let ring = |needs| settings(8 << 20, 40_000..=40_100, needs, false);
        let headers = Needs {
            all: false,
            whole_if: 0,
            ..Needs::ALL
        };
        for (needs, within, timeout) in [
            (headers, 10, 5),
            (headers, 1, 1),
            (Needs::ALL, 10, 4),
            (Needs::ALL, 1, 1),
        ] {
            let within = Some(Duration::from_millis(within));
            let ring = ring(Some(Needs { within, ..needs }));
            assert_eq!(ring.block_timeout, Duration::from_millis(timeout));
            let blocks = (ring.bytes / ring.block_bytes) as u32;
            let held = blocks * ring.block_timeout;
            let least = if timeout > 1 || needs.all { 400 } else { 100 };
            assert!(held >= Duration::from_millis(least), "{held:?}");
        }
        assert_eq!(ring(Some(headers)).block_timeout, Duration::from_millis(10));
    }
}
