//! Plain RTP that a client sends to a server, at ports that the signalling has named. Each stream
//! has its own port, and a second one for RTCP.

use bytes::BytesMut;
use measure::Time;

use super::encrypted_flow::EncryptedFlow;
use super::source::SourceStream;
use super::{OutgoingMedia, OutgoingStream};
use crate::client::Client;
use crate::failure::Failure;
use crate::signalling::{FeedPorts, FeedStream};
use kit::connect_failure::ConnectFailure;
use kit::media::rtp::header::Header;
use session::{ChannelError, ChannelId, Context, Datagram, Open, Output, ReadTiming};

/// Streams that are fed, and their sockets.
#[derive(Debug, Default)]
pub(in crate::client) struct RtpFeed {
    sockets: Vec<FeedSockets>,
    /// Empty until all sockets for media are open. Then it has one stream for each of `sockets`, in
    /// the same order.
    pub(super) outgoing_media: OutgoingMedia,
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

    fn sockets_of(&mut self, channel: ChannelId) -> Option<&mut FeedSockets> {
        let mut all = self.sockets.iter_mut();
        all.find(|sockets| sockets.media == channel || sockets.control == Some(channel))
    }

    /// Tells the server where to request key frames: it sends requests to the source of the last
    /// packet at its port for RTCP, and a header of RTP suffices. No reports are sent. Janus would
    /// remove them (`janus_rtcp_filter`), and they can stop it for ever: to relay RTCP, it locks
    /// the mount point and then the handle of each viewer; its Admin API locks a handle and then
    /// the mount point.
    fn name_source(&self, cx: &mut Context<'_>) {
        for (stream, sockets) in self.outgoing_media.streams.iter().zip(&self.sockets) {
            if let Some(channel) = sockets.control.filter(|_| sockets.control_is_open) {
                let header = Header::new(0, 0, 0, stream.ssrc).to_bytes();
                cx.transmit(channel, None, |out| out.extend_from_slice(&header));
            }
        }
    }
}

impl Client {
    /// Opens the sockets to these ports.
    pub(in crate::client) fn open_feed(&mut self, cx: &mut Context<'_>, ports: &[FeedPorts]) {
        let Some(host) = self
            .signalling
            .target
            .as_ref()
            .map(|target| target.host.clone())
        else {
            return;
        };
        let timeout = self.setup.config.connect_timeout.0;
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
        let (Some(source), Some(mut feed)) = (self.setup.source.clone(), self.feed.take()) else {
            return;
        };
        for (clip, sockets) in feed.sockets.iter().enumerate() {
            let stream = SourceStream { clip, layer: 0 };
            let flow = cx.flows.insert(EncryptedFlow {
                media: self.setup.start_media(cx.now, &source, stream),
                sealer: None,
                buffer: BytesMut::new(),
                retransmissions: None,
                numbering: None,
                channel: None,
                audio_level_id: None,
                layer_extensions: None,
            });
            let stream = OutgoingStream::new(flow, self.setup.own_ssrc(stream));
            feed.outgoing_media.streams.push(stream);
            let channel = sockets.media;
            cx.out.push_back(Output::StartFlow { flow, channel });
        }
        feed.outgoing_media.begin_counting(cx.now);
        self.feed = Some(feed);
        self.startup.published(cx);
        // The mount point exists, so its viewers receive media from now on.
        self.published = true;
        self.announce_published(cx, true);
        if let Some(feed) = &self.feed {
            feed.name_source(cx);
        }
    }

    /// Handles everything that is due while media is fed.
    pub(in crate::client) fn handle_feed_due(&mut self, cx: &mut Context<'_>) {
        let Some(feed) = &mut self.feed else { return };
        if feed.outgoing_media.count_if_due(cx) {
            feed.name_source(cx);
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
        let detail = format!(
            "{error} (UDP port {}, {})",
            sockets.port.media, self.setup.url
        );
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
        let detail = format!(
            "the server does not receive what is sent ({})",
            self.setup.url
        );
        self.fail(cx, Failure::NotSent, detail);
    }

    /// Stops feeding, and adds the figures to the recorder.
    pub(in crate::client) fn end_feeding(&mut self, cx: &mut Context<'_>) {
        let Some(mut feed) = self.feed.take() else {
            return;
        };
        feed.outgoing_media.stop(cx);
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

    /// Runs `steps` with a client that feeds one stream, and returns what it transmits.
    fn transmitted(steps: &mut dyn FnMut(&mut Client, &mut Context<'_>)) -> Vec<Vec<u8>> {
        let config = ClientConfig::default();
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
        let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
        let mut cx = Context {
            now: Time::from_nanos(1_000_000_000),
            recorder: &mut recorder,
            sinks: &mut sinks,
            flows: &mut flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        steps(&mut client, &mut cx);
        let sent = out.iter().filter_map(|output| match output {
            Output::Transmit(sent) => Some(outbox.bytes(sent).chunks(sent.segment_size)),
            _ => None,
        });
        sent.flatten().map(<[u8]>::to_vec).collect()
    }

    /// RTCP can stop Janus, so a feed only sends headers of RTP to its port.
    #[test]
    fn feed_names_its_source_without_rtcp() {
        let mut seconds = 0;
        let sent = transmitted(&mut |client, cx| {
            client.begin_feeding(cx);
            while seconds < 2 {
                cx.now = client
                    .feed
                    .as_ref()
                    .and_then(|feed| feed.deadline())
                    .expect("it feeds");
                seconds = (cx.now.since_start().as_nanos() / 1_000_000_000) as u64;
                client.handle_feed_due(cx);
            }
            client.end_feeding(cx);
        });
        assert!(sent.len() >= 2, "once a second: {sent:?}");
        for packet in sent {
            let header = Header::parse(&packet, packet.len()).expect("it is RTP");
            assert_eq!((header.payload_type, packet.len()), (0, 12));
        }
    }
}
