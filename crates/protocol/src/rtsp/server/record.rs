//! Streams published by clients (RFC 2326, 10.3 and 10.11), and their relay to players.
//!
//! A publisher's packets go into a store that all sessions share ([`super::published`]). A message
//! on the stream's topic makes its players send what is new. Packets are relayed unchanged.

use std::net::SocketAddr;

use rand::Rng;

use super::pending::{Carrier, Part, PendingSetup, Published, Role};
use super::published::{Announced, Place, Relayed};
use super::requests::{METHODS, Target};
use super::session::{Gate, ServerSession};
use super::streams::CONTROL;
use crate::rtsp::codec::{Method, Request, Response};
use crate::rtsp::headers::{
    Lower, NptStart, Ports, Range, Session as SessionHeader, Transport, write_methods,
};
use crate::rtsp::url;
use crate::session::{
    ChannelError, ChannelId, Context, Open, Outcome, Output, Port, beside, bind_beside,
};

/// Message on a stream's topic when it is no longer published.
const GONE: &str = "gone";

impl Part {
    /// Returns the track of an interleaved channel, and whether the channel is for RTCP.
    fn of_frame(&self, channel: u8) -> Option<(usize, bool)> {
        self.carriers.iter().find_map(|&(media, carrier)| {
            let Carrier::Interleaved(channels) = carrier else {
                return None;
            };
            let control = channel == channels.control;
            (control || channel == channels.media).then_some((media, control))
        })
    }

    fn of_channel(&self, channel: ChannelId) -> Option<usize> {
        let mut carriers = self.carriers.iter();
        carriers
            .find(|(_, carrier)| *carrier == Carrier::Udp(channel))
            .map(|&(media, _)| media)
    }
}

impl ServerSession {
    /// Handles a request about a published stream, or about one to be published. Returns `None` for
    /// any other stream.
    pub(super) fn of_published(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Option<Result<Option<Response>, u16>> {
        let target = Target::parse(&request.uri)?;
        let place = (self.local?, target.path.to_owned());
        if self.part.is_some() {
            return Some(self.of_part(cx, request));
        }
        match request.method {
            Method::Announce => Some(self.announce(request, place, target.base).map(Some)),
            Method::Record => Some(Err(455)),
            Method::Describe if self.conversation.is_none() => {
                let announced = self.shared.published.announced(&place)?;
                Some(Ok(Some(self.describe_published(&announced, target.base))))
            }
            Method::Setup if self.conversation.is_none() => {
                let announced = self.shared.published.announced(&place)?;
                let topic = self.shared.published.topic(&place)?;
                self.part = Some(self.new_part(Role::Player, place, announced, topic));
                let result = self.set_up_part(cx, request);
                if result.is_err() {
                    self.part = None;
                }
                Some(result)
            }
            _ => None,
        }
    }

    fn new_part(&mut self, role: Role, place: Place, announced: Announced, topic: String) -> Part {
        Part {
            role,
            id: format!("{:016X}", self.rng.next_u64()),
            place,
            announced,
            carriers: Vec::new(),
            running: false,
            next: 0,
            topic,
        }
    }

    fn announce(&mut self, request: &Request, place: Place, base: &str) -> Result<Response, u16> {
        if self.conversation.is_some() {
            return Err(455);
        }
        let is_sdp = |kind: &str| kind.to_ascii_lowercase().starts_with("application/sdp");
        if !request.headers.get("Content-Type").is_none_or(is_sdp) {
            return Err(415);
        }
        let announced = Announced::parse(&request.body, base).ok_or(400u16)?;
        if !self.shared.published.announce(&place, announced.clone()) {
            return Err(403);
        }
        let topic = self.shared.published.topic(&place).unwrap_or_default();
        self.part = Some(self.new_part(Role::Publisher, place, announced, topic));
        // Packets are relayed from now on, so they must be complete.
        self.decoder.keep_frames_whole();
        Ok(Response::new(200))
    }

    fn describe_published(&self, announced: &Announced, base: &str) -> Response {
        let local = self.local.map(|local| local.ip());
        let family = if local.is_some_and(|local| local.is_ipv6()) {
            "IP6 ::"
        } else {
            "IP4 0.0.0.0"
        };
        let mut response = Response::new(200);
        response.headers.push("Content-Base", format!("{base}/"));
        response.headers.push("Content-Type", "application/sdp");
        response.body = format!(
            "v=0\r\no=- 1 1 IN {family}\r\ns=streamgauge\r\nc=IN {family}\r\nt=0 0\r\na=control:*\r\n\
             a=range:npt=now-\r\n{}",
            announced.medias
        )
        .into_bytes();
        response
    }

    /// Handles a request in the session of a published stream.
    fn of_part(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Option<Response>, u16> {
        let Some(part) = &mut self.part else {
            return Err(455);
        };
        if let Some(session) = request.headers.get("Session") {
            let named = SessionHeader::parse(session);
            if named.is_none_or(|named| named.id != part.id) {
                return Err(454);
            }
        }
        let mut response = Response::new(200);
        response.headers.push("Session", part.id.clone());
        match (&request.method, part.role) {
            (Method::Setup, _) => return self.set_up_part(cx, request),
            (Method::Record, Role::Publisher) => {
                // All announced tracks must be set up.
                if part.running || part.carriers.len() < part.announced.urls.len() {
                    return Err(455);
                }
                part.running = true;
                self.shared.published.record(&part.place);
            }
            (Method::Play, Role::Player) => {
                if part.running || part.carriers.is_empty() {
                    return Err(455);
                }
                let Some(next) = self.shared.published.next(&part.place) else {
                    return Err(404);
                };
                part.next = next;
                part.running = true;
                let range = Range::Npt {
                    start: Some(NptStart::Now),
                    end: None,
                };
                response.headers.push("Range", range.to_string());
                let topic = part.topic.clone();
                self.after.push(Output::Listen { topic });
            }
            (Method::Teardown, _) => self.end_part(cx),
            (Method::GetParameter | Method::SetParameter, _) => {}
            (Method::Options, _) => response.headers.push("Public", write_methods(&METHODS)),
            (Method::Describe, Role::Player) => {
                let target = Target::parse(&request.uri).ok_or(400u16)?;
                let announced = part.announced.clone();
                return Ok(Some(self.describe_published(&announced, target.base)));
            }
            _ => return Err(455),
        }
        Ok(Some(response))
    }

    /// Handles SETUP. Returns `Ok(None)` if a pair of ports must be opened first.
    fn set_up_part(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Option<Response>, u16> {
        let Some(part) = &self.part else {
            return Err(455);
        };
        if part.running {
            return Err(455);
        }
        let media = match part.role {
            Role::Publisher => {
                let mut urls = part.announced.urls.iter();
                urls.position(|own| url::same(own, &request.uri))
            }
            Role::Player => Target::parse(&request.uri).and_then(|target| target.media),
        };
        let media = media
            .filter(|&media| media < part.announced.urls.len())
            .ok_or(404u16)?;
        if part.carriers.iter().any(|&(other, _)| other == media) {
            return Err(455);
        }
        let role = part.role;
        let wanted = match role {
            Role::Publisher => Some("RECORD"),
            Role::Player => None,
        };
        let fits = |transport: &Transport| {
            let mode = transport.mode.as_deref().filter(|mode| *mode != "PLAY");
            mode == wanted && self.carries_media(transport)
        };
        let transport = request.headers.get("Transport").ok_or(400u16)?;
        let transport = Transport::parse_all(transport)
            .into_iter()
            .find(fits)
            .ok_or(461u16)?;
        match (transport.lower, transport.client_port, self.local) {
            (Lower::Tcp, ..) => {
                let first = (2 * media) as u8;
                let channels = transport
                    .interleaved
                    .unwrap_or(Ports::new(first, first + 1));
                if part.of_frame(channels.media).is_some()
                    || part.of_frame(channels.control).is_some()
                    || channels.media == channels.control
                {
                    return Err(461);
                }
                let granted = Transport::tcp(channels);
                Ok(Some(self.carry(
                    media,
                    Carrier::Interleaved(channels),
                    granted,
                    role,
                )))
            }
            (Lower::Udp, Some(client), Some(local)) => {
                let channel = ChannelId(self.next_channel);
                self.next_channel += 1;
                cx.out.push_back(Output::Open {
                    channel,
                    open: Open::UdpPair {
                        local: bind_beside(local.ip()),
                        sink: None,
                        shared: false,
                    },
                });
                self.gate = Gate::Part(PendingSetup {
                    request: request.clone(),
                    channel,
                    media,
                    rest: Published { client, role },
                });
                Ok(None)
            }
            (Lower::Udp, ..) => Err(461),
        }
    }

    /// Completes a SETUP after its pair of ports was opened or failed to open.
    pub(super) fn finish_part_setup(
        &mut self,
        cx: &mut Context<'_>,
        setup: PendingSetup<Published>,
        opened: Result<SocketAddr, ChannelError>,
    ) {
        let response = match (opened, self.remote) {
            (Ok(local), Some(remote)) => {
                cx.out.push_back(Output::Peer {
                    channel: setup.channel,
                    media: beside(remote, setup.rest.client.media),
                    control: beside(remote, setup.rest.client.control),
                });
                let mut granted = Transport::udp(setup.rest.client);
                granted.server_port = Some(Ports::new(local.port(), local.port().wrapping_add(1)));
                self.carry(
                    setup.media,
                    Carrier::Udp(setup.channel),
                    granted,
                    setup.rest.role,
                )
            }
            (Ok(_), None) => unreachable!("an accepted connection has another end"),
            (Err(error), _) => {
                self.note(cx, "no_ports", format!("cannot open UDP ports: {error:?}"));
                Response::new(503)
            }
        };
        self.respond(cx, &setup.request, response);
    }

    fn carry(
        &mut self,
        media: usize,
        carrier: Carrier,
        mut granted: Transport,
        role: Role,
    ) -> Response {
        let timeout = self.shared.config.session_timeout.as_secs();
        let Some(part) = &mut self.part else {
            return Response::new(455);
        };
        part.carriers.push((media, carrier));
        if role == Role::Publisher {
            granted.mode = Some("RECORD".to_owned());
        }
        let session = SessionHeader {
            id: part.id.clone(),
            timeout: Some(u32::try_from(timeout).unwrap_or(u32::MAX)),
        };
        let mut response = Response::new(200);
        response.headers.push("Transport", granted.to_string());
        response.headers.push("Session", session.to_string());
        response
    }

    /// Returns whether media is accepted from this session.
    pub(super) fn takes_in(&self) -> bool {
        let part = self.part.as_ref();
        part.is_some_and(|part| part.role == Role::Publisher && part.running)
    }

    /// Relays interleaved frames of the publisher.
    pub(super) fn frames(&mut self, cx: &mut Context<'_>, frames: Vec<(u8, Vec<u8>)>) {
        let Some(part) = self.part.as_ref().filter(|_| self.takes_in()) else {
            return;
        };
        let packets = frames.into_iter().filter_map(|(channel, bytes)| {
            let (media, control) = part.of_frame(channel)?;
            Some(Relayed {
                media,
                control,
                bytes: bytes.into(),
            })
        });
        self.shared.published.push(&part.place, packets);
        self.tell_players(cx);
    }

    /// Relays a datagram of the publisher.
    pub(super) fn datagram(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        port: Port,
        bytes: &[u8],
    ) {
        let Some(part) = self.part.as_ref().filter(|_| self.takes_in()) else {
            return;
        };
        if let Some(media) = part.of_channel(channel) {
            let packet = Relayed {
                media,
                control: port == Port::Control,
                bytes: bytes.into(),
            };
            self.shared.published.push(&part.place, [packet]);
            self.tell_players(cx);
        }
    }

    fn tell_players(&self, cx: &mut Context<'_>) {
        if let Some(part) = &self.part {
            cx.out.push_back(Output::Tell {
                topic: part.topic.clone(),
                message: "more".into(),
            });
        }
    }

    /// Handles a message about the stream that this session plays: there are new packets, or it has
    /// ended. Returns whether the message was about that stream.
    pub(super) fn told_of_part(
        &mut self,
        cx: &mut Context<'_>,
        topic: &str,
        message: &str,
    ) -> bool {
        let Some(part) = &mut self.part else {
            return false;
        };
        if part.role != Role::Player || part.topic != topic {
            return false;
        }
        if !part.running {
            return true;
        }
        // Another client may publish the stream by now, with other packet numbers.
        let packets = match message {
            GONE => None,
            _ => self.shared.published.from(&part.place, part.next),
        };
        let Some((packets, gone)) = packets else {
            self.end_part(cx);
            self.end(cx, Outcome::Completed);
            return true;
        };
        part.next += gone + packets.len() as u64;
        for packet in packets {
            let carrier = part
                .carriers
                .iter()
                .find(|(media, _)| *media == packet.media);
            match carrier {
                Some((_, Carrier::Udp(channel))) => cx.out.push_back(Output::Send {
                    channel: *channel,
                    port: if packet.control {
                        Port::Control
                    } else {
                        Port::Media
                    },
                    bytes: packet.bytes.to_vec(),
                }),
                Some((_, Carrier::Interleaved(channels))) => {
                    let number = if packet.control {
                        channels.control
                    } else {
                        channels.media
                    };
                    let Ok(length) = u16::try_from(packet.bytes.len()) else {
                        continue;
                    };
                    let mut frame = Vec::with_capacity(4 + packet.bytes.len());
                    frame.extend_from_slice(&[b'$', number]);
                    frame.extend_from_slice(&length.to_be_bytes());
                    frame.extend_from_slice(&packet.bytes);
                    cx.out.push_back(Output::Send {
                        channel: CONTROL,
                        port: Port::Media,
                        bytes: frame,
                    });
                }
                None => {}
            }
        }
        if gone > 0 {
            self.note(
                cx,
                "relay_behind",
                format!("{gone} packets of a stream were dropped before being relayed"),
            );
        }
        true
    }

    /// Ends the participation in a published stream. Without its publisher, the stream ends.
    pub(super) fn end_part(&mut self, cx: &mut Context<'_>) {
        let Some(part) = self.part.take() else {
            return;
        };
        for (_, carrier) in &part.carriers {
            if let Carrier::Udp(channel) = carrier {
                cx.out.push_back(Output::Close { channel: *channel });
            }
        }
        if part.role == Role::Publisher {
            self.shared.published.end(&part.place);
            cx.out.push_back(Output::Tell {
                topic: part.topic,
                message: GONE.into(),
            });
        }
    }
}
