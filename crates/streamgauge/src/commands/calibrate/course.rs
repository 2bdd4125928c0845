//! Cases of `calibrate`: a protocol, the path by which its media is received, and the network.

use protocol::calibration::Trial;
use protocol::descriptor::Transport;
use protocol::registry::{PROTOCOLS, Protocol, RTSP_PROTOCOL};

use crate::args::Way;

/// A protocol on one receive path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) protocol: &'static Protocol,
    pub(super) way: Way,
    /// True if over an emulated link, false if over the loopback interface.
    pub(super) linked: bool,
}

impl Course {
    /// Returns all cases: RTSP, whose server logs every packet, and those that protocols declare.
    pub(super) fn all() -> Vec<Course> {
        let rtsp = Way::ALL.into_iter().map(|way| Course {
            protocol: &RTSP_PROTOCOL,
            way,
            linked: false,
        });
        let declared = PROTOCOLS.iter().flat_map(|&protocol| {
            let ways: &[(Way, bool)] = match (protocol.datagrams, protocol.transport) {
                // Media of this protocol can come from the packet ring.
                (Some(_), _) => &[
                    (Way::Ring, false),
                    (Way::Sockets, false),
                    (Way::Sockets, true),
                ],
                (None, Transport::Tcp) => &[(Way::Tcp, false), (Way::Tcp, true)],
                (None, Transport::Udp) => &[(Way::Sockets, false), (Way::Sockets, true)],
            };
            ways.iter().map(move |&(way, linked)| Course {
                protocol,
                way,
                linked,
            })
        });
        let declared = declared.filter(|course| course.declared().next().is_some());
        rtsp.chain(declared).collect()
    }

    /// True if the reference server logs every packet.
    pub(super) fn logs_packets(self) -> bool {
        self.protocol.name == RTSP_PROTOCOL.name
    }

    /// Returns the trials that the protocol declares for this network.
    pub(super) fn declared(self) -> impl Iterator<Item = &'static Trial> {
        let trials = self.protocol.trials.iter();
        trials.filter(move |trial| trial.link.is_some() == self.linked)
    }

    /// Title for people.
    pub(super) fn title(self) -> String {
        let name = self.protocol.name;
        match (self.protocol.datagrams.is_some(), self.linked) {
            (true, true) => format!("{name}: {}, over a link", self.way.title()),
            (true, false) => format!("{name}: {}", self.way.title()),
            (false, false) => format!("{name}: {}", self.protocol.transport),
            (false, true) => format!("{name}: {}, over a link", self.protocol.transport),
        }
    }
}

impl Way {
    const ALL: [Way; 3] = [Way::Ring, Way::Sockets, Way::Tcp];

    /// Name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Ring => "udp_ring",
            Way::Sockets => "udp_sockets",
            Way::Tcp => "tcp",
        }
    }

    /// Title for people.
    fn title(self) -> &'static str {
        match self {
            Way::Ring => "UDP, read from packet rings",
            Way::Sockets => "UDP, read from sockets",
            Way::Tcp => "TCP, interleaved",
        }
    }

    /// Returns the `transport` of a population on this receive path.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Way::Ring | Way::Sockets => "udp",
            Way::Tcp => "tcp",
        }
    }

    /// Returns the setting of a scenario that selects this receive path.
    pub(super) fn set(self) -> Option<&'static str> {
        match self {
            Way::Ring => Some("tester.receive=ring"),
            Way::Sockets => Some("tester.receive=sockets"),
            Way::Tcp => None,
        }
    }
}
