//! The streams of a conversation: what carries them, and the reports on them.

use std::time::Duration;

use measure::Time;

use super::group_streams::Part;
pub(super) use crate::media::rtp::REPORT_EVERY;
use crate::media::rtp::RtpFlow;
use crate::session::{ChannelId, Context, FlowId, Output, Port, Record};

/// The accepted connection.
pub(super) const CONTROL: ChannelId = ChannelId(0);

/// What carries a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A pair of UDP ports.
    Udp(ChannelId),
    /// A pair of UDP ports, from which a group gets it.
    Group(ChannelId),
    /// Frames in the connection, on these channels for media and RTCP.
    Interleaved(u8, u8),
}

impl Carrier {
    /// Where a flow's packets go, and in a connection on which channel of it.
    pub(super) fn path(self) -> (ChannelId, Option<u8>) {
        match self {
            Carrier::Udp(channel) | Carrier::Group(channel) => (channel, None),
            Carrier::Interleaved(media, _) => (CONTROL, Some(media)),
        }
    }
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Playing {
    /// It has not begun, or pauses.
    No,
    /// It is sent.
    Yes,
    /// It came to its end.
    Ended,
}

/// One media of a conversation.
#[derive(Debug)]
pub(super) struct Stream {
    /// Which of the server's media.
    pub(super) media: usize,
    /// Its control URL.
    pub(super) url: String,
    pub(super) flow: FlowId,
    pub(super) carrier: Carrier,
    /// The part in what is sent once for all, where it goes to a group.
    pub(super) cast: Option<Part>,
    pub(super) playing: Playing,
    /// Where in the media it is to end, where that is before the media's end.
    pub(super) until: Option<Duration>,
    /// When the next sender report is due.
    pub(super) report_at: Option<Time>,
    /// Whether the client was told its first sequence number.
    pub(super) base_told: bool,
}

impl Stream {
    /// Sends a report on what left so far, and says goodbye where it was the last.
    pub(super) fn report(&mut self, cx: &mut Context<'_>, wall_clock: Duration, goodbye: bool) {
        let now = cx.now;
        let mut compound = cx.flows.with(self.flow, |flow: &mut RtpFlow| {
            flow.report(now, wall_clock, "streamgauge", goodbye)
        });
        cx.out.push_back(match self.carrier {
            Carrier::Udp(channel) | Carrier::Group(channel) => Output::Send {
                channel,
                port: Port::Control,
                bytes: compound,
            },
            Carrier::Interleaved(_, control) => {
                let length = compound.len() as u16;
                let mut frame = vec![b'$', control];
                frame.extend_from_slice(&length.to_be_bytes());
                frame.append(&mut compound);
                Output::Send {
                    channel: CONTROL,
                    port: Port::Media,
                    bytes: frame,
                }
            }
        });
    }

    /// Ends the stream: says what was done, and lets go of all it holds.
    pub(super) fn finish(self, cx: &mut Context<'_>, session: &str) {
        let last = match &self.cast {
            Some(part) => part.leave(cx, self.flow),
            None => {
                if self.playing == Playing::Yes {
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
        // Taken out first: it may be sending at this moment, and the counts are to be final.
        let flow: Box<RtpFlow> = cx.flows.take(self.flow);
        let mut served = flow.served();
        served.session = session.to_owned();
        served.media = flow.clip().media().to_owned();
        served.url = self.url;
        served.base_told = self.base_told;
        served.ended = self.playing == Playing::Ended && !flow.stopped_early();
        cx.out.push_back(Output::Record(Record::new(served)));
    }
}
