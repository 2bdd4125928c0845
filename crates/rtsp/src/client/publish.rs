//! A client that publishes. It announces its media (RFC 2326, 10.3), sets up each stream for
//! recording (12.39), sends RECORD (10.11), and then sends media until it is stopped. Connection,
//! authentication, keep-alives and end are the same as for a client that plays.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use measure::Time;
use rand::Rng;

use super::request::Pending;
use super::{Client, Phase};
use crate::codec::{Method, Response};
use crate::config;
use crate::describe;
use crate::failure::Failure;
use crate::headers::{LowerTransport, Ports, Range, Transport};
use crate::metrics as m;
use crate::url;
use kit::media::rtcp::{self, Packet, ReportBlock};
use kit::media::rtp::{Faults, FlowSettings, REPORT_INTERVAL, RtpFlow};
use kit::media::source::MediaSource;
use kit::publication::{self, Publication};
use session::{ChannelId, Context, FlowId, Output, udp_bind_address, with_port};

/// Media that a client publishes, and its progress.
#[derive(Debug)]
pub(super) struct Publishing {
    source: Arc<MediaSource>,
    streams: Vec<OutgoingStream>,
    /// Time when ANNOUNCE was first sent.
    announced: Option<Time>,
    /// True while media is being sent.
    sending: bool,
    /// Due times of the next count of sent media, and of the next sender reports.
    count_at: Option<Time>,
    report_at: Option<Time>,
}

/// A published stream.
#[derive(Debug)]
struct OutgoingStream {
    /// Control URL.
    url: String,
    flow: FlowId,
    ssrc: u32,
    /// Channel of the pair of UDP ports. Media is sent from it once the server's ports are known.
    channel: Option<ChannelId>,
    local_port: u16,
    has_peer: bool,
    /// Interleaved channels.
    interleaved: Option<Ports<u8>>,
    /// Values already counted: packets, payload bytes, frames, packets not taken.
    counted: (u64, u64, u64, u64),
    /// Number of lost packets in the server's last report.
    reported_lost: i32,
}

impl Publishing {
    pub(super) fn new(source: Arc<MediaSource>) -> Publishing {
        Publishing {
            source,
            streams: Vec::new(),
            announced: None,
            sending: false,
            count_at: None,
            report_at: None,
        }
    }

    /// Returns the index of the stream with this channel.
    pub(super) fn stream_of_channel(&self, channel: ChannelId) -> Option<usize> {
        let mut streams = self.streams.iter();
        streams.position(|stream| stream.channel == Some(channel))
    }

    /// Returns the index of the stream whose RTCP has this interleaved channel.
    pub(super) fn stream_of_control(&self, channel: u8) -> Option<usize> {
        let mut channels = self.streams.iter().map(|stream| stream.interleaved);
        channels.position(|own| own.is_some_and(|own| own.control == channel))
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.count_at.into_iter().chain(self.report_at).min()
    }

    /// Counts the media sent since the last call.
    fn count_sent(&mut self, cx: &mut Context<'_>) {
        for stream in &mut self.streams {
            let now = cx.flows.access_as(stream.flow, |flow: &mut RtpFlow| {
                let (packets, bytes) = flow.sent();
                (packets, bytes, flow.current_frame(), flow.rejected())
            });
            let before = std::mem::replace(&mut stream.counted, now);
            cx.recorder.add(m::SENT_PACKETS, now.0 - before.0);
            cx.recorder.add(m::SENT_BYTES, now.1 - before.1);
            cx.recorder.add(m::SENT_FRAMES, now.2 - before.2);
            // A datagram that this machine refused never reached the server.
            if stream.interleaved.is_some() {
                cx.recorder.add(m::NOT_TAKEN, now.3 - before.3);
            }
        }
    }
}

impl Client {
    /// Returns whether the client publishes instead of playing.
    pub(super) fn publishes(&self) -> bool {
        self.publishing.is_some()
    }

    /// Returns the local address of the connection.
    pub(super) fn own_address(&self) -> IpAddr {
        match self.conversation.connection.ends {
            Some((local, _)) => local.ip(),
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Forgets a pair of ports that could not be opened: there is nothing to close. Returns `false`
    /// if it belongs to no stream.
    pub(super) fn forget_ports(&mut self, channel: ChannelId) -> bool {
        let published = self.publishing.iter_mut().flat_map(|own| &mut own.streams);
        let published = published.map(|stream| &mut stream.channel);
        let played = self.streams.iter_mut().map(|stream| &mut stream.channel);
        let mut channels = played.chain(published);
        let found = channels.find_map(|own| own.take_if(|own| *own == channel));
        found.is_some()
    }

    pub(super) fn ask_announce(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Announce;
        if let Some(publishing) = &mut self.publishing {
            publishing.announced.get_or_insert(cx.now);
        }
        let url = self.url.as_str().to_owned();
        let kind = ("Content-Type", "application/sdp".to_owned());
        self.send_request(cx, Method::Announce, url, vec![kind]);
    }

    /// Returns the body of a request: the description for ANNOUNCE, empty otherwise.
    pub(super) fn body_of(&self, method: &Method) -> Vec<u8> {
        match &self.publishing {
            Some(publishing) if *method == Method::Announce => {
                let mut sdp = describe::session_section(self.own_address());
                describe::write_media_sections(&mut sdp, &publishing.source.clips);
                sdp.into_bytes()
            }
            _ => Vec::new(),
        }
    }

    /// Creates the flows after ANNOUNCE was accepted, and sets up the first stream.
    pub(super) fn on_announce_answer(&mut self, cx: &mut Context<'_>) {
        let wall_clock = self.wall_clock.unwrap_or_default();
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        for (index, clip) in publishing.source.clips.iter().enumerate() {
            let ssrc = self.random.next_u32();
            let flow = RtpFlow::new(FlowSettings {
                clip: clip.clone(),
                pacing: publishing.source.pacing,
                ssrc,
                first_seq: self.random.next_u32() as u16,
                first_timestamp: self.random.next_u32(),
                length: None,
                faults: Faults::default(),
                seed: 0,
                log: false,
            })
            .with_time_codes(wall_clock);
            publishing.streams.push(OutgoingStream {
                url: url::resolve_control(&self.aggregate, Some(&describe::track_name(index))),
                flow: cx.flows.insert(flow),
                ssrc,
                channel: None,
                local_port: 0,
                has_peer: false,
                interleaved: None,
                counted: (0, 0, 0, 0),
                reported_lost: 0,
            });
        }
        self.prepare_record(cx, 0);
    }

    /// Sets up the stream with this index. Sends RECORD after the last one.
    fn prepare_record(&mut self, cx: &mut Context<'_>, index: usize) {
        let mut publishing = self.publishing.iter();
        if publishing.any(|publishing| index == publishing.streams.len()) {
            return self.ask_record(cx);
        }
        self.phase = Phase::Setup(index);
        if self.config.transport != config::Transport::Udp {
            return self.ask_setup_record(cx, index);
        }
        let channel = self.open_ports(cx, udp_bind_address(self.own_address()), None);
        if let Some(publishing) = &mut self.publishing {
            publishing.streams[index].channel = Some(channel);
        }
    }

    /// Sends SETUP for a stream whose pair of ports is open.
    pub(super) fn on_ports_opened(&mut self, cx: &mut Context<'_>, index: usize, port: u16) {
        if let Some(publishing) = &mut self.publishing {
            publishing.streams[index].local_port = port;
        }
        self.ask_setup_record(cx, index);
    }

    fn ask_setup_record(&mut self, cx: &mut Context<'_>, index: usize) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        let stream = &mut publishing.streams[index];
        let mut transport = if stream.channel.is_some() {
            let port = stream.local_port;
            Transport::udp(Ports::new(port, port.saturating_add(1)))
        } else {
            // A source has only a few streams.
            let channels = Ports::of_stream(index);
            stream.interleaved = Some(channels);
            Transport::tcp(channels)
        };
        transport.mode = Some("RECORD".to_owned());
        let url = stream.url.clone();
        let header = ("Transport", transport.to_string());
        self.send_request(cx, Method::Setup, url, vec![header]);
    }

    /// Handles the answer to SETUP for the stream with this index.
    pub(super) fn on_record_setup_answer(
        &mut self,
        cx: &mut Context<'_>,
        index: usize,
        pending: &Pending,
        response: &Response,
    ) {
        let answer = response.headers.get("Transport").and_then(Transport::parse);
        let answer = answer.unwrap_or_default();
        let server = self.conversation.connection.remote();
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        let stream = &mut publishing.streams[index];
        let fits = match stream.channel {
            Some(_) => answer.lower == LowerTransport::Udp && answer.interleaved.is_none(),
            None => answer.lower == LowerTransport::Tcp || answer.interleaved.is_some(),
        };
        match (fits, stream.channel, answer.server_port, server) {
            (true, None, ..) => {
                stream.interleaved = answer.interleaved.or(stream.interleaved);
            }
            (true, Some(channel), Some(ports), Some(server))
                if ports.media != 0 && ports.control != 0 =>
            {
                // The server may choose the ports, but not another host: that host has not agreed
                // to receive media.
                stream.has_peer = true;
                cx.out.push_back(Output::Peer {
                    channel,
                    media: with_port(server, ports.media),
                    control: with_port(server, ports.control),
                });
            }
            _ => {
                let wrong = format!(
                    "asked to record by {:?}, answered `{answer}`",
                    self.config.transport
                );
                let failure = Failure::UnsupportedTransportAnswer;
                return self.reject(cx, failure, wrong, pending, response);
            }
        }
        self.prepare_record(cx, index + 1);
    }

    fn ask_record(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Record;
        let url = self.aggregate.clone();
        let range = ("Range", Range::FROM_START.to_string());
        self.send_request(cx, Method::Record, url, vec![range]);
    }

    /// Starts sending after RECORD was accepted, and notifies the players of the stream.
    pub(super) fn on_record_answer(&mut self, cx: &mut Context<'_>, at: Time) {
        self.phase = Phase::Recording;
        self.plan_keep_alive(at);
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        if let Some(announced) = publishing.announced {
            cx.recorder
                .record_duration(m::PUBLISH_DELAY, at.since(announced));
        }
        publishing.sending = true;
        publishing.count_at = Some(publication::next_count(cx.now));
        publishing.report_at = Some(cx.now);
        for stream in &publishing.streams {
            let (channel, interleaved) = match (stream.channel, stream.interleaved) {
                (Some(channel), _) => (channel, None),
                (None, Some(channels)) => {
                    (self.conversation.connection.channel, Some(channels.media))
                }
                (None, None) => continue,
            };
            cx.flows.access_as(stream.flow, |flow: &mut RtpFlow| {
                flow.set_interleaved_channel(interleaved);
                flow.start(cx.now);
            });
            cx.out.push_back(Output::StartFlow {
                flow: stream.flow,
                channel,
            });
        }
        self.starts.first_media = Some(cx.now);
        cx.out.push_back(Output::Playing { at: cx.now });
        Publication::LIVE.publish(cx, self.publication_topic.clone());
    }

    /// Does everything that is due while media is sent.
    pub(super) fn due_publishing(&mut self, cx: &mut Context<'_>) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        if publishing.count_at.is_some_and(|at| at <= cx.now) {
            publishing.count_at = Some(publication::next_count(cx.now));
            publishing.count_sent(cx);
        }
        if publishing.report_at.is_some_and(|at| at <= cx.now) {
            publishing.report_at = Some(cx.now + REPORT_INTERVAL);
            self.send_reports(cx, false);
        }
    }

    /// Sends a sender report for each stream, with BYE if `goodbye`.
    fn send_reports(&mut self, cx: &mut Context<'_>, goodbye: bool) {
        let wall_clock = self.wall_clock.unwrap_or_default();
        let Some(publishing) = &self.publishing else {
            return;
        };
        for stream in &publishing.streams {
            let name = format!("{:08x}", self.ssrc);
            let report = cx.flows.access_as(stream.flow, |flow: &mut RtpFlow| {
                flow.report(cx.now, wall_clock, &name, goodbye)
            });
            let channel = stream.channel.filter(|_| stream.has_peer);
            self.send_rtcp(cx, stream.interleaved, channel, report);
        }
    }

    /// Handles reports of the server about a stream. Unreadable packets are ignored, because
    /// nothing depends on them.
    pub(super) fn on_receiver_reports(&mut self, cx: &mut Context<'_>, index: usize, bytes: &[u8]) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        let clock_rate = publishing.source.clips[index].clock_rate();
        let stream = &mut publishing.streams[index];
        for packet in rtcp::packets(bytes) {
            let blocks = match packet {
                Ok(Packet::ReceiverReport { blocks, .. } | Packet::SenderReport { blocks, .. }) => {
                    blocks
                }
                Ok(_) => continue,
                Err(_) => break,
            };
            let own = stream.ssrc;
            for block in blocks.iter().filter(|block| block.ssrc == own) {
                stream.record_report(cx, block, clock_rate);
            }
        }
    }

    /// Stops sending: notifies the players, counts the media sent, and sends BYE. Only the first
    /// call has an effect.
    pub(super) fn stop_sending(&mut self, cx: &mut Context<'_>) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        publishing.count_at = None;
        publishing.report_at = None;
        if !std::mem::take(&mut publishing.sending) {
            return;
        }
        for stream in &publishing.streams {
            cx.out.push_back(Output::StopFlow { flow: stream.flow });
            cx.flows.access_as(stream.flow, RtpFlow::pause);
        }
        Publication::GONE.publish(cx, self.publication_topic.clone());
        publishing.count_sent(cx);
        if self.conversation.connection.ends.is_some() {
            self.send_reports(cx, true);
        }
    }

    /// Stops sending, and removes all flows and channels.
    pub(super) fn end_publishing(&mut self, cx: &mut Context<'_>) {
        self.stop_sending(cx);
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        for stream in std::mem::take(&mut publishing.streams) {
            if let Some(channel) = stream.channel {
                cx.out.push_back(Output::Close { channel });
            }
            cx.flows.remove(stream.flow);
        }
    }

    /// Fails the session if a flow ended. A flow ends on its own only if nothing can be sent.
    pub(super) fn sending_failed(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        let mut streams = self.publishing.iter().flat_map(|own| &own.streams);
        if self.phase == Phase::Recording && streams.any(|stream| stream.flow == flow) {
            self.fail_here(cx, Failure::LocalOther, "nothing can be sent");
        }
    }
}

impl OutgoingStream {
    /// Records a report block of the server (RFC 3550, 6.4.1).
    fn record_report(&mut self, cx: &mut Context<'_>, block: &ReportBlock, clock_rate: u32) {
        cx.recorder.add(m::RECEIVER_REPORTS, 1);
        // A count above the number of sent packets is wrong and ignored. A negative count is taken
        // as zero.
        let flow = self.flow;
        let sent = cx.flows.access_as(flow, |flow: &mut RtpFlow| flow.sent().0);
        let most = i32::try_from(sent).unwrap_or(i32::MAX);
        let reported = match block.cumulative_lost {
            lost if lost > most => self.reported_lost,
            lost => lost.max(0),
        };
        let more = i64::from(reported) - i64::from(self.reported_lost);
        self.reported_lost = reported;
        match u64::try_from(more) {
            Ok(more) => cx.recorder.add(m::REPORTED_LOST, more),
            // Late packets arrived after all, or packets arrived twice.
            Err(_) => cx.recorder.take_back(m::REPORTED_LOST, more.unsigned_abs()),
        }
        if clock_rate > 0 {
            let jitter = u64::from(block.jitter) * 1_000_000_000 / u64::from(clock_rate);
            cx.recorder.record(m::REPORTED_JITTER, jitter);
        }
    }
}
