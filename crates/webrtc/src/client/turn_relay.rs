//! TURN relay of a PeerConnection. The link's socket or connection leads to the TURN server, and
//! this module unwraps what that server relays.

use std::net::SocketAddr;

use measure::Time;

use super::{Client, Phase, record_delay};
use crate::failure::Failure;
use crate::metrics as m;
use crate::peer::{MEDIA_MARK, Peer, PeerState};
use crate::turn::{
    Allocation, FrameSplitter, InvalidFrame, RelayChannel, TurnEvent, TurnFailure, TurnReceived,
    TurnSettings, TurnTransport,
};
use kit::media::rtp::metrics as rtp;
use session::{
    Arrival, ArrivalTimes, ChannelError, ChannelId, CloseReason, Context, Datagram, Input,
    MediaEvent, Open, Output, Port, ReadTiming,
};

/// TURN relay of a link.
#[derive(Debug)]
pub(super) struct TurnRelay {
    /// True if the TURN server is reached over TCP or TLS.
    reliable: bool,
    /// `None` before the server is reached, and after its connection was lost.
    allocation: Option<Allocation>,
    frames: FrameSplitter,
    /// Address of the media server, once ICE has selected it.
    remote: Option<SocketAddr>,
    /// TURN channel that is bound to `remote`.
    channel: Option<u16>,
}

impl TurnRelay {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.allocation.as_ref().and_then(Allocation::deadline)
    }

    /// Number of messages from the TURN server that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.allocation.as_ref().map_or(0, Allocation::dropped)
    }

    /// Binds a channel to the address that ICE has selected.
    pub(super) fn bind_channel(&mut self, now: Time, remote: SocketAddr) {
        self.remote = Some(remote);
        if let Some(allocation) = &mut self.allocation {
            allocation.bind(now, remote);
        }
    }
}

impl TurnRelay {
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

    /// True if nothing is left to release.
    fn is_released(&self) -> bool {
        self.allocation.as_ref().is_none_or(Allocation::is_ended)
    }

    /// Releases the relayed address.
    fn release(&mut self, cx: &mut Context<'_>, channel: ChannelId) {
        if let Some(allocation) = &mut self.allocation {
            allocation.close(cx.now);
        }
        self.send_pending(cx, channel, None);
    }
}

/// TURN allocation that is being released. Its PeerConnection has ended.
#[derive(Debug)]
pub(super) struct ReleasingRelay {
    channel: ChannelId,
    relay: Box<TurnRelay>,
}

impl ReleasingRelay {
    pub(super) fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.relay.deadline()
    }

    fn frame(&mut self, now: Time, frame: &[u8]) {
        if let Some(allocation) = &mut self.relay.allocation {
            // Data from peers is discarded.
            let _ = allocation.handle(now, frame);
        }
    }

    fn bytes(&mut self, now: Time, bytes: &[u8]) {
        let (mut frames, mut end) = (std::mem::take(&mut self.relay.frames), 0);
        loop {
            match frames.next(bytes, &mut end) {
                Ok(Some((frame, _))) => self.frame(now, frame),
                Ok(None) => break,
                Err(InvalidFrame) => {
                    self.relay.allocation = None;
                    break;
                }
            }
        }
        self.relay.frames = frames;
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
        cx.out.push_back(Output::Send {
            channel,
            port: Port::Media,
            bytes,
        });
    }
}

impl Client {
    /// Opens the socket or connection of the newest PeerConnection to the TURN server.
    pub(super) fn open_relay(&mut self, cx: &mut Context<'_>, channel: ChannelId) {
        let Some(Ok(url)) = self.setup.config.turn.as_ref().map(|turn| turn.check()) else {
            unreachable!("the keys of a population are checked before its clients are made");
        };
        let (host, port, timeout) = (url.host, url.port, self.setup.config.connect_timeout.0);
        let open = match url.transport {
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
        };
        if let Some(link) = self.links.last_mut() {
            link.relay = Some(Box::new(TurnRelay {
                reliable: url.transport != TurnTransport::Udp,
                allocation: None,
                frames: FrameSplitter::default(),
                remote: None,
                channel: None,
            }));
        }
        cx.out.push_back(Output::Open { channel, open });
    }

    /// Requests a relayed address, of the address family of the signalling connection.
    pub(super) fn relay_opened(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        let (Some(turn), Some(relay)) = (&self.setup.config.turn, &mut link.relay) else {
            return;
        };
        let settings = TurnSettings {
            user: turn.user.clone(),
            password: turn.password.clone(),
            reliable: relay.reliable,
            ipv6: self.local.is_some_and(|local| local.is_ipv6()),
            timeout: self.setup.config.request_timeout.0,
        };
        let seed = session::seeds::derive_seed(&[self.setup.seed, 32, u64::from(link.number.0)]);
        relay.allocation = Some(Allocation::new(cx.now, settings, seed));
        self.flush_peer(cx, at);
    }

    /// Handles the loss of the socket or connection to the TURN server.
    pub(super) fn relay_closed(&mut self, cx: &mut Context<'_>, at: usize, how: CloseReason) {
        let is_leaving = self.is_leaving();
        let link = &mut self.links[at];
        let was_awaited = link.relay_awaited_since().is_some();
        let Some(relay) = link.relay.as_mut().filter(|_| !is_leaving) else {
            return;
        };
        // The address cannot be released any more.
        relay.allocation = None;
        if was_awaited && how == CloseReason::Reset && !relay.reliable {
            return self.link_open_failed(cx, at, ChannelError::Refused);
        }
        let what = match how {
            CloseReason::End => "the TURN server closed the connection",
            CloseReason::Reset => "the connection to the TURN server broke",
            CloseReason::SendQueueFull => "the TURN server does not read",
            CloseReason::Tls(_) => "the TURN server aborted TLS",
        };
        let detail = self.describe_link(at, what);
        self.fail(cx, Failure::TurnLost, detail);
    }

    /// Handles a datagram of the TURN server.
    pub(super) fn relayed_datagram(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        datagram: &Datagram<'_>,
    ) {
        let headers = if datagram.from.is_ipv4() { 28 } else { 48 };
        self.relayed_frame(cx, at, datagram.bytes, (datagram.at, true), headers);
    }

    /// Handles bytes of the TURN server that arrived over TCP or TLS.
    pub(super) fn relayed_bytes(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        bytes: &[u8],
        mut times: ArrivalTimes<'_>,
    ) {
        let link = &mut self.links[at];
        let (number, channel) = (link.number, link.channel);
        let Some(relay) = &mut link.relay else {
            return;
        };
        let mut frames = std::mem::take(&mut relay.frames);
        let mut end = 0;
        loop {
            match frames.next(bytes, &mut end) {
                Ok(Some((frame, length))) => {
                    let arrival = times.arrival_of(end);
                    self.relayed_frame(cx, at, frame, arrival, length - frame.len());
                    let link = self.links.get(at);
                    if self.phase == Phase::Ended || link.is_none_or(|link| link.number != number) {
                        // The answer to the release may follow in the same read.
                        let mut releasing = self.releasing_relays.iter_mut();
                        if let Some(released) = releasing.find(|own| own.channel == channel) {
                            released.relay.frames = frames;
                            released.bytes(cx.now, &bytes[end..]);
                            self.drive_releasing_relays(cx);
                        }
                        return;
                    }
                }
                Ok(None) => break,
                Err(InvalidFrame) => {
                    if let Some(relay) = &mut self.links[at].relay {
                        relay.allocation = None;
                    }
                    let detail =
                        self.describe_link(at, "the TURN server sent data that is not TURN");
                    return self.fail(cx, Failure::TurnLost, detail);
                }
            }
        }
        if let Some(relay) = &mut self.links[at].relay {
            relay.frames = frames;
        }
        self.flush_peer(cx, at);
    }

    /// Handles a message of the TURN server, or a datagram with a ChannelData header.
    /// `frame_overhead` is the number of bytes that it had on the wire besides `frame`: headers of
    /// IP and UDP, or padding.
    fn relayed_frame(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        frame: &[u8],
        (arrived_at, exact): (Time, bool),
        frame_overhead: usize,
    ) {
        let link = &mut self.links[at];
        let relay = link.relay.as_mut();
        let Some(allocation) = relay.and_then(|relay| relay.allocation.as_mut()) else {
            return;
        };
        let TurnReceived::Data { peer: from, bytes } = allocation.handle(cx.now, frame) else {
            return;
        };
        let Some(sink) = link.sink.filter(|_| MEDIA_MARK.matches(bytes)) else {
            let at_peer = Datagram {
                from,
                at: arrived_at,
                bytes,
            };
            return self.datagram(cx, at, &at_peer);
        };
        let arrival = Arrival {
            at: arrived_at,
            bytes,
            length: bytes.len(),
            overhead: frame_overhead + frame.len() - bytes.len(),
        };
        if !exact {
            cx.recorder.add(rtp::TIMED_BY_READING, 1);
        }
        match cx.sinks.packet(sink, &arrival, cx.recorder) {
            Some(MediaEvent::First { at }) => self.media_began(cx, sink, at),
            Some(MediaEvent::FeedbackDue { .. }) => self.request_missing_now(cx, sink),
            Some(MediaEvent::FirstTransportNumber) => self.send_feedback_now(cx, sink),
            _ => {}
        }
    }

    /// Releases the relayed address of a PeerConnection that has ended.
    pub(super) fn release_relay(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        mut relay: Box<TurnRelay>,
    ) {
        relay.release(cx, channel);
        self.releasing_relays
            .push(ReleasingRelay { channel, relay });
        self.drive_releasing_relays(cx);
    }

    /// Handles what is due while relayed addresses are released, and removes those that are
    /// released.
    pub(super) fn drive_releasing_relays(&mut self, cx: &mut Context<'_>) {
        for releasing in &mut self.releasing_relays {
            if let Some(allocation) = &mut releasing.relay.allocation
                && allocation.deadline().is_some_and(|due| due <= cx.now)
            {
                allocation.handle_timeout(cx.now);
            }
            releasing.relay.send_pending(cx, releasing.channel, None);
        }
        let out = &mut cx.out;
        self.releasing_relays.retain(|releasing| {
            let is_released = releasing.relay.is_released();
            if is_released {
                let channel = releasing.channel;
                out.push_back(Output::Close { channel });
            }
            !is_released
        });
        if self.signalling.has_ended && self.releasing_relays.is_empty() {
            self.finish(cx);
        }
    }

    /// Passes input from a TURN server to an allocation that is being released.
    pub(super) fn pass_to_releasing_relay(&mut self, cx: &mut Context<'_>, input: &Input<'_>) {
        let channel = match input {
            Input::Bytes { channel, .. }
            | Input::Datagrams { channel, .. }
            | Input::Closed { channel, .. } => *channel,
            _ => return,
        };
        let mut releasing = self.releasing_relays.iter_mut();
        let Some(released) = releasing.find(|own| own.channel == channel) else {
            return;
        };
        match input {
            Input::Datagrams { datagrams, .. } => {
                for datagram in *datagrams {
                    released.frame(cx.now, datagram.bytes);
                }
            }
            Input::Bytes { bytes, .. } => released.bytes(cx.now, bytes),
            _ => released.relay.allocation = None,
        }
        self.drive_releasing_relays(cx);
    }

    /// Handles what is due at the TURN server. Returns `true` if the PeerConnection has ended.
    pub(super) fn due_relay(&mut self, cx: &mut Context<'_>, at: usize) -> bool {
        let link = &mut self.links[at];
        let number = link.number;
        let relay = link.relay.as_mut();
        if let Some(allocation) = relay.and_then(|relay| relay.allocation.as_mut())
            && allocation.deadline().is_some_and(|due| due <= cx.now)
        {
            allocation.handle_timeout(cx.now);
            self.flush_peer(cx, at);
        }
        let link = self.links.get(at);
        self.phase == Phase::Ended || link.is_none_or(|own| own.number != number)
    }

    /// Handles the events of the allocation.
    pub(super) fn relay_events(&mut self, cx: &mut Context<'_>, at: usize) {
        while let Some(relay) = self.links.get_mut(at).and_then(|link| link.relay.as_mut())
            && let Some(event) = relay.allocation.as_mut().and_then(Allocation::poll_event)
        {
            match event {
                TurnEvent::Allocated { relayed } => {
                    let link = &mut self.links[at];
                    let requested_at = std::mem::replace(&mut link.requested_at, cx.now);
                    let waited = cx.now.since(requested_at);
                    record_delay(cx, m::TURN_DELAY, waited);
                    self.link_opened(cx, at, relayed);
                }
                TurnEvent::Bound { peer, channel } => {
                    if relay.remote == Some(peer) {
                        relay.channel = Some(channel);
                        self.channel_bound(cx, at);
                    }
                }
                TurnEvent::Failed(failure) => {
                    let reason = match failure {
                        TurnFailure::Refused(_) => Failure::TurnRefused,
                        TurnFailure::Unauthorized(_) => Failure::TurnUnauthorized,
                        TurnFailure::TimedOut(_) => Failure::TurnTimeout,
                        TurnFailure::Lost(_) => Failure::TurnLost,
                    };
                    let what = format!("the TURN server: {}", failure.text());
                    let detail = self.describe_link(at, &what);
                    return self.fail(cx, reason, detail);
                }
            }
            if self.is_leaving() {
                return;
            }
        }
    }

    /// Sends media over the bound channel. The PeerConnection is connected now if only the channel
    /// was missing.
    fn channel_bound(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        let channel = link.relay_channel();
        link.outgoing_media.set_turn_channel(channel, cx.flows);
        let state = link.peer.as_ref().map(|peer| peer.state());
        if link.connected_at.is_none() && state == Some(PeerState::Connected) {
            self.link_connected(cx, at);
        }
    }
}
