//! ICE agent of one component.

use std::net::SocketAddr;
use std::time::Duration;

use is::stun::{StunMessage, StunPacket};
use is::{IceAgent, IceAgentEvent, IceConnectionState, Protocol};
use measure::Time;
use rand::Rng;
use rand_pcg::Pcg64;

use super::credentials::Credentials;
use super::integrity::MessageIntegrity;
use super::remote::{REMOTE_CANDIDATES_MAX, RemoteCandidates};
use crate::clock::{from_instant, to_instant};
use crate::sdp::{Candidate, CandidateAddress};

/// Maximum number of reflexive addresses that responses may report (RFC 8445, 7.2.5.3.1).
const REFLEXIVE_MAX: usize = 64;

/// Maximum number of candidate pairs that are checked.
const PAIRS_MAX: usize = 64;

/// Interval between checks of different pairs. RFC 8445 (14.2) recommends 50 ms and allows other
/// values.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Settings of an ICE agent.
#[derive(Clone, Copy, Debug)]
pub struct IceSettings {
    /// True for ICE lite: the agent only answers checks.
    pub lite: bool,
    /// True if the agent starts in the controlling role and nominates the pair. The role may change
    /// when both sides negotiate.
    pub controlling: bool,
}

/// Event of an ICE agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IceEvent {
    /// A candidate pair is to be used from now on.
    Nominated {
        /// Address of the other side.
        remote: SocketAddr,
    },
    /// Consent has expired: the other side no longer answers, so nothing more may be sent to it.
    Lost,
}

/// Reason for dropping a STUN message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StunDropped {
    /// The message is malformed, or lacks what checks must contain.
    Malformed,
    /// The message belongs to another session, or is not authentic.
    Unauthentic,
    /// The message comes from an address, or reports one, beyond the number that is remembered.
    TooManyAddresses,
}

/// ICE agent.
#[derive(Debug)]
pub struct Ice {
    agent: IceAgent,
    /// Credentials of this side.
    pub credentials: Credentials,
    settings: IceSettings,
    /// Addresses of this side.
    pub locals: Vec<SocketAddr>,
    /// True if they are relayed addresses of a TURN server.
    pub relayed: bool,
    /// Source addresses of authentic messages, [`REMOTE_CANDIDATES_MAX`] at most.
    seen_remotes: Vec<SocketAddr>,
    /// Reflexive addresses that responses reported, except those in `locals`.
    reflexive: Vec<SocketAddr>,
    remotes: RemoteCandidates,
    connected: bool,
    random: Pcg64,
}

impl Ice {
    /// Creates an agent without candidates of either side.
    pub fn new(now: Time, settings: IceSettings, mut random: Pcg64) -> Ice {
        let credentials = Credentials::draw(&mut random);
        let mut agent = IceAgent::with_hmac(credentials.for_agent(), &MessageIntegrity);
        agent.set_control_tie_breaker(random.next_u64());
        agent.set_ice_lite(settings.lite);
        agent.set_controlling(settings.controlling && !settings.lite);
        agent.set_max_candidate_pairs(PAIRS_MAX);
        agent.set_timing_advance(CHECK_INTERVAL);
        agent.handle_timeout(to_instant(now));
        Ice {
            agent,
            credentials,
            settings,
            // Most agents have one address, and so do their peers.
            locals: Vec::with_capacity(1),
            relayed: false,
            seen_remotes: Vec::with_capacity(1),
            reflexive: Vec::new(),
            remotes: RemoteCandidates::default(),
            connected: false,
            random,
        }
    }

    /// Adds a local address. Returns `false` if it is a multicast or wildcard address. If it is a
    /// `relayed` one of a TURN server, this side sends everything from it.
    pub fn add_local(&mut self, address: SocketAddr, relayed: bool) -> bool {
        self.relayed |= relayed;
        let candidate = match relayed {
            true => is::Candidate::relayed(address, address, Protocol::Udp),
            false => is::Candidate::host(address, Protocol::Udp),
        };
        let Ok(candidate) = candidate else {
            return false;
        };
        if !self.locals.contains(&address) {
            self.agent.add_local_candidate(candidate);
            self.locals.push(address);
        }
        true
    }

    /// Sets the other side's credentials, and whether it is ICE lite. If it is, this side takes the
    /// controlling role (RFC 8445, 6.1.1).
    pub fn set_remote(&mut self, credentials: &Credentials, lite: bool) {
        if lite && !self.settings.lite {
            self.agent.set_controlling(true);
        }
        self.agent.set_remote_credentials(credentials.for_agent());
    }

    /// Restarts ICE with new credentials (RFC 8445, 9). The nominated pair remains in use until
    /// another one is nominated.
    pub fn restart(&mut self) {
        self.credentials = Credentials::draw(&mut self.random);
        self.agent.ice_restart(self.credentials.for_agent(), true);
        self.remotes = RemoteCandidates::default();
        self.connected = false;
    }

    /// Adds a candidate of the other side. Returns `false` if it is ignored: it is not over UDP,
    /// its address is never checked, or the limits are exceeded (32 candidates, 8 of them at one IP
    /// address).
    pub fn add_remote(&mut self, candidate: &Candidate) -> bool {
        let Some(address) = self.remotes.add(candidate, &self.locals) else {
            return false;
        };
        // The textual form is the only one that keeps the other side's foundation and priority.
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

    /// Reason why no address of the other side is usable. `None` if one is.
    pub fn no_remote_reason(&self) -> Option<String> {
        match self.seen_remotes.is_empty() {
            true => self.remotes.no_remote_reason(),
            false => None,
        }
    }

    /// Returns true if an authentic message came from this address.
    pub fn has_seen(&self, address: SocketAddr) -> bool {
        self.seen_remotes.contains(&address)
    }

    /// Handles a STUN message.
    ///
    /// # Errors
    /// The reason for dropping the message.
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
        // Responses are authenticated with the other side's password. Without it, none is expected.
        if is_answer && self.agent.remote_credentials().is_none() {
            return Err(StunDropped::Unauthentic);
        }
        if !self.agent.accepts_message(&message) {
            return Err(StunDropped::Unauthentic);
        }
        // The agent keeps each reflexive address permanently.
        if is_answer
            && let Some(mapped) = message.mapped_address()
            && !self.locals.contains(&mapped)
            && !self.reflexive.contains(&mapped)
        {
            if self.reflexive.len() >= REFLEXIVE_MAX {
                return Err(StunDropped::TooManyAddresses);
            }
            self.reflexive.push(mapped);
        }
        if !self.has_seen(from) {
            if self.seen_remotes.len() >= REMOTE_CANDIDATES_MAX {
                return Err(StunDropped::TooManyAddresses);
            }
            self.seen_remotes.push(from);
        }
        let packet = StunPacket {
            proto: Protocol::Udp,
            source: from,
            destination: local,
            message,
        };
        self.agent.handle_packet(to_instant(now), packet);
        self.agent.handle_timeout(to_instant(now));
        Ok(())
    }

    /// Handles all timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.agent.handle_timeout(to_instant(now));
    }

    /// Round-trip time of the last check on the nominated pair.
    pub fn round_trip(&self) -> Option<Duration> {
        self.agent.nominated_pair_rtt()
    }

    /// Time at which [`Ice::handle_timeout`] is due.
    pub fn deadline(&mut self) -> Option<Time> {
        self.agent.poll_timeout().map(from_instant)
    }

    /// Returns the next message to send, and its destination.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let transmit = self.agent.poll_transmit()?;
        Some((transmit.destination, transmit.contents.into()))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<IceEvent> {
        loop {
            match self.agent.poll_event()? {
                IceAgentEvent::NominatedSend { destination, .. } => {
                    self.connected = true;
                    let remote = destination;
                    return Some(IceEvent::Nominated { remote });
                }
                // An ICE lite agent sends no checks, so it requests no consent (RFC 7675, 4).
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
