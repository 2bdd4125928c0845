//! Requests and their answers (RFC 2326, 10 and A.2).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::Time;
use rand::Rng;

use super::casts::{Part, is_source_specific};
use super::config::Transports;
use super::sdp;
use super::session::{Conversation, Gate, ServerSession};
use super::streams::{Carrier, Playing, REPORT_EVERY, Stream};
use crate::media::rtp::{FlowSettings, RtpFlow};
use crate::rtsp::auth::Verdict;
use crate::rtsp::codec::{Headers, Method, Request, Response};
use crate::rtsp::headers::{
    Cast, Lower, NptStart, Ports, Range, RtpInfo, Session as SessionHeader, Transport,
    write_methods,
};
use crate::session::{ChannelError, ChannelId, Context, Flow, Open, Output, beside, bind_beside};

/// What the server does.
const METHODS: [Method; 8] = [
    Method::Options,
    Method::Describe,
    Method::Setup,
    Method::Play,
    Method::Pause,
    Method::GetParameter,
    Method::SetParameter,
    Method::Teardown,
];

/// A SETUP that waits for its pair of ports.
#[derive(Debug)]
pub(super) struct PendingSetup {
    request: Request,
    channel: ChannelId,
    media: usize,
    url: String,
    path: String,
    to: To,
}

/// Where datagrams of a stream go.
#[derive(Clone, Copy, Debug)]
enum To {
    /// To these ports of the client's.
    Client(Ports<u16>),
    /// To the group that the stream has.
    Group,
}

impl PendingSetup {
    pub(super) fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Gives it up.
    pub(super) fn drop_it(self, cx: &mut Context<'_>) {
        cx.out.push_back(Output::Close {
            channel: self.channel,
        });
    }
}

/// What a request's URL means.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    /// The stream's URL, without the media's part and the slash at its end.
    base: &'a str,
    /// The stream's path, beginning with a slash.
    path: &'a str,
    /// Which of the stream's media; `None` for all.
    media: Option<usize>,
}

impl<'a> Target<'a> {
    /// Takes a URL apart. A last part that looks like a media's belongs to the media, and may name one
    /// that is not there.
    fn parse(url: &'a str) -> Option<Target<'a>> {
        let host = url.find("://").map(|place| place + 3)?;
        let url = url.split('?').next().unwrap_or(url);
        let start = url[host.min(url.len())..]
            .find('/')
            .map(|place| host + place);
        let mut base = url.trim_end_matches('/');
        let mut media = None;
        if let Some(place) = base.rfind("/track")
            && start.is_some_and(|start| place >= start)
            && let Ok(number) = base[place + 6..].parse::<usize>()
        {
            media = Some(number.wrapping_sub(1));
            base = base[..place].trim_end_matches('/');
        }
        let path = match start {
            Some(start) if start < base.len() => &base[start..],
            _ => "/",
        };
        Some(Target { base, path, media })
    }

    fn control_url(&self, media: usize) -> String {
        format!("{}/{}", self.base, sdp::control(media))
    }
}

impl ServerSession {
    /// The answer to a request; `None` where it comes later.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, request: &Request) -> Option<Response> {
        if request.headers.cseq().is_none() {
            return Some(Response::new(400));
        }
        if let Some(required) = request.headers.get("Require") {
            // RFC 2326, 12.32: nothing that could be required is there.
            let mut response = Response::new(551);
            response.headers.push("Unsupported", required);
            return Some(response);
        }
        if let Some(refusal) = self.unauthorized(request) {
            return Some(refusal);
        }
        let result = match request.method {
            Method::Options => self.options(request),
            Method::Describe => self.describe(request),
            Method::Setup => match self.setup(cx, request) {
                Ok(Some(response)) => Ok(response),
                Ok(None) => return None,
                Err(status) => Err(status),
            },
            Method::Play => self.play(cx, request),
            Method::Pause => self.pause(cx, request),
            Method::GetParameter | Method::SetParameter => self.parameter(request),
            Method::Teardown => self.teardown(cx, request),
            Method::Announce | Method::Record | Method::Redirect => Err(405),
            Method::Other(_) => Err(501),
        };
        Some(result.unwrap_or_else(|status| {
            let mut response = Response::new(status);
            if status == 405 {
                response.headers.push("Allow", write_methods(&METHODS));
            }
            response
        }))
    }

    /// The refusal of a request of somebody unknown. What the server can do, everybody may know.
    fn unauthorized(&mut self, request: &Request) -> Option<Response> {
        let verifier = self.shared.verifier.as_ref()?;
        if request.method == Method::Options {
            return None;
        }
        let verdict = verifier.verify(
            request.headers.get("Authorization"),
            request.method.name(),
            &request.uri,
            &self.nonce,
        );
        if verdict == Verdict::Granted {
            return None;
        }
        let mut response = Response::new(401);
        for challenge in verifier.challenges(&self.nonce, verdict == Verdict::Stale) {
            response.headers.push("WWW-Authenticate", challenge);
        }
        Some(response)
    }

    fn target<'a>(&self, request: &'a Request) -> Result<Target<'a>, u16> {
        let target = Target::parse(&request.uri).ok_or(400u16)?;
        if let Some(streams) = self.shared.config.streams {
            let number = target.path.strip_prefix("/stream");
            let number = number.filter(|digits| !digits.starts_with(['0', '+']));
            let number: Option<u32> = number.and_then(|digits| digits.parse().ok());
            if !number.is_some_and(|number| (1..=streams).contains(&number)) {
                return Err(404);
            }
        }
        match target.media {
            Some(media) if media >= self.shared.clips.len() => Err(404),
            _ => Ok(target),
        }
    }

    /// Whether the session that a request names, if any, is the one that stands.
    fn named(&self, request: &Request) -> Result<bool, u16> {
        let Some(header) = request.headers.get("Session") else {
            return Ok(false);
        };
        let named = SessionHeader::parse(header).ok_or(454u16)?;
        match &self.conversation {
            Some(conversation) if conversation.id == named.id => Ok(true),
            _ => Err(454),
        }
    }

    /// The session that a request has to name.
    fn conversation(&mut self, request: &Request) -> Result<&mut Conversation, u16> {
        match (self.named(request)?, &mut self.conversation) {
            (true, Some(conversation)) => Ok(conversation),
            // Nothing was set up: the wrong order. Something was: it has to be named.
            (_, None) => Err(455),
            (false, Some(_)) => Err(454),
        }
    }

    fn options(&mut self, request: &Request) -> Result<Response, u16> {
        self.named(request)?;
        let mut response = Response::new(200);
        response.headers.push("Public", write_methods(&METHODS));
        Ok(response)
    }

    fn describe(&mut self, request: &Request) -> Result<Response, u16> {
        let target = self.target(request)?;
        let accepts = |accept: &str| {
            let accept = accept.to_ascii_lowercase();
            ["application/sdp", "application/*", "*/*"]
                .iter()
                .any(|kind| accept.contains(kind))
        };
        if !request.headers.get("Accept").is_none_or(accepts) {
            return Err(406);
        }
        let local = self
            .local
            .map_or(IpAddr::from([0, 0, 0, 0]), |local| local.ip());
        let mut response = Response::new(200);
        response
            .headers
            .push("Content-Base", format!("{}/", target.base));
        response.headers.push("Content-Type", "application/sdp");
        response.body = sdp::describe(&self.shared, local).into_bytes();
        Ok(response)
    }

    /// SETUP. `None` where a pair of ports has to be opened first.
    fn setup(&mut self, cx: &mut Context<'_>, request: &Request) -> Result<Option<Response>, u16> {
        let target = self.target(request)?;
        let named = self.named(request)?;
        if let Some(conversation) = &self.conversation {
            if !named {
                return Err(454);
            }
            if conversation.path != target.path {
                return Err(455);
            }
        }
        let media = match target.media {
            Some(media) => media,
            None if self.shared.clips.len() == 1 => 0,
            None => return Err(459),
        };
        let old = self.conversation.as_mut().and_then(|conversation| {
            let mut streams = conversation.streams.iter();
            streams.position(|stream| stream.media == media)
        });
        let all = self
            .conversation
            .iter()
            .flat_map(|conversation| &conversation.streams);
        if all
            .clone()
            .any(|stream| stream.media == media && stream.playing != Playing::No)
        {
            return Err(455);
        }
        let taken: Vec<u8> = all
            .filter(|stream| stream.media != media)
            .filter_map(|stream| match stream.carrier {
                Carrier::Interleaved(media, control) => Some([media, control]),
                Carrier::Udp(_) | Carrier::Group(_) => None,
            })
            .flatten()
            .collect();
        let transport = request.headers.get("Transport").ok_or(400u16)?;
        let transport = Transport::parse_all(transport)
            .into_iter()
            .find(|transport| self.carries(transport))
            .ok_or(461u16)?;
        let (path, url) = (target.path.to_owned(), target.control_url(media));
        // Set up anew: with another transport, the same media.
        if let Some(old) = old
            && let Some(conversation) = &mut self.conversation
        {
            let stream = conversation.streams.remove(old);
            stream.finish(cx, &conversation.id);
        }
        match transport.lower {
            Lower::Tcp => {
                let wanted = transport.interleaved.filter(|channels| {
                    !taken.contains(&channels.media)
                        && !taken.contains(&channels.control)
                        && channels.media != channels.control
                });
                let channels = match wanted {
                    Some(channels) => channels,
                    None => (0..=254u8)
                        .step_by(2)
                        .map(|media| Ports::new(media, media + 1))
                        .find(|pair| !taken.contains(&pair.media) && !taken.contains(&pair.control))
                        .ok_or(461u16)?,
                };
                let carrier = Carrier::Interleaved(channels.media, channels.control);
                Ok(Some(self.set_up(
                    cx,
                    media,
                    url,
                    path,
                    carrier,
                    Transport::tcp(channels),
                )))
            }
            Lower::Udp => {
                let Some(local) = self.local.map(|local| local.ip()) else {
                    return Err(461);
                };
                let multicast = self.shared.config.multicast;
                let multicast = multicast.filter(|_| transport.cast == Some(Cast::Multicast));
                let (to, open) = match (multicast, transport.client_port) {
                    (Some(multicast), _) => {
                        let ttl = multicast.ttl;
                        (To::Group, Open::MulticastSender { local, ttl })
                    }
                    (None, Some(ports)) => {
                        let open = Open::UdpPair {
                            local: bind_beside(local),
                            sink: None,
                            shared: true,
                        };
                        (To::Client(ports), open)
                    }
                    (None, None) => return Err(461),
                };
                let channel = ChannelId(self.next_channel);
                self.next_channel += 1;
                cx.out.push_back(Output::Open { channel, open });
                self.gate = Gate::Channel(PendingSetup {
                    request: request.clone(),
                    channel,
                    media,
                    url,
                    path,
                    to,
                });
                Ok(None)
            }
        }
    }

    /// Whether a transport that a client offers is one.
    fn carries(&self, transport: &Transport) -> bool {
        let plays = transport.mode.as_ref().is_none_or(|mode| mode == "PLAY");
        let multicast = transport.cast == Some(Cast::Multicast);
        let fits = match transport.lower {
            Lower::Udp if multicast => {
                // Where it goes is the server's to say, whatever the client wishes.
                let same_ip = |local: SocketAddr, group: IpAddr| local.is_ipv4() == group.is_ipv4();
                self.shared.config.transports != Transports::Tcp
                    && self.shared.config.multicast.is_some_and(|multicast| {
                        self.local
                            .is_some_and(|local| same_ip(local, multicast.group))
                    })
            }
            Lower::Tcp if multicast => false,
            Lower::Udp => {
                self.shared.config.transports != Transports::Tcp
                    && transport
                        .client_port
                        .is_some_and(|ports| ports.media > 0 && ports.control > 0)
            }
            Lower::Tcp => self.shared.config.transports != Transports::Udp,
        };
        let plain = matches!(transport.profile.as_str(), "" | "AVP");
        plays && fits && plain
    }

    /// A SETUP goes on, now that its pair of ports is there, or cannot be had.
    pub(super) fn finish_setup(
        &mut self,
        cx: &mut Context<'_>,
        setup: PendingSetup,
        opened: Result<SocketAddr, ChannelError>,
    ) {
        let (local, remote) = match (opened, self.remote) {
            (Ok(local), Some(remote)) => (local, remote),
            (Ok(_), None) => unreachable!("an accepted connection has another end"),
            (Err(error), _) => {
                self.note(cx, "no_ports", format!("no pair of UDP ports: {error:?}"));
                let response = Response::new(503);
                return self.respond(cx, &setup.request, response);
            }
        };
        let client = match setup.to {
            To::Client(ports) => ports,
            To::Group => return self.finish_group_setup(cx, setup, local),
        };
        let request = setup.request;
        let at = |port| beside(remote, port);
        cx.out.push_back(Output::Peer {
            channel: setup.channel,
            media: at(client.media),
            control: at(client.control),
        });
        let mut transport = Transport::udp(client);
        transport.server_port = Some(Ports::new(local.port(), local.port().wrapping_add(1)));
        let source = self.local.map_or(local.ip(), |local| local.ip());
        transport.source = Some(source.to_string());
        let carrier = Carrier::Udp(setup.channel);
        let response = self.set_up(cx, setup.media, setup.url, setup.path, carrier, transport);
        self.respond(cx, &request, response);
    }

    /// The same for a stream that goes to a group.
    fn finish_group_setup(&mut self, cx: &mut Context<'_>, setup: PendingSetup, local: SocketAddr) {
        let shared = self.shared.clone();
        let listening = self.local.unwrap_or(local);
        let place = shared.config.multicast.and_then(|multicast| {
            shared
                .casts
                .place(&multicast, listening, &setup.path, setup.media)
        });
        let Some(place) = place else {
            self.note(cx, "no_groups", "no multicast group is left".to_owned());
            cx.out.push_back(Output::Close {
                channel: setup.channel,
            });
            // Not enough bandwidth, which is what groups stand for.
            return self.respond(cx, &setup.request, Response::new(453));
        };
        cx.out.push_back(Output::Peer {
            channel: setup.channel,
            media: SocketAddr::new(place.group, place.ports.media),
            control: SocketAddr::new(place.group, place.ports.control),
        });
        let mut transport = Transport::multicast();
        transport.destination = Some(place.group.to_string());
        transport.port = Some(place.ports);
        transport.ttl = Some(place.ttl);
        if is_source_specific(place.group) {
            transport.source = Some(local.ip().to_string());
        }
        let carrier = Carrier::Group(setup.channel);
        let response = self.set_up(cx, setup.media, setup.url, setup.path, carrier, transport);
        self.respond(cx, &setup.request, response);
    }

    /// Adds a stream to the session, which begins with the first.
    fn set_up(
        &mut self,
        cx: &mut Context<'_>,
        media: usize,
        url: String,
        path: String,
        carrier: Carrier,
        mut transport: Transport,
    ) -> Response {
        let shared = self.shared.clone();
        let config = &shared.config;
        let cast = match (carrier, self.local) {
            (Carrier::Group(_), Some(local)) => {
                Some(Part::new(shared.clone(), local, &path, media, self.number))
            }
            _ => None,
        };
        let there = cast.as_ref().and_then(Part::join);
        let flow = match there {
            Some(flow) => flow,
            None => {
                let flow = self.new_flow(media);
                let flow = cx.flows.insert(Flow::Rtp(Box::new(flow)));
                if let Some(part) = &cast {
                    part.begin(flow);
                }
                flow
            }
        };
        if let Some(part) = &cast {
            let topic = part.topic().to_owned();
            cx.out.push_back(Output::Listen { topic });
        }
        let ssrc = cx.flows.with(flow, |flow| flow.ssrc());
        let id = self.rng.next_u64();
        let conversation = self.conversation.get_or_insert_with(|| Conversation {
            id: format!("{id:016X}"),
            path,
            streams: Vec::new(),
        });
        conversation.streams.push(Stream {
            media,
            url,
            flow,
            carrier,
            cast,
            playing: Playing::No,
            report_at: None,
            base_told: false,
        });
        transport.ssrc = Some(ssrc);
        let session = SessionHeader {
            id: conversation.id.clone(),
            timeout: Some(u32::try_from(config.session_timeout.as_secs()).unwrap_or(u32::MAX)),
        };
        let mut response = Response::new(200);
        response.headers.push("Transport", transport.to_string());
        response.headers.push("Session", session.to_string());
        response
    }

    /// What sends a media, from its beginning.
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

    /// Which of the session's streams a request is about.
    fn selected(&mut self, request: &Request) -> Result<Vec<usize>, u16> {
        let target = self.target(request)?;
        let conversation = self.conversation(request)?;
        if conversation.path != target.path {
            return Err(404);
        }
        let selected: Vec<usize> = (0..conversation.streams.len())
            .filter(|&index| {
                let media = conversation.streams[index].media;
                target.media.is_none_or(|wanted| wanted == media)
            })
            .collect();
        if selected.is_empty() {
            return Err(455);
        }
        Ok(selected)
    }

    fn play(&mut self, cx: &mut Context<'_>, request: &Request) -> Result<Response, u16> {
        let selected = self.selected(request)?;
        let shared = self.shared.clone();
        let now = cx.now;
        match request.headers.get("Range").map(Range::parse) {
            None => {}
            Some(Some(Range::Npt { start, .. })) => {
                let after_end = matches!((start, shared.config.length),
                    (Some(NptStart::At(start)), Some(length)) if start >= length);
                if after_end {
                    return Err(457);
                }
            }
            Some(Some(_)) => return Err(501),
            Some(None) => return Err(400),
        }
        let conversation = self.conversation(request)?;
        let id = conversation.id.clone();
        if selected
            .iter()
            .all(|&index| conversation.streams[index].playing == Playing::Ended)
        {
            return Err(457);
        }
        let mut infos = Vec::new();
        let mut position = Duration::MAX;
        let mut begun = Vec::new();
        for index in selected {
            let stream = &mut conversation.streams[index];
            if stream.cast.as_ref().is_some_and(Part::has_ended) {
                stream.playing = Playing::Ended;
            }
            if stream.playing == Playing::No {
                // What others play already is sent already.
                let starts = stream.cast.as_ref().is_none_or(Part::play);
                let ((seq, rtptime), at) = cx.flows.with(stream.flow, |flow| {
                    let begins = (flow.next_position(now), flow.position());
                    flow.start(now);
                    begins
                });
                infos.push(RtpInfo {
                    url: stream.url.clone(),
                    seq: Some(seq),
                    rtptime: Some(rtptime),
                });
                position = position.min(at);
                stream.playing = Playing::Yes;
                stream.base_told |= shared.config.rtp_info;
                if !starts {
                    continue;
                }
                stream.report_at = Some(now + REPORT_EVERY);
                let (channel, framing) = stream.carrier.path();
                begun.push((
                    stream.carrier,
                    Output::StartFlow {
                        flow: stream.flow,
                        channel,
                        framing,
                    },
                ));
            }
        }
        let mut headers = Headers::new();
        headers.push("Session", id);
        if !infos.is_empty() {
            let range = match sdp::range(&shared) {
                Range::Npt { end: Some(end), .. } => Range::Npt {
                    start: Some(NptStart::At(position)),
                    end: Some(end),
                },
                live => live,
            };
            headers.push("Range", range.to_string());
            if shared.config.rtp_info {
                let infos: Vec<String> = infos.iter().map(RtpInfo::to_string).collect();
                headers.push("RTP-Info", infos.join(","));
            }
            self.begin(now, &begun);
            self.after.extend(begun.into_iter().map(|(_, start)| start));
        }
        let mut response = Response::new(200);
        response.headers = headers;
        Ok(response)
    }

    /// The first play sets the clocks of what is done wrong later.
    fn begin(&mut self, now: Time, begun: &[(Carrier, Output)]) {
        let faults = &self.shared.config.faults.control;
        if !self.played
            && let Some(after) = faults.cut_after
        {
            self.cut_at = Some(now + after);
        }
        let interleaved =
            |(carrier, _): &(Carrier, Output)| matches!(carrier, Carrier::Interleaved(..));
        if faults.garbage > 0.0 && begun.iter().any(interleaved) {
            self.garbage_at = Some(now + Duration::from_secs(1));
        }
        self.played = true;
    }

    fn pause(&mut self, cx: &mut Context<'_>, request: &Request) -> Result<Response, u16> {
        let selected = self.selected(request)?;
        let conversation = self.conversation(request)?;
        let mut response = Response::new(200);
        response.headers.push("Session", conversation.id.clone());
        let mut paused = false;
        for index in selected {
            let stream = &mut conversation.streams[index];
            if stream.playing == Playing::Yes {
                paused = true;
                stream.playing = Playing::No;
                stream.report_at = None;
                if stream
                    .cast
                    .as_ref()
                    .is_none_or(|part| part.pause(cx, stream.flow))
                {
                    cx.flows.with(stream.flow, RtpFlow::pause);
                    cx.out.push_back(Output::StopFlow { flow: stream.flow });
                }
            }
        }
        if paused { Ok(response) } else { Err(455) }
    }

    /// GET_PARAMETER and SET_PARAMETER without a body are signs of life; there is no parameter.
    fn parameter(&mut self, request: &Request) -> Result<Response, u16> {
        let named = self.named(request)?;
        if request.body.iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Err(451);
        }
        let mut response = Response::new(200);
        if let Some(conversation) = self.conversation.as_ref().filter(|_| named) {
            response.headers.push("Session", conversation.id.clone());
        }
        Ok(response)
    }

    fn teardown(&mut self, cx: &mut Context<'_>, request: &Request) -> Result<Response, u16> {
        let mut selected = self.selected(request)?;
        let conversation = self.conversation(request)?;
        let id = conversation.id.clone();
        selected.reverse();
        for index in selected {
            conversation.streams.remove(index).finish(cx, &id);
        }
        if conversation.streams.is_empty() {
            self.end_conversation(cx);
            self.played = false;
        }
        let mut response = Response::new(200);
        response.headers.push("Session", id);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = |url| Target::parse(url).unwrap();
        let streams = [
            ("rtsp://h:1/a", "rtsp://h:1/a", "/a", None),
            ("rtsp://h/a/b/", "rtsp://h/a/b", "/a/b", None),
            ("rtsp://h/a/track2", "rtsp://h/a", "/a", Some(1)),
            ("rtsp://h/a/?x=/track1", "rtsp://h/a", "/a", None),
            ("rtsp://h/track1", "rtsp://h", "/", Some(0)),
            ("rtsp://h/", "rtsp://h", "/", None),
            ("rtsp://h", "rtsp://h", "/", None),
            ("rtsp://track1", "rtsp://track1", "/", None),
            (
                "rtsp://h/trackless",
                "rtsp://h/trackless",
                "/trackless",
                None,
            ),
        ];
        for (url, base, path, media) in streams {
            assert_eq!(target(url), Target { base, path, media }, "{url}");
        }
        assert_eq!(Target::parse("*"), None);
        assert_eq!(Target::parse("/a"), None);
        assert_eq!(target("rtsp://h/a").control_url(0), "rtsp://h/a/track1");
    }
}
