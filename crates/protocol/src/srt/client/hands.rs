//! Connection setup of a client: it calls a listener, or both ends call each other.

use measure::Time;

use super::{Client, Phase};
use crate::session::{ChannelId, Context, Datagram};
use crate::srt::codec::stream_id::StreamId;
use crate::srt::config::Mode;
use crate::srt::failure::Failure;
use crate::srt::handshake::{self, Caller, Negotiated, Rendezvous, Settings};

/// Handshake in progress. That of a rendezvous is kept after its end, because it may have to be
/// completed once more.
#[derive(Debug)]
pub(super) enum Hands {
    Caller(Box<Caller>),
    Rendezvous(Box<Rendezvous>),
}

impl Hands {
    pub(super) fn new(
        mode: Mode,
        settings: Settings,
        stream_id: Option<StreamId>,
        now: Time,
    ) -> Hands {
        match mode {
            Mode::Caller => Hands::Caller(Caller::new(settings, stream_id, now).into()),
            Mode::Rendezvous => Hands::Rendezvous(Rendezvous::new(settings, stream_id, now).into()),
        }
    }

    fn handle(&mut self, datagram: &[u8], at: Time) {
        match self {
            Hands::Caller(caller) => caller.handle(datagram, at),
            Hands::Rendezvous(rendezvous) => rendezvous.handle(datagram, at),
        }
    }

    fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        match self {
            Hands::Caller(caller) => caller.write_next(now, out),
            Hands::Rendezvous(rendezvous) => rendezvous.write_next(now, out),
        }
    }

    fn outcome(&mut self) -> Option<Result<Negotiated, handshake::Failure>> {
        match self {
            Hands::Caller(caller) => caller.outcome(),
            Hands::Rendezvous(rendezvous) => rendezvous.outcome(),
        }
    }

    pub(super) fn due(&self) -> Time {
        match self {
            Hands::Caller(caller) => caller.due(),
            Hands::Rendezvous(rendezvous) => rendezvous.due(),
        }
    }

    /// Handshake that is still needed once the connection is established: the peer of a rendezvous
    /// may not know that it is, and repeat its own handshake.
    pub(super) fn when_connected(self) -> Option<Hands> {
        match self {
            Hands::Caller(_) => None,
            Hands::Rendezvous(_) => Some(self),
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
            Mode::Rendezvous => self.url.port(),
        };
        self.url.local_port.unwrap_or(usual)
    }

    /// Handles a datagram that may belong to the handshake; `is_handshake` is true for handshake
    /// packets. Returns `true` if the datagram belongs to the handshake, or arrived too early.
    pub(super) fn is_of_handshake(
        &mut self,
        cx: &mut Context<'_>,
        datagram: &Datagram<'_>,
        is_handshake: bool,
    ) -> bool {
        let (bytes, at) = (datagram.bytes, datagram.at);
        let Some(hands) = &mut self.hands else {
            return false;
        };
        if self.phase == Phase::Handshake {
            hands.handle(bytes, at);
            self.shake_hands(cx, at);
            // Media of a peer that is already connected completes the handshake, and counts as
            // media.
            let stands = matches!(self.phase, Phase::Playing | Phase::Publishing);
            return !stands || is_handshake;
        }
        if !is_handshake {
            return false;
        }
        hands.handle(bytes, at);
        let (now, channel) = (cx.now, self.channel);
        cx.transmit(channel, None, |out| {
            hands.write_next(now, out);
        });
        true
    }

    /// Does the handshake work that is due. `at` is the arrival time of its last datagram.
    pub(super) fn shake_hands(&mut self, cx: &mut Context<'_>, at: Time) {
        let Some(hands) = &mut self.hands else {
            return;
        };
        let (now, channel) = (cx.now, self.channel);
        loop {
            let mut more = false;
            cx.transmit(channel, None, |out| more = hands.write_next(now, out));
            if !more {
                break;
            }
        }
        match hands.outcome() {
            None => {}
            Some(Ok(negotiated)) => self.connected(cx, negotiated, at),
            Some(Err(failure)) => {
                let detail = format!("{failure} ({})", self.ends());
                self.fail(cx, Failure::of_handshake(&failure), detail);
            }
        }
    }

    /// Handles an unreachable port. A rendezvous in its handshake tries again, because the peer may
    /// not have started yet. Returns `false` if the client does not try again.
    pub(super) fn calls_again(&mut self, cx: &mut Context<'_>) -> bool {
        let is_early = self.phase == Phase::Handshake && self.mode() == Mode::Rendezvous;
        if is_early {
            self.channel = ChannelId(self.channel.0 + 1);
            self.open_socket(cx);
        }
        is_early
    }
}
