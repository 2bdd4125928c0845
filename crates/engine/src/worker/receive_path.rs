//! Receive path of media over UDP: packet ring or sockets, and the reason for the choice.

use std::io;
use std::net::UdpSocket;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use kit::remote_receiver::{READ_NEEDS, ReceiverPorts};
use net::capability::{NetRawMissing, why_no_net_raw};
use net::ports::DEFAULT_RANGE;
use net::ring::{BLOCK_BYTES_MIN, Family, PacketRing, RingSettings, ShortCapture};
use net::{PortClaim, PortRange};
use scenario::{Description, PopulationPlan, Receive, Scenario, Tester};
use session::CaptureNeeds;

use crate::error::EngineError;
use crate::worker::RingPlan;
use crate::worker::count::workers_for;

/// Receive path and media ports of a run.
#[derive(Debug)]
pub(crate) struct ReceivePath {
    path: Path,
    ports: Range<u16>,
    /// Keeps other runs from using these ports.
    _claim: Option<PortClaim>,
    hint: Option<String>,
    /// True if media arrives in datagrams.
    datagrams: bool,
    /// True if media also arrives over TCP, whose segments a ring can show.
    segments: bool,
    /// Part of each datagram that is read; `None` if no media arrives in datagrams.
    needs: Option<CaptureNeeds>,
    /// True if the beginnings of payloads are searched for time codes.
    time_codes: bool,
}

#[derive(Clone, Copy, Debug)]
enum Path {
    /// Each client's own sockets and connections.
    Sockets,
    /// One packet ring per worker, of this size in bytes.
    Ring(usize),
}

impl ReceivePath {
    /// Chooses the receive path of the clients that `description` describes: the packet ring if it
    /// is available, unless sockets are requested.
    ///
    /// # Errors
    /// The ring is requested and is not available.
    pub(crate) fn choose(
        scenario: &Scenario,
        description: &Description,
    ) -> Result<ReceivePath, EngineError> {
        let tester = &scenario.tester;
        // For media over TCP, the ring shows when its segments arrived.
        let suits_ring = |plan: &PopulationPlan| plan.media && !plan.reads_at_once;
        let of = |plan: &PopulationPlan| match plan.udp_ports {
            0 if plan.by_sockets => 0,
            0 if !suits_ring(plan) => 0,
            0 => plan.clients_max,
            ports => ports,
        };
        let populations = &description.populations;
        let mut each = populations.iter();
        let unseen = |plan: &PopulationPlan| plan.multicast || plan.by_sockets;
        let segments = each.any(|plan| suits_ring(plan) && plan.udp_ports == 0 && !unseen(plan));
        let mut each = populations.iter();
        let udp = each.any(|plan| plan.udp_ports > 0 || unseen(plan));
        let all_unseen = populations.iter().all(unseen);
        let none_suits = populations.iter().all(|plan| !suits_ring(plan));
        let ports = populations.iter().map(of).sum();
        let named = named_ports(scenario)?;
        let claim = match named {
            Some(_) => None,
            None => claim(ports)?,
        };
        // Ports that the scenario names are assumed to belong to this run.
        let shared = claim.is_none() && named.is_none();
        let (path, hint) = match tester.receive {
            Receive::Sockets => (Path::Sockets, None),
            // A ring captures the ports of the clients. The port of a multicast group is the
            // server's choice.
            Receive::Ring if all_unseen => {
                return Err(EngineError::ReceivePath(
                    "multicast media, and the datagrams of clients that publish, can be received \
                     by sockets only"
                        .to_owned(),
                ));
            }
            Receive::Auto if all_unseen || none_suits => (Path::Sockets, None),
            Receive::Ring => match ring(tester) {
                Ok(ring) if shared => (ring, Some(SHARED.to_owned())),
                Ok(ring) => (ring, None),
                Err(why_not) => return Err(EngineError::ReceivePath(why_not.to_string())),
            },
            // A ring also receives datagrams of other programs on the same ports, and overflows
            // sooner.
            Receive::Auto if shared => (
                Path::Sockets,
                Some(format!("{SHARED}; sockets are used instead")),
            ),
            Receive::Auto => match ring(tester) {
                Ok(ring) => (ring, None),
                Err(why_not) => (Path::Sockets, Some(why_not.hint())),
            },
        };
        Ok(ReceivePath {
            path,
            ports: match named {
                Some(named) => needed_of(named, ports, workers_for(scenario, description)),
                None => claim.as_ref().map_or(DEFAULT_RANGE, PortClaim::range),
            },
            _claim: claim,
            hint,
            datagrams: udp,
            segments,
            needs: scenario
                .populations
                .iter()
                .filter_map(|population| population.config.facts().datagrams)
                .reduce(CaptureNeeds::union),
            time_codes: scenario
                .populations
                .iter()
                .any(|population| population.config.facts().time_codes),
        })
    }

    /// Chooses the receive path of `streamgauge receive`, for at most `streams` streams at `ports`,
    /// or at ports that no run on this machine uses.
    ///
    /// # Errors
    /// The ring is requested and is not available.
    pub(crate) fn for_others(
        tester: &Tester,
        ports: Option<ReceiverPorts>,
        streams: u64,
    ) -> Result<ReceivePath, EngineError> {
        let claim = match ports {
            Some(_) => None,
            None => claim(2 * streams)?,
        };
        let shared = claim.is_none() && ports.is_none();
        let path = match (tester.receive, ring(tester)) {
            (Receive::Sockets, _) => Path::Sockets,
            (Receive::Auto, _) if shared => Path::Sockets,
            (_, Ok(ring)) => ring,
            (Receive::Auto, Err(_)) => Path::Sockets,
            (Receive::Ring, Err(why_not)) => {
                return Err(EngineError::ReceivePath(why_not.to_string()));
            }
        };
        Ok(ReceivePath {
            path,
            ports: match ports {
                Some(ports) => ports.range(),
                None => claim.as_ref().map_or(DEFAULT_RANGE, PortClaim::range),
            },
            _claim: claim,
            hint: None,
            datagrams: true,
            segments: false,
            needs: Some(READ_NEEDS),
            time_codes: false,
        })
    }

    /// Media ports of all workers.
    pub(crate) fn ports(&self) -> Range<u16> {
        self.ports.clone()
    }

    /// Requirement of a faster path, if one exists and could not be chosen.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self.path {
            Path::Sockets => "sockets",
            Path::Ring(_) => "ring",
        }
    }

    /// Ring of a worker with these ports; `None` if sockets are used.
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
                let within = self.needs.and_then(|needs| needs.delay_max);
                Some(RingPlan {
                    settings,
                    wakes: within.is_some(),
                })
            }
            Path::Sockets => None,
        }
    }
}

/// Block timeout of a ring that observes TCP segments only.
///
/// Bytes that were read wait until the ring has shown their segments, and leave the CPU caches
/// meanwhile. With 10 ms this happened to most bytes of a 400 Mb/s connection that is read whenever
/// 320 KiB are available. An overflow of such a ring loses arrival times but no media; it still
/// counts as the tester's overflow.
const SEGMENTS_TIMEOUT: Duration = Duration::from_millis(6);

/// Size factor of a ring of whole packets: a typical packet takes six times the space.
const WHOLE_TIMES: usize = 4;

/// Block timeout of a ring of whole packets. Their protocol may have to send an acknowledgement or
/// a retransmission request some milliseconds later.
const WHOLE_TIMEOUT: Duration = Duration::from_millis(4);

const SHARED: &str = "other runs on this machine leave no port range for this run alone, and a packet ring also captures their packets";

/// Port range that the scenario names. A run has one range, which its workers share.
fn named_ports(scenario: &Scenario) -> Result<Option<ReceiverPorts>, EngineError> {
    let mut named: Option<(&str, ReceiverPorts)> = None;
    for population in &scenario.populations {
        // The ports of a receiver belong to another machine.
        let media = population.config.facts().media;
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
                        "`ports: {ports}` differs from {before} of `{other}`: the populations of a run share one range of \
                         ports, so name the same one"
                    ),
                });
            }
            (Some(ports), None) => named = Some((&population.name, ports)),
            _ => {}
        }
    }
    Ok(named.map(|(_, ports)| ports))
}

/// Port range of a run, out of the range that the scenario names. An open-ended range is cut to the
/// number of ports needed, so that the shares of several workers adjoin; one worker uses all of it.
fn needed_of(named: ReceiverPorts, ports: u64, workers: u32) -> Range<u16> {
    let range = named.range();
    if named.has_last() || workers == 1 {
        return range;
    }
    let needed = u16::try_from(needed(ports)).unwrap_or(u16::MAX);
    range.start..range.start.saturating_add(needed).min(range.end)
}

/// Number of ports to reserve for clients that use `ports` at a time. Clients that leave keep
/// theirs for a moment longer, and other programs hold some.
fn needed(ports: u64) -> u64 {
    ports + ports / 16 + 64
}

/// Claims at least the needed number of ports for this run. Returns `None` if they are not free.
fn claim(ports: u64) -> Result<Option<PortClaim>, EngineError> {
    // `ports` is an upper bound of the need. If it exceeds the range, the whole range is tried.
    let most = PortClaim::ports_max(&DEFAULT_RANGE);
    let needed = needed(ports).min(most);
    // Twice the number, so that a port rests before another client uses it.
    let wanted = (2 * ports).clamp(needed, most);
    let claimed = PortClaim::take(DEFAULT_RANGE, needed, wanted);
    claimed.map_err(EngineError::system("cannot claim ports"))
}

/// Reason why no packet ring is available.
#[derive(Debug, thiserror::Error)]
enum RingError {
    #[error("this process lacks CAP_NET_RAW: {}", remedy(*.0))]
    NotAllowed(NetRawMissing),
    #[error("this machine provides none: {0}")]
    Refused(io::Error),
}

impl RingError {
    /// Hint for a run that continues with sockets.
    fn hint(&self) -> String {
        let hint = "a packet ring would take a fraction of the processor time";
        match self {
            RingError::NotAllowed(missing) => format!("{hint}: {}", remedy(*missing)),
            RingError::Refused(_) => format!("{hint}, but {self}"),
        }
    }
}

/// Advice on how to get the missing capability.
fn remedy(missing: NetRawMissing) -> String {
    match missing {
        NetRawMissing::Forbidden => "start this container or service with the capability NET_RAW \
                                     (`--cap-add NET_RAW`)"
            .to_owned(),
        NetRawMissing::NoNewPrivileges => {
            "this container or service may gain no capability; start \
                                           it without `no-new-privileges` (Kubernetes: \
                                           `allowPrivilegeEscalation: true`)"
                .to_owned()
        }
        NetRawMissing::OtherNamespace => "its capability does not hold in this network; give the \
                                          container a network of its own"
            .to_owned(),
        NetRawMissing::NotGranted => {
            format!("`sudo setcap cap_net_raw+ep {}` allows it", program())
        }
    }
}

/// Path of this program as a user would write it in a command.
fn program() -> String {
    std::env::current_exe().map_or_else(
        |_| "streamgauge".to_owned(),
        |path| path.display().to_string(),
    )
}

/// Checks whether this process may open a packet ring.
fn ring(tester: &Tester) -> Result<Path, RingError> {
    let bytes = usize::try_from(tester.ring).unwrap_or(usize::MAX);
    // Any port serves to check whether a ring can be opened.
    match PacketRing::open(&settings(bytes, 0..=0, None, false)) {
        Ok(_) => Ok(Path::Ring(bytes)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(RingError::NotAllowed(why_no_net_raw()))
        }
        Err(error) => Err(RingError::Refused(error)),
    }
}

/// Checks whether a run of this process can receive by a packet ring.
///
/// # Errors
/// The reason why it cannot, and what permits it.
pub fn packet_ring_available() -> Result<(), String> {
    let ring = ring(&Tester::default());
    ring.map(drop).map_err(|why_not| why_not.to_string())
}

/// Block timeout if packets have to be counted `within` a time: half of it, in whole milliseconds,
/// at least 1 ms.
fn block_timeout(within: Duration) -> Duration {
    let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis((millis / 2).max(1))
}

/// Settings of a ring that keeps the part of each packet that the sinks need: mostly the header.
/// With `time_codes`, the beginnings of payloads are kept too; packets are kept whole if the sinks
/// need all.
pub(crate) fn settings(
    bytes: usize,
    ports: RangeInclusive<u16>,
    needs: Option<CaptureNeeds>,
    time_codes: bool,
) -> RingSettings {
    let usual = RingSettings::new(Family::V4, ports);
    // A short timeout hands over nearly empty blocks, so more and smaller blocks are needed.
    let usual = match needs.and_then(|needs| needs.delay_max) {
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
            snaplen: usize::MAX,
            block_timeout: usual.block_timeout.min(WHOLE_TIMEOUT),
            ..usual
        };
    }
    RingSettings {
        bytes,
        whole_if: needs.map_or(0, |needs| needs.whole_if),
        whole_sample: needs.and_then(|needs| needs.whole_sample),
        brief: needs.filter(|_| !time_codes).map(|needs| ShortCapture {
            unless: needs.longer_if,
            bytes: needs.prefix_bytes,
        }),
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_what_permits_a_ring() {
        for (missing, remedy) in [
            (NetRawMissing::Forbidden, "--cap-add NET_RAW"),
            (
                NetRawMissing::NoNewPrivileges,
                "without `no-new-privileges`",
            ),
            (NetRawMissing::OtherNamespace, "a network of its own"),
            (NetRawMissing::NotGranted, "sudo setcap cap_net_raw+ep /"),
        ] {
            let error = RingError::NotAllowed(missing);
            for text in [error.hint(), error.to_string()] {
                assert!(text.contains(remedy), "{text}");
            }
        }
    }

    #[test]
    fn ring_of_segments_only_has_a_shorter_timeout() {
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
    fn feedback_ring_hands_over_in_time_and_holds_enough() {
        let ring = |needs| settings(8 << 20, 40_000..=40_100, needs, false);
        let headers = CaptureNeeds {
            all: false,
            whole_if: 0,
            ..CaptureNeeds::ALL
        };
        for (needs, within, timeout) in [
            (headers, 10, 5),
            (headers, 1, 1),
            (CaptureNeeds::ALL, 10, 4),
            (CaptureNeeds::ALL, 1, 1),
        ] {
            let within = Some(Duration::from_millis(within));
            let ring = ring(Some(CaptureNeeds {
                delay_max: within,
                ..needs
            }));
            assert_eq!(ring.block_timeout, Duration::from_millis(timeout));
            let blocks = (ring.bytes / ring.block_bytes) as u32;
            let held = blocks * ring.block_timeout;
            let least = if timeout > 1 || needs.all { 400 } else { 100 };
            assert!(held >= Duration::from_millis(least), "{held:?}");
        }
        assert_eq!(ring(Some(headers)).block_timeout, Duration::from_millis(10));
    }
}
