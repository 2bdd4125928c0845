//! Cases of `calibrate`: a protocol, the path by which its media is received, and the network.

use kit::calibration::Trial;
use kit::descriptor::Transport;
use protocols::{PROTOCOLS, Protocol};

use crate::args::ReceivePath;

/// Name of the protocol whose reference server logs every packet.
const LOGS_PACKETS: &str = "rtsp";

/// Returns the protocol whose reference server logs every packet.
///
/// # Panics
/// If the program was built without it. Only cases of this protocol need its server.
pub(super) fn packet_logger() -> &'static Protocol {
    kit::registry::find(LOGS_PACKETS).expect("a case of this protocol runs")
}

/// A protocol on one receive path.
#[derive(Clone, Copy, Debug)]
pub(super) struct CalibrationCase {
    pub(super) protocol: &'static Protocol,
    pub(super) way: ReceivePath,
    /// True if over an emulated link, false if over the loopback interface.
    pub(super) over_link: bool,
}

impl CalibrationCase {
    /// Returns all cases: RTSP, whose server logs every packet, and those that protocols declare.
    pub(super) fn all() -> Vec<CalibrationCase> {
        let logged = kit::registry::find(LOGS_PACKETS)
            .into_iter()
            .flat_map(|protocol| {
                ReceivePath::ALL
                    .into_iter()
                    .map(move |way| CalibrationCase {
                        protocol,
                        way,
                        over_link: false,
                    })
            });
        let declared = PROTOCOLS.iter().flat_map(|&protocol| {
            let ways: &[(ReceivePath, bool)] = match (protocol.datagrams, protocol.transport) {
                // Media of this protocol can come from the packet ring.
                (Some(_), _) => &[
                    (ReceivePath::Ring, false),
                    (ReceivePath::Sockets, false),
                    (ReceivePath::Sockets, true),
                ],
                (None, Transport::Tcp) => &[(ReceivePath::Tcp, false), (ReceivePath::Tcp, true)],
                (None, Transport::Udp) => {
                    &[(ReceivePath::Sockets, false), (ReceivePath::Sockets, true)]
                }
            };
            ways.iter().map(move |&(way, linked)| CalibrationCase {
                protocol,
                way,
                over_link: linked,
            })
        });
        let declared = declared.filter(|course| course.declared().next().is_some());
        logged.chain(declared).collect()
    }

    /// True if the reference server logs every packet.
    pub(super) fn logs_packets(self) -> bool {
        self.protocol.name == LOGS_PACKETS
    }

    /// Returns the trials that the protocol declares for this network.
    pub(super) fn declared(self) -> impl Iterator<Item = &'static Trial> {
        let trials = self.protocol.trials.iter();
        trials.filter(move |trial| trial.link.is_some() == self.over_link)
    }

    /// Title for people.
    pub(super) fn title(self) -> String {
        let name = self.protocol.name;
        match (self.protocol.datagrams.is_some(), self.over_link) {
            (true, true) => format!("{name}: {}, over a link", self.way.title()),
            (true, false) => format!("{name}: {}", self.way.title()),
            (false, false) => format!("{name}: {}", self.protocol.transport),
            (false, true) => format!("{name}: {}, over a link", self.protocol.transport),
        }
    }
}

impl ReceivePath {
    const ALL: [ReceivePath; 3] = [ReceivePath::Ring, ReceivePath::Sockets, ReceivePath::Tcp];

    /// Name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            ReceivePath::Ring => "udp_ring",
            ReceivePath::Sockets => "udp_sockets",
            ReceivePath::Tcp => "tcp",
        }
    }

    /// Title for people.
    fn title(self) -> &'static str {
        match self {
            ReceivePath::Ring => "UDP, read from packet rings",
            ReceivePath::Sockets => "UDP, read from sockets",
            ReceivePath::Tcp => "TCP, interleaved",
        }
    }

    /// Returns the `transport` of a population on this receive path.
    pub(super) fn transport(self) -> &'static str {
        match self {
            ReceivePath::Ring | ReceivePath::Sockets => "udp",
            ReceivePath::Tcp => "tcp",
        }
    }

    /// Returns the setting of a scenario that selects this receive path.
    pub(super) fn scenario_setting(self) -> Option<&'static str> {
        match self {
            ReceivePath::Ring => Some("tester.receive=ring"),
            ReceivePath::Sockets => Some("tester.receive=sockets"),
            ReceivePath::Tcp => None,
        }
    }
}
