//! TURN relay of a PeerConnection. The link's socket or connection leads to the TURN server, and
//! this module unwraps what that server relays.

mod relayed_link;

use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;

use super::send;
use super::setup::Setup;
use crate::peer::Peer;
use crate::signalling::PeerNumber;
use crate::turn::{
    Allocation, FrameSplitter, InvalidFrame, RelayChannel, TurnConfig, TurnSettings, TurnTransport,
};
use session::seeds::derive_seed;
use session::{ChannelId, Context, Open, ReadTiming};

/// TURN relay of a link.
#[derive(Debug, Default)]
pub(super) struct TurnRelay {
    /// True if the TURN server is reached over TCP or TLS.
    reliable: bool,
    /// True to request an IPv6 address, as that of the signalling connection is.
    ipv6: bool,
    /// `None` before the server is reached, and after its connection was lost.
    allocation: Option<Allocation>,
    /// Number of messages that the lost allocation had dropped.
    dropped_before: u64,
    frames: FrameSplitter,
    /// Address of the media server, once ICE has selected it.
    remote: Option<SocketAddr>,
    /// TURN channel that is bound to `remote`.
    channel: Option<u16>,
}

impl TurnRelay {
    /// Returns the request for a socket or connection to the TURN server.
    pub(super) fn open(turn: &TurnConfig, timeout: Duration) -> Open {
        let Ok(url) = turn.check() else {
            unreachable!("the keys of a population are checked before its clients are made");
        };
        let (host, port) = (url.host, url.port);
        match url.transport {
            TurnTransport::Udp => Open::UdpToHost {
                host,
                port,
                local_port: 0,
                timeout,
                reading: ReadTiming::AtOnce,
                // Datagrams come from the TURN server, with the media inside.
                media: None,
            },
            TurnTransport::Tcp => Open::Tcp {
                host,
                port,
                timeout,
            },
            TurnTransport::Tls => Open::Tls {
                host,
                port,
                timeout,
                server_name: None,
            },
        }
    }

    pub(super) fn new(reliable: bool, ipv6: bool) -> TurnRelay {
        TurnRelay {
            reliable,
            ipv6,
            ..TurnRelay::default()
        }
    }

    /// Requests a relayed address.
    pub(super) fn request(&mut self, now: Time, setup: &Setup, number: PeerNumber) {
        let Some(turn) = &setup.config.turn else {
            return;
        };
        let settings = TurnSettings {
            user: turn.user.clone(),
            password: turn.password.clone(),
            reliable: self.reliable,
            ipv6: self.ipv6,
            timeout: setup.config.request_timeout.0,
        };
        let seed = derive_seed(&[setup.seed, 32, u64::from(number.0)]);
        self.allocation = Some(Allocation::new(now, settings, seed));
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.allocation.as_ref().and_then(Allocation::deadline)
    }

    /// Number of messages from the TURN server that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped_before + self.allocation.as_ref().map_or(0, Allocation::dropped)
    }

    /// Binds a channel to the address that ICE has selected.
    pub(super) fn bind_channel(&mut self, now: Time, remote: SocketAddr) {
        self.remote = Some(remote);
        if let Some(allocation) = &mut self.allocation {
            allocation.bind(now, remote);
        }
    }

    /// TURN channel for outgoing media. `None` until it is bound.
    pub(super) fn channel(&self) -> Option<RelayChannel> {
        Some(RelayChannel {
            number: self.channel?,
            padded: self.reliable,
        })
    }

    /// Reason that the TURN server gave for permitting none of the server's addresses. `None` if it
    /// permits one.
    pub(super) fn refusal(&self) -> Option<String> {
        let refusal = self.allocation.as_ref()?.refusal()?;
        Some(format!("the TURN server: {refusal}"))
    }

    /// Sends the pending output of the PeerConnection and of the allocation.
    pub(super) fn send_pending(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        peer: Option<&mut Peer>,
    ) {
        let (reliable, now) = (self.reliable, cx.now);
        let Some(allocation) = &mut self.allocation else {
            return;
        };
        if let Some(peer) = peer {
            let mut bytes = Vec::new();
            while let Some(to) = peer.poll_transmit(&mut bytes) {
                send_to_turn(cx, channel, reliable, |out| {
                    allocation.send(now, to, &bytes, out);
                });
                bytes.clear();
            }
        }
        let mut any = true;
        while any {
            send_to_turn(cx, channel, reliable, |out| {
                any = allocation.poll_transmit(out);
            });
        }
    }

    /// Handles what is due. Returns `false` if nothing is.
    pub(super) fn handle_due(&mut self, now: Time) -> bool {
        let due = self.deadline().is_some_and(|due| due <= now);
        if let Some(allocation) = self.allocation.as_mut().filter(|_| due) {
            allocation.handle_timeout(now);
        }
        due
    }

    /// True if nothing is left to release.
    pub(super) fn is_released(&self) -> bool {
        self.allocation.as_ref().is_none_or(Allocation::is_ended)
    }

    /// Requests the release of the relayed address.
    pub(super) fn release(&mut self, now: Time) {
        if let Some(allocation) = &mut self.allocation {
            allocation.close(now);
        }
    }

    /// Drops the allocation, which cannot be released any more.
    pub(super) fn server_lost(&mut self) {
        self.dropped_before = self.dropped();
        self.allocation = None;
    }

    /// Handles a message while the relayed address is released. Data from peers is discarded.
    pub(super) fn discard_frame(&mut self, now: Time, frame: &[u8]) {
        if let Some(allocation) = &mut self.allocation {
            let _ = allocation.handle(now, frame);
        }
    }

    /// Handles bytes of a connection while the relayed address is released.
    pub(super) fn discard_bytes(&mut self, now: Time, bytes: &[u8]) {
        let (mut frames, mut end) = (std::mem::take(&mut self.frames), 0);
        loop {
            match frames.next(bytes, &mut end) {
                Ok(Some((frame, _))) => self.discard_frame(now, frame),
                Ok(None) => break,
                Err(InvalidFrame) => {
                    self.server_lost();
                    break;
                }
            }
        }
        self.frames = frames;
    }
}

/// Sends a message to the TURN server.
fn send_to_turn(
    cx: &mut Context<'_>,
    channel: ChannelId,
    reliable: bool,
    write: impl FnOnce(&mut Vec<u8>),
) {
    if !reliable {
        return cx.transmit(channel, None, write);
    }
    let mut bytes = Vec::new();
    write(&mut bytes);
    if !bytes.is_empty() {
        send(cx, Some(channel), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_messages_count_after_the_server_is_lost() {
        let mut relay = TurnRelay::new(false, false);
        let settings = TurnSettings {
            user: "user".to_owned(),
            password: "password".to_owned(),
            reliable: false,
            ipv6: false,
            timeout: Duration::from_secs(5),
        };
        relay.allocation = Some(Allocation::new(Time::ZERO, settings, 1));
        relay.discard_frame(Time::ZERO, b"not a message of a TURN server");
        assert_eq!(relay.dropped(), 1);
        relay.server_lost();
        assert_eq!(relay.dropped(), 1);
    }
}
