//! Plain RTP that a client sends to a server, at ports that the signalling has named. Each stream
//! has its own port, and a second one for RTCP.

use std::time::Duration;

use bytes::BytesMut;
use measure::Time;

use super::encrypted_flow::EncryptedFlow;
use super::{OutgoingMedia, OutgoingStream};
use crate::client::Client;
use crate::failure::Failure;
use crate::metrics as m;
use crate::signalling::{FeedPorts, FeedStream};
use kit::connect_failure::ConnectFailure;
use session::{ChannelError, ChannelId, Context, Datagram, FlowId, Open, Output, ReadTiming};

/// Streams that are fed, and their sockets.
#[derive(Debug, Default)]
pub(in crate::client) struct RtpFeed {
    sockets: Vec<FeedSockets>,
    /// Empty until all sockets for media are open. Then it has one stream for each of `sockets`, in
    /// the same order.
    outgoing_media: OutgoingMedia,
}

/// Sockets of a stream.
#[derive(Debug)]
struct FeedSockets {
    port: FeedPorts,
    media: ChannelId,
    is_open: bool,
    /// Socket for RTCP, over which the server requests key frames.
    control: Option<ChannelId>,
    /// True once `control` is open.
    control_is_open: bool,
}

impl RtpFeed {
    /// Describes the streams of a source for the signalling.
    pub(in crate::client) fn media(source: &kit::media::source::MediaSource) -> Vec<FeedStream> {
        let clips = source.clips.iter();
        let media = clips.map(|clip| FeedStream {
            kind: clip.media(),
            codec: clip.encoding().split('/').next().unwrap_or("").to_owned(),
            payload_type: clip.payload_type(),
            parameters: clip.parameters().to_owned(),
        });
        media.collect()
    }

    pub(in crate::client) fn deadline(&self) -> Option<Time> {
        self.outgoing_media.next_due()
    }

    pub(super) fn has(&self, flow: FlowId) -> bool {
        self.outgoing_media
            .streams
            .iter()
            .any(|own| own.flow == flow)
    }

    fn sockets_of(&mut self, channel: ChannelId) -> Option<&mut FeedSockets> {
        let mut all = self.sockets.iter_mut();
        all.find(|sockets| sockets.media == channel || sockets.control == Some(channel))
    }

    /// Sends a report for each stream, if they are enabled, and a goodbye if `goodbye` is true.
    fn report(&mut self, cx: &mut Context<'_>, client: (Option<Duration>, &str), goodbye: bool) {
        let (wall_clock, name) = client;
        let sender = (cx.now, wall_clock, name);
        let reports = self
            .outgoing_media
            .rtcp_compounds(cx.flows, sender, goodbye);
        for (report, sockets) in reports.iter().zip(&self.sockets) {
            if let Some(channel) = sockets.control.filter(|_| sockets.control_is_open) {
                cx.transmit(channel, None, |out| out.extend_from_slice(report));
            }
        }
    }
}

impl Client {
    /// Opens the sockets to these ports.
    pub(in crate::client) fn open_feed(&mut self, cx: &mut Context<'_>, ports: &[FeedPorts]) {
        let Some(host) = self
            .signalling_target
            .as_ref()
            .map(|target| target.host.clone())
        else {
            return;
        };
        let timeout = self.config.connect_timeout.0;
        let mut open = |port: u16, reading: ReadTiming| {
            let channel = self.next_channel();
            let open = Open::UdpToHost {
                host: host.clone(),
                port,
                local_port: 0,
                timeout,
                reading,
                media: None,
            };
            cx.out.push_back(Output::Open { channel, open });
            channel
        };
        let sockets = ports.iter().map(|port| FeedSockets {
            port: *port,
            media: open(port.media, ReadTiming::Late),
            is_open: false,
            control: port.control.map(|port| open(port, ReadTiming::AtOnce)),
            control_is_open: false,
        });
        let sockets = sockets.collect();
        self.feed = Some(Box::new(RtpFeed {
            sockets,
            outgoing_media: OutgoingMedia::default(),
        }));
    }

    /// Handles an open socket. Returns `true` if it belongs to the feed.
    pub(in crate::client) fn feed_opened(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
    ) -> bool {
        let Some(sockets) = self.feed.as_mut().and_then(|feed| feed.sockets_of(channel)) else {
            return false;
        };
        match sockets.media == channel {
            true => sockets.is_open = true,
            false => sockets.control_is_open = true,
        }
        let begun = self.feed.as_ref().is_none_or(|feed| {
            let mut all = feed.sockets.iter();
            !feed.outgoing_media.streams.is_empty() || !all.all(|sockets| sockets.is_open)
        });
        if !begun && !self.is_leaving() {
            self.begin_feeding(cx);
        }
        true
    }

    fn begin_feeding(&mut self, cx: &mut Context<'_>) {
        let (Some(source), Some(mut feed)) = (self.source.clone(), self.feed.take()) else {
            return;
        };
        for (index, sockets) in feed.sockets.iter().enumerate() {
            let flow = cx.flows.insert(EncryptedFlow {
                media: self.start_media(cx.now, &source, (index, 0)),
                sealer: None,
                buffer: BytesMut::new(),
                retransmissions: None,
                numbering: None,
                channel: None,
                audio_level_id: None,
                layer_extensions: None,
            });
            let ssrc = self.own_ssrc((index, 0));
            feed.outgoing_media
                .streams
                .push(OutgoingStream::new(flow, ssrc));
            let channel = sockets.media;
            cx.out.push_back(Output::StartFlow { flow, channel });
        }
        feed.outgoing_media.begin_counting(cx.now);
        self.feed = Some(feed);
        let published = cx.now.since(self.planned_start);
        cx.recorder
            .record(m::PUBLISH_DELAY, published.as_nanos() as u64);
        self.report_playing(cx, cx.now);
        // The mount point exists, so its viewers receive media from now on.
        self.published = true;
        self.announce_published(cx, true);
        self.report_feed(cx, false);
    }

    fn report_feed(&mut self, cx: &mut Context<'_>, goodbye: bool) {
        let wall_clock = self.wall_clock.unwrap_or_default();
        let wall_clock = self.config.sender_reports.then_some(wall_clock);
        if let Some(feed) = &mut self.feed {
            feed.report(cx, (wall_clock, &self.cname), goodbye);
        }
    }

    /// Handles everything that is due while media is fed.
    pub(in crate::client) fn handle_feed_due(&mut self, cx: &mut Context<'_>) {
        let Some(feed) = &mut self.feed else { return };
        if feed.outgoing_media.count_if_due(cx) {
            self.report_feed(cx, false);
        }
    }

    /// Handles RTCP of the server.
    pub(in crate::client) fn handle_feed_rtcp(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        datagrams: &[Datagram<'_>],
    ) {
        let Some(feed) = &mut self.feed else { return };
        let is_control = |sockets: &FeedSockets| sockets.control == Some(channel);
        if feed.sockets.iter().any(is_control) {
            for datagram in datagrams {
                feed.outgoing_media
                    .handle_rtcp(datagram.bytes, cx.now, cx.flows, cx.recorder);
            }
        }
    }

    /// Fails the client if the channel belongs to the feed, because its socket could not be opened.
    /// Returns `true` if it does.
    pub(in crate::client) fn feed_failed(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        error: ChannelError,
    ) -> bool {
        let Some(sockets) = self.feed.as_mut().and_then(|feed| feed.sockets_of(channel)) else {
            return false;
        };
        let detail = format!("{error} (UDP port {}, {})", sockets.port.media, self.url);
        self.fail(cx, ConnectFailure::from(error).into(), detail);
        true
    }

    /// Handles the end of a socket. Returns `true` if it belongs to the feed.
    pub(in crate::client) fn feed_closed(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
    ) -> bool {
        let Some(sockets) = self.feed.as_mut().and_then(|feed| feed.sockets_of(channel)) else {
            return false;
        };
        match sockets.media == channel {
            true => self.fail_feed(cx),
            // The server then sends no requests for key frames.
            false => (sockets.control, sockets.control_is_open) = (None, false),
        }
        true
    }

    /// Fails the client because the server does not receive the streams.
    pub(super) fn fail_feed(&mut self, cx: &mut Context<'_>) {
        let detail = format!("the server does not receive what is sent ({})", self.url);
        self.fail(cx, Failure::NotSent, detail);
    }

    /// Stops feeding, says goodbye, and adds the figures to the recorder.
    pub(in crate::client) fn end_feeding(&mut self, cx: &mut Context<'_>) {
        let Some(feed) = &mut self.feed else { return };
        feed.outgoing_media.stop(cx);
        feed.outgoing_media.count(cx.flows, cx.recorder);
        self.report_feed(cx, true);
        let Some(feed) = self.feed.take() else { return };
        for stream in feed.outgoing_media.streams {
            cx.flows.remove(stream.flow);
        }
        for sockets in feed.sockets {
            let channels = [Some(sockets.media), sockets.control];
            let open = channels.into_iter().flatten();
            cx.out.extend(open.map(|channel| Output::Close { channel }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use measure::Recorder;

    use super::*;
    use crate::certificate::Certificate;
    use crate::config::ClientConfig;
    use kit::media::source::{MediaSource, SourceConfig};
    use session::{Flows, Outbox, Sinks};

    /// Returns the number of reports that are sent at the start and at the end of a feed.
    fn reports(sender_reports: bool) -> [usize; 2] {
        let config = ClientConfig {
            sender_reports,
            ..ClientConfig::default()
        };
        let url = "janus+ws://10.0.0.1/streaming/5";
        let certificate = Arc::new(Certificate::generate(1));
        let source = crate::config::with_limited_mtu(&SourceConfig::default());
        let source = MediaSource::new(&source, None).expect("it can be made");
        let client = Client::new(config, url, 1, certificate).expect("it is a URL");
        let mut client = client.with_source(Arc::new(source));
        client.feed = Some(Box::new(RtpFeed {
            sockets: vec![FeedSockets {
                port: FeedPorts {
                    media: 5000,
                    control: Some(5001),
                },
                media: ChannelId(1),
                is_open: true,
                control: Some(ChannelId(2)),
                control_is_open: true,
            }],
            outgoing_media: OutgoingMedia::default(),
        }));
        let mut recorder = Recorder::new(crate::PROTOCOL.catalogue);
        let (mut sinks, mut flows) = (Sinks::default(), Flows::default());
        let mut run = |run: &mut dyn FnMut(&mut Client, &mut Context<'_>)| {
            let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
            let mut cx = Context {
                now: Time::from_nanos(1_000_000_000),
                recorder: &mut recorder,
                sinks: &mut sinks,
                flows: &mut flows,
                out: &mut out,
                outbox: &mut outbox,
            };
            run(&mut client, &mut cx);
            let sent = out.iter().filter(|own| matches!(own, Output::Transmit(_)));
            sent.count()
        };
        [
            run(&mut |client, cx| client.begin_feeding(cx)),
            run(&mut |client, cx| client.report_feed(cx, true)),
        ]
    }

    #[test]
    fn feed_sends_reports_unless_disabled() {
        assert_eq!(reports(true), [1, 1]);
        // A goodbye is sent in either case.
        assert_eq!(reports(false), [0, 1]);
    }
}
