//! The way from the connection to media: each request, and the next step after its answer.

use std::net::{IpAddr, SocketAddr};

use measure::Time;

use super::media::Stream;
use super::multicast::MulticastDescription;
use super::request::Pending;
use super::{Client, MAX_REDIRECTS, Phase};
use crate::codec::{Method, Response};
use crate::config;
use crate::failure::Failure;
use crate::headers::{
    Delivery, LowerTransport, Ports, Range, RtpInfo, SessionHeader as SessionId, Transport,
    parse_methods,
};
use crate::url;
use kit::auth::Authenticator;
use kit::media::media_description;
use kit::media::rtp::{ReceiverConfig, RtpReceiver};
use kit::media::sdp::{Description, MediaKind};
use kit::remote_receiver::messages::ClientMessage;
use session::{
    ChannelId, Context, Open, Outcome, Output, Port, SinkId, udp_bind_address, with_port,
};

impl Client {
    pub(super) fn ask_options(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Options;
        let url = self.url.as_str().to_owned();
        self.send_request(cx, Method::Options, url, Vec::new());
    }

    fn ask_describe(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Describe;
        let url = self.url.as_str().to_owned();
        let accept = ("Accept", "application/sdp".to_owned());
        self.send_request(cx, Method::Describe, url, vec![accept]);
    }

    /// Sets up the stream with this index. Sends PLAY after the last one.
    pub(super) fn begin_setup(&mut self, cx: &mut Context<'_>, index: usize) {
        if index == self.streams.len() {
            return self.ask_play(cx);
        }
        self.phase = Phase::Setup(index);
        match self.config.transport {
            config::Transport::Tcp | config::Transport::Http | config::Transport::Multicast => {
                self.ask_setup(cx, index)
            }
            config::Transport::Udp if self.remote.link.is_some() => {
                // Otherwise SETUP follows when the ports of the receiver are open.
                if self.streams[index].local_port != 0 {
                    self.ask_setup(cx, index);
                }
            }
            config::Transport::Udp => {
                let own = udp_bind_address(self.own_address());
                let local = self.destination().unwrap_or(own);
                let sink = Some(self.streams[index].sink);
                self.streams[index].channel = Some(self.open_ports(cx, local, sink));
            }
        }
    }

    /// Opens a pair of UDP ports, whose media goes to `sink`.
    pub(super) fn open_ports(
        &mut self,
        cx: &mut Context<'_>,
        local: IpAddr,
        sink: Option<SinkId>,
    ) -> ChannelId {
        let channel = self.new_channel();
        cx.out.push_back(Output::Open {
            channel,
            open: Open::UdpPair {
                local,
                sink,
                shared: false,
            },
        });
        channel
    }

    pub(super) fn ask_setup(&mut self, cx: &mut Context<'_>, index: usize) {
        let destination = self.destination();
        let stream = &mut self.streams[index];
        let transport = match self.config.transport {
            config::Transport::Tcp | config::Transport::Http => {
                // At most 32 streams of a description are used.
                let channels = Ports::of_stream(index);
                stream.interleaved = Some(channels);
                Transport::tcp(channels)
            }
            config::Transport::Udp => {
                let port = stream.local_port;
                Transport {
                    destination: destination.map(|address| address.to_string()),
                    ..Transport::udp(Ports::new(port, port.saturating_add(1)))
                }
            }
            config::Transport::Multicast => Transport::multicast(),
        };
        let url = stream.url.clone();
        let header = ("Transport", transport.to_string());
        self.send_request(cx, Method::Setup, url, vec![header]);
    }

    fn ask_play(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Play;
        self.count_group_packets(cx);
        let url = self.aggregate.clone();
        let headers = self.first_play_headers();
        self.send_request(cx, Method::Play, url, headers);
    }

    /// Handles a final answer that no further authorization can change.
    pub(super) fn on_final_answer(
        &mut self,
        cx: &mut Context<'_>,
        pending: &Pending,
        response: Response,
        at: Time,
        refused: &str,
    ) {
        if self.phase == Phase::TearingDown {
            if pending.method == Method::Teardown && !self.finish_receiver(cx) {
                self.finish(cx);
            }
            return;
        }
        if pending.keep_alive {
            return self.keep_alive_answered(cx, pending, &response, refused);
        }
        if self.phase == Phase::Playing {
            return self.action_answered(cx, pending, &response, at, refused);
        }
        let tolerated = pending.method == Method::Options
            && (matches!(response.status, 400..=499) || response.status == 501);
        let early = matches!(
            self.phase,
            Phase::Options | Phase::Describe | Phase::Announce
        );
        match response.status {
            200..=299 => {}
            301..=303 | 305 | 307 | 308 if early || self.may_set_up_elsewhere() => {
                return self.redirect(cx, pending, &response);
            }
            _ if tolerated => {}
            status => {
                let detail = format!("{}{refused}", self.describe_answer(pending, &response));
                return match self.refuses_destination(pending, status) {
                    true => self.fail(cx, Failure::DestinationRefused, detail),
                    false => self.fail(cx, Failure::from_status(status), detail),
                };
            }
        }
        if early
            && self.conversation.session.is_none()
            && let Some(session) = response.headers.get("Session")
        {
            self.conversation.session = SessionId::parse(session);
            self.conversation.session_is_early = self.conversation.session.is_some();
        }
        match pending.method {
            Method::Options => {
                self.conversation.supports_get_parameter = response
                    .headers
                    .all("Public")
                    .flat_map(parse_methods)
                    .any(|method| method == Method::GetParameter);
                match self.publishes() {
                    true => self.ask_announce(cx),
                    false => self.ask_describe(cx),
                }
            }
            Method::Announce => self.on_announce_answer(cx),
            Method::Record => self.on_record_answer(cx, at),
            Method::Describe => self.on_describe_answer(cx, pending, &response),
            Method::Setup => self.on_setup_answer(cx, pending, &response),
            Method::Play => self.on_play_answer(cx, &response, at),
            _ => {}
        }
    }

    /// Returns whether the streams can be set up again at another URL: only for a client that
    /// plays, receives its media itself, and has not started its actions.
    fn may_set_up_elsewhere(&self) -> bool {
        matches!(self.phase, Phase::Setup(_) | Phase::Play)
            && !self.publishes()
            && self.remote.link.is_none()
            && (self.timeline.is_none() || self.phase != Phase::Play)
    }

    /// Follows a redirect (RFC 2326, 11.3).
    fn redirect(&mut self, cx: &mut Context<'_>, pending: &Pending, response: &Response) {
        if self.conversation.redirects == MAX_REDIRECTS {
            let description = self.describe_answer(pending, response);
            return self.fail(cx, Failure::TooManyRedirects, description);
        }
        let Some(location) = response.headers.get("Location") else {
            return self.reject(cx, Failure::BadRedirect, "no Location", pending, response);
        };
        match self.url.redirect(location) {
            Err(error) => self.reject(cx, Failure::BadRedirect, error, pending, response),
            Ok(url) => {
                let reached = self.conversation.connection.remote();
                let reached = reached.map(|remote| remote.ip());
                let follow = self.config.follow;
                if let Err(why) = follow.check(self.given_url.host(), reached, url.host()) {
                    return self.reject(cx, Failure::RedirectRefused, why, pending, response);
                }
                self.conversation.redirects += 1;
                let seed = rand::Rng::next_u64(&mut self.random);
                self.conversation.auth = Authenticator::new(url.credentials().cloned(), seed);
                self.aggregate = url.as_str().to_owned();
                self.url = url;
                self.conversation.pending.clear();
                self.drop_streams(cx);
                self.close_connection(cx);
                self.connect(cx);
            }
        }
    }

    fn on_describe_answer(&mut self, cx: &mut Context<'_>, pending: &Pending, response: &Response) {
        let headers = &response.headers;
        self.base = url::control_base(
            headers.get("Content-Base"),
            headers.get("Content-Location"),
            &self.url,
        );
        let described = match Description::parse(&response.body) {
            Ok(description) => description,
            Err(error) => {
                return self.reject(cx, Failure::MalformedSdp, error, pending, response);
            }
        };
        let all = described.medias.len();
        let description = match self.describe_only {
            true => described,
            false => described.retain_receivable(),
        };
        if description.medias.is_empty() {
            let wrong = format!(
                "none of the {} streams in the description is RTP sent to a client",
                all + description.non_rtp_count
            );
            return self.reject(cx, Failure::NoStreams, wrong, pending, response);
        }
        if self.describe_only {
            let reported = Box::new(media_description::describe(&description));
            cx.out.push_back(Output::Described(reported));
            self.ending = Some((Outcome::Completed, cx.now));
            return self.finish(cx);
        }
        self.aggregate = url::resolve_control(&self.base, description.control.as_deref());
        self.playing_time = description.length();
        for media in &description.medias {
            let receiver = RtpReceiver::new(&ReceiverConfig {
                clock_rate: media.clock_rate(),
                payload_types: media.payload_types(),
                playout_buffer: self.config.playout_buffer.0,
            });
            let receiver = match self.wall_clock {
                Some(wall_clock) if media.is_h264() => receiver.with_time_codes(wall_clock),
                _ if media.kind == MediaKind::Audio => receiver.with_single_packets(),
                _ => receiver,
            };
            let receiver = match super::zap::video_codec(media) {
                Some(codec) if self.config.zap.is_some() => receiver.with_picture(codec),
                _ => receiver,
            };
            let receiver = match self.config.transport {
                config::Transport::Tcp | config::Transport::Http => {
                    receiver.over_reliable_transport()
                }
                config::Transport::Udp | config::Transport::Multicast => receiver,
            };
            let sink = cx.sinks.insert(receiver);
            self.streams.push(Stream {
                kind: media.kind,
                url: url::resolve_control(&self.base, media.control.as_deref()),
                control: media.control.clone().unwrap_or_default(),
                sink,
                channel: None,
                local_port: 0,
                interleaved: None,
                control_port: 0,
                // A remote receiver sends its own reports.
                wants_reports: self.config.receiver_reports
                    && !media.refuses_receiver_reports()
                    && self.remote.link.is_none(),
                report_due: None,
                bye_at: None,
                multicast_description: MulticastDescription::new(media),
                group: None,
            });
        }
        self.order_receiver_ports(cx, &description);
        self.begin_setup(cx, 0);
    }

    fn on_setup_answer(&mut self, cx: &mut Context<'_>, pending: &Pending, response: &Response) {
        let Phase::Setup(index) = self.phase else {
            return;
        };
        let session = response.headers.get("Session").and_then(SessionId::parse);
        let is_early = std::mem::take(&mut self.conversation.session_is_early);
        if self.conversation.session.is_none() && session.is_none() {
            let failure = Failure::MalformedResponse;
            return self.reject(cx, failure, "no Session", pending, response);
        }
        // If a server opens a session for each stream, PLAY is sent in the first one.
        if self.conversation.session.is_none() || is_early {
            self.conversation.session = session.or(self.conversation.session.take());
        }
        if self.publishes() {
            return self.on_record_setup_answer(cx, index, pending, response);
        }
        let unsupported = Failure::UnsupportedTransportAnswer;
        let stated = response.headers.get("Transport");
        let answer = match stated.map(|stated| Transport::parse(stated).ok_or(stated)) {
            None => Transport::default(),
            Some(Ok(answer)) => answer,
            Some(Err(stated)) => {
                let wrong = format!("Transport `{stated}`");
                return self.reject(cx, unsupported, wrong, pending, response);
            }
        };
        let wants_multicast = self.config.transport == config::Transport::Multicast;
        let other = (answer.cast == Some(Delivery::Multicast) && !wants_multicast)
            || match self.config.transport {
                config::Transport::Multicast => {
                    answer.cast == Some(Delivery::Unicast)
                        || answer.lower == LowerTransport::Tcp
                        || answer.interleaved.is_some()
                }
                config::Transport::Udp => {
                    answer.lower == LowerTransport::Tcp || answer.interleaved.is_some()
                }
                config::Transport::Tcp | config::Transport::Http => {
                    stated.is_some()
                        && answer.lower == LowerTransport::Udp
                        && answer.interleaved.is_none()
                }
            };
        if other {
            let wrong = format!("asked for {:?}, answered `{answer}`", self.config.transport);
            return self.reject(cx, unsupported, wrong, pending, response);
        }
        match self.config.transport {
            config::Transport::Udp => {
                if let Err(wrong) = self.confirm_destination(&answer) {
                    return self.reject(cx, Failure::DestinationChanged, wrong, pending, response);
                }
                if let Err(wrong) = self.set_peer(cx, index, &answer) {
                    return self.reject(cx, Failure::SourceRefused, wrong, pending, response);
                }
            }
            config::Transport::Multicast => {
                if let Err(wrong) = self.join(cx, index, &answer) {
                    self.reject(cx, unsupported, wrong, pending, response);
                }
                return;
            }
            config::Transport::Tcp | config::Transport::Http => {
                if let Some(channels) = answer.interleaved {
                    self.streams[index].interleaved = Some(channels);
                }
            }
        }
        self.begin_setup(cx, index + 1);
    }

    /// Sets the address that the stream's packets come from: the source that the server states, or
    /// else the server's own address. Ports that the server does not state are 0: only the address
    /// is known.
    ///
    /// # Errors
    /// The source is another host, to which nothing may be sent.
    fn set_peer(
        &mut self,
        cx: &mut Context<'_>,
        index: usize,
        answer: &Transport,
    ) -> Result<(), String> {
        let server = self.conversation.connection.remote();
        let source = answer.source_address();
        if let (Some(source), Some(server)) = (source, server)
            && source != server.ip()
            && !self.config.follow.allows_other_addresses()
        {
            return Err(format!(
                "the server names {source} as `source`, but its address is {}: reports would be sent to that source, which only `follow: any` allows",
                server.ip()
            ));
        }
        let address = match (source, server) {
            (Some(source), Some(server)) if source != server.ip() => SocketAddr::new(source, 0),
            (Some(source), None) => SocketAddr::new(source, 0),
            (_, Some(server)) => server,
            (None, None) => return Ok(()),
        };
        let ports = answer.server_port.unwrap_or(Ports::new(0, 0));
        let media = with_port(address, ports.media);
        let control = with_port(address, ports.control);
        self.streams[index].control_port = ports.control;
        let peer = |stream| ClientMessage::Peer {
            stream,
            media,
            control,
        };
        if self.tell_receiver(cx, index, peer) {
            return Ok(());
        }
        let Some(channel) = self.streams[index].channel else {
            return Ok(());
        };
        cx.out.push_back(Output::Peer {
            channel,
            media,
            control,
        });
        if self.config.punch_holes && ports.media != 0 && ports.control != 0 {
            // An RTP packet without payload, and an empty receiver report. Both are harmless to a
            // server.
            let mut rtp = vec![0x80, 0, 0, 0, 0, 0, 0, 0];
            rtp.extend_from_slice(&self.ssrc.to_be_bytes());
            let mut rtcp = Vec::new();
            kit::media::rtcp::write_receiver_report(&mut rtcp, self.ssrc, &[]);
            for (port, bytes) in [(Port::Media, rtp), (Port::Control, rtcp)] {
                cx.out.push_back(Output::Send {
                    channel,
                    port,
                    bytes,
                });
            }
        }
        Ok(())
    }

    fn on_play_answer(&mut self, cx: &mut Context<'_>, response: &Response, at: Time) {
        self.phase = Phase::Playing;
        self.starts.play_answered = Some(at);
        self.begin_timeline(cx, response, at);
        if self.timeline.is_none()
            && let Some(range) = response.headers.get("Range").and_then(Range::parse)
        {
            self.playing_time = range.length().or(self.playing_time);
        }
        for (index, seq, rtptime) in self.match_rtp_infos(response) {
            let Some(seq) = seq else { continue };
            let stream = &self.streams[index];
            let rtptime = rtptime.filter(|_| stream.has_packet_timestamps());
            let base = |stream| ClientMessage::Base {
                stream,
                sequence: seq,
                rtptime,
            };
            if self.tell_receiver(cx, index, base) {
                continue;
            }
            let stream = &self.streams[index];
            let receiver = stream.receiver(cx.sinks);
            match stream.group {
                Some(_) => receiver.hint_base(seq),
                None => receiver.set_base(seq, rtptime, cx.recorder),
            }
        }
        self.plan_keep_alive(at);
        self.plan_reports(cx.now);
        self.next_check = Some(cx.now);
    }

    /// Matches the entries of RTP-Info to streams. Returns the index of each stream, with its
    /// sequence number and timestamp. If the URLs are ambiguous or unknown and there are as many
    /// entries as streams, the order decides.
    pub(super) fn match_rtp_infos(
        &self,
        response: &Response,
    ) -> Vec<(usize, Option<u16>, Option<u32>)> {
        let infos = response.headers.all("RTP-Info");
        let infos: Vec<RtpInfo> = infos.flat_map(RtpInfo::parse_all).collect();
        let of_url = |info: &RtpInfo| {
            let absolute = url::resolve_control(&self.base, Some(&info.url));
            self.streams.iter().position(|stream| {
                !info.url.is_empty()
                    && (url::same_stream(&absolute, &stream.url) || info.url == stream.control)
            })
        };
        let matched: Vec<Option<usize>> = infos.iter().map(of_url).collect();
        let all_known = matched.iter().all(Option::is_some);
        // Two entries cannot both be right about one URL.
        let twice = |index: &Option<usize>| matched.iter().filter(|m| *m == index).count() > 1;
        let by_order =
            (!all_known || matched.iter().any(twice)) && infos.len() == self.streams.len();
        let entries = infos.iter().zip(&matched).enumerate();
        entries
            .filter_map(|(order, (info, index))| {
                let index = if by_order { Some(order) } else { *index };
                Some((index?, info.seq, info.rtptime))
            })
            .collect()
    }
}
