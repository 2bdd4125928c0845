//! Connection setup of a client: it calls a listener, or both ends call each other.

use measure::Time;

use super::{Client, Phase};
use crate::codec::stream_id::StreamId;
use crate::config::Mode;
use crate::failure::Failure;
use crate::handshake::{Caller, HandshakeFailure, HandshakeSettings, Negotiated, Rendezvous};
use session::{ChannelId, Context, Datagram, Outcome};

/// Handshake in progress. That of a rendezvous is kept after its end, because it may have to be
/// completed once more.
#[derive(Debug)]
pub(super) enum ClientHandshake {
    Caller(Box<Caller>),
    Rendezvous(Box<Rendezvous>),
}

impl ClientHandshake {
    pub(super) fn new(
        mode: Mode,
        settings: HandshakeSettings,
        stream_id: Option<StreamId>,
        now: Time,
    ) -> ClientHandshake {
        match mode {
            Mode::Caller => ClientHandshake::Caller(Caller::new(settings, stream_id, now).into()),
            Mode::Rendezvous => {
                ClientHandshake::Rendezvous(Rendezvous::new(settings, stream_id, now).into())
            }
        }
    }

    fn handle(&mut self, datagram: &[u8], at: Time) {
        match self {
            ClientHandshake::Caller(caller) => caller.handle(datagram, at),
            ClientHandshake::Rendezvous(rendezvous) => rendezvous.handle(datagram, at),
        }
    }

    fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        match self {
            ClientHandshake::Caller(caller) => caller.write_next(now, out),
            ClientHandshake::Rendezvous(rendezvous) => rendezvous.write_next(now, out),
        }
    }

    fn outcome(&mut self) -> Option<Result<Negotiated, HandshakeFailure>> {
        match self {
            ClientHandshake::Caller(caller) => caller.outcome(),
            ClientHandshake::Rendezvous(rendezvous) => rendezvous.outcome(),
        }
    }

    pub(super) fn due(&self) -> Time {
        match self {
            ClientHandshake::Caller(caller) => caller.due(),
            ClientHandshake::Rendezvous(rendezvous) => rendezvous.due(),
        }
    }

    /// Handshake that is still needed once the connection is established: the peer of a rendezvous
    /// may not know that it is, and repeat its own handshake.
    pub(super) fn retained_when_connected(self) -> Option<ClientHandshake> {
        match self {
            ClientHandshake::Caller(_) => None,
            ClientHandshake::Rendezvous(_) => Some(self),
        }
    }
}

impl Client {
    pub(super) fn mode(&self) -> Mode {
        self.url.mode.unwrap_or(self.config.mode)
    }

    /// Local port to bind; 0 for any. The peer of a rendezvous must know it, so the default is then
    /// the peer's port, as in libsrt's programs.
    pub(super) fn local_port(&self) -> u16 {
        let usual = match self.mode() {
            Mode::Caller => 0,
            Mode::Rendezvous => self.url.port,
        };
        self.url.local_port.unwrap_or(usual)
    }

    /// Handles a datagram that may belong to the handshake; `is_handshake` is true for handshake
    /// packets. Returns `true` if the datagram belongs to the handshake, or arrived too early.
    pub(super) fn handle_handshake_datagram(
        &mut self,
        cx: &mut Context<'_>,
        datagram: &Datagram<'_>,
        is_handshake: bool,
    ) -> bool {
        let (bytes, at) = (datagram.bytes, datagram.at);
        let Some(handshake) = &mut self.handshake else {
            return false;
        };
        if self.phase == Phase::Handshake {
            handshake.handle(bytes, at);
            self.advance_handshake(cx, at);
            // Media of a peer that is already connected completes the handshake, and counts as
            // media.
            let is_connected = matches!(self.phase, Phase::Playing | Phase::Publishing);
            return !is_connected || is_handshake;
        }
        if !is_handshake {
            return false;
        }
        handshake.handle(bytes, at);
        let (now, channel) = (cx.now, self.channel);
        cx.transmit(channel, None, |out| {
            handshake.write_next(now, out);
        });
        true
    }

    /// Does the handshake work that is due. `at` is the arrival time of its last datagram.
    pub(super) fn advance_handshake(&mut self, cx: &mut Context<'_>, at: Time) {
        let Some(handshake) = &mut self.handshake else {
            return;
        };
        let (now, channel) = (cx.now, self.channel);
        loop {
            let mut more = false;
            cx.transmit(channel, None, |out| more = handshake.write_next(now, out));
            if !more {
                break;
            }
        }
        match handshake.outcome() {
            None => {}
            Some(Ok(negotiated)) => self.connected(cx, negotiated, at),
            Some(Err(failure)) => {
                let lacks_stream_id = matches!(failure, HandshakeFailure::Rejected(_))
                    && self.url.stream_id.is_none();
                let advice = match lacks_stream_id {
                    true => "; the URL has no stream id: try `?streamid=NAME`",
                    false => "",
                };
                let detail = format!("{failure} ({}){advice}", self.describe_addresses());
                let failure = Failure::from_handshake(&failure).with(detail);
                self.finish(cx, Outcome::Failed(failure));
            }
        }
    }

    /// Handles an unreachable port. A rendezvous in its handshake tries again, because the peer may
    /// not have started yet. Returns `false` if the client does not try again.
    pub(super) fn retry_rendezvous(&mut self, cx: &mut Context<'_>) -> bool {
        let is_early = self.phase == Phase::Handshake && self.mode() == Mode::Rendezvous;
        if is_early {
            self.channel = ChannelId(self.channel.0 + 1);
            self.open_socket(cx);
        }
        is_early
    }
}
