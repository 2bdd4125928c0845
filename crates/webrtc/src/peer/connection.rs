//! The peer connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::config::PeerConfig;
use super::events::{PeerCounts, PeerEvent, PeerFailure, PeerState, Received};
use super::last_flight::LastFlight;
use crate::dtls::{Dtls, DtlsEvent, DtlsSettings};
use crate::fingerprint::Fingerprint;
use crate::ice::{Credentials, Ice, IceEvent, IceSettings, StunDropped};
use crate::sdp::{Candidate, Setup, TransportParameters};
use crate::srtp::{RtcpOpener, RtcpSealer, RtpOpener, RtpSealer, SrtpKeys, SrtpProfile};
use session::MediaFilter;

/// Marks media among a peer's datagrams: RTP by its first byte, and not RTCP by its second (RFC
/// 7983, 7; RFC 5761, 4).
pub const MEDIA_MARK: MediaFilter = MediaFilter {
    first_byte: [128, 191],
    excluded_second_byte: Some([192, 223]),
};

/// Time for which a DTLS server keeps its last flight for retransmission: as long as browsers
/// retry.
const LAST_FLIGHT_LIFETIME: Duration = Duration::from_secs(30);

/// Maximum number of queued datagrams. The caller drains them after each call.
pub(crate) const TRANSMITS_MAX: usize = 64;

/// Message type of a STUN binding indication, and length of a STUN header (RFC 8489, 5).
const BINDING_INDICATION: [u8; 2] = [0, 0x11];
const STUN_HEADER_LENGTH: usize = 20;

/// Content types of alerts and application data, and the end of the epoch in a record (RFC 6347,
/// 4.1).
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;
const EPOCH_END: usize = 5;

/// Transport parameters of the remote description.
#[derive(Debug)]
struct RemoteTransport {
    credentials: Credentials,
    fingerprints: Vec<Fingerprint>,
}

/// One peer connection.
#[derive(Debug)]
pub struct Peer {
    config: PeerConfig,
    is_offerer: bool,
    state: PeerState,
    ice: Ice,
    remote: Option<RemoteTransport>,
    /// True if this side is the DTLS client; `None` before the remote description is set.
    is_dtls_client: Option<bool>,
    dtls: Option<Box<Dtls>>,
    dtls_seed: u64,
    /// The remote certificate matches a fingerprint of the remote description.
    certificate_matches: bool,
    keys: Option<SrtpKeys>,
    rtp_opener_taken: bool,
    rtcp_opener: Option<RtcpOpener>,
    rtcp_sealer: Option<RtcpSealer>,
    /// Address to which media is sent.
    nominated_remote: Option<SocketAddr>,
    /// Source of the last DTLS datagram: the destination of DTLS while no pair is nominated.
    dtls_source: Option<SocketAddr>,
    connect_deadline: Option<Time>,
    restart_deadline: Option<Time>,
    /// Remainder of the DTLS state of a server after the handshake.
    last_flight: Option<Box<LastFlight>>,
    /// DTLS application data is expected and ignored.
    ignores_data: bool,
    transmits: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<PeerEvent>,
    deadline: Option<Time>,
    counts: PeerCounts,
    rtcp_plain: Vec<u8>,
}

impl Peer {
    /// Creates the peer that makes the offer.
    pub fn offerer(now: Time, config: &PeerConfig) -> Peer {
        Peer::new(now, config, true)
    }

    /// Creates the peer that answers an offer.
    pub fn answerer(now: Time, config: &PeerConfig) -> Peer {
        Peer::new(now, config, false)
    }

    fn new(now: Time, config: &PeerConfig, is_offerer: bool) -> Peer {
        let mut random = Pcg64::seed_from_u64(config.seed);
        let dtls_seed = random.next_u64();
        let settings = IceSettings {
            lite: config.ice_lite,
            controlling: is_offerer,
        };
        Peer {
            config: config.clone(),
            is_offerer,
            state: PeerState::New,
            ice: Ice::new(now, settings, random),
            remote: None,
            is_dtls_client: None,
            dtls: None,
            dtls_seed,
            certificate_matches: false,
            keys: None,
            rtp_opener_taken: false,
            rtcp_opener: None,
            rtcp_sealer: None,
            nominated_remote: None,
            dtls_source: None,
            connect_deadline: None,
            restart_deadline: None,
            last_flight: None,
            ignores_data: false,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            deadline: None,
            counts: PeerCounts::default(),
            rtcp_plain: Vec::new(),
        }
    }

    /// Adds the address of the socket that receives the peer's datagrams. Returns `false` if it
    /// cannot be a candidate, such as a wildcard or multicast address.
    pub fn add_local_candidate(&mut self, now: Time, address: SocketAddr) -> bool {
        let added = self.ice.add_local(address, false);
        self.drain_and_reschedule(now);
        added
    }

    /// Adds a relayed address at a TURN server, from which the peer's datagrams must be sent.
    /// Returns `false` if it cannot be a candidate.
    pub fn add_relayed_candidate(&mut self, now: Time, address: SocketAddr) -> bool {
        let added = self.ice.add_local(address, true);
        self.drain_and_reschedule(now);
        added
    }

    /// Returns the transport parameters of the local description. Those of an answer are complete
    /// after [`Peer::set_remote`] with the offer's.
    pub fn local_transport(&self) -> TransportParameters {
        let Credentials { ufrag, pwd } = self.ice.credentials.clone();
        let candidate = |(number, address): (usize, &SocketAddr)| match self.ice.relayed {
            false => Candidate::host(*address, number as u16),
            true => Candidate::relayed(*address, number as u16),
        };
        TransportParameters {
            ufrag,
            pwd,
            lite: self.config.ice_lite,
            fingerprints: vec![self.config.certificate.fingerprint().clone()],
            setup: match (self.is_offerer, self.is_dtls_client) {
                (false, Some(false)) => Setup::Passive,
                (false, _) => Setup::Active,
                (true, _) => Setup::ActPass,
            },
            candidates: (self.ice.locals.iter().enumerate())
                .map(candidate)
                .collect(),
            end_of_candidates: true,
        }
    }

    /// Applies the transport parameters of the remote description. A later description with the
    /// same credentials adds candidates; one with other credentials restarts ICE (RFC 8445, 9).
    ///
    /// # Errors
    /// No connection is possible with these parameters. The peer is unchanged.
    pub fn set_remote(
        &mut self,
        now: Time,
        transport: &TransportParameters,
    ) -> Result<(), PeerFailure> {
        let credentials = Credentials {
            ufrag: transport.ufrag.clone(),
            pwd: transport.pwd.clone(),
        };
        if !credentials.are_valid() {
            return Err(PeerFailure::BadIceCredentials);
        }
        if !transport.fingerprints.iter().any(Fingerprint::is_usable) {
            return Err(PeerFailure::UnusableFingerprint);
        }
        match &self.remote {
            None => {
                let answers_as = self.config.answer_setup;
                self.is_dtls_client = Some(match (self.is_offerer, transport.setup) {
                    (_, Setup::Passive) => true,
                    (_, Setup::Active) => false,
                    (false, Setup::ActPass) => answers_as != Setup::Passive,
                    (true, Setup::ActPass) => return Err(PeerFailure::BadSetup),
                });
                self.connect_deadline = Some(now + self.config.connect_timeout);
                self.state = PeerState::Checking;
            }
            Some(known) if known.fingerprints != transport.fingerprints => {
                return Err(PeerFailure::FingerprintChanged);
            }
            // An offer with other credentials requests a restart. An answer with other credentials
            // confirms a restart by this side, which has already changed the local credentials.
            Some(known) if known.credentials != credentials && !self.is_offerer => {
                self.ice.restart();
                self.restart_deadline = Some(now + self.config.connect_timeout);
            }
            Some(_) => {}
        }
        self.ice.set_remote(&credentials, transport.lite);
        self.remote = Some(RemoteTransport {
            credentials,
            fingerprints: transport.fingerprints.clone(),
        });
        for candidate in &transport.candidates {
            self.ice.add_remote(candidate);
        }
        self.ice.handle_timeout(now);
        self.drain_and_reschedule(now);
        Ok(())
    }

    /// Returns `true` if a description has other ICE credentials than the last one, which requests
    /// an ICE restart, or other fingerprints. Also `true` if no description is set yet.
    pub fn is_changed(&self, transport: &TransportParameters) -> bool {
        self.remote.as_ref().is_none_or(|known| {
            known.credentials.ufrag != transport.ufrag
                || known.credentials.pwd != transport.pwd
                || known.fingerprints != transport.fingerprints
        })
    }

    /// Restarts ICE with new credentials, which the next offer must contain.
    pub fn restart_ice(&mut self, now: Time) {
        self.ice.restart();
        self.restart_deadline = Some(now + self.config.connect_timeout);
        self.drain_and_reschedule(now);
    }

    /// Adds a remote candidate that arrived later (trickle ICE). Returns `false` if it cannot be
    /// used.
    pub fn add_remote_candidate(&mut self, now: Time, candidate: &Candidate) -> bool {
        let added = self.ice.add_remote(candidate);
        self.ice.handle_timeout(now);
        self.drain_and_reschedule(now);
        added
    }

    /// Returns the reason why ICE has no remote address to check, or `None` if it has one.
    pub fn no_remote_reason(&self) -> Option<String> {
        self.ice.no_remote_reason()
    }

    /// Ignores DTLS application data: the remote side has data channels that are not read here.
    pub fn ignore_data(&mut self) {
        self.ignores_data = true;
    }

    pub fn state(&self) -> PeerState {
        self.state
    }

    /// Returns the address to which media is sent, once ICE is connected.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.nominated_remote
    }

    pub fn counts(&self) -> PeerCounts {
        let opener = self.rtcp_opener.as_ref();
        PeerCounts {
            rtcp: opener.map_or_else(Default::default, RtcpOpener::counts),
            ..self.counts
        }
    }

    /// Returns the SRTP profile, once it is negotiated.
    pub fn srtp_profile(&self) -> Option<SrtpProfile> {
        self.keys.map(|keys| keys.profile())
    }

    /// Returns the SRTP keys, once they are negotiated.
    pub fn srtp_keys(&self) -> Option<SrtpKeys> {
        self.keys
    }

    /// Returns the opener of the remote side's media: once, after the connection is established.
    pub fn take_rtp_opener(&mut self) -> Option<RtpOpener> {
        let keys = self.keys.filter(|_| !self.rtp_opener_taken)?;
        self.rtp_opener_taken = true;
        Some(keys.rtp_opener())
    }

    /// Returns a new sealer for this side's media, once connected. Several may be in use, for
    /// several threads or streams, but all packets of a source must be sealed by the same one (RFC
    /// 3711, 3.2.1 and 9.1).
    pub fn rtp_sealer(&self) -> Option<RtpSealer> {
        self.keys.map(|keys| keys.rtp_sealer())
    }

    /// Processes a datagram received on the peer's socket.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Received<'_> {
        if matches!(self.state, PeerState::Failed | PeerState::Closed) {
            return Received::Dropped;
        }
        match bytes {
            [0..=3, ..] => self.stun(now, from, bytes),
            [20..=63, ..] => self.dtls(now, from, bytes),
            _ if MEDIA_MARK.matches(bytes) => Received::Rtp,
            [128..=191, ..] => self.rtcp(bytes),
            _ => {
                self.counts.foreign += 1;
                Received::Dropped
            }
        }
    }

    fn stun(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Received<'_> {
        if bytes.len() >= STUN_HEADER_LENGTH && bytes.starts_with(&BINDING_INDICATION) {
            // An indication keeps a path open. No answer is required (RFC 8445, 11).
            return Received::Handled;
        }
        let mut locals = self.ice.locals.iter();
        let Some(&local) = locals.find(|local| local.is_ipv4() == from.is_ipv4()) else {
            self.counts.foreign += 1;
            return Received::Dropped;
        };
        let result = self.ice.handle(now, from, local, bytes);
        self.drain_and_reschedule(now);
        let counter = match result {
            Ok(()) => return Received::Handled,
            Err(StunDropped::Malformed) => &mut self.counts.stun_malformed,
            Err(StunDropped::Unauthentic) => &mut self.counts.stun_unauthentic,
            Err(StunDropped::TooManyAddresses) => &mut self.counts.stun_of_too_many_addresses,
        };
        *counter += 1;
        Received::Dropped
    }

    fn dtls(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Received<'_> {
        let known = self.nominated_remote == Some(from) || self.ice.has_seen(from);
        if known && self.ignores_data && self.dtls.is_none() && bytes[0] == APPLICATION_DATA {
            return Received::Handled;
        }
        // The remote side may start DTLS before this side knows that ICE is connected.
        let awaited = self.is_dtls_client == Some(false) && self.keys.is_none();
        if known && awaited && self.dtls.is_none() {
            self.start_dtls(now);
        }
        let Some(dtls) = self.dtls.as_mut().filter(|_| known) else {
            if known && self.last_flight.is_some() && LastFlight::is_client_flight(bytes) {
                self.send_last_flight(from, bytes);
                return Received::Handled;
            }
            self.counts.dtls_unexpected += 1;
            // The DTLS state and its keys are dropped: only the content type of an alert is
            // readable.
            let epoch_is_later = bytes.get(3..EPOCH_END).is_some_and(|epoch| epoch != [0, 0]);
            if self.nominated_remote == Some(from)
                && self.state == PeerState::Connected
                && bytes[0] == ALERT
                && epoch_is_later
            {
                self.closed_by_remote();
            }
            return Received::Dropped;
        };
        self.dtls_source = Some(from);
        let result = dtls.handle(now, bytes);
        self.handle_dtls_result(result);
        self.drain_and_reschedule(now);
        Received::Handled
    }

    fn rtcp(&mut self, bytes: &[u8]) -> Received<'_> {
        let Some(keys) = self.keys else {
            self.counts.rtcp_without_keys += 1;
            return Received::Dropped;
        };
        let opener = self.rtcp_opener.get_or_insert_with(|| keys.rtcp_opener());
        match opener.open(bytes, &mut self.rtcp_plain) {
            Ok(_) => {
                // A remote side that sends SRTCP has received the server's last flight.
                self.last_flight = None;
                Received::Rtcp(&self.rtcp_plain)
            }
            Err(_) => Received::Dropped,
        }
    }

    /// Encrypts an RTCP compound and queues it. Returns `false` if the peer is not connected, the
    /// compound is malformed or the queue is full.
    pub fn send_rtcp(&mut self, compound: &[u8]) -> bool {
        let (Some(keys), Some(to), PeerState::Connected) =
            (self.keys, self.nominated_remote, self.state)
        else {
            return false;
        };
        if self.transmits.len() >= TRANSMITS_MAX {
            return false;
        }
        let sealer = self.rtcp_sealer.get_or_insert_with(|| keys.rtcp_sealer());
        let mut sealed = Vec::with_capacity(compound.len() + sealer.overhead());
        let is_sealed = sealer.seal(compound, &mut sealed).is_ok();
        if is_sealed {
            self.queue_datagram(to, sealed);
        }
        is_sealed
    }

    /// Closes the connection, and notifies the remote side if DTLS state was kept. No event
    /// follows.
    pub fn close(&mut self, now: Time) {
        if let Some(dtls) = &mut self.dtls {
            dtls.close();
        }
        self.drain_and_reschedule(now);
        self.dtls = None;
        if self.state != PeerState::Failed {
            self.state = PeerState::Closed;
        }
        self.deadline = None;
    }

    /// Returns the time at which [`Peer::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Returns the round-trip time of the last answered ICE check, including processing at the
    /// remote side. `None` if this side sends no checks, or before the first answer.
    pub fn round_trip(&self) -> Option<Duration> {
        self.ice.round_trip()
    }

    /// Processes the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if matches!(self.state, PeerState::Failed | PeerState::Closed) {
            return;
        }
        self.ice.handle_timeout(now);
        if let Some(dtls) = &mut self.dtls {
            let result = dtls.handle_timeout(now);
            self.handle_dtls_result(result);
        }
        if self
            .last_flight
            .as_ref()
            .is_some_and(|last| last.expires_at <= now)
        {
            self.last_flight = None;
        }
        self.drain_and_reschedule(now);
        if self.restart_deadline.is_some_and(|by| by <= now) {
            // The earlier consent belongs to the old credentials.
            self.fail(PeerFailure::ConsentExpired);
        }
        if self.connect_deadline.is_some_and(|by| by <= now) {
            self.fail(match self.nominated_remote {
                None => PeerFailure::IceTimedOut,
                Some(_) => PeerFailure::DtlsTimedOut,
            });
        }
    }

    /// Appends the next queued datagram to `out` and returns its destination. Returns `None` and
    /// leaves `out` unchanged if the queue is empty.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddr> {
        let (to, bytes) = self.transmits.pop_front()?;
        if self.transmits.is_empty() {
            // Releases the memory: the queue is rarely filled, and there are thousands of peers.
            self.transmits = VecDeque::new();
        }
        out.extend_from_slice(&bytes);
        Some(to)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        let event = self.events.pop_front()?;
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        Some(event)
    }

    fn queue_datagram(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.transmits.len() < TRANSMITS_MAX {
            self.transmits.push_back((to, bytes));
        }
    }

    /// Retransmits the last DTLS flight if a datagram requests it.
    fn send_last_flight(&mut self, to: SocketAddr, bytes: &[u8]) {
        let last = self.last_flight.as_mut();
        let datagrams = last.map(|last| last.retransmit_for(bytes).to_vec());
        for datagram in datagrams.into_iter().flatten() {
            self.queue_datagram(to, datagram);
        }
    }

    fn fail(&mut self, failure: PeerFailure) {
        if matches!(self.state, PeerState::Failed | PeerState::Closed) {
            return;
        }
        self.state = PeerState::Failed;
        self.dtls = None;
        self.last_flight = None;
        self.connect_deadline = None;
        self.deadline = None;
        self.events.push_back(PeerEvent::Failed(failure));
    }

    fn closed_by_remote(&mut self) {
        self.state = PeerState::Closed;
        self.deadline = None;
        self.events.push_back(PeerEvent::Closed);
    }

    fn start_dtls(&mut self, now: Time) {
        let Some(is_client) = self.is_dtls_client else {
            return;
        };
        let settings = DtlsSettings {
            is_client,
            timeout: self.config.connect_timeout,
            seed: self.dtls_seed,
        };
        let dtls = Dtls::new(now, &self.config.certificate, settings);
        self.dtls = Some(Box::new(dtls));
    }

    fn handle_dtls_result(&mut self, result: Result<(), PeerFailure>) {
        let Err(error) = result else {
            return;
        };
        // DTLS has served its purpose: media continues without it.
        if self.keys.is_some() {
            self.dtls = None;
            return;
        }
        self.fail(error);
    }

    /// Collects the datagrams and events of ICE and DTLS, and updates the deadline.
    fn drain_and_reschedule(&mut self, now: Time) {
        if matches!(self.state, PeerState::Failed | PeerState::Closed) {
            return;
        }
        while let Some(event) = self.ice.poll_event() {
            match event {
                IceEvent::Nominated { remote } => {
                    self.restart_deadline = None;
                    self.nominate(now, remote);
                }
                IceEvent::Lost => return self.fail(PeerFailure::ConsentExpired),
            }
        }
        while let Some((to, bytes)) = self.ice.poll_transmit() {
            self.queue_datagram(to, bytes);
        }
        let destination = self.nominated_remote.or(self.dtls_source);
        let mut flight = Vec::new();
        while let Some(dtls) = &mut self.dtls {
            let is_last = dtls.is_last_server_flight();
            if let Some(bytes) = dtls.poll_transmit() {
                if is_last {
                    flight.push(bytes.clone());
                }
                if let Some(to) = destination {
                    self.queue_datagram(to, bytes);
                }
            } else if let Some(event) = dtls.poll_event() {
                self.dtls_event(now, event, &mut flight);
            } else {
                break;
            }
        }
        if matches!(self.state, PeerState::Failed | PeerState::Closed) {
            return;
        }
        let dtls = self.dtls.as_ref().and_then(|dtls| dtls.deadline());
        let deadlines = [
            self.ice.deadline(),
            dtls,
            self.connect_deadline,
            self.restart_deadline,
            self.last_flight.as_ref().map(|last| last.expires_at),
        ];
        self.deadline = deadlines.into_iter().flatten().min();
    }

    fn nominate(&mut self, now: Time, remote: SocketAddr) {
        if self.nominated_remote == Some(remote) {
            return;
        }
        self.nominated_remote = Some(remote);
        self.events.push_back(PeerEvent::IceConnected { remote });
        if self.keys.is_none() {
            self.state = PeerState::Handshaking;
            if self.dtls.is_none() && self.is_dtls_client == Some(true) {
                self.start_dtls(now);
            }
        }
    }

    /// `flight` holds the datagrams that DTLS sent before the event, if they are its last flight as
    /// a server.
    fn dtls_event(&mut self, now: Time, event: DtlsEvent, flight: &mut Vec<Vec<u8>>) {
        match event {
            DtlsEvent::Certificate(certificate) => {
                let mut fingerprints = self.remote.iter().flat_map(|remote| &remote.fingerprints);
                self.certificate_matches =
                    fingerprints.any(|fingerprint| fingerprint.matches(&certificate));
                if !self.certificate_matches {
                    self.fail(PeerFailure::FingerprintMismatch);
                }
            }
            DtlsEvent::Completed(_) if !self.certificate_matches => {
                self.fail(PeerFailure::FingerprintMismatch);
            }
            DtlsEvent::Completed(None) => self.fail(PeerFailure::NoSrtpProfile),
            DtlsEvent::Completed(Some(keys)) => {
                self.keys = Some(keys);
                self.connect_deadline = None;
                self.state = PeerState::Connected;
                self.events.push_back(PeerEvent::DtlsConnected);
                if !self.config.keep_dtls {
                    self.dtls = None;
                    // Only a server may have to retransmit: the client has received the last
                    // flight.
                    if self.is_dtls_client != Some(true) {
                        let last =
                            LastFlight::new(std::mem::take(flight), now + LAST_FLIGHT_LIFETIME);
                        self.last_flight = Some(Box::new(last));
                    }
                }
            }
            DtlsEvent::Closed => self.closed_by_remote(),
        }
    }
}
