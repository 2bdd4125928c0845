//! Streams of a multicast group, to which the server sends one copy for all receivers.
//!
//! Group and ports come from the answer to SETUP, or else from the description. The client joins
//! right after that answer, so that it is a member before PLAY. Packets count from PLAY on, because
//! the stream may already run for others.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Client;
use crate::headers::{Ports, Transport};
use kit::media::rtcp::ReportInterval;
use kit::media::sdp::MediaSection;
use session::{Context, Interface, Open, Output};

/// Default TTL of reports: they stay on the link.
const TTL_DEFAULT: u8 = 1;

/// Share of a stream's bandwidth that RTCP may use (RFC 3550, 6.2), and the bandwidth of a stream
/// that states none.
const RTCP_SHARE: f64 = 0.05;
const BANDWIDTH_DEFAULT: f64 = 1e6;

/// Multicast parameters of the description.
#[derive(Clone, Debug, Default)]
pub(super) struct MulticastDescription {
    group: Option<IpAddr>,
    port: u16,
    ttl: Option<u8>,
    sources: Vec<IpAddr>,
    /// In bit/s.
    bandwidth: Option<u64>,
}

impl MulticastDescription {
    pub(super) fn new(media: &MediaSection) -> MulticastDescription {
        MulticastDescription {
            group: media.connection.filter(IpAddr::is_multicast),
            port: media.port,
            ttl: media.ttl,
            sources: media.sources.clone(),
            bandwidth: media.bandwidth,
        }
    }
}

/// Multicast group of a stream.
#[derive(Clone, Debug)]
pub(super) struct Group {
    address: IpAddr,
    ports: Ports<u16>,
    sources: Vec<IpAddr>,
    ttl: u8,
    /// Bandwidth of all RTCP in the group, in bytes per second.
    rtcp_bandwidth: f64,
    /// Other receivers that report.
    pub(super) others: OtherReceivers,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = SocketAddr::new(self.address, self.ports.media);
        write!(f, "{group} and {}", self.ports.control)?;
        for (at, source) in self.sources.iter().enumerate() {
            write!(f, "{}{source}", if at == 0 { " from " } else { ", " })?;
        }
        Ok(())
    }
}

impl Group {
    /// Determines the group from an answer to SETUP and the description. Returns the defect if
    /// there is none.
    fn new(answer: &Transport, described: &MulticastDescription) -> Result<Group, String> {
        let address = match &answer.destination {
            Some(stated) => stated.parse().ok(),
            None => described.group,
        };
        let address = match address {
            Some(address) if address.is_multicast() => address,
            _ => {
                return Err(match &answer.destination {
                    Some(stated) => format!("`{stated}` is not a multicast group"),
                    None => "no group was named".to_owned(),
                });
            }
        };
        let from_description = Ports::new(described.port, described.port.saturating_add(1));
        let ports = answer.port.unwrap_or(from_description);
        if ports.media == 0 || ports.control == 0 || ports.media == ports.control {
            return Err("no ports of the group were named".to_owned());
        }
        let of_family = |source: &IpAddr| source.is_ipv4() == address.is_ipv4();
        let sources = match answer.source_address().filter(of_family) {
            Some(source) => vec![source],
            None => described
                .sources
                .iter()
                .copied()
                .filter(of_family)
                .collect(),
        };
        let bandwidth = described
            .bandwidth
            .map_or(BANDWIDTH_DEFAULT, |bits| bits as f64);
        Ok(Group {
            address,
            ports,
            sources,
            ttl: answer.ttl.or(described.ttl).unwrap_or(TTL_DEFAULT),
            rtcp_bandwidth: bandwidth / 8.0 * RTCP_SHARE,
            others: OtherReceivers::default(),
        })
    }

    /// Returns whether receivers may send reports to the group. They may not if it is
    /// source-specific (RFC 5760 sends reports elsewhere), or if it is a group that controls the
    /// link (RFC 5771, 4), whatever the server says.
    fn takes_reports(&self) -> bool {
        let runs_the_link = match self.address {
            IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
            // Interface-local and link-local groups (RFC 4291, 2.7): all nodes, all routers and
            // others.
            IpAddr::V6(group) => matches!(group.segments()[0], 0xff01 | 0xff02),
        };
        self.sources.is_empty() && !runs_the_link
    }

    /// Returns the interval of reports, depending on the number of other receivers.
    pub(super) fn interval(&mut self, first: bool) -> ReportInterval {
        ReportInterval {
            // This client and the sender.
            members: self.others.count_for_report().saturating_add(2),
            bandwidth: self.rtcp_bandwidth,
            ..ReportInterval::point_to_point(false, self.rtcp_bandwidth, first)
        }
    }
}

/// Other receivers that report in a group: those heard within the last five to ten of our own
/// reports (RFC 3550, 6.2.1 and 6.3.5).
#[derive(Clone, Debug, Default)]
pub(super) struct OtherReceivers {
    current: HashSet<u32>,
    previous: HashSet<u32>,
    /// Number of our own reports since the sets were swapped.
    reports: u32,
}

/// Maximum number of receivers in a set. A larger group counts as at least this many.
const OTHERS_MAX: usize = 4096;

/// A receiver that is silent during this number of our own reports has left.
const REPORTS_MISSED: u32 = 5;

impl OtherReceivers {
    /// Records a report of another receiver.
    pub(super) fn add(&mut self, ssrc: u32) {
        self.previous.remove(&ssrc);
        if self.current.len() < OTHERS_MAX {
            self.current.insert(ssrc);
        }
    }

    fn count_for_report(&mut self) -> u32 {
        let count = self.current.len() + self.previous.len();
        self.reports += 1;
        if self.reports >= REPORTS_MISSED {
            self.reports = 0;
            self.previous = std::mem::take(&mut self.current);
        }
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl Client {
    /// Joins the group of a stream after the answer to SETUP.
    ///
    /// # Errors
    /// The answer and the description name no usable group.
    pub(super) fn join(
        &mut self,
        cx: &mut Context<'_>,
        index: usize,
        answer: &Transport,
    ) -> Result<(), String> {
        let group = Group::new(answer, &self.streams[index].multicast_description);
        let group =
            group.map_err(|wrong| format!("asked for multicast, answered `{answer}`: {wrong}"))?;
        let interface = match (&self.config.interface, self.conversation.connection.ends) {
            (Some(name), _) => Interface::Name(name.clone()),
            (None, Some((local, _))) => Interface::Address(local.ip()),
            (None, None) => Interface::Address(unspecified(group.address)),
        };
        let channel = self.new_channel();
        let stream = &mut self.streams[index];
        stream.channel = Some(channel);
        stream.control_port = match group.takes_reports() {
            true => group.ports.control,
            false => 0,
        };
        cx.out.push_back(Output::Open {
            channel,
            open: Open::Multicast {
                group: group.address,
                port: group.ports.media,
                control: group.ports.control,
                sources: group.sources.clone(),
                interface,
                ttl: group.ttl,
                sink: Some(stream.sink),
            },
        });
        stream.group = Some(Box::new(group));
        Ok(())
    }

    /// Lets packets of the groups count from now on, right before PLAY is sent.
    pub(super) fn count_group_packets(&mut self, cx: &mut Context<'_>) {
        for stream in &self.streams {
            let (Some(channel), Some(group)) = (stream.channel, &stream.group) else {
                continue;
            };
            let source = match group.sources[..] {
                [source] => source,
                // Any sender that the membership admits.
                _ => unspecified(group.address),
            };
            cx.out.push_back(Output::Peer {
                channel,
                media: SocketAddr::new(source, 0),
                control: SocketAddr::new(group.address, group.ports.control),
            });
        }
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
