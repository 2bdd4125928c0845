//! WebSocket of a signalling: its handshake and its messages.

use super::{Connection, SignallingAction, SignallingContext};
use crate::failure::Failure;
use kit::http1::Url;
use kit::websocket::{self, ClientHandshake, Limits, Reassembler, Received};
use session::seeds::derive_seed;

/// Client side of a WebSocket.
#[derive(Debug)]
pub(super) struct WebsocketClient {
    /// Handshake, until it is complete.
    upgrade: Option<ClientHandshake>,
    assembly: Reassembler,
    limits: Limits,
    seed: u64,
    /// Number of masks drawn so far.
    masks: u64,
}

impl WebsocketClient {
    /// Creates a WebSocket that accepts messages of up to `length_max` bytes. Random values are
    /// drawn from `seed`.
    pub(super) fn new(length_max: usize, seed: u64) -> WebsocketClient {
        WebsocketClient {
            upgrade: None,
            assembly: Reassembler::default(),
            limits: Limits {
                keep_max: length_max,
                length_max: length_max as u64,
            },
            seed,
            masks: 0,
        }
    }

    /// Sends the request for a WebSocket at `url`, with these subprotocols and header fields.
    pub(super) fn send_upgrade(
        &mut self,
        scope: &mut SignallingContext<'_>,
        url: &Url,
        protocols: &[&str],
        headers: &[(&str, &str)],
    ) {
        let (upgrade, request) = ClientHandshake::begin_with(url, protocols, headers, self.seed);
        self.upgrade = Some(upgrade);
        scope.push(SignallingAction::Send(Connection::First, request));
    }

    /// Handles the server's answer. Returns `true` once it is complete. Bytes after it are left in
    /// `bytes`.
    ///
    /// # Errors
    /// Status and text of the answer, if the server refuses or violates the protocol.
    pub(super) fn handle_upgrade(
        &mut self,
        bytes: &mut &[u8],
    ) -> Result<bool, (Option<u16>, String)> {
        let Some(upgrade) = &mut self.upgrade else {
            return Ok(true);
        };
        match upgrade.read_response(bytes) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.upgrade = None;
                Ok(true)
            }
            Err(why) => Err((upgrade.status(), why)),
        }
    }

    /// Returns the next message in `bytes`, and answers pings.
    ///
    /// # Errors
    /// [`Failure::SignallingClosed`] if the server closed the WebSocket, with a text that names its
    /// code (RFC 6455, 5.5.1); [`Failure::MalformedMessage`] if it violates the protocol.
    pub(super) fn next(
        &mut self,
        scope: &mut SignallingContext<'_>,
        bytes: &mut &[u8],
    ) -> Result<Option<Vec<u8>>, (Failure, String)> {
        loop {
            let received = self.assembly.next(false, &self.limits, bytes);
            match received.map_err(|error| (Failure::MalformedMessage, error.to_string()))? {
                None => return Ok(None),
                Some(Received::Message(frame)) => {
                    return Ok(Some(frame.body.unwrap_or_default().to_vec()));
                }
                Some(Received::Close(code)) => {
                    let code = code.map_or("none".to_owned(), |code| code.to_string());
                    let what = format!("the server closed the WebSocket with code {code}");
                    return Err((Failure::SignallingClosed, what));
                }
                Some(Received::Ping(payload)) => {
                    let payload = payload.to_vec();
                    self.send(scope, websocket::PONG, &payload);
                }
            }
        }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, scope: &mut SignallingContext<'_>, opcode: u8, payload: &[u8]) {
        self.masks += 1;
        let mask = derive_seed(&[self.seed, 21, self.masks]) as u32;
        let mut out = Vec::with_capacity(payload.len() + 14);
        websocket::write_message(opcode, payload, Some(mask), &mut out);
        scope.push(SignallingAction::Send(Connection::First, out));
    }
}
