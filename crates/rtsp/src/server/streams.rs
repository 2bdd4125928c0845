//! Streams of an RTSP session: their carriers and sender reports.

use std::time::Duration;

use measure::Time;

use super::group_streams::Participant;
use crate::codec;
use crate::headers::Ports;
pub(super) use kit::media::rtp::REPORT_INTERVAL;
use kit::media::rtp::RtpFlow;
use session::{ChannelId, Context, FlowId, Output, Port, Record};

/// Channel of the accepted connection.
pub(super) const CONTROL: ChannelId = ChannelId(0);

/// Carrier of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A pair of UDP ports.
    Udp(ChannelId),
    /// A pair of UDP ports that sends to a multicast group.
    Group(ChannelId),
    Interleaved(Ports<u8>),
}

impl Carrier {
    /// Returns the channel of a flow's packets, and the interleaved channel within it.
    pub(super) fn path(self) -> (ChannelId, Option<u8>) {
        match self {
            Carrier::Udp(channel) | Carrier::Group(channel) => (channel, None),
            Carrier::Interleaved(channels) => (CONTROL, Some(channels.media)),
        }
    }

    /// Returns the output that sends a packet of media or RTCP.
    pub(super) fn send(self, port: Port, packet: &[u8]) -> Output {
        let (channel, port, bytes) = match self {
            Carrier::Udp(channel) | Carrier::Group(channel) => (channel, port, packet.to_vec()),
            Carrier::Interleaved(channels) => {
                let own = match port {
                    Port::Media => channels.media,
                    Port::Control => channels.control,
                };
                (CONTROL, Port::Media, codec::frame(own, packet))
            }
        };
        Output::Send {
            channel,
            port,
            bytes,
        }
    }
}

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayState {
    /// Not started, or paused.
    Stopped,
    /// Being sent.
    Sending,
    Ended,
}

/// A track of an RTSP session.
#[derive(Debug)]
pub(super) struct Stream {
    /// Index among the server's tracks.
    pub(super) media: usize,
    /// Control URL.
    pub(super) url: String,
    pub(super) flow: FlowId,
    pub(super) carrier: Carrier,
    /// Participation in a track that is sent once for all clients, if it goes to a group.
    pub(super) group: Option<Participant>,
    pub(super) playing: PlayState,
    /// End position, if it is before the end of the media.
    pub(super) until: Option<Duration>,
    /// Due time of the next sender report.
    pub(super) report_at: Option<Time>,
    /// True if the client was told the first sequence number.
    pub(super) base_told: bool,
}

impl Stream {
    /// Sends a sender report, with BYE if `goodbye`.
    pub(super) fn report(&mut self, cx: &mut Context<'_>, wall_clock: Duration, goodbye: bool) {
        let now = cx.now;
        let compound = cx.flows.access_as(self.flow, |flow: &mut RtpFlow| {
            flow.report(now, wall_clock, "streamgauge", goodbye)
        });
        let sent = self.carrier.send(Port::Control, &compound);
        cx.out.push_back(sent);
    }

    /// Ends the stream: reports what was sent, and releases its channel and flow.
    pub(super) fn finish(self, cx: &mut Context<'_>, session: &str) {
        let last = match &self.group {
            Some(participant) => participant.leave(cx, self.flow),
            None => {
                if self.playing == PlayState::Sending {
                    cx.out.push_back(Output::StopFlow { flow: self.flow });
                }
                true
            }
        };
        if let Carrier::Udp(channel) | Carrier::Group(channel) = self.carrier {
            cx.out.push_back(Output::Close { channel });
        }
        if !last {
            return;
        }
        // Removed before its counts are read: it may be sending at this moment, and the counts must
        // be final.
        let flow: Box<RtpFlow> = cx.flows.remove_as(self.flow);
        let mut served = flow.statistics();
        served.session = session.to_owned();
        served.media = flow.clip().media().to_owned();
        served.url = self.url;
        served.base_told = self.base_told;
        served.ended = self.playing == PlayState::Ended && !flow.stopped_early();
        cx.out.push_back(Output::Record(Record::new(served)));
    }
}
