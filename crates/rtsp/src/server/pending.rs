//! Setups that wait for ports, and the participation of a session in a published stream.

use std::net::IpAddr;

use super::published::{Announcement, StreamAddress};
use super::streams::Carrier;
use crate::codec::Request;
use crate::headers::Ports;
use session::ChannelId;

/// A SETUP that waits for its pair of ports.
#[derive(Debug)]
pub(super) struct PendingSetup {
    pub(super) request: Request,
    pub(super) channel: ChannelId,
    pub(super) media: usize,
    pub(super) kind: SetupKind,
}

/// Stream that is set up.
#[derive(Debug)]
pub(super) enum SetupKind {
    /// A stream of the server's own media.
    Play(PlaySetup),
    /// A published stream, with the client's ports.
    Published(Ports<u16>),
}

/// Setup of a stream of the server's own media.
#[derive(Debug)]
pub(super) struct PlaySetup {
    pub(super) url: String,
    pub(super) path: String,
    pub(super) to: DatagramDestination,
}

/// Destination of a stream's datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) enum DatagramDestination {
    /// Ports of the client, and another address if the client requested one.
    Client(Ports<u16>, Option<IpAddr>),
    /// Multicast group of the stream.
    Group,
}

/// Role of a session in a published stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Publisher,
    Player,
}

/// Participation of a session in a published stream.
#[derive(Debug)]
pub(super) struct RelayParticipant {
    pub(super) role: Role,
    pub(super) id: String,
    pub(super) address: StreamAddress,
    pub(super) announced: Announcement,
    /// Carrier of each track that was set up.
    pub(super) carriers: Vec<(usize, Carrier)>,
    /// True while media is received from the publisher, or sent to the player.
    pub(super) running: bool,
    /// Number of the next packet for a player, and topic of the stream.
    pub(super) next: u64,
    pub(super) topic: String,
}
