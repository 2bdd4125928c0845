//! SETUP: transport and flow of a stream (RFC 2326, 10.4).

use std::net::{IpAddr, SocketAddr};

use rand::Rng;

use super::config::Transports;
use super::group_streams::{Participant, is_source_specific};
use super::pending::{DatagramDestination, PendingSetup, PlaySetup, SetupKind};
use super::session::{RtspSession, ServerSession};
use super::streams::{Carrier, PlayState, Stream};
use crate::codec::{Request, Response};
use crate::headers::{Delivery, LowerTransport, Ports, SessionHeader, Transport};
use kit::media::rtp::{FlowSettings, RtpFlow};
use session::{ChannelId, Context, Open, Output, udp_bind_address, with_port};

impl ServerSession {
    /// Handles SETUP. Returns `Ok(None)` if a pair of ports must be opened first.
    pub(super) fn setup(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Option<Response>, u16> {
        let target = self.target(request)?;
        let named = self.names_session(request)?;
        if let Some(rtsp_session) = &self.rtsp_session {
            if !named {
                return Err(454);
            }
            if rtsp_session.path != target.path {
                return Err(455);
            }
        }
        let media = match target.media {
            Some(media) => media,
            None if self.shared.clips.len() == 1 => 0,
            None => return Err(459),
        };
        let all = self.streams();
        let old = all.iter().position(|stream| stream.media == media);
        if old.is_some_and(|old| all[old].playing != PlayState::Stopped) {
            return Err(455);
        }
        let others = all.iter().filter(|stream| stream.media != media);
        let taken: Vec<u8> = others
            .filter_map(|stream| match stream.carrier {
                Carrier::Interleaved(channels) => Some([channels.media, channels.control]),
                Carrier::Udp(_) | Carrier::Group(_) => None,
            })
            .flatten()
            .collect();
        let transport = self.acceptable_transport(request, None)?;
        let (path, url) = (target.path.to_owned(), target.control_url(media));
        // Set up again: the same track with another transport.
        if let Some(old) = old
            && let Some(rtsp_session) = &mut self.rtsp_session
        {
            let stream = rtsp_session.streams.remove(old);
            stream.finish(cx, &rtsp_session.id);
        }
        match transport.lower {
            LowerTransport::Tcp => {
                let is_free = |channels: &Ports<u8>| {
                    !taken.contains(&channels.media)
                        && !taken.contains(&channels.control)
                        && channels.media != channels.control
                };
                let channels = transport.interleaved.filter(is_free);
                let channels = channels
                    .or_else(|| (0..128).map(Ports::of_stream).find(is_free))
                    .ok_or(461u16)?;
                let carrier = Carrier::Interleaved(channels);
                let granted = Transport::tcp(channels);
                Ok(Some(self.set_up(cx, media, (url, path), carrier, granted)))
            }
            LowerTransport::Udp => {
                let Some(local) = self.local.map(|local| local.ip()) else {
                    return Err(461);
                };
                let multicast = self.shared.config.multicast;
                let multicast = multicast.filter(|_| transport.cast == Some(Delivery::Multicast));
                let (to, open) = match (multicast, transport.client_port) {
                    (Some(multicast), _) => {
                        let ttl = multicast.ttl;
                        let open = Open::MulticastSender {
                            local,
                            interface: None,
                            ttl,
                        };
                        (DatagramDestination::Group, open)
                    }
                    (None, Some(ports)) => {
                        let open = Open::UdpPair {
                            local: udp_bind_address(local),
                            sink: None,
                            shared: true,
                        };
                        let destination = self.requested_destination(&transport).ok_or(461u16)?;
                        (DatagramDestination::Client(ports, destination), open)
                    }
                    (None, None) => return Err(461),
                };
                let kind = SetupKind::Play(PlaySetup { url, path, to });
                self.wait_for_ports(cx, request, media, kind, open);
                Ok(None)
            }
        }
    }

    /// Returns the first transport offered for this mode that the server accepts. `None` is PLAY.
    pub(super) fn acceptable_transport(
        &self,
        request: &Request,
        wanted: Option<&str>,
    ) -> Result<Transport, u16> {
        let offered = request.headers.get("Transport").ok_or(400u16)?;
        let mut offered = Transport::parse_all(offered).into_iter();
        let accepted = offered.find(|transport| {
            let mode = transport.mode.as_deref().filter(|mode| *mode != "PLAY");
            mode == wanted && self.accepts_transport(transport)
        });
        accepted.ok_or(461)
    }

    /// Returns whether the server accepts a transport, for playing or recording.
    fn accepts_transport(&self, transport: &Transport) -> bool {
        let multicast = transport.cast == Some(Delivery::Multicast);
        let fits = match transport.lower {
            LowerTransport::Udp if multicast => {
                // The server chooses the group, whatever destination the client requests.
                let same_ip = |local: SocketAddr, group: IpAddr| local.is_ipv4() == group.is_ipv4();
                self.shared.config.transports != Transports::Tcp
                    && self.shared.config.multicast.is_some_and(|multicast| {
                        self.local
                            .is_some_and(|local| same_ip(local, multicast.group))
                    })
            }
            LowerTransport::Tcp if multicast => false,
            LowerTransport::Udp => {
                self.shared.config.transports != Transports::Tcp
                    && self.requested_destination(transport).is_some()
                    && transport
                        .client_port
                        .is_some_and(|ports| ports.media > 0 && ports.control > 0)
            }
            LowerTransport::Tcp => self.shared.config.transports != Transports::Udp,
        };
        let plain = matches!(transport.profile.as_str(), "" | "AVP");
        fits && plain
    }

    /// Returns the media address that a client requests instead of the request's own: `Some(None)`
    /// if it requests none, `None` if the address is not allowed.
    fn requested_destination(&self, transport: &Transport) -> Option<Option<IpAddr>> {
        let Some(requested) = &transport.destination else {
            return Some(None);
        };
        let requested: IpAddr = requested.parse().ok()?;
        let own = self.remote.is_some_and(|remote| remote.ip() == requested);
        let config = &self.shared.config;
        // Media is sent from the address that received the request, so the IP versions must match.
        let same_ip = self
            .local
            .is_some_and(|local| local.is_ipv4() == requested.is_ipv4());
        (own || (same_ip && config.destinations.contains(&requested))).then_some(Some(requested))
    }

    /// Completes a SETUP after its pair of ports was opened.
    pub(super) fn finish_setup(
        &mut self,
        cx: &mut Context<'_>,
        setup: &PendingSetup,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Response {
        let channel = setup.channel;
        let (names, client, destination) = match &setup.kind {
            SetupKind::Play(PlaySetup { url, path, to }) => {
                let names = (url.clone(), path.clone());
                match *to {
                    DatagramDestination::Client(ports, destination) => {
                        (Some(names), ports, destination)
                    }
                    DatagramDestination::Group => {
                        return self.finish_group_setup(cx, channel, setup.media, names, local);
                    }
                }
            }
            SetupKind::Published(ports) => (None, *ports, None),
        };
        let at = |port| match destination.filter(|&destination| destination != remote.ip()) {
            Some(destination) => SocketAddr::new(destination, port),
            None => with_port(remote, port),
        };
        cx.out.push_back(Output::Peer {
            channel,
            media: at(client.media),
            control: at(client.control),
        });
        let mut transport = Transport::udp(client);
        transport.server_port = Some(Ports::new(local.port(), local.port().wrapping_add(1)));
        let carrier = Carrier::Udp(channel);
        let Some(names) = names else {
            return self.grant_carrier(setup.media, carrier, transport);
        };
        let source = self.local.map_or(local.ip(), |local| local.ip());
        transport.source = Some(source.to_string());
        transport.destination = destination.map(|destination| destination.to_string());
        self.set_up(cx, setup.media, names, carrier, transport)
    }

    /// Completes a SETUP of a stream that goes to a group.
    fn finish_group_setup(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        media: usize,
        names: (String, String),
        local: SocketAddr,
    ) -> Response {
        let shared = self.shared.clone();
        let listening = self.local.unwrap_or(local);
        let destination = shared.config.multicast.and_then(|multicast| {
            let groups = &shared.group_streams;
            groups.destination(&multicast, listening, &names.1, media)
        });
        let Some(destination) = destination else {
            self.note(cx, "no_groups", "all multicast groups in use".to_owned());
            cx.out.push_back(Output::Close { channel });
            // 453 is "Not Enough Bandwidth": groups stand for bandwidth here.
            return Response::new(453);
        };
        cx.out.push_back(Output::Peer {
            channel,
            media: SocketAddr::new(destination.group, destination.ports.media),
            control: SocketAddr::new(destination.group, destination.ports.control),
        });
        let mut transport = Transport::multicast();
        transport.destination = Some(destination.group.to_string());
        transport.port = Some(destination.ports);
        transport.ttl = Some(destination.ttl);
        if is_source_specific(destination.group) {
            transport.source = Some(local.ip().to_string());
        }
        self.set_up(cx, media, names, Carrier::Group(channel), transport)
    }

    /// Adds a stream with this control URL and path to the session. The first stream creates the
    /// session.
    fn set_up(
        &mut self,
        cx: &mut Context<'_>,
        media: usize,
        (url, path): (String, String),
        carrier: Carrier,
        mut transport: Transport,
    ) -> Response {
        let participant = match (carrier, self.local) {
            (Carrier::Group(_), Some(local)) => Some(Participant::new(
                self.shared.clone(),
                local,
                &path,
                media,
                self.number,
            )),
            _ => None,
        };
        let there = participant.as_ref().and_then(Participant::join);
        let flow = match there {
            Some(flow) => flow,
            None => {
                let flow = self.new_flow(media);
                let flow = cx.flows.insert(flow);
                if let Some(participant) = &participant {
                    participant.register_flow(flow);
                }
                flow
            }
        };
        if let Some(participant) = &participant {
            let topic = participant.topic().to_owned();
            cx.out.push_back(Output::Subscribe { topic });
        }
        let ssrc = cx.flows.access_as(flow, |flow: &mut RtpFlow| flow.ssrc());
        let id = self.rng.next_u64();
        let rtsp_session = self.rtsp_session.get_or_insert_with(|| RtspSession {
            id: format!("{id:016X}"),
            path,
            streams: Vec::new(),
        });
        rtsp_session.streams.push(Stream {
            media,
            url,
            flow,
            carrier,
            group: participant,
            playing: PlayState::Stopped,
            until: None,
            report_at: None,
            base_told: false,
        });
        transport.ssrc = Some(ssrc);
        let id = rtsp_session.id.clone();
        self.granted(&transport, id)
    }

    /// Returns the answer to a SETUP in the session with this identifier.
    pub(super) fn granted(&self, transport: &Transport, id: String) -> Response {
        let timeout = self.shared.config.session_timeout.as_secs();
        let session = SessionHeader {
            id,
            timeout: Some(u32::try_from(timeout).unwrap_or(u32::MAX)),
        };
        Response::new(200)
            .with("Transport", transport.to_string())
            .with("Session", session.to_string())
    }

    /// Returns a flow that sends a track from its beginning.
    fn new_flow(&mut self, media: usize) -> RtpFlow {
        let config = &self.shared.config;
        let ssrc = self.rng.next_u32();
        let (seq, timestamp) = (self.rng.next_u32() as u16, self.rng.next_u32());
        RtpFlow::new(FlowSettings {
            clip: self.shared.clips[media].clone(),
            pacing: config.pacing,
            ssrc,
            first_seq: config.first_seq.unwrap_or(seq),
            first_timestamp: config.first_timestamp.unwrap_or(timestamp),
            length: config.length,
            faults: config.faults.media.clone(),
            seed: self.rng.next_u64(),
            log: config.log_packets,
        })
    }
}
