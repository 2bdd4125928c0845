//! Rendezvous (SRT, 4.3.2): both ends call each other. Their cookies decide which end is the
//! initiator, which sends the requests and the key; the other end is the responder.

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::conclusion::{self, RETRY_INTERVAL, ReceivedHandshake};
use super::failure::HandshakeFailure;
use super::negotiated::Negotiated;
use super::settings::HandshakeSettings;
use crate::codec::handshake::{HandshakeError, HandshakeType, VERSION_5};
use crate::codec::packet::{Control, Packet};
use crate::codec::stream_id::StreamId;
use crate::crypto::KeyOffer;

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
    settings: HandshakeSettings,
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
    immediate: Option<Vec<u8>>,
    offer: Option<KeyOffer>,
    /// Responder: parameters that take effect with the agreement.
    pending: Option<Negotiated>,
    deadline: Time,
    malformed: Option<HandshakeError>,
    outcome: Option<Result<Negotiated, HandshakeFailure>>,
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
fn compare_cookies(own: u32, peer: u32) -> Option<Role> {
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
    pub fn new(settings: HandshakeSettings, stream_id: Option<StreamId>, now: Time) -> Rendezvous {
        // Independent of the numbers from which keys are derived.
        let mut random = Pcg64::seed_from_u64(!settings.seed);
        let cookie = random.next_u32().max(1);
        let mut cif = Vec::new();
        conclusion::fixed(&settings, HandshakeType::WaveAHand, cookie).write(&mut cif);
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
            immediate: None,
            offer: None,
            pending: None,
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
                match ReceivedHandshake::read(header, cif, at) {
                    Ok(received) => self.handle_handshake(&received, at),
                    Err(error) => self.malformed(error),
                }
            }
            Packet::Control(header, Control::Shutdown) if header.destination == own => {
                if self.is_in_progress() {
                    self.fail(HandshakeFailure::Shutdown);
                }
            }
            // A peer that sends anything else is connected: its agreement was lost.
            Packet::Control(header, _) if header.destination == own => self.handle_agreement(),
            Packet::Data(header, _) if header.destination == own => self.handle_agreement(),
            Packet::Control(..) | Packet::Data(..) => {}
        }
    }

    fn malformed(&mut self, error: HandshakeError) {
        self.malformed.get_or_insert(error);
    }

    fn handle_handshake(&mut self, received: &ReceivedHandshake, at: Time) {
        let fixed = &received.fixed;
        match self.state {
            State::Failed => return,
            State::Connected => {
                // The peer did not receive the agreement.
                if fixed.kind == HandshakeType::Conclusion && fixed.socket_id == self.peer {
                    self.immediate = Some(self.agreement());
                }
                return;
            }
            _ => {}
        }
        if let HandshakeType::Rejected(rejection) = fixed.kind {
            let has_passphrase = self.settings.secret.is_some();
            return self.fail(HandshakeFailure::from_rejection(rejection, has_passphrase));
        }
        if fixed.version < VERSION_5 {
            return self.fail(HandshakeFailure::Version(fixed.version));
        }
        if let Err(error) = fixed.check() {
            return self.malformed(error);
        }
        if self.peer == 0 && !self.assign_role(received) {
            return;
        }
        if fixed.socket_id != self.peer {
            return;
        }
        match self.role {
            Some(Role::Initiator) => self.initiate(received, at),
            Some(Role::Responder) => self.respond(received, at),
            None => {}
        }
    }

    /// Handles the first handshake of the peer, whose cookie decides the roles. Returns `false` if
    /// the handshake is unusable.
    fn assign_role(&mut self, received: &ReceivedHandshake) -> bool {
        let fixed = &received.fixed;
        let out_of_turn = HandshakeError::UnexpectedType(fixed.kind.to_wire());
        if !matches!(
            fixed.kind,
            HandshakeType::WaveAHand | HandshakeType::Conclusion
        ) {
            self.malformed(out_of_turn);
            return false;
        }
        let Some(role) = compare_cookies(self.cookie, fixed.cookie) else {
            self.reject(HandshakeFailure::EqualCookies);
            return false;
        };
        self.peer = fixed.socket_id;
        self.role = Some(role);
        let mut conclusion =
            conclusion::fixed(&self.settings, HandshakeType::Conclusion, self.cookie);
        conclusion.encryption = conclusion::advertised(&self.settings);
        self.cif.clear();
        if role == Role::Responder {
            conclusion.write(&mut self.cif);
            return true;
        }
        let secret = self.settings.secret.as_ref();
        self.offer = secret.map(|secret| KeyOffer::new(secret, self.settings.seed));
        let (offer, stream_id) = (self.offer.as_ref(), self.stream_id.as_ref());
        self.cif = conclusion::request(&self.settings, self.cookie, offer, stream_id);
        true
    }

    /// Initiator: sends its requests until they are answered.
    fn initiate(&mut self, received: &ReceivedHandshake, at: Time) {
        let answered = received.response.is_some();
        match received.fixed.kind {
            HandshakeType::Conclusion | HandshakeType::Agreement if answered => {
                let concluded = conclusion::conclude(received, &self.settings, &mut self.offer);
                match concluded {
                    Ok(negotiated) => {
                        self.immediate = Some(self.agreement());
                        self.connect(negotiated);
                    }
                    Err(failure) => self.reject(failure),
                }
            }
            HandshakeType::WaveAHand | HandshakeType::Conclusion => {
                self.advance(received.fixed.kind);
                self.next = at;
            }
            // An agreement without responses is ignored, and the requests are repeated.
            _ => {}
        }
    }

    /// Responder: answers requests, and waits for the agreement.
    fn respond(&mut self, received: &ReceivedHandshake, at: Time) {
        match received.fixed.kind {
            HandshakeType::Conclusion if self.pending.is_some() => self.next = at,
            HandshakeType::Conclusion if received.request.is_some() => {
                match conclusion::respond(received, &self.settings, self.cookie) {
                    Ok((negotiated, cif)) => {
                        self.advance(HandshakeType::Conclusion);
                        (self.pending, self.cif, self.next) = (Some(negotiated), cif, at);
                    }
                    Err(failure) => self.reject(failure),
                }
            }
            // A wave-a-hand, or a conclusion without requests.
            HandshakeType::WaveAHand | HandshakeType::Conclusion if self.pending.is_none() => {
                if received.fixed.kind == HandshakeType::WaveAHand {
                    self.advance(HandshakeType::WaveAHand);
                }
                self.next = at;
            }
            HandshakeType::Agreement => self.handle_agreement(),
            _ => {}
        }
    }

    fn advance(&mut self, kind: HandshakeType) {
        self.state = match (self.state, kind, self.role) {
            (State::Waving, HandshakeType::WaveAHand, _) => State::Attention,
            (State::Waving, HandshakeType::Conclusion, _) => State::Fine,
            (State::Attention, HandshakeType::Conclusion, Some(Role::Responder)) => {
                State::Initiated
            }
            (same, ..) => same,
        };
    }

    /// Connects the responder, because the initiator is connected.
    fn handle_agreement(&mut self) {
        if let Some(negotiated) = self.pending.take() {
            self.connect(negotiated);
        }
    }

    fn agreement(&self) -> Vec<u8> {
        let mut cif = Vec::new();
        conclusion::fixed(&self.settings, HandshakeType::Agreement, self.cookie).write(&mut cif);
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

    fn fail(&mut self, failure: HandshakeFailure) {
        self.state = State::Failed;
        // An agreement that arrives now is too late.
        self.pending = None;
        self.outcome = Some(Err(failure));
    }

    /// Fails, and sends a rejection to the peer.
    fn reject(&mut self, failure: HandshakeFailure) {
        let mut cif = Vec::new();
        let kind = HandshakeType::Rejected(failure.rejection());
        conclusion::fixed(&self.settings, kind, self.cookie).write(&mut cif);
        self.immediate = Some(cif);
        self.fail(failure);
    }

    fn is_in_progress(&self) -> bool {
        !matches!(self.state, State::Connected | State::Failed)
    }

    /// Appends the datagram that is due. Returns `false` if none is due. The handshake fails after
    /// its deadline. Must also be called after the outcome while the connection is young, because a
    /// final datagram may be due.
    pub fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let clock = self.settings.clock;
        if let Some(cif) = self.immediate.take() {
            conclusion::write_datagram(clock, now, self.peer, &cif, out);
            return true;
        }
        if !self.is_in_progress() {
            return false;
        }
        if now >= self.deadline {
            let got_answer = self.peer != 0;
            self.fail(match self.malformed {
                Some(error) => HandshakeFailure::Malformed(error),
                None => HandshakeFailure::TimedOut { got_answer },
            });
            return false;
        }
        if now < self.next {
            return false;
        }
        self.next = now + RETRY_INTERVAL;
        conclusion::write_datagram(clock, now, self.peer, &self.cif, out);
        true
    }

    /// Time of the next call to [`Rendezvous::write_next`].
    pub fn due(&self) -> Time {
        match (&self.immediate, self.is_in_progress()) {
            (Some(_), _) => Time::ZERO,
            (None, true) => self.next.min(self.deadline),
            (None, false) => Time::NEVER,
        }
    }

    /// Returns the outcome, once.
    pub fn outcome(&mut self) -> Option<Result<Negotiated, HandshakeFailure>> {
        self.outcome.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::network::settings;
    use super::*;
    use crate::codec::packet::ControlHeader;

    #[test]
    fn agreement_after_the_timeout_is_ignored() {
        let start = Time::ZERO;
        let mut ends = [1, 2].map(|id| Rendezvous::new(settings(id, id.into()), None, start));
        // Agreements are not delivered.
        let mut agreement = Vec::new();
        for round in 0..8 {
            let (from, to) = (round % 2, 1 - round % 2);
            let mut out = Vec::new();
            while ends[from].write_next(start, &mut out) {
                if ends[from].state == State::Connected {
                    agreement = out.clone();
                } else {
                    ends[to].handle(&out, start);
                }
                out.clear();
            }
        }
        let responder = ends
            .iter_mut()
            .find(|end| end.role == Some(Role::Responder));
        let responder = responder.unwrap();
        responder.write_next(start + Duration::from_secs(3), &mut Vec::new());
        let timed_out = HandshakeFailure::TimedOut { got_answer: true };
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
        assert_eq!(
            end.outcome().unwrap().unwrap_err(),
            HandshakeFailure::Shutdown
        );
        end.handle(&shutdown, Time::ZERO);
        assert!(end.outcome().is_none());
    }

    #[test]
    fn cookies_decide_as_in_libsrt() {
        assert_eq!(compare_cookies(5, 3), Some(Role::Initiator));
        assert_eq!(compare_cookies(3, 5), Some(Role::Responder));
        assert_eq!(compare_cookies(7, 7), None);
        // The difference exceeds 31 bits: the lower cookie, as a signed number, initiates. At
        // exactly 2^31 the higher one does.
        assert_eq!(
            compare_cookies(0x8000_0001, 0x7fff_fff0),
            Some(Role::Initiator)
        );
        assert_eq!(
            compare_cookies(0x7fff_fff0, 0x8000_0001),
            Some(Role::Responder)
        );
        assert_eq!(compare_cookies(0x8000_0000, 0), Some(Role::Responder));
        assert_eq!(compare_cookies(0, 0x8000_0000), Some(Role::Initiator));
    }

    proptest::proptest! {
        #[test]
        fn exactly_one_end_is_the_initiator(own: u32, peer: u32) {
            let roles = (compare_cookies(own, peer), compare_cookies(peer, own));
            proptest::prop_assert_eq!(roles.0 == roles.1, own == peer);
        }
    }
}
