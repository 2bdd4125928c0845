//! A PeerConnection whose media goes through a TURN relay.

use crate::client::link::{LinkResult, PeerLink};
use crate::failure::Failure;
use crate::metrics as m;
use crate::peer::{MEDIA_MARK, PeerState};
use crate::turn::{Allocation, InvalidFrame, TurnEvent, TurnReceived};
use kit::media::rtp::metrics::TIMED_BY_READING;
use session::{Arrival, ArrivalTimes, ChannelError, CloseReason, Context, Datagram};

impl PeerLink {
    /// Handles the loss of the socket or connection to the TURN server, if the link uses one.
    pub(in crate::client) fn relay_closed(&mut self, how: CloseReason) -> LinkResult {
        let was_awaited = self.relay_awaited_since().is_some();
        let Some(relay) = &mut self.relay else {
            return Ok(());
        };
        relay.server_lost();
        let what = match how {
            CloseReason::Reset if was_awaited && !relay.reliable => {
                return Err(self.open_failure(ChannelError::Refused));
            }
            CloseReason::End => "the TURN server closed the connection",
            CloseReason::Reset => "the connection to the TURN server broke",
            CloseReason::SendQueueFull => "the TURN server does not read",
            CloseReason::Tls(_) => "the TURN server aborted TLS",
        };
        Err((Failure::TurnLost, self.describe(what)))
    }

    /// Handles a datagram of the TURN server.
    pub(in crate::client) fn handle_relayed_datagram(
        &mut self,
        cx: &mut Context<'_>,
        datagram: &Datagram<'_>,
    ) {
        let frame = Arrival {
            at: datagram.at,
            bytes: datagram.bytes,
            length: datagram.bytes.len(),
            overhead: if datagram.from.is_ipv4() { 28 } else { 48 },
        };
        self.handle_relayed_frame(cx, &frame, true);
    }

    /// Handles bytes of the TURN server that arrived over TCP or TLS.
    pub(in crate::client) fn handle_relayed_bytes(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        mut times: ArrivalTimes<'_>,
    ) -> LinkResult {
        let Some(relay) = &mut self.relay else {
            return Ok(());
        };
        let (mut frames, mut end) = (std::mem::take(&mut relay.frames), 0);
        let is_valid = loop {
            let (bytes, length) = match frames.next(bytes, &mut end) {
                Ok(Some(frame)) => frame,
                Ok(None) => break true,
                Err(InvalidFrame) => break false,
            };
            let (at, exact) = times.arrival_of(end);
            let frame = Arrival {
                at,
                bytes,
                length: bytes.len(),
                overhead: length - bytes.len(),
            };
            self.handle_relayed_frame(cx, &frame, exact);
        };
        if let Some(relay) = &mut self.relay {
            relay.frames = frames;
            if !is_valid {
                relay.server_lost();
                let what = "the TURN server sent data that is not TURN";
                return Err((Failure::TurnLost, self.describe(what)));
            }
        }
        self.flush(cx)
    }

    /// Handles a message of the TURN server, or a datagram with a ChannelData header. `exact` is
    /// true if the arrival time of the last byte is known.
    fn handle_relayed_frame(&mut self, cx: &mut Context<'_>, frame: &Arrival<'_>, exact: bool) {
        let relay = self.relay.as_mut();
        let Some(allocation) = relay.and_then(|relay| relay.allocation.as_mut()) else {
            return;
        };
        let TurnReceived::Data { peer: from, bytes } = allocation.handle(cx.now, frame.bytes)
        else {
            return;
        };
        let at = frame.at;
        let Some(sink) = self.sink.filter(|_| MEDIA_MARK.matches(bytes)) else {
            return self.handle_datagram(cx, &Datagram { from, at, bytes });
        };
        let arrival = Arrival {
            at,
            bytes,
            length: bytes.len(),
            overhead: frame.overhead + frame.length - bytes.len(),
        };
        if !exact {
            cx.recorder.add(TIMED_BY_READING, 1);
        }
        if let Some(event) = cx.sinks.packet(sink, &arrival, cx.recorder) {
            self.handle_media_event(cx, event);
        }
    }

    /// Handles the events of the allocation.
    pub(in crate::client) fn handle_relay_events(&mut self, cx: &mut Context<'_>) -> LinkResult {
        while let Some(relay) = &mut self.relay
            && let Some(event) = relay.allocation.as_mut().and_then(Allocation::poll_event)
        {
            match event {
                TurnEvent::Allocated { relayed } => {
                    let requested_at = std::mem::replace(&mut self.requested_at, cx.now);
                    cx.recorder
                        .record_duration(m::TURN_DELAY, cx.now.since(requested_at));
                    self.start(cx, relayed)?;
                }
                TurnEvent::Bound { peer, channel } if relay.remote == Some(peer) => {
                    relay.channel = Some(channel);
                    let channel = relay.channel();
                    self.outgoing_media.set_turn_channel(channel, cx.flows);
                    // The link is connected now if only the channel was missing.
                    let state = self.peer.as_ref().map(|peer| peer.state());
                    if state == Some(PeerState::Connected) {
                        self.connected(cx)?;
                    }
                }
                TurnEvent::Bound { .. } => {}
                TurnEvent::Failed((failure, text)) => {
                    return Err((failure, self.describe(&format!("the TURN server: {text}"))));
                }
            }
        }
        Ok(())
    }
}
