//! Caller (SRT, 4.3.1): an induction, which obtains the listener's cookie, and a conclusion.

use measure::Time;

use super::conclusion::{self, RETRY_INTERVAL, ReceivedHandshake};
use super::failure::HandshakeFailure;
use super::negotiated::Negotiated;
use super::settings::HandshakeSettings;
use crate::codec::handshake::{
    DATAGRAM, HandshakeError, HandshakeType, VERSION_4, VERSION_5, VERSION_5_MAGIC,
};
use crate::codec::packet::{Control, Packet};
use crate::codec::stream_id::StreamId;
use crate::crypto::KeyOffer;

#[derive(Debug)]
enum Stage {
    /// The induction is sent until it is answered.
    Induction,
    /// The conclusion is sent until it is answered.
    Conclusion,
    /// The outcome is known.
    Ended,
}

/// Caller side of a handshake.
pub struct Caller {
    settings: HandshakeSettings,
    stream_id: Option<StreamId>,
    stage: Stage,
    /// Handshake that is sent in this stage, without its header.
    cif: Vec<u8>,
    offer: Option<KeyOffer>,
    next: Time,
    deadline: Time,
    got_answer: bool,
    /// First malformed answer: reported if no valid one follows.
    malformed: Option<HandshakeError>,
    outcome: Option<Result<Negotiated, HandshakeFailure>>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("stage", &self.stage)
            .field("socket_id", &self.settings.socket_id)
            .finish_non_exhaustive()
    }
}

impl Caller {
    /// Starts a handshake at `now`.
    pub fn new(settings: HandshakeSettings, stream_id: Option<StreamId>, now: Time) -> Caller {
        let mut cif = Vec::new();
        let mut first = conclusion::fixed(&settings, HandshakeType::Induction, 0);
        (first.version, first.extension) = (VERSION_4, DATAGRAM);
        first.write(&mut cif);
        Caller {
            deadline: now + settings.timeout,
            settings,
            stream_id,
            stage: Stage::Induction,
            cif,
            offer: None,
            next: now,
            got_answer: false,
            malformed: None,
            outcome: None,
        }
    }

    /// Handles a datagram. Datagrams for other sockets and unexpected ones are ignored.
    pub fn handle(&mut self, datagram: &[u8], at: Time) {
        if matches!(self.stage, Stage::Ended) {
            return;
        }
        let Ok(Packet::Control(header, control)) = Packet::parse(datagram) else {
            return;
        };
        if header.destination != self.settings.socket_id {
            return;
        }
        match control {
            Control::Handshake(cif) => {
                self.got_answer = true;
                match ReceivedHandshake::read(header, cif, at) {
                    Ok(received) => self.handle_answer(&received, at),
                    Err(error) => self.malformed(error),
                }
            }
            Control::Shutdown => self.end(Err(HandshakeFailure::Shutdown)),
            _ => {}
        }
    }

    /// Remembers the error: a malformed datagram of a third party must not end the handshake.
    fn malformed(&mut self, error: HandshakeError) {
        self.malformed.get_or_insert(error);
    }

    fn handle_answer(&mut self, received: &ReceivedHandshake, at: Time) {
        match (&self.stage, received.fixed.kind) {
            (_, HandshakeType::Rejected(rejection)) => {
                let has_passphrase = self.settings.secret.is_some();
                self.end(Err(HandshakeFailure::from_rejection(
                    rejection,
                    has_passphrase,
                )));
            }
            (Stage::Induction, HandshakeType::Induction) => self.handle_induction(received, at),
            // Repeated answer to the induction.
            (Stage::Conclusion, HandshakeType::Induction) => {}
            (Stage::Conclusion, HandshakeType::Conclusion) => {
                if received.fixed.version < VERSION_5 {
                    return self.end(Err(HandshakeFailure::Version(received.fixed.version)));
                }
                let concluded = conclusion::conclude(received, &self.settings, &mut self.offer);
                let concluded = concluded.map(|negotiated| Negotiated {
                    stream_id: self.stream_id.clone(),
                    ..negotiated
                });
                self.end(concluded);
            }
            (_, other) => self.malformed(HandshakeError::UnexpectedType(other.to_wire())),
        }
    }

    fn handle_induction(&mut self, received: &ReceivedHandshake, at: Time) {
        let fixed = &received.fixed;
        if fixed.version < VERSION_5 {
            return self.end(Err(HandshakeFailure::Version(fixed.version)));
        }
        if fixed.extension != VERSION_5_MAGIC {
            return self.malformed(HandshakeError::Magic(fixed.extension));
        }
        let secret = self.settings.secret.as_ref();
        self.offer = secret.map(|secret| KeyOffer::new(secret, self.settings.seed));
        let (offer, stream_id) = (self.offer.as_ref(), self.stream_id.as_ref());
        self.cif = conclusion::request(&self.settings, fixed.cookie, offer, stream_id);
        self.stage = Stage::Conclusion;
        self.next = at;
    }

    fn end(&mut self, outcome: Result<Negotiated, HandshakeFailure>) {
        self.stage = Stage::Ended;
        self.outcome = Some(outcome);
    }

    /// Appends the datagram that is due. Returns `false` if none is due. The handshake fails after
    /// its deadline.
    pub fn write_next(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if matches!(self.stage, Stage::Ended) {
            return false;
        }
        if now >= self.deadline {
            let got_answer = self.got_answer;
            let failure = match self.malformed {
                Some(error) => HandshakeFailure::Malformed(error),
                None => HandshakeFailure::TimedOut { got_answer },
            };
            self.end(Err(failure));
            return false;
        }
        if now < self.next {
            return false;
        }
        self.next = now + RETRY_INTERVAL;
        conclusion::write_datagram(self.settings.clock, now, 0, &self.cif, out);
        true
    }

    /// Time of the next call to [`Caller::write_next`].
    pub fn due(&self) -> Time {
        match self.stage {
            Stage::Ended => Time::NEVER,
            _ => self.next.min(self.deadline),
        }
    }

    /// Returns the outcome, once.
    pub fn outcome(&mut self) -> Option<Result<Negotiated, HandshakeFailure>> {
        self.outcome.take()
    }
}
