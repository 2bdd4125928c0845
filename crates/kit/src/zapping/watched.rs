//! The client of one channel, whose channel numbers differ from those that the engine knows.

use measure::Time;

use super::viewer::Viewer;
use session::{ChannelId, Input, Open, Output, SinkId, StreamRow};

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

    fn own_number(&self, channel: ChannelId) -> ChannelId {
        ChannelId(channel.0 - self.first_number)
    }

    /// Remembers channels and sinks, and numbers an output's channel for the engine.
    pub(super) fn translate(&mut self, output: Output) -> Output {
        let first = self.first_number;
        let all = |channel: ChannelId| ChannelId(first + channel.0);
        match output {
            Output::Open { channel, open } => {
                self.open.push(channel);
                self.sinks.extend(sink_of(&open));
                Output::Open {
                    channel: all(channel),
                    open,
                }
            }
            Output::Send {
                channel,
                port,
                bytes,
            } => Output::Send {
                channel: all(channel),
                port,
                bytes,
            },
            Output::Transmit(mut transmit) => {
                transmit.channel = all(transmit.channel);
                Output::Transmit(transmit)
            }
            Output::Peer {
                channel,
                media,
                control,
            } => Output::Peer {
                channel: all(channel),
                media,
                control,
            },
            Output::Close { channel } => {
                self.open.retain(|own| *own != channel);
                Output::Close {
                    channel: all(channel),
                }
            }
            Output::Acknowledge { channel, delay } => Output::Acknowledge {
                channel: all(channel),
                delay,
            },
            Output::Expect { channel, bytes } => Output::Expect {
                channel: all(channel),
                bytes,
            },
            Output::SetReadTiming { channel, reading } => Output::SetReadTiming {
                channel: all(channel),
                reading,
            },
            Output::StartFlow { flow, channel } => Output::StartFlow {
                flow,
                channel: all(channel),
            },
            Output::Exchange { channel, exchange } => Output::Exchange {
                channel: all(channel),
                exchange,
            },
            Output::FinishExchange { channel } => Output::FinishExchange {
                channel: all(channel),
            },
            Output::StopFlow { .. }
            | Output::Subscribe { .. }
            | Output::Publish { .. }
            | Output::Playing { .. }
            | Output::Described(_)
            | Output::Streams(_)
            | Output::Note(_)
            | Output::Record(_)
            | Output::Viewed(_)
            | Output::Ended(_) => output,
        }
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
pub(super) fn to_own<'a>(input: Input<'a>, watched: &mut Watched) -> Input<'a> {
    match input {
        Input::Opened {
            channel,
            local,
            remote,
        } => Input::Opened {
            channel: watched.own_number(channel),
            local,
            remote,
        },
        Input::OpenFailed { channel, error } => {
            let channel = watched.own_number(channel);
            watched.open.retain(|own| *own != channel);
            Input::OpenFailed { channel, error }
        }
        Input::Bytes {
            channel,
            bytes,
            at,
            runs,
        } => Input::Bytes {
            channel: watched.own_number(channel),
            bytes,
            at,
            runs,
        },
        Input::Datagram {
            channel,
            port,
            from,
            bytes,
            at,
        } => Input::Datagram {
            channel: watched.own_number(channel),
            port,
            from,
            bytes,
            at,
        },
        Input::Datagrams { channel, datagrams } => Input::Datagrams {
            channel: watched.own_number(channel),
            datagrams,
        },
        Input::Closed { channel, reason } => {
            let channel = watched.own_number(channel);
            watched.open.retain(|own| *own != channel);
            Input::Closed { channel, reason }
        }
        Input::ExchangeEnded { channel, reason } => Input::ExchangeEnded {
            channel: watched.own_number(channel),
            reason,
        },
        Input::Start { .. }
        | Input::Media { .. }
        | Input::FlowEnded { .. }
        | Input::TopicMessage { .. }
        | Input::Deadline
        | Input::Stop { .. } => input,
    }
}
