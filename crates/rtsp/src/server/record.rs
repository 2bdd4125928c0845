//! Streams published by clients (RFC 2326, 10.3 and 10.11), and their relay to players.
//!
//! A publisher's packets go into a store that all sessions share ([`super::published`]). A message
//! on the stream's topic makes its players send what is new. Packets are relayed unchanged.

use rand::Rng;

use super::pending::{RelayParticipant, Role, SetupKind};
use super::published::{Announcement, RelayedPacket, StreamAddress};
use super::requests::{METHODS, Target};
use super::session::ServerSession;
use super::streams::Carrier;
use crate::codec::{Method, Request, Response};
use crate::headers::{LowerTransport, Ports, Range, SessionHeader, Transport, write_methods};
use crate::url;
use session::{ChannelId, Context, Open, Outcome, Output, Port, udp_bind_address};

/// Message on a stream's topic when it is no longer published.
const GONE: &str = "gone";

impl RelayParticipant {
    /// Returns the track of an interleaved channel, and whether the channel is for RTCP.
    fn track_of_channel(&self, channel: u8) -> Option<(usize, bool)> {
        self.carriers.iter().find_map(|&(media, carrier)| {
            let Carrier::Interleaved(channels) = carrier else {
                return None;
            };
            let control = channel == channels.control;
            (control || channel == channels.media).then_some((media, control))
        })
    }

    fn track_of_ports(&self, channel: ChannelId) -> Option<usize> {
        let mut carriers = self.carriers.iter();
        carriers
            .find(|(_, carrier)| *carrier == Carrier::Udp(channel))
            .map(|&(media, _)| media)
    }
}

impl ServerSession {
    /// Handles a request about a published stream, or about one to be published. Returns `None` for
    /// any other stream.
    pub(super) fn handle_published(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Option<Result<Option<Response>, u16>> {
        let target = Target::parse(&request.uri)?;
        let address = (self.local?, target.path.to_owned());
        if self.relay.is_some() {
            return Some(self.handle_relay_request(cx, request));
        }
        match request.method {
            Method::Announce => Some(self.announce(request, address, target.base).map(Some)),
            Method::Record => Some(Err(455)),
            Method::Describe if self.rtsp_session.is_none() => {
                let announced = self.shared.published.announced(&address)?;
                Some(Ok(Some(self.describe_published(&announced, &target))))
            }
            Method::Setup if self.rtsp_session.is_none() => {
                let announced = self.shared.published.announced(&address)?;
                let topic = self.shared.published.topic(&address)?;
                self.relay = Some(self.new_participant(Role::Player, address, announced, topic));
                let result = self.setup_published(cx, request);
                if result.is_err() {
                    self.relay = None;
                }
                Some(result)
            }
            _ => None,
        }
    }

    fn new_participant(
        &mut self,
        role: Role,
        address: StreamAddress,
        announced: Announcement,
        topic: String,
    ) -> RelayParticipant {
        RelayParticipant {
            role,
            id: format!("{:016X}", self.rng.next_u64()),
            address,
            announced,
            carriers: Vec::new(),
            running: false,
            next: 0,
            topic,
        }
    }

    fn announce(
        &mut self,
        request: &Request,
        address: StreamAddress,
        base: &str,
    ) -> Result<Response, u16> {
        if self.rtsp_session.is_some() {
            return Err(455);
        }
        let is_sdp = |kind: &str| kind.to_ascii_lowercase().starts_with("application/sdp");
        if !request.headers.get("Content-Type").is_none_or(is_sdp) {
            return Err(415);
        }
        let announced = Announcement::parse(&request.body, base).ok_or(400u16)?;
        if !self.shared.published.announce(&address, announced.clone()) {
            return Err(403);
        }
        let topic = self.shared.published.topic(&address).unwrap_or_default();
        self.relay = Some(self.new_participant(Role::Publisher, address, announced, topic));
        // Packets are relayed from now on, so they must be complete.
        self.decoder.keep_frames_whole();
        Ok(Response::new(200))
    }

    fn describe_published(&self, announced: &Announcement, target: &Target<'_>) -> Response {
        let local = self.local.map(|local| local.ip());
        let family = if local.is_some_and(|local| local.is_ipv6()) {
            "IP6 ::"
        } else {
            "IP4 0.0.0.0"
        };
        target.describe(format!(
            "v=0\r\no=- 1 1 IN {family}\r\ns=streamgauge\r\nc=IN {family}\r\nt=0 0\r\na=control:*\r\n\
             a=range:npt=now-\r\n{}",
            announced.media_sections
        ))
    }

    /// Handles a request in the session of a published stream.
    fn handle_relay_request(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Option<Response>, u16> {
        let Some(relay) = &mut self.relay else {
            return Err(455);
        };
        if let Some(session) = request.headers.get("Session") {
            let named = SessionHeader::parse(session);
            if named.is_none_or(|named| named.id != relay.id) {
                return Err(454);
            }
        }
        let mut response = Response::new(200);
        response.headers.push("Session", relay.id.clone());
        match (&request.method, relay.role) {
            (Method::Setup, _) => return self.setup_published(cx, request),
            (Method::Record, Role::Publisher) => {
                // All announced tracks must be set up.
                if relay.running || relay.carriers.len() < relay.announced.urls.len() {
                    return Err(455);
                }
                relay.running = true;
                self.shared.published.record(&relay.address);
            }
            (Method::Play, Role::Player) => {
                if relay.running || relay.carriers.is_empty() {
                    return Err(455);
                }
                let Some(next) = self.shared.published.next_number(&relay.address) else {
                    return Err(404);
                };
                relay.next = next;
                relay.running = true;
                response.headers.push("Range", Range::FROM_NOW.to_string());
                let topic = relay.topic.clone();
                self.after_answer.push(Output::Subscribe { topic });
            }
            (Method::Teardown, _) => self.leave_published(cx),
            (Method::GetParameter | Method::SetParameter, _) => {}
            (Method::Options, _) => response.headers.push("Public", write_methods(&METHODS)),
            (Method::Describe, Role::Player) => {
                let target = Target::parse(&request.uri).ok_or(400u16)?;
                let announced = relay.announced.clone();
                return Ok(Some(self.describe_published(&announced, &target)));
            }
            _ => return Err(455),
        }
        Ok(Some(response))
    }

    /// Handles SETUP. Returns `Ok(None)` if a pair of ports must be opened first.
    fn setup_published(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Option<Response>, u16> {
        let Some(relay) = self.relay.as_ref().filter(|relay| !relay.running) else {
            return Err(455);
        };
        let media = match relay.role {
            Role::Publisher => {
                let mut urls = relay.announced.urls.iter();
                urls.position(|own| url::same_stream(own, &request.uri))
            }
            Role::Player => Target::parse(&request.uri).and_then(|target| target.media),
        };
        let media = media
            .filter(|&media| media < relay.announced.urls.len())
            .ok_or(404u16)?;
        if relay.carriers.iter().any(|&(other, _)| other == media) {
            return Err(455);
        }
        let wanted = (relay.role == Role::Publisher).then_some("RECORD");
        let transport = self.acceptable_transport(request, wanted)?;
        match (transport.lower, transport.client_port, self.local) {
            (LowerTransport::Tcp, ..) => {
                let channels = transport.interleaved.unwrap_or(Ports::of_stream(media));
                if relay.track_of_channel(channels.media).is_some()
                    || relay.track_of_channel(channels.control).is_some()
                    || channels.media == channels.control
                {
                    return Err(461);
                }
                let granted = Transport::tcp(channels);
                let carrier = Carrier::Interleaved(channels);
                Ok(Some(self.grant_carrier(media, carrier, granted)))
            }
            (LowerTransport::Udp, Some(client), Some(local)) => {
                let open = Open::UdpPair {
                    local: udp_bind_address(local.ip()),
                    sink: None,
                    shared: false,
                };
                self.wait_for_ports(cx, request, media, SetupKind::Published(client), open);
                Ok(None)
            }
            (LowerTransport::Udp, ..) => Err(461),
        }
    }

    /// Adds the carrier of a track. Returns the answer to its SETUP.
    pub(super) fn grant_carrier(
        &mut self,
        media: usize,
        carrier: Carrier,
        mut granted: Transport,
    ) -> Response {
        let Some(relay) = &mut self.relay else {
            return Response::new(455);
        };
        relay.carriers.push((media, carrier));
        if relay.role == Role::Publisher {
            granted.mode = Some("RECORD".to_owned());
        }
        let id = relay.id.clone();
        self.granted(&granted, id)
    }

    /// Returns whether media is accepted from this session.
    pub(super) fn accepts_media(&self) -> bool {
        let relay = self.relay.as_ref();
        relay.is_some_and(|relay| relay.role == Role::Publisher && relay.running)
    }

    /// Relays interleaved frames of the publisher.
    pub(super) fn relay_frames(&mut self, cx: &mut Context<'_>, frames: Vec<(u8, Vec<u8>)>) {
        let Some(relay) = self.relay.as_ref().filter(|_| self.accepts_media()) else {
            return;
        };
        let packets = frames.into_iter().filter_map(|(channel, bytes)| {
            let (media, control) = relay.track_of_channel(channel)?;
            Some(RelayedPacket {
                media,
                control,
                bytes: bytes.into(),
            })
        });
        self.shared.published.push(&relay.address, packets);
        self.notify_players(cx);
    }

    /// Relays a datagram of the publisher.
    pub(super) fn relay_datagram(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        port: Port,
        bytes: &[u8],
    ) {
        let Some(relay) = self.relay.as_ref().filter(|_| self.accepts_media()) else {
            return;
        };
        if let Some(media) = relay.track_of_ports(channel) {
            let packet = RelayedPacket {
                media,
                control: port == Port::Control,
                bytes: bytes.into(),
            };
            self.shared.published.push(&relay.address, [packet]);
            self.notify_players(cx);
        }
    }

    fn notify_players(&self, cx: &mut Context<'_>) {
        if let Some(relay) = &self.relay {
            cx.out.push_back(Output::Publish {
                topic: relay.topic.clone(),
                message: "more".into(),
            });
        }
    }

    /// Handles a message about the stream that this session plays: there are new packets, or it has
    /// ended. Returns whether the message was about that stream.
    pub(super) fn on_relay_message(
        &mut self,
        cx: &mut Context<'_>,
        topic: &str,
        message: &str,
    ) -> bool {
        let Some(relay) = &mut self.relay else {
            return false;
        };
        if relay.role != Role::Player || relay.topic != topic {
            return false;
        }
        if !relay.running {
            return true;
        }
        // Another client may publish the stream by now, with other packet numbers.
        let packets = match message {
            GONE => None,
            _ => self
                .shared
                .published
                .packets_from(&relay.address, relay.next),
        };
        let Some((packets, gone)) = packets else {
            self.leave_published(cx);
            self.end(cx, Outcome::Completed);
            return true;
        };
        relay.next += gone + packets.len() as u64;
        for packet in packets {
            let mut carriers = relay.carriers.iter();
            if let Some((_, carrier)) = carriers.find(|(media, _)| *media == packet.media) {
                let port = match packet.control {
                    true => Port::Control,
                    false => Port::Media,
                };
                cx.out.push_back(carrier.send(port, &packet.bytes));
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
    pub(super) fn leave_published(&mut self, cx: &mut Context<'_>) {
        let Some(relay) = self.relay.take() else {
            return;
        };
        for (_, carrier) in &relay.carriers {
            if let Carrier::Udp(channel) = carrier {
                cx.out.push_back(Output::Close { channel: *channel });
            }
        }
        if relay.role == Role::Publisher {
            self.shared.published.remove(&relay.address);
            cx.out.push_back(Output::Publish {
                topic: relay.topic,
                message: GONE.into(),
            });
        }
    }
}
