//! The conversation with the server: the connection, outstanding requests, and facts that the
//! server has stated.

use std::net::SocketAddr;

use kit::auth::Authenticator;
use kit::lifecycle::Addresses;
use measure::Time;
use session::ChannelId;

use super::request::Pending;
use super::server_hints::ServerHints;
use super::tunnel::Tunnel;
use crate::codec::Decoder;
use crate::headers::SessionHeader as SessionId;
use crate::url::Url;

/// State of the conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) auth: Authenticator,
    pub(super) connection: Connection,
    /// Number of the next channel.
    pub(super) next_channel: u32,
    pub(super) redirects: u32,
    pub(super) decoder: Decoder,
    pub(super) cseq: u32,
    /// Bytes received instead of an answer. `None` after the first answer.
    pub(super) early_bytes: Option<Box<EarlyBytes>>,
    pub(super) pending: Vec<Pending>,
    /// True if the server is known to support GET_PARAMETER.
    pub(super) supports_get_parameter: bool,
    /// Session named by the server.
    pub(super) session: Option<SessionId>,
    /// True if the session was named before SETUP. A session named by SETUP replaces it.
    pub(super) session_is_early: bool,
    /// Statements of the server that explain the end.
    pub(super) server_hints: ServerHints,
    /// Due time of the next keep-alive.
    pub(super) keep_alive_due: Option<Time>,
}

impl Conversation {
    /// A conversation that has not begun, with the credentials in `url`.
    pub(super) fn new(url: &Url, seed: u64) -> Conversation {
        Conversation {
            auth: Authenticator::new(url.credentials().cloned(), seed),
            connection: Connection {
                channel: ChannelId(0),
                open: false,
                ends: None,
                tunnel: None,
            },
            next_channel: 0,
            redirects: 0,
            decoder: Decoder::new(),
            // RFC 2326, 12.17 allows any first number; 1 is easiest to read in captures.
            cseq: 1,
            early_bytes: None,
            pending: Vec::new(),
            supports_get_parameter: false,
            session: None,
            session_is_early: false,
            server_hints: ServerHints::default(),
            keep_alive_due: None,
        }
    }
}

/// The connection to the server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: ChannelId,
    /// True while the connection is open or being opened.
    pub(super) open: bool,
    /// Local and remote address, once the connection is open.
    pub(super) ends: Option<Addresses>,
    /// Tunnel that the connection is part of.
    pub(super) tunnel: Option<Tunnel>,
}

impl Connection {
    /// Returns the remote address, if it is known.
    pub(super) fn remote(&self) -> Option<SocketAddr> {
        self.ends.and_then(|(_, remote)| remote)
    }

    /// Returns the deadline of the tunnel's answer, if one is awaited.
    pub(super) fn tunnel_deadline(&self) -> Option<Time> {
        self.tunnel.as_ref()?.deadline
    }
}

/// Bytes received on a connection before its first answer.
#[derive(Debug, Default)]
pub(super) struct EarlyBytes {
    /// Number of bytes that are neither message nor packet.
    pub(super) useless: u64,
    /// First bytes received.
    pub(super) first: Vec<u8>,
}

/// Maximum length of [`EarlyBytes::first`].
pub(super) const EARLY_BYTES_KEPT: usize = 40;
