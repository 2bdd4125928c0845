//! WebSocket of a signalling: its handshake and its messages.

use super::{Scope, Wanted};
use crate::http1::Url;
use crate::mix::mix;
use crate::websocket::{self, Assembly, Item, Limits, Malformed, Upgrade};

/// Client side of a WebSocket.
#[derive(Debug)]
pub(super) struct Socket {
    /// Handshake, until it is complete.
    upgrade: Option<Upgrade>,
    assembly: Assembly,
    limits: Limits,
    seed: u64,
    /// Number of masks drawn so far.
    masks: u64,
}

/// Message or close that arrived on a WebSocket.
#[derive(Debug)]
pub(super) enum Came {
    Message(Vec<u8>),
    /// Close with its code (RFC 6455, 5.5.1).
    Close(Option<u16>),
}

impl Socket {
    /// Creates a WebSocket that accepts messages of up to `longest` bytes. Random values are drawn
    /// from `seed`.
    pub(super) fn new(longest: usize, seed: u64) -> Socket {
        Socket {
            upgrade: None,
            assembly: Assembly::default(),
            limits: Limits {
                keep: longest,
                longest: longest as u64,
            },
            seed,
            masks: 0,
        }
    }

    /// Sends the request for a WebSocket at `url`.
    pub(super) fn begin(&mut self, scope: &mut Scope<'_>, url: &Url, authorization: String) {
        let (upgrade, request) = Upgrade::begin_as(url, &[], Some(authorization), self.seed);
        self.upgrade = Some(upgrade);
        scope.want(Wanted::Send(request));
    }

    /// Handles the server's answer. Returns `true` once it is complete. Bytes after it are left in
    /// `bytes`.
    ///
    /// # Errors
    /// Status and text of the answer, if the server refuses or violates the protocol.
    pub(super) fn answered(&mut self, bytes: &mut &[u8]) -> Result<bool, (Option<u16>, String)> {
        let Some(upgrade) = &mut self.upgrade else {
            return Ok(true);
        };
        match upgrade.answered(bytes) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.upgrade = None;
                Ok(true)
            }
            Err(why) => Err((upgrade.status(), why)),
        }
    }

    /// Returns the next message or close in `bytes`, and answers pings.
    ///
    /// # Errors
    /// [`Malformed`] if the server violates the protocol.
    pub(super) fn next(
        &mut self,
        scope: &mut Scope<'_>,
        bytes: &mut &[u8],
    ) -> Result<Option<Came>, Malformed> {
        loop {
            match self.assembly.next(false, &self.limits, bytes)? {
                None => return Ok(None),
                Some(Item::Frame(frame)) => {
                    let body = frame.body.unwrap_or_default().to_vec();
                    return Ok(Some(Came::Message(body)));
                }
                Some(Item::Close(code)) => return Ok(Some(Came::Close(code))),
                Some(Item::Ping(payload)) => {
                    let payload = payload.to_vec();
                    self.send(scope, websocket::PONG, &payload);
                }
            }
        }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, scope: &mut Scope<'_>, opcode: u8, payload: &[u8]) {
        self.masks += 1;
        let mask = mix(&[self.seed, 21, self.masks]) as u32;
        let mut out = Vec::with_capacity(payload.len() + 14);
        websocket::write_message(opcode, payload, Some(mask), &mut out);
        scope.want(Wanted::Send(out));
    }
}
