//! TURN allocations that are being released. Their PeerConnections have ended.

use measure::Time;

use super::turn_relay::TurnRelay;
use session::{ChannelId, Context, Input, Output};

/// TURN allocations that are being released, and the channels to their servers.
#[derive(Debug, Default)]
pub(super) struct ReleasingRelays(Vec<(ChannelId, Box<TurnRelay>)>);

impl ReleasingRelays {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.0
            .iter()
            .filter_map(|(_, relay)| relay.deadline())
            .min()
    }

    /// Releases the relayed address of a PeerConnection that has ended.
    pub(super) fn release(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        mut relay: Box<TurnRelay>,
    ) {
        relay.release(cx.now);
        self.0.push((channel, relay));
        self.drive(cx);
    }

    /// Handles input of a TURN server.
    pub(super) fn handle(&mut self, cx: &mut Context<'_>, input: &Input<'_>) {
        for (channel, relay) in &mut self.0 {
            match *input {
                Input::Bytes {
                    channel: of, bytes, ..
                } if of == *channel => relay.discard_bytes(cx.now, bytes),
                Input::Datagrams {
                    channel: of,
                    datagrams,
                } if of == *channel => {
                    for datagram in datagrams {
                        relay.discard_frame(cx.now, datagram.bytes);
                    }
                }
                Input::Closed { channel: of, .. } if of == *channel => relay.server_lost(),
                _ => {}
            }
        }
        self.drive(cx);
    }

    /// Handles what is due, and removes what is released.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        self.0.retain_mut(|(channel, relay)| {
            relay.handle_due(cx.now);
            relay.send_pending(cx, *channel, None);
            let is_released = relay.is_released();
            if is_released {
                cx.out.push_back(Output::Close { channel: *channel });
            }
            !is_released
        });
    }

    /// Closes all channels.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        let channels = self.0.drain(..).map(|(channel, _)| channel);
        cx.out
            .extend(channels.map(|channel| Output::Close { channel }));
    }
}
