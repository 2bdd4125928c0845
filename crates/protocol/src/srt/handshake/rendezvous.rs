//! Rendezvous (SRT, 4.3.2): both ends call each other. Their cookies decide which end is the
//! initiator, which sends the requests and the key; the other end is the responder.

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::failure::Failure;
use super::negotiated::Negotiated;
use super::parts::{self, AGAIN, Said};
use super::settings::Settings;
use crate::srt::codec::handshake::{HandshakeError, Kind, VERSION_5};
use crate::srt::codec::packet::{Control, Packet};
use crate::srt::codec::stream_id::StreamId;
use crate::srt::crypto::Offer;

/// Role in the exchange of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Initiator,
    Responder,
}

/// State of the handshake (SRT, 4.3.2; the names are libsrt's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No handshake was received.
    Waving,
    /// The peer's wave-a-hand was received.
    Attention,
    /// The peer's conclusion was received before its wave-a-hand.
    Fine,
    /// The responder has answered, and waits for the agreement.
    Initiated,
    Connected,
    Failed,
}

/// One end of a rendezvous.
pub struct Rendezvous {
    settings: Settings,
    stream_id: Option<StreamId>,
    state: State,
    cookie: u32,
    /// `None` until the peer's cookie is known.
    role: Option<Role>,
    /// Socket id of the peer; 0 until it is known.
    peer: u32,
    /// Handshake that is sent repeatedly, without its header.
    cif: Vec<u8>,
    next: Time,
    /// Handshake that is sent once, without delay.
    once: Option<Vec<u8>>,
    offer: Option<Offer>,
    /// Responder: parameters that take effect with the agreement.
    held: Option<Negotiated>,
    deadline: Time,
    malformed: Option<HandshakeError>,
    outcome: Option<Result<Negotiated, Failure>>,
}

impl std::fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendezvous")
            .field("state", &self.state)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// Compares cookies by the sign of their 32-bit difference, as libsrt does. Returns `None` if they
/// are equal.
fn contest(own: u32, peer: u32) -> Option<Role> {
    match own.wrapping_sub(peer).cast_signed() {
        0 => None,
        // The distance is the same in both directions, so the signs decide.
        i32::MIN if own.cast_signed() > peer.cast_signed() => Some(Role::Initiator),
        ..0 => Some(Role::Responder),
        _ => Some(Role::Initiator),
    }
}

impl Rendezvous {
    /// Starts a handshake at `now`.
    pub fn new(settings: Settings, stream_id: Option<StreamId>, now: Time) -> Rendezvous {
        // Independent of the numbers from which keys are derived.
        let mut random = Pcg64::seed_from_u64(!settings.seed);
        let cookie = random.next_u32().max(1);
        let mut cif = Vec::new();
        parts::fixed(&settings, Kind::WaveAHand, cookie).write(&mut cif);
        Rendezvous {
            deadline: now + settings.timeout,
            settings,
            stream_id,
            state: State::Waving,
            cookie,
            role: None,
            peer: 0,
            cif,
            next: now,
            once: None,
            offer: None,
            held: None,
            malformed: None,
            outcome: None,
        }
    }

    /// Handles a datagram. Datagrams for other sockets and unexpected ones are ignored.
    pub fn handle(&mut self, datagram: &[u8], at: Time) {
        let Ok(packet) = Packet::parse(datagram) else {
            return;
        };
        let own = self.settings.socket_id;
        match packet {
            Packet::Control(header, Control::Handshake(cif))
                if header.destination == own || header.destination == 0 =>
            {
                match Said::read(header, cif, at) {
                    Ok(said) => self.hear(&said, at),
                    Err(error) => self.malformed(error),
                }
            }
            Packet::Control(header, Control::Shutdown) if header.destination == own => {
                if self.is_under_way() {
                    self.fail(Failure::Shutdown);
                }
            }
            // A peer that sends anything else is connected: its agreement was lost.
            Packet::Control(header, _) if header.destination == own => self.agreed(),
            Packet::Data(header, _) if header.destination == own => self.agreed(),
            Packet::Control(..) | Packet::Data(..) => {}
        }
    }

    fn malformed(&mut self, error: HandshakeError) {
        self.malformed.get_or_insert(error);
    }

    fn hear(&mut self, said: &Said, at: Time) {
        let fixed = &said.fixed;
        match self.state {
            State::Failed => return,
            State::Connected => {
                // The peer did not receive the agreement.
                if fixed.kind == Kind::Conclusion && fixed.socket_id == self.peer {
                    self.once = Some(self.agreement());
                }
                return;
            }
            _ => {}
        }
        if let Kind::Rejected(rejection) = fixed.kind {
            let has_passphrase = self.settings.secret.is_some();
            return self.fail(Failure::of_rejection(rejection, has_passphrase));
        }
        if fixed.version < VERSION_5 {
            return self.fail(Failure::Version(fixed.version));
        }
        if let Err(error) = fixed.check() {
            return self.malformed(error);
        }
        if self.peer == 0 && !self.meet(said) {
            return;
        }
        if fixed.socket_id != self.peer {
            return;
        }
        match self.role {
            Some(Role::Initiator) => self.initiate(said, at),
            Some(Role::Responder) => self.respond(said, at),
            None => {}
        }
    }

    /// Handles the first handshake of the peer, whose cookie decides the roles. Returns `false` if
    /// the handshake is unusable.
    fn meet(&mut self, said: &Said) -> bool {
        let fixed = &said.fixed;
        let out_of_turn = HandshakeError::OutOfTurn(fixed.kind.to_wire());
        if !matches!(fixed.kind, Kind::WaveAHand | Kind::Conclusion) {
            self.malformed(out_of_turn);
            return false;
        }
        let Some(role) = contest(self.cookie, fixed.cookie) else {
            self.reject(Failure::CookieDraw);
            return false;
        };
        self.peer = fixed.socket_id;
        self.role = Some(role);
        let mut conclusion = parts::fixed(&self.settings, Kind::Conclusion, self.cookie);
        conclusion.encryption = parts::advertised(&self.settings);
        self.cif.clear();
        if role == Role::Responder {
            conclusion.write(&mut self.cif);
            return true;
        }
        let secret = self.settings.secret.as_ref();
        self.offer = secret.map(|secret| Offer::new(secret, self.settings.seed));
        let (offer, stream_id) = (self.offer.as_ref(), self.stream_id.as_ref());
        self.cif = parts::request(&self.settings, self.cookie, offer, stream_id);
        true
    }

    /// Initiator: sends its requests until they are answered.
    fn initiate(&mut self, said: &Said, at: Time) {
        let answered = said.response.is_some();
        match said.fixed.kind {
            Kind::Conclusion | Kind::Agreement if answered => {
                let concluded = parts::conclude(said, &self.settings, &mut self.offer);
                match concluded {
                    Ok(negotiated) => {
                        self.once = Some(self.agreement());
                        self.connect(negotiated);
                    }
                    Err(failure) => self.reject(failure),
                }
            }
            Kind::WaveAHand | Kind::Conclusion => {
                self.advance(said.fixed.kind);
                self.next = at;
            }
            // An agreement without responses is ignored, and the requests are repeated.
            _ => {}
        }
    }

    /// Responder: answers requests, and waits for the agreement.
    fn respond(&mut self, said: &Said, at: Time) {
        match said.fixed.kind {
            Kind::Conclusion if self.held.is_some() => self.next = at,
            Kind::Conclusion if said.request.is_some() => {
                match parts::respond(said, &self.settings, self.cookie) {
                    Ok((negotiated, cif)) => {
                        self.advance(Kind::Conclusion);
                        (self.held, self.cif, self.next) = (Some(negotiated), cif, at);
                    }
                    Err(failure) => self.reject(failure),
                }
            }
            // A wave-a-hand, or a conclusion without requests.
            Kind::WaveAHand | Kind::Conclusion if self.held.is_none() => {
                if said.fixed.kind == Kind::WaveAHand {
                    self.advance(Kind::WaveAHand);
                }
                self.next = at;
            }
            Kind::Agreement => self.agreed(),
            _ => {}
        }
    }

    fn advance(&mut self, heard: Kind) {
        self.state = match (self.state, heard, self.role) {
            (State::Waving, Kind::WaveAHand, _) => State::Attention,
            (State::Waving, Kind::Conclusion, _) => State::Fine,
            (State::Attention, Kind::Conclusion, Some(Role::Responder)) => State::Initiated,
            (same, ..) => same,
        };
    }

    /// Connects the responder, because the initiator is connected.
    fn agreed(&mut self) {
        if let Some(negotiated) = self.held.take() {
            self.connect(negotiated);
        }
    }

    fn agreement(&self) -> Vec<u8> {
        let mut cif = Vec::new();
        parts::fixed(&self.settings, Kind::Agreement, self.cookie).write(&mut cif);
        cif
    }

    fn connect(&mut self, negotiated: Negotiated) {
        self.state = State::Connected;
        let own = self.stream_id.clone();
        let stream_id = negotiated.stream_id.clone().or(own);
        self.outcome = Some(Ok(Negotiated {
            stream_id,
            ..negotiated
        }));
    }

    fn fail(&mut self, failure: Failure) {
        self.state = State::Failed;
        // An agreement that arrives now is too late.
        self.held = None;
        self.outcome = Some(Err(failure));
    }

    /// Fails, and sends a rejection to the peer.
    fn reject(&mut self, failure: Failure) {
        let mut cif = Vec::new();
        let kind = Kind::Rejected(failure.rejection());
        parts::fixed(&self.settings, kind, self.cookie).write(&mut cif);
        self.once = Some(cif);
        self.fail(failure);
    }

    fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Connected | State::Failed)
    }

    /// Appends the datagram that is due. Returns `false` if none is due. The handshake fails after
    /// its deadline. Must also be called after the outcome while the connection is young, because a
    /// final datagram may be due.
    pub fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let clock = self.settings.clock;
        if let Some(cif) = self.once.take() {
            parts::send(clock, now, self.peer, &cif, out);
            return true;
        }
        if !self.is_under_way() {
            return false;
        }
        if now >= self.deadline {
            let heard = self.peer != 0;
            self.fail(match self.malformed {
                Some(error) => Failure::Malformed(error),
                None => Failure::TimedOut { heard },
            });
            return false;
        }
        if now < self.next {
            return false;
        }
        self.next = now + AGAIN;
        parts::send(clock, now, self.peer, &self.cif, out);
        true
    }

    /// Time of the next call to [`Rendezvous::write_next`].
    pub fn due(&self) -> Time {
        match (&self.once, self.is_under_way()) {
            (Some(_), _) => Time::ZERO,
            (None, true) => self.next.min(self.deadline),
            (None, false) => Time::NEVER,
        }
    }

    /// Returns the outcome, once.
    pub fn outcome(&mut self) -> Option<Result<Negotiated, Failure>> {
        self.outcome.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::network::settings;
    use super::*;
    use crate::srt::codec::packet::ControlHeader;

    #[test]
    fn agreement_after_the_timeout_is_ignored() {
        let start = Time::ZERO;
        let mut ends = [1, 2].map(|id| Rendezvous::new(settings(id, id.into()), None, start));
        // Agreements are not delivered.
        let mut agreement = Vec::new();
        for round in 0..8 {
            let (from, to) = (round % 2, 1 - round % 2);
            let mut said = Vec::new();
            while ends[from].write_next(start, &mut said) {
                if ends[from].state == State::Connected {
                    agreement = said.clone();
                } else {
                    ends[to].handle(&said, start);
                }
                said.clear();
            }
        }
        let responder = ends
            .iter_mut()
            .find(|end| end.role == Some(Role::Responder));
        let responder = responder.unwrap();
        responder.write_next(start + Duration::from_secs(3), &mut Vec::new());
        let timed_out = Failure::TimedOut { heard: true };
        assert_eq!(responder.outcome().unwrap().unwrap_err(), timed_out);
        assert!(!agreement.is_empty());
        responder.handle(&agreement, start + Duration::from_secs(3));
        assert!(responder.outcome().is_none());
    }

    #[test]
    fn rendezvous_ends_once() {
        let mut end = Rendezvous::new(settings(1, 1), None, Time::ZERO);
        let mut shutdown = Vec::new();
        let header = ControlHeader {
            timestamp: 0,
            destination: 1,
        };
        Control::Shutdown.write(header, &mut shutdown);
        end.handle(&shutdown, Time::ZERO);
        assert_eq!(end.outcome().unwrap().unwrap_err(), Failure::Shutdown);
        end.handle(&shutdown, Time::ZERO);
        assert!(end.outcome().is_none());
    }

    #[test]
    fn cookies_decide_as_in_libsrt() {
        assert_eq!(contest(5, 3), Some(Role::Initiator));
        assert_eq!(contest(3, 5), Some(Role::Responder));
        assert_eq!(contest(7, 7), None);
        // The difference exceeds 31 bits: the lower cookie, as a signed number, initiates. At
        // exactly 2^31 the higher one does.
        assert_eq!(contest(0x8000_0001, 0x7fff_fff0), Some(Role::Initiator));
        assert_eq!(contest(0x7fff_fff0, 0x8000_0001), Some(Role::Responder));
        assert_eq!(contest(0x8000_0000, 0), Some(Role::Responder));
        assert_eq!(contest(0, 0x8000_0000), Some(Role::Initiator));
    }

    proptest::proptest! {
        #[test]
        fn exactly_one_end_is_the_initiator(own: u32, peer: u32) {
            let roles = (contest(own, peer), contest(peer, own));
            proptest::prop_assert_eq!(roles.0 == roles.1, own == peer);
        }
    }
}
