//! One side of ICE, for one component.

use std::net::SocketAddr;
use std::time::Duration;

use is::stun::{StunMessage, StunPacket};
use is::{IceAgent, IceAgentEvent, IceConnectionState, Protocol};
use measure::Time;
use rand::Rng;
use rand_pcg::Pcg64;

use super::credentials::Credentials;
use super::integrity::MessageIntegrity;
use super::remote::{REMOTE_MAX, Remotes};
use crate::webrtc::clock::{from_library, to_library};
use crate::webrtc::sdp::{Candidate, CandidateAddress};

/// The most addresses of this side that answers may tell of (reflexive ones; RFC 8445, 7.2.5.3.1).
const MAPPED_MAX: usize = 64;

/// The most pairs that are checked.
const PAIRS_MAX: usize = 64;

/// Time between checks of different pairs. RFC 8445 (14.2) has 50 ms, and leaves it to the
/// application.
const PACE: Duration = Duration::from_millis(20);

/// How one side of ICE is.
#[derive(Clone, Copy, Debug)]
pub struct IceSettings {
    /// It only answers.
    pub lite: bool,
    /// It decides which pair is used, unless the roles turn out otherwise.
    pub controlling: bool,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IceEvent {
    /// A pair is to be used from now on.
    Nominated {
        /// This side's address.
        local: SocketAddr,
        /// The other side's.
        remote: SocketAddr,
    },
    /// The other side has not answered for so long that nothing more may be sent to it.
    Lost,
}

/// Why a message of STUN was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StunDropped {
    /// It is none, or lacks what checks must have.
    Malformed,
    /// It is of another session, or not authentic.
    Unauthentic,
    /// It comes from an address beyond those that are remembered, or tells of one.
    TooManyAddresses,
}

/// One side of ICE.
#[derive(Debug)]
pub struct Ice {
    agent: IceAgent,
    credentials: Credentials,
    settings: IceSettings,
    locals: Vec<SocketAddr>,
    /// Whether they are those of a TURN server.
    relayed: bool,
    /// Addresses from which authentic messages came, [`REMOTE_MAX`] at most.
    seen: Vec<SocketAddr>,
    /// Addresses that answers said are ours, beside those that are.
    mapped: Vec<SocketAddr>,
    remotes: Remotes,
    connected: bool,
    random: Pcg64,
}

impl Ice {
    /// One that knows neither its own nor the other side's addresses.
    pub fn new(now: Time, settings: IceSettings, mut random: Pcg64) -> Ice {
        let credentials = Credentials::draw(&mut random);
        let mut agent = IceAgent::with_hmac(credentials.for_agent(), &MessageIntegrity);
        agent.set_control_tie_breaker(random.next_u64());
        agent.set_ice_lite(settings.lite);
        agent.set_controlling(settings.controlling && !settings.lite);
        agent.set_max_candidate_pairs(PAIRS_MAX);
        agent.set_timing_advance(PACE);
        agent.handle_timeout(to_library(now));
        Ice {
            agent,
            credentials,
            settings,
            // Most have one address, and so has who answers.
            locals: Vec::with_capacity(1),
            relayed: false,
            seen: Vec::with_capacity(1),
            mapped: Vec::new(),
            remotes: Remotes::default(),
            connected: false,
            random,
        }
    }

    /// What this side's checks are known by.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Whether it only answers.
    pub fn is_lite(&self) -> bool {
        self.settings.lite
    }

    /// This side's addresses.
    pub fn locals(&self) -> &[SocketAddr] {
        &self.locals
    }

    /// Whether this side's addresses are those of a TURN server.
    pub fn is_relayed(&self) -> bool {
        self.relayed
    }

    /// Adds an address of this side. Says whether it can be one: it is none of multicast, and no
    /// wildcard.
    pub fn add_local(&mut self, address: SocketAddr) -> bool {
        self.add_candidate(address, is::Candidate::host(address, Protocol::Udp))
    }

    /// Adds an address at a TURN server, from which all is sent that is sent by this side.
    pub fn add_relayed(&mut self, address: SocketAddr) -> bool {
        self.relayed = true;
        let candidate = is::Candidate::relayed(address, address, Protocol::Udp);
        self.add_candidate(address, candidate)
    }

    fn add_candidate(
        &mut self,
        address: SocketAddr,
        candidate: Result<is::Candidate, is::IceError>,
    ) -> bool {
        let Ok(candidate) = candidate else {
            return false;
        };
        if !self.locals.contains(&address) {
            self.agent.add_local_candidate(candidate);
            self.locals.push(address);
        }
        true
    }

    /// Takes in what the other side's checks are known by, and whether it only answers: then this
    /// side decides (RFC 8445, 6.1.1).
    pub fn set_remote(&mut self, credentials: &Credentials, lite: bool) {
        if lite && !self.settings.lite {
            self.agent.set_controlling(true);
        }
        self.agent.set_remote_credentials(credentials.for_agent());
    }

    /// Begins anew with other credentials of its own (RFC 8445, 9). What was nominated is used
    /// until another pair is.
    pub fn restart(&mut self) {
        self.credentials = Credentials::draw(&mut self.random);
        self.agent.ice_restart(self.credentials.for_agent(), true);
        self.remotes = Remotes::default();
        self.connected = false;
    }

    /// Adds an address of the other side. It is left out if it is not over UDP, is one of those
    /// that are never checked, or is beyond the bounds (32, of which 8 at one IP address). Returns
    /// whether it is used.
    pub fn add_remote(&mut self, candidate: &Candidate) -> bool {
        let Some(address) = self.remotes.take(candidate, &self.locals) else {
            return false;
        };
        // By its text, which alone keeps the other side's foundation and priority.
        let plain = Candidate {
            address: CandidateAddress::Ip(address.ip()),
            related: None,
            tcp_type: None,
            ..candidate.clone()
        };
        let Ok(candidate) = is::Candidate::from_sdp_string(&plain.to_string()) else {
            return false;
        };
        self.agent.add_remote_candidate(candidate);
        true
    }

    /// Reason why no address of the other side is usable; `None` if one is.
    pub fn why_no_remote(&self) -> Option<String> {
        match self.seen.is_empty() {
            true => self.remotes.why_none(),
            false => None,
        }
    }

    /// Whether an authentic message came from there.
    pub fn has_seen(&self, address: SocketAddr) -> bool {
        self.seen.contains(&address)
    }

    /// Takes in a message of STUN.
    ///
    /// # Errors
    /// Why it was dropped.
    pub fn handle(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), StunDropped> {
        let message = StunMessage::parse(bytes).map_err(|_| StunDropped::Malformed)?;
        let is_answer =
            message.is_successful_binding_response() || message.is_failed_binding_response();
        // Answers are verified with the other side's password: without one there are none.
        if is_answer && self.agent.remote_credentials().is_none() {
            return Err(StunDropped::Unauthentic);
        }
        if !self.agent.accepts_message(&message) {
            return Err(StunDropped::Unauthentic);
        }
        // Each other address that an answer says we have is kept for good.
        if is_answer
            && let Some(mapped) = message.mapped_address()
            && !self.locals.contains(&mapped)
            && !self.mapped.contains(&mapped)
        {
            if self.mapped.len() >= MAPPED_MAX {
                return Err(StunDropped::TooManyAddresses);
            }
            self.mapped.push(mapped);
        }
        if !self.has_seen(from) {
            if self.seen.len() >= REMOTE_MAX {
                return Err(StunDropped::TooManyAddresses);
            }
            self.seen.push(from);
        }
        let packet = StunPacket {
            proto: Protocol::Udp,
            source: from,
            destination: local,
            message,
        };
        self.agent.handle_packet(to_library(now), packet);
        self.agent.handle_timeout(to_library(now));
        Ok(())
    }

    /// Time has gone on.
    pub fn handle_timeout(&mut self, now: Time) {
        self.agent.handle_timeout(to_library(now));
    }

    /// How long the answer to the last check took, of the pair that was nominated.
    pub fn round_trip(&self) -> Option<Duration> {
        self.agent.nominated_pair_rtt()
    }

    /// When [`Ice::handle_timeout`] is due.
    pub fn deadline(&mut self) -> Option<Time> {
        self.agent.poll_timeout().map(from_library)
    }

    /// The next message to be sent, and where to.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let transmit = self.agent.poll_transmit()?;
        Some((transmit.destination, transmit.contents.into()))
    }

    /// What has happened since the last call.
    pub fn poll_event(&mut self) -> Option<IceEvent> {
        loop {
            match self.agent.poll_event()? {
                IceAgentEvent::NominatedSend {
                    source,
                    destination,
                    ..
                } => {
                    self.connected = true;
                    return Some(IceEvent::Nominated {
                        local: source,
                        remote: destination,
                    });
                }
                // Who only answers makes no checks, and asks nobody for consent (RFC 7675, 4).
                IceAgentEvent::IceConnectionStateChange(IceConnectionState::Disconnected)
                    if self.connected && !self.settings.lite =>
                {
                    return Some(IceEvent::Lost);
                }
                _ => {}
            }
        }
    }
}
