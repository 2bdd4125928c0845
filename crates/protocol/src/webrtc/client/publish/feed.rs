//! What a client feeds to a server: plain RTP to ports that its signalling has named, each stream
//! to its own, with RTCP beside it.

use std::time::Duration;

use bytes::BytesMut;
use measure::Time;

use super::sealed::Sealed;
use super::{COUNT_EVERY, Outgoing, Sent};
use crate::connect_failure::ConnectFailure;
use crate::session::{ChannelError, ChannelId, Context, Datagram, FlowId, Open, Output, Reading};
use crate::webrtc::client::Client;
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::signalling::{FedMedia, FeedPort};

/// What is fed, and by which ways.
#[derive(Debug, Default)]
pub(in crate::webrtc::client) struct Feed {
    ways: Vec<Way>,
    /// Once all ways are open: a stream for each, in their order.
    sent: Sent,
}

/// The sockets of a stream.
#[derive(Debug)]
struct Way {
    port: FeedPort,
    media: ChannelId,
    is_open: bool,
    /// By which the server asks for key frames, once it is open.
    control: Option<ChannelId>,
    hears: bool,
}

impl Feed {
    /// What there is to feed.
    pub(in crate::webrtc::client) fn media(
        source: &crate::media::source::MediaSource,
    ) -> Vec<FedMedia> {
        let clips = source.clips.iter();
        let media = clips.map(|clip| FedMedia {
            kind: clip.media(),
            codec: clip.encoding().split('/').next().unwrap_or("").to_owned(),
            payload_type: clip.payload_type(),
            parameters: clip.parameters().to_owned(),
        });
        media.collect()
    }

    pub(in crate::webrtc::client) fn deadline(&self) -> Option<Time> {
        self.sent.count_at
    }

    pub(super) fn has(&self, flow: FlowId) -> bool {
        self.sent.streams.iter().any(|own| own.flow == flow)
    }

    fn way(&mut self, channel: ChannelId) -> Option<&mut Way> {
        let mut ways = self.ways.iter_mut();
        ways.find(|way| way.media == channel || way.control == Some(channel))
    }

    /// Sends a report of each stream beside it, if any are to be sent, or says goodbye.
    fn report(&mut self, cx: &mut Context<'_>, client: (Option<Duration>, &str), goodbye: bool) {
        let (wall_clock, name) = client;
        let about = (cx.now, wall_clock, name);
        let reports = self.sent.reports_of_ours(cx.flows, about, goodbye);
        for (report, way) in reports.iter().zip(&self.ways) {
            if let Some(channel) = way.control.filter(|_| way.hears) {
                cx.transmit(channel, None, |out| out.extend_from_slice(report));
            }
        }
    }
}

impl Client {
    /// Opens the ways to those ports.
    pub(in crate::webrtc::client) fn open_feed(
        &mut self,
        cx: &mut Context<'_>,
        ports: &[FeedPort],
    ) {
        let Some(host) = self.target.as_ref().map(|target| target.host.clone()) else {
            return;
        };
        let timeout = self.config.connect_timeout.0;
        let mut open = |port: u16, reading: Reading| {
            let channel = self.next_channel();
            let open = Open::UdpTo {
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
        let ways = ports.iter().map(|port| Way {
            port: *port,
            media: open(port.media, Reading::Late),
            is_open: false,
            control: port.control.map(|port| open(port, Reading::AtOnce)),
            hears: false,
        });
        let ways = ways.collect();
        self.feed = Some(Box::new(Feed {
            ways,
            sent: Sent::default(),
        }));
    }

    /// One of the ways is open. Says whether it was of a feed.
    pub(in crate::webrtc::client) fn feed_opened(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
    ) -> bool {
        let Some(way) = self.feed.as_mut().and_then(|feed| feed.way(channel)) else {
            return false;
        };
        match way.media == channel {
            true => way.is_open = true,
            false => way.hears = true,
        }
        let begun = self.feed.as_ref().is_none_or(|feed| {
            let mut all = feed.ways.iter();
            !feed.sent.streams.is_empty() || !all.all(|way| way.is_open)
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
        for (place, way) in feed.ways.iter().enumerate() {
            let flow = cx.flows.insert(Sealed {
                media: self.media(cx.now, &source, (place, 0)),
                sealer: None,
                room: BytesMut::new(),
                again: None,
                numbered: None,
                channel: None,
                level: None,
                layer: None,
            });
            let ssrc = self.own_ssrc((place, 0));
            feed.sent.streams.push(Outgoing::new(flow, ssrc));
            let channel = way.media;
            cx.out.push_back(Output::StartFlow { flow, channel });
        }
        feed.sent.count_at = Some(cx.now + COUNT_EVERY);
        self.feed = Some(feed);
        let published = cx.now.since(self.due);
        cx.recorder
            .record(m::PUBLISH_DELAY, published.as_nanos() as u64);
        self.begins(cx, cx.now);
        // The mount point is there: whoever watches it gets what comes next.
        self.published = true;
        self.say_published(cx, true);
        self.report_feed(cx, false);
    }

    fn report_feed(&mut self, cx: &mut Context<'_>, goodbye: bool) {
        let wall_clock = self.wall_clock.unwrap_or_default();
        let wall_clock = self.config.sender_reports.then_some(wall_clock);
        if let Some(feed) = &mut self.feed {
            feed.report(cx, (wall_clock, &self.cname), goodbye);
        }
    }

    /// Does what is due while media is fed.
    pub(in crate::webrtc::client) fn due_feed(&mut self, cx: &mut Context<'_>) {
        let Some(feed) = &mut self.feed else { return };
        if feed.sent.count_at.is_none_or(|due| cx.now < due) {
            return;
        }
        feed.sent.count_at = Some(cx.now + COUNT_EVERY);
        feed.sent.count(cx.flows, cx.recorder);
        self.report_feed(cx, false);
    }

    /// Takes in what the server says by RTCP.
    pub(in crate::webrtc::client) fn feed_heard(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        datagrams: &[Datagram<'_>],
    ) {
        let Some(feed) = &mut self.feed else { return };
        let is_control = |way: &Way| way.control == Some(channel);
        if feed.ways.iter().any(is_control) {
            for datagram in datagrams {
                feed.sent
                    .reports(datagram.bytes, cx.now, cx.flows, cx.recorder);
            }
        }
    }

    /// A way could not be opened. Says whether it was of a feed.
    pub(in crate::webrtc::client) fn feed_failed(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        error: ChannelError,
    ) -> bool {
        let Some(way) = self.feed.as_mut().and_then(|feed| feed.way(channel)) else {
            return false;
        };
        let detail = format!("{error} (UDP port {}, of {})", way.port.media, self.url);
        self.fail(cx, ConnectFailure::from(error).into(), detail);
        true
    }

    /// A way is gone. Says whether it was of a feed.
    pub(in crate::webrtc::client) fn feed_closed(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
    ) -> bool {
        let Some(way) = self.feed.as_mut().and_then(|feed| feed.way(channel)) else {
            return false;
        };
        match way.media == channel {
            true => self.not_fed(cx),
            // It asks for nothing then.
            false => (way.control, way.hears) = (None, false),
        }
        true
    }

    /// Fails because nobody takes what is fed.
    pub(super) fn not_fed(&mut self, cx: &mut Context<'_>) {
        let detail = format!("nobody takes what is sent, of {}", self.url);
        self.fail(cx, Failure::NotSent, detail);
    }

    /// Feeds no more: says goodbye, and hands the figures in.
    pub(in crate::webrtc::client) fn end_feeding(&mut self, cx: &mut Context<'_>) {
        let Some(feed) = &mut self.feed else { return };
        feed.sent.stop(cx);
        feed.sent.count(cx.flows, cx.recorder);
        self.report_feed(cx, true);
        let Some(feed) = self.feed.take() else { return };
        for stream in feed.sent.streams {
            cx.flows.remove(stream.flow);
        }
        for way in feed.ways {
            let channels = [Some(way.media), way.control];
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
    use crate::media::source::{MediaSource, SourceConfig};
    use crate::session::{Flows, Outbox, Sinks};
    use crate::webrtc::certificate::Certificate;
    use crate::webrtc::config::ClientConfig;

    /// How many reports go beside what is fed, in the middle and at the end.
    fn reports(sender_reports: bool) -> [usize; 2] {
        let config = ClientConfig {
            sender_reports,
            ..ClientConfig::default()
        };
        let url = "janus+ws://10.0.0.1/streaming/5";
        let certificate = Arc::new(Certificate::generate(1));
        let source = crate::webrtc::config::usual(&SourceConfig::default());
        let source = MediaSource::new(&source, None).expect("it can be made");
        let client = Client::new(config, url, 1, certificate).expect("it is a URL");
        let mut client = client.publishing(Arc::new(source));
        client.feed = Some(Box::new(Feed {
            ways: vec![Way {
                port: FeedPort {
                    media: 5000,
                    control: Some(5001),
                },
                media: ChannelId(1),
                is_open: true,
                control: Some(ChannelId(2)),
                hears: true,
            }],
            sent: Sent::default(),
        }));
        let mut recorder = Recorder::new(crate::webrtc::PROTOCOL.catalogue);
        let (mut sinks, mut flows) = (Sinks::default(), Flows::default());
        let mut does = |does: &mut dyn FnMut(&mut Client, &mut Context<'_>)| {
            let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
            let mut cx = Context {
                now: Time::from_nanos(1_000_000_000),
                recorder: &mut recorder,
                sinks: &mut sinks,
                flows: &mut flows,
                out: &mut out,
                outbox: &mut outbox,
            };
            does(&mut client, &mut cx);
            let sent = out.iter().filter(|own| matches!(own, Output::Transmit(_)));
            sent.count()
        };
        [
            does(&mut |client, cx| client.begin_feeding(cx)),
            does(&mut |client, cx| client.report_feed(cx, true)),
        ]
    }

    #[test]
    fn reports_go_beside_what_is_fed_unless_they_are_switched_off() {
        assert_eq!(reports(true), [1, 1]);
        // Goodbye is said all the same.
        assert_eq!(reports(false), [0, 1]);
    }
}
