//! What a session waits for before it answers, and its part in a stream that is published.

use std::net::IpAddr;

use super::published::{Announced, Place};
use crate::rtsp::codec::Request;
use crate::rtsp::headers::Ports;
use crate::session::{ChannelId, Context, Output};

/// A SETUP that waits for its pair of ports.
#[derive(Debug)]
pub(super) struct PendingSetup<T> {
    pub(super) request: Request,
    pub(super) channel: ChannelId,
    pub(super) media: usize,
    /// What else is known of it.
    pub(super) rest: T,
}

/// Of a stream that the server plays.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) url: String,
    pub(super) path: String,
    pub(super) to: To,
}

/// Where datagrams of a stream go.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// To these ports of the client's, at another address where it asked for that.
    Client(Ports<u16>, Option<IpAddr>),
    /// To the group that the stream has.
    Group,
}

/// Of a stream that is published.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) client: Ports<u16>,
    pub(super) role: Role,
}

impl<T> PendingSetup<T> {
    /// Gives it up.
    pub(super) fn drop_it(self, cx: &mut Context<'_>) {
        cx.out.push_back(Output::Close {
            channel: self.channel,
        });
    }
}

/// Which part a session has in a stream that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Publisher,
    Player,
}

/// A session's part in a stream that is published.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) role: Role,
    pub(super) id: String,
    pub(super) place: Place,
    pub(super) announced: Announced,
    pub(super) carriers: Vec<(usize, Carrier)>,
    /// Whether media is taken in, or sent on.
    pub(super) running: bool,
    /// Of a player: the number of the packet that is next, and the topic that it listens to.
    pub(super) next: u64,
    pub(super) topic: String,
}

/// What carries a media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    Udp(ChannelId),
    Interleaved(Ports<u8>),
}
