//! The client of one channel, whose channel numbers differ from those that the engine knows.

use measure::Time;

use super::viewer::Viewer;
use session::{ChannelId, Input, Open, Output, SinkId, StreamRow, Transmit};

/// Number of channel numbers ([`ChannelId`]) of each played channel: more than a client opens.
pub(super) const NUMBERS: u32 = 1 << 12;

/// The client of one channel.
pub(super) struct Watched {
    pub(super) viewer: Box<dyn Viewer>,
    pub(super) url: String,
    /// Number that is added to the client's channel numbers.
    pub(super) first_number: u32,
    /// Channels that are open or being opened, by the client's numbers.
    pub(super) open: Vec<ChannelId>,
    /// Sinks that belong to these channels.
    pub(super) sinks: Vec<SinkId>,
    /// Time when the change was due; `None` on the first channel.
    pub(super) due: Option<Time>,
    /// True after a change, until there is a picture.
    pub(super) awaits_picture: bool,
    /// True after a change, until media arrives.
    pub(super) awaits_media: bool,
    /// Set if the change took place on the open connection.
    pub(super) is_reused: bool,
    /// Results of the stream.
    pub(super) rows: Vec<StreamRow>,
    /// True if the client ends on this channel.
    pub(super) is_last: bool,
    /// End of the time for the goodbye.
    pub(super) until: Time,
}

impl Watched {
    pub(super) fn holds(&self, channel: ChannelId) -> bool {
        channel.0.wrapping_sub(self.first_number) < NUMBERS
    }

    /// Remembers channels and sinks, and numbers an output's channel for the engine.
    pub(super) fn translate(&mut self, mut output: Output) -> Output {
        match &output {
            Output::Open { channel, open } => {
                self.open.push(*channel);
                self.sinks.extend(sink_of(open));
            }
            Output::Close { channel } => self.open.retain(|own| own != channel),
            _ => {}
        }
        match &mut output {
            Output::Open { channel, .. }
            | Output::Send { channel, .. }
            | Output::Transmit(Transmit { channel, .. })
            | Output::Peer { channel, .. }
            | Output::Close { channel }
            | Output::Acknowledge { channel, .. }
            | Output::Expect { channel, .. }
            | Output::SetReadTiming { channel, .. }
            | Output::StartFlow { channel, .. }
            | Output::Exchange { channel, .. }
            | Output::FinishExchange { channel } => channel.0 += self.first_number,
            Output::StopFlow { .. }
            | Output::Subscribe { .. }
            | Output::Publish { .. }
            | Output::Playing { .. }
            | Output::Described(_)
            | Output::Streams(_)
            | Output::Note(_)
            | Output::Record(_)
            | Output::Viewed(_)
            | Output::Ended(_) => {}
        }
        output
    }
}

fn sink_of(open: &Open) -> Option<SinkId> {
    match open {
        Open::Udp { media, .. } | Open::UdpToHost { media, .. } => media.map(|media| media.sink),
        Open::UdpPair { sink, .. } | Open::Multicast { sink, .. } => *sink,
        Open::Tcp { .. } | Open::Tls { .. } | Open::Unix { .. } | Open::MulticastSender { .. } => {
            None
        }
    }
}

/// Numbers the channel of an input as the client of a channel knows it.
pub(super) fn to_own<'a>(mut input: Input<'a>, watched: &mut Watched) -> Input<'a> {
    match &mut input {
        Input::Opened { channel, .. }
        | Input::OpenFailed { channel, .. }
        | Input::Bytes { channel, .. }
        | Input::Datagram { channel, .. }
        | Input::Datagrams { channel, .. }
        | Input::Closed { channel, .. }
        | Input::ExchangeEnded { channel, .. } => channel.0 -= watched.first_number,
        Input::Start { .. }
        | Input::Media { .. }
        | Input::FlowEnded { .. }
        | Input::TopicMessage { .. }
        | Input::Deadline
        | Input::Stop { .. } => {}
    }
    if let Input::OpenFailed { channel, .. } | Input::Closed { channel, .. } = &input {
        watched.open.retain(|own| own != channel);
    }
    input
}
